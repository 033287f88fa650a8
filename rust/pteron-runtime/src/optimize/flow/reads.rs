//! What reads see beyond the last write: bytes that tensors of changing shape left as they were, and bytes
//! of the call before.

use super::super::effects::{Effects, Location};
use super::state::{Definitions, Reach, State, Views, Writer};
use crate::ir::MethodIr;
use crate::step_effects::{ByteRegion, Space};
use pteron_core::ValueId;
use std::collections::{HashMap, HashSet};

/// What the analysis gathers about reads while it goes through the steps.
pub(super) struct Reads<'a> {
    ir: &'a MethodIr,
    pub effects: &'a Effects,
    /// Places of inputs: does the caller set all their bytes?
    inputs: HashMap<(Space, usize, usize), bool>,
    input_values: HashSet<ValueId>,
    /// Views made so far in the block.
    pub views: Views,
    /// For each step that writes a tensor of changing shape: what wrote these bytes before.
    pub beneath: Vec<Definitions>,
    /// Steps whose writes somebody may look beneath.
    pub deep: Vec<Writer>,
    /// Bytes that may be seen as the call before left them.
    pub stale: Vec<ByteRegion>,
    /// So may all others.
    pub is_anything_stale: bool,
    /// Bytes that have to keep what they hold.
    pub kept: Vec<ByteRegion>,
}

impl<'a> Reads<'a> {
    pub fn new(ir: &'a MethodIr, effects: &'a Effects) -> Self {
        let mut inputs = HashMap::new();
        for input in &ir.inputs {
            if let Location::At(r) = effects.location(*input) {
                *inputs.entry((r.space, r.start, r.end)).or_insert(false) |= !is_bounded(ir, *input);
            }
        }
        Reads {
            ir,
            effects,
            inputs,
            input_values: ir.inputs.iter().copied().collect(),
            views: HashMap::new(),
            beneath: vec![Definitions::new(); effects.steps.len()],
            deep: Vec::new(),
            stale: Vec::new(),
            is_anything_stale: false,
            kept: Vec::new(),
        }
    }

    /// `out` becomes a view of `base`, which holds what `reach` says.
    pub fn view(&mut self, base: ValueId, out: ValueId, reach: Reach) {
        let root = self.views.get(&base).map_or(base, |(root, _)| *root);
        self.views.insert(out, (root, reach));
    }

    /// Does the caller set all bytes that `value` looks at?
    pub fn is_given(&self, value: ValueId, region: &ByteRegion) -> bool {
        let root = self.views.get(&value).map_or(value, |(root, _)| *root);
        let found = self.inputs.get(&(region.space, region.start, region.end));
        found.is_some_and(|is_whole| *is_whole || self.input_values.contains(&root))
    }

    /// Does `value` see exactly what step `writer`, the last one to write there, has written?
    pub fn sees_what_was_written(&self, value: ValueId, region: &ByteRegion, writer: u32) -> bool {
        let step = self.effects.step(writer as usize);
        let mut writes =
            step.writes.iter().filter(|w| self.effects.location(w.value) == Location::At(*region));
        writes.any(|w| {
            w.value == value
                || !is_bounded(self.ir, w.value)
                || self.views.get(&value).is_some_and(|(_, reach)| *reach == Reach::Step(writer))
        })
    }

    /// A read of `region` whose last writers are `definitions` may see more than they wrote.
    pub fn may_see_more(&mut self, region: ByteRegion, definitions: &[Writer]) {
        let is_bounded = |step| self.effects.step(step).writes.iter().any(|w| is_bounded(self.ir, w.value));
        if definitions.iter().filter_map(|d| d.index()).any(is_bounded) {
            self.deep.extend_from_slice(definitions);
            self.stale.push(region);
            self.kept.push(region);
        }
    }

    /// Notes what `step` is about to write over.
    pub fn cover(&mut self, state: &State, step: usize) {
        let Some(beneath) = self.beneath.get_mut(step) else { return };
        for write in &self.effects.step(step).writes {
            if let Location::At(region) = self.effects.location(write.value)
                && is_bounded(self.ir, write.value)
            {
                beneath.extend(state.overlapping(&region).flat_map(|(_, _, d)| d.iter().copied()));
            }
        }
    }
}

fn is_bounded(ir: &MethodIr, value: ValueId) -> bool {
    ir.tensor(value).is_some_and(|t| t.spec.is_dynamic())
}
