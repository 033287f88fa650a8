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
mod loader;
mod runs;
#[cfg(test)]
mod tests;

pub use listing::listing;
use loader::Chain;
pub use loader::{Loader, Optimized};

use crate::ir::{FoldedConstant, MethodIr, StepIr};
use pteron_core::{Instruction, Result, memory_reserve};
use pteron_cpu::graph::rules::{self, Rule};
use pteron_cpu::plan::RuleSwitches;

/// Names of all rewrites that can be switched off, in order.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(fold_layout::RULE).chain(rules::RULES.iter().map(|r| r.name))
}

/// Folds and fuses. `ir.values` and the arenas may change; `ir.instructions` stays as it is. `folded`: the constants that
/// `ConstantRef::Folded` stands for so far.
pub fn optimize(
    ir: &mut MethodIr,
    mut folded: Vec<FoldedConstant>,
    loader: &dyn Loader,
    switches: &RuleSwitches,
) -> Result<Optimized> {
    let mut chain: Vec<Option<Instruction>> =
        memory_reserve::try_collect(ir.instructions.iter().map(|i| Some(i.clone())))?;
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
    let mut steps = memory_reserve::try_with_capacity(chain.len())?;
    let mut entries = memory_reserve::try_with_capacity(chain.len().saturating_add(1))?;
    let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    for (i, instruction) in chain.into_iter().enumerate() {
        entries.push(index(steps.len()));
        steps.extend(instruction.map(|instruction| StepIr::of(index(i), instruction)));
    }
    entries.push(index(steps.len()));
    Ok(Optimized { steps, entries, folded })
}
