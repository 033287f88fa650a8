//! Mutable buffers of delegates written in Python: `get_state`, `set_state`, `reset_state`.

use crate::backend::{PyDelegate, attached, raised};
use crate::errors::type_name;
use crate::input::Argument;
use crate::output::{self, TensorForm};
use crate::python_call;
use crate::tracer::copy;
use pteron_core::{DelegateState, Error, OwnedTensor, Result, TensorView};
use pteron_runtime::InputValue;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};

impl PyDelegate {
    /// Calls a method of the object; what it raises is an error with that method's name.
    fn tell<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        arguments: Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>> {
        let method = python_call::attribute(self.object().bind(py), name);
        method.and_then(|m| python_call::call(&m, &arguments)).map_err(|e| raised(py, name, e))
    }
}

impl DelegateState for PyDelegate {
    fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        attached(|py| {
            let given = self.tell(py, "get_state", PyTuple::empty(py))?;
            let wrong = |got: &Bound<'_, PyAny>| {
                Error::delegate("get_state of a delegate gave something else than buffers by name")
                    .expected("a dict from str to arrays")
                    .got(type_name(got))
            };
            let mapping = given.cast::<PyMapping>().map_err(|_| wrong(&given))?;
            let items = mapping.items().map_err(|e| raised(py, "get_state", e))?;
            let mut out = Vec::with_capacity(items.len());
            for item in items.iter() {
                let (name, array) =
                    item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().map_err(|_| wrong(&item))?;
                let name: String = name.extract().map_err(|_| wrong(&name))?;
                let argument = Argument::read_state(&array, &name)
                    .map_err(|e| wrong(&array).argument(name.as_str()).hint(e.detail().message.clone()))?;
                let InputValue::Tensor(tensor) = argument.as_input() else { return Err(wrong(&array)) };
                out.push((name, tensor.to_owned_tensor()?));
            }
            Ok(out)
        })
    }

    fn is_empty(&self) -> Result<bool> {
        attached(|py| {
            let given = self.tell(py, "get_state", PyTuple::empty(py))?;
            Ok(given.len().is_ok_and(|n| n == 0))
        })
    }

    fn set_state(&mut self, state: &[(&str, TensorView<'_>)]) -> Result<()> {
        attached(|py| {
            let given = PyDict::new(py);
            for (name, view) in state {
                let array = output::tensor_object(py, copy(view)?, TensorForm::NumPy);
                let set = array.and_then(|a| given.set_item(name, a));
                set.map_err(|e| raised(py, "set_state", e))?;
            }
            let arguments = PyTuple::new(py, [given]).map_err(|e| raised(py, "set_state", e))?;
            self.tell(py, "set_state", arguments).map(drop)
        })
    }

    fn reset_state(&mut self) -> Result<()> {
        attached(|py| self.tell(py, "reset_state", PyTuple::empty(py)).map(drop))
    }
}
