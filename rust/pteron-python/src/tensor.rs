//! `pteron.Tensor`: memory with dtype and shape, seen through the buffer protocol and DLPack. Unsafe
//! island (the buffer protocol).

use crate::dlpack;
use crate::dtype;
use crate::errors::OrRaise;
use crate::numpy;
use crate::numpy_api;
use crate::tensor_memory::TensorMemory;
use pteron_core::dim_order::is_dense;
use pteron_core::{AlignedBuffer, MAX_RANK, TensorMeta};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ffi::c_int;
use std::ops::Deref;

/// A tensor: what outputs own their memory through, and what delegates written in Python get as
/// arguments. Read it with `numpy.asarray(t)`, `t.numpy()`, `memoryview(t)` or any DLPack consumer.
///
/// The arguments of a delegate are valid until its `execute` returns; exports of them that live longer
/// are an error. What `Method.execute(copy=False)` lends is read-only and valid until the method is used again,
/// which is refused while exports of it live.
#[pyclass(frozen, module = "pteron", name = "Tensor")]
pub struct Tensor(TensorMemory);

impl From<TensorMemory> for Tensor {
    fn from(memory: TensorMemory) -> Self {
        Tensor(memory)
    }
}

impl Deref for Tensor {
    type Target = TensorMemory;
    fn deref(&self) -> &TensorMemory {
        &self.0
    }
}

/// Extents and strides in bytes of one exported buffer; freed with it.
struct BufferDims {
    shape: [ffi::Py_ssize_t; MAX_RANK],
    strides: [ffi::Py_ssize_t; MAX_RANK],
}

impl Tensor {
    /// An array over this memory, writable when the tensor is; `None` when NumPy lacks the dtype.
    pub fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let wrap = |memory| Ok(Bound::new(slf.py(), Tensor(memory))?.into_any());
        let owned = |ndarray: &Bound<'py, PyAny>, dtype: &Bound<'py, PyAny>| {
            Self::array_of_owned(slf, ndarray, dtype)
        };
        numpy::array_over(slf.as_any(), slf.get(), owned, wrap)
    }

    /// An array over memory that the tensor owns, which no revocation can reach: no export need be counted.
    /// `None` for lent memory, and for a NumPy that can only be asked through Python. `dtype` must be the
    /// object for this tensor's element type.
    fn array_of_owned<'py>(
        slf: &Bound<'py, Self>,
        ndarray: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> Option<PyResult<Bound<'py, PyAny>>> {
        let tensor = slf.get();
        let data = tensor.memory.owned_data()?;
        // A copy: making an array may run the garbage collector, and that anything, with the lock held.
        let meta = tensor.with_meta(TensorMeta::clone);
        // SAFETY: the memory holds a tensor of `meta`, aligned for every dtype, and lives as long as this object.
        unsafe { numpy_api::array_at(ndarray, dtype, &meta, data, slf.as_any()) }
    }

    fn dims(py: Python<'_>, dims: &[usize]) -> PyResult<Py<PyTuple>> {
        Ok(PyTuple::new(py, dims)?.unbind())
    }
}

#[pymethods]
impl Tensor {
    /// Extents, outermost first.
    #[getter]
    fn shape(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.with_meta(|meta| Self::dims(py, meta.shape()))
    }

    /// Strides in elements.
    #[getter]
    fn strides(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.with_meta(|meta| Self::dims(py, meta.strides()))
    }

    /// Name of the element type, such as "float32" or "bfloat16".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.with_meta(|meta| meta.dtype().name())
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.with_meta(TensorMeta::rank)
    }

    /// Number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.with_meta(TensorMeta::nbytes)
    }

    /// May the elements be changed?
    #[getter]
    fn writable(&self) -> bool {
        self.is_writable
    }

    /// False once the delegate call that this tensor was an argument of has ended, or the method that lent it
    /// was called again.
    #[getter]
    fn valid(&self) -> bool {
        !self.memory.is_dead()
    }

    /// Gives an output of a delegate the extents it has in this call: same rank, within the bound that
    /// the program states. Refused while exports are alive, and for tensors that are not such outputs.
    fn resize(&self, py: Python<'_>, shape: Vec<usize>) -> PyResult<()> {
        self.0.resize(py, &shape)
    }

    /// A NumPy array over this memory. bfloat16 and float8 need the package `ml_dtypes`.
    pub fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::array(slf)?.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "NumPy has no {} here; install ml_dtypes, or use DLPack: torch.from_dlpack(tensor)",
                slf.get().dtype()
            ))
        })
    }

    /// The bytes of all elements in memory order.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (data, len) = self.export(|_, data, meta| (data, meta.nbytes()))?;
        let bytes = PyBytes::new_with(py, len, |target| {
            if len != 0 {
                // SAFETY: the export keeps `data` valid for `len` bytes; `target` is fresh.
                unsafe { std::ptr::copy_nonoverlapping(data, target.as_mut_ptr(), len) };
            }
            Ok(())
        });
        // SAFETY: the export above, whose bytes have been copied.
        unsafe { self.memory.release() };
        bytes
    }

    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = Self::numpy(slf)?;
        match dtype {
            Some(dtype) if !array.getattr("dtype")?.eq(&dtype)? => {
                if copy == Some(false) {
                    return Err(pyo3::exceptions::PyValueError::new_err(
                        "another dtype cannot be had without a copy",
                    ));
                }
                array.call_method1("astype", (dtype,))
            }
            _ if copy == Some(true) => array.call_method0("copy"),
            _ => Ok(array),
        }
    }

    /// DLPack export: a versioned capsule when `max_version` allows it, else a legacy one, which
    /// read-only memory refuses.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("memory on the CPU has no stream; pass stream=None"));
        }
        if dl_device.is_some_and(|d| d != dlpack::CPU) {
            return Err(PyBufferError::new_err("a pteron.Tensor can be exported to the CPU only"));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if copy == Some(true) {
            let (copied, meta) = self.export(|memory, data, meta| {
                let copied = copy_bytes(data, meta.nbytes());
                // SAFETY: the export of this closure, whose bytes have been copied.
                unsafe { memory.release() };
                (copied, meta.clone())
            })?;
            let copied = TensorMemory::owned(meta, copied.or_raise(py)?);
            return dlpack::export(py, &copied, true, is_versioned, true);
        }
        dlpack::export(py, self, self.is_writable, is_versioned, false)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    fn __repr__(&self) -> String {
        let (shape, dtype) = self.with_meta(|meta| (meta.shape().to_string(), meta.dtype()));
        let state = if self.memory.is_dead() { ", expired" } else { "" };
        let access = if self.is_writable { "" } else { ", read-only" };
        format!("pteron.Tensor(shape={shape}, dtype={dtype}{access}{state})")
    }

    /// # Safety
    /// CPython calls it, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: CPython passes a valid, uninitialised view; errors must leave its object null.
        unsafe { (*view).obj = std::ptr::null_mut() };
        let this = slf.get();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !this.is_writable {
            return Err(PyBufferError::new_err("this pteron.Tensor is read-only"));
        }
        let filled = this.export(|memory, data, meta| {
            // SAFETY: CPython's view, valid for the whole call.
            let filled = fill_view(unsafe { &mut *view }, meta, data, this.is_writable, flags);
            if filled.is_err() {
                // SAFETY: the export above; no view was made of it.
                unsafe { memory.release() };
            }
            filled
        })?;
        filled?;
        // SAFETY: as above; the reference is given up to the view, which releases it.
        unsafe { (*view).obj = slf.into_ptr() };
        Ok(())
    }

    /// # Safety
    /// CPython calls it, once for a view that `__getbuffer__` filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `internal` is what `fill_view` stored, or null; each view is released once.
        unsafe {
            let dims = (*view).internal.cast::<BufferDims>();
            (*view).internal = std::ptr::null_mut();
            if !dims.is_null() {
                drop(Box::from_raw(dims));
            }
        }
        // SAFETY: the export of this view, which is released once.
        unsafe { self.memory.release() };
    }
}

fn copy_bytes(data: *const u8, len: usize) -> pteron_core::Result<AlignedBuffer> {
    let copy = AlignedBuffer::zeroed(len)?;
    if len != 0 {
        // SAFETY: the caller holds an export of `data`, which is valid for `len` bytes; `copy` is fresh.
        unsafe { std::ptr::copy_nonoverlapping(data, copy.as_ptr(), len) };
    }
    Ok(copy)
}

/// Fills a buffer view except for its object; what the consumer did not ask for stays null.
fn fill_view(
    view: &mut ffi::Py_buffer,
    meta: &TensorMeta,
    data: *mut u8,
    is_writable: bool,
    flags: c_int,
) -> PyResult<()> {
    let has = |flag: c_int| flags & flag == flag;
    let is_c = is_dense((0..meta.rank()).rev(), meta.shape(), meta.strides());
    let is_f = is_dense(0..meta.rank(), meta.shape(), meta.strides());
    if (has(ffi::PyBUF_C_CONTIGUOUS) || !has(ffi::PyBUF_STRIDES)) && !is_c
        || has(ffi::PyBUF_F_CONTIGUOUS) && !is_f
        || has(ffi::PyBUF_ANY_CONTIGUOUS) && !is_c && !is_f
    {
        return Err(PyBufferError::new_err("this pteron.Tensor does not have the memory order asked for"));
    }
    let format = match dtype::buffer_format(meta.dtype()) {
        Some(format) => format.as_ptr().cast_mut(),
        None if !has(ffi::PyBUF_FORMAT) => std::ptr::null_mut(),
        None => {
            return Err(PyBufferError::new_err(format!(
                "the buffer protocol has no code for {}; use tensor.numpy() with ml_dtypes, or DLPack",
                meta.dtype()
            )));
        }
    };
    let itemsize = meta.dtype().size();
    *view = ffi::Py_buffer {
        buf: data.cast(),
        obj: std::ptr::null_mut(),
        len: meta.nbytes() as ffi::Py_ssize_t,
        itemsize: itemsize as ffi::Py_ssize_t,
        readonly: c_int::from(!is_writable),
        ndim: meta.rank() as c_int,
        format: if has(ffi::PyBUF_FORMAT) { format } else { std::ptr::null_mut() },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        suboffsets: std::ptr::null_mut(),
        internal: std::ptr::null_mut(),
    };
    if !has(ffi::PyBUF_ND) || meta.rank() == 0 {
        return Ok(());
    }
    let mut dims = Box::new(BufferDims { shape: [0; MAX_RANK], strides: [0; MAX_RANK] });
    for (to, &from) in dims.shape.iter_mut().zip(meta.shape().iter()) {
        *to = from as ffi::Py_ssize_t;
    }
    for (to, &from) in dims.strides.iter_mut().zip(meta.strides().iter()) {
        *to = from.wrapping_mul(itemsize) as ffi::Py_ssize_t;
    }
    let dims = Box::into_raw(dims);
    // SAFETY: `dims` was just allocated; the pointers live until `__releasebuffer__` frees it.
    unsafe {
        view.shape = (&raw mut (*dims).shape).cast();
        if has(ffi::PyBUF_STRIDES) {
            view.strides = (&raw mut (*dims).strides).cast();
        }
    }
    view.internal = dims.cast();
    Ok(())
}
