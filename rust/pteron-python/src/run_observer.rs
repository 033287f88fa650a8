//! Who is told of every run, for metrics: nobody unless `pteron.metrics.count_runs` asks. One flag is looked at in a call
//! then.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
static OBSERVER: RwLock<Option<Py<PyAny>>> = RwLock::new(None);

/// Has `observer(label, seconds, error)` called behind every run of a method; `error` is None or the exception. None: nobody
/// is told any more.
#[pyfunction]
#[pyo3(signature = (observer=None))]
pub fn observe_runs(observer: Option<Py<PyAny>>) {
    let is_asked_for = observer.is_some();
    let before = std::mem::replace(&mut *OBSERVER.write().unwrap_or_else(PoisonError::into_inner), observer);
    IS_ASKED_FOR.store(is_asked_for, Ordering::Release);
    drop(before);
}

/// What `run` gives, told to the observer. What that raises is raised where the run succeeded.
#[inline]
pub fn observed<T>(py: Python<'_>, label: &str, run: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    if !IS_ASKED_FOR.load(Ordering::Relaxed) {
        return run();
    }
    let begun = Instant::now();
    let result = run();
    told(py, label, begun, result)
}

#[cold]
fn told<T>(py: Python<'_>, label: &str, begun: Instant, result: PyResult<T>) -> PyResult<T> {
    let seconds = begun.elapsed().as_secs_f64();
    let observer = OBSERVER.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|o| o.clone_ref(py));
    let Some(observer) = observer else { return result };
    let error = result.as_ref().err().map(|error| error.clone_ref(py));
    match observer.call1(py, (label, seconds, error)) {
        Ok(_) => result,
        Err(failure) => result.and(Err(failure)),
    }
}
