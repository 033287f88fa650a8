//! `fold_layout`: operators that only change the layout of a constant are done at load.
//!
//! *Before*: `wt = permute_copy(W, [1, 0]); y = addmm(b, x, wt)`. *After*: `y = addmm(b, x, W')` where
//! `W'` is a view of the stored bytes, which the kernel packs.
//!
//! Exporters reach every `addmm` weight through such a permute. Applies when the flow analysis knows
//! every reader of the result; the readers' arguments are then redirected to a new constant value.

use super::Chain;
use super::effects::{Effects, Location, kernel_call};
use super::flow::Flow;
use crate::ir::{ConstantRef, FoldedConstant, MethodIr, Placement, TensorIr, ValueIr};
use pteron_core::{ConstantKey, DType, Device, DimOrder, Dims, Dynamism, Instruction, TensorSpec, ValueId};
use pteron_cpu::graph::ET_VIEW;
use pteron_kernels::strided::views::View;
use std::collections::{HashMap, HashSet};

/// The name of the switch.
pub(super) const RULE: &str = "fold_layout";

/// A reference to a value: step and argument position.
type Reference = (usize, usize);

/// Operators that this rule knows; [`layout_result`] says what each does.
const OPERATORS: [&str; 11] = [
    "aten::permute_copy.out",
    "aten::t_copy.out",
    "aten::transpose_copy.int_out",
    "aten::unsqueeze_copy.out",
    "aten::select_copy.int_out",
    "aten::view_copy.out",
    ET_VIEW,
    "aten::clone.out",
    "aten::alias_copy.out",
    "aten::detach_copy.out",
    "aten::lift_fresh_copy.out",
];

/// Does any call change the layout of a constant?
pub(super) fn has_candidate(ir: &MethodIr) -> bool {
    let is_known: Vec<bool> = ir.operators.iter().map(|o| OPERATORS.contains(&o.as_str())).collect();
    ir.instructions.iter().any(|instruction| match instruction {
        Instruction::Kernel { operator, args } => {
            is_known.get(*operator as usize) == Some(&true)
                && args
                    .first()
                    .and_then(|v| ir.tensor(*v))
                    .is_some_and(|t| matches!(t.placement, Placement::Constant(_)))
        }
        _ => false,
    })
}

pub(super) fn fold(
    ir: &mut MethodIr,
    chain: &mut Chain,
    folded: &mut Vec<FoldedConstant>,
    effects: &Effects,
    flow: &Flow,
) {
    let references = References::new(ir, chain);
    let mut made = Made::default();
    for i in 0..chain.len() {
        let Some(view) = layout_result(ir, chain, folded, effects, i) else { continue };
        let Some(readers) = readers_of(ir, chain, effects, flow, &references, i) else { continue };
        // An in-place operator on it would write into the constant.
        let is_written_to = readers
            .iter()
            .any(|(step, position)| effects.step(*step).writes.iter().any(|w| w.position == Some(*position)));
        if is_written_to {
            continue;
        }
        redirect(ir, chain, folded, &mut made, i, &view, &readers);
    }
}

/// The constant that step `i` computes, if all it does is to look at a constant in another layout.
struct LayoutResult {
    key: ConstantKey,
    view: View,
    spec: TensorSpec,
}

fn layout_result(
    ir: &MethodIr,
    chain: &Chain,
    folded: &[FoldedConstant],
    effects: &Effects,
    i: usize,
) -> Option<LayoutResult> {
    let (name, args) = kernel_call(ir, chain.get(i)?)?;
    let input = ir.tensor(*args.first()?)?;
    let (key, view) = constant_view(input, folded)?;
    let out = args.last()?;
    let spec = ir.tensor(*out)?.spec.clone();
    let int = |at: usize| known_int(ir, effects, *args.get(at)?);
    let ints = |at: usize| known_ints(ir, effects, *args.get(at)?);
    let view = match name {
        "aten::permute_copy.out" => view.permute(ints(1)?.into_iter().map(Ok)).ok()?,
        "aten::t_copy.out" => view.transpose_matrix().ok()?,
        "aten::transpose_copy.int_out" => view.transpose(int(1)?, int(2)?).ok()?,
        "aten::unsqueeze_copy.out" => view.unsqueeze(int(1)?).ok()?,
        "aten::select_copy.int_out" => view.select(int(1)?, int(2)?).ok()?,
        "aten::view_copy.out" => view.reshape(&spec.shape)?,
        // Reinterprets bytes; that is a reshape only where both sides are row-major.
        ET_VIEW if input.spec.dim_order.is_contiguous() && spec.dim_order.is_contiguous() => {
            view.reshape(&spec.shape)?
        }
        "aten::clone.out"
        | "aten::alias_copy.out"
        | "aten::detach_copy.out"
        | "aten::lift_fresh_copy.out" => view,
        _ => return None,
    };
    (view.shape == spec.shape && spec.dtype == input.spec.dtype && !spec.is_dynamic())
        .then_some(LayoutResult { key, view, spec })
}

/// The stored bytes behind a constant value and how it looks at them.
fn constant_view(tensor: &TensorIr, folded: &[FoldedConstant]) -> Option<(ConstantKey, View)> {
    match &tensor.placement {
        Placement::Constant(ConstantRef::Stored(key)) => {
            let shape = tensor.spec.shape;
            Some((*key, View::new(0, shape, &tensor.spec.dim_order.strides(&shape))))
        }
        Placement::Constant(ConstantRef::Folded(index)) => {
            let f = folded.get(*index as usize)?;
            Some((f.key, View::new(f.offset, f.shape, &f.strides)))
        }
        Placement::Planned { .. } | Placement::Unplanned => None,
    }
}

fn known_int(ir: &MethodIr, effects: &Effects, value: ValueId) -> Option<i64> {
    match ir.values.get(value.index())? {
        ValueIr::Int(v) if !effects.is_written(value) => Some(*v),
        _ => None,
    }
}

fn known_ints(ir: &MethodIr, effects: &Effects, value: ValueId) -> Option<Vec<i64>> {
    match ir.values.get(value.index())? {
        ValueIr::IntList(ids) => ids.iter().map(|v| known_int(ir, effects, *v)).collect(),
        _ => None,
    }
}

/// Every place that reads the result of step `i`; `None` when that is not certain or cannot be
/// redirected (elements of lists, outputs).
fn readers_of(
    ir: &MethodIr,
    chain: &Chain,
    effects: &Effects,
    flow: &Flow,
    references: &References,
    i: usize,
) -> Option<Vec<Reference>> {
    let (name, args) = kernel_call(ir, chain.get(i)?)?;
    if name == ET_VIEW {
        let out = *args.last()?;
        if effects.location(out) != Location::Constant || ir.outputs.contains(&out) {
            return None;
        }
        return references.redirectable(out, i);
    }
    if *flow.is_pinned.get(i)?
        || effects
            .step(i)
            .writes
            .iter()
            .any(|a| matches!(effects.location(a.value), Location::Unknown | Location::Among(_)))
    {
        return None;
    }
    let mut places = Vec::new();
    for u in flow.readers.get(i)?.iter().filter_map(|u| flow.uses.get(*u as usize)) {
        places.push((u.step as usize, u.position?));
    }
    Some(places)
}

/// Where values are named, as the file has it. Redirecting a reader of one value changes no reference
/// to another, so this is gathered once.
struct References {
    arguments: HashMap<ValueId, Vec<Reference>>,
    /// Held by a list, a move, a jump or a delegate.
    is_held: HashSet<ValueId>,
}

impl References {
    fn new(ir: &MethodIr, chain: &Chain) -> Self {
        let mut arguments: HashMap<ValueId, Vec<Reference>> = HashMap::new();
        let mut is_held: HashSet<ValueId> = HashSet::new();
        is_held.extend(ir.values.iter().flat_map(|value| value.members().iter()));
        for (i, instruction) in chain.iter().enumerate() {
            match instruction {
                Some(Instruction::Kernel { args, .. }) => {
                    for (position, value) in args.iter().enumerate() {
                        arguments.entry(*value).or_default().push((i, position));
                    }
                }
                Some(Instruction::Delegate { args, .. }) => is_held.extend(args.iter()),
                Some(Instruction::Move { from, to }) => is_held.extend([from, to]),
                Some(Instruction::JumpFalse { condition, .. }) => {
                    is_held.insert(*condition);
                }
                _ => {}
            }
        }
        References { arguments, is_held }
    }

    /// Arguments outside step `own` that name `value`; `None` when something else holds it too.
    fn redirectable(&self, value: ValueId, own: usize) -> Option<Vec<Reference>> {
        if self.is_held.contains(&value) {
            return None;
        }
        let all = self.arguments.get(&value).map_or(&[][..], Vec::as_slice);
        Some(all.iter().filter(|(step, _)| *step != own).copied().collect())
    }
}

/// Points every reader at a new constant and removes step `i`. Nothing changes unless every reader
/// can be served.
fn redirect(
    ir: &mut MethodIr,
    chain: &mut Chain,
    folded: &mut Vec<FoldedConstant>,
    made: &mut Made,
    i: usize,
    result: &LayoutResult,
    readers: &[Reference],
) {
    let mut plan: Vec<(Reference, Layout, TensorSpec)> = Vec::new();
    let mut views_to_drop: Vec<usize> = Vec::new();
    for &(step, position) in readers {
        let Some((name, args)) = chain.get(step).and_then(|s| kernel_call(ir, s)) else { return };
        let Some(spec) = args.get(position).and_then(|v| ir.tensor(*v)).map(|t| t.spec.clone()) else {
            return;
        };
        if name == ET_VIEW && position == 0 && step != i {
            // Its own readers are readers of the same bytes and are redirected themselves.
            views_to_drop.push(step);
            continue;
        }
        let Some(layout) = seen_as(result, &spec).and_then(|view| layout_of(&view)) else { return };
        plan.push(((step, position), layout, spec));
    }
    // A view that is itself a reader of a folded constant by value (not by bytes) cannot be dropped
    // before it was folded on its own; that happens when its turn comes.
    let is_view = chain.get(i).and_then(|s| kernel_call(ir, s)).is_some_and(|(n, _)| n == ET_VIEW);
    if is_view {
        let Some(layout) = layout_of(&result.view) else { return };
        for step in std::mem::take(&mut views_to_drop) {
            plan.push(((step, 0), layout, result.spec.clone()));
        }
    }
    for ((step, position), layout, mut spec) in plan {
        spec.dynamism = Dynamism::Static;
        let value = made.value(ir, folded, result.key, layout, spec);
        if let Some(Some(Instruction::Kernel { args, .. })) = chain.get_mut(step)
            && let Some(slot) = args.get_mut(position)
        {
            *slot = value;
        }
    }
    for step in views_to_drop.into_iter().chain([i]) {
        if let Some(removed) = chain.get_mut(step) {
            *removed = None;
        }
    }
}

/// How a reader with `spec` sees the result: as it is, or (through a view that the exporter elided)
/// under other extents.
fn seen_as(result: &LayoutResult, spec: &TensorSpec) -> Option<View> {
    if spec.dtype != result.spec.dtype {
        return None;
    }
    if spec.shape == result.spec.shape && spec.dim_order == result.spec.dim_order {
        return Some(result.view);
    }
    let is_row_major = |o: &DimOrder| o.is_contiguous();
    if is_row_major(&spec.dim_order) && is_row_major(&result.spec.dim_order) {
        return result.view.reshape(&spec.shape);
    }
    None
}

/// First element, extents and strides of a view, as a folded constant keeps them.
type Layout = (usize, Dims, Dims);

/// The layout of a view without negative strides; no operator of this rule makes one.
fn layout_of(view: &View) -> Option<Layout> {
    Some((usize::try_from(view.region.offset).ok()?, view.shape, view.strides()?))
}

/// What was made so far, so that readers that see a constant alike share one value.
#[derive(Default)]
struct Made {
    constants: HashMap<(ConstantKey, Layout), u32>,
    values: HashMap<(u32, DType, Dims, DimOrder), ValueId>,
}

impl Made {
    /// A value for the constant `key` in a layout.
    fn value(
        &mut self,
        ir: &mut MethodIr,
        folded: &mut Vec<FoldedConstant>,
        key: ConstantKey,
        layout: Layout,
        spec: TensorSpec,
    ) -> ValueId {
        let constant = *self.constants.entry((key, layout)).or_insert_with(|| {
            let (offset, shape, strides) = layout;
            folded.push(FoldedConstant { key, offset, shape, strides, data: None });
            u32::try_from(folded.len().saturating_sub(1)).unwrap_or(u32::MAX)
        });
        *self.values.entry((constant, spec.dtype, spec.shape, spec.dim_order)).or_insert_with(|| {
            let placement = Placement::Constant(ConstantRef::Folded(constant));
            ir.values.push(TensorIr { spec, placement, device: Device::Cpu, name: None }.into());
            ValueId(u32::try_from(ir.values.len().saturating_sub(1)).unwrap_or(u32::MAX))
        })
    }
}
