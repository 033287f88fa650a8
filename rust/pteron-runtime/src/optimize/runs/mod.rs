//! Runs become plans: every run of the method is lowered to the engine's graph IR ([`lower_run`]), the
//! rewrite rules work on it, and steps are emitted from what they left ([`emit`]).
//!
//! A run is a basic block, ended early by a delegate call. The memory plan of the file binds only the
//! borders of a run: tensors that only one run sees are placed anew ([`place`]) together with what is
//! left of the file's plan, in the memory that the file's plan had.

mod analysis;
mod emit;
mod host;
mod literals;
mod lower_run;
mod place;
mod uses;

use super::flow::Flow;
use super::{Chain, Optimized};
use crate::ir::{FoldedConstant, MethodIr};
pub(super) use analysis::Analysis;
use host::RunHost;
use pteron_core::{Instruction, Result};
use pteron_cpu::graph::Graph;
use pteron_cpu::graph::rules::{COPIES_IMAGES, Rule, rewrite};
use uses::FileUses;

/// Applies `rules`. `None`, with `ir` as it was, where there is nothing to rewrite or the rewritten
/// program would need more memory than the file's, with and without copies of images in another order.
pub(super) fn compile(
    ir: &mut MethodIr,
    folded: &mut Vec<FoldedConstant>,
    known: Analysis<'_>,
    rules: &[&'static Rule],
) -> Result<Option<Optimized>> {
    let others: Vec<&'static Rule> = rules.iter().filter(|r| r.name != COPIES_IMAGES).copied().collect();
    if others.len() < rules.len()
        && let Some(compiled) = attempt(ir, folded, known, rules)?
    {
        return Ok(Some(compiled));
    }
    attempt(ir, folded, known, &others)
}

/// Constants that rules make stay in `ir` and `folded` in any case.
fn attempt(
    ir: &mut MethodIr,
    folded: &mut Vec<FoldedConstant>,
    known: Analysis<'_>,
    rules: &[&'static Rule],
) -> Result<Option<Optimized>> {
    let uses = FileUses::new(ir, known.chain, known.effects);
    let mut graphs: Vec<(usize, Graph)> = Vec::new();
    let mut count = 0usize;
    for (start, end) in runs(known.chain, known.flow) {
        let mut graph = lower_run::Lowering::new(ir, known, &uses).run(start, end);
        let mut host = RunHost { ir, folded, loader: known.loader };
        count = count.saturating_add(rewrite(&mut graph, &mut host, rules)?);
        graphs.push((start, graph));
    }
    if count == 0 {
        return Ok(None);
    }
    emit::emit(ir, folded, known, &graphs)
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
