//! Values of a method: what instructions read and write.

use crate::TensorSlot;
use std::fmt;
use std::sync::Arc;

/// Index into the value table of a method. Made only after the range was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ValueId(pub u32);

impl ValueId {
    /// As an index.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One slot of the value table of a session.
#[derive(Debug, Clone)]
pub enum Value {
    /// `None` of an optional argument.
    None,
    /// An integer, symbolic integers included.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// A float.
    Double(f64),
    /// A string (attributes such as rounding modes).
    String(Arc<str>),
    /// A tensor.
    Tensor(Box<TensorSlot>),
    /// Integers, each in a value of its own.
    IntList(Arc<[ValueId]>),
    /// Floats.
    DoubleList(Arc<[f64]>),
    /// Bools.
    BoolList(Arc<[bool]>),
    /// Tensors, each in a value of its own.
    TensorList(Arc<[ValueId]>),
    /// Tensors, some absent.
    OptionalTensorList(Arc<[Option<ValueId>]>),
}

/// The kind of a [`Value`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ValueKind {
    None,
    Int,
    Bool,
    Double,
    String,
    Tensor,
    IntList,
    DoubleList,
    BoolList,
    TensorList,
    OptionalTensorList,
}

impl Value {
    /// The kind of this value.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::None => ValueKind::None,
            Value::Int(_) => ValueKind::Int,
            Value::Bool(_) => ValueKind::Bool,
            Value::Double(_) => ValueKind::Double,
            Value::String(_) => ValueKind::String,
            Value::Tensor(_) => ValueKind::Tensor,
            Value::IntList(_) => ValueKind::IntList,
            Value::DoubleList(_) => ValueKind::DoubleList,
            Value::BoolList(_) => ValueKind::BoolList,
            Value::TensorList(_) => ValueKind::TensorList,
            Value::OptionalTensorList(_) => ValueKind::OptionalTensorList,
        }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorSlot> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The tensor, writable.
    pub fn as_tensor_mut(&mut self) -> Option<&mut TensorSlot> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueKind::None => "None",
            ValueKind::Int => "int",
            ValueKind::Bool => "bool",
            ValueKind::Double => "float",
            ValueKind::String => "str",
            ValueKind::Tensor => "Tensor",
            ValueKind::IntList => "int[]",
            ValueKind::DoubleList => "float[]",
            ValueKind::BoolList => "bool[]",
            ValueKind::TensorList => "Tensor[]",
            ValueKind::OptionalTensorList => "Tensor?[]",
        })
    }
}
