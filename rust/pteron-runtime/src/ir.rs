//! A method as the loader understands it after every index, kind and range was checked: the input
//! of folding, planning and kernel preparation. Made by `lower.rs`, changed by `optimize/`, consumed
//! by `method_code.rs`.

use pteron_core::{ConstantKey, Dims, Instruction, Value, ValueId};
pub use pteron_format::Placement;
use pteron_format::{MethodDef, TensorDef};
use std::sync::Arc;

/// One method, checked, with stored bytes found. Folding appends to its values and changes its arenas; ids of the
/// file keep their place.
pub type MethodIr = MethodDef<ConstantRef>;

/// A value as load knows it.
pub type ValueIr = Value<TensorIr>;

/// A tensor value.
pub type TensorIr = TensorDef<ConstantRef>;

/// Stored bytes of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstantRef {
    /// A range of the program's storage (constant segment, data file).
    Stored(ConstantKey),
    /// A constant computed or viewed in another layout at load: an index into the method's folded constants. Only
    /// `optimize/` makes these, and never as the first contents of a buffer.
    Folded(u32),
}

/// A constant that load made: either a new view of stored bytes (`data: None`, layout-only change)
/// or computed bytes.
#[derive(Debug, Clone)]
pub struct FoldedConstant {
    /// Where the bytes come from; for computed ones the key is unique to them.
    pub key: ConstantKey,
    /// First element, in elements.
    pub offset: usize,
    /// Logical extents.
    pub shape: Dims,
    /// Strides in elements over the source bytes.
    pub strides: Dims,
    /// Dense computed bytes, when a kernel needs them as memory.
    pub data: Option<Arc<pteron_core::AlignedBuffer>>,
}

/// A step before kernels are prepared.
#[derive(Debug, Clone)]
pub struct StepIr {
    /// What it does.
    pub kind: StepKind,
    /// Indices of the file's instructions that it stands for, in order.
    pub covers: Vec<u32>,
}

impl StepIr {
    /// Instruction number `index` as it is.
    pub fn of(index: u32, instruction: Instruction) -> Self {
        StepIr { kind: StepKind::Instruction(instruction), covers: vec![index] }
    }
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum StepKind {
    /// One instruction as the file has it (arguments may have been redirected to folded constants).
    Instruction(Instruction),
    /// A fused run: the arguments of the fused kernel and what it is.
    Plan {
        /// Arguments by the convention of `plan`.
        args: Box<[ValueId]>,
        /// The compiled run's description.
        plan: pteron_cpu::plan::PlanSpec,
    },
}
