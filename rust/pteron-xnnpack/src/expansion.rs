//! What a payload becomes: values and calls of operators, ready to be appended to a method.

use pteron_core::{AlignedBuffer, DType, Dims, TensorSpec, Value};
use std::ops::Range;
use std::sync::Arc;

/// The calls that do what a delegate does, and the values that they name. Indices are those of `values`, and in range.
///
/// Every `Intermediate` is written by one call before others read it. An output of the delegate is the `Argument` that the
/// call which computes it writes; a copy call stands there only for an output that is an input, a constant, or another output.
#[derive(Debug, Clone, Default)]
pub struct Expansion {
    /// What the calls name: tensors, and the plain arguments of operators.
    pub values: Vec<ExpandedValue>,
    /// The calls in an order that may be run.
    pub calls: Vec<OperatorCall>,
}

/// One value: a tensor or a plain argument. Lists name their members by index into [`Expansion::values`].
pub type ExpandedValue = Value<ExpandedTensor, usize>;

/// A tensor that the calls read or write.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpandedTensor {
    /// The delegate call's argument of this index, as the method has it. Each argument stands in one value at most.
    Argument(usize),
    /// A weight.
    Constant(ExpandedConstant),
    /// A tensor that lives within the delegate. Its extents are upper bounds where it is dynamic.
    Intermediate(TensorSpec),
}

/// A constant tensor: a strided view of stored or computed elements.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpandedConstant {
    /// Element type.
    pub dtype: DType,
    /// Logical extents.
    pub shape: Dims,
    /// Strides in elements, from element 0 of `bytes`. All elements lie within `bytes`. An extent may have stride 0.
    pub strides: Dims,
    /// The elements.
    pub bytes: ConstantBytes,
}

/// Where the elements of a constant are.
#[derive(Debug, Clone)]
pub enum ConstantBytes {
    /// The named data of this key, from its first byte. Equal keys are the same bytes, in all delegates of a program.
    Named(String),
    /// This byte range of the payload.
    Payload(Range<usize>),
    /// Computed from stored bytes: dequantised, unpacked.
    Computed(Arc<AlignedBuffer>),
}

impl Eq for ConstantBytes {}

impl std::hash::Hash for ConstantBytes {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Self::Named(key) => key.hash(state),
            Self::Payload(range) => range.hash(state),
            Self::Computed(buffer) => Arc::as_ptr(buffer).hash(state),
        }
    }
}

impl PartialEq for ConstantBytes {
    /// Same place for stored bytes, same buffer for computed ones.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Named(a), Self::Named(b)) => a == b,
            (Self::Payload(a), Self::Payload(b)) => a == b,
            (Self::Computed(a), Self::Computed(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A call of an operator's out-variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCall {
    /// Name and overload as kernels are looked up, such as `aten::add.out`.
    pub operator: &'static str,
    /// The arguments in front of the outputs, in schema order.
    pub inputs: Vec<usize>,
    /// The tensors that it writes, in schema order.
    pub outputs: Vec<usize>,
    /// Index of the payload's node that the call belongs to.
    pub node: usize,
    /// The node's debug handle.
    pub debug_handle: u32,
}

impl OperatorCall {
    /// Every value that it names, in schema order.
    pub fn args(&self) -> impl Iterator<Item = usize> + '_ {
        self.inputs.iter().chain(&self.outputs).copied()
    }
}
