//! Target `kernel_args`: one operator of the kernel table on generated arguments, through every kernel that it
//! has and every instruction set.
//!
//! Oracles: no panic and no write outside outputs and scratch (bytes around every buffer are looked at);
//! inputs stay as they are; outputs lie in the call's own tensors; the order of chunks changes no byte; and
//! every kernel that takes the call says what the reference kernel says: the same shapes, the same errors at
//! load, for exact arithmetic the same bytes, else close numbers.

mod agreement;
pub mod argument;
#[allow(unsafe_code, reason = "plays the caller's part in the contracts of kernels and delegates")]
pub mod call;
pub mod contents;
pub mod generate;
pub mod operators;
mod recipes;
mod right_calls;

use crate::choices::Choices;
use agreement::check_agreement;
use argument::Argument;
use call::{Outcome, Setting};
use generate::Generator;
use operators::{OPERATORS, Operator};
use pteron_core::{CpuProfile, DType, Dims, Error, ErrorKind, Schema, StaticKernel};
use std::sync::LazyLock;

static PROCESSORS: LazyLock<Vec<CpuProfile>> = LazyLock::new(|| {
    let isas = pteron_kernels::cpu_detect::available_isas();
    isas.into_iter()
        .map(|isa| CpuProfile { isa, l1_bytes: 32 << 10, l2_bytes: 1 << 20, load_threads: 1 })
        .collect()
});

/// How far a call came, for a driver that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Every kernel refused or declined it: the reference kernel's words.
    Refused(String),
    /// It ran.
    Ran,
    /// It was too large to run.
    TooLarge,
}

/// Runs the target; the operator and how far it came.
pub fn run(data: &[u8]) -> (&'static str, Reach) {
    let mut choices = Choices::new(data);
    let operator = &OPERATORS[choices.below(OPERATORS.len())];
    let cpu = &PROCESSORS[choices.below(PROCESSORS.len())];
    let setting = Setting { cpu, is_known: !choices.chance(10) };
    let mut generator = Generator::new(&mut choices);
    let mut args = arguments(&mut generator, &operator.schema);
    let is_exact = generator.contents == contents::Contents::Small;
    if generator.is_wild && generator.choices.chance(20) {
        enlarge(&mut args, generator.choices);
        for kernel in &operator.kernels {
            call::prepare(kernel, &operator.schema, &args, setting);
        }
        return (&operator.schema.name, Reach::TooLarge);
    }
    if !generator.choices.chance(5) {
        fit_outputs(operator, &mut args, setting);
    }
    (&operator.schema.name, compare(operator, &args, setting, is_exact))
}

/// The call of `data` in words.
pub fn describe(data: &[u8]) -> String {
    let mut choices = Choices::new(data);
    let operator = &OPERATORS[choices.below(OPERATORS.len())];
    let cpu = &PROCESSORS[choices.below(PROCESSORS.len())];
    let _is_unknown = choices.chance(10);
    let mut generator = Generator::new(&mut choices);
    let args = arguments(&mut generator, &operator.schema);
    let named = operator.schema.args.iter().zip(&args).map(|(a, v)| format!("{}={v:?}", a.name));
    format!("{} on {}: {}", operator.schema.name, cpu.isa.name(), named.collect::<Vec<_>>().join(", "))
}

/// Arguments for `schema`, outputs included.
fn arguments(generator: &mut Generator<'_, '_>, schema: &Schema) -> Vec<Argument> {
    let mut args: Vec<Argument> = schema.args.iter().map(|declared| generator.argument(declared)).collect();
    if !generator.is_wild {
        recipes::apply(generator, schema, &mut args);
        if generator.choices.chance(30) {
            args = right_calls::any(generator, schema).unwrap_or(args);
        }
    }
    // Something else in one place.
    if generator.choices.chance(5) {
        let at = generator.choices.below(schema.args.len());
        if let (Some(arg), Some(declared)) = (args.get_mut(at), schema.args.get(at)) {
            *arg = generator.argument(declared);
        }
    }
    args
}

/// Makes tensors so large that only `prepare` can be asked about them.
fn enlarge(args: &mut [Argument], choices: &mut Choices<'_>) {
    for arg in args {
        if let Argument::Tensor(t) = arg
            && !t.is_constant
            && let Some(extent) = t.spec.shape.first_mut()
        {
            *extent = choices.pick(&[1usize << 20, 1 << 33, 1 << 45, 1 << 58]);
            if t.spec.nbytes().is_err() {
                t.spec.shape = Dims::EMPTY;
                t.spec.dim_order = pteron_core::DimOrder::contiguous(0);
            }
        }
    }
}

/// Gives outputs the shapes and element types that the last kernel, the reference kernel, asks for in its
/// errors.
fn fit_outputs(operator: &Operator, args: &mut [Argument], setting: Setting<'_>) {
    let Some(kernel) = operator.kernels.last() else { return };
    let mut is_tried = vec![false; args.len()];
    for _ in 0..6 {
        let Outcome::Refused { error, .. } = call::run(kernel, &operator.schema, args, setting, false) else {
            return;
        };
        let Some(wanted) = Wanted::of(&error) else { return };
        let at = operator.schema.outputs().find(|at| !is_tried[*at]);
        let Some(Argument::Tensor(t)) = at.and_then(|at| args.get_mut(at)) else { return };
        let mut spec = t.spec.clone();
        match wanted {
            Wanted::Shape(shape) => {
                spec.shape = shape;
                spec.dim_order = pteron_core::DimOrder::contiguous(shape.len());
            }
            Wanted::Type(dtype) => spec.dtype = dtype,
        }
        if spec.shape == t.spec.shape && spec.dtype == t.spec.dtype {
            // It is not this output that is refused.
            is_tried[at.unwrap_or_default()] = true;
            continue;
        }
        match spec.nbytes() {
            Ok(n) if n <= 1 << 20 => t.bytes = vec![0; n],
            _ => return,
        }
        t.now = spec.shape;
        t.spec = spec;
    }
}

enum Wanted {
    Shape(Dims),
    Type(DType),
}

impl Wanted {
    fn of(error: &Error) -> Option<Wanted> {
        let detail = error.detail();
        if detail.message.contains("cannot take the shape") {
            let list = detail.got.as_deref()?.trim_matches(['[', ']']);
            let extents: Option<Vec<usize>> =
                list.split(", ").filter(|e| !e.is_empty()).map(|e| e.parse().ok()).collect();
            return Some(Wanted::Shape(Dims::new(&extents?).ok()?));
        }
        let expected = detail.expected.as_deref()?;
        let words = expected.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut dtypes = words.filter_map(|w| DType::ALL.into_iter().find(|d| d.name() == w));
        dtypes.next().map(Wanted::Type)
    }
}

/// Runs every kernel and compares.
fn compare(operator: &Operator, args: &[Argument], setting: Setting<'_>, is_exact: bool) -> Reach {
    let schema = &operator.schema;
    let outcome = |kernel: &StaticKernel| {
        let outcome = call::run(kernel, schema, args, setting, false);
        if let Outcome::Done(outputs) = &outcome {
            let Outcome::Done(reversed) = call::run(kernel, schema, args, setting, true) else {
                panic!("the kernel {} fails when its chunks run in another order", kernel.variant)
            };
            assert!(*outputs == reversed, "the order of chunks of {} changes its result", kernel.variant);
        }
        if let Outcome::Refused { error, .. } = &outcome {
            let is_bug = error.kind() == ErrorKind::Internal;
            assert!(!is_bug, "the kernel {} calls its arguments a bug of its own: {error}", kernel.variant);
        }
        (kernel.variant, outcome)
    };
    let mut outcomes: Vec<(&str, Outcome)> = operator.kernels.iter().map(outcome).collect();
    outcomes.retain(|(_, o)| !matches!(o, Outcome::Declined));
    let Some((_, reference)) = outcomes.pop() else {
        return Reach::Refused("declined".into());
    };
    for (variant, fast) in &outcomes {
        check_agreement(&schema.name, variant, fast, &reference, is_exact);
    }
    match reference {
        Outcome::Done(_) => Reach::Ran,
        Outcome::Refused { error, .. } => Reach::Refused(error.to_string()),
        _ => Reach::TooLarge,
    }
}
