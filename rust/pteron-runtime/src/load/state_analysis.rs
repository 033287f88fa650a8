//! Does a method leave something behind that its next call sees? It does when a run can read planned
//! bytes before it has written them, and some instruction writes those bytes.
//!
//! Forward data flow over the steps: which bytes have certainly been written by this run? At joins
//! only what both paths have written counts.

use crate::ir::MethodIr;
use crate::load::step::{Action, Step};
use crate::step_effects::{Accesses, ByteRegion, Operation};
use pteron_core::ValueId;
use std::collections::{BTreeSet, HashMap};

/// An operator that writes one slice of its first argument per call; loops fill the whole with it.
const COPY_INDEX: &str = "executorch_prim::et_copy_index.tensor";
/// Walks over the chain after which the answer is "yes": a file with so many jumps has no right to
/// more time.
const MOST_WALKS: usize = 1000;

/// What a run has certainly written at some point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Written {
    // Sorted, disjoint, not touching.
    ranges: Vec<ByteRegion>,
    // Values that point at something else since a move or a view.
    redirected: BTreeSet<ValueId>,
}

impl Written {
    fn add(&mut self, mut region: ByteRegion) {
        if region.start >= region.end {
            return;
        }
        self.ranges.retain(|known| {
            let touches =
                known.space == region.space && known.start <= region.end && region.start <= known.end;
            if touches {
                region.start = region.start.min(known.start);
                region.end = region.end.max(known.end);
            }
            !touches
        });
        let at = self.ranges.partition_point(|known| *known < region);
        self.ranges.insert(at, region);
    }

    fn covers(&self, region: &ByteRegion) -> bool {
        region.start >= region.end || self.ranges.iter().any(|known| known.covers(region))
    }

    fn intersect(&self, other: &Written) -> Written {
        let mut out = Written {
            ranges: vec![],
            redirected: self.redirected.intersection(&other.redirected).copied().collect(),
        };
        for a in &self.ranges {
            for b in other.ranges.iter().filter(|b| b.space == a.space) {
                out.add(ByteRegion { space: a.space, start: a.start.max(b.start), end: a.end.min(b.end) });
            }
        }
        out
    }
}

/// What one step does to planned bytes.
struct Effect {
    accesses: Accesses,
    /// The tensor that it points somewhere.
    redirects: Option<ValueId>,
    jump: Option<usize>,
}

/// Does a run of `steps` leave state behind? `delegate_outputs` says how many of each delegate's arguments are
/// outputs.
pub(crate) fn is_stateful(ir: &MethodIr, steps: &[Step], delegate_outputs: &[usize]) -> bool {
    let effects: Vec<Effect> = steps.iter().map(|s| effect(ir, s, delegate_outputs)).collect();
    let writes = effects.iter().flat_map(|e| &e.accesses.writes);
    let mut walks = Walks {
        ir,
        ever_written: writes.filter_map(|w| ByteRegion::planned(ir, w.value)).collect(),
        targets: effects.iter().filter_map(|e| e.jump).collect(),
        effects,
        arrivals: HashMap::new(),
        pending: vec![],
    };
    let mut entry = Written::default();
    ir.inputs.iter().filter_map(|id| ByteRegion::planned(ir, *id)).for_each(|region| entry.add(region));
    walks.pending.push((0, entry));
    for _ in 0..MOST_WALKS {
        let Some((start, state)) = walks.pending.pop() else { return false };
        if walks.finds_state(start, state) {
            return true;
        }
    }
    true
}

/// Walks over the chain.
struct Walks<'a> {
    ir: &'a MethodIr,
    effects: Vec<Effect>,
    /// Planned bytes that some step writes.
    ever_written: Vec<ByteRegion>,
    /// Steps that jumps lead to.
    targets: BTreeSet<usize>,
    /// What is known on arrival at jump targets.
    arrivals: HashMap<usize, Written>,
    /// Where walks have yet to begin.
    pending: Vec<(usize, Written)>,
}

impl Walks<'_> {
    /// Walks from step `start` to the end or to what is known already; true where a read may find what the call
    /// before left.
    fn finds_state(&mut self, start: usize, mut state: Written) -> bool {
        for i in start..self.effects.len() {
            if self.targets.contains(&i) && i != start && !arrive(&mut self.arrivals, i, &mut state) {
                return false;
            }
            let Some(effect) = self.effects.get(i) else { continue };
            if effect.accesses.reads.iter().any(|read| self.is_left_over(&state, read.value)) {
                return true;
            }
            state.redirected.extend(effect.redirects);
            for write in &effect.accesses.writes {
                if !state.redirected.contains(&write.value)
                    && let Some(region) = ByteRegion::planned(self.ir, write.value)
                {
                    state.add(region);
                }
            }
            if let Some(target) = effect.jump {
                let mut arriving = state.clone();
                if arrive(&mut self.arrivals, target, &mut arriving) {
                    self.pending.push((target, arriving));
                }
            }
        }
        // Outputs are copied out at the end.
        self.ir.outputs.iter().any(|id| self.is_left_over(&state, *id))
    }

    /// May `value` hold bytes that the call before wrote?
    fn is_left_over(&self, state: &Written, value: ValueId) -> bool {
        !state.redirected.contains(&value)
            && ByteRegion::planned(self.ir, value).is_some_and(|region| {
                !state.covers(&region) && self.ever_written.iter().any(|written| written.overlaps(&region))
            })
    }
}

/// Joins `state` into what is known at `target`; true when that changed and has to be walked again.
fn arrive(arrivals: &mut HashMap<usize, Written>, target: usize, state: &mut Written) -> bool {
    let joined = match arrivals.get(&target) {
        None => state.clone(),
        Some(known) => known.intersect(state),
    };
    let is_new = arrivals.get(&target) != Some(&joined);
    state.clone_from(&joined);
    arrivals.insert(target, joined);
    is_new
}

fn effect(ir: &MethodIr, step: &Step, delegate_outputs: &[usize]) -> Effect {
    let operation = match &step.action {
        Action::Delegate { delegate } => Operation::Delegate {
            outputs: Some(delegate_outputs.get(*delegate as usize).copied().unwrap_or(0)),
            args: &step.args,
        },
        _ => step.operation(),
    };
    let mut accesses = operation.accesses(ir);
    if let Action::Kernel(kernel) = &step.action
        && &*kernel.operator == COPY_INDEX
    {
        accesses.reads.retain(|read| read.position != Some(0));
    }
    let jump = match &step.action {
        Action::JumpFalse { target, .. } => Some(*target as usize),
        _ => None,
    };
    Effect { accesses, redirects: operation.link(ir).map(|(_, to)| to), jump }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_effects::Space;

    #[test]
    fn ranges_merge_and_intersect() {
        let region =
            |arena: u32, start: usize, end: usize| ByteRegion { space: Space::Arena(arena), start, end };
        let mut a = Written::default();
        a.add(region(0, 0, 8));
        a.add(region(0, 16, 24));
        assert!(!a.covers(&region(0, 4, 20)));
        a.add(region(0, 8, 16));
        assert_eq!(a.ranges, [region(0, 0, 24)]);
        let mut b = Written::default();
        b.add(region(0, 4, 12));
        b.add(region(1, 0, 4));
        assert_eq!(a.intersect(&b).ranges, [region(0, 4, 12)]);
        assert!(a.covers(&region(3, 7, 7)));
    }
}
