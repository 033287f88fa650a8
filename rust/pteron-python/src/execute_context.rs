//! What a delegate written in Python may ask while it executes. Unsafe island (a borrowed closure).

use pteron_core::{DelegateEvent, EventId, ExecuteContext as Inner};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use std::sync::Mutex;

/// Told to a delegate with every call; valid until its `execute` returns.
#[pyclass(frozen, module = "pteron._native")]
pub struct ExecuteContext {
    method: Py<PyString>,
    instruction: usize,
    is_cancelled: Mutex<Option<Question>>,
    // What the delegate has reported; `None` where nobody traces.
    events: Mutex<Option<Vec<ReportedEvent>>>,
}

/// An event that the delegate has reported.
pub struct ReportedEvent {
    id: ReportedId,
    start_ns: u64,
    end_ns: u64,
    metadata: Vec<u8>,
}

#[derive(FromPyObject)]
enum ReportedId {
    Int(i64),
    Name(String),
}

impl ReportedEvent {
    /// As the runtime takes it.
    pub fn view(&self) -> DelegateEvent<'_> {
        let id = match &self.id {
            ReportedId::Int(id) => EventId::Int(*id),
            ReportedId::Name(name) => EventId::Name(name),
        };
        DelegateEvent { id, start_ns: self.start_ns, end_ns: self.end_ns, metadata: &self.metadata }
    }
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

    /// What the delegate has reported so far.
    pub fn take_events(&self) -> Vec<ReportedEvent> {
        self.0.get().events().as_mut().map(std::mem::take).unwrap_or_default()
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
            events: Mutex::new(ctx.events.is_some().then(Vec::new)),
        };
        Bound::new(py, context).map(LentContext)
    }

    fn events(&self) -> std::sync::MutexGuard<'_, Option<Vec<ReportedEvent>>> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn question(&self) -> std::sync::MutexGuard<'_, Option<Question>> {
        self.is_cancelled.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cold]
fn has_ended() -> PyErr {
    PyRuntimeError::new_err("the delegate call that this context belongs to has ended")
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
            None => Err(has_ended()),
        }
    }

    /// Is somebody told of events in this call? Without, `event` does nothing. False when the call has ended.
    #[getter]
    fn is_traced(&self) -> bool {
        self.question().is_some() && self.events().is_some()
    }

    /// Reports that a part of the delegate has run. `identifier`: int or str, as in the mapping that its exporter gave;
    /// `start_ns`, `end_ns`: on a clock of the delegate's choice, such as time.perf_counter_ns().
    #[pyo3(signature = (identifier, start_ns, end_ns, metadata=None))]
    fn event(
        &self,
        identifier: &Bound<'_, PyAny>,
        start_ns: u64,
        end_ns: u64,
        metadata: Option<Vec<u8>>,
    ) -> PyResult<()> {
        if self.question().is_none() {
            return Err(has_ended());
        }
        let id =
            identifier.extract::<ReportedId>().map_err(|_| match identifier.is_instance_of::<PyInt>() {
                true => PyOverflowError::new_err("the id of an event does not fit 64 bits"),
                false => PyTypeError::new_err("the id of an event is an int or a str"),
            })?;
        if let Some(events) = self.events().as_mut() {
            events.push(ReportedEvent { id, start_ns, end_ns, metadata: metadata.unwrap_or_default() });
        }
        Ok(())
    }
}
