//! An exception that is on its way while something is destroyed. Unsafe island (the error indicator).

use pyo3::ffi;
use pyo3::prelude::*;

/// Holds the thread's pending exception back, and puts it in place again on drop.
///
/// Objects are destroyed while exceptions unwind frames; Python code that a destructor calls would run with,
/// and lose, the pending exception.
pub struct PendingException<'py> {
    _py: Python<'py>,
    kind: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    traceback: *mut ffi::PyObject,
}

impl<'py> PendingException<'py> {
    /// Takes the pending exception, if there is one. (`PyErr::take` is no choice: it resumes the panics that
    /// other extensions turned into exceptions.)
    pub fn hold(py: Python<'py>) -> Self {
        let null = std::ptr::null_mut();
        let mut held = PendingException { _py: py, kind: null, value: null, traceback: null };
        // SAFETY: the thread is attached; the three places are writable. The references become ours.
        unsafe { ffi::PyErr_Fetch(&mut held.kind, &mut held.value, &mut held.traceback) };
        held
    }
}

impl Drop for PendingException<'_> {
    fn drop(&mut self) {
        // SAFETY: the thread is attached for `'py`; the references are those that `hold` took, given back
        // once. All null clears the indicator, as it was.
        unsafe { ffi::PyErr_Restore(self.kind, self.value, self.traceback) };
    }
}
