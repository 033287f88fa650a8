//! The step loop. Unsafe island: it hands the session's values to kernels that load has checked.
//!
//! It resolves nothing, allocates nothing and takes no lock: a step is a stop-word load, a budget
//! subtraction, a match and the kernel.

use crate::load::method_code::MethodCode;
use crate::load::step::{Action, KernelStep, Step};
use crate::session::annotate::step_error;
use crate::session::budget::lend;
use crate::session::cancel::CancelHandle;
use crate::session::delegate_call;
use crate::session::slots::Session;
use crate::session::tracer::{StepInfo, Tracer};
use crate::session::watch::Watch;
use crate::step_effects::{ArgumentRole, pair_rule};
use pteron_core::{
    AliasRule, ArgView, Args, BindArgs, DelegateEvent, Error, Members, Result, Value, ValueId,
};
use pteron_cpu::Executor;
use std::collections::HashMap;

/// Who watches a run; absent in most.
#[derive(Default)]
pub(crate) struct Observers<'a> {
    pub tracer: Option<&'a mut dyn Tracer>,
    /// Who looks at signals and the clock.
    pub watch: Option<&'a Watch<'a>>,
}

/// One run.
pub(crate) struct Run<'a, 'o> {
    pub code: &'a MethodCode,
    pub cancel: &'a CancelHandle,
    pub executor: Executor<'a>,
    /// Instructions that may still be executed.
    pub budget: u64,
    /// The budget at the start, for messages.
    pub full_budget: u64,
    pub observers: Observers<'o>,
    /// Delegate calls whose memory has to be looked at, by step.
    pub open_calls: &'a HashMap<usize, Box<[ArgumentRole]>>,
}

impl Run<'_, '_> {
    /// Executes all steps.
    pub(crate) fn execute(&mut self, session: &mut Session) -> Result<()> {
        let code = self.code;
        let is_watched = self.observers.tracer.is_some() || self.observers.watch.is_some();
        let mut at = 0usize;
        while let Some(step) = code.steps.get(at) {
            if !self.cancel.is_running() {
                return Err(step_error(code, step, &session.values, self.cancel.error()));
            }
            match self.budget.checked_sub(step.covers.len() as u64) {
                Some(left) => self.budget = left,
                None => return Err(step_error(code, step, &session.values, self.budget_spent())),
            }
            let result =
                if is_watched { self.watched_step(session, step, at) } else { self.step(session, step, at) };
            match result {
                Ok(None) => at = at.wrapping_add(1),
                Ok(Some(target)) => at = target as usize,
                Err(e) => return Err(step_error(code, step, &session.values, e)),
            }
        }
        Ok(())
    }

    #[cold]
    fn budget_spent(&self) -> Error {
        Error::limit("the instruction budget is spent")
            .expected(format!("at most {} instructions", self.full_budget))
            .hint("the program loops longer than the caller allows; raise budget or limits.instructions")
    }

    /// One step; the step to go on with if it is not the next.
    #[inline(always)]
    fn step(&mut self, session: &mut Session, step: &Step, at: usize) -> Result<Option<u32>> {
        match &step.action {
            Action::Kernel(kernel) => self.kernel(session, kernel, step).map(|()| None),
            Action::Delegate { delegate } => {
                self.check_delegate_call(session, at)?;
                let (code, cancel, watch) = (self.code, self.cancel, self.observers.watch);
                let (result, left) = lend(self.budget, || {
                    let known = session.delegates.known(*delegate)?;
                    delegate_call::call(code, &mut session.values, known, step, cancel, watch, None)
                });
                self.budget = left;
                result.map(|()| None)
            }
            Action::Move { from, to } => move_value(&mut session.values, *from, *to).map(|()| None),
            Action::JumpFalse { condition, target } => {
                is_true(&session.values, *condition).map(|yes| if yes { None } else { Some(*target) })
            }
            Action::Free => Ok(None),
        }
    }

    #[inline(always)]
    fn kernel(&self, session: &mut Session, kernel: &KernelStep, step: &Step) -> Result<()> {
        if kernel.is_rebound {
            rebind(session, kernel, step)?;
        }
        if let Some(roles) = &kernel.overlap_check {
            check_overlap(session, roles, kernel.alias)?;
        }
        let Session { values, calls, scratch, .. } = session;
        let call =
            calls.get_mut(kernel.state).ok_or_else(|| Error::internal("a kernel has no session state"))?;
        // SAFETY: `grid` and `bound` are of the last bind of these arguments; load, or the check just now, has seen that
        // outputs overlap inputs only as the kernel allows, and load that scratch is the largest of all steps.
        unsafe {
            let args = Args::new(values, &step.args);
            self.executor.run_bound(&*kernel.prepared, &call.bound, &args, &call.grid, scratch)?;
        }
        if kernel.has_finish {
            // SAFETY: every tensor has memory for its shape (see `slots`); `finish` reads shapes and scalars, as `bind` does.
            let mut args = unsafe { BindArgs::new(values, &step.args) };
            kernel.prepared.finish(&mut args, &mut call.bound)?;
        }
        Ok(())
    }

    /// A step with somebody watching.
    fn watched_step(&mut self, session: &mut Session, step: &Step, at: usize) -> Result<Option<u32>> {
        if let Some(watch) = self.observers.watch {
            watch.before_step()?;
        }
        match self.observers.tracer.take() {
            None => self.step(session, step, at),
            Some(tracer) => {
                let result = self.traced_step(session, step, at, &mut *tracer);
                self.observers.tracer = Some(tracer);
                result
            }
        }
    }

    /// A step that is reported.
    #[cold]
    fn traced_step(
        &mut self,
        session: &mut Session,
        step: &Step,
        at: usize,
        tracer: &mut dyn Tracer,
    ) -> Result<Option<u32>> {
        let code = self.code;
        let place = code.place(at);
        let info = StepInfo {
            method: &code.ir.name,
            step: at,
            name: step.name(&code.ir.delegates),
            covers: &place.instructions,
            handles: &place.handles,
            parts: &place.parts,
        };
        tracer.step_begin(&info);
        if tracer.stops_run() {
            self.cancel.cancel();
            return Err(self.cancel.error());
        }
        let result = match &step.action {
            Action::Delegate { delegate } => {
                tracer.delegate_begin(&info, info.name);
                let checked = self.check_delegate_call(session, at);
                let (cancel, watch) = (self.cancel, self.observers.watch);
                let (result, left) = lend(self.budget, || {
                    checked?;
                    let mut report = |event: DelegateEvent<'_>| {
                        tracer.delegate_event(&info, info.name, &event);
                        if tracer.stops_run() {
                            cancel.cancel();
                        }
                    };
                    let known = session.delegates.known(*delegate)?;
                    let (values, report) = (&mut session.values, Some(&mut report as _));
                    delegate_call::call(code, values, known, step, cancel, watch, report)
                });
                self.budget = left;
                tracer.delegate_end(&info, info.name, result.as_ref().err());
                result.map(|()| None)
            }
            _ => self.step(session, step, at),
        };
        if result.is_ok() && tracer.wants_values(&info) {
            step_values(session, step, &mut |position, value| tracer.value(&info, position, value));
        }
        tracer.step_end(&info, result.as_ref().err());
        if tracer.stops_run() {
            self.cancel.cancel();
        }
        result
    }

    #[inline(always)]
    fn check_delegate_call(&self, session: &Session, at: usize) -> Result<()> {
        match self.open_calls.is_empty() {
            true => Ok(()),
            false => match self.open_calls.get(&at) {
                Some(roles) => check_overlap(session, roles, AliasRule::None),
                None => Ok(()),
            },
        }
    }
}

/// Shows what a step has written: position of the argument, value.
fn step_values(session: &Session, step: &Step, show: &mut dyn FnMut(usize, ArgView<'_>)) {
    let mut show = |position: usize, id: ValueId| match session.values.get(id.index()) {
        Some(Value::Tensor(t)) => show(position, ArgView::Tensor(t.view())),
        Some(Value::Int(v)) => show(position, ArgView::Int(*v)),
        Some(Value::Double(v)) => show(position, ArgView::Double(*v)),
        Some(Value::Bool(v)) => show(position, ArgView::Bool(*v)),
        _ => {}
    };
    let first_output = match &step.action {
        Action::Kernel(kernel) => {
            for (position, (arg, id)) in kernel.schema.args.iter().zip(&step.args).enumerate() {
                if arg.is_output {
                    match session.values.get(id.index()).and_then(Value::as_list) {
                        Some(list) => list.iter().for_each(|member| show(position, member)),
                        None => show(position, *id),
                    }
                }
            }
            if kernel.schema.has_scalar_return { kernel.schema.args.len() } else { usize::MAX }
        }
        Action::Delegate { delegate } => {
            let count = session.delegates.num_outputs(*delegate);
            step.args.len().saturating_sub(count)
        }
        Action::Move { to, .. } => {
            show(1, *to);
            usize::MAX
        }
        _ => usize::MAX,
    };
    for (position, id) in step.args.iter().enumerate().skip(first_output) {
        show(position, *id);
    }
}

/// Scratch was sized from the bounds, dimension by dimension; a view can keep within the element count
/// and still exceed one of them.
fn check_bounds(values: &[Value], args: &[ValueId]) -> Result<()> {
    let check = |id: ValueId| match values.get(id.index()) {
        Some(Value::Tensor(t)) if t.meta().shape().iter().zip(t.bound().iter()).any(|(n, max)| n > max) => {
            Err(Error::kernel("a tensor exceeds the bound that the program states for one of its dimensions")
                .expected(format!("at most {}", t.bound()))
                .got(t.meta().shape().to_string()))
        }
        _ => Ok(()),
    };
    for id in args {
        check(*id)?;
        values.get(id.index()).map_or(Members::All(&[]), Value::members).iter().try_for_each(check)?;
    }
    Ok(())
}

/// Binds a kernel to arguments that may have other shapes than in the last run.
#[inline]
fn rebind(session: &mut Session, kernel: &KernelStep, step: &Step) -> Result<()> {
    let Session { values, calls, random, .. } = session;
    let call = calls.get_mut(kernel.state).ok_or_else(|| Error::internal("a kernel has no session state"))?;
    // SAFETY: every tensor has memory for its shape (see `slots`); `bind` reads shapes and
    // scalars, and resizes within the memory.
    let mut args = unsafe { BindArgs::new(values, &step.args) }.with_random(random);
    call.grid = kernel.prepared.bind(&mut args, &mut call.bound)?;
    match kernel.has_bound_check {
        true => check_bounds(values, &step.args),
        false => Ok(()),
    }
}

/// Outputs lie in writable memory and clear of everything else, as `rule` demands.
#[cold]
fn check_overlap(session: &Session, roles: &[ArgumentRole], rule: AliasRule) -> Result<()> {
    let range = |id: ValueId| -> Result<(usize, usize)> {
        let slot = session.slot(id)?;
        let start = slot.data() as usize;
        Ok((start, start.saturating_add(slot.meta().nbytes())))
    };
    for (i, out) in roles.iter().enumerate().filter(|(_, r)| r.is_output) {
        let slot = session.slot(out.value)?;
        if rule == AliasRule::View {
            continue;
        }
        if slot.meta().nbytes() > 0 && !session.is_writable(slot.data(), slot.meta().nbytes()) {
            return Err(Error::kernel("an instruction would write to a constant or to an input")
                .got(format!("value {}, which a move or view has pointed there", out.value.0)));
        }
        let a = range(out.value)?;
        for (j, other) in roles.iter().enumerate() {
            if i == j || (other.is_output && j < i) || (out.value == other.value && !other.is_output) {
                continue;
            }
            let b = range(other.value)?;
            let other_slot = session.slot(other.value)?;
            let may_share = pair_rule(rule, j) == AliasRule::InPlace
                && !other.is_output
                && a == b
                && slot.meta().shape() == other_slot.meta().shape()
                && slot.meta().dim_order() == other_slot.meta().dim_order();
            if a.0.max(b.0) < a.1.min(b.1) && !may_share {
                return Err(Error::kernel("an output overlaps another argument of the same call")
                    .expected("disjoint memory")
                    .got(format!("values {} and {}", out.value.0, other.value.0)));
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn move_value(values: &mut [Value], from: ValueId, to: ValueId) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let Ok([source, target]) = values.get_disjoint_mut([from.index(), to.index()]) else {
        return Err(Error::internal("a checked value index is out of range"));
    };
    match (&*source, target) {
        (Value::Tensor(source), Value::Tensor(target)) => {
            let shape = *source.meta().shape();
            target.alias(source, &shape)
        }
        (source, target) => {
            target.clone_from(source);
            Ok(())
        }
    }
}

#[inline(always)]
fn is_true(values: &[Value], condition: ValueId) -> Result<bool> {
    match values.get(condition.index()) {
        Some(Value::Bool(b)) => Ok(*b),
        Some(Value::Tensor(t)) => Ok(!t.view().as_bytes().contains(&0)),
        other => Err(Error::kernel("the condition of a jump is not a bool")
            .expected("bool")
            .got(other.map_or("nothing".to_string(), |v| v.kind().to_string()))),
    }
}
