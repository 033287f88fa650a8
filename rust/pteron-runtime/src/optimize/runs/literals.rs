//! Arguments whose contents load knows, since nothing in the program writes them.

use super::super::effects::Effects;
use crate::ir::{MethodIr, ValueIr};
use pteron_core::ValueId;
use pteron_cpu::graph::Literal;

/// The contents of `value`, if it is a number, a text, a list of integers or absent, and never written.
pub(super) fn literal(ir: &MethodIr, effects: &Effects, value: ValueId) -> Option<Literal> {
    if effects.is_written(value) {
        return None;
    }
    match ir.value(value)? {
        ValueIr::None => Some(Literal::None),
        ValueIr::Int(v) => Some(Literal::Int(*v)),
        ValueIr::Bool(v) => Some(Literal::Bool(*v)),
        ValueIr::Double(v) => Some(Literal::Double(*v)),
        ValueIr::String(v) => Some(Literal::String(v.clone())),
        ValueIr::IntList(ids) => {
            let int = |id: &ValueId| match literal(ir, effects, *id)? {
                Literal::Int(v) => Some(v),
                _ => None,
            };
            ids.iter().map(int).collect::<Option<Vec<i64>>>().map(Literal::Ints)
        }
        _ => None,
    }
}
