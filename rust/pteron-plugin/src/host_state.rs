//! The host's side of the mutable buffers that a plugin's delegates own. Unsafe island.

use crate::abi::{FAILED, OK, PteronBytes, PteronTensor};
use crate::host::{Failure, PluginDelegate, bytes, lend};
use crate::layout::Layout;
use pteron_core::{
    AlignedBuffer, DType, DelegateState, Dims, Error, MAX_RANK, OwnedTensor, Result, TensorMeta, TensorView,
};
use std::ffi::c_void;

/// What `get_state` has given so far.
#[derive(Default)]
struct Given {
    buffers: Vec<(String, OwnedTensor)>,
    // Why a buffer could not be copied.
    failure: Option<Error>,
}

/// # Safety
/// `host` is what `get_state` was called with; `name` and `tensor` are valid as the header says, during the call.
unsafe extern "C" fn give(host: *mut c_void, name: PteronBytes, tensor: *const PteronTensor) -> i32 {
    // SAFETY: `host` is that of the call of `get_state` in progress, which nobody else looks at meanwhile;
    // name and tensor are valid during the call by contract.
    let (given, copied) = unsafe { (&mut *host.cast::<Given>(), copy(&name, tensor)) };
    match copied {
        Ok(buffer) => {
            given.buffers.push(buffer);
            OK
        }
        Err(error) => {
            given.failure = Some(error);
            FAILED
        }
    }
}

/// A copy of a buffer, checked.
///
/// # Safety
/// `tensor` must be null or as the header says, as must `name`.
unsafe fn copy(name: &PteronBytes, tensor: *const PteronTensor) -> Result<(String, OwnedTensor)> {
    let bad = |what: &str| Error::delegate(format!("a plugin gave a buffer {what}"));
    // SAFETY: the caller promises a name and a tensor as the header says, or null.
    let (name, tensor) = unsafe { (bytes(name), tensor.as_ref().ok_or_else(|| bad("without a tensor"))?) };
    let name = std::str::from_utf8(name).map_err(|_| bad("whose name is not UTF-8"))?;
    let place = |e: Error| e.argument(name);
    let dtype = i8::try_from(tensor.dtype).ok().and_then(DType::from_code);
    let dtype =
        dtype.ok_or_else(|| place(bad("of a dtype that there is not").got(tensor.dtype.to_string())))?;
    let rank = usize::try_from(tensor.ndim).ok().filter(|n| *n <= MAX_RANK);
    let rank = rank.ok_or_else(|| place(bad("of too many dimensions").got(tensor.ndim.to_string())))?;
    if rank > 0 && (tensor.shape.is_null() || tensor.strides.is_null()) {
        return Err(place(bad("without extents or strides")));
    }
    let (mut shape, mut strides) = (Dims::EMPTY, [0i64; MAX_RANK]);
    for (i, stride) in strides.iter_mut().take(rank).enumerate() {
        // SAFETY: not null, and as many as the tensor has dimensions by contract.
        let (extent, given) = unsafe { (*tensor.shape.add(i), *tensor.strides.add(i)) };
        shape.push(usize::try_from(extent).map_err(|_| place(bad("with a negative extent")))?)?;
        *stride = given;
    }
    let nbytes = pteron_core::sizes::checked_nbytes(&shape, dtype).map_err(place)?;
    let meta = TensorMeta::contiguous(dtype, &shape)?;
    let is_row_major = meta
        .shape()
        .iter()
        .zip(meta.strides().iter().zip(&strides))
        .all(|(extent, (wanted, given))| *extent <= 1 || i64::try_from(*wanted) == Ok(*given));
    if nbytes > 0 && !is_row_major {
        return Err(place(bad("that is not row-major")));
    }
    if tensor.nbytes < nbytes || (nbytes > 0 && tensor.data.is_null()) {
        return Err(place(
            bad("shorter than its shape")
                .expected(format!("{nbytes} bytes"))
                .got(format!("{} bytes", tensor.nbytes)),
        ));
    }
    let lent = PteronBytes { data: tensor.data.cast_const().cast(), len: nbytes };
    // SAFETY: so many bytes are the tensor's by contract.
    let data = AlignedBuffer::copy_of(unsafe { bytes(&lent) })?;
    Ok((name.to_string(), OwnedTensor { meta, data }))
}

impl PluginDelegate {
    /// Does it give the buffers that it owns?
    pub(crate) fn has_state(&self) -> bool {
        match (self.table.0.get_state, self.table.0.has_state) {
            (None, _) => false,
            (Some(_), None) => true,
            // SAFETY: the table's own function and delegate.
            (Some(_), Some(ask)) => unsafe { ask(self.delegate) != 0 },
        }
    }
}

#[cold]
fn lost() -> Error {
    Error::internal("a checked table has lost a function")
}

impl DelegateState for PluginDelegate {
    fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        let get = self.table.0.get_state.ok_or_else(lost)?;
        let (mut given, mut failure) = (Given::default(), Failure::default());
        let host = std::ptr::from_mut(&mut given).cast();
        // SAFETY: the table's own function and delegate; what is lent lives until the call returns.
        let status = unsafe { get(self.delegate, give, host, &mut failure.slot()) };
        match (given.failure, status) {
            (Some(error), _) => Err(error),
            (None, OK) => Ok(given.buffers),
            _ => Err(failure.into_error("the plugin's get_state failed")),
        }
    }

    fn set_state(&mut self, state: &[(&str, TensorView<'_>)]) -> Result<()> {
        let set = self.table.0.set_state.ok_or_else(lost)?;
        let names: Vec<PteronBytes> = state.iter().map(|(name, _)| lend(name.as_bytes())).collect();
        let layouts: Vec<Layout> = state.iter().map(|(_, view)| Layout::of(view.meta())).collect();
        let tensors: Vec<PteronTensor> = state
            .iter()
            .zip(&layouts)
            .map(|((_, view), layout)| layout.tensor(view.meta(), view.as_ptr().cast_mut()))
            .collect();
        let mut failure = Failure::default();
        // SAFETY: the delegate is one that `init` of this table made; all arguments live through the call.
        let status =
            unsafe { set(self.delegate, names.as_ptr(), tensors.as_ptr(), names.len(), &mut failure.slot()) };
        match status {
            OK => Ok(()),
            _ => Err(failure.into_error("the plugin's set_state failed")),
        }
    }

    fn reset_state(&mut self) -> Result<()> {
        let reset = self.table.0.reset_state.ok_or_else(lost)?;
        let mut failure = Failure::default();
        // SAFETY: the delegate is one that `init` of this table made; all arguments live through the call.
        match unsafe { reset(self.delegate, &mut failure.slot()) } {
            OK => Ok(()),
            _ => Err(failure.into_error("the plugin's reset_state failed")),
        }
    }
}
