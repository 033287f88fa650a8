//! A call with flat lists: of a session or of a session from a program's pool.

use crate::call::{self, CallLimits, Callee};
use crate::errors::OrRaise;
use crate::input::{Argument, Arguments, OutputMemory};
use crate::interface::MethodInterface;
use crate::output::{self, TensorForm};
use crate::run_observer::observed;
use crate::step_timer::Observer;
use pteron_core::{Error, Result};
use pteron_runtime::Outputs;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

/// What a caller passes beside the inputs.
pub struct FlatCall<'a, 'py> {
    /// Memory for outputs.
    pub outputs: Option<&'a Bound<'py, PyAny>>,
    /// What stops it and when, how many threads, and whether outputs are lent.
    pub limits: CallLimits<'a>,
    /// Who watches.
    pub tracer: Option<&'a Py<PyAny>>,
}

impl<'py> FlatCall<'_, 'py> {
    /// Runs the callee with a flat list of inputs; gives a flat list of outputs.
    pub fn run(
        self,
        py: Python<'py>,
        interface: &MethodInterface,
        callee: &Callee<'_>,
        inputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        observed(py, &interface.label, || self.run_unobserved(py, interface, callee, inputs))
    }

    fn run_unobserved(
        self,
        py: Python<'py>,
        interface: &MethodInterface,
        callee: &Callee<'_>,
        inputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let inputs = match inputs.cast::<PyDict>() {
            Ok(by_name) => interface.read_names(by_name).or_raise(py)?.into_iter().collect(),
            Err(_) => sequence(inputs, "inputs")?,
        };
        let mut arguments = Arguments::new();
        interface.read_inputs(inputs.iter(), &mut arguments).or_raise(py)?;
        let form = match self.limits.lend_outputs {
            false => TensorForm::choose(py, arguments.iter().any(Argument::is_torch)),
            true => TensorForm::Tensor,
        };
        let (bound, mut memory) = match self.outputs {
            Some(outputs) => {
                let bound = sequence(outputs, "outputs")?;
                let memory = read_outputs(interface, &bound).or_raise(py)?;
                (bound, memory)
            }
            None => Default::default(),
        };
        let observer = self.tracer.map(|t| Observer::new(py, t)).transpose()?;
        let mut values = Outputs::new();
        call::execute(py, callee, &mut arguments, &mut memory, self.limits, observer, &mut values)?;
        let objects = values
            .drain(..)
            .enumerate()
            .map(|(i, value)| output::to_object(py, value, form, bound.get(i)))
            .collect::<PyResult<SmallVec<[_; 4]>>>()?;
        PyList::new(py, objects)
    }
}

fn read_outputs(
    interface: &MethodInterface,
    bound: &[Bound<'_, PyAny>],
) -> Result<SmallVec<[Option<OutputMemory>; 2]>> {
    let specs = &interface.outputs;
    interface.check_buffer_count(bound.len())?;
    let read = |(object, spec): (&Bound<'_, PyAny>, _)| match object.is_none() {
        true => Ok(None),
        false => OutputMemory::read(object, spec).map(Some).map_err(|e| e.method(&*interface.name)),
    };
    bound.iter().zip(specs).map(read).collect()
}

/// The elements of a list or tuple (a tensor or string is most likely a mistake).
fn sequence<'py>(object: &Bound<'py, PyAny>, what: &str) -> PyResult<SmallVec<[Bound<'py, PyAny>; 4]>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Ok(tuple.iter().collect());
    }
    let is_iterable = !object.is_instance_of::<PyString>()
        && object.try_iter().is_ok()
        && !object.hasattr("dtype").unwrap_or(false);
    if is_iterable {
        // What it raises is its caller's: a Ctrl-C, or an error in a generator.
        return object.try_iter()?.collect();
    }
    Err(Error::input_type(format!("{what} must be a list or tuple"))
        .argument(what)
        .expected("a list or tuple")
        .got(crate::errors::type_name(object))
        .hint(match what {
            "outputs" => "wrap a single buffer: method.execute([x], outputs=[y])",
            _ => "wrap a single tensor: method.execute([x])",
        }))
    .or_raise(object.py())
}
