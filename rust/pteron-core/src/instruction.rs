//! The instruction IR: what a method's chain says, with every index already checked.

use crate::ValueId;

/// One instruction. Indices are in range once this exists.
#[derive(Debug, Clone, PartialEq)]
pub enum Instruction {
    /// Calls the kernel of an operator.
    Kernel {
        /// Index into the method's operator table.
        operator: u32,
        /// Arguments as the format has them: schema order, then the returns again.
        args: Box<[ValueId]>,
    },
    /// Calls an initialised delegate.
    Delegate {
        /// Index into the method's delegate table.
        delegate: u32,
        /// Inputs, then outputs.
        args: Box<[ValueId]>,
    },
    /// `to` becomes `from` (tensors: the same bytes).
    Move {
        /// Source value.
        from: ValueId,
        /// Target value.
        to: ValueId,
    },
    /// Jumps when a bool, or any element of a bool tensor, is false.
    JumpFalse {
        /// The condition.
        condition: ValueId,
        /// Instruction index, at most the length of the chain (which ends it).
        destination: u32,
    },
    /// Drops the memory of a tensor that is fully dynamic.
    Free {
        /// The tensor.
        value: ValueId,
    },
}
