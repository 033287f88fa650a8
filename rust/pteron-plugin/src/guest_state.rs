//! The plugin's side of the mutable buffers that its delegates own. Unsafe island.

use crate::abi::{GiveBuffer, OK, PteronBytes, PteronError, PteronTensor};
use crate::guest::{Guest, guarded, list, spec, text};
use pteron_core::{DelegateState, Error, Result, TensorMeta, TensorView};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// # Safety
/// `delegate` must be one that `init` made, used by this thread alone meanwhile.
unsafe fn state<'a>(delegate: *mut c_void) -> Result<&'a mut dyn DelegateState> {
    // SAFETY: `init` made the delegate from a `Guest`, and the caller promises that no other thread uses it.
    let guest = unsafe { &mut *delegate.cast::<Guest>() };
    guest.delegate.state().ok_or_else(|| Error::delegate("the delegate gives no state"))
}

/// # Safety
/// `delegate` is one that `init` made, used by this thread alone.
pub(crate) unsafe extern "C" fn has_state(delegate: *mut c_void) -> i32 {
    // SAFETY: the host passes a delegate of `init`, one call at a time.
    let asked = catch_unwind(AssertUnwindSafe(|| unsafe { state(delegate) }.is_ok()));
    i32::from(asked.unwrap_or(false))
}

/// # Safety
/// `delegate` is one that `init` made, used by this thread alone; the other arguments are as the header says.
pub(crate) unsafe extern "C" fn get_state(
    delegate: *mut c_void,
    give: GiveBuffer,
    host: *mut c_void,
    error: *mut PteronError,
) -> i32 {
    guarded(error, || {
        // SAFETY: the caller promises a delegate that `init` made, which no other thread uses.
        for (name, tensor) in unsafe { state(delegate) }?.get_state()? {
            let to_i64 = |dims: &[usize]| dims.iter().map(|n| *n as i64).collect::<Vec<_>>();
            let (shape, strides) = (to_i64(tensor.meta.shape()), to_i64(tensor.meta.strides()));
            let lent = PteronTensor {
                data: tensor.data.as_ptr().cast(),
                dtype: i32::from(tensor.meta.dtype().code()),
                ndim: tensor.meta.rank() as i32,
                shape: shape.as_ptr(),
                strides: strides.as_ptr(),
                nbytes: tensor.meta.nbytes().min(tensor.data.len()),
            };
            let name = PteronBytes { data: name.as_ptr(), len: name.len() };
            // SAFETY: the host's own function; what is lent lives until it returns.
            if unsafe { give(host, name, &lent) } != OK {
                return Err(Error::delegate("the host refused a buffer"));
            }
        }
        Ok(())
    })
}

/// # Safety
/// `delegate` is one that `init` made, used by this thread alone; the other arguments are as the header says.
pub(crate) unsafe extern "C" fn set_state(
    delegate: *mut c_void,
    names: *const PteronBytes,
    tensors: *const PteronTensor,
    count: usize,
    error: *mut PteronError,
) -> i32 {
    guarded(error, || {
        // SAFETY: as in `has_state`; the host lends as many names and tensors as it says, during the call.
        unsafe {
            let (names, tensors) = (list(names, count), list(tensors, count));
            let mut metas = Vec::with_capacity(tensors.len());
            for tensor in tensors {
                let (spec, shape) = spec(tensor, std::ptr::null())?;
                metas.push(TensorMeta::contiguous(spec.dtype, &shape)?);
            }
            let mut given = Vec::with_capacity(names.len());
            for ((name, tensor), meta) in names.iter().zip(tensors).zip(&metas) {
                given.push((text(name)?, TensorView::from_raw(tensor.data.cast_const().cast(), meta)));
            }
            state(delegate)?.set_state(&given)
        }
    })
}

/// # Safety
/// `delegate` is one that `init` made, used by this thread alone; `error` is valid during the call.
pub(crate) unsafe extern "C" fn reset_state(delegate: *mut c_void, error: *mut PteronError) -> i32 {
    // SAFETY: the caller promises a delegate that `init` made, which no other thread uses.
    guarded(error, || unsafe { state(delegate) }?.reset_state())
}
