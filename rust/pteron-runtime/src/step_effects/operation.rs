//! What an instruction or step does with its arguments.

use super::ArgumentRole;
use crate::ir::{MethodIr, StepIr, StepKind, ValueIr};
use pteron_core::{Instruction, Schema, ValueId};
use std::collections::HashSet;

/// An instruction or step, as far as its effects go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation<'a> {
    /// Calls a kernel with `args` as `schema` says, then its return. Without a schema it may do anything with them.
    /// A view points its output at its first argument; it writes no byte.
    Kernel { schema: Option<&'a Schema>, is_view: bool, args: &'a [ValueId] },
    /// Calls a delegate. The last `outputs` arguments are its outputs, which are tensors; before the delegate was
    /// initialised nobody knows how many there are.
    Delegate { outputs: Option<usize>, args: &'a [ValueId] },
    /// Points a tensor at another's bytes, or copies a scalar.
    Move { from: ValueId, to: ValueId },
    /// Jumps on a condition.
    Jump { condition: ValueId },
    /// Nothing: memory of a plan is never given back.
    Free,
}

/// One argument that is read or written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub value: ValueId,
    /// Position in the arguments; `None` for an element of a list argument.
    pub position: Option<usize>,
}

/// What is read and written, in the order of the arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accesses {
    pub reads: Vec<Access>,
    pub writes: Vec<Access>,
}

impl<'a> Operation<'a> {
    /// An instruction; `schema` and `is_view` as for a kernel.
    pub fn of(instruction: &'a Instruction, schema: Option<&'a Schema>, is_view: bool) -> Self {
        match instruction {
            Instruction::Kernel { args, .. } => Operation::Kernel { schema, is_view, args },
            Instruction::Delegate { args, .. } => Operation::Delegate { outputs: None, args },
            Instruction::Move { from, to } => Operation::Move { from: *from, to: *to },
            Instruction::JumpFalse { condition, .. } => Operation::Jump { condition: *condition },
            Instruction::Free { .. } => Operation::Free,
        }
    }

    /// A step before its kernel is known.
    pub fn of_step(step: &'a StepIr) -> Self {
        match &step.kind {
            StepKind::Plan { args, .. } => Operation::Kernel { schema: None, is_view: false, args },
            StepKind::Instruction(instruction) => Operation::of(instruction, None, false),
        }
    }

    /// Its arguments, lists as they are.
    pub fn named(self) -> impl Iterator<Item = ValueId> + 'a {
        let (args, others): (&'a [ValueId], [Option<ValueId>; 2]) = match self {
            Operation::Kernel { args, .. } | Operation::Delegate { args, .. } => (args, [None, None]),
            Operation::Move { from, to } => (&[], [Some(from), Some(to)]),
            Operation::Jump { condition } => (&[], [Some(condition), None]),
            Operation::Free => (&[], [None, None]),
        };
        args.iter().copied().chain(others.into_iter().flatten())
    }

    /// The tensor that it points somewhere, behind the one whose bytes that one takes over.
    pub fn link(self, ir: &MethodIr) -> Option<(ValueId, ValueId)> {
        let (from, to) = match self {
            Operation::Move { from, to } => (from, to),
            Operation::Kernel { schema: Some(schema), is_view: true, args } => {
                (*args.first()?, *args.get(schema.outputs().next()?)?)
            }
            _ => return None,
        };
        ir.tensor(to).map(|_| (from, to))
    }

    /// The scalar that it writes.
    pub fn scalar_result(self, ir: &MethodIr) -> Option<ValueId> {
        match self {
            Operation::Kernel { schema: Some(schema), args, .. } if schema.has_scalar_return => {
                args.last().copied()
            }
            Operation::Move { to, .. } if ir.tensor(to).is_none() => Some(to),
            _ => None,
        }
    }

    /// Values that it writes or may write, as far as a file says: a call's result is its last argument, and what a
    /// delegate does is not known.
    pub fn may_write(self) -> impl Iterator<Item = ValueId> + 'a {
        let (args, moved): (&'a [ValueId], Option<ValueId>) = match self {
            Operation::Kernel { args, .. } => {
                (args.last().map(std::slice::from_ref).unwrap_or_default(), None)
            }
            Operation::Delegate { args, .. } => (args, None),
            Operation::Move { to, .. } => (&[], Some(to)),
            Operation::Jump { .. } | Operation::Free => (&[], None),
        };
        args.iter().copied().chain(moved)
    }

    /// What it reads and writes.
    pub fn accesses(self, ir: &MethodIr) -> Accesses {
        let mut out = Accesses::default();
        let mut add = |i: usize, value: ValueId, is_read: bool, is_written: bool| {
            if is_read {
                expand(ir, value, i, &mut out.reads);
            }
            if is_written {
                expand(ir, value, i, &mut out.writes);
            }
        };
        match self {
            // The size and the base; no byte is written.
            Operation::Kernel { is_view: true, args, .. } => {
                args.iter().take(2).enumerate().for_each(|(i, v)| add(i, *v, true, false));
            }
            Operation::Kernel { schema: None, args, .. } => {
                args.iter().enumerate().for_each(|(i, v)| add(i, *v, true, true));
            }
            Operation::Kernel { schema: Some(schema), args, .. } => {
                for (i, v) in args.iter().enumerate() {
                    // Behind the schema's arguments: an output again, or a scalar result.
                    let (is_output, is_updated) =
                        schema.args.get(i).map_or((true, false), |a| (a.is_output, a.is_updated));
                    add(i, *v, !is_output || is_updated, is_output);
                }
            }
            Operation::Delegate { outputs, args } => {
                let first = outputs.map(|n| args.len().saturating_sub(n));
                for (i, v) in args.iter().enumerate() {
                    let may_be_output = first.is_none_or(|first| i >= first) && ir.tensor(*v).is_some();
                    add(i, *v, first.is_none_or(|first| i < first), may_be_output);
                }
            }
            Operation::Move { from, to } => {
                add(0, from, true, false);
                if ir.tensor(to).is_none() {
                    add(1, to, false, true);
                }
            }
            Operation::Jump { condition } => add(0, condition, true, false),
            Operation::Free => {}
        }
        out
    }
}

fn expand(ir: &MethodIr, value: ValueId, position: usize, out: &mut Vec<Access>) {
    match ir.value(value).and_then(ValueIr::as_list) {
        Some(list) => out.extend(list.iter().map(|value| Access { value, position: None })),
        None => out.push(Access { value, position: Some(position) }),
    }
}

/// The tensors among the arguments of a call, list elements included, with what the call does to them.
pub(crate) fn tensor_roles(ir: &MethodIr, schema: &Schema, args: &[ValueId]) -> Vec<ArgumentRole> {
    let mut roles = Vec::new();
    for (arg, id) in schema.args.iter().zip(args) {
        let tensors = ir.leaves(*id).filter(|value| ir.tensor(*value).is_some());
        roles.extend(tensors.map(|value| ArgumentRole { value, is_output: arg.is_output }));
    }
    roles
}

/// Scalars whose contents are not those of the file: set by callers, moves or scalar results.
pub(crate) fn written_scalars<'a>(
    ir: &MethodIr,
    operations: impl Iterator<Item = Operation<'a>>,
) -> HashSet<ValueId> {
    let inputs = ir.inputs.iter().copied().filter(|id| ir.tensor(*id).is_none());
    inputs.chain(operations.filter_map(|operation| operation.scalar_result(ir))).collect()
}
