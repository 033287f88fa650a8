//! Values of a method as a file declares them, checked.

use pteron_core::{TensorSpec, ValueId, ValueKind};
use std::ops::Range;
use std::sync::Arc;

/// One entry of a method's value table. Every index in it is in range and points at the right kind.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueDef {
    /// `None` of an optional argument.
    None,
    /// An integer with its initial value.
    Int(i64),
    /// A bool with its initial value.
    Bool(bool),
    /// A float with its initial value.
    Double(f64),
    /// A string.
    String(Arc<str>),
    /// A tensor.
    Tensor(Box<TensorDef>),
    /// Integers, each an `Int` value.
    IntList(Arc<[ValueId]>),
    /// Floats.
    DoubleList(Arc<[f64]>),
    /// Bools.
    BoolList(Arc<[bool]>),
    /// Tensors, each a `Tensor` value.
    TensorList(Arc<[ValueId]>),
    /// Tensors, some absent.
    OptionalTensorList(Arc<[Option<ValueId>]>),
}

impl ValueDef {
    /// The kind of this value.
    pub fn kind(&self) -> ValueKind {
        match self {
            ValueDef::None => ValueKind::None,
            ValueDef::Int(_) => ValueKind::Int,
            ValueDef::Bool(_) => ValueKind::Bool,
            ValueDef::Double(_) => ValueKind::Double,
            ValueDef::String(_) => ValueKind::String,
            ValueDef::Tensor(_) => ValueKind::Tensor,
            ValueDef::IntList(_) => ValueKind::IntList,
            ValueDef::DoubleList(_) => ValueKind::DoubleList,
            ValueDef::BoolList(_) => ValueKind::BoolList,
            ValueDef::TensorList(_) => ValueKind::TensorList,
            ValueDef::OptionalTensorList(_) => ValueKind::OptionalTensorList,
        }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorDef> {
        match self {
            ValueDef::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

/// A tensor of the value table.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDef {
    /// dtype, (largest) shape, memory order, dynamism; its byte count is known not to overflow.
    pub spec: TensorSpec,
    /// Where its bytes are.
    pub placement: Placement,
    /// Name of the parameter or buffer in the model, if the file has it.
    pub name: Option<String>,
}

/// Where the bytes of a tensor are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// A constant: this byte range of the file, as long as the tensor and aligned for its dtype.
    /// Equal ranges are the same constant.
    Constant(Range<usize>),
    /// A constant of a data file, by name.
    External(String),
    /// Planned memory; `offset` is aligned for the dtype and the tensor fits the arena.
    Planned {
        /// Index into [`crate::MethodDef::arenas`].
        arena: u32,
        /// First byte.
        offset: usize,
        /// First contents of a mutable buffer.
        initial: Option<InitialData>,
    },
    /// Memory that the caller or the runtime supplies.
    Unplanned,
}

/// First contents of a mutable buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitialData {
    /// This byte range of the file, as long as the tensor. Not aligned.
    Stored(Range<usize>),
    /// A tensor of a data file, by name.
    External(String),
}
