//! How much of a build is done, for whoever waits for it: bytes of constants whose steps are prepared.

use crate::ir::{MethodIr, Placement, StepIr, StepKind};
use pteron_core::{Instruction, Result};
use pteron_format::{MethodDef, StoredBytes};
use std::collections::HashSet;

/// Who is told (bytes done, bytes in all) after each step; an error ends the build.
pub(crate) type Watch<'a> = &'a dyn Fn(u64, u64) -> Result<()>;

/// The steps of one method, counted by the bytes of their constants.
pub(crate) struct BuildProgress<'a> {
    ir: &'a MethodIr,
    watch: Watch<'a>,
    done: u64,
    total: u64,
}

impl<'a> BuildProgress<'a> {
    pub(crate) fn new(ir: &'a MethodIr, steps: &[StepIr], watch: Watch<'a>) -> Self {
        let total = steps.iter().fold(0u64, |sum, step| sum.saturating_add(constant_bytes(ir, step)));
        BuildProgress { ir, watch, done: 0, total }
    }

    /// A step is prepared.
    pub(crate) fn note(&mut self, step: &StepIr) -> Result<()> {
        self.done = self.done.saturating_add(constant_bytes(self.ir, step));
        (self.watch)(self.done, self.total)
    }
}

/// Bytes of the constants among the arguments of a step.
fn constant_bytes(ir: &MethodIr, step: &StepIr) -> u64 {
    let args = match &step.kind {
        StepKind::Plan { args, .. } | StepKind::Instruction(Instruction::Kernel { args, .. }) => args,
        StepKind::Instruction(_) => return 0,
    };
    args.iter()
        .flat_map(|arg| ir.leaves(*arg))
        .filter_map(|value| ir.tensor(value))
        .filter(|tensor| matches!(tensor.placement, Placement::Constant(_)))
        .fold(0, |sum, tensor| sum.saturating_add(tensor.spec.nbytes().unwrap_or(0) as u64))
}

/// Bytes of the constants that a method has in the file; what several values stand for counts once.
pub(crate) fn stored_bytes(method: &MethodDef) -> u64 {
    let ranges: HashSet<_> = method
        .tensors()
        .filter_map(|(_, tensor)| match &tensor.placement {
            Placement::Constant(StoredBytes::InFile(range)) => Some((range.start, range.end)),
            _ => None,
        })
        .collect();
    ranges.iter().fold(0, |sum, (start, end)| sum.saturating_add(end.saturating_sub(*start) as u64))
}

/// `of` bytes in proportion to `done` of `total`.
pub(crate) fn share_of(of: u64, done: u64, total: u64) -> u64 {
    let scaled = u128::from(of).saturating_mul(u128::from(done.min(total))).checked_div(u128::from(total));
    scaled.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_leave_the_whole() {
        assert_eq!(share_of(100, 1, 4), 25);
        assert_eq!(share_of(100, 9, 4), 100);
        assert_eq!(share_of(100, 0, 0), 0);
        assert_eq!(share_of(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    }
}
