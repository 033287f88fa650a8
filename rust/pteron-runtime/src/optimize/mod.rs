//! What happens to a method between checking and kernel preparation: layout-only operators on
//! constants are folded ([`fold_layout`]), runs of calls become plans ([`runs`]).
//!
//! Both rest on [`flow`]: which instruction's bytes does a read see? The answer is over *bytes* of
//! the memory plan, not value ids, because exporters let values share memory without saying so.
//! Where the answer is not unique, the program runs as the file has it.

mod effects;
mod flow;
mod fold_layout;
mod listing;
mod runs;
mod strides;
#[cfg(test)]
mod tests;

pub use listing::listing;

use crate::ir::{FoldedConstant, MethodIr, StepIr};
use pteron_core::{
    AlignedBuffer, ArgSpec, ConstantKey, ConstantView, Instruction, Result, Schema, TensorSpec, ValueId,
    memory_reserve,
};
use pteron_cpu::graph::rules::{self, Rule};
use pteron_cpu::plan::{PlanSpec, RuleSwitches};
use pteron_kernels::single_call::CallArg;
use std::sync::Arc;

/// Names of all rewrites that can be switched off, in order.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(fold_layout::RULE).chain(rules::RULES.iter().map(|r| r.name))
}

/// What the optimiser asks of the loader.
pub trait Loader {
    /// Schema of an operator, as the registered kernels have it.
    fn schema(&self, operator: &str) -> Option<&Schema>;
    /// Would `plan` find a kernel for these arguments?
    fn can_prepare(&self, plan: &PlanSpec, args: &[ArgSpec<'_>]) -> Result<bool>;
    /// What preparing knows about a value.
    fn arg_spec<'s>(&'s self, ir: &'s MethodIr, folded: &'s [FoldedConstant], value: ValueId) -> ArgSpec<'s>;
    /// A constant computed from others; see [`pteron_core::PackStore::derive`].
    fn derive(
        &self,
        recipe: &str,
        sources: &[ConstantView<'_>],
        spec: &TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<(ConstantKey, Arc<AlignedBuffer>)>>;
    /// The result of a call of `operator`, the output being argument `out` of `args`, with the shape that it
    /// has there; nothing where that cannot be known at load.
    fn evaluate(&self, operator: &str, args: Vec<CallArg>, out: usize) -> Option<AlignedBuffer>;
}

/// The result.
pub struct Optimized {
    /// Steps in the order in which they are executed.
    pub steps: Vec<StepIr>,
    /// For each instruction that can be jumped to, and for the end of the chain: the step where its code
    /// begins (an index into `steps`, or their number). Others may hold any number.
    pub entries: Vec<u32>,
    /// Constants made at load; `ConstantRef::Folded` indexes them.
    pub folded: Vec<FoldedConstant>,
}

/// The instructions of a method while rules work on them, by their index in the file; `None` where one was
/// folded away.
type Chain = [Option<Instruction>];

/// Folds and fuses. `ir.values` and the arenas may change; `ir.instructions` stays as the file has it.
pub fn optimize(ir: &mut MethodIr, loader: &dyn Loader, switches: &RuleSwitches) -> Result<Optimized> {
    let mut chain: Vec<Option<Instruction>> =
        memory_reserve::collected(ir.instructions.iter().map(|i| Some(i.clone())))?;
    let mut folded = Vec::new();
    // The flow analysis costs more than the rest of load, so it runs only where it can lead to something.
    if switches.is_on(fold_layout::RULE) && fold_layout::has_candidate(ir) {
        let effects = effects::Effects::new(ir, &chain, loader);
        if let Some(flow) = flow::Flow::new(ir, &chain, &effects) {
            fold_layout::fold(ir, &mut chain, &mut folded, &effects, &flow);
        }
    }
    memory_reserve::check()?;
    let rules: Vec<&'static Rule> = rules::candidates(&ir.operators, switches).collect();
    if !rules.is_empty() {
        let effects = effects::Effects::new(ir, &chain, loader);
        if let Some(flow) = flow::Flow::new(ir, &chain, &effects) {
            let known = runs::Analysis { chain: &chain, effects: &effects, flow: &flow, loader };
            if let Some(compiled) = runs::compile(ir, &mut folded, known, &rules)? {
                return Ok(compiled);
            }
        }
    }
    as_left(chain, folded)
}

/// One step for each instruction that is left.
fn as_left(chain: Vec<Option<Instruction>>, folded: Vec<FoldedConstant>) -> Result<Optimized> {
    let mut steps = memory_reserve::list_of(chain.len())?;
    let mut entries = memory_reserve::list_of(chain.len().saturating_add(1))?;
    let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    for (i, instruction) in chain.into_iter().enumerate() {
        entries.push(index(steps.len()));
        steps.extend(instruction.map(|instruction| StepIr::of(index(i), instruction)));
    }
    entries.push(index(steps.len()));
    Ok(Optimized { steps, entries, folded })
}
