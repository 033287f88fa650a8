//! How a method is called from Python: what the runtime knows of it, and the values that are read and made.

use crate::input::{Argument, Arguments};
use crate::output::{self, TensorForm};
use crate::python_objects::PythonObjects;
use pteron_core::Result;
use pteron_runtime::{CallingConvention, Leaves, Outputs, Program};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ops::Deref;

/// The calling convention of one method, read once per program.
pub struct MethodInterface {
    convention: CallingConvention<Py<PyAny>>,
    /// What its runs are called in metrics.
    pub label: String,
}

impl Deref for MethodInterface {
    type Target = CallingConvention<Py<PyAny>>;

    fn deref(&self) -> &Self::Target {
        &self.convention
    }
}

impl MethodInterface {
    /// Reads the interface of `method`; `of` is what the program is called in metrics.
    pub fn new(py: Python<'_>, program: &Program, of: &str, method: &str) -> Result<Self> {
        let convention = CallingConvention::new(&PythonObjects(py), program, method)?;
        Ok(MethodInterface { convention, label: format!("{of}, {method}, runs") })
    }

    /// Reads the arguments of a call with the exported structure, into `arguments` (which is large: it is not moved).
    pub fn read_call(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        arguments: &mut Arguments,
    ) -> Result<()> {
        let mut leaves = Leaves::new();
        let kwargs = kwargs.map(|kwargs| (kwargs.len(), kwargs.as_any()));
        self.flatten_call(&PythonObjects(args.py()), args.iter(), kwargs, &mut leaves)?;
        self.read_inputs(leaves.iter(), arguments)
    }

    /// The values of a dict from names of flat inputs, in the method's order.
    pub fn read_names<'py>(&self, given: &Bound<'py, PyDict>) -> Result<Leaves<Bound<'py, PyAny>>> {
        let mut leaves = Leaves::new();
        self.flatten_named(&PythonObjects(given.py()), (given.len(), given.as_any()), &mut leaves)?;
        Ok(leaves)
    }

    /// Reads flat values as the inputs of a call. A wrong number of them is the runtime's to refuse: none is read then.
    pub fn read_inputs<'a, 'py: 'a>(
        &self,
        values: impl ExactSizeIterator<Item = &'a Bound<'py, PyAny>>,
        arguments: &mut Arguments,
    ) -> Result<()> {
        if values.len() != self.inputs.len() {
            arguments.extend(values.map(|_| Argument::None));
            return Ok(());
        }
        for (value, spec) in values.zip(&self.inputs) {
            arguments.push(Argument::read(value, spec).map_err(|e| e.method(&*self.name))?);
        }
        Ok(())
    }

    /// Outputs in the exported structure; a tuple (or the one value) where the program stores none.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        outputs: &mut Outputs,
        form: TensorForm,
    ) -> PyResult<Bound<'py, PyAny>> {
        if outputs.len() == 1
            && self.gives_one_value()
            && let Some(value) = outputs.pop()
        {
            return output::to_object(py, value, form, None);
        }
        let mut failure = None;
        let mut values =
            outputs.drain(..).map_while(|value| match output::to_object(py, value, form, None) {
                Ok(object) => Some(object),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            });
        let built = self.convention.build(&PythonObjects(py), &mut values);
        drop(values);
        match failure {
            Some(error) => Err(error),
            None => built,
        }
    }
}
