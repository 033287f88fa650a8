//! Lowers runs of calls to the engine's graph IR, lets the rewrite rules work, and turns what they
//! fused into plan steps.
//!
//! A run is straight-line code within a basic block, without delegate calls. The memory plan of the
//! file binds only the borders of a run: a call may move to its reader's place when its inputs are
//! still intact there and the reader's output overlaps none of them.

use super::Loader;
use super::effects::{Effects, Location, kernel_call};
use super::flow::{Flow, Reach};
use crate::ir::{FoldedConstant, MethodIr, Place, StepIr, StepKind, TensorIr, ValueIr};
use pteron_core::{DType, Instruction, Result, ValueId};
use pteron_cpu::graph::{Graph, NodeId, Op, rules};
use pteron_cpu::plan::{PlanSpec, RuleSwitches};
use std::collections::HashMap;

/// Operators that become [`Op::Linear`] or [`Op::Convolution`], with the position of their weight.
const WEIGHTED: [(&str, usize); 4] =
    [("aten::addmm.out", 2), ("aten::mm.out", 1), ("aten::linear.out", 1), ("aten::convolution.out", 1)];
/// Operators that become [`Op::Clamp`].
const CLAMPS: [&str; 3] = ["aten::relu.out", "aten::hardtanh.out", "aten::clamp.out"];

/// Does the method hold what any rule needs?
pub(super) fn has_candidate(ir: &MethodIr) -> bool {
    ir.operators.iter().any(|o| WEIGHTED.iter().any(|(name, _)| name == o))
        && ir.operators.iter().any(|o| CLAMPS.contains(&o.as_str()))
}

pub(super) fn fuse(
    ir: &MethodIr,
    steps: &mut [StepIr],
    folded: &[FoldedConstant],
    effects: &Effects,
    flow: &Flow,
    loader: &dyn Loader,
    switches: &RuleSwitches,
) -> Result<()> {
    for (start, end) in runs(steps, flow) {
        let mut graph = lower(ir, steps, effects, flow, start, end);
        if rules::rewrite(&mut graph, switches) == 0 {
            continue;
        }
        for node in graph.nodes().iter().filter(|n| !n.is_absorbed && n.covers.len() > 1) {
            let Some(args) = plan_args(ir, steps, node.call, node.writes) else { continue };
            let plan =
                PlanSpec { op: node.op, operator: node.operator.clone(), epilogue: node.epilogue.clone() };
            if !loader.can_prepare(ir, folded, &plan, &args)? {
                continue;
            }
            for covered in &node.covers {
                if let Some(step) = steps.get_mut(*covered as usize) {
                    step.kind = StepKind::Removed;
                }
            }
            if let Some(step) = steps.get_mut(node.writes as usize) {
                *step = StepIr { kind: StepKind::Plan { args, plan }, covers: node.covers.clone() };
            }
        }
    }
    Ok(())
}

/// `start..end` of every run.
fn runs(steps: &[StepIr], flow: &Flow) -> Vec<(usize, usize)> {
    let ends_run = |i: usize| {
        steps.get(i).is_some_and(|s| {
            matches!(
                s.kind,
                StepKind::Instruction(Instruction::Delegate { .. } | Instruction::JumpFalse { .. })
            )
        })
    };
    let mut out = Vec::new();
    let mut start = 0;
    for i in 0..steps.len() {
        let next = i.saturating_add(1);
        if ends_run(i) || flow.block_of.get(i) != flow.block_of.get(next) {
            out.push((start, next));
            start = next;
        }
    }
    out
}

fn lower(ir: &MethodIr, steps: &[StepIr], effects: &Effects, flow: &Flow, start: usize, end: usize) -> Graph {
    let mut graph = Graph::new();
    let mut node_of: HashMap<usize, NodeId> = HashMap::new();
    let mut producers: HashMap<usize, Vec<usize>> = HashMap::new();
    for u in &flow.uses {
        if let Reach::Step(d) = u.reach
            && (start..end).contains(&(u.step as usize))
            && u.position == 0
        {
            producers.entry(u.step as usize).or_default().push(d as usize);
        }
    }
    for i in start..end {
        let Some((name, args)) = steps.get(i).and_then(|s| kernel_call(ir, s)) else { continue };
        let op = semantic_op(ir, effects, name, args);
        let inputs: Vec<NodeId> =
            producers.get(&i).into_iter().flatten().filter_map(|d| node_of.get(d)).copied().collect();
        let is_pinned = flow.is_pinned.get(i).copied().unwrap_or(true);
        let readers = flow.readers.get(i).map_or(0, Vec::len);
        let uses = u32::try_from(readers.saturating_add(usize::from(is_pinned))).unwrap_or(u32::MAX);
        let call = u32::try_from(i).unwrap_or(u32::MAX);
        let id = graph.push(op, name, inputs, call, uses);
        node_of.insert(i, id);
        for d in producers.get(&i).into_iter().flatten() {
            if let Some(producer) = node_of.get(d).copied()
                && may_sink(ir, steps, effects, *d, i)
            {
                graph.allow_sinking(producer, id);
            }
        }
    }
    graph
}

/// What the engine knows about a call.
fn semantic_op(ir: &MethodIr, effects: &Effects, name: &str, args: &[ValueId]) -> Op {
    if let Some((_, weight)) = WEIGHTED.iter().copied().find(|(known, _)| *known == name) {
        let is_constant = args.get(weight).and_then(|v| tensor(ir, *v)).is_some_and(|t| {
            t.spec.dtype == DType::Float32 && matches!(t.place, Place::Constant(_) | Place::Folded(_))
        });
        return match (is_constant, name) {
            (false, _) => Op::Opaque,
            (true, "aten::convolution.out") => Op::Convolution,
            (true, _) => Op::Linear,
        };
    }
    let is_f32 = [args.first(), args.last()]
        .iter()
        .all(|v| v.and_then(|v| tensor(ir, *v)).is_some_and(|t| t.spec.dtype == DType::Float32));
    let number = |at: usize, absent: f32| {
        let value = args.get(at)?;
        let is_written = effects.steps.iter().any(|e| e.writes.iter().any(|a| a.value == *value))
            || ir.inputs.contains(value);
        match ir.values.get(value.index())? {
            _ if is_written => None,
            ValueIr::Int(v) => Some(*v as f32),
            ValueIr::Double(v) => Some(*v as f32),
            ValueIr::None => Some(absent),
            _ => None,
        }
    };
    let bounds = match name {
        _ if !is_f32 || !CLAMPS.contains(&name) => None,
        "aten::relu.out" => Some((Some(0.0), Some(f32::INFINITY))),
        "aten::hardtanh.out" | "aten::clamp.out" => {
            Some((number(1, f32::NEG_INFINITY), number(2, f32::INFINITY)))
        }
        _ => None,
    };
    match bounds {
        // PyTorch's clamp with min > max gives max, with NaN bounds NaN; both stay with its own kernel.
        Some((Some(min), Some(max))) if min <= max => Op::Clamp { min, max },
        _ => Op::Opaque,
    }
}

fn tensor(ir: &MethodIr, value: ValueId) -> Option<&TensorIr> {
    ir.values.get(value.index()).and_then(ValueIr::as_tensor)
}

/// May the call `producer` run at `consumer`'s place and write its output?
fn may_sink(ir: &MethodIr, steps: &[StepIr], effects: &Effects, producer: usize, consumer: usize) -> bool {
    let outputs = |i: usize| {
        let (_, args) = steps.get(i).and_then(|s| kernel_call(ir, s))?;
        let out = *args.last()?;
        let spec = &tensor(ir, out)?.spec;
        Some((out, spec))
    };
    let (Some((_, produced)), Some((out, consumed))) = (outputs(producer), outputs(consumer)) else {
        return false;
    };
    // The reader may see the same bytes through another value, which need not look at them alike.
    let seen = steps
        .get(consumer)
        .and_then(|s| kernel_call(ir, s))
        .and_then(|(_, args)| tensor(ir, *args.first()?))
        .map(|t| &t.spec);
    if seen != Some(produced) || consumed != produced {
        return false;
    }
    let target = effects.location(out);
    effects.step(producer).reads.iter().all(|read| match (effects.location(read.value), target) {
        (Location::Constant, _) => true,
        (Location::At(region), Location::At(target)) => {
            !region.overlaps(&target)
                && (producer.saturating_add(1)..consumer).all(|i| {
                    effects.step(i).writes.iter().all(|w| match effects.location(w.value) {
                        Location::At(written) => !written.overlaps(&region),
                        Location::Constant => true,
                        Location::Unknown => false,
                    })
                })
        }
        _ => false,
    })
}

/// The arguments of call `call`, with the output of call `writes`.
fn plan_args(ir: &MethodIr, steps: &[StepIr], call: u32, writes: u32) -> Option<Box<[ValueId]>> {
    let (_, args) = steps.get(call as usize).and_then(|s| kernel_call(ir, s))?;
    let (_, last) = steps.get(writes as usize).and_then(|s| kernel_call(ir, s))?;
    let out = *last.last()?;
    let mut args: Box<[ValueId]> = args.into();
    let n = args.len();
    for slot in args.iter_mut().skip(n.saturating_sub(2)) {
        *slot = out;
    }
    Some(args)
}
