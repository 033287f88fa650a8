//! `pteron.Method`: a session of a method.

use crate::call::{self, CallLimits, Callee};
use crate::errors::OrRaise;
use crate::flat_call::FlatCall;
use crate::input::{Argument, Arguments};
use crate::interface::MethodInterface;
use crate::output::{self, TensorForm};
use crate::parameter;
use crate::run_observer::observed;
use pteron_runtime::{CancelHandle, InputValue, Method as Session, Outputs};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;
use std::sync::Arc;

/// A loaded method: its own memory, state and delegates. Made by `Program.load_method`.
///
/// One call runs at a time; a second one meanwhile, from another thread or from a delegate of this one,
/// raises MethodBusy. Load one method per thread, or use `Program.run`.
#[pyclass(frozen, weakref, module = "pteron")]
pub struct Method {
    session: Session,
    interface: Arc<MethodInterface>,
    cancel: CancelHandle,
}

impl Method {
    /// A Python method over a session.
    pub fn new(session: Session, interface: Arc<MethodInterface>) -> Self {
        let cancel = session.cancel_handle();
        Method { session, interface, cancel }
    }
}

#[pymethods]
impl Method {
    /// Runs the method with the arguments it was exported with, and gives the structure it was exported
    /// with. Tensors may be NumPy arrays, torch tensors, or anything with DLPack or the buffer protocol;
    /// they must not be written to during the call. Results are NumPy arrays, or torch tensors when one
    /// came in, and own their memory.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let callee = Callee::Session(&self.session);
        call_with_structure(args.py(), &self.interface, &callee, args, kwargs, CallLimits::default())
    }

    /// Runs the method with a flat list of inputs; gives a flat list of outputs.
    ///
    /// `outputs`: writable, dense memory for each output, or None where the method is to make it; neither
    /// read nor written by anybody else during the call, disjoint, and given back in the result. What it holds
    /// after an error is not defined: results may be computed right in it. `copy`: pass False to get tensors as
    /// `pteron.Tensor`, lent read-only where the method computed them, without a copy. They are valid until the
    /// method is called again, which raises OutputsInUseError while an array, buffer or capsule over one of
    /// them lives, as do `set_state` and `reset_state`. `deadline`: seconds from now, after
    /// which the run stops with DeadlineExceeded. `budget`: most instructions to execute, beyond which the run
    /// stops with LimitExceeded. `num_threads`: most threads for this call, of those that the method was
    /// loaded with; results are the same bytes for any number. `cancel`: a CancelToken, which stops this call and others
    /// that have it.
    ///
    /// `tracer`: an object that is told what happens, through those of these methods that it has:
    /// `step_begin(step)`, `step_end(step, error)`, `delegate_begin(step, backend)`,
    /// `delegate_end(step, backend, error)`, `delegate_event(step, backend, id, start_ns, end_ns, metadata)`,
    /// `allocation(what, index, nbytes)` and `value(step, position, value)` for copies of what steps write. What
    /// it raises stops the run.
    ///
    /// `cancel()`, `deadline` and signals (Ctrl-C, on the main thread, looked at every 0.1 s) stop the run before
    /// the next chunk of a kernel's work, a fraction of an instruction that takes long.
    #[pyo3(signature = (inputs, *, outputs=None, copy=true, deadline=None, budget=None, num_threads=None, tracer=None, cancel=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of the Python method")]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = copy_flag)] copy: bool,
        deadline: Option<&Bound<'py, PyAny>>,
        budget: Option<&Bound<'py, PyAny>>,
        num_threads: Option<&Bound<'py, PyAny>>,
        tracer: Option<Py<PyAny>>,
        cancel: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let limits = CallLimits::new(deadline, budget, num_threads, cancel)?;
        let flat = FlatCall {
            outputs,
            limits: CallLimits { lend_outputs: !copy, ..limits },
            tracer: tracer.as_ref(),
        };
        flat.run(py, &self.interface, &Callee::Session(&self.session), inputs)
    }

    /// Stops the run in progress, which then raises Cancelled. Works from any thread.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Writes all mutable buffers to the file `path`, a data file (`.ptd`) with a tensor per buffer. The file is
    /// complete or not there.
    fn save_state(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        let session = &self.session;
        call::detached(py, || session.save_state(&path))
    }

    /// Sets all mutable buffers from a file that `save_state` wrote. One that lacks a buffer, or has one of
    /// another name, dtype or shape, is an error that changes nothing.
    fn load_state(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        let session = &self.session;
        call::detached(py, || session.load_state(&path))
    }

    /// Copies of the mutable buffers, by name: the method's own, then those of its delegates. A DelegateError names
    /// the backend that owns buffers and does not give them.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let session = &self.session;
        let state = call::detached(py, || session.get_state())?;
        let dict = PyDict::new(py);
        for (name, tensor) in state {
            dict.set_item(name, output::tensor_object(py, tensor, TensorForm::NumPy)?)?;
        }
        Ok(dict)
    }

    /// Sets mutable buffers by name; those that `state` does not name keep their contents. Nothing is
    /// changed when a name, dtype or shape does not fit.
    fn set_state(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        const HINT: &str = "get_state() gives a dict that fits";
        let py = state.py();
        let state = parameter::mapping(state, "state", "a dict of tensors by buffer name", HINT)?;
        let mut entries = Vec::with_capacity(state.len());
        for (name, value) in state.iter() {
            let name = parameter::text(&name, "state", HINT)?.to_string();
            let value = Argument::read_state(&value, &name)
                .map_err(|e| e.method(&*self.interface.name))
                .or_raise(py)?;
            entries.push((name, value));
        }
        let session = &self.session;
        call::detached(py, || {
            let state: Vec<(&str, InputValue<'_>)> =
                entries.iter().map(|(name, value)| (name.as_str(), value.as_input())).collect();
            session.set_state(&state)
        })
    }

    /// Starts the random stream of a seed, an int of 64 bits: the calls that follow draw what they would in a
    /// method that was loaded with it. Without a seed, each method draws one from the operating system.
    fn seed(&self, seed: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = seed.py();
        let Some(seed) = parameter::count(Some(seed), "seed", 0)? else {
            return Err(parameter::wrong_type(
                seed,
                "seed",
                "an int of at least 0",
                "any int below 2**64 will do",
            ));
        };
        self.session.seed(seed).or_raise(py)
    }

    /// Puts all mutable buffers back to their initial contents. The random stream goes on.
    fn reset_state(&self, py: Python<'_>) -> PyResult<()> {
        let session = &self.session;
        call::detached(py, || session.reset_state())
    }

    /// Name of the method.
    #[getter]
    fn name(&self) -> &str {
        &self.interface.name
    }

    /// What the method takes, flat.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        crate::spec::ValueSpec::tuple(py, &self.interface.inputs)
    }

    /// What the method gives, flat.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        crate::spec::ValueSpec::tuple(py, &self.interface.outputs)
    }

    fn __repr__(&self) -> String {
        describe(&self.interface)
    }

    /// The same for notebooks, as tables.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pteron.devtools.interface_html")?.call_method1("method_html", (slf,))
    }
}

/// Runs a callee with the exported structure.
pub fn call_with_structure<'py>(
    py: Python<'py>,
    interface: &MethodInterface,
    callee: &Callee<'_>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    limits: CallLimits<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    observed(py, &interface.label, || {
        let mut arguments = Arguments::new();
        interface.read_call(args, kwargs, &mut arguments).or_raise(py)?;
        let form = TensorForm::choose(py, arguments.iter().any(Argument::is_torch));
        let (mut memory, mut values) = (SmallVec::new(), Outputs::new());
        call::execute(py, callee, &mut arguments, &mut memory, limits, None, &mut values)?;
        interface.build(py, &mut values, form)
    })
}

/// `forward(x: float32[2, 3]) -> float32[2, 3]`
pub fn describe(interface: &MethodInterface) -> String {
    format!("pteron.Method {}", interface.signature())
}

fn copy_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    parameter::flag(object, "copy")
}
