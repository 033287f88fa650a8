//! Arguments of a node.

use super::ids::TensorId;
use pteron_core::ArgSpec;
use std::sync::Arc;

/// A value that is known at load.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// Absent.
    None,
    /// Integer.
    Int(i64),
    /// Float.
    Double(f64),
    /// Bool.
    Bool(bool),
    /// Integers.
    Ints(Vec<i64>),
    /// Text.
    String(Arc<str>),
}

impl Literal {
    /// As preparing sees it.
    pub fn arg_spec(&self) -> ArgSpec<'_> {
        match self {
            Literal::None => ArgSpec::None,
            Literal::Int(v) => ArgSpec::Int(Some(*v)),
            Literal::Double(v) => ArgSpec::Double(Some(*v)),
            Literal::Bool(v) => ArgSpec::Bool(Some(*v)),
            Literal::Ints(v) => ArgSpec::IntList(v.iter().copied().map(Some).collect()),
            Literal::String(v) => ArgSpec::String(v),
        }
    }

    /// The number as a float, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Literal::Int(v) => Some(*v as f64),
            Literal::Double(v) => Some(*v),
            Literal::Bool(v) => Some(f64::from(u8::from(*v))),
            Literal::None | Literal::Ints(_) | Literal::String(_) => None,
        }
    }
}

/// One argument of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// A tensor, read or written.
    Tensor(TensorId),
    /// A list of tensors, `None` for absent ones.
    Tensors(Vec<Option<TensorId>>),
    /// Something that nothing in the program writes; with the program's value that holds it, if one does.
    Literal(Literal, Option<u32>),
    /// Any other value of the program, by its index: numbers that are computed, other lists.
    Value(u32),
}

impl Argument {
    /// An integer that a rule makes.
    pub fn int(value: i64) -> Self {
        Argument::Literal(Literal::Int(value), None)
    }

    /// The extents of a tensor, as its views name them.
    pub fn extents(shape: &[usize]) -> Self {
        Argument::ints(&shape.iter().map(|n| *n as i64).collect::<Vec<_>>())
    }

    /// A list of integers that a rule makes.
    pub fn ints(values: &[i64]) -> Self {
        Argument::Literal(Literal::Ints(values.to_vec()), None)
    }

    /// An absent optional argument.
    pub fn none() -> Self {
        Argument::Literal(Literal::None, None)
    }

    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<TensorId> {
        match self {
            Argument::Tensor(t) => Some(*t),
            _ => None,
        }
    }

    /// Every tensor in it.
    pub fn tensors(&self) -> impl Iterator<Item = TensorId> + '_ {
        let (one, many) = match self {
            Argument::Tensor(t) => (Some(*t), &[][..]),
            Argument::Tensors(list) => (None, &list[..]),
            Argument::Literal(..) | Argument::Value(_) => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().flatten().copied())
    }

    /// Puts `to` where `from` was.
    pub(super) fn rename(&mut self, from: TensorId, to: TensorId) {
        match self {
            Argument::Tensor(t) if *t == from => *t = to,
            Argument::Tensors(list) => {
                list.iter_mut().flatten().filter(|t| **t == from).for_each(|t| *t = to);
            }
            _ => {}
        }
    }
}
