//! Reaching definitions over the bytes of the memory plan, across jumps.
//!
//! Forward data flow on an interval map: which step last wrote each byte? At joins the sets of
//! candidates are united. The classic analysis (Aho, Lam, Sethi, Ullman, *Compilers*, 9.2.4), with byte
//! ranges in place of variables.
//!
//! A tensor of changing shape may write fewer bytes than its range has. Readers of its own shape, the value
//! itself and views made of it since, see what it wrote; all others may see what was there before
//! ([`Reads::beneath`]).

mod reads;
mod state;

use super::Chain;
use super::effects::{Effects, Location, kernel_call};
use crate::ir::MethodIr;
use crate::step_effects::ByteRegion;
use pteron_core::{Instruction, ValueId};
use pteron_cpu::graph::ET_VIEW;
use reads::Reads;
use smallvec::SmallVec;
pub(super) use state::Reach;
use state::{Definitions, State, Views, Writer};

/// Above this many block-state entries the analysis is given up: a file with so many jumps gains
/// nothing from fusion, and load time must stay linear.
const WORK_LIMIT: usize = 1 << 22;

/// One read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub step: u32,
    /// Position in the arguments; `None` for an element of a list argument.
    pub position: Option<usize>,
    pub reach: Reach,
}

/// The answers.
pub(super) struct Flow {
    /// All reads, in step order.
    pub uses: Vec<Use>,
    /// For each step: indices into `uses` of the reads that see exactly what it wrote.
    pub readers: Vec<Vec<u32>>,
    /// For each step: its result is also seen in ways that `readers` does not list (outputs, the next
    /// call, partial or mixed reads).
    pub is_pinned: Vec<bool>,
    /// For each step: the number of its basic block.
    pub block_of: Vec<u32>,
    /// Bytes of which a read may see more than was written last: they have to keep what they hold.
    pub kept: Vec<ByteRegion>,
}

/// Straight-line pieces of the chain: `start..end` and the blocks that may follow.
struct Block {
    start: usize,
    end: usize,
    next: SmallVec<[usize; 2]>,
}

fn blocks(chain: &Chain) -> Vec<Block> {
    let n = chain.len();
    let mut leaders: Vec<usize> = vec![0, n];
    for (i, instruction) in chain.iter().enumerate() {
        if let Some(Instruction::JumpFalse { destination, .. }) = instruction {
            leaders.push((*destination as usize).min(n));
            leaders.push(i.saturating_add(1));
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    let find = |at: usize| leaders.binary_search(&at).unwrap_or(0);
    let mut out = Vec::new();
    for pair in leaders.windows(2) {
        let [start, end] = *pair else { continue };
        let mut next = SmallVec::new();
        next.push(find(end));
        if let Some(Some(Instruction::JumpFalse { destination, .. })) =
            end.checked_sub(1).and_then(|last| chain.get(last))
        {
            next.push(find((*destination as usize).min(n)));
        }
        out.push(Block { start, end, next });
    }
    out
}

impl Flow {
    /// Analyses the chain; `None` when it is too tangled to be worth it.
    pub fn new(ir: &MethodIr, chain: &Chain, effects: &Effects) -> Option<Self> {
        let blocks = blocks(chain);
        let entry_states = solve(&blocks, effects)?;
        let mut flow = Flow {
            uses: Vec::new(),
            readers: vec![Vec::new(); chain.len()],
            is_pinned: vec![false; chain.len()],
            block_of: vec![0; chain.len()],
            kept: Vec::new(),
        };
        let mut reads = Reads::new(ir, effects);
        let mut exits = Vec::new();
        for (number, (block, entry)) in blocks.iter().zip(&entry_states).enumerate() {
            let Some(entry) = entry else { continue };
            let mut state = entry.clone();
            reads.views.clear();
            for i in block.start..block.end {
                if let Some(slot) = flow.block_of.get_mut(i) {
                    *slot = u32::try_from(number).unwrap_or(u32::MAX);
                }
                for a in &effects.step(i).reads {
                    let reach = flow.resolve(&state, a.value, &mut reads);
                    flow.record(i, a.position, reach);
                    if a.position == Some(0)
                        && let Some((ET_VIEW, &[_, _, out, ..])) =
                            chain.get(i).and_then(|s| kernel_call(ir, s))
                    {
                        reads.view(a.value, out, reach);
                    }
                }
                reads.cover(&state, i);
                apply(&mut state, i, effects);
            }
            if block.next.contains(&blocks.len()) {
                exits.push((state, reads.views.clone()));
            }
        }
        flow.pin_live_out(ir, &exits, &mut reads);
        flow.pin_beneath(reads);
        Some(flow)
    }

    /// The reads of a step, in the order of its effects; none for steps that are never reached.
    pub fn uses_of(&self, step: usize) -> &[Use] {
        let from = self.uses.partition_point(|u| (u.step as usize) < step);
        let to = self.uses.partition_point(|u| u.step as usize <= step);
        self.uses.get(from..to).unwrap_or_default()
    }

    fn record(&mut self, step: usize, position: Option<usize>, reach: Reach) {
        let index = u32::try_from(self.uses.len()).unwrap_or(u32::MAX);
        self.uses.push(Use { step: u32::try_from(step).unwrap_or(u32::MAX), position, reach });
        if let Reach::Step(d) = reach
            && let Some(readers) = self.readers.get_mut(d as usize)
        {
            readers.push(index);
        }
    }

    fn pin(&mut self, definitions: &[Writer]) {
        for step in definitions.iter().filter_map(|d| d.index()) {
            if let Some(p) = self.is_pinned.get_mut(step) {
                *p = true;
            }
        }
    }

    fn resolve(&mut self, state: &State, value: ValueId, reads: &mut Reads<'_>) -> Reach {
        let effects = reads.effects;
        let location = effects.location(value);
        let region = match location {
            Location::Constant => return Reach::Entry,
            Location::At(region) => region,
            Location::Among(_) => {
                // It may look at any of these.
                for region in effects.among(location).unwrap_or_default() {
                    let seen: Vec<Writer> =
                        state.overlapping(region).flat_map(|(_, _, d)| d.iter().copied()).collect();
                    self.pin(&seen);
                    reads.may_see_more(*region, &seen);
                    reads.stale.push(*region);
                }
                return Reach::Mixed;
            }
            Location::Unknown => {
                // It may look at anything that was written so far, or by an earlier call.
                let all: Vec<Writer> = state.map.values().flat_map(|(_, d)| d.iter().copied()).collect();
                self.pin(&all);
                reads.deep.extend(all);
                reads.is_anything_stale = true;
                return Reach::Mixed;
            }
        };
        let mut all: Definitions = SmallVec::new();
        let mut covered = region.start;
        let mut has_gap = false;
        for (start, end, d) in state.overlapping(&region) {
            has_gap |= start > covered;
            covered = end;
            all.extend_from_slice(d);
        }
        has_gap |= covered < region.end;
        all.sort_unstable();
        all.dedup();
        if (has_gap || all.contains(&Writer::Entry)) && !reads.is_given(value, &region) {
            reads.stale.push(region);
        }
        match all.as_slice() {
            [] if !state.is_clobbered => Reach::Entry,
            [Writer::Step(one)]
                if !has_gap && !state.is_clobbered && reads.sees_what_was_written(value, &region, *one) =>
            {
                Reach::Step(*one)
            }
            many => {
                self.pin(many);
                reads.may_see_more(region, many);
                Reach::Mixed
            }
        }
    }

    /// What outputs and the next call see cannot be removed. The next call sees a byte when some step
    /// reads it before writing it; inputs are set anew every time and do not count.
    fn pin_live_out(&mut self, ir: &MethodIr, exits: &[(State, Views)], reads: &mut Reads<'_>) {
        for (state, views) in exits {
            reads.views.clone_from(views);
            for output in &ir.outputs {
                if let Reach::Step(d) = self.resolve(state, *output, reads) {
                    self.pin(&[Writer::Step(d)]);
                }
            }
        }
        for (state, _) in exits {
            let everything = reads.is_anything_stale.then(|| state.map.values().map(|(_, d)| d));
            let left = reads.stale.iter().flat_map(|r| state.overlapping(r).map(|(_, _, d)| d));
            let seen: Vec<Writer> = everything.into_iter().flatten().chain(left).flatten().copied().collect();
            self.pin(&seen);
            reads.deep.extend(seen);
        }
    }

    /// What writes of changing shape may have left standing where somebody looks.
    fn pin_beneath(&mut self, reads: Reads<'_>) {
        let Reads { mut deep, beneath, kept, .. } = reads;
        let mut is_done = vec![false; beneath.len()];
        while let Some(writer) = deep.pop() {
            let Some(step) = writer.index() else { continue };
            let (Some(done), Some(below)) = (is_done.get_mut(step), beneath.get(step)) else { continue };
            if !std::mem::replace(done, true) {
                self.pin(below);
                deep.extend_from_slice(below);
            }
        }
        self.kept = kept;
    }
}

/// The state at the start of each reachable block, at the fixpoint.
fn solve(blocks: &[Block], effects: &Effects) -> Option<Vec<Option<State>>> {
    // Straight-line code, nearly every method: nothing to join.
    if let [only] = blocks
        && !only.next.contains(&0)
    {
        return Some(vec![Some(State::default())]);
    }
    let mut entry: Vec<Option<State>> = vec![None; blocks.len()];
    if let Some(first) = entry.first_mut() {
        *first = Some(State::default());
    }
    let mut pending: Vec<usize> = vec![0];
    let mut work = 0usize;
    while let Some(number) = pending.pop() {
        let (Some(block), Some(Some(state))) = (blocks.get(number), entry.get(number)) else { continue };
        let mut state = state.clone();
        for i in block.start..block.end {
            apply(&mut state, i, effects);
        }
        work = work.saturating_add(state.map.len()).saturating_add(block.end.saturating_sub(block.start));
        if work > WORK_LIMIT {
            return None;
        }
        for next in &block.next {
            let Some(slot) = entry.get_mut(*next) else { continue };
            let is_changed = match slot {
                None => {
                    *slot = Some(state.clone());
                    true
                }
                Some(old) => old.join(&state),
            };
            if is_changed {
                pending.push(*next);
            }
        }
    }
    Some(entry)
}

fn apply(state: &mut State, step: usize, effects: &Effects) {
    let writer = Writer::step(step);
    for a in &effects.step(step).writes {
        match effects.location(a.value) {
            Location::At(region) => state.write(&region, writer),
            Location::Among(_) => {
                for region in effects.among(effects.location(a.value)).unwrap_or_default() {
                    state.write_perhaps(region, writer);
                }
            }
            Location::Unknown => state.is_clobbered = true,
            Location::Constant => {}
        }
    }
}
