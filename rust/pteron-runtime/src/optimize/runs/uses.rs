//! Where the file names values: a value that only one run names needs no place of the file's.

use super::super::Chain;
use super::super::effects::Effects;
use crate::ir::MethodIr;
use crate::step_effects::{Operation, Uses};
use pteron_core::ValueId;

/// First and last instruction that names each value.
pub(super) struct FileUses {
    uses: Uses,
    is_read_first: Vec<bool>,
}

impl FileUses {
    pub fn new(ir: &MethodIr, chain: &Chain, effects: &Effects) -> Self {
        let mut uses = Uses::new(ir.values.len());
        let mut is_read_first = vec![false; ir.values.len()];
        for (i, instruction) in chain.iter().enumerate() {
            for a in &effects.step(i).reads {
                if uses.span(a.value).is_none()
                    && let Some(slot) = is_read_first.get_mut(a.value.index())
                {
                    *slot = true;
                }
                uses.add(a.value, i);
            }
            let named = instruction.iter().flat_map(|n| Operation::of(n, None, false).named());
            for value in named {
                uses.add(value, i);
                ir.members(value).iter().for_each(|member| uses.add(member, i));
            }
        }
        // Callers see these before and after all steps.
        ir.inputs.iter().chain(&ir.outputs).for_each(|v| uses.add(*v, usize::MAX));
        FileUses { uses, is_read_first }
    }

    /// Does the first instruction that names `value` read it? Then it finds what an earlier call left.
    pub fn is_read_first(&self, value: ValueId) -> bool {
        self.is_read_first.get(value.index()).copied().unwrap_or(true)
    }

    /// Is `value` named in `start..end` only?
    pub fn is_within(&self, value: ValueId, start: usize, end: usize) -> bool {
        self.uses.span(value).is_some_and(|(first, last)| first >= start && last < end)
    }
}
