//! Initialised delegates of a session, and calls to them. Unsafe island: it lends several slots of the
//! value table at once, which load has checked to be different values in disjoint memory.

use crate::load::delegate_data::DelegateData;
use crate::load::expand::check_options as check_expanded;
use crate::load::method_code::MethodCode;
use crate::load::source::file_key;
use crate::load::step::{Action, Step};
use crate::session::cancel::CancelHandle;
use crate::session::stated_outputs::StatedOutputs;
use crate::session::watch::Watch;
use crate::step_effects::{ArgumentRole, MemoryMap};
use pteron_core::error::{panic_text, printable};
use pteron_core::{
    AliasRule, ArgView, Backend, BackendOption, Delegate, DelegateEvent, DelegateState, Error, ErrorKind,
    ExecuteContext, InitContext, OutputView, Result, Value, ValueId, ValueKind,
};
use pteron_format::DelegateDef;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A delegate of one session.
pub(crate) struct SessionDelegate {
    delegate: ManuallyDrop<Box<dyn Delegate>>,
    pub num_outputs: usize,
    // A panic leaves it in a state that nobody knows.
    is_poisoned: bool,
    // Kept: a backend outlives its delegates.
    _backend: Arc<dyn Backend>,
}

impl Drop for SessionDelegate {
    fn drop(&mut self) {
        // A panic would go on in whoever drops a session, and end the process where a second delegate panics too.
        // SAFETY: dropped here and nowhere else; nobody uses it afterwards.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut self.delegate) }));
        // What a panic carries may panic when it is dropped.
        std::mem::forget(dropped);
    }
}

impl SessionDelegate {
    /// The state that it offers.
    pub(crate) fn state(&mut self) -> Result<Option<&mut dyn DelegateState>> {
        match self.is_poisoned {
            true => Err(poisoned()),
            false => Ok(self.delegate.state()),
        }
    }
}

#[cold]
fn poisoned() -> Error {
    Error::delegate("the delegate panicked in an earlier call and cannot be used any more")
        .hint("load the method again")
}

/// The delegates of a session by their index in the method. One that load has expanded is in no session.
#[derive(Default)]
pub(crate) struct SessionDelegates(Vec<Option<SessionDelegate>>);

impl SessionDelegates {
    /// Every delegate with its index.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = (usize, &mut SessionDelegate)> {
        self.0.iter_mut().enumerate().filter_map(|(index, delegate)| Some((index, delegate.as_mut()?)))
    }

    /// The delegate that a step names.
    pub(crate) fn known(&mut self, index: u32) -> Result<&mut SessionDelegate> {
        let found = self.0.get_mut(index as usize).and_then(Option::as_mut);
        found.ok_or_else(|| Error::internal("a delegate was not initialised"))
    }

    /// Number of outputs of a delegate.
    pub(crate) fn num_outputs(&self, index: u32) -> usize {
        self.0.get(index as usize).and_then(Option::as_ref).map_or(0, |delegate| delegate.num_outputs)
    }

    /// Number of outputs of each, by index.
    pub(crate) fn outputs(&self) -> Vec<usize> {
        (0..).take(self.0.len()).map(|index| self.num_outputs(index)).collect()
    }
}

/// Initialises all delegates of a method, in order. When one fails, those before it are dropped. Options for
/// a backend that the method does not use are an error: nobody would read them.
pub(crate) fn init_delegates(
    code: &MethodCode,
    options: &HashMap<String, Vec<(String, BackendOption)>>,
    num_threads: usize,
) -> Result<SessionDelegates> {
    check_options(code, options)?;
    let mut out = Vec::new();
    // All missing backends are looked for before the first init does any work.
    let find = |(i, def): (usize, &DelegateDef)| match code.expanded.has(i) {
        true => Ok(None),
        false => code.runtime.backend(&def.backend).map(Some).map_err(|e| e.method(code.ir.name.as_str())),
    };
    let backends: Vec<Option<Arc<dyn Backend>>> =
        code.ir.delegates.iter().enumerate().map(find).collect::<Result<_>>()?;
    for (i, (def, backend)) in code.ir.delegates.iter().zip(backends).enumerate() {
        let Some(backend) = backend else {
            out.push(None);
            continue;
        };
        let at = |e: Error| {
            let e = match e.kind() {
                ErrorKind::Cancelled | ErrorKind::LimitExceeded => e,
                _ => e.with_kind(ErrorKind::Delegate),
            };
            let message = format!("delegate {i} of the method could not be made: {}", e.detail().message);
            e.with_message(message).method(code.ir.name.as_str()).backend(def.backend.as_str())
        };
        let blob = code
            .data
            .constant(&file_key(&def.blob))
            .ok_or_else(|| Error::internal("a checked blob lies outside the file"))?;
        let ctx = InitContext {
            method: &code.ir.name,
            options: options.get(&def.backend).map(Vec::as_slice).unwrap_or_default(),
            named_data: Arc::new(DelegateData::new(code.data.clone(), &code.ir.name, i)),
            num_threads,
        };
        let made = catch_unwind(AssertUnwindSafe(|| {
            let delegate = backend.init(&ctx, blob, &def.specs)?;
            let num_outputs = delegate.num_outputs();
            Ok((delegate, num_outputs))
        }));
        let (delegate, num_outputs) = match made {
            Ok(result) => result.map_err(at)?,
            Err(panic) => {
                return Err(at(Error::delegate("the backend panicked in init").got(panic_text(&*panic))));
            }
        };
        out.push(Some(SessionDelegate {
            delegate: ManuallyDrop::new(delegate),
            num_outputs,
            is_poisoned: false,
            _backend: backend,
        }));
    }
    Ok(SessionDelegates(out))
}

fn check_options(code: &MethodCode, options: &HashMap<String, Vec<(String, BackendOption)>>) -> Result<()> {
    for (i, def) in code.ir.delegates.iter().enumerate() {
        if let (true, Some(given)) = (code.expanded.has(i), options.get(&def.backend)) {
            check_expanded(&def.backend, given).map_err(|e| e.method(code.ir.name.as_str()))?;
        }
    }
    let mut used: Vec<&str> = code.ir.delegates.iter().map(|d| d.backend.as_str()).collect();
    let Some(unused) = options.keys().filter(|name| !used.contains(&name.as_str())).min() else {
        return Ok(());
    };
    used.sort_unstable();
    used.dedup();
    let used: Vec<String> = used.into_iter().map(printable).collect();
    Err(Error::input("options are given for a backend that the method does not use")
        .method(code.ir.name.as_str())
        .argument("backend_options")
        .expected(if used.is_empty() {
            "none: the method uses no backends".to_string()
        } else {
            format!("options for {}", used.join(", "))
        })
        .got(format!("options for {}", printable(unused)))
        .hint("check the spelling; a program's backends(method) lists the names"))
}

/// Checks every delegate call now that the number of outputs is known: enough arguments, as many outputs as the
/// file says, outputs are different tensors, clear of the inputs, of constants and of callers' memory. Returns,
/// per step, the roles to look at before every run where that cannot be settled now.
pub(crate) fn check_calls(
    code: &MethodCode,
    delegates: &SessionDelegates,
) -> Result<HashMap<usize, Box<[ArgumentRole]>>> {
    let mut open = HashMap::new();
    if delegates.0.iter().all(Option::is_none) {
        return Ok(open);
    }
    let map = MemoryMap::new(&code.ir, &code.links);
    let stated = StatedOutputs::new(code, &map, &|delegate| delegates.num_outputs(delegate));
    for (at, step) in code.steps.iter().enumerate() {
        let Action::Delegate { delegate } = &step.action else { continue };
        let place = |e: Error| {
            let backend = code.ir.delegates.get(*delegate as usize).map_or("?", |d| d.backend.as_str());
            e.method(code.ir.name.as_str()).instruction(code.instruction(step)).backend(backend)
        };
        let roles = call_roles(code, step, delegates.num_outputs(*delegate)).map_err(place)?;
        if let Some(input) = map
            .inputs_written_by(&roles)
            .into_iter()
            .find(|v| code.input_rules.rules.iter().any(|r| r.id == *v))
        {
            return Err(place(
                Error::program("a delegate would write to an input of the method")
                    .expected("outputs in planned memory or outputs of the method")
                    .got(format!("value {}", input.0)),
            ));
        }
        if !map.is_safe(&roles, AliasRule::None).map_err(place)? {
            open.insert(at, roles.into_boxed_slice());
        }
        stated.check(at, step, *delegate, delegates.num_outputs(*delegate)).map_err(place)?;
    }
    Ok(open)
}

fn call_roles(code: &MethodCode, step: &Step, num_outputs: usize) -> Result<Vec<ArgumentRole>> {
    let split = step.args.len().checked_sub(num_outputs).ok_or_else(|| {
        Error::program("a delegate has more outputs than its call has arguments")
            .expected(format!("at most {} outputs", step.args.len()))
            .got(num_outputs.to_string())
    })?;
    let mut roles = Vec::new();
    for (i, id) in step.args.iter().enumerate() {
        let kind = code.ir.value(*id).map(crate::ir::ValueIr::kind);
        let is_output = i >= split;
        match kind {
            Some(ValueKind::Tensor) => roles.push(ArgumentRole { value: *id, is_output }),
            _ if is_output => {
                return Err(Error::program("an output of a delegate call is not a tensor")
                    .argument(format!("{i}"))
                    .expected("Tensor")
                    .got(kind.map_or("nothing".into(), |k| k.to_string())));
            }
            _ => {}
        }
    }
    Ok(roles)
}

/// Calls a delegate with the arguments of `step`; `values` is the table of the session.
pub(crate) fn call(
    code: &MethodCode,
    values: &mut [Value],
    known: &mut SessionDelegate,
    step: &Step,
    cancel: &CancelHandle,
    watch: Option<&Watch<'_>>,
    events: Option<&mut dyn FnMut(DelegateEvent<'_>)>,
) -> Result<()> {
    if known.is_poisoned {
        return Err(poisoned());
    }
    let split = step.args.len().saturating_sub(known.num_outputs);
    let (input_ids, output_ids) = step.args.split_at(split);
    let (base, len) = (values.as_mut_ptr(), values.len());
    let mut inputs: SmallVec<[ArgView<'_>; 8]> = SmallVec::new();
    for id in input_ids {
        // SAFETY: within the table, which nothing else touches during the call; inputs are only read and
        // are different values from every output (`check_calls`).
        inputs.push(arg_view(unsafe { &*entry(base, len, *id)? })?);
    }
    let mut outputs: SmallVec<[OutputView<'_>; 4]> = SmallVec::new();
    for id in output_ids {
        // SAFETY: as above; outputs are different from each other, so every `&mut` is the only one.
        let value = unsafe { &mut *entry(base, len, *id)? };
        let slot = value.as_tensor_mut().ok_or_else(|| Error::internal("a delegate output is no tensor"))?;
        if !slot.is_static() {
            // Not as an earlier call left it.
            let bound = *slot.bound();
            slot.resize(&bound)?;
        }
        outputs.push(OutputView::new(slot));
    }
    let is_cancelled = || !cancel.is_running();
    let poll = || watch.map_or(Ok(()), Watch::between_chunks);
    let mut ctx = ExecuteContext {
        method: &code.ir.name,
        instruction: code.instruction(step),
        is_cancelled: &is_cancelled,
        poll: watch.is_some().then_some(&poll),
        events: match events {
            Some(report) => Some(report),
            None => None,
        },
    };
    let delegate = &mut known.delegate;
    match catch_unwind(AssertUnwindSafe(|| delegate.execute(&mut ctx, &inputs, &mut outputs))) {
        // It stopped because it was told to, in whatever words: it does not know whether that was a deadline.
        Ok(Err(e)) if is_cancelled() && !e.detail().is_memory_kept => Err(match e.detail().cause {
            None => cancel.error(),
            Some(_) => e.with_kind(cancel.error().kind()),
        }),
        Ok(result) => result,
        Err(panic) => {
            known.is_poisoned = true;
            Err(Error::delegate("the delegate panicked").got(panic_text(&*panic)))
        }
    }
}

/// The address of a value, checked to be in the table.
fn entry(base: *mut Value, len: usize, id: ValueId) -> Result<*mut Value> {
    if id.index() < len {
        Ok(base.wrapping_add(id.index()))
    } else {
        Err(Error::internal("a checked value index is out of range"))
    }
}

fn arg_view(value: &Value) -> Result<ArgView<'_>> {
    Ok(match value {
        Value::Tensor(t) => ArgView::Tensor(t.view()),
        Value::Int(v) => ArgView::Int(*v),
        Value::Double(v) => ArgView::Double(*v),
        Value::Bool(v) => ArgView::Bool(*v),
        Value::String(s) => ArgView::String(s),
        Value::None => ArgView::None,
        _ => return Err(Error::internal("a delegate argument is a list")),
    })
}
