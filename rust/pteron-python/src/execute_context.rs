//! What a delegate written in Python may ask while it executes. Unsafe island (a borrowed closure).

use pteron_core::ExecuteContext as Inner;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::Mutex;

/// Told to a delegate with every call; valid until its `execute` returns.
#[pyclass(frozen, module = "pteron._native")]
pub struct ExecuteContext {
    method: Py<PyString>,
    instruction: usize,
    is_cancelled: Mutex<Option<Question>>,
}

struct Question(*const (dyn Fn() -> bool + 'static));

// SAFETY: the closure is called under the lock, and taken out before the call that lent it ends; it reads
// atomic state only (the runtime polls it from kernels on several threads).
unsafe impl Send for Question {}

/// Ends the loan on drop.
pub struct LentContext<'py>(Bound<'py, ExecuteContext>);

impl<'py> LentContext<'py> {
    /// The Python object.
    pub fn object(&self) -> &Bound<'py, ExecuteContext> {
        &self.0
    }
}

impl Drop for LentContext<'_> {
    fn drop(&mut self) {
        *self.0.get().question() = None;
    }
}

impl ExecuteContext {
    /// A Python object for `ctx`.
    ///
    /// # Safety
    /// The result must be dropped, not leaked, before `ctx` ends.
    pub unsafe fn lend<'py>(
        py: Python<'py>,
        method: &Py<PyString>,
        ctx: &Inner<'_>,
    ) -> PyResult<LentContext<'py>> {
        let closure: *const (dyn Fn() -> bool + '_) = ctx.is_cancelled;
        // SAFETY: only the lifetime changes; `LentContext::drop` removes the pointer in time.
        let closure: *const (dyn Fn() -> bool + 'static) = unsafe { std::mem::transmute(closure) };
        let context = ExecuteContext {
            method: method.clone_ref(py),
            instruction: ctx.instruction,
            is_cancelled: Mutex::new(Some(Question(closure))),
        };
        Bound::new(py, context).map(LentContext)
    }

    fn question(&self) -> std::sync::MutexGuard<'_, Option<Question>> {
        self.is_cancelled.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl ExecuteContext {
    /// The method that runs.
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.method.bind(py).clone()
    }

    /// Index of the instruction in the method.
    #[getter]
    fn instruction(&self) -> usize {
        self.instruction
    }

    /// Should the delegate stop early? Long-running delegates ask now and then.
    fn is_cancelled(&self) -> PyResult<bool> {
        match &*self.question() {
            // SAFETY: the closure is there, so the call that lent it has not ended, and the lock is held.
            Some(Question(closure)) => Ok(unsafe { (**closure)() }),
            None => Err(PyRuntimeError::new_err("the delegate call that this context belongs to has ended")),
        }
    }
}
