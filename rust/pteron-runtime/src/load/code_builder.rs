//! Turns optimised steps into the executable: prepares kernels, finds out what must be bound before
//! every run, where views and moves point, and which overlaps need a look at run time.

use crate::ir::{FoldedConstant, MethodIr, Placement, StepIr, StepKind};
use crate::load::build_progress::{BuildProgress, Watch};
use crate::load::call_check::{ResolvedOperator, ResolvedOperators};
use crate::load::computed_uses::ComputedUses;
use crate::load::constants::Constants;
use crate::load::kernel_registry::KernelRegistry;
use crate::load::prepare::{Chosen, Preparer};
use crate::load::step::{Action, KernelStep, Step};
use crate::step_effects::{MemoryMap, tensor_roles};
use pteron_core::{AliasRule, Error, Instruction, Result, Schema, Scratch, ValueId, memory_reserve};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// Builds the executable of one method.
pub(crate) struct CodeBuilder<'a> {
    /// Without the constants that load made.
    preparer: Preparer<'a>,
    folded: &'a mut [FoldedConstant],
    operators: &'a ResolvedOperators,
    registry: &'a KernelRegistry,
    steps: Vec<Step>,
    kernel_count: usize,
}

/// The executable and what sessions need to know about it.
pub(crate) struct BuiltCode {
    pub steps: Vec<Step>,
    pub kernel_count: usize,
    pub scratch: Scratch,
    /// Unplanned inputs that an instruction may write: copied on entry.
    pub copied_inputs: HashSet<ValueId>,
    /// Tensors whose pointer changes within a session: put back before every run.
    pub moving: HashSet<ValueId>,
    /// (from, to) of every move and view.
    pub links: Vec<(ValueId, ValueId)>,
}

impl<'a> CodeBuilder<'a> {
    /// `folded`: the constants that load made; computed ones that no step reads as memory lose their bytes once
    /// the last step that takes them is prepared.
    pub(crate) fn new(
        preparer: Preparer<'a>,
        folded: &'a mut [FoldedConstant],
        operators: &'a ResolvedOperators,
        registry: &'a KernelRegistry,
    ) -> Self {
        CodeBuilder { preparer, folded, operators, registry, steps: vec![], kernel_count: 0 }
    }

    fn ir(&self) -> &'a MethodIr {
        self.preparer.ir
    }

    fn preparer(&self) -> Preparer<'_> {
        let constants = Constants { folded: self.folded, ..self.preparer.constants };
        Preparer { constants, ..self.preparer }
    }

    /// Adds all steps. `entries`: the step where the code of each instruction that can be jumped to begins.
    /// `watch`: who is told how far this is.
    pub(crate) fn add_steps(
        &mut self,
        steps: &[StepIr],
        entries: &[u32],
        watch: Option<Watch<'_>>,
    ) -> Result<()> {
        let mut progress = watch.map(|watch| BuildProgress::new(self.ir(), steps, watch));
        let mut uses = ComputedUses::new(self.ir(), steps);
        uses.unused(self.folded.len()).for_each(|index| self.drop_computed(index));
        for (at, step) in steps.iter().enumerate() {
            memory_reserve::check()?;
            self.add(step).map_err(|e| {
                let first = step.covers.first().copied().unwrap_or_default();
                e.method(self.ir().name.as_str()).instruction(first as usize)
            })?;
            if let Some(added) = self.steps.last() {
                uses.note(self.preparer.ir, added);
            }
            uses.done(at).for_each(|index| self.drop_computed(index));
            if let Some(progress) = &mut progress {
                progress.note(step)?;
            }
        }
        if u32::try_from(self.steps.len()).is_err() {
            return Err(Error::limit("the method has too many instructions"));
        }
        for step in &mut self.steps {
            if let Action::JumpFalse { target, .. } = &mut step.action {
                let entry = entries.get(*target as usize).copied().filter(|e| *e as usize <= steps.len());
                *target = entry.ok_or_else(|| Error::internal("a jump leads to no step"))?;
            }
        }
        Ok(())
    }

    fn drop_computed(&mut self, index: u32) {
        if let Some(constant) = self.folded.get_mut(index as usize) {
            constant.data = None;
        }
    }

    fn add(&mut self, step: &StepIr) -> Result<()> {
        let none: Box<[ValueId]> = Box::default();
        let (action, args) = match &step.kind {
            StepKind::Plan { args, plan } => {
                let op = match plan.operator.as_str() {
                    "" => None,
                    name => Some(self.operator_named(name)?),
                };
                let prepared = self.preparer().plan(plan, args)?;
                let mut chosen = prepared.map(|prepared| Chosen { prepared, declined: Box::default() });
                if let (None, true, Some(op)) = (&chosen, plan.is_call(), &op) {
                    chosen = Some(self.preparer().call(op, args)?);
                }
                let chosen =
                    chosen.ok_or_else(|| Error::internal("a plan that was accepted finds no kernel"))?;
                let schema = Arc::new(plan.schema(op.as_ref().map(|o| &*o.schema), args.len()));
                (self.kernel(chosen, &plan.to_string(), schema), args.clone())
            }
            StepKind::Instruction(Instruction::Kernel { operator, args }) => {
                let op = self
                    .operators
                    .get(*operator as usize)
                    .and_then(Option::as_ref)
                    .ok_or_else(|| Error::internal("an operator was not resolved"))?;
                let chosen =
                    self.preparer().call(op, args).map_err(|e| e.operator(op.schema.name.as_str()))?;
                (self.kernel(chosen, &op.schema.name, op.schema.clone()), args.clone())
            }
            StepKind::Instruction(Instruction::Delegate { delegate, args }) => {
                (Action::Delegate { delegate: *delegate }, args.clone())
            }
            StepKind::Instruction(Instruction::Move { from, to }) => {
                (Action::Move { from: *from, to: *to }, none)
            }
            StepKind::Instruction(Instruction::JumpFalse { condition, destination }) => {
                (Action::JumpFalse { condition: *condition, target: *destination }, none)
            }
            StepKind::Instruction(Instruction::Free { .. }) => (Action::Free, none),
        };
        self.steps.push(Step { action, args, covers: SmallVec::from_slice(&step.covers) });
        Ok(())
    }

    fn operator_named(&self, name: &str) -> Result<ResolvedOperator> {
        let kernels = self
            .registry
            .get(name)
            .ok_or_else(|| Error::internal("a plan names an operator without kernels").got(name))?;
        let schema =
            kernels.schema()?.ok_or_else(|| Error::internal("a plan names an operator without schema"))?;
        Ok(ResolvedOperator { kernels, schema })
    }

    fn kernel(&mut self, chosen: Chosen, operator: &str, schema: Arc<Schema>) -> Action {
        let Chosen { prepared, declined } = chosen;
        let state = self.kernel_count;
        self.kernel_count = state.saturating_add(1);
        Action::Kernel(KernelStep {
            alias: prepared.alias(),
            has_finish: prepared.has_finish(),
            operator: operator.into(),
            schema,
            state,
            // Decided in `finish`, when all views and moves are known.
            is_rebound: true,
            has_bound_check: false,
            overlap_check: None,
            declined,
            prepared,
        })
    }

    /// Decides what depends on the whole method.
    pub(crate) fn finish(mut self) -> Result<BuiltCode> {
        let links = self.links();
        let moving = self.decide_rebinding(&links);
        let pairs: Vec<(ValueId, ValueId)> = links.iter().map(|l| (l.from, l.to)).collect();
        let map = MemoryMap::new(self.ir(), &pairs);
        let mut copied_inputs = HashSet::new();
        let ir = self.ir();
        for step in &mut self.steps {
            let Action::Kernel(kernel) = &mut step.action else { continue };
            let roles = tensor_roles(ir, &kernel.schema, &step.args);
            if kernel.alias != AliasRule::View {
                copied_inputs.extend(map.inputs_written_by(&roles));
            }
            let is_safe = map.is_safe(&roles, kernel.alias).map_err(|e| {
                let first = step.covers.first().copied().unwrap_or_default();
                e.method(ir.name.as_str()).instruction(first as usize).operator(&*kernel.operator)
            })?;
            if !is_safe {
                kernel.overlap_check = Some(roles.into_boxed_slice());
            }
        }
        let scratch =
            pteron_cpu::executor::largest_scratch(self.steps.iter().filter_map(|s| match &s.action {
                Action::Kernel(k) => Some(k.prepared.scratch()),
                _ => None,
            }));
        Ok(BuiltCode {
            kernel_count: self.kernel_count,
            scratch,
            copied_inputs,
            moving,
            links: pairs,
            steps: self.steps,
        })
    }

    /// Every move of a tensor and every view, in step order.
    fn links(&self) -> Vec<Link> {
        let link = |(i, step): (usize, &Step)| {
            let (from, to) = step.operation().link(self.ir())?;
            Some(Link { from, to, view: matches!(step.action, Action::Kernel(_)).then_some(i) })
        };
        self.steps.iter().enumerate().filter_map(link).collect()
    }

    /// Sets `is_rebound` and `has_bound_check` of every kernel step; returns the tensors whose pointer
    /// changes within a session.
    fn decide_rebinding(&mut self, links: &[Link]) -> HashSet<ValueId> {
        let ir = self.ir();
        let mut is_varying: Vec<bool> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            is_varying.push(match &step.action {
                Action::Kernel(k) => {
                    k.has_finish
                        || k.prepared.takes_random()
                        || k.schema.has_scalar_return
                        || step.args.iter().any(|v| varies(ir, self.preparer.written, *v))
                }
                _ => false,
            });
        }
        let moving = moving_values(ir, links, &is_varying);
        for (i, step) in self.steps.iter_mut().enumerate() {
            let Action::Kernel(kernel) = &mut step.action else { continue };
            let is_moving_view = links.iter().any(|l| l.view == Some(i) && moving.contains(&l.to));
            kernel.is_rebound = is_varying.get(i).copied().unwrap_or(true) || is_moving_view;
            kernel.has_bound_check = kernel.is_rebound && kernel.prepared.scratch() != Scratch::NONE;
        }
        moving
    }
}

/// A value that takes the place of another.
struct Link {
    from: ValueId,
    to: ValueId,
    /// The step, when it is a view and not a move.
    view: Option<usize>,
}

/// Targets of moves, of views that are bound before every run, of several views, and of views of such.
fn moving_values(ir: &MethodIr, links: &[Link], is_varying: &[bool]) -> HashSet<ValueId> {
    let mut moving = HashSet::new();
    let mut defined = HashSet::new();
    for link in links {
        let is_again = !defined.insert(link.to);
        let is_rebound = link.view.is_none_or(|i| is_varying.get(i).copied().unwrap_or(true));
        if is_again || is_rebound {
            moving.insert(link.to);
        }
    }
    let has_own_pointer_per_call =
        |v: ValueId| ir.tensor(v).is_some_and(|t| matches!(t.placement, Placement::Unplanned));
    loop {
        let before = moving.len();
        for link in links {
            if moving.contains(&link.from) || has_own_pointer_per_call(link.from) {
                moving.insert(link.to);
            }
        }
        if moving.len() == before {
            return moving;
        }
    }
}

/// Can what a kernel's `bind` reads of this value differ between two runs?
fn varies(ir: &MethodIr, written: &HashSet<ValueId>, id: ValueId) -> bool {
    ir.leaves(id).any(|v| match ir.tensor(v) {
        Some(tensor) => tensor.spec.is_dynamic(),
        None => written.contains(&v),
    })
}
