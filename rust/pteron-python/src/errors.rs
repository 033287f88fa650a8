//! From [`pteron_core::Error`] to the exception classes of `pteron.errors`.

use pteron_core::{Error, ErrorKind};
use pyo3::exceptions::{PyException, PyFileNotFoundError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// Name of the class in `pteron.errors` for every kind.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Program => "ProgramError",
        ErrorKind::MissingOperator => "MissingOperatorError",
        ErrorKind::MissingBackend => "MissingBackendError",
        ErrorKind::MethodNotFound => "MethodNotFoundError",
        ErrorKind::Input => "InputError",
        ErrorKind::InputType => "InputTypeError",
        ErrorKind::Kernel => "KernelError",
        ErrorKind::Delegate => "DelegateError",
        ErrorKind::ExternalData => "ExternalDataError",
        ErrorKind::LimitExceeded => "LimitExceeded",
        ErrorKind::Cancelled => "Cancelled",
        ErrorKind::DeadlineExceeded => "DeadlineExceeded",
        ErrorKind::MethodBusy => "MethodBusy",
        ErrorKind::OutputsInUse => "OutputsInUseError",
        ErrorKind::Internal => "InternalError",
        // `NotFound` becomes the built-in FileNotFoundError before this table is asked; a kind that is
        // newer than this table would be our own omission.
        _ => "InternalError",
    }
}

fn errors_module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(MODULE.get_or_try_init(py, || PyModule::import(py, "pteron.errors").map(Bound::unbind))?.bind(py))
}

/// The exception for `error`, with its fields and its cause. What a signal handler raised, and
/// exceptions that ask the process to stop (KeyboardInterrupt, SystemExit), come out unchanged.
#[cold]
pub fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    let kind = error.kind();
    let mut detail = error.into_detail();
    let cause = match detail.cause.take() {
        Some(cause) => match cause.downcast::<PyErr>() {
            Ok(raised) => Some(*raised),
            Err(other) => other.downcast::<std::io::Error>().ok().map(|e| PyErr::from(*e)),
        },
        None => None,
    };
    if let Some(raised) = &cause
        && (kind == ErrorKind::Cancelled || !raised.is_instance_of::<PyException>(py))
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

fn make(
    py: Python<'_>,
    kind: ErrorKind,
    text: String,
    detail: &pteron_core::error::ErrorDetail,
) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let set = |name: &str, value: &Option<String>| match value {
        Some(v) => fields.set_item(name, v),
        None => Ok(()),
    };
    set("method", &detail.method)?;
    set("operator", &detail.operator)?;
    set("argument", &detail.argument)?;
    set("expected", &detail.expected)?;
    set("got", &detail.got)?;
    set("source_line", &detail.source_line)?;
    set("hint", &detail.hint)?;
    if let Some(index) = detail.instruction {
        fields.set_item("instruction", index)?;
    }
    if kind == ErrorKind::Delegate {
        fields.set_item("backend", &detail.backend)?;
        fields.set_item("debug_handle", detail.debug_handle)?;
    }
    if kind == ErrorKind::Internal && detail.hint.is_none() {
        fields.set_item(
            "hint",
            concat!(
                "this is a bug in pteron, please report it with this text and the program at ",
                env!("CARGO_PKG_REPOSITORY"),
                "/issues"
            ),
        )?;
    }
    let exception = errors_module(py)?.getattr(class_name(kind))?.call((text,), Some(&fields))?;
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
