//! A method as the loader understands it after every index, kind and range was checked: the input
//! of folding, planning and kernel preparation. Made by `lower.rs`, changed by `optimize/`, consumed
//! by `method_code.rs`.

use pteron_core::{CompileSpec, ConstantKey, Dims, Instruction, TensorSpec, ValueId, ValueKind};
use std::sync::Arc;

/// One method, checked.
#[derive(Debug, Clone)]
pub struct MethodIr {
    /// Name of the method.
    pub name: String,
    /// Value table. Folding appends to it; ids of the file keep their place.
    pub values: Vec<ValueIr>,
    /// Values that callers set, in order.
    pub inputs: Vec<ValueId>,
    /// Values that callers get, in order.
    pub outputs: Vec<ValueId>,
    /// Full operator names, `aten::add.out`.
    pub operators: Vec<String>,
    /// Delegates, in the order of the file's table.
    pub delegates: Vec<DelegateIr>,
    /// The chain.
    pub instructions: Vec<Instruction>,
    /// Bytes of each arena; `Place::Planned::arena` indexes it.
    pub arenas: Vec<usize>,
}

/// A value as load knows it.
// Tensors are most of the values; a box each would cost more than the small ones waste.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub enum ValueIr {
    /// `None`.
    None,
    /// Integer with its initial value.
    Int(i64),
    /// Bool with its initial value.
    Bool(bool),
    /// Float with its initial value.
    Double(f64),
    /// String.
    String(Arc<str>),
    /// Tensor.
    Tensor(TensorIr),
    /// Integers, each in a value of its own.
    IntList(Arc<[ValueId]>),
    /// Floats.
    DoubleList(Arc<[f64]>),
    /// Bools.
    BoolList(Arc<[bool]>),
    /// Tensors.
    TensorList(Arc<[ValueId]>),
    /// Tensors, some absent.
    OptionalTensorList(Arc<[Option<ValueId>]>),
}

impl ValueIr {
    /// The kind.
    pub fn kind(&self) -> ValueKind {
        match self {
            ValueIr::None => ValueKind::None,
            ValueIr::Int(_) => ValueKind::Int,
            ValueIr::Bool(_) => ValueKind::Bool,
            ValueIr::Double(_) => ValueKind::Double,
            ValueIr::String(_) => ValueKind::String,
            ValueIr::Tensor(_) => ValueKind::Tensor,
            ValueIr::IntList(_) => ValueKind::IntList,
            ValueIr::DoubleList(_) => ValueKind::DoubleList,
            ValueIr::BoolList(_) => ValueKind::BoolList,
            ValueIr::TensorList(_) => ValueKind::TensorList,
            ValueIr::OptionalTensorList(_) => ValueKind::OptionalTensorList,
        }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorIr> {
        match self {
            ValueIr::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

/// A tensor value.
#[derive(Debug, Clone)]
pub struct TensorIr {
    /// dtype, largest shape, memory order, dynamism.
    pub spec: TensorSpec,
    /// Where its bytes are.
    pub place: Place,
    /// Name of a parameter or mutable buffer, if the file has one.
    pub name: Option<String>,
}

/// Where the bytes of a tensor value are.
#[derive(Debug, Clone)]
pub enum Place {
    /// Constant bytes of the program's storage (constant segment, data file).
    Constant(ConstantRef),
    /// A constant computed or re-viewed at load; an index into the method's folded constants. Only
    /// `optimize/` makes these.
    Folded(u32),
    /// Planned memory.
    Planned {
        /// Index into [`MethodIr::arenas`].
        arena: u32,
        /// Byte offset.
        offset: usize,
        /// Initial contents of a mutable buffer.
        initial: Option<ConstantRef>,
    },
    /// Memory that the caller or the runtime supplies per call (unplanned inputs and outputs, and
    /// targets of moves and views).
    Unplanned,
}

/// A range of the program's storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantRef {
    /// Identity for sharing; `offset` and `nbytes` say where in the storage of that origin.
    pub key: ConstantKey,
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

/// A delegate of the method.
#[derive(Debug, Clone)]
pub struct DelegateIr {
    /// Backend id.
    pub backend: String,
    /// The blob, a range of the program's storage (or of the program table for inline blobs).
    pub blob: ConstantRef,
    /// Compile specs, verbatim.
    pub specs: Vec<CompileSpec>,
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
