//! Test cases of bundled programs for Python, and the writer of bundles.

use crate::bytes::python_bytes;
use crate::call;
use crate::contents::Contents;
use crate::errors::OrRaise;
use crate::output::{TensorForm, tensor_object};
use crate::serialize::{LayoutFields, field};
use pteron_core::memory_reserve::try_collect;
use pteron_core::{AlignedBuffer, Error, Result, TensorMeta};
use pteron_format::write::{BundleDraft, BundledValueDraft, TestCaseDraft, TestSuiteDraft};
use pteron_format::{BundleFile, BundledValue, TestCaseDef};
use pteron_runtime::OwnedTensor;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList};
use std::borrow::Cow;

/// The cases of `method`: a list of `pteron.bundled.TestCase`.
pub fn test_cases<'py>(py: Python<'py>, bundle: &BundleFile, method: &str) -> PyResult<Bound<'py, PyList>> {
    let class = py.import("pteron.bundled")?.getattr("TestCase")?;
    let cases = bundle.suites.iter().filter(|s| s.method == method).flat_map(|s| &s.cases);
    let list = PyList::empty(py);
    for case in cases {
        let TestCaseDef { inputs, expected_outputs } = case;
        list.append(class.call1((values(py, bundle, inputs)?, values(py, bundle, expected_outputs)?))?)?;
    }
    Ok(list)
}

fn values<'py>(py: Python<'py>, bundle: &BundleFile, list: &[BundledValue]) -> PyResult<Bound<'py, PyList>> {
    let out = PyList::empty(py);
    for value in list {
        out.append(match value {
            BundledValue::Tensor(..) => {
                let tensor = owned(bundle, value).or_raise(py)?;
                tensor_object(py, tensor, TensorForm::NumPy)?
            }
            BundledValue::Int(v) => PyInt::new(py, *v).into_any(),
            BundledValue::Bool(v) => PyBool::new(py, *v).to_owned().into_any(),
            BundledValue::Double(v) => PyFloat::new(py, *v).into_any(),
        })?;
    }
    Ok(out)
}

/// A copy of a tensor's bytes.
fn owned(bundle: &BundleFile, value: &BundledValue) -> Result<OwnedTensor> {
    let BundledValue::Tensor(spec, range) = value else {
        return Err(Error::internal("a bundled value is no tensor"));
    };
    let bytes = bundle.bytes.as_slice().get(range.clone()).unwrap_or_default();
    Ok(OwnedTensor {
        meta: TensorMeta::new(spec.dtype, spec.shape, spec.dim_order)?,
        data: AlignedBuffer::copy_of(bytes)?,
    })
}

/// Inputs and expected outputs.
type Case<'py> = (Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>);

/// The bytes of a bundled program: `program` is a whole `.pte` file, `suites` a list of (method name, cases),
/// a case is (inputs, expected outputs), and a value a bool, an int, a float, or an object with
/// `scalar_type`, `sizes`, `dim_order` and `data`.
#[pyfunction]
pub fn serialize_bundle<'py>(
    program: &Bound<'py, PyAny>,
    suites: Vec<(String, Vec<Case<'py>>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = program.py();
    let program = Contents::of(program)?;
    let mut drafts = Vec::with_capacity(suites.len());
    for (method, cases) in suites {
        let cases = cases
            .iter()
            .map(|(inputs, expected)| {
                let draft = |list: &[Bound<'py, PyAny>]| list.iter().map(value).collect::<PyResult<Vec<_>>>();
                Ok(TestCaseDraft { inputs: draft(inputs)?, expected_outputs: draft(expected)? })
            })
            .collect::<PyResult<_>>()?;
        drafts.push(TestSuiteDraft { method, cases });
    }
    let draft = BundleDraft { program: Cow::Borrowed(program.bytes()), suites: drafts };
    let bytes = call::detached(py, || draft.to_bytes())?;
    python_bytes(py, &bytes)
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<BundledValueDraft<'static>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(BundledValueDraft::Bool(object.extract()?));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(BundledValueDraft::Int(object.extract()?));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(BundledValueDraft::Double(object.extract()?));
    }
    let data: Bound<'_, PyAny> = field(object, "data")?;
    let data = try_collect(Contents::of(&data)?.bytes().iter().copied()).or_raise(object.py())?;
    Ok(BundledValueDraft::Tensor(LayoutFields::of(object)?.draft(), data.into()))
}
