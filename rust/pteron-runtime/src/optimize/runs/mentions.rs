//! Where values are named: a value that only one run names needs no place of the file's.

use super::super::Chain;
use super::super::effects::{Effects, kernel_call};
use crate::ir::MethodIr;
use pteron_core::ValueId;

/// The span of a value that no step names.
const NOWHERE: (usize, usize) = (usize::MAX, 0);

/// First and last step that names each value.
pub(super) struct Mentions {
    spans: Vec<(usize, usize)>,
    is_read_first: Vec<bool>,
}

impl Mentions {
    pub fn new(ir: &MethodIr, chain: &Chain, effects: &Effects) -> Self {
        let mut mentions =
            Mentions { spans: vec![NOWHERE; ir.values.len()], is_read_first: vec![false; ir.values.len()] };
        for (i, instruction) in chain.iter().enumerate() {
            let e = effects.step(i);
            for a in &e.reads {
                let is_first = mentions.spans.get(a.value.index()) == Some(&NOWHERE);
                if let Some(slot) = mentions.is_read_first.get_mut(a.value.index()) {
                    *slot |= is_first;
                }
                mentions.add(a.value, i);
            }
            e.writes.iter().for_each(|a| mentions.add(a.value, i));
            // The result of a view is no byte that is written.
            if let Some((_, args)) = kernel_call(ir, instruction) {
                args.iter().for_each(|v| mentions.add(*v, i));
            }
        }
        // Callers see these before and after all steps.
        ir.inputs.iter().for_each(|v| mentions.add(*v, usize::MAX));
        ir.outputs.iter().for_each(|v| mentions.add(*v, usize::MAX));
        mentions
    }

    fn add(&mut self, value: ValueId, step: usize) {
        if let Some((first, last)) = self.spans.get_mut(value.index()) {
            *first = step.min(*first);
            *last = step.max(*last);
        }
    }

    /// Does the first step that names `value` read it? Then it finds what an earlier call left.
    pub fn is_read_first(&self, value: ValueId) -> bool {
        self.is_read_first.get(value.index()).copied().unwrap_or(true)
    }

    /// Is `value` named in `start..end` only?
    pub fn is_within(&self, value: ValueId, start: usize, end: usize) -> bool {
        match self.spans.get(value.index()) {
            Some(span) if *span != NOWHERE => span.0 >= start && span.1 < end,
            _ => false,
        }
    }
}
