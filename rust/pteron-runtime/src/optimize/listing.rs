//! Text form of the steps, for golden plans.

use crate::ir::{MethodIr, StepIr, StepKind};
use pteron_core::error::printable;
use pteron_core::memory_reserve::{text_of, within_memory_limit};
use pteron_core::{Instruction, Result};
use std::fmt::{self, Display, Formatter};

/// One line per step that is left: what it calls, its arguments, the instructions it covers, as `name` writes them.
///
/// # Errors
/// `ErrorKind::LimitExceeded` when memory for it cannot be had.
pub fn listing(ir: &MethodIr, steps: &[StepIr], name: &dyn Fn(u32) -> String) -> Result<String> {
    within_memory_limit(|| text_of(&Listing { ir, steps, name }))
}

struct Listing<'a> {
    ir: &'a MethodIr,
    steps: &'a [StepIr],
    name: &'a dyn Fn(u32) -> String,
}

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| line(f, self.ir, step, self.name))
    }
}

fn line(f: &mut Formatter<'_>, ir: &MethodIr, step: &StepIr, name: &dyn Fn(u32) -> String) -> fmt::Result {
    let list = |args: &[pteron_core::ValueId]| {
        args.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ")
    };
    let text = match &step.kind {
        StepKind::Plan { args, plan } => {
            let what = if plan.is_call() { "call" } else { "plan" };
            format!("{what} {plan} ({})", list(args))
        }
        StepKind::Instruction(Instruction::Kernel { operator, args }) => {
            let name = ir.operators.get(*operator as usize).map_or("?", String::as_str);
            format!("call {} ({})", printable(name), list(args))
        }
        StepKind::Instruction(Instruction::Delegate { delegate, args }) => {
            let name = ir.delegates.get(*delegate as usize).map_or("?", |d| d.backend.as_str());
            format!("delegate {} ({})", printable(name), list(args))
        }
        StepKind::Instruction(Instruction::Move { from, to }) => format!("move %{} -> %{}", from.0, to.0),
        StepKind::Instruction(Instruction::JumpFalse { condition, destination }) => {
            format!("jump to {} unless %{}", name(*destination), condition.0)
        }
        StepKind::Instruction(Instruction::Free { value }) => format!("free %{}", value.0),
    };
    let covers = step.covers.iter().map(|i| name(*i)).collect::<Vec<_>>().join(" ");
    writeln!(f, "[{covers}] {text}")
}
