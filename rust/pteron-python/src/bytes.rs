//! Python bytes of any length.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A copy of `bytes`; MemoryError when there is no room for it.
pub fn python_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |target| {
        target.copy_from_slice(bytes);
        Ok(())
    })
}
