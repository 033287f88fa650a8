//! Tensors of a run.

use super::ids::NodeId;
use pteron_core::TensorSpec;

/// A memory of the program, in which bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// An arena of the memory plan.
    Arena(u32),
    /// Memory of one value alone.
    Value(u32),
    /// The record of where a value's bytes are, which moves and views write.
    Slot(u32),
}

/// Where a tensor's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorMemory {
    /// Wherever the runtime puts it: only nodes of the run see it.
    Private,
    /// Never written: a constant.
    Constant,
    /// These bytes of a memory of the program.
    Bytes {
        /// Which memory.
        space: Space,
        /// First byte.
        start: usize,
        /// Behind the last byte.
        end: usize,
    },
    /// Decided while running.
    Unknown,
}

impl TensorMemory {
    /// Can a write to `other` change what is here?
    pub fn overlaps(&self, other: &TensorMemory) -> bool {
        match (self, other) {
            (TensorMemory::Private | TensorMemory::Constant, _)
            | (_, TensorMemory::Private | TensorMemory::Constant) => false,
            (TensorMemory::Unknown, _) | (_, TensorMemory::Unknown) => true,
            (
                TensorMemory::Bytes { space: a, start: from, end: to },
                TensorMemory::Bytes { space: b, start, end },
            ) => a == b && from < end && start < to,
        }
    }
}

/// One version of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// dtype, largest shape, memory order, dynamism.
    pub spec: TensorSpec,
    /// Where its bytes are.
    pub place: TensorMemory,
    /// The program's value whose slot it has at the borders of the run; `None` for tensors that rules
    /// made.
    pub value: Option<u32>,
    /// The node that writes it, and the index among that node's outputs.
    pub definition: Option<(NodeId, u32)>,
}

impl Tensor {
    /// What the program's value `value` holds.
    pub fn new(spec: TensorSpec, place: TensorMemory, value: u32) -> Self {
        Tensor { spec, place, value: Some(value), definition: None }
    }

    /// Seen by this run only?
    pub fn is_private(&self) -> bool {
        self.place == TensorMemory::Private
    }

    /// Never written?
    pub fn is_constant(&self) -> bool {
        self.place == TensorMemory::Constant
    }
}
