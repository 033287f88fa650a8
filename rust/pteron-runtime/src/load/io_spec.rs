//! What a method takes and gives: names, dtypes, extents with their ranges and relations.

use pteron_core::{DType, DimOrder, Dims};
use std::fmt;

/// One input or output of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct IoSpec {
    /// Name as exported; `input0`, `output0`, ... where the file has none.
    pub name: String,
    /// What stands there.
    pub kind: IoKind,
    /// An output that the method computes: the value that its kind was `traced` with says nothing.
    pub is_computed: bool,
}

impl IoSpec {
    /// What stands there, as text: `float32[s0=1..8, 2]`, `int in 0..7`, `bool (always true)`.
    pub fn description(&self) -> String {
        match (&self.kind, self.is_computed) {
            (IoKind::Int { range: None, .. }, true) => "int".into(),
            (IoKind::Bool { .. }, true) => "bool".into(),
            (IoKind::Double { .. }, true) => "float".into(),
            (IoKind::String { .. }, true) => "str".into(),
            (kind, _) => kind.to_string(),
        }
    }
}

/// The kind of an input or output.
#[allow(
    clippy::large_enum_variant,
    reason = "specs are made once per load; the size of the largest variant does not matter"
)]
#[derive(Debug, Clone, PartialEq)]
pub enum IoKind {
    /// A tensor.
    Tensor(TensorIo),
    /// An integer. As an input it must equal `traced`, unless `range` says that it may vary.
    Int {
        /// The value the program was traced with.
        traced: i64,
        /// Smallest and largest legal value of a symbolic integer.
        range: Option<(i64, i64)>,
        /// Name of the symbol.
        symbol: Option<String>,
    },
    /// A bool; as an input it must equal the traced one.
    Bool {
        /// The value the program was traced with.
        traced: bool,
    },
    /// A float; as an input it must equal the traced one (absolute 1e-4, relative 1e-5, as
    /// ExecuTorch has it).
    Double {
        /// The value the program was traced with.
        traced: f64,
    },
    /// A string; as an input it must equal the traced one.
    String {
        /// The value the program was traced with.
        traced: String,
    },
    /// `None`.
    None,
}

/// A tensor input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorIo {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub extents: Vec<Extent>,
    /// Memory order of the program's own copy.
    pub dim_order: DimOrder,
    /// Largest shape.
    pub bound: Dims,
    /// Lies in memory that the file planned (else the caller's memory is used where it fits).
    pub is_planned: bool,
}

/// One extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// Always this.
    Static(usize),
    /// Anything from `min` to `max`; extents with the same `symbol` are equal in one call.
    Range {
        /// Smallest legal value.
        min: usize,
        /// Largest legal value.
        max: usize,
        /// Name of the symbol.
        symbol: Option<String>,
        /// Expression over symbols, for derived extents.
        expression: Option<String>,
    },
}

impl Extent {
    /// Smallest and largest legal value.
    pub fn range(&self) -> (usize, usize) {
        match self {
            Extent::Static(n) => (*n, *n),
            Extent::Range { min, max, .. } => (*min, *max),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Static(n) => write!(f, "{n}"),
            Extent::Range { min, max, symbol, expression } => {
                if let Some(name) = symbol.as_ref().or(expression.as_ref()) {
                    write!(f, "{}=", pteron_core::error::printable(name))?;
                }
                write!(f, "{min}..{max}")
            }
        }
    }
}

impl fmt::Display for TensorIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, e) in self.extents.iter().enumerate() {
            write!(f, "{}{e}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoKind::Tensor(t) => t.fmt(f),
            IoKind::Int { traced, range: None, .. } => write!(f, "int (always {traced})"),
            IoKind::Int { range: Some((min, max)), .. } => write!(f, "int in {min}..{max}"),
            IoKind::Bool { traced } => write!(f, "bool (always {traced})"),
            IoKind::Double { traced } => write!(f, "float (always {traced})"),
            IoKind::String { traced } => {
                write!(f, "str (always '{}')", pteron_core::error::printable(traced))
            }
            IoKind::None => f.write_str("None"),
        }
    }
}
