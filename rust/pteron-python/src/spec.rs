//! What a method takes and gives, as small frozen Python objects.

use crate::errors::OrRaise;
use pteron_core::{DType, DimOrder, Dims, Error, Result};
use pteron_runtime::{Extent, IoKind, IoSpec, TensorIo};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};

/// An extent that may vary between calls: from `min` to `max`, both legal.
///
/// Extents with the same `symbol` are equal in one call; `expression` says how a derived one follows from
/// symbols.
#[pyclass(frozen, eq, hash, module = "pteron")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DimRange {
    /// Smallest legal extent.
    #[pyo3(get)]
    min: usize,
    /// Largest legal extent.
    #[pyo3(get)]
    max: usize,
    /// Name of the symbol, or None.
    #[pyo3(get)]
    symbol: Option<String>,
    /// Expression over symbols, or None.
    #[pyo3(get)]
    expression: Option<String>,
}

#[pymethods]
impl DimRange {
    #[new]
    #[pyo3(signature = (min, max, symbol=None, expression=None))]
    fn new(min: usize, max: usize, symbol: Option<String>, expression: Option<String>) -> Self {
        DimRange { min, max, symbol, expression }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, ExtentState) {
        let range = slf.get();
        let state = (range.min, range.max, range.symbol.clone(), range.expression.clone());
        (slf.get_type().into_any(), state)
    }

    fn __contains__(&self, extent: usize) -> bool {
        (self.min..=self.max).contains(&extent)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, [self.min, self.max])?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        match self.symbol.as_ref().or(self.expression.as_ref()) {
            Some(name) => format!("{name}={}..{}", self.min, self.max),
            None => format!("{}..{}", self.min, self.max),
        }
    }
}

/// An extent in a pickle.
type ExtentState = (usize, usize, Option<String>, Option<String>);

/// A kind in a pickle: of every variant of [`IoKind`] what it has.
#[derive(IntoPyObject, FromPyObject)]
pub enum KindState {
    Tensor(i8, Vec<(bool, ExtentState)>, Vec<u8>, Vec<usize>, bool),
    Int(i64, Option<(i64, i64)>, Option<String>),
    /// `None` where the value is `None`.
    One(Option<One>),
}

/// A kind with one value. A bool comes first: Python takes it for an int, and an int for a float.
#[derive(IntoPyObject, FromPyObject)]
pub enum One {
    Bool(bool),
    Double(f64),
    String(String),
}

impl KindState {
    fn of(kind: &IoKind) -> Self {
        match kind {
            IoKind::Tensor(t) => {
                let extents = t.extents.iter().map(|extent| match extent {
                    Extent::Static(n) => (false, (*n, *n, None, None)),
                    Extent::Range { min, max, symbol, expression } => {
                        (true, (*min, *max, symbol.clone(), expression.clone()))
                    }
                });
                KindState::Tensor(
                    t.dtype.code(),
                    extents.collect(),
                    t.dim_order.as_slice().to_vec(),
                    t.bound.to_vec(),
                    t.is_planned,
                )
            }
            IoKind::Int { traced, range, symbol } => KindState::Int(*traced, *range, symbol.clone()),
            IoKind::Bool { traced } => KindState::One(Some(One::Bool(*traced))),
            IoKind::Double { traced } => KindState::One(Some(One::Double(*traced))),
            IoKind::String { traced } => KindState::One(Some(One::String(traced.clone()))),
            IoKind::None => KindState::One(None),
        }
    }

    /// The kind again; an error where a pickle has what no spec has.
    fn kind(self) -> Result<IoKind> {
        Ok(match self {
            KindState::Tensor(code, extents, dim_order, bound, is_planned) => {
                let dtype = DType::from_code(code).ok_or_else(damaged)?;
                let (dim_order, bound) = (DimOrder::new(&dim_order)?, Dims::new(&bound)?);
                if dim_order.rank() != bound.len() || extents.len() != bound.len() {
                    return Err(damaged());
                }
                let extents =
                    extents.into_iter().map(|(varies, (min, max, symbol, expression))| match varies {
                        true => Extent::Range { min, max, symbol, expression },
                        false => Extent::Static(min),
                    });
                IoKind::Tensor(TensorIo { dtype, extents: extents.collect(), dim_order, bound, is_planned })
            }
            KindState::Int(traced, range, symbol) => IoKind::Int { traced, range, symbol },
            KindState::One(Some(One::Bool(traced))) => IoKind::Bool { traced },
            KindState::One(Some(One::Double(traced))) => IoKind::Double { traced },
            KindState::One(Some(One::String(traced))) => IoKind::String { traced },
            KindState::One(None) => IoKind::None,
        })
    }
}

#[cold]
fn damaged() -> Error {
    Error::input("a pickled ValueSpec is damaged").hint("pickle the spec again")
}

/// The spec of a pickle.
#[pyfunction]
pub fn restored_value_spec(
    py: Python<'_>,
    name: String,
    is_computed: bool,
    kind: KindState,
) -> PyResult<ValueSpec> {
    Ok(ValueSpec { spec: IoSpec { name, kind: kind.kind().or_raise(py)?, is_computed } })
}

/// One input or output of a method.
#[pyclass(frozen, eq, module = "pteron")]
#[derive(PartialEq)]
pub struct ValueSpec {
    spec: IoSpec,
}

impl ValueSpec {
    /// The specs of one side of a method.
    pub fn tuple<'py>(py: Python<'py>, specs: &[IoSpec]) -> PyResult<Bound<'py, PyTuple>> {
        let specs = specs.iter().map(|spec| Bound::new(py, ValueSpec { spec: spec.clone() }));
        PyTuple::new(py, specs.collect::<PyResult<Vec<_>>>()?)
    }
}

#[pymethods]
impl ValueSpec {
    /// Name as exported.
    #[getter]
    fn name(&self) -> &str {
        &self.spec.name
    }

    /// "tensor", "int", "float", "bool", "str" or "none".
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.spec.kind {
            IoKind::Tensor(_) => "tensor",
            IoKind::Int { .. } => "int",
            IoKind::Double { .. } => "float",
            IoKind::Bool { .. } => "bool",
            IoKind::String { .. } => "str",
            IoKind::None => "none",
        }
    }

    /// Name of the element type of a tensor, such as "float32"; None for other kinds.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        match &self.spec.kind {
            IoKind::Tensor(t) => Some(t.dtype.name()),
            _ => None,
        }
    }

    /// Extents of a tensor, outermost first, each an int or a DimRange; None for other kinds.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let IoKind::Tensor(t) = &self.spec.kind else { return Ok(None) };
        let dims = t.extents.iter().map(|extent| match extent {
            Extent::Static(n) => Ok(n.into_pyobject(py)?.into_any()),
            Extent::Range { min, max, symbol, expression } => Ok(Bound::new(
                py,
                DimRange { min: *min, max: *max, symbol: symbol.clone(), expression: expression.clone() },
            )?
            .into_any()),
        });
        PyTuple::new(py, dims.collect::<PyResult<Vec<_>>>()?).map(Some)
    }

    /// Memory order of a tensor in the program: a permutation of its dimensions, outermost first. Any
    /// order is accepted as input.
    #[getter]
    fn dim_order<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.spec.kind {
            IoKind::Tensor(t) => {
                PyTuple::new(py, t.dim_order.as_slice().iter().map(|d| *d as usize)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Bytes of a tensor at its largest shape; None for other kinds.
    #[getter]
    fn nbytes(&self) -> Option<usize> {
        match &self.spec.kind {
            IoKind::Tensor(t) => pteron_core::sizes::checked_nbytes(&t.bound, t.dtype).ok(),
            _ => None,
        }
    }

    /// Lies the tensor in memory that the file planned? None for other kinds.
    #[getter]
    fn is_planned(&self) -> Option<bool> {
        match &self.spec.kind {
            IoKind::Tensor(t) => Some(t.is_planned),
            _ => None,
        }
    }

    /// Smallest and largest legal value of a symbolic int; None for everything else.
    #[getter]
    fn range(&self) -> Option<(i64, i64)> {
        match &self.spec.kind {
            IoKind::Int { range, .. } => *range,
            _ => None,
        }
    }

    /// The value that a plain int, float, bool or str was exported with, which an input must equal and an output
    /// always has; None where it varies.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.spec.is_computed {
            return Ok(py.None().into_bound(py));
        }
        Ok(match &self.spec.kind {
            IoKind::Int { traced, range: None, .. } => PyInt::new(py, *traced).into_any(),
            IoKind::Bool { traced } => traced.into_pyobject(py)?.to_owned().into_any(),
            IoKind::Double { traced } => traced.into_pyobject(py)?.into_any(),
            IoKind::String { traced } => traced.into_pyobject(py)?.into_any(),
            IoKind::Int { .. } | IoKind::Tensor(_) | IoKind::None => py.None().into_bound(py),
        })
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.spec.name, self.spec.description()).hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String, bool, KindState))> {
        let restored = py.import("pteron._native")?.getattr("restored_value_spec")?;
        Ok((restored, (self.spec.name.clone(), self.spec.is_computed, KindState::of(&self.spec.kind))))
    }

    fn __repr__(&self) -> String {
        format!("{}: {}", pteron_core::error::printable(&self.spec.name), self.spec.description())
    }
}
