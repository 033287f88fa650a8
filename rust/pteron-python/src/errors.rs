//! From [`pteron_core::Error`] to the exception classes of `pteron.errors`.

use pteron_core::error::{ErrorDetail, printable};
use pteron_core::{Error, ErrorKind};
use pyo3::exceptions::{PyException, PyFileNotFoundError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

/// A row of the table of kinds, `pteron-core/src/error_kind.rs`.
#[derive(IntoPyObject)]
pub struct Row {
    kind: &'static str,
    constructor: &'static str,
    exception: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}
/// The table of kinds as dicts, for whoever checks the exception tree or writes its documentation.
#[pyfunction]
pub fn error_kinds() -> Vec<Row> {
    let row = |kind: &ErrorKind| Row {
        kind: kind.name(),
        constructor: kind.constructor(),
        exception: kind.exception(),
        meaning: kind.meaning(),
        remedy: kind.remedy(),
    };
    ErrorKind::ALL.iter().map(row).collect()
}

fn errors_module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(MODULE.get_or_try_init(py, || PyModule::import(py, "pteron.errors").map(Bound::unbind))?.bind(py))
}

/// What a signal handler raised: the cause of an error that the caller never sees.
#[derive(Debug)]
pub struct SignalRaised(pub PyErr);

impl std::fmt::Display for SignalRaised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SignalRaised {}

/// The exception for `error`, with its fields and its cause. What a signal handler raised, and
/// exceptions that ask the process to stop (KeyboardInterrupt, SystemExit), come out unchanged.
#[cold]
pub fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let kind = error.kind();
    let mut detail = error.hint(kind.remedy()).into_detail();
    if let Some(offer) = offered(py, &detail) {
        detail.hint = Some(offer);
    }
    let text = detail.to_string();
    let cause = match detail.cause.take().map(|cause| cause.downcast::<SignalRaised>()) {
        Some(Ok(signal)) => return signal.0,
        Some(Err(other)) => match other.downcast::<PyErr>() {
            Ok(raised) => Some(*raised),
            Err(other) => other.downcast::<std::io::Error>().ok().map(|e| PyErr::from(*e)),
        },
        None => None,
    };
    if let Some(raised) = &cause
        && !raised.is_instance_of::<PyException>(py)
    {
        return raised.clone_ref(py);
    }
    if kind == ErrorKind::NotFound {
        return file_not_found(detail.got.as_deref().unwrap_or(&text));
    }
    let exception = match make(py, kind, text, &detail) {
        Ok(exception) => exception,
        // Out of memory, or a broken installation: that error is the one to show.
        Err(failure) => return failure,
    };
    if cause.is_some() {
        exception.set_cause(py, cause);
    }
    exception
}

/// What brings a backend that nobody registered, where an installed package offers it.
fn offered(py: Python<'_>, detail: &ErrorDetail) -> Option<String> {
    let backend = detail.backend.as_deref()?;
    // For one that is registered and cannot be used, `got` is the reason.
    if detail.kind != ErrorKind::MissingBackend || detail.got.as_deref() != Some(&*printable(backend)) {
        return None;
    }
    // An installation whose metadata cannot be read is not what the caller asked about.
    let answer = PyModule::import(py, "pteron.plugins").and_then(|m| m.call_method1("offer_of", (backend,)));
    answer.ok()?.extract().ok()
}

fn make(py: Python<'_>, kind: ErrorKind, text: String, detail: &ErrorDetail) -> PyResult<PyErr> {
    // The text says what the fields say, escaped; handed to the class they would be compared with it raw.
    let exception = errors_module(py)?.getattr(kind.exception())?.call1((text,))?;
    exception.setattr("method", &detail.method)?;
    exception.setattr("instruction", detail.instruction)?;
    exception.setattr("operator", &detail.operator)?;
    exception.setattr("argument", &detail.argument)?;
    exception.setattr("expected", &detail.expected)?;
    exception.setattr("got", &detail.got)?;
    exception.setattr("source_line", &detail.source_line)?;
    exception.setattr("hint", &detail.hint)?;
    if kind == ErrorKind::Delegate {
        exception.setattr("backend", &detail.backend)?;
        exception.setattr("debug_handle", detail.debug_handle)?;
    }
    Ok(PyErr::from_value(exception))
}

/// The built-in exception for a file that is not there.
pub fn file_not_found(path: &str) -> PyErr {
    const ENOENT: i32 = 2;
    PyFileNotFoundError::new_err((ENOENT, "No such file or directory", path.to_string()))
}

/// `?` for results of the Rust half.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for pteron_core::Result<T> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| to_python(py, e))
    }
}

/// Name of the Python type of `object`, for messages (never its repr: that may hold addresses).
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    let ty = object.get_type();
    match (ty.module(), ty.qualname()) {
        (Ok(module), Ok(name)) if module == "builtins" => name.to_string(),
        (Ok(module), Ok(name)) => format!("{module}.{name}"),
        _ => "an object of unknown type".to_string(),
    }
}
