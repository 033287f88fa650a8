//! One call into the runtime: detached from the interpreter, interruptible, with panics caught.
//! Unsafe island (the closure carries raw pointers to another state of the same thread).

use crate::errors::to_python;
use crate::input::{Arguments, OutputMemory};
use pteron_core::{Error, ErrorKind, Result};
use pteron_runtime::{ExecuteOptions, InputValue, Method, OutputBuffer, Outputs, Program};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits of one call.
#[derive(Default, Clone, Copy)]
pub struct CallLimits {
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Most instructions to execute.
    pub budget: Option<u64>,
}

impl CallLimits {
    /// From what callers write: seconds from now, and a number of instructions.
    pub fn new(deadline: Option<f64>, budget: Option<u64>) -> PyResult<Self> {
        let deadline = match deadline {
            None => None,
            Some(seconds) => {
                let wait = Duration::try_from_secs_f64(seconds)
                    .map_err(|_| PyValueError::new_err("deadline must be a number of seconds from now"))?;
                // A deadline beyond what the clock can count is none.
                Instant::now().checked_add(wait)
            }
        };
        Ok(CallLimits { deadline, budget })
    }
}

/// Who is called.
pub enum Callee {
    /// A session.
    Session(Arc<Method>),
    /// A session from the pool of a program.
    Pool(Arc<Program>, Arc<str>),
}

/// Everything that the memory which delegates see in one call belongs to. An argument that a Python
/// delegate keeps beyond its execute gets a share of it, so that no view can outlive its memory.
#[allow(dead_code)] // Held for the sake of holding.
pub struct CallOwners {
    callee: Callee,
    arguments: Arguments,
    outputs: SmallVec<[Option<OutputMemory>; 2]>,
}

thread_local! {
    static OWNERS: RefCell<Vec<Arc<CallOwners>>> = const { RefCell::new(Vec::new()) };
}

/// Owners of the innermost call that runs on this thread.
pub fn current_owners() -> Option<Arc<CallOwners>> {
    OWNERS.with_borrow(|owners| owners.last().cloned())
}

/// Removes the owners again, however the call ends.
struct OwnersGuard;

impl OwnersGuard {
    fn enter(owners: Arc<CallOwners>) -> Self {
        OWNERS.with_borrow_mut(|all| all.push(owners));
        OwnersGuard
    }
}

impl Drop for OwnersGuard {
    fn drop(&mut self) {
        let last = OWNERS.with_borrow_mut(Vec::pop);
        drop(last);
    }
}

/// Lets a closure with raw pointers run detached: it stays on this thread.
struct OnThisThread<F>(F);

// SAFETY: `Python::detach` runs the closure on the calling thread; nothing is sent anywhere.
unsafe impl<F> Send for OnThisThread<F> {}

/// Runs the callee. `has_delegates`: may Python code see the memory of this call?
pub fn execute(
    py: Python<'_>,
    callee: Callee,
    arguments: Arguments,
    outputs: SmallVec<[Option<OutputMemory>; 2]>,
    limits: CallLimits,
    has_delegates: bool,
) -> PyResult<Outputs> {
    let owners = CallOwners { callee, arguments, outputs };
    if !has_delegates {
        return run(py, &owners, limits);
    }
    let owners = Arc::new(owners);
    let _guard = OwnersGuard::enter(owners.clone());
    run(py, &owners, limits)
}

fn run(py: Python<'_>, owners: &CallOwners, limits: CallLimits) -> PyResult<Outputs> {
    let inputs: SmallVec<[InputValue<'_>; 4]> = owners.arguments.iter().map(|a| a.as_input()).collect();
    let outputs: SmallVec<[Option<OutputBuffer<'_>>; 2]> =
        owners.outputs.iter().map(|o| o.as_ref().map(OutputMemory::as_buffer)).collect();
    detached(py, || {
        let mut poll = poll_signals;
        let options = ExecuteOptions {
            outputs: &outputs,
            deadline: limits.deadline,
            budget: limits.budget,
            tracer: None,
            poll: Some(&mut poll),
        };
        match &owners.callee {
            Callee::Session(method) => method.execute(&inputs, options),
            Callee::Pool(program, name) => program.run(name, &inputs, options),
        }
    })
}

/// Runs `work` detached from the interpreter; errors become exceptions, panics `InternalError`.
pub fn detached<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    detached_result(py, work)?.map_err(|e| to_python(py, e))
}

/// As [`detached`], with the error left to the caller.
pub fn detached_result<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<Result<T>> {
    let work = OnThisThread(std::panic::AssertUnwindSafe(work));
    let outcome = py.detach(move || {
        let OnThisThread(work) = work.whole();
        OnThisThread(std::panic::catch_unwind(work))
    });
    outcome.0.map_err(|panic| to_python(py, panicked(&*panic)))
}

impl<F> OnThisThread<F> {
    /// The value itself (a method, so that closures capture the wrapper whole).
    fn whole(self) -> Self {
        self
    }
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::internal("a panic in the native code").got(text)
}

/// Runs pending signal handlers (on the main thread; elsewhere there are none to run). What a handler
/// raises stops the run.
fn poll_signals() -> Result<()> {
    Python::attach(|py| py.check_signals()).map_err(|raised| {
        Error::new(ErrorKind::Cancelled, "a signal handler stopped the run").cause(raised)
    })
}
