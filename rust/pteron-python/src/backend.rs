//! Backends written in Python, on the contract of [`pteron_core::Backend`].

use crate::blob::Blob;
use crate::bytes::python_bytes;
use crate::errors::type_name;
use crate::execute_context::ExecuteContext as PyExecuteContext;
use crate::loan::{Borrower, Loan};
use crate::pending_exception::PendingException;
use crate::python_call;
use pteron_core::error::printable;
use pteron_core::{
    ArgView, Availability, Backend, BackendOption, CompileSpec, Delegate, DelegateState, Error,
    ExecuteContext, InitContext, NamedData, OutputView, Result,
};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyMemoryView, PyString, PyTuple};
use smallvec::SmallVec;
use std::sync::Arc;

/// A Python object registered as a backend.
pub struct PyBackend {
    name: String,
    object: Py<PyAny>,
}

impl PyBackend {
    /// Checks that `object` can be one.
    pub fn new(name: String, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.getattr("init").is_ok_and(|init| init.is_callable()) {
            return Err(PyTypeError::new_err(format!(
                "a backend needs a method init(ctx, processed, compile_specs); {} has none",
                type_name(object)
            )));
        }
        if object.is_instance_of::<pyo3::types::PyType>() {
            return Err(PyTypeError::new_err(format!(
                "register an instance of the backend, not its class: register_backend('{}', {}())",
                printable(&name),
                object.getattr("__name__").map(|n| n.to_string()).unwrap_or_default()
            )));
        }
        Ok(PyBackend { name, object: object.clone().unbind() })
    }
}

/// Runs `work` attached to the interpreter; an error while it shuts down.
pub fn attached<T>(work: impl FnOnce(Python<'_>) -> Result<T>) -> Result<T> {
    Python::try_attach(work).unwrap_or_else(|| {
        Err(Error::delegate("a backend written in Python cannot run while the interpreter shuts down"))
    })
}

/// The error for what Python code raised in `phase`; it travels as the cause.
#[cold]
pub fn raised(py: Python<'_>, phase: &str, error: PyErr) -> Error {
    let text = error.value(py).to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let class = type_name(error.value(py).as_any());
    let message = match text.is_empty() {
        true => format!("{phase} raised {class}"),
        false => format!("{phase} raised {class}: {}", shorten(&text)),
    };
    let handle = error.value(py).getattr("debug_handle").ok().and_then(|h| h.extract::<i64>().ok());
    let mut result = Error::delegate(message).hint(hint_of(phase)).cause(error);
    if let Some(handle) = handle {
        result = result.debug_handle(handle);
    }
    result
}

fn hint_of(phase: &str) -> &'static str {
    match phase {
        "execute" => "what the delegate raised, with its traceback, is the __cause__ of this exception",
        _ => "what the backend raised, with its traceback, is the __cause__ of this exception",
    }
}

/// The text of an exception, cut to what fits one line of a message.
pub fn shorten(text: &str) -> String {
    const LIMIT: usize = 600;
    match text.char_indices().nth(LIMIT) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_string(),
    }
}

impl Backend for PyBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_available(&self) -> Availability {
        let asked = attached(|py| {
            let object = self.object.bind(py);
            let answer = match object.getattr_opt(pyo3::intern!(py, "is_available")) {
                Ok(None) => return Ok(Availability::Available),
                Ok(Some(method)) => python_call::call(&method, &PyTuple::empty(py)),
                Err(error) => Err(error),
            };
            let answer = answer.map_err(|e| raised(py, "is_available", e))?;
            Ok(match (answer.cast::<PyBool>(), answer.cast::<PyString>()) {
                (Ok(is_available), _) if is_available.is_true() => Availability::Available,
                (Ok(_), _) => Availability::Unavailable("is_available() gave False".to_string()),
                (_, Ok(reason)) if reason.to_string().is_empty() => {
                    Availability::Unavailable("is_available() gave an empty reason".to_string())
                }
                (_, Ok(reason)) => Availability::Unavailable(reason.to_string()),
                _ => Availability::Unavailable(format!(
                    "is_available() gave {} instead of True or the reason why not",
                    type_name(&answer)
                )),
            })
        });
        asked.unwrap_or_else(|error| Availability::Unavailable(error.detail().message.clone()))
    }

    fn init(
        &self,
        ctx: &InitContext<'_>,
        processed: &[u8],
        specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>> {
        attached(|py| {
            let arguments = init_arguments(py, ctx, processed, specs).map_err(|e| raised(py, "init", e))?;
            let delegate = python_call::method(self.object.bind(py), "init", arguments)
                .map_err(|e| raised(py, "init", e))?;
            let delegate = PyDelegate::new(&delegate, ctx.method)?;
            Ok(Box::new(delegate) as Box<dyn Delegate>)
        })
    }
}

type InitArguments<'py> = (Bound<'py, BackendInitContext>, Bound<'py, PyMemoryView>, Bound<'py, PyDict>);

fn init_arguments<'py>(
    py: Python<'py>,
    ctx: &InitContext<'_>,
    processed: &[u8],
    specs: &[CompileSpec],
) -> PyResult<InitArguments<'py>> {
    let options = PyDict::new(py);
    for (key, value) in ctx.options {
        match value {
            BackendOption::Bool(v) => options.set_item(key, v)?,
            BackendOption::Int(v) => options.set_item(key, v)?,
            BackendOption::String(v) => options.set_item(key, v)?,
        }
    }
    let spec_dict = PyDict::new(py);
    let mut pairs = Vec::with_capacity(specs.len());
    for spec in specs {
        let value = python_bytes(py, &spec.value)?;
        spec_dict.set_item(&spec.key, &value)?;
        pairs.push((&spec.key, value));
    }
    let context = BackendInitContext {
        method: ctx.method.to_string(),
        options: options.unbind(),
        compile_specs: PyTuple::new(py, pairs)?.unbind(),
        named_data: ctx.named_data.clone(),
        num_threads: ctx.num_threads,
    };
    // A copy: Python code keeps views of the blob as it likes.
    let processed = PyMemoryView::from(python_bytes(py, processed)?.as_any())?;
    Ok((Bound::new(py, context)?, processed, spec_dict))
}

/// What a backend written in Python is told when it makes a delegate.
#[pyclass(frozen, module = "pteron._native")]
pub struct BackendInitContext {
    method: String,
    options: Py<PyDict>,
    compile_specs: Py<PyTuple>,
    named_data: Arc<dyn NamedData>,
    num_threads: usize,
}

#[pymethods]
impl BackendInitContext {
    /// The method being loaded.
    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    /// Options that the caller of load_method set for this backend.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.options.bind(py).clone()
    }

    /// The compile specs as (key, bytes) pairs in order, keys that occur twice included.
    #[getter]
    fn compile_specs<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.compile_specs.bind(py).clone()
    }

    /// Threads that a call of the method may use at most, the calling one included.
    #[getter]
    fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// A named blob that travels with the program; KeyError when there is none of that name.
    fn named_data<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyMemoryView>> {
        Blob::of_key(py, &self.named_data, key)?
            .ok_or_else(|| PyKeyError::new_err(format!("the program has no named data '{}'", printable(key))))
    }
}

/// A delegate that is a Python object.
pub struct PyDelegate {
    object: Py<PyAny>,
    method: Py<PyString>,
    num_outputs: usize,
    has_state: bool,
}

impl PyDelegate {
    fn new(object: &Bound<'_, PyAny>, method: &str) -> Result<Self> {
        let py = object.py();
        if !object.getattr("execute").is_ok_and(|e| e.is_callable()) {
            return Err(Error::delegate("init gave something that is not a delegate")
                .expected("an object with num_outputs and execute(ctx, inputs, outputs)")
                .got(type_name(object)));
        }
        let count =
            python_call::attribute(object, "num_outputs").map_err(|e| raised(py, "num_outputs", e))?;
        let num_outputs = match count.extract::<usize>() {
            Ok(num_outputs) if !count.is_instance_of::<PyBool>() => num_outputs,
            _ => {
                return Err(Error::delegate("num_outputs of a delegate is not a number of outputs")
                    .expected("an int of at least 0")
                    .got(type_name(&count)));
            }
        };
        Ok(PyDelegate {
            object: object.clone().unbind(),
            method: PyString::new(py, method).unbind(),
            num_outputs,
            has_state: offers_state(object)?,
        })
    }
}

impl PyDelegate {
    /// The object itself.
    pub fn object(&self) -> &Py<PyAny> {
        &self.object
    }
}

/// Methods of a delegate that owns mutable buffers.
const STATE_METHODS: [&str; 3] = ["get_state", "set_state", "reset_state"];

/// Does the object offer state? All three methods, or none.
fn offers_state(object: &Bound<'_, PyAny>) -> Result<bool> {
    let has = STATE_METHODS.map(|name| object.getattr(name).is_ok_and(|m| m.is_callable()));
    if has.iter().any(|h| *h) && !has.iter().all(|h| *h) {
        let names = |is_there: bool| {
            let of = STATE_METHODS.iter().zip(has).filter(|(_, h)| *h == is_there).map(|(name, _)| *name);
            of.collect::<Vec<_>>().join(" and ")
        };
        return Err(Error::delegate("a delegate has some of the state methods only")
            .expected("get_state, set_state and reset_state, or none of them")
            .got(format!("{} without {}", names(true), names(false))));
    }
    Ok(has.iter().all(|h| *h))
}

impl Delegate for PyDelegate {
    fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    fn state(&mut self) -> Option<&mut dyn DelegateState> {
        if self.has_state { Some(self) } else { None }
    }

    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        attached(|py| {
            let mut loan = Loan::default();
            // SAFETY: `Loan::end` below takes back what is lent before the views and the context end, on every path.
            let called = unsafe { self.call(py, ctx, inputs, outputs, &mut loan) };
            let outcome = match called {
                Ok(None) => Ok(()),
                Ok(Some(given)) => Err(returned(&given)),
                Err(error) => {
                    loan.clear_frames(py, &error);
                    Err(raised(py, "execute", error))
                }
            };
            loan.end(py, outcome, Borrower::Delegate)
        })
    }
}

#[cold]
fn returned(given: &Bound<'_, PyAny>) -> Error {
    Error::delegate("execute of a delegate gave a value back")
        .expected("None, with the results written to the outputs")
        .got(type_name(given))
        .hint("write results in place, for example numpy.asarray(outputs[0])[...] = result")
}

impl PyDelegate {
    /// Calls the object's `execute`; gives what it returned unless that is None.
    ///
    /// # Safety
    /// `loan` must be ended before the arguments end.
    unsafe fn call<'py>(
        &self,
        py: Python<'py>,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
        loan: &mut Loan<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut arguments: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        for (i, input) in inputs.iter().enumerate() {
            arguments.push(match input {
                // SAFETY: the caller promises that arguments outlive the loan.
                ArgView::Tensor(view) => unsafe { loan.input(py, view, i)? }.into_any(),
                ArgView::Int(v) => v.into_pyobject(py)?.into_any(),
                ArgView::Double(v) => v.into_pyobject(py)?.into_any(),
                ArgView::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
                ArgView::String(v) => v.into_pyobject(py)?.into_any(),
                ArgView::None => py.None().into_bound(py),
            });
        }
        let inputs = PyTuple::new(py, arguments.drain(..))?;
        for (i, output) in outputs.iter_mut().enumerate() {
            // SAFETY: the caller promises that arguments outlive the loan.
            arguments.push(unsafe { loan.output(py, output, i)? }.into_any());
        }
        let outputs = PyTuple::new(py, arguments)?;
        // SAFETY: the guard ends the loan of `ctx` before this function returns.
        let context = unsafe { PyExecuteContext::lend(py, &self.method, ctx)? };
        let arguments = (context.object().clone(), inputs, outputs);
        let result = python_call::method(self.object.bind(py), "execute", arguments);
        let events = context.take_events();
        drop(context);
        if let Some(report) = &mut ctx.events {
            events.iter().for_each(|event| report(event.view()));
        }
        let result = result?;
        Ok((!result.is_none()).then_some(result))
    }
}

impl Drop for PyDelegate {
    fn drop(&mut self) {
        // While the interpreter shuts down nobody is left to tell.
        Python::try_attach(|py| {
            // Sessions are often dropped while an exception of their own call propagates.
            let _pending = PendingException::hold(py);
            let object = self.object.bind(py);
            let destroyed = match object.getattr_opt(pyo3::intern!(py, "destroy")) {
                Ok(None) => return,
                Ok(Some(destroy)) => python_call::call(&destroy, &PyTuple::empty(py)).map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = destroyed {
                // Nobody can catch it here: it goes to sys.unraisablehook, as from __del__.
                error.write_unraisable(py, Some(object));
            }
        });
    }
}
