//! Bytes of Python objects that the writer reads in place. Unsafe island.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// The bytes of an object with the buffer protocol, without a copy where they are contiguous.
///
/// Unlike the run half, the writer borrows memory that its owner could change: weights of gigabytes are
/// written from where the model has them. Nothing is concluded from bytes that a later read relies on; a
/// change while they are written gives a file with other weights and nothing worse.
pub struct Contents {
    view: Py<PyMemoryView>,
    buffer: Option<PyBuffer<u8>>,
}

impl Contents {
    /// Exports the buffer of `object`; it stays exported while the value lives.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(object)?;
        let nbytes: usize = view.getattr("nbytes")?.extract()?;
        if nbytes == 0 {
            let empty = PyMemoryView::from(PyBytes::new(object.py(), b"").as_any())?;
            return Ok(Contents { view: empty.unbind(), buffer: None });
        }
        let is_contiguous: bool = view.getattr("c_contiguous")?.extract()?;
        let source = if is_contiguous { view } else { PyMemoryView::from(&view.call_method0("tobytes")?)? };
        let flat = source.call_method1("cast", ("B",))?.cast_into::<PyMemoryView>()?;
        let buffer = PyBuffer::<u8>::get(flat.as_any())?;
        Ok(Contents { view: flat.unbind(), buffer: Some(buffer) })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.buffer {
            // SAFETY: the export keeps `len_bytes` contiguous bytes in place while `self` lives. Callers
            // keep them unchanged during the call, as the module and the Python side document.
            Some(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast_const().cast(), buffer.len_bytes())
            },
            None => &[],
        }
    }

    /// The same bytes as a flat memoryview.
    pub fn view(&self) -> &Py<PyMemoryView> {
        &self.view
    }
}
