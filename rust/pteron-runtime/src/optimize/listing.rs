//! Text form of the steps, for golden plans.

use crate::ir::{MethodIr, StepIr, StepKind};
use pteron_core::Instruction;
use pteron_core::error::printable;
use std::fmt::Write;

/// One line per step that is left: what it calls, its arguments, the instructions it covers.
pub fn listing(ir: &MethodIr, steps: &[StepIr]) -> String {
    let mut out = String::new();
    let list = |args: &[pteron_core::ValueId]| {
        args.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ")
    };
    for step in steps {
        let text = match &step.kind {
            StepKind::Removed => continue,
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
                format!("jump to {destination} unless %{}", condition.0)
            }
            StepKind::Instruction(Instruction::Free { value }) => format!("free %{}", value.0),
        };
        let covers = step.covers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        // Writing to a String cannot fail.
        let _ = writeln!(out, "[{covers}] {text}");
    }
    out
}
