//! What happens to a method between checking and kernel preparation: layout-only operators on
//! constants are folded ([`fold_layout`]), runs of calls become plans ([`fuse_runs`]).
//!
//! Both rest on [`flow`]: which instruction's bytes does a read see? The answer is over *bytes* of
//! the memory plan, not value ids, because exporters let values share memory without saying so.
//! Where the answer is not unique, the program runs as the file has it.

mod effects;
mod flow;
mod fold_layout;
mod fuse_runs;
mod listing;
mod strides;
#[cfg(test)]
mod tests;

pub use listing::listing;

use crate::ir::{FoldedConstant, MethodIr, StepIr, StepKind};
use pteron_core::{Result, Schema, ValueId};
use pteron_cpu::plan::{PlanSpec, RuleSwitches};

/// Names of all rewrites that can be switched off, in order.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(fold_layout::RULE).chain(pteron_cpu::graph::rules::RULES.iter().map(|r| r.name))
}

/// What the optimiser asks of the loader.
pub trait Loader {
    /// Schema of an operator, as the registered kernels have it.
    fn schema(&self, operator: &str) -> Option<&Schema>;
    /// Would `plan` find a kernel for these arguments?
    fn can_prepare(
        &self,
        ir: &MethodIr,
        folded: &[FoldedConstant],
        plan: &PlanSpec,
        args: &[ValueId],
    ) -> Result<bool>;
}

/// The result: one step per instruction, in place (`Removed` where nothing is left), so that jump
/// destinations still index it.
pub struct Optimized {
    /// Steps, index-aligned with the instructions.
    pub steps: Vec<StepIr>,
    /// Constants made at load; `Place::Folded` indexes them.
    pub folded: Vec<FoldedConstant>,
}

/// Folds and fuses. `ir.values` may grow; `ir.instructions` stays as the file has it.
pub fn optimize(ir: &mut MethodIr, loader: &dyn Loader, switches: &RuleSwitches) -> Result<Optimized> {
    let mut steps: Vec<StepIr> = ir
        .instructions
        .iter()
        .enumerate()
        .map(|(i, instruction)| StepIr {
            kind: StepKind::Instruction(instruction.clone()),
            covers: vec![u32::try_from(i).unwrap_or(u32::MAX)],
        })
        .collect();
    let mut folded = Vec::new();
    // The flow analysis costs more than the rest of load, so it runs only where it can lead to something.
    if switches.is_on(fold_layout::RULE) && fold_layout::has_candidate(ir) {
        let effects = effects::Effects::new(ir, &steps, loader);
        if let Some(flow) = flow::Flow::new(ir, &steps, &effects) {
            fold_layout::fold(ir, &mut steps, &mut folded, &effects, &flow);
        }
    }
    if !fuse_runs::has_candidate(ir) {
        return Ok(Optimized { steps, folded });
    }
    let effects = effects::Effects::new(ir, &steps, loader);
    if let Some(flow) = flow::Flow::new(ir, &steps, &effects) {
        fuse_runs::fuse(ir, &mut steps, &folded, &effects, &flow, loader, switches)?;
    }
    Ok(Optimized { steps, folded })
}
