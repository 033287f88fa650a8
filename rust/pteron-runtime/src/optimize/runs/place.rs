//! The memory plan of a rewritten method: what runs keep to themselves gets new offsets, together with what is left
//! of the file's plan, in the first arena of the file.
//!
//! What the file placed keeps its neighbours: ranges of it that overlap move together, so every overlap
//! that the file relies on stays. A range is in use from the first step that names it to the last, from
//! the start for inputs, to the end for outputs, and throughout where jumps, moves or state make the
//! order of steps no guide; an output over an input leaves the steps between them free. Greedy, the largest first, each into the lowest gap; several orders are tried.

use super::super::effects::{Effects, Location};
use super::Analysis;
use crate::fit::{ALIGNMENT, Demand, Spans, best_placement, joined};
use crate::ir::{ConstantRef, MethodIr, Placement, StepIr, StepKind, ValueIr};
use crate::step_effects::{ByteRegion, Operation, Space, Uses};
use pteron_core::{Instruction, Members, ValueId};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Bytes that alignment may cost a small method.
const SLACK: usize = 4096;
/// The arena that is laid out again: no other method ever shares it.
const REPLANNED_ARENA: u32 = 0;

/// Tensors that only a run sees: bytes, first and last step.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    of: HashMap<ValueId, usize>,
    /// Views that get their memory when their step runs.
    pointed: HashSet<ValueId>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    nbytes: usize,
    from: usize,
    to: usize,
    /// The block whose bytes it may take over.
    prefers: Option<usize>,
}

impl Blocks {
    /// A new block for `id`.
    pub fn add(&mut self, id: ValueId, nbytes: usize, now: usize) {
        self.of.insert(id, self.blocks.len());
        self.blocks.push(Block { nbytes, from: now, to: now, prefers: None });
    }

    /// `id` is a view of `base`; where that has fewer bytes than the largest `id`, only running tells that
    /// they suffice, and the step that makes the view points `id` there.
    pub fn add_view(&mut self, id: ValueId, base: ValueId, nbytes: usize) {
        let Some(block) = self.of.get(&base).copied() else { return };
        self.of.insert(id, block);
        if self.blocks.get(block).is_none_or(|b| b.nbytes < nbytes) {
            self.pointed.insert(id);
        }
    }

    /// Does `id` lie in its block from the start?
    pub fn is_placed(&self, id: ValueId) -> bool {
        self.of.contains_key(&id) && !self.pointed.contains(&id)
    }

    /// `id` is read or written at step `now`.
    pub fn touch(&mut self, id: ValueId, now: usize) {
        if let Some(block) = self.of.get(&id).and_then(|b| self.blocks.get_mut(*b)) {
            block.to = block.to.max(now);
        }
    }

    /// `id` may take over the bytes of `input` where that is last used by the step that writes `id`.
    pub fn prefer(&mut self, id: ValueId, input: ValueId) {
        let input = self.of.get(&input).copied();
        if let Some(block) = self.of.get(&id).and_then(|b| self.blocks.get_mut(*b)) {
            block.prefers = input;
        }
    }
}

/// A range of the file's plan that moves as one.
struct Cluster {
    start: usize,
    end: usize,
    spans: Spans,
    /// First steps of what holds bytes that something else in the range wrote earlier: views, say.
    inherited_at: SmallVec<[usize; 2]>,
}

impl Cluster {
    /// Bytes are needed from the first step on for what does not begin by writing its own.
    fn close_gaps(&mut self) {
        let first = self.spans.iter().map(|s| s.0).min().unwrap_or(0);
        let spans = std::mem::take(&mut self.spans).into_iter();
        let back = self.inherited_at.iter().map(|at| (first, *at));
        self.spans = joined(spans.chain(back).collect());
    }
}

/// Where everything goes.
pub(super) struct ArenaPlan {
    clusters: Vec<Cluster>,
    cluster_offsets: Vec<usize>,
    /// Offset of each value that a run keeps to itself.
    offsets: HashMap<ValueId, usize>,
    uses: Uses,
    total: usize,
}

impl ArenaPlan {
    /// Places all blocks and what `steps` still name of the file's plan. `None` where that takes more than
    /// `percent` of what the file planned.
    pub fn new(
        ir: &MethodIr,
        steps: &[StepIr],
        made: &[ValueIr],
        known: Analysis<'_>,
        blocks: Blocks,
        percent: usize,
    ) -> Option<ArenaPlan> {
        let uses = StepUses::new(ir, steps, made, known.effects);
        let clusters = uses.clusters(ir, steps, made, known.effects, &known.flow.kept);
        let (groups, group_of) = merged(&blocks.blocks);
        let mut ranges: Vec<Demand> = clusters
            .iter()
            .map(|c| Demand { nbytes: c.end.saturating_sub(c.start), spans: c.spans.clone() })
            .collect();
        ranges.extend(groups);
        let (offsets, total) = best_placement(&ranges)?;
        let planned = ir.arenas.get(REPLANNED_ARENA as usize).copied().unwrap_or(0);
        let limit = (planned / 100).checked_mul(percent)?.checked_add(planned % 100)?.checked_add(SLACK)?;
        if total > limit {
            return None;
        }
        let (cluster_offsets, group_offsets) = offsets.split_at_checked(clusters.len())?;
        let offsets = blocks
            .of
            .iter()
            .filter(|(id, _)| blocks.is_placed(**id))
            .filter_map(|(id, block)| Some((*id, *group_offsets.get(*group_of.get(*block)?)?)))
            .collect();
        Some(ArenaPlan {
            cluster_offsets: cluster_offsets.to_vec(),
            clusters,
            offsets,
            uses: uses.uses,
            total,
        })
    }

    /// Makes it so: appends `made`, moves what the file placed, forgets values that nothing names.
    pub fn apply(self, ir: &mut MethodIr, made: Vec<ValueIr>) {
        for (index, value) in ir.values.iter_mut().enumerate() {
            let ValueIr::Tensor(tensor) = value else { continue };
            let nbytes = tensor.spec.nbytes().unwrap_or(0);
            let id = ValueId(u32::try_from(index).unwrap_or(u32::MAX));
            let is_kept = tensor.is_state() || self.uses.span(id).is_some();
            match &mut tensor.placement {
                Placement::Planned { arena: REPLANNED_ARENA, offset, .. } if is_kept => {
                    *offset = self.moved(*offset, nbytes);
                }
                _ if !is_kept && tensor.name.is_none() => *value = ValueIr::None,
                _ => {}
            }
        }
        let first = ir.values.len();
        for (index, mut value) in made.into_iter().enumerate() {
            let id = ValueId(u32::try_from(first.saturating_add(index)).unwrap_or(u32::MAX));
            if let ValueIr::Tensor(tensor) = &mut value {
                let nbytes = tensor.spec.nbytes().unwrap_or(0);
                match (&mut tensor.placement, self.offsets.get(&id)) {
                    (place, Some(offset)) => {
                        *place =
                            Placement::Planned { arena: REPLANNED_ARENA, offset: *offset, initial: None };
                    }
                    (Placement::Planned { arena: REPLANNED_ARENA, offset, .. }, None) => {
                        *offset = self.moved(*offset, nbytes);
                    }
                    _ => {}
                }
            }
            ir.values.push(value);
        }
        match ir.arenas.get_mut(REPLANNED_ARENA as usize) {
            Some(size) => *size = self.total,
            None => ir.arenas.push(self.total),
        }
    }

    /// Where an offset of the file's plan is now.
    fn moved(&self, offset: usize, nbytes: usize) -> usize {
        let end = offset.saturating_add(nbytes.max(1));
        let at = self.clusters.partition_point(|c| c.start <= offset).checked_sub(1);
        let found = at.and_then(|at| Some((self.clusters.get(at)?, self.cluster_offsets.get(at)?)));
        match found.filter(|(c, _)| end <= c.end) {
            Some((cluster, to)) => offset.saturating_sub(cluster.start).saturating_add(*to),
            // Named by no step: an empty tensor at the end of the plan, say.
            None => 0,
        }
    }
}

/// When steps name values.
struct StepUses {
    uses: Uses,
    last: usize,
    is_ordered: bool,
}

impl StepUses {
    fn new(ir: &MethodIr, steps: &[StepIr], made: &[ValueIr], effects: &Effects) -> Self {
        let is_jump = |s: &StepIr| {
            matches!(s.kind, StepKind::Instruction(Instruction::JumpFalse { .. } | Instruction::Move { .. }))
        };
        let has_unknown =
            effects.locations.iter().any(|l| matches!(l, Location::Unknown | Location::Among(_)));
        let mut uses = Uses::new(ir.values.len().saturating_add(made.len()));
        let mut name = |value: ValueId, at: usize| {
            uses.add(value, at);
            let own = value.index().checked_sub(ir.values.len()).and_then(|i| made.get(i));
            let members = own.or_else(|| ir.value(value)).map_or(Members::All(&[]), ValueIr::members);
            members.iter().for_each(|member| uses.add(member, at));
        };
        for (at, step) in steps.iter().enumerate() {
            Operation::of_step(step).named().for_each(|value| name(value, at));
        }
        ir.inputs.iter().for_each(|v| name(*v, 0));
        ir.outputs.iter().for_each(|v| name(*v, steps.len()));
        let is_ordered = !has_unknown && !steps.iter().any(is_jump);
        StepUses { uses, last: steps.len(), is_ordered }
    }

    /// What is left of the file's plan, in order.
    fn clusters(
        &self,
        ir: &MethodIr,
        steps: &[StepIr],
        made: &[ValueIr],
        effects: &Effects,
        kept: &[ByteRegion],
    ) -> Vec<Cluster> {
        let read_first = read_before_written(ir, effects);
        let mut ranges: Vec<Cluster> = Vec::new();
        let mut add = |start: usize, end: usize, (from, to): (usize, usize), is_written: bool| {
            // Offsets keep their remainder, and with it every alignment that the file gave them.
            let start = start.saturating_sub(start % ALIGNMENT);
            let inherited_at = if is_written { SmallVec::new() } else { SmallVec::from_slice(&[from]) };
            ranges.push(Cluster { start, end, spans: SmallVec::from_slice(&[(from, to)]), inherited_at });
        };
        let home = |place: &Placement<ConstantRef>, nbytes: usize| match place {
            Placement::Planned { arena: REPLANNED_ARENA, offset, .. } => {
                Some((*offset, offset.saturating_add(nbytes.max(1))))
            }
            _ => None,
        };
        for (index, value) in ir.values.iter().chain(made).enumerate() {
            let Some(tensor) = value.as_tensor() else { continue };
            let id = ValueId(u32::try_from(index).unwrap_or(u32::MAX));
            let is_state = tensor.is_state();
            let Some((mut from, mut to)) = self.uses.span(id).or(is_state.then_some((0, self.last))) else {
                continue;
            };
            // What no step names is given as an output with the zeros that it began with.
            let is_unwritten = from == self.last;
            if is_state || is_unwritten || !self.is_ordered || read_first.get(index) == Some(&true) {
                (from, to) = (0, self.last);
            }
            let is_written = begins_with_write(steps, effects, id, from);
            let own = home(&tensor.placement, tensor.spec.nbytes().unwrap_or(0));
            if let Some((start, end)) = own {
                add(start, end, (from, to), is_written);
            }
            // A view is where its base is, whatever place of its own it states.
            if index < ir.values.len()
                && let Location::At(ByteRegion { space: Space::Arena(REPLANNED_ARENA), start, end }) =
                    effects.location(id)
                && own != Some((start, end))
            {
                add(start, end, (from, to), is_written);
            }
        }
        for region in kept.iter().filter(|r| r.space == Space::Arena(REPLANNED_ARENA)) {
            add(region.start, region.end, (0, self.last), false);
        }
        ranges.sort_unstable_by_key(|c| (c.start, c.end));
        let mut clusters: Vec<Cluster> = Vec::new();
        for range in ranges {
            match clusters.last_mut() {
                Some(last) if range.start < last.end => {
                    last.end = last.end.max(range.end);
                    last.spans.extend(range.spans);
                    last.inherited_at.extend(range.inherited_at);
                }
                _ => clusters.push(range),
            }
        }
        clusters.iter_mut().for_each(Cluster::close_gaps);
        clusters
    }
}

/// Does step `at` write `id`, which it does not read?
fn begins_with_write(steps: &[StepIr], effects: &Effects, id: ValueId, at: usize) -> bool {
    let covered = || steps.get(at).into_iter().flat_map(|s| &s.covers).map(|i| effects.step(*i as usize));
    let (mut reads, mut writes) = (covered().flat_map(|e| &e.reads), covered().flat_map(|e| &e.writes));
    writes.any(|a| a.value == id) && !reads.any(|a| a.value == id)
}

/// Values that a step reads before one writes them, inputs apart: they can hold what an earlier call left.
fn read_before_written(ir: &MethodIr, effects: &Effects) -> Vec<bool> {
    let mut is_known = vec![false; effects.locations.len()];
    let mut is_read_first = vec![false; effects.locations.len()];
    for input in &ir.inputs {
        if let Some(known) = is_known.get_mut(input.index()) {
            *known = true;
        }
    }
    for step in &effects.steps {
        for (access, is_read) in
            step.reads.iter().map(|a| (a, true)).chain(step.writes.iter().map(|a| (a, false)))
        {
            if let (Some(known), Some(first)) =
                (is_known.get_mut(access.value.index()), is_read_first.get_mut(access.value.index()))
                && !std::mem::replace(known, true)
            {
                *first = is_read;
            }
        }
    }
    is_read_first
}

/// Blocks that take over one another's bytes as one range each, and the range of every block.
fn merged(blocks: &[Block]) -> (Vec<Demand>, Vec<usize>) {
    let mut ranges: Vec<Demand> = Vec::new();
    let mut of: Vec<usize> = Vec::new();
    for block in blocks {
        let own = Demand { nbytes: block.nbytes, spans: SmallVec::from_slice(&[(block.from, block.to)]) };
        // Blocks come in the order of their first step, so the preferred one is there already.
        let taken =
            block.prefers.and_then(|p| of.get(p).copied()).and_then(|g| Some((g, ranges.get_mut(g)?)));
        match taken {
            Some((group, Demand { nbytes, spans }))
                if *nbytes == block.nbytes && spans.last().is_some_and(|s| s.1 == block.from) =>
            {
                if let Some(last) = spans.last_mut() {
                    last.1 = last.1.max(block.to);
                }
                of.push(group);
            }
            _ => {
                of.push(ranges.len());
                ranges.push(own);
            }
        }
    }
    (ranges, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_over_the_bytes_of_its_input_when_that_dies() {
        let block = |from, to, prefers| Block { nbytes: 64, from, to, prefers };
        let (ranges, of) = merged(&[block(0, 1, None), block(1, 2, Some(0)), block(2, 3, Some(0))]);
        assert_eq!(of, [0, 0, 0]);
        assert_eq!(ranges[0].spans.as_slice(), [(0, 3)]);
        let (_, of) = merged(&[block(0, 2, None), block(1, 2, Some(0))]);
        assert_eq!(of, [0, 1]);
    }

    #[test]
    fn a_view_needs_what_lies_there_since_it_was_written() {
        let cluster = |inherited_at: &[usize]| {
            let spans = SmallVec::from_slice(&[(5, 6), (0, 1)]);
            let mut c =
                Cluster { start: 0, end: 64, spans, inherited_at: SmallVec::from_slice(inherited_at) };
            c.close_gaps();
            c.spans.to_vec()
        };
        assert_eq!(cluster(&[0]), [(0, 1), (5, 6)]);
        assert_eq!(cluster(&[0, 5]), [(0, 6)]);
    }
}
