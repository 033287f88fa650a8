//! What the compile half asks before it writes a program: would load take this call, this program?

use crate::call;
use crate::errors::{OrRaise, to_python};
use crate::runtime::Runtime;
use crate::serialize::{field, value};
use crate::source::borrowed;
use pteron_core::{
    DType, Device, DimOrder, Dims, Dynamism, Error, OperatorInput, OutputView, Result, TensorSpec, ValueId,
};
use pteron_runtime::ir::{Placement, TensorIr};
use pteron_runtime::{CallToCheck, Limits, Program, RuntimeOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Finds and prepares a kernel for one call of an operator, as load does.
///
/// `values`: objects of `pteron.exir.schema` (Int, Tensor, ...) that the call refers to by index; `args`: its
/// arguments, as an instruction has them; `varying`: indices of numbers that are known only at run time.
/// Raises what load raises: MissingOperatorError, KernelError, ProgramError.
#[pyfunction]
pub fn check_call(
    py: Python<'_>,
    operator: String,
    values: Vec<Bound<'_, PyAny>>,
    args: Vec<u32>,
    varying: Vec<u32>,
) -> PyResult<()> {
    let runtime = Runtime::or_shared(py, None)?;
    let call = CallToCheck {
        operator,
        values: values.iter().map(|v| value(v, tensor, index)).collect::<PyResult<_>>()?,
        args: args.into_iter().map(ValueId).collect(),
        varying: varying.into_iter().map(ValueId).collect(),
    };
    pteron_runtime::check_call(&runtime, call).or_raise(py)
}

/// Checks and prepares every method of the program `data`, as load does, and returns what is wrong: a list of
/// exceptions, at most one per method, with the model's source line where the program tells. The operators `custom`
/// count as ones that have a kernel.
///
/// Raises ProgramError where the file itself is damaged.
#[pyfunction]
#[pyo3(signature = (data, custom=Vec::new()))]
pub fn check_program<'py>(data: &Bound<'py, PyBytes>, custom: Vec<String>) -> PyResult<Vec<Py<PyAny>>> {
    let py = data.py();
    let shared = Runtime::or_shared(py, None)?;
    let source = borrowed(data);
    let errors = call::detached(py, || {
        let runtime = if custom.is_empty() { shared } else { runtime_with(custom)? };
        Ok(Program::load(&runtime, source, Limits::default())?.check_methods())
    })?;
    Ok(errors.into_iter().map(|e| to_python(py, e).into_value(py).into_any()).collect())
}

/// A runtime with a kernel for each of these operators, which nobody runs.
fn runtime_with(operators: Vec<String>) -> Result<Arc<pteron_runtime::Runtime>> {
    let runtime = pteron_runtime::Runtime::new(RuntimeOptions::default())?;
    let never_run = |_: &[OperatorInput<'_>], _: &mut [OutputView<'_>]| -> Result<()> {
        Err(Error::internal("a kernel that stands for another one was run"))
    };
    for operator in operators {
        if !runtime.has_kernel(&operator) {
            runtime.register_function(&operator, Arc::new(never_run), false)?;
        }
    }
    Ok(runtime)
}

fn index(at: i64) -> PyResult<ValueId> {
    let id = u32::try_from(at).map(ValueId);
    id.map_err(|_| PyTypeError::new_err(format!("a list cannot have value {at} as a member")))
}

fn tensor(object: &Bound<'_, PyAny>) -> PyResult<TensorIr> {
    let (code, dynamism): (i8, i64) = (field(object, "scalar_type")?, field(object, "shape_dynamism")?);
    let (sizes, order): (Vec<usize>, Vec<u8>) = (field(object, "sizes")?, field(object, "dim_order")?);
    let spec = || -> Result<TensorSpec> {
        Ok(TensorSpec {
            dtype: DType::from_code(code).ok_or_else(|| {
                Error::program("a tensor has an unknown element type").got(code.to_string())
            })?,
            shape: Dims::new(&sizes)?,
            dim_order: DimOrder::new(&order)?,
            dynamism: if dynamism == 0 { Dynamism::Static } else { Dynamism::Bounded },
        })
    };
    let spec = spec().or_raise(object.py())?;
    Ok(TensorIr { spec, placement: Placement::Unplanned, device: Device::Cpu, name: None })
}
