//! Read-only bytes of a program, kept alive by their owner. Unsafe island.

use pteron_core::{NamedData, PackedBytes};
use pteron_runtime::Program;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;
use std::sync::Arc;

/// The object behind memoryviews of named data.
#[pyclass(frozen, module = "pteron._native")]
pub struct Blob {
    data: *const u8,
    len: usize,
    _owner: Owner,
}

#[allow(dead_code, reason = "held for the sake of holding")]
enum Owner {
    Program(Arc<Program>),
    NamedData(Arc<dyn NamedData>),
    Pack(Arc<PackedBytes>),
}

// SAFETY: the bytes are immutable and belong to the owner, which is itself shared between threads.
unsafe impl Send for Blob {}
// SAFETY: nothing changes through a shared reference: the bytes are immutable.
unsafe impl Sync for Blob {}

impl Blob {
    /// A memoryview of `bytes`, which `program` owns.
    pub fn of_program<'py>(
        py: Python<'py>,
        program: Arc<Program>,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let blob = Blob { data: bytes.as_ptr(), len: bytes.len(), _owner: Owner::Program(program) };
        PyMemoryView::from(Bound::new(py, blob)?.as_any())
    }

    /// A memoryview of a packed weight.
    pub fn of_pack<'py>(py: Python<'py>, pack: Arc<PackedBytes>) -> PyResult<Bound<'py, PyMemoryView>> {
        let blob = Blob { data: pack.as_ptr(), len: pack.len(), _owner: Owner::Pack(pack) };
        PyMemoryView::from(Bound::new(py, blob)?.as_any())
    }

    /// A memoryview of one named blob; `None` when there is no such key. The blob is valid while the
    /// trait object lives: `NamedData::get` borrows it, and sharing forbids changing it.
    pub fn of_key<'py>(
        py: Python<'py>,
        named_data: &Arc<dyn NamedData>,
        key: &str,
    ) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let Some(bytes) = named_data.get(key) else { return Ok(None) };
        let owner = Owner::NamedData(named_data.clone());
        let blob = Blob { data: bytes.as_ptr(), len: bytes.len(), _owner: owner };
        PyMemoryView::from(Bound::new(py, blob)?.as_any()).map(Some)
    }
}

#[pymethods]
impl Blob {
    /// # Safety
    /// CPython calls it, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            // SAFETY: CPython passes a valid view; errors must leave its object null.
            unsafe { (*view).obj = std::ptr::null_mut() };
            return Err(PyBufferError::new_err("the bytes of a program are read-only"));
        }
        let len = this.len as ffi::Py_ssize_t;
        let data = this.data.cast_mut().cast();
        // SAFETY: `data` is valid for `len` bytes while the object lives, and the view references it.
        let status = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, len, 1, flags) };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
