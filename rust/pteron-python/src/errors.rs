//! From [`pteron_core::Error`] to the exception classes of `pteron.errors`.

use pteron_core::{Error, ErrorKind};
use pyo3::exceptions::{PyException, PyFileNotFoundError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

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
    let kind = error.kind();
    let error = error.hint(general_hint(kind));
    let text = error.to_string();
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

/// What to do about an error that says nothing more precise itself.
fn general_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Program => {
            "the file is damaged or breaks a rule of the format: copy it again, or export the model again"
        }
        ErrorKind::MissingOperator => "delegate these operators, or decompose them before export",
        ErrorKind::MissingBackend => {
            "pteron.register_backend makes a backend known; program.backends(method) lists those needed"
        }
        ErrorKind::MethodNotFound => "program.methods lists the methods",
        ErrorKind::Input | ErrorKind::InputType => {
            "program.inputs(method) and program.outputs(method) tell what a method takes and gives"
        }
        ErrorKind::Kernel => {
            "look at the inputs of this call: the operator cannot do what they ask for; program.listing() shows \
             the instruction"
        }
        ErrorKind::Delegate => {
            "the backend failed, not the runtime; __cause__ holds what a backend written in Python raised"
        }
        ErrorKind::ExternalData => "pass the data file that was written together with the program",
        ErrorKind::LimitExceeded => "raise the limit if the program is trusted: pteron.Limits, or budget",
        ErrorKind::Cancelled => "the method can be called again",
        ErrorKind::DeadlineExceeded => "the method can be called again; give it more time with deadline",
        ErrorKind::MethodBusy => "load one method per thread, or use program.run()",
        ErrorKind::OutputsInUse => "let go of the outputs of earlier calls, or copy them",
        _ => concat!(
            "this is a bug in pteron, please report it with this text and the program at ",
            env!("CARGO_PKG_REPOSITORY"),
            "/issues"
        ),
    }
}

fn make(
    py: Python<'_>,
    kind: ErrorKind,
    text: String,
    detail: &pteron_core::error::ErrorDetail,
) -> PyResult<PyErr> {
    // The text says what the fields say, escaped; handed to the class they would be compared with it raw.
    let exception = errors_module(py)?.getattr(class_name(kind))?.call1((text,))?;
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
