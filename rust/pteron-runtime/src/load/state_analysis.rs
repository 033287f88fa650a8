//! Does a method leave something behind that its next call sees? It does when a run can read planned
//! bytes before it has written them, and some instruction writes those bytes.
//!
//! Forward data flow over the steps: which bytes have certainly been written by this run? At joins
//! only what both paths have written counts.

use crate::ir::{MethodIr, Placement};
use crate::load::code_builder::tensor_roles;
use crate::load::memory_map::ArgumentRole;
use crate::load::step::{Action, Step};
use pteron_core::ValueId;
use std::collections::{BTreeSet, HashMap};

/// An operator that writes one slice of its first argument per call; loops fill the whole with it.
const COPY_INDEX: &str = "executorch_prim::et_copy_index.tensor";
/// Walks over the chain after which the answer is "yes": a file with so many jumps has no right to
/// more time.
const MOST_WALKS: usize = 1000;

/// Planned bytes: arena, start, end.
type Range = (u32, usize, usize);

/// What a run has certainly written at some point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Written {
    // Sorted, disjoint, not touching.
    ranges: Vec<Range>,
    // Values that point at something else since a move or a view.
    redirected: BTreeSet<ValueId>,
}

impl Written {
    fn add(&mut self, (arena, mut start, mut end): Range) {
        if start >= end {
            return;
        }
        self.ranges.retain(|(a, s, e)| {
            let touches = *a == arena && *s <= end && start <= *e;
            if touches {
                start = start.min(*s);
                end = end.max(*e);
            }
            !touches
        });
        let at = self.ranges.partition_point(|r| *r < (arena, start, end));
        self.ranges.insert(at, (arena, start, end));
    }

    fn covers(&self, (arena, start, end): Range) -> bool {
        start >= end || self.ranges.iter().any(|(a, s, e)| *a == arena && *s <= start && end <= *e)
    }

    fn intersect(&self, other: &Written) -> Written {
        let mut out = Written {
            ranges: vec![],
            redirected: self.redirected.intersection(&other.redirected).copied().collect(),
        };
        for (arena, start, end) in &self.ranges {
            for (a, s, e) in other.ranges.iter().filter(|(a, ..)| a == arena) {
                out.add((*a, *s.max(start), *e.min(end)));
            }
        }
        out
    }
}

/// What one step does to planned bytes.
#[derive(Default)]
struct Effect {
    reads: Vec<ValueId>,
    writes: Vec<ValueId>,
    redirects: Option<ValueId>,
    jump: Option<usize>,
}

/// See the module. `delegate_outputs` says how many of each delegate's arguments are outputs.
pub(crate) fn is_stateful(ir: &MethodIr, steps: &[Step], delegate_outputs: &[usize]) -> bool {
    let effects: Vec<Effect> = steps.iter().map(|s| effect(ir, s, delegate_outputs)).collect();
    let mut ever_written: Vec<Range> = Vec::new();
    for id in effects.iter().flat_map(|e| &e.writes) {
        ever_written.extend(place(ir, *id));
    }
    let mut entry = Written::default();
    for range in ir.inputs.iter().filter_map(|id| place(ir, *id)) {
        entry.add(range);
    }
    let is_persistent = |(arena, start, end): Range| {
        ever_written.iter().any(|(a, s, e)| *a == arena && (*s).max(start) < (*e).min(end))
    };
    // States on arrival at jump targets.
    let mut arrivals: HashMap<usize, Written> = HashMap::new();
    let mut pending = vec![(0, entry)];
    for _ in 0..MOST_WALKS {
        let Some((start, state)) = pending.pop() else { return false };
        let end = walk(ir, &effects, start, state, &mut arrivals, &mut pending, &is_persistent);
        if end == Walk::FoundState {
            return true;
        }
    }
    true
}

#[derive(PartialEq)]
enum Walk {
    FoundState,
    Done,
}

fn walk(
    ir: &MethodIr,
    effects: &[Effect],
    start: usize,
    mut state: Written,
    arrivals: &mut HashMap<usize, Written>,
    pending: &mut Vec<(usize, Written)>,
    is_persistent: &dyn Fn(Range) -> bool,
) -> Walk {
    let targets: BTreeSet<usize> = effects.iter().filter_map(|e| e.jump).collect();
    let mut is_first = true;
    for (i, effect) in effects.iter().enumerate().skip(start) {
        if targets.contains(&i) && !is_first && !arrive(arrivals, i, &mut state) {
            return Walk::Done;
        }
        is_first = false;
        for id in &effect.reads {
            if state.redirected.contains(id) {
                continue;
            }
            if let Some(range) = place(ir, *id)
                && !state.covers(range)
                && is_persistent(range)
            {
                return Walk::FoundState;
            }
        }
        if let Some(id) = effect.redirects {
            state.redirected.insert(id);
        }
        for id in &effect.writes {
            if let (false, Some(range)) = (state.redirected.contains(id), place(ir, *id)) {
                state.add(range);
            }
        }
        if let Some(target) = effect.jump {
            let mut arriving = state.clone();
            if arrive(arrivals, target, &mut arriving) {
                pending.push((target, arriving));
            }
        }
    }
    // Outputs are copied out at the end.
    let exposed = ir.outputs.iter().filter(|id| !state.redirected.contains(id));
    for range in exposed.filter_map(|id| place(ir, *id)) {
        if !state.covers(range) && is_persistent(range) {
            return Walk::FoundState;
        }
    }
    Walk::Done
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
    let mut e = Effect::default();
    match &step.action {
        Action::Kernel(k) => {
            let is_view = k.alias == pteron_core::AliasRule::View;
            let inputs_follow = k.schema.args.first().is_some_and(|a| a.is_output);
            for role in tensor_roles(ir, &k.schema, &step.args) {
                match role {
                    ArgumentRole { value, is_output: true } if is_view => e.redirects = Some(value),
                    // `self` of an in-place operator keeps what it does not overwrite.
                    ArgumentRole { value, is_output: true }
                        if inputs_follow && &*k.operator != COPY_INDEX =>
                    {
                        e.reads.push(value);
                        e.writes.push(value);
                    }
                    ArgumentRole { value, is_output: true } => e.writes.push(value),
                    ArgumentRole { value, is_output: false } => e.reads.push(value),
                }
            }
        }
        Action::Delegate { delegate } => {
            let outputs = delegate_outputs.get(*delegate as usize).copied().unwrap_or(0);
            let split = step.args.len().saturating_sub(outputs);
            for (i, id) in step.args.iter().enumerate() {
                if i < split { e.reads.push(*id) } else { e.writes.push(*id) }
            }
        }
        Action::Move { from, to } => {
            e.reads.push(*from);
            e.redirects = Some(*to);
        }
        Action::JumpFalse { condition, target } => {
            e.reads.push(*condition);
            e.jump = Some(*target as usize);
        }
        Action::Free => {}
    }
    e
}

/// The planned bytes of a tensor.
fn place(ir: &MethodIr, id: ValueId) -> Option<Range> {
    let tensor = ir.tensor(id)?;
    match &tensor.placement {
        Placement::Planned { arena, offset, .. } => {
            Some((*arena, *offset, offset.saturating_add(tensor.spec.nbytes().ok()?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_intersect() {
        let mut a = Written::default();
        a.add((0, 0, 8));
        a.add((0, 16, 24));
        assert!(!a.covers((0, 4, 20)));
        a.add((0, 8, 16));
        assert_eq!(a.ranges, [(0, 0, 24)]);
        let mut b = Written::default();
        b.add((0, 4, 12));
        b.add((1, 0, 4));
        assert_eq!(a.intersect(&b).ranges, [(0, 4, 12)]);
        assert!(a.covers((3, 7, 7)));
    }
}
