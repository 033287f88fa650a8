//! NumPy arrays over our memory: outputs through NumPy's C interface, lent memory, whose views are counted,
//! through the buffer protocol and cached objects of NumPy's Python interface.

use crate::dtype;
use crate::errors::OrRaise;
use crate::tensor_memory::TensorMemory;
use pteron_core::{DType, Dims, MAX_RANK, TensorMeta};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

/// `numpy.ndarray` and the dtype objects by code of [`DType`]; `None` where NumPy has no such dtype.
struct NumPy {
    ndarray: Py<PyType>,
    dtypes: Vec<Option<Py<PyAny>>>,
}

fn cached(py: Python<'_>) -> PyResult<&NumPy> {
    static CACHED: PyOnceLock<NumPy> = PyOnceLock::new();
    CACHED.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let ml_dtypes = py.import("ml_dtypes").ok();
        let last = DType::ALL.iter().map(|d| d.code() as usize).max().unwrap_or(0);
        let mut dtypes: Vec<Option<Py<PyAny>>> = (0..=last).map(|_| None).collect();
        for d in DType::ALL {
            let home = if dtype::needs_ml_dtypes(d) { ml_dtypes.as_ref() } else { Some(&numpy) };
            let name = match d {
                DType::Bool => "bool_",
                DType::Bits16 => "uint16",
                DType::Complex32 => continue,
                other => other.name(),
            };
            let Some(scalar) = home.and_then(|m| m.getattr(name).ok()) else { continue };
            if let Some(entry) = dtypes.get_mut(d.code() as usize) {
                *entry = Some(numpy.call_method1("dtype", (scalar,))?.unbind());
            }
        }
        let ndarray = numpy.getattr("ndarray")?.cast_into::<PyType>()?.unbind();
        Ok(NumPy { ndarray, dtypes })
    })
}

/// Is `object` exactly a `numpy.ndarray` (no subclass)? NumPy is not imported for the question.
#[inline]
pub fn is_exact_array(object: &Bound<'_, PyAny>) -> bool {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = object.py();
    let ty = object.get_type();
    match NDARRAY.get(py) {
        Some(ndarray) => ty.is(ndarray),
        None => find_ndarray(py).is_some_and(|found| ty.is(NDARRAY.get_or_init(py, || found))),
    }
}

fn find_ndarray(py: Python<'_>) -> Option<Py<PyType>> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let numpy = modules.get_item("numpy").ok()?;
    Some(numpy.getattr("ndarray").ok()?.cast_into::<PyType>().ok()?.unbind())
}

/// An array over the memory of `tensor`, a Python object; `None` when NumPy lacks the dtype. `wrap` makes an object of
/// another layout of this memory, `array_of_owned` an array that need not be counted, where it can.
pub fn array_over<'py>(
    tensor: &Bound<'py, PyAny>,
    memory: &TensorMemory,
    array_of_owned: impl FnOnce(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyAny>>>,
    wrap: impl FnOnce(TensorMemory) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = tensor.py();
    let numpy = cached(py)?;
    let dtype = memory.with_meta(TensorMeta::dtype);
    let Some(dtype) = numpy.dtypes.get(dtype.code() as usize).and_then(Option::as_ref) else {
        return Ok(None);
    };
    let (ndarray, dtype) = (numpy.ndarray.bind(py), dtype.bind(py));
    if let Some(array) = array_of_owned(ndarray.as_any(), dtype) {
        return array.map(Some);
    }
    // The shape of a row-major tensor; metadata is copied only for the others.
    let plain = memory.with_meta(|meta| meta.is_contiguous().then(|| PyTuple::new(py, meta.shape().iter())));
    match plain {
        Some(shape) => ndarray.call1((shape?, dtype, tensor)).map(Some),
        None => array_in_memory_order(memory, ndarray, dtype, wrap).map(Some),
    }
}

/// NumPy takes row-major memory only: the array is made in memory order, and its axes are put into the
/// tensor's order.
fn array_in_memory_order<'py>(
    memory: &TensorMemory,
    ndarray: &Bound<'py, PyType>,
    dtype: &Bound<'py, PyAny>,
    wrap: impl FnOnce(TensorMemory) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ndarray.py();
    let meta = memory.with_meta(TensorMeta::clone);
    let order = meta.dim_order().as_slice();
    let mut physical = Dims::EMPTY;
    let mut axes = [0usize; MAX_RANK];
    for (at, &dim) in order.iter().enumerate() {
        physical.push(meta.shape().get(dim as usize).copied().unwrap_or(0)).or_raise(py)?;
        if let Some(axis) = axes.get_mut(dim as usize) {
            *axis = at;
        }
    }
    let flat = TensorMeta::contiguous(meta.dtype(), &physical).or_raise(py)?;
    let flat = wrap(memory.in_memory_order(flat)?)?;
    let array = ndarray.call1((PyTuple::new(py, physical.iter())?, dtype, flat))?;
    let axes = PyTuple::new(py, axes.iter().take(order.len()))?;
    array.call_method1(pyo3::intern!(py, "transpose"), (axes,))
}
