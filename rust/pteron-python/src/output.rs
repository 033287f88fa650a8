//! From the values that a call gives to Python objects.

use crate::tensor::Tensor;
use crate::tensor_memory::TensorMemory;
use crate::torch::Torch;
use pteron_runtime::{OutputValue, OwnedTensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

/// What tensors come out as.
#[derive(Clone, Copy)]
pub enum TensorForm {
    /// NumPy arrays (`pteron.Tensor` where NumPy has no such dtype).
    NumPy,
    /// torch tensors.
    Torch(&'static Torch),
    /// `pteron.Tensor`.
    Tensor,
}

impl TensorForm {
    /// Torch out when torch came in.
    pub fn choose(py: Python<'_>, has_torch_input: bool) -> Self {
        match Torch::loaded(py) {
            Some(torch) if has_torch_input => TensorForm::Torch(torch),
            _ => TensorForm::NumPy,
        }
    }
}

/// The object for `value`; `bound` is the caller's own object when the output was written there.
pub fn to_object<'py>(
    py: Python<'py>,
    value: OutputValue,
    form: TensorForm,
    bound: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        OutputValue::Tensor(tensor) => tensor_object(py, tensor, form)?,
        OutputValue::Lent(tensor) => {
            Bound::new(py, Tensor::from(TensorMemory::lent_by_session(tensor)))?.into_any()
        }
        OutputValue::Bound(_) => match bound {
            Some(object) => object.clone(),
            None => py.None().into_bound(py),
        },
        OutputValue::Int(v) => PyInt::new(py, v).into_any(),
        OutputValue::Double(v) => PyFloat::new(py, v).into_any(),
        OutputValue::Bool(v) => PyBool::new(py, v).to_owned().into_any(),
        OutputValue::String(v) => PyString::new(py, &v).into_any(),
        OutputValue::None => py.None().into_bound(py),
    })
}

/// An array or tensor that owns `tensor`'s memory.
pub fn tensor_object<'py>(
    py: Python<'py>,
    tensor: OwnedTensor,
    form: TensorForm,
) -> PyResult<Bound<'py, PyAny>> {
    let tensor = Bound::new(py, Tensor::from(TensorMemory::owned(tensor.meta, tensor.data)))?;
    match form {
        TensorForm::NumPy => Ok(match Tensor::array(&tensor)? {
            Some(array) => array,
            None => tensor.into_any(),
        }),
        TensorForm::Tensor => Ok(tensor.into_any()),
        TensorForm::Torch(torch) => torch.tensor_of(py, tensor.get()),
    }
}
