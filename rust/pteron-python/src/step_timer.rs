//! Times of steps without a call of Python: what `tracer=` takes beside objects with methods.

use crate::tracer::PyTracer;
use pteron_runtime::{PartId, StepTimes, Tracer};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Records when the steps of calls begin and end.
#[pyclass(frozen, module = "pteron._native")]
pub struct StepTimer {
    origin: Instant,
    /// The same time on Python's clock.
    origin_ns: u64,
    times: Mutex<StepTimes>,
}

type Part<'py> = (usize, String, Bound<'py, PyAny>, u64, u64, usize);

#[pymethods]
impl StepTimer {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let clock = py.import("time")?.getattr("perf_counter_ns")?;
        let before: u64 = clock.call0()?.extract()?;
        let origin = Instant::now();
        let origin_ns = before.midpoint(clock.call0()?.extract()?);
        Ok(StepTimer { origin, origin_ns, times: Mutex::new(StepTimes::since(origin)) })
    }

    /// Step, begin and end of each step, in nanoseconds of `time.perf_counter_ns`.
    fn intervals(&self) -> Vec<(usize, u64, u64)> {
        let ns = |since: std::time::Duration| self.origin_ns.saturating_add(since.as_nanos() as u64);
        self.lock().steps().iter().map(|s| (s.step, ns(s.begin), ns(s.end))).collect()
    }

    /// Step, thread (1 and more), begin and end of each stretch in which a thread of the pool helped with a step, in
    /// nanoseconds of `time.perf_counter_ns`.
    fn helpers(&self) -> Vec<(usize, usize, u64, u64)> {
        let ns = |since: std::time::Duration| self.origin_ns.saturating_add(since.as_nanos() as u64);
        self.lock().helpers().iter().map(|h| (h.step, h.worker, ns(h.begin), ns(h.end))).collect()
    }

    /// What delegates have reported: step, backend, identifier, begin and end on the delegate's clock, and the number
    /// of the step's interval.
    fn delegate_events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Part<'py>>> {
        let event = |part: &pteron_runtime::PartTime| {
            let id = match &part.id {
                PartId::Int(id) => id.into_pyobject(py)?.into_any(),
                PartId::Name(name) => name.into_pyobject(py)?.into_any(),
            };
            Ok((part.step, part.backend.clone(), id, part.start_ns, part.end_ns, part.interval))
        };
        self.lock().parts().iter().map(event).collect()
    }

    /// Nanoseconds between two readings of the clock, which each interval has too much.
    #[staticmethod]
    fn clock_cost() -> u64 {
        StepTimes::clock_cost().as_nanos() as u64
    }
}

impl StepTimer {
    fn lock(&self) -> MutexGuard<'_, StepTimes> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who watches one call.
pub enum Observer<'py> {
    /// An object with methods.
    Object(PyTracer<'py>),
    /// A timer, and what it sees of this call.
    Timer(Py<StepTimer>, StepTimes),
}

impl<'py> Observer<'py> {
    /// Of what a caller gave as tracer.
    pub fn new(py: Python<'_>, object: &'py Py<PyAny>) -> PyResult<Self> {
        Ok(match object.bind(py).cast::<StepTimer>() {
            Ok(timer) => Observer::Timer(timer.clone().unbind(), StepTimes::since(timer.get().origin)),
            Err(_) => Observer::Object(PyTracer::new(py, object)?),
        })
    }

    /// What the runtime tells.
    pub fn tracer(&mut self) -> &mut dyn Tracer {
        match self {
            Observer::Object(tracer) => tracer,
            Observer::Timer(_, times) => times,
        }
    }

    /// After the call; what an object raised.
    pub fn finish(self) -> Option<PyErr> {
        match self {
            Observer::Object(mut tracer) => tracer.take_failure(),
            Observer::Timer(timer, times) => {
                timer.get().lock().append(times);
                None
            }
        }
    }
}
