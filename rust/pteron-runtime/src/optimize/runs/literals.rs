//! Arguments whose contents load knows, since nothing in the program writes them.

use super::super::effects::Effects;
use crate::ir::{MethodIr, ValueIr};
use pteron_core::ValueId;
use pteron_cpu::graph::Literal;

/// Which values are written.
pub(super) struct Literals {
    is_written: Vec<bool>,
}

impl Literals {
    pub fn new(ir: &MethodIr, effects: &Effects) -> Self {
        let mut is_written = vec![false; ir.values.len()];
        let written = effects.steps.iter().flat_map(|e| e.writes.iter().map(|a| a.value));
        for value in written.chain(ir.inputs.iter().copied()) {
            if let Some(slot) = is_written.get_mut(value.index()) {
                *slot = true;
            }
        }
        Literals { is_written }
    }

    /// Does something in the program, or the caller, write `value`?
    pub fn is_written(&self, value: ValueId) -> bool {
        self.is_written.get(value.index()).copied().unwrap_or(true)
    }

    /// The contents of `value`, if it is a number, a text, a list of integers or absent, and never written.
    pub fn of(&self, ir: &MethodIr, value: ValueId) -> Option<Literal> {
        if self.is_written(value) {
            return None;
        }
        match ir.values.get(value.index())? {
            ValueIr::None => Some(Literal::None),
            ValueIr::Int(v) => Some(Literal::Int(*v)),
            ValueIr::Bool(v) => Some(Literal::Bool(*v)),
            ValueIr::Double(v) => Some(Literal::Double(*v)),
            ValueIr::String(v) => Some(Literal::String(v.clone())),
            ValueIr::IntList(ids) => {
                let items: Option<Vec<i64>> = ids
                    .iter()
                    .map(|id| match self.of(ir, *id)? {
                        Literal::Int(v) => Some(v),
                        _ => None,
                    })
                    .collect();
                items.map(Literal::Ints)
            }
            _ => None,
        }
    }
}
