//! Tracers written in Python: objects with any of the methods of [`pteron_runtime::Tracer`].

use crate::bytes::python_bytes;
use crate::output::{self, TensorForm};
use crate::python_call;
use pteron_core::{AlignedBuffer, ArgView, DelegateEvent, Error, EventId, OwnedTensor, TensorView};
use pteron_runtime::{Allocation, StepInfo, Tracer};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A step of a run, as a tracer is told of it.
#[pyclass(frozen, get_all, module = "pteron._native")]
pub struct TracedStep {
    /// Name of the method.
    method: String,
    /// Index of the step in the method's plan (`program.plan_listing`).
    index: usize,
    /// Kernel, backend or instruction that does the work.
    name: String,
    /// Instructions of the file that the step stands for.
    instructions: Vec<u32>,
    /// Debug handles of those instructions; empty when the file has no debug information.
    handles: Vec<i64>,
    /// Parts of delegates that load replaced by operators: index of the delegate, of its node, the node's debug handle.
    parts: Vec<(u32, u32, u32)>,
}

#[pymethods]
impl TracedStep {
    fn __repr__(&self) -> String {
        format!("TracedStep({}: {}, instructions={:?})", self.index, self.name, self.instructions)
    }
}

/// A Python object that watches one call. What it raises stops the run.
pub struct PyTracer<'py> {
    object: &'py Py<PyAny>,
    failure: Option<PyErr>,
    step: Option<Py<TracedStep>>,
    has_values: bool,
}

impl<'py> PyTracer<'py> {
    /// A tracer for one call.
    pub fn new(py: Python<'_>, object: &'py Py<PyAny>) -> PyResult<Self> {
        let has_values = object.bind(py).hasattr("value")?;
        Ok(PyTracer { object, failure: None, step: None, has_values })
    }

    /// What the object raised.
    pub fn take_failure(&mut self) -> Option<PyErr> {
        self.failure.take()
    }

    /// Calls a method of the object, where it has one of that name.
    fn tell<'a>(
        &mut self,
        name: &str,
        arguments: impl for<'p> FnOnce(Python<'p>, &Option<Py<TracedStep>>) -> PyResult<Bound<'p, PyTuple>> + 'a,
    ) {
        if self.failure.is_some() {
            return;
        }
        let told = Python::try_attach(|py| match self.object.bind(py).getattr_opt(name)? {
            Some(method) => python_call::call(&method, &arguments(py, &self.step)?).map(drop),
            None => Ok(()),
        });
        if let Some(Err(error)) = told {
            self.failure = Some(error);
        }
    }
}

/// The current step, as the first argument.
fn current<'py>(py: Python<'py>, step: &Option<Py<TracedStep>>) -> Option<Bound<'py, TracedStep>> {
    step.as_ref().map(|s| s.bind(py).clone())
}

impl Tracer for PyTracer<'_> {
    fn step_begin(&mut self, step: &StepInfo<'_>) {
        let made = Python::try_attach(|py| {
            Py::new(
                py,
                TracedStep {
                    method: step.method.to_string(),
                    index: step.step,
                    name: step.name.to_string(),
                    instructions: step.covers.to_vec(),
                    handles: step.handles.to_vec(),
                    parts: step.parts.iter().map(|p| (p.delegate, p.node, p.handle)).collect(),
                },
            )
        });
        self.step = made.and_then(Result::ok);
        self.tell("step_begin", |py, step| PyTuple::new(py, [current(py, step)]));
    }

    fn step_end(&mut self, _step: &StepInfo<'_>, error: Option<&Error>) {
        let error = error.map(ToString::to_string);
        self.tell("step_end", |py, step| (current(py, step), error).into_pyobject(py));
    }

    fn delegate_begin(&mut self, _step: &StepInfo<'_>, backend: &str) {
        self.tell("delegate_begin", |py, step| (current(py, step), backend).into_pyobject(py));
    }

    fn delegate_end(&mut self, _step: &StepInfo<'_>, backend: &str, error: Option<&Error>) {
        let error = error.map(ToString::to_string);
        self.tell("delegate_end", |py, step| (current(py, step), backend, error).into_pyobject(py));
    }

    fn delegate_event(&mut self, _step: &StepInfo<'_>, backend: &str, event: &DelegateEvent<'_>) {
        self.tell("delegate_event", |py, step| {
            let id = match event.id {
                EventId::Int(id) => id.into_pyobject(py)?.into_any(),
                EventId::Name(name) => name.into_pyobject(py)?.into_any(),
            };
            let metadata = python_bytes(py, event.metadata)?;
            (current(py, step), backend, id, event.start_ns, event.end_ns, metadata).into_pyobject(py)
        });
    }

    fn allocation(&mut self, allocation: Allocation) {
        let (what, index, nbytes) = match allocation {
            Allocation::InputCopy { input, nbytes } => ("input", input, nbytes),
            Allocation::Output { output, nbytes } => ("output", output, nbytes),
        };
        self.tell("allocation", |py, _| (what, index, nbytes).into_pyobject(py));
    }

    fn stops_run(&mut self) -> bool {
        self.failure.is_some()
    }

    fn wants_values(&mut self, _step: &StepInfo<'_>) -> bool {
        self.has_values && self.failure.is_none()
    }

    fn value(&mut self, _step: &StepInfo<'_>, position: usize, value: ArgView<'_>) {
        self.tell("value", |py, step| {
            let value = match value {
                ArgView::Tensor(view) => output::tensor_object(
                    py,
                    copy(&view).map_err(|e| crate::errors::to_python(py, e))?,
                    TensorForm::NumPy,
                )?,
                ArgView::Int(v) => v.into_pyobject(py)?.into_any(),
                ArgView::Double(v) => v.into_pyobject(py)?.into_any(),
                ArgView::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
                ArgView::String(v) => v.into_pyobject(py)?.into_any(),
                ArgView::None => py.None().into_bound(py),
            };
            (current(py, step), position, value).into_pyobject(py)
        });
    }
}

/// A tensor of its own with the same bytes.
pub fn copy(view: &TensorView<'_>) -> pteron_core::Result<OwnedTensor> {
    Ok(OwnedTensor { meta: view.meta().clone(), data: AlignedBuffer::copy_of(view.as_bytes())? })
}
