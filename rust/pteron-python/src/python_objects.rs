//! Python's values, as the structures of calls are made of them.

use crate::errors::type_name;
use pteron_runtime::{Leaves, Objects, StoredKey};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PySequence, PyString, PyTuple};

/// The interpreter.
#[derive(Clone, Copy)]
pub struct PythonObjects<'py>(pub Python<'py>);

impl<'py> Objects for PythonObjects<'py> {
    type Value = Bound<'py, PyAny>;
    type Key = Py<PyAny>;
    type Raised = PyErr;

    fn key(&self, stored: StoredKey<'_>) -> Option<Py<PyAny>> {
        let py = self.0;
        match stored {
            StoredKey::String(text) => Some(PyString::intern(py, text).into_any().unbind()),
            StoredKey::Bool(b) => b.into_pyobject(py).ok().map(|o| o.to_owned().into_any().unbind()),
            StoredKey::Int(i) => i.into_pyobject(py).ok().map(|o| o.into_any().unbind()),
            StoredKey::Double(f) => f.into_pyobject(py).ok().map(|o| o.into_any().unbind()),
            StoredKey::None => Some(py.None()),
        }
    }

    fn key_name(&self, key: &Py<PyAny>) -> String {
        key.bind(self.0).to_string()
    }

    fn type_name(&self, value: &Bound<'py, PyAny>) -> String {
        type_name(value)
    }

    fn sequence_len(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<usize>> {
        let is_sequence = value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>();
        is_sequence.then(|| value.len()).transpose()
    }

    fn element(&self, sequence: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        sequence.cast::<PySequence>()?.get_item(index)
    }

    fn mapping_len(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<usize>> {
        value.cast::<PyMapping>().ok().map(|mapping| mapping.len()).transpose()
    }

    fn entry(&self, mapping: &Bound<'py, PyAny>, key: &Py<PyAny>) -> Option<Bound<'py, PyAny>> {
        let key = key.bind(self.0);
        // A dict says that it has no such key without raising.
        match mapping.cast_exact::<PyDict>() {
            Ok(dict) => dict.get_item(key).ok().flatten(),
            Err(_) => mapping.cast::<PyMapping>().ok()?.get_item(key).ok(),
        }
    }

    fn entry_names(&self, mapping: &Bound<'py, PyAny>) -> Vec<String> {
        let keys = mapping.cast::<PyMapping>().ok().and_then(|mapping| mapping.keys().ok());
        keys.map(|keys| keys.iter().map(|key| key.to_string()).collect()).unwrap_or_default()
    }

    fn field(&self, value: &Bound<'py, PyAny>, name: &Py<PyAny>) -> Option<Bound<'py, PyAny>> {
        let name = name.bind(self.0).cast::<PyString>().ok()?;
        match value.cast::<PyMapping>() {
            Ok(mapping) => mapping.get_item(name).ok(),
            Err(_) => value.getattr(name).ok(),
        }
    }

    fn none(&self) -> Bound<'py, PyAny> {
        self.0.None().into_bound(self.0)
    }

    fn tuple(&self, elements: Leaves<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        PyTuple::new(self.0, elements).map(Bound::into_any)
    }

    fn list(&self, elements: Leaves<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        PyList::new(self.0, elements).map(Bound::into_any)
    }

    fn dict<'k>(
        &self,
        entries: impl Iterator<Item = (&'k Py<PyAny>, Bound<'py, PyAny>)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.0);
        for (key, value) in entries {
            dict.set_item(key, value)?;
        }
        Ok(dict.into_any())
    }
}
