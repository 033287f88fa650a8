//! Outputs of a call as the other side sees them. Unsafe island.

use crate::abi::{FAILED, OK, PteronOutput};
use crate::layout::Layout;
use pteron_core::{Dims, Error, MAX_RANK, OutputView};

/// What the `host` of an output points to.
pub(crate) struct OutputHost<'a, 'b> {
    view: &'a mut OutputView<'b>,
    layout: Layout,
    bound: [i64; MAX_RANK],
    // Why the last `resize` failed.
    failure: Option<Error>,
}

impl OutputHost<'_, '_> {
    /// Why the last `resize` failed.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }
}

/// What the outputs of a call stand for; [`results`] points to it.
pub(crate) fn output_hosts<'a, 'b>(outputs: &'a mut [OutputView<'b>]) -> Vec<OutputHost<'a, 'b>> {
    let host = |view: &'a mut OutputView<'b>| {
        let mut bound = [0; MAX_RANK];
        for (to, from) in bound.iter_mut().zip(view.bound().iter()) {
            *to = *from as i64;
        }
        OutputHost { layout: Layout::of(view.meta()), bound, view, failure: None }
    };
    outputs.iter_mut().map(host).collect()
}

/// The outputs of a call for the other side, which may use them while `hosts` stay where they are.
pub(crate) fn results(hosts: &mut [OutputHost<'_, '_>]) -> Vec<PteronOutput> {
    let result = |host: &mut OutputHost<'_, '_>| {
        let data = host.view.data();
        PteronOutput {
            tensor: host.layout.tensor(host.view.meta(), data),
            bound: host.bound.as_ptr(),
            capacity: host.view.capacity(),
            host: std::ptr::from_mut(host).cast(),
            resize: Some(resize),
        }
    };
    hosts.iter_mut().map(result).collect()
}

/// # Safety
/// `output` is an output of the call in progress, `shape` as many extents as are named.
unsafe extern "C" fn resize(output: *mut PteronOutput, shape: *const i64, ndim: usize) -> i32 {
    // SAFETY: the plugin passes an output of the call in progress, whose host is ours.
    let (output, host) = unsafe {
        let output = &mut *output;
        let host = &mut *output.host.cast::<OutputHost<'_, '_>>();
        (output, host)
    };
    let mut dims = [0usize; MAX_RANK];
    let fits = ndim <= MAX_RANK && (ndim == 0 || !shape.is_null());
    let is_legal = fits
        && dims.iter_mut().take(ndim).enumerate().all(|(i, dim)| {
            // SAFETY: the plugin passes `ndim` extents.
            let extent = usize::try_from(unsafe { *shape.add(i) });
            extent.map(|e| *dim = e).is_ok()
        });
    let result = match dims.get(..ndim) {
        Some(dims) if is_legal => Dims::new(dims).and_then(|_| host.view.resize(dims)),
        _ => Err(Error::delegate("a plugin gave an output a shape that is none")),
    };
    match result {
        Ok(()) => {
            host.layout = Layout::of(host.view.meta());
            let data = host.view.data();
            output.tensor = host.layout.tensor(host.view.meta(), data);
            OK
        }
        Err(error) => {
            host.failure = Some(error);
            FAILED
        }
    }
}
