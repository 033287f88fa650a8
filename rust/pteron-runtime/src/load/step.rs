//! The executable: what a session does, one after the other.

use crate::load::prepare::Declined;
use crate::step_effects::{ArgumentRole, Operation};
use pteron_core::{AliasRule, Prepared, Schema, ValueId};
use smallvec::SmallVec;
use std::sync::Arc;

/// One step.
pub(crate) struct Step {
    pub action: Action,
    /// Arguments of the kernel or delegate.
    pub args: Box<[ValueId]>,
    /// Instructions of the file that it stands for, in order; at least one.
    pub covers: SmallVec<[u32; 2]>,
}

/// What a step does.
pub(crate) enum Action {
    /// Runs a kernel, a fused one or a single one.
    Kernel(KernelStep),
    /// Calls a delegate.
    Delegate {
        /// Index into the method's delegates.
        delegate: u32,
    },
    /// Makes `to` what `from` is.
    Move { from: ValueId, to: ValueId },
    /// Goes to step `target` when the condition is false.
    JumpFalse { condition: ValueId, target: u32 },
    /// Nothing: planned memory is not freed.
    Free,
}

/// A prepared kernel at its place.
pub(crate) struct KernelStep {
    pub prepared: Box<dyn Prepared>,
    pub alias: AliasRule,
    /// What it computes, as errors and listings name it: an operator, or a plan.
    pub operator: Box<str>,
    /// Schema of the operator whose argument convention applies.
    pub schema: Arc<Schema>,
    /// Index of its state in a session.
    pub state: usize,
    /// Bound before every run, not only once per session.
    pub is_rebound: bool,
    /// Extents have to stay within their bounds, dimension by dimension, since scratch was sized from
    /// the bounds.
    pub has_bound_check: bool,
    /// Output shapes depend on data.
    pub has_finish: bool,
    /// Where load could not rule out a forbidden overlap: the role of each tensor argument, for a
    /// check before every run.
    pub overlap_check: Option<Box<[ArgumentRole]>>,
    /// The kernels that were asked before this one, for tools.
    pub declined: Box<[Declined]>,
}

impl Step {
    /// What it does with its arguments.
    pub(crate) fn operation(&self) -> Operation<'_> {
        let args = &self.args;
        match &self.action {
            Action::Kernel(k) => {
                Operation::Kernel { schema: Some(&k.schema), is_view: k.alias == AliasRule::View, args }
            }
            Action::Delegate { .. } => Operation::Delegate { outputs: None, args },
            Action::Move { from, to } => Operation::Move { from: *from, to: *to },
            Action::JumpFalse { condition, .. } => Operation::Jump { condition: *condition },
            Action::Free => Operation::Free,
        }
    }

    /// Kernel, backend or instruction, for traces and listings.
    pub(crate) fn name<'a>(&'a self, backends: &'a [pteron_format::DelegateDef]) -> &'a str {
        match &self.action {
            Action::Kernel(k) => k.prepared.name(),
            Action::Delegate { delegate } => {
                backends.get(*delegate as usize).map_or("delegate", |d| d.backend.as_str())
            }
            Action::Move { .. } => "move",
            Action::JumpFalse { .. } => "jump_false",
            Action::Free => "free",
        }
    }
}
