//! How long the bytes of constants that load computed are needed: a folded weight of which a kernel has made its
//! packed copy would lie in memory beside all the packs that are still to come.

use crate::ir::{ConstantRef, MethodIr, Placement, StepIr};
use crate::load::step::{Action, Step};
use crate::step_effects::Operation;
use pteron_core::ValueId;
use std::collections::{HashMap, HashSet};

/// Which step is the last to take each folded constant, and which are read as memory.
pub(crate) struct ComputedUses {
    last: HashMap<u32, usize>,
    /// By step, those that it is the last to take.
    ending: HashMap<usize, Vec<u32>>,
    read: HashSet<u32>,
}

impl ComputedUses {
    /// Of the steps of a method.
    pub(crate) fn new(ir: &MethodIr, steps: &[StepIr]) -> ComputedUses {
        let mut last = HashMap::new();
        for (at, step) in steps.iter().enumerate() {
            for id in Operation::of_step(step).named() {
                last.extend(folded(ir, id).map(|index| (index, at)));
            }
        }
        // What callers get stays.
        for id in &ir.outputs {
            last.extend(folded(ir, *id).map(|index| (index, usize::MAX)));
        }
        let mut ending: HashMap<usize, Vec<u32>> = HashMap::new();
        for (index, at) in &last {
            ending.entry(*at).or_default().push(*index);
        }
        ComputedUses { last, ending, read: HashSet::new() }
    }

    /// Those of `count` folded constants that no step takes.
    pub(crate) fn unused(&self, count: usize) -> impl Iterator<Item = u32> + use<> {
        let all = 0..u32::try_from(count).unwrap_or(u32::MAX);
        let unused: Vec<u32> = all.filter(|index| !self.last.contains_key(index)).collect();
        unused.into_iter()
    }

    /// Notes what a prepared step reads as memory.
    pub(crate) fn note(&mut self, ir: &MethodIr, step: &Step) {
        for (position, id) in step.args.iter().enumerate() {
            let is_read = match &step.action {
                Action::Kernel(kernel) => kernel.prepared.needs(position),
                _ => true,
            };
            if is_read {
                self.read.extend(folded(ir, *id));
            }
        }
    }

    /// Those whose last step is number `at`, and that nobody reads as memory.
    pub(crate) fn done(&mut self, at: usize) -> impl Iterator<Item = u32> + use<> {
        let mut done = self.ending.remove(&at).unwrap_or_default();
        done.retain(|index| !self.read.contains(index));
        done.into_iter()
    }
}

/// The folded constants that a value is, or that lie in it.
fn folded(ir: &MethodIr, id: ValueId) -> impl Iterator<Item = u32> {
    ir.leaves(id).filter_map(|id| match ir.tensor(id)?.placement {
        Placement::Constant(ConstantRef::Folded(index)) => Some(index),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::TensorIr;
    use pteron_core::{DType, Device, Instruction, TensorSpec};
    use smallvec::SmallVec;

    #[test]
    fn what_no_later_step_takes_and_nobody_reads_is_done() {
        let mut ir = MethodIr::default();
        for index in 0..4 {
            let spec = TensorSpec::contiguous(DType::Float32, &[2]).unwrap();
            let placement = Placement::Constant(ConstantRef::Folded(index));
            ir.values.push(TensorIr { spec, placement, device: Device::Cpu, name: None }.into());
        }
        let [a, b, c, d] = [0, 1, 2, 3].map(ValueId);
        ir.outputs.push(d);
        let kernel = |args: &[ValueId]| StepIr::of(0, Instruction::Kernel { operator: 0, args: args.into() });
        let steps = [kernel(&[a, b]), kernel(&[a, d]), kernel(&[b])];
        let mut uses = ComputedUses::new(&ir, &steps);
        assert_eq!(uses.unused(4).collect::<Vec<_>>(), [c.0]);
        assert_eq!(uses.done(0).count(), 0);
        assert_eq!(uses.done(1).collect::<Vec<_>>(), [a.0]);
        // A delegate reads its arguments as memory.
        let args = [b].into();
        uses.note(&ir, &Step { action: Action::Delegate { delegate: 0 }, args, covers: SmallVec::new() });
        assert_eq!(uses.done(2).count(), 0);
    }
}
