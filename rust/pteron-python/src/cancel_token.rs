//! `pteron.CancelToken`: stops calls of `Program.run` and `Program.execute`, whose sessions nobody holds.

use crate::errors::OrRaise;
use pteron_runtime::CancelToken as Token;
use pyo3::prelude::*;

/// Stops every call that was given it: those that run, and those that begin later.
///
/// `program.execute("forward", inputs, cancel=token)` raises Cancelled when another thread calls
/// `token.cancel()`, after one chunk of a kernel's work at most.
#[pyclass(frozen, weakref, module = "pteron")]
pub struct CancelToken {
    /// The runtime's.
    pub token: Token,
}

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        CancelToken { token: Token::new() }
    }

    /// Stops the calls. Works from any thread, any number of times.
    ///
    /// Raises InputError in a process that was forked while another thread used the token.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.token.cancel().or_raise(py)
    }

    /// Has it been cancelled?
    #[getter]
    fn is_cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        self.token.is_cancelled().or_raise(py)
    }
}
