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
use pteron_cpu::graph::rules::{NEED_MEMORY, Rule, rewrite};
use uses::FileUses;

/// Applies `rules`. `None`, with `ir` as it was, where there is nothing to rewrite or the rewritten
/// program would need more memory than the file's even when rules that need memory are given up.
pub(super) fn compile(
    ir: &mut MethodIr,
    folded: &mut Vec<FoldedConstant>,
    known: Analysis<'_>,
    rules: &[&'static Rule],
) -> Result<Option<Optimized>> {
    let at_stake = rules.iter().filter(|rule| NEED_MEMORY.contains(&rule.name)).count();
    // None of them, each alone, all.
    let all = std::iter::once(&NEED_MEMORY[..]).filter(|_| at_stake > 1);
    for given_up in std::iter::once(&[][..]).chain(NEED_MEMORY.chunks(1)).chain(all) {
        let kept = |rule: &&&'static Rule| !given_up.contains(&rule.name);
        let rest: Vec<&'static Rule> = rules.iter().filter(kept).copied().collect();
        if rest.len() == rules.len() && !given_up.is_empty() {
            continue;
        }
        match attempt(ir, folded, known, &rest)? {
            Attempt::Fits(compiled) => return Ok(Some(compiled)),
            Attempt::ChangesNothing if given_up.is_empty() => return Ok(None),
            Attempt::ChangesNothing | Attempt::NeedsMemory => {}
        }
    }
    Ok(None)
}

/// What rules came to.
enum Attempt {
    Fits(Optimized),
    ChangesNothing,
    NeedsMemory,
}

/// Constants that rules make stay in `ir` and `folded` in any case.
fn attempt(
    ir: &mut MethodIr,
    folded: &mut Vec<FoldedConstant>,
    known: Analysis<'_>,
    rules: &[&'static Rule],
) -> Result<Attempt> {
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
        return Ok(Attempt::ChangesNothing);
    }
    Ok(emit::emit(ir, folded, known, &graphs)?.map_or(Attempt::NeedsMemory, Attempt::Fits))
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
