//! One call into the runtime: detached from the interpreter, interruptible, with panics caught.
//! Unsafe island (the closure carries raw pointers to another state of the same thread).

use crate::errors::{SignalRaised, to_python};
use crate::input::{Argument, Arguments, OutputMemory};
use crate::parameter;
use crate::step_timer::Observer;
use pteron_core::error::panic_text;
use pteron_core::{Error, Result};
use pteron_runtime::{CancelToken, ExecuteOptions, InputValue, Method, OutputBuffer, Outputs, Program};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::time::Instant;

/// Limits of one call.
#[derive(Default, Clone, Copy)]
pub struct CallLimits<'a> {
    /// What may stop the call.
    pub cancel: Option<&'a CancelToken>,
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Most instructions to execute.
    pub budget: Option<u64>,
    /// Most threads.
    pub num_threads: Option<usize>,
    /// Lend outputs instead of copying them.
    pub lend_outputs: bool,
}

impl<'a> CallLimits<'a> {
    /// From what callers write: seconds from now, a number of instructions, a number of threads, a `pteron.CancelToken`.
    pub fn new(
        deadline: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        num_threads: Option<&Bound<'_, PyAny>>,
        cancel: Option<&'a Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let cancel =
            parameter::instance::<crate::cancel_token::CancelToken>(cancel, "cancel", "CancelToken")?
                .map(|token| &token.get().token);
        const SECONDS: &str = "a number of seconds from now, at least 0";
        let deadline = parameter::seconds(deadline, "deadline", SECONDS)?;
        let budget = parameter::count(budget, "budget", 0)?;
        let num_threads = parameter::size(num_threads, "num_threads", 1)?;
        // A deadline beyond what the clock can count is none.
        let deadline = deadline.and_then(|wait| Instant::now().checked_add(wait));
        Ok(CallLimits { cancel, deadline, budget, num_threads, lend_outputs: false })
    }
}

/// Who is called.
pub enum Callee<'a> {
    /// A session.
    Session(&'a Method),
    /// A session from the pool of a program.
    Pool(&'a Program, &'a str),
}

/// Lets a closure with raw pointers run detached: it stays on this thread.
struct OnThisThread<F>(F);

// SAFETY: `Python::detach` runs the closure on the calling thread; nothing is sent anywhere.
unsafe impl<F> Send for OnThisThread<F> {}

/// Runs the callee with these inputs, into this memory where there is some; gives `results`.
pub fn execute(
    py: Python<'_>,
    callee: &Callee<'_>,
    arguments: &mut Arguments,
    outputs: &mut SmallVec<[Option<OutputMemory>; 2]>,
    limits: CallLimits<'_>,
    mut observer: Option<Observer<'_>>,
    results: &mut Outputs,
) -> PyResult<()> {
    let inputs: SmallVec<[InputValue<'_>; 4]> = arguments.iter().map(Argument::as_input).collect();
    let buffers: SmallVec<[Option<OutputBuffer<'_>>; 2]> =
        outputs.iter().map(|o| o.as_ref().map(OutputMemory::as_buffer)).collect();
    let result = detached_result(py, || {
        let mut poll = poll_signals;
        let options = ExecuteOptions {
            outputs: &buffers,
            lend_outputs: limits.lend_outputs,
            cancel: limits.cancel,
            deadline: limits.deadline,
            budget: limits.budget,
            num_threads: limits.num_threads,
            tracer: observer.as_mut().map(Observer::tracer),
            poll: Some(&mut poll),
        };
        match callee {
            Callee::Session(method) => method.execute_into(&inputs, options, results),
            Callee::Pool(program, name) => program.run_into(name, &inputs, options, results),
        }
    })?;
    drop((inputs, buffers));
    let failure = observer.and_then(Observer::finish);
    result
        .map_err(|error| {
            if error.detail().is_memory_kept {
                // A delegate still looks at memory of this call: it must never be freed.
                std::mem::forget((std::mem::take(arguments), std::mem::take(outputs)));
            }
            to_python(py, error)
        })
        // What a tracer raised says more than the cancellation that it caused.
        .and_then(|()| failure.as_ref().map_or(Ok(()), |f| Err(f.clone_ref(py))))
        .map_err(|error| failure.unwrap_or(error))
}

/// Runs `work` detached from the interpreter; errors become exceptions, panics `InternalError`.
pub fn detached<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    detached_result(py, work)?.map_err(|e| to_python(py, e))
}

/// As [`detached`], with the error left to the caller.
pub fn detached_result<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<Result<T>> {
    // The result goes through a slot: outputs are large, and every layer would move them.
    let mut outcome = None;
    let task = OnThisThread((work, &mut outcome));
    let finished = py.detach(move || {
        let OnThisThread((work, outcome)) = task.whole();
        OnThisThread(std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || *outcome = Some(work()))))
    });
    finished.0.map_err(|panic| to_python(py, panicked(&*panic)))?;
    outcome.ok_or_else(|| to_python(py, Error::internal("a call into the runtime gave no result")))
}

impl<F> OnThisThread<F> {
    /// The value itself (a method, so that closures capture the wrapper whole).
    fn whole(self) -> Self {
        self
    }
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::internal("a panic in the native code").got(panic_text(panic))
}

/// Runs pending signal handlers (on the main thread; elsewhere there are none to run). What a handler
/// raises stops the run.
fn poll_signals() -> Result<()> {
    Python::attach(|py| py.check_signals()).map_err(stopped)
}

/// The error that ends a run because of what Python code raised; the caller gets that unchanged.
pub fn stopped(raised: PyErr) -> Error {
    Error::cancelled("a signal handler stopped the run").cause(SignalRaised(raised))
}
