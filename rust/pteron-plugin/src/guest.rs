//! The plugin's side of a backend and its delegates: the functions that a table lists. Unsafe island.

use crate::abi::{
    FAILED, KIND_BOOL, KIND_DOUBLE, KIND_INT, KIND_STRING, KIND_TENSOR, OK, PteronArg, PteronBytes,
    PteronError, PteronEvent, PteronExecute, PteronInit, PteronOutput, PteronTensor,
};
use crate::guest_data::{HostData, bytes};
use pteron_core::error::panic_text;
use pteron_core::{
    ArgView, Availability, Backend, BackendOption, CompileSpec, DType, Delegate, DelegateEvent, DimOrder,
    Dims, Dynamism, Error, EventId, ExecuteContext, InitContext, OutputView, Result, TensorMeta, TensorSlot,
    TensorSpec, TensorView,
};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs `work`; what it fails with, or panics with, goes to the host.
pub(crate) fn guarded(error: *mut PteronError, work: impl FnOnce() -> Result<()>) -> i32 {
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failed)) => failed,
        Err(panic) => Error::delegate(format!("panicked: {}", panic_text(&*panic))),
    };
    let text = failed.to_string();
    // SAFETY: the host passes an error that is valid during the call.
    unsafe {
        if let Some(error) = error.as_ref()
            && let Some(set) = error.set
        {
            let text = PteronBytes { data: text.as_ptr(), len: text.len() };
            set(error.host, text, failed.detail().debug_handle.unwrap_or(-1));
        }
    }
    FAILED
}

/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn text<'a>(b: &PteronBytes) -> Result<&'a str> {
    // SAFETY: the caller promises that the bytes are valid as the header says.
    std::str::from_utf8(unsafe { bytes(b) })
        .map_err(|_| Error::delegate("the host gave a text that is not UTF-8"))
}

/// # Safety
/// As [`bytes`], for `count` elements.
pub(crate) unsafe fn list<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: not null; the caller promises `count` elements at `data` for as long as the result is used.
    unsafe { std::slice::from_raw_parts(data, count) }
}

/// # Safety
/// `plugin` must be that of a table of [`table`].
unsafe fn backend<'a>(plugin: *mut c_void) -> &'a dyn Backend {
    // SAFETY: the caller's contract; the box is never freed.
    unsafe { &**plugin.cast::<Box<dyn Backend>>() }
}

/// # Safety
/// `plugin` is that of the table; `error` is valid during the call.
pub(crate) unsafe extern "C" fn is_available(plugin: *mut c_void, error: *mut PteronError) -> i32 {
    guarded(error, || {
        // SAFETY: the host passes what the table holds.
        match unsafe { backend(plugin) }.is_available() {
            Availability::Available => Ok(()),
            Availability::Unavailable(reason) => Err(Error::delegate(reason)),
        }
    })
}

/// A delegate, and what it may look at.
pub(crate) struct Guest {
    pub(crate) delegate: Box<dyn Delegate>,
    data: Arc<HostData>,
}

/// # Safety
/// `plugin` is that of the table; the other arguments are as the header says, during the call.
pub(crate) unsafe extern "C" fn init(
    plugin: *mut c_void,
    init: *const PteronInit,
    delegate: *mut *mut c_void,
    num_outputs: *mut usize,
    error: *mut PteronError,
) -> i32 {
    guarded(error, || {
        // SAFETY: the host passes what the header says, valid during the call.
        unsafe {
            let init = told(init, PteronInit::UNSAID, PteronInit::FIRST_SIZE)
                .ok_or_else(|| Error::delegate("the host told nothing to init"))?;
            let specs = list(init.specs, init.spec_count)
                .iter()
                .map(|s| Ok(CompileSpec { key: text(&s.key)?.to_string(), value: bytes(&s.value).to_vec() }));
            let specs = specs.collect::<Result<Vec<_>>>()?;
            let options = list(init.options, init.option_count).iter().map(|o| {
                let value = match o.kind {
                    0 => BackendOption::Bool(o.number != 0),
                    1 => BackendOption::Int(o.number),
                    _ => BackendOption::String(text(&o.text)?.to_string()),
                };
                Ok((text(&o.key)?.to_string(), value))
            });
            let options = options.collect::<Result<Vec<_>>>()?;
            let data = Arc::new(HostData::of(&init));
            let ctx = InitContext {
                method: text(&init.method)?,
                options: &options,
                named_data: data.clone(),
                num_threads: init.num_threads.max(1),
            };
            let made =
                catch_unwind(AssertUnwindSafe(|| backend(plugin).init(&ctx, bytes(&init.processed), &specs)));
            let made = match made {
                Ok(Ok(made)) => made,
                failed => {
                    data.end();
                    return match failed {
                        Ok(result) => result.map(drop),
                        Err(panic) => std::panic::resume_unwind(panic),
                    };
                }
            };
            num_outputs.write(made.num_outputs());
            delegate.write(Box::into_raw(Box::new(Guest { delegate: made, data })).cast());
            Ok(())
        }
    })
}

/// # Safety
/// `delegate` is one that `init` made, and is not used afterwards.
pub(crate) unsafe extern "C" fn destroy(delegate: *mut c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: made by `init`, destroyed once.
        let guest = unsafe { Box::from_raw(delegate.cast::<Guest>()) };
        let data = guest.data.clone();
        drop(guest);
        data.end();
    }));
}

/// dtype, extents and memory order of a tensor; `bound` in place of its shape where there is one.
///
/// # Safety
/// `t` must be as the header says, and `bound` null or as many extents as it has dimensions.
pub(crate) unsafe fn spec(t: &PteronTensor, bound: *const i64) -> Result<(TensorSpec, Dims)> {
    let bad = || Error::delegate("the host gave a tensor that is none");
    let rank = usize::try_from(t.ndim).map_err(|_| bad())?;
    // SAFETY: the caller promises a tensor as the header says: `ndim` extents and strides, or null.
    let (shape, strides) = unsafe { (list(t.shape, rank), list(t.strides, rank)) };
    let dims = |from: &[i64]| -> Result<Dims> {
        let mut out = Dims::EMPTY;
        for extent in from {
            out.push(usize::try_from(*extent).map_err(|_| bad())?)?;
        }
        Ok(out)
    };
    let dtype = i8::try_from(t.dtype).ok().and_then(DType::from_code).ok_or_else(bad)?;
    let mut order: Vec<u8> = (0..rank as u8).collect();
    order.sort_by_key(|i| std::cmp::Reverse(strides.get(*i as usize).copied().unwrap_or(0)));
    let current = dims(shape)?;
    let bound = match bound.is_null() {
        true => current,
        // SAFETY: the caller promises as many extents as the tensor has dimensions.
        false => dims(unsafe { list(bound, rank) })?,
    };
    let dim_order = DimOrder::new(&order)?;
    Ok((TensorSpec { dtype, shape: bound, dim_order, dynamism: Dynamism::Bounded }, current))
}

/// A copy of what the host tells, on top of `unsaid`: an older one tells less. None where that is less than the first
/// version of the struct.
///
/// # Safety
/// `given` must be null or point to a struct as the header says, whose first field is its size and whose other fields
/// are numbers or pointers.
unsafe fn told<T: Copy>(given: *const T, unsaid: T, first_size: usize) -> Option<T> {
    // SAFETY: the caller promises a size as the first field, which is there in every version.
    let size = unsafe { given.cast::<u32>().as_ref() }.map(|size| *size as usize)?;
    if size < first_size {
        return None;
    }
    let mut told = unsaid;
    let known = size.min(std::mem::size_of::<T>());
    // SAFETY: the caller promises a struct of `size` bytes whose fields are numbers or pointers.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut told).cast(), known) };
    Some(told)
}

/// Hands an event to the host.
fn tell(told: &PteronExecute, event: &DelegateEvent<'_>) {
    let lend = |b: &[u8]| PteronBytes { data: b.as_ptr(), len: b.len() };
    let (id, name) = match event.id {
        EventId::Int(id) => (id, PteronBytes { data: std::ptr::null(), len: 0 }),
        EventId::Name(name) => (0, lend(name.as_bytes())),
    };
    let lent = PteronEvent {
        struct_size: std::mem::size_of::<PteronEvent>() as u32,
        name,
        id,
        start_ns: event.start_ns,
        end_ns: event.end_ns,
        metadata: lend(event.metadata),
    };
    if let Some(take) = told.event {
        // SAFETY: the host's own function and data, on the thread of its call; what is lent lives until it
        // returns.
        unsafe { take(told.host, &lent) };
    }
}

/// # Safety
/// `delegate` is one that `init` made, used by this thread alone; the arguments are as the header says, during the call.
pub(crate) unsafe extern "C" fn execute(
    delegate: *mut c_void,
    execute: *const PteronExecute,
    inputs: *const PteronArg,
    input_count: usize,
    outputs: *mut PteronOutput,
    output_count: usize,
    error: *mut PteronError,
) -> i32 {
    guarded(error, || {
        // SAFETY: the host passes what the header says, valid and unchanged during the call, outputs disjoint
        // from everything else; the delegate is one of `init`, used by this thread alone meanwhile.
        unsafe {
            let guest = &mut *delegate.cast::<Guest>();
            let told = told(execute, PteronExecute::UNSAID, PteronExecute::FIRST_SIZE)
                .ok_or_else(|| Error::delegate("the host told nothing to execute"))?;
            let inputs = list(inputs, input_count);
            let mut metas = Vec::with_capacity(inputs.len());
            for input in inputs {
                metas.push(match input.kind {
                    KIND_TENSOR => {
                        let (spec, shape) = spec(&input.tensor, std::ptr::null())?;
                        Some(TensorMeta::new(spec.dtype, shape, spec.dim_order)?)
                    }
                    _ => None,
                });
            }
            let views = inputs.iter().zip(&metas).map(|(input, meta)| {
                Ok(match (input.kind, meta) {
                    (KIND_TENSOR, Some(meta)) => {
                        ArgView::Tensor(TensorView::from_raw(input.tensor.data.cast_const().cast(), meta))
                    }
                    (KIND_INT, _) => ArgView::Int(input.number),
                    (KIND_DOUBLE, _) => ArgView::Double(input.real),
                    (KIND_BOOL, _) => ArgView::Bool(input.number != 0),
                    (KIND_STRING, _) => ArgView::String(text(&input.text)?),
                    _ => ArgView::None,
                })
            });
            let views = views.collect::<Result<Vec<_>>>()?;
            let outputs = if outputs.is_null() {
                &mut []
            } else {
                std::slice::from_raw_parts_mut(outputs, output_count)
            };
            let mut slots = Vec::with_capacity(outputs.len());
            for output in outputs.iter() {
                let (spec, shape) = spec(&output.tensor, output.bound)?;
                let mut slot = TensorSlot::new(&spec)?;
                slot.set_data(output.tensor.data.cast(), output.capacity);
                slot.resize(&shape)?;
                slots.push((slot, shape));
            }
            let mut targets: Vec<OutputView<'_>> =
                slots.iter_mut().map(|(slot, _)| OutputView::new(slot)).collect();
            let ask = || told.is_cancelled.is_some_and(|ask| ask(told.host) != 0);
            let mut report = |event: DelegateEvent<'_>| tell(&told, &event);
            let mut ctx = ExecuteContext {
                method: text(&told.method)?,
                instruction: usize::try_from(told.instruction).unwrap_or(usize::MAX),
                is_cancelled: &ask,
                poll: None,
                events: match told.event {
                    Some(_) => Some(&mut report),
                    None => None,
                },
            };
            guest.delegate.execute(&mut ctx, &views, &mut targets)?;
            drop(targets);
            for (output, (slot, before)) in outputs.iter_mut().zip(&slots) {
                let now: Vec<i64> = slot.meta().shape().iter().map(|n| *n as i64).collect();
                let is_same = **slot.meta().shape() == **before;
                if let (false, Some(resize)) = (is_same, output.resize)
                    && resize(output, now.as_ptr(), now.len()) != OK
                {
                    return Err(Error::delegate("the host refused the shape of an output"));
                }
            }
            Ok(())
        }
    })
}
