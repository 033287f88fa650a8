//! What is done with one mutant: loaded, its methods built, executed and dropped, under four settings that must
//! agree.

use crate::filling_allocator::fill_with;
use pteron_core::{AlignedBuffer, DType, Error};
use pteron_cpu::plan::RuleSwitches;
use pteron_fuzz::oracles::{ROUNDED, are_close, are_same};
use pteron_fuzz::pseudo_random::PseudoRandom;
use pteron_runtime::{
    DataSource, ExecuteOptions, InputValue, IoKind, IoSpec, Limits, Method, MethodOptions, OutputValue,
    Program, ProgramSource, Runtime, RuntimeOptions, TensorInput,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The place that says that a file has packed weights.
const PACKS: &str = "packed weights";
/// Most bytes of an input that a mutant gets; specs that ask for more are not called.
const LARGEST_INPUT: usize = 1 << 20;
const ARENA_BYTES: usize = 16 << 20;
const INSTRUCTIONS: u64 = 20_000;
const DEADLINE: Duration = Duration::from_secs(2);

/// The runtimes of the settings, warm.
pub struct Runtimes {
    all_rules: Arc<Runtime>,
    exact_rules: Arc<Runtime>,
    no_rules: Arc<Runtime>,
}

/// What came of one method's call, or of the attempt to get so far.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// A refusal: kind and text.
    Refused(String, String),
    Results(Vec<Value>),
}

/// One output.
#[derive(Debug, PartialEq)]
pub enum Value {
    Tensor(DType, Vec<usize>, Vec<u8>),
    Other(String),
}

/// What a mutant was, after all settings agreed.
#[derive(Debug)]
pub enum Verdict {
    /// Refused before anything could run; kind and text.
    RefusedAtLoad(String, String),
    /// All its methods were refused when they were built.
    RefusedAtBuild(String, String),
    /// At least one method was built, and no call succeeded.
    RefusedAtCall(String, String),
    /// At least one call gave results, with plans and without in this relation.
    Accepted(Agreement),
}

/// How the results with plans relate to those without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    SameBytes,
    /// By a rule that may round in another order.
    Rounded,
    /// The file brings packed weights, which plans read in place of the plain ones that the mutant changed.
    OtherPacks,
    /// The file as it is breaks a rule in a call that plans leave out or write otherwise.
    RefusedWithoutPlans,
    /// A plan refuses shapes that come out otherwise than the bounds in the file say.
    RefusedByPlan,
}

impl Runtimes {
    pub fn new() -> Self {
        let exact = ROUNDED.iter().filter(|r| pteron_runtime::rule_names().any(|known| known == **r));
        Runtimes {
            all_rules: runtime(RuleSwitches::all_on()),
            exact_rules: runtime(exact.fold(RuleSwitches::all_on(), |s, r| s.without(r))),
            no_rules: runtime(RuleSwitches::all_off()),
        }
    }

    /// Runs everything; an error is a finding.
    pub fn verdict(&self, program: &Arc<Vec<u8>>, data: Option<&Arc<Vec<u8>>>) -> Result<Verdict, String> {
        let first = filled(0xa5, || steps(&self.all_rules, program, data));
        let second = filled(0x5a, || steps(&self.all_rules, program, data));
        if let Some(at) = difference(&first, &second, &|a, b| a == b) {
            return Err(format!("uninitialised memory is read: under two fill patterns {at}"));
        }
        let plain = steps(&self.no_rules, program, data);
        let agreement = self.agreement(&plain, &first, || steps(&self.exact_rules, program, data))?;
        for (place, step) in &first {
            if let Step::Refused(kind, text) = step {
                check_refusal(kind, text).map_err(|e| format!("{place}: {e}: {kind}: {text}"))?;
            }
        }
        Ok(summary(first, agreement))
    }
}

impl Runtimes {
    /// Compares what was done without plans with what was done with all of them; `exact`: with those that may
    /// not round.
    /// Loads, builds, calls and drops once, with all rules.
    pub fn once(&self, program: &Arc<Vec<u8>>, data: Option<&Arc<Vec<u8>>>) {
        drop(steps(&self.all_rules, program, data));
    }

    /// What each rule, on by itself, changes, and the plans with all rules that may not round.
    pub fn blame(&self, program: &Arc<Vec<u8>>, data: Option<&Arc<Vec<u8>>>) -> String {
        let plain = steps(&self.no_rules, program, data);
        let mut out = String::new();
        for rule in pteron_runtime::rule_names() {
            let alone = pteron_runtime::rule_names()
                .filter(|other| *other != rule)
                .fold(RuleSwitches::all_on(), |s, other| s.without(other));
            if let Some(at) = difference(&plain, &steps(&runtime(alone), program, data), &same_numbers) {
                out.push_str(&format!("{rule} alone: {at}\n"));
            }
        }
        for (title, runtime) in [("exact rules", &self.exact_rules), ("no rules", &self.no_rules)] {
            let data =
                data.map(|d| DataSource { source: ProgramSource::Bytes(d.clone()), name: "seed.ptd".into() });
            let source = ProgramSource::Bytes(program.clone());
            let Ok(loaded) =
                Program::load_with_data(runtime, source, data.into_iter().collect(), Limits::default())
            else {
                continue;
            };
            for name in loaded.methods() {
                if loaded.load_method(name, MethodOptions::default()).is_ok() {
                    out.push_str(&format!(
                        "{title}, {name}:\n{}",
                        loaded.plan_listing(name).unwrap_or_default()
                    ));
                }
            }
        }
        out
    }

    fn agreement(
        &self,
        plain: &[(String, Step)],
        all: &[(String, Step)],
        exact: impl Fn() -> Vec<(String, Step)>,
    ) -> Result<Agreement, String> {
        let Some(at) = difference(plain, all, &same_numbers) else { return Ok(Agreement::SameBytes) };
        if has_packs(plain) {
            return Ok(Agreement::OtherPacks);
        }
        // Refused somewhere as the file has it, and not there with plans.
        let is_refused_earlier = |others: &[(String, Step)]| {
            plain.iter().filter(|(_, step)| matches!(step, Step::Refused(..))).any(|(place, _)| {
                !others.iter().any(|(other, step)| other == place && matches!(step, Step::Refused(..)))
            })
        };
        if is_refused_earlier(all) {
            return Ok(Agreement::RefusedWithoutPlans);
        }
        let exact = exact();
        if is_refused_earlier(&exact) {
            return Ok(Agreement::RefusedWithoutPlans);
        }
        if is_refused_by_plan(all) && is_refused_by_plan(&exact) {
            return Ok(Agreement::RefusedByPlan);
        }
        if let Some(at) = difference(plain, &exact, &same_numbers) {
            return Err(format!("plans change results: without and with exact rules {at}"));
        }
        match difference(plain, all, &close_numbers) {
            Some(far) => Err(format!("plans round more than they may: {far}; at first {at}")),
            None => Ok(Agreement::Rounded),
        }
    }
}

fn runtime(rules: RuleSwitches) -> Arc<Runtime> {
    let runtime = Runtime::new(RuntimeOptions { rules, threads: Some(1), isa: None }).expect("a runtime");
    pteron_demo::register(&runtime).expect("the demo backends");
    runtime
}

/// Did a kernel that stands for several calls refuse the shapes that it was given?
fn is_refused_by_plan(steps: &[(String, Step)]) -> bool {
    steps.iter().any(|(place, step)| {
        let Step::Refused(kind, text) = step else { return false };
        let operator = text.split("operator ").nth(1).and_then(|rest| rest.split(": ").next()).unwrap_or("");
        let is_plan = operator.contains(" + ") || operator.starts_with("elementwise[");
        kind == "Kernel" && is_plan && place.contains("call") && text.contains("shape")
    })
}

fn has_packs(steps: &[(String, Step)]) -> bool {
    steps.iter().any(|(place, _)| place == PACKS)
}

fn filled<T>(pattern: u8, work: impl FnOnce() -> T) -> T {
    fill_with(pattern);
    let out = work();
    fill_with(0);
    out
}

/// A refusal must say something, in one clean line.
fn check_refusal(kind: &str, text: &str) -> Result<(), &'static str> {
    if kind == "Internal" {
        return Err("a panic or a broken promise inside");
    }
    if text.len() > 4096 || text.chars().any(char::is_control) {
        return Err("not one clean line");
    }
    let mut words = text.split("0x").skip(1);
    if words.any(|w| w.bytes().take_while(u8::is_ascii_hexdigit).count() >= 8) {
        return Err("an address in a message");
    }
    // Each kind of error has a hint of its own in Python; what a text must have is what is wrong with what.
    let parts = ["; expected ", "; got ", "(hint: ", "[arguments: ", "argument '"];
    if text.len() < 20 || !parts.iter().any(|part| text.contains(part)) {
        return Err("an error that says too little");
    }
    Ok(())
}

fn summary(steps: Vec<(String, Step)>, agreement: Agreement) -> Verdict {
    if steps.iter().any(|(place, s)| place.contains("call") && matches!(s, Step::Results(_))) {
        return Verdict::Accepted(agreement);
    }
    let was_built = steps.iter().any(|(place, _)| place.contains("call"));
    let last = steps.into_iter().rfind(|(_, s)| matches!(s, Step::Refused(..)));
    let Some((place, Step::Refused(kind, text))) = last else {
        // A program without methods has nothing to run.
        return Verdict::Accepted(agreement);
    };
    match (place.as_str(), was_built) {
        ("load", _) => Verdict::RefusedAtLoad(kind, text),
        (_, false) => Verdict::RefusedAtBuild(kind, text),
        _ => Verdict::RefusedAtCall(kind, text),
    }
}

/// The first place where two settings did something else, as text.
fn difference(
    a: &[(String, Step)],
    b: &[(String, Step)],
    is_same: &dyn Fn(&Value, &Value) -> bool,
) -> Option<String> {
    for (place, x) in a {
        // What keeps state may be left out by a plan, so that there is none to look at.
        let Some((_, y)) = b.iter().find(|(other, _)| other == place) else {
            match place.starts_with("state") || place == PACKS {
                true => continue,
                false => {
                    return Some(format!(
                        "{place} came about in one setting only: {x:.300?}, not in {b:.300?}"
                    ));
                }
            }
        };
        match (x, y) {
            // Which of several faults is named first may depend on the plan.
            (Step::Refused(..), Step::Refused(..)) => {}
            (Step::Results(x), Step::Results(y)) => {
                if let Some(at) = x.iter().zip(y).position(|(x, y)| !is_same(x, y)) {
                    return Some(format!("output {at} of {place} differs: {:.300?} {:.300?}", x[at], y[at]));
                }
                if x.len() != y.len() {
                    return Some(format!("{place} has another number of outputs"));
                }
            }
            // Time that is spent is no property of the program.
            (Step::Refused(kind, _), _) | (_, Step::Refused(kind, _)) if kind == "DeadlineExceeded" => {}
            (x, y) => return Some(format!("{place} is {:.400?} and {:.400?}", x, y)),
        }
    }
    None
}

fn floats(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    match dtype {
        DType::Float32 => {
            Some(bytes.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).collect())
        }
        DType::Float64 => Some(bytes.as_chunks::<8>().0.iter().map(|c| f64::from_le_bytes(*c)).collect()),
        _ => None,
    }
}

/// The same bytes, but for which NaN it is.
fn same_numbers(a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    let (Value::Tensor(dtype, shape, x), Value::Tensor(other, other_shape, y)) = (a, b) else { return false };
    if dtype != other || shape != other_shape {
        return false;
    }
    match (floats(*dtype, x), floats(*dtype, y)) {
        (Some(x), Some(y)) => are_same(&x, &y),
        _ => false,
    }
}

/// As near as sums in another order are. Weights that a mutation made huge overflow in one order and not in
/// another, and what follows an overflow is anything: such tensors say nothing.
fn close_numbers(a: &Value, b: &Value) -> bool {
    if same_numbers(a, b) {
        return true;
    }
    let (Value::Tensor(dtype, shape, x), Value::Tensor(other, other_shape, y)) = (a, b) else { return false };
    if dtype != other || shape != other_shape {
        return false;
    }
    let (Some(x), Some(y)) = (floats(*dtype, x), floats(*dtype, y)) else { return false };
    let is_wild = |v: &f64| !v.is_finite() || v.abs() > 1e12;
    if x.iter().chain(&y).any(is_wild) {
        return true;
    }
    are_close(&x, &y, 1e-3)
}

fn refused(error: &Error) -> Step {
    Step::Refused(format!("{:?}", error.kind()), error.to_string())
}

/// Everything that one runtime does with the file.
fn steps(runtime: &Arc<Runtime>, program: &Arc<Vec<u8>>, data: Option<&Arc<Vec<u8>>>) -> Vec<(String, Step)> {
    #[allow(clippy::needless_update, reason = "whatever other limits there are keep their defaults")]
    let limits =
        Limits { arena_bytes: Some(ARENA_BYTES), instructions: Some(INSTRUCTIONS), ..Default::default() };
    let data = data.map(|d| DataSource { source: ProgramSource::Bytes(d.clone()), name: "seed.ptd".into() });
    let source = ProgramSource::Bytes(program.clone());
    let loaded = match Program::load_with_data(runtime, source, data.into_iter().collect(), limits) {
        Ok(loaded) => loaded,
        Err(e) => return vec![("load".into(), refused(&e))],
    };
    let mut out = Vec::new();
    drop(loaded.listing());
    if loaded.named_data("pteron.packed").is_some() {
        out.push((PACKS.to_string(), Step::Results(vec![])));
    }
    let names: Vec<String> = loaded.methods().into_iter().map(String::from).take(4).collect();
    for (at, name) in names.iter().enumerate() {
        let options = MethodOptions { seed: Some(7), ..Default::default() };
        match loaded.load_method(name, options) {
            Ok(method) => {
                drop(loaded.plan_listing(name));
                for call in 0..2 {
                    let step = call_once(&method, call);
                    // A refused call may have written a part of the state, and with plans another part.
                    if matches!(step, Step::Refused(..))
                        && method.is_stateful()
                        && let Err(e) = method.reset_state()
                    {
                        out.push((format!("reset after call {call} of method {at}"), refused(&e)));
                    }
                    out.push((format!("call {call} of method {at}"), step));
                }
                if let Some(state) = state_of(&method) {
                    out.push((format!("state of method {at}"), state));
                }
            }
            Err(e) => out.push((format!("build of method {at}"), refused(&e))),
        }
    }
    out
}

fn state_of(method: &Method) -> Option<Step> {
    if !method.is_stateful() {
        return None;
    }
    Some(match method.get_state() {
        Ok(state) => Step::Results(
            state.iter().map(|(_, t)| tensor(t.meta.dtype(), t.meta.shape(), t.bytes())).collect(),
        ),
        Err(e) => refused(&e),
    })
}

fn tensor(dtype: DType, shape: &[usize], bytes: &[u8]) -> Value {
    Value::Tensor(dtype, shape.to_vec(), bytes.to_vec())
}

/// One input's memory.
struct Owned {
    dtype: DType,
    shape: Vec<usize>,
    data: AlignedBuffer,
}

fn call_once(method: &Method, call: u64) -> Step {
    let mut random = PseudoRandom::of_number(call + 1);
    let specs = method.inputs();
    let Some(owned) = specs.iter().map(|s| make(s, call, &mut random)).collect::<Option<Vec<_>>>() else {
        return Step::Results(vec![Value::Other("inputs too large to call".into())]);
    };
    let inputs: Vec<InputValue<'_>> = specs.iter().zip(&owned).map(|(s, o)| input(s, o.as_ref())).collect();
    let options = ExecuteOptions { deadline: Some(Instant::now() + DEADLINE), ..Default::default() };
    match method.execute(&inputs, options) {
        Ok(outputs) => Step::Results(
            outputs
                .iter()
                .map(|o| match o {
                    OutputValue::Tensor(t) => tensor(t.meta.dtype(), t.meta.shape(), t.bytes()),
                    other => Value::Other(format!("{other:?}")),
                })
                .collect(),
        ),
        Err(e) => refused(&e),
    }
}

/// Memory for a tensor input, `Some(None)` for others, `None` where it would be too large.
fn make(spec: &IoSpec, call: u64, random: &mut PseudoRandom) -> Option<Option<Owned>> {
    let IoKind::Tensor(t) = &spec.kind else { return Some(None) };
    let extent = |e: &pteron_runtime::Extent| {
        let (min, max) = e.range();
        if call == 0 { min.max(3).min(max) } else { max }
    };
    let shape: Vec<usize> = t.extents.iter().map(extent).collect();
    let nbytes = pteron_core::sizes::checked_nbytes(&shape, t.dtype).ok()?;
    if nbytes > LARGEST_INPUT {
        return None;
    }
    let mut data = AlignedBuffer::zeroed(nbytes).ok()?;
    match t.dtype {
        DType::Float32 => data
            .as_mut_elements::<f32>()
            .iter_mut()
            .for_each(|v| *v = (random.below(4001) as f32 - 2000.0) / 1000.0),
        DType::Int64 => data.as_mut_elements::<i64>().iter_mut().for_each(|v| *v = random.below(4) as i64),
        DType::Int32 => data.as_mut_elements::<i32>().iter_mut().for_each(|v| *v = random.below(4) as i32),
        DType::Float64 => data.as_mut_elements::<f64>().iter_mut().for_each(|v| *v = random.below(9) as f64),
        // Small bytes are small numbers in all others, and legal bools.
        _ => data.as_mut_slice().iter_mut().for_each(|v| *v = random.below(2) as u8),
    }
    Some(Some(Owned { dtype: t.dtype, shape, data }))
}

fn input<'a>(spec: &'a IoSpec, owned: Option<&'a Owned>) -> InputValue<'a> {
    match (&spec.kind, owned) {
        (IoKind::Tensor(_), Some(o)) => {
            // SAFETY: `o` holds a dense row-major tensor of this shape and outlives the call.
            InputValue::Tensor(unsafe { TensorInput::new(o.dtype, &o.shape, None, o.data.as_ptr()) })
        }
        (IoKind::Int { traced, range, .. }, _) => InputValue::Int(
            range.map_or(*traced, |(min, max)| if min <= max { (*traced).clamp(min, max) } else { *traced }),
        ),
        (IoKind::Bool { traced }, _) => InputValue::Bool(*traced),
        (IoKind::Double { traced }, _) => InputValue::Double(*traced),
        (IoKind::String { traced }, _) => InputValue::String(traced),
        _ => InputValue::None,
    }
}
