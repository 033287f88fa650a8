//! Methods of a program as a file declares them, checked.

use crate::ValueDef;
use pteron_core::{CompileSpec, Instruction, ValueId};
use std::ops::Range;

/// One method. Every index in it is in range: values of instructions, inputs and outputs, operators,
/// delegates, jump destinations (at most the length of `instructions`).
#[derive(Debug, Clone, PartialEq)]
pub struct MethodDef {
    /// Name, unique within the program.
    pub name: String,
    /// Value table.
    pub values: Vec<ValueDef>,
    /// Values that callers set, in flat order: tensors, ints, bools, floats, strings, `None`.
    pub inputs: Vec<ValueId>,
    /// Values that callers get, in flat order; kinds as for inputs.
    pub outputs: Vec<ValueId>,
    /// Full operator names, `aten::add.out`.
    pub operators: Vec<String>,
    /// Delegates.
    pub delegates: Vec<DelegateDef>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
    /// Bytes of each arena of planned memory.
    pub arenas: Vec<usize>,
    /// How nested inputs flatten: a pytree spec in JSON, or empty.
    pub input_tree: String,
    /// How outputs unflatten: a pytree spec in JSON, or empty.
    pub output_tree: String,
}

/// A part of a method that a backend took.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegateDef {
    /// Name of the backend.
    pub backend: String,
    /// The backend's blob: a byte range of the file. Equal ranges are the same blob.
    pub blob: Range<usize>,
    /// Settings of the exporter, in order.
    pub specs: Vec<CompileSpec>,
}
