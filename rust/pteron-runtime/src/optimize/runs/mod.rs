//! Runs become plans: every run of the method is lowered to the engine's graph IR ([`lower_run`]), the
//! rewrite rules work on it, and steps are emitted from what they left ([`emit`]).
//!
//! A run is a basic block, ended early by a delegate call. The memory plan of the file binds only the
//! borders of a run: tensors that only one run sees are placed anew ([`place`]) together with what is
//! left of the file's plan, in the memory that the file's plan had.

mod emit;
mod host;
mod literals;
mod lower_run;
mod mentions;
mod place;

use super::effects::Effects;
use super::flow::Flow;
use super::{Chain, Loader, Optimized};
use crate::ir::{FoldedConstant, MethodIr};
use host::RunHost;
use mentions::Mentions;
use pteron_core::{Instruction, Result};
use pteron_cpu::graph::Graph;
use pteron_cpu::graph::rules::{COPIES_IMAGES, Rule, rewrite};

/// Memory that the method may need at most with plans, in percent of what the file plans.
const MOST_MEMORY_PERCENT: usize = 105;

/// Applies `rules`. `None`, with `ir` as it was, where there is nothing to rewrite or the rewritten
/// program would need more memory than the file's, with and without copies of images in another order.
pub(super) fn compile(
    ir: &mut MethodIr,
    chain: &Chain,
    folded: &mut Vec<FoldedConstant>,
    effects: &Effects,
    flow: &Flow,
    loader: &dyn Loader,
    rules: &[&'static Rule],
) -> Result<Option<Optimized>> {
    let others: Vec<&'static Rule> = rules.iter().filter(|r| r.name != COPIES_IMAGES).copied().collect();
    if others.len() < rules.len()
        && let Some(compiled) = attempt(ir, chain, folded, effects, flow, loader, rules)?
    {
        return Ok(Some(compiled));
    }
    attempt(ir, chain, folded, effects, flow, loader, &others)
}

/// Constants that rules make stay in `ir` and `folded` in any case.
fn attempt(
    ir: &mut MethodIr,
    chain: &Chain,
    folded: &mut Vec<FoldedConstant>,
    effects: &Effects,
    flow: &Flow,
    loader: &dyn Loader,
    rules: &[&'static Rule],
) -> Result<Option<Optimized>> {
    let mentions = Mentions::new(ir, chain, effects);
    let literals = literals::Literals::new(ir, effects);
    let mut graphs: Vec<(usize, Graph)> = Vec::new();
    let mut count = 0usize;
    for (start, end) in runs(chain, flow) {
        let lowering = lower_run::Lowering::new(ir, chain, effects, flow, &mentions, &literals, loader);
        let mut graph = lowering.run(start, end);
        let mut host = RunHost { ir, folded, loader };
        count = count.saturating_add(rewrite(&mut graph, &mut host, rules)?);
        graphs.push((start, graph));
    }
    if count == 0 {
        return Ok(None);
    }
    let Some(emitted) = emit::emit(ir, chain, folded, effects, flow, &graphs)? else { return Ok(None) };
    Ok(Some(emitted))
}

/// `start..end` of every run.
fn runs(chain: &Chain, flow: &Flow) -> Vec<(usize, usize)> {
    let ends_run = |i: usize| {
        matches!(chain.get(i), Some(Some(Instruction::Delegate { .. } | Instruction::JumpFalse { .. })))
    };
    let mut out = Vec::new();
    let mut start = 0;
    for i in 0..chain.len() {
        let next = i.saturating_add(1);
        if ends_run(i) || flow.block_of.get(i) != flow.block_of.get(next) {
            out.push((start, next));
            start = next;
        }
    }
    out
}
