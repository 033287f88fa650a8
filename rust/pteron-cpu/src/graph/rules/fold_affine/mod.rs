//! `fold_affine`: products and sums with constants behind a matrix product or convolution go into its weight and
//! bias.
//!
//! *Before*: `y = convolution(x, W, b); z = add(mul(y, s), t)`, `s` and `t` numbers or one per channel. *After*:
//! `z = convolution(x, W', b')` with `W' = s · W` and `b' = s · b + t`. `mm` becomes `addmm` where it gets a bias.
//!
//! Applies to `add`, `sub`, `mul`, `div` with one operand that nobody else reads and one that is constant, where
//! weight and bias are constant too. Computed in f64 and rounded once, like `fold_batch_norm`; a weight that would
//! overflow or lose digits to underflow stays as it is. Saves a pass over the activations for each call.

mod contents;

use super::rule::Rule;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use contents::{Affine, Filters, Terms};
use pteron_core::{ConstantView, DType, DimOrder, Dims, Dynamism, Result, TensorSpec};

pub(super) const RULE: Rule = Rule {
    name: "fold_affine",
    about: "products and sums with constants into the weight and bias before them",
    needs: &[FOLDABLE, CALLS],
    apply,
};

const FOLDABLE: &[&str] = &["aten::convolution.out", "aten::linear.out", "aten::addmm.out", "aten::mm.out"];

const CALLS: &[&str] = &[
    "aten::add.out",
    "aten::sub.out",
    "aten::mul.out",
    "aten::div.out",
    "aten::add.Scalar_out",
    "aten::sub.Scalar_out",
    "aten::mul.Scalar_out",
    "aten::div.Scalar_out",
];

/// Overloads whose second operand is a number.
const SCALAR: &str = ".Scalar_out";

/// Bytes of a weight at most: a heavier one would stand in memory once more, for a pass that is nothing beside its
/// product.
const MOST_WEIGHT: usize = 16 << 20;

// Positions among the arguments of a convolution.
const TRANSPOSED: usize = 6;
const GROUPS: usize = 8;
// And of `addmm`.
const BETA: usize = 3;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for call in graph.ids() {
        let found = (0..2).find_map(|position| find(graph, call, position));
        let Some(found) = found else { continue };
        let Some(draft) = folded(graph, host, &found)? else { continue };
        if host.can_prepare(graph, &draft)? {
            count += usize::from(graph.replace(&[found.producer, call], draft).is_some());
        }
    }
    Ok(count)
}

/// A product or convolution and what stands behind it.
struct Found {
    producer: NodeId,
    y: TensorId,
    result: TensorId,
    weight: TensorId,
    /// Where `weight` is among the arguments.
    weight_at: usize,
    bias: Option<TensorId>,
    filters: Filters,
    channels: usize,
    affine: Affine,
    /// The constant operand, unless it is a number.
    operand: Option<TensorId>,
}

fn find(graph: &Graph, call: NodeId, position: usize) -> Option<Found> {
    let node = graph.node(call);
    let is_call = graph.is_live(call) && node.op == Op::Opaque && CALLS.contains(&node.operator.as_str());
    if !is_call || !node.epilogue.is_none() {
        return None;
    }
    let (y, result) = (node.input(position)?, node.output()?);
    let producer = graph.sole_producer(y)?;
    let before = graph.node(producer);
    let is_fit = before.op.takes_epilogue()
        && before.epilogue.is_none()
        && FOLDABLE.contains(&before.operator.as_str())
        && graph.tensor(y).spec == graph.tensor(result).spec;
    if !is_fit {
        return None;
    }
    let (weight_at, bias) = weight_and_bias(before)?;
    let weight = before.input(weight_at)?;
    let filters = filters_of(graph, before, weight)?;
    let channels = filters.channels();
    let is_row = |t: TensorId| is_constant(graph, t) && *graph.tensor(t).spec.shape == [channels];
    let spec = &graph.tensor(weight).spec;
    let is_known = is_constant(graph, weight)
        && spec.dim_order.is_contiguous()
        && spec.nbytes().is_ok_and(|n| n <= MOST_WEIGHT)
        && bias.is_none_or(is_row);
    let operand = node.input(1 - position);
    let affine = affine_of(node, position)?;
    if operand.is_none() != node.operator.ends_with(SCALAR) {
        return None;
    }
    let rank = graph.tensor(y).spec.shape.len();
    let channel_dim = if before.op.is_convolution() { 1 } else { rank.checked_sub(1)? };
    let fits = operand.is_none_or(|t| is_per_channel(graph, t, [rank, channel_dim, channels]));
    (is_known && fits).then_some(Found {
        producer,
        y,
        result,
        weight,
        weight_at,
        bias,
        filters,
        channels,
        affine,
        operand,
    })
}

fn is_constant(graph: &Graph, tensor: TensorId) -> bool {
    let t = graph.tensor(tensor);
    t.is_constant() && t.spec.dtype == DType::Float32 && !t.spec.is_dynamic()
}

/// Where the weight is, and the bias if there is one; `None` where something else is added.
fn weight_and_bias(node: &Node) -> Option<(usize, Option<TensorId>)> {
    let optional = |at: usize| match node.input(at) {
        Some(t) => Some(Some(t)),
        None => node.is_none(at).then_some(None),
    };
    match node.operator.as_str() {
        "aten::addmm.out" => {
            // The bias counts once; the product may have a factor.
            (node.number(BETA) == Some(1.0)).then_some(())?;
            Some((2, Some(node.input(0)?)))
        }
        "aten::mm.out" => Some((1, None)),
        _ => Some((1, optional(2)?)),
    }
}

/// Which elements of the weight belong to which output channel.
fn filters_of(graph: &Graph, node: &Node, weight: TensorId) -> Option<Filters> {
    let shape = &graph.tensor(weight).spec.shape;
    let (first, second) = (*shape.first()?, *shape.get(1)?);
    let rest = |from: usize| shape.iter().skip(from).product::<usize>();
    let filters = match node.operator.as_str() {
        "aten::mm.out" | "aten::addmm.out" => {
            Filters { taps: 1, per_block: second, blocks: 1, repeats: first }
        }
        "aten::convolution.out" if node.number(TRANSPOSED)? != 0.0 => {
            let groups = node.number(GROUPS)? as usize;
            (groups > 0 && first.is_multiple_of(groups)).then_some(())?;
            Filters { taps: rest(2), per_block: second, blocks: groups, repeats: first / groups }
        }
        _ => Filters { taps: rest(1), per_block: first, blocks: 1, repeats: 1 },
    };
    (filters.channels() > 0 && filters.taps > 0 && filters.repeats > 0).then_some(filters)
}

/// What `node` does with its operand at `position`.
fn affine_of(node: &Node, position: usize) -> Option<Affine> {
    let has_number = node.operator.ends_with(SCALAR);
    // Numbers meet f32 as f32.
    let number = if has_number { f64::from(node.number(1)? as f32) } else { 0.0 };
    let shift = |sign: f64| {
        let alpha = f64::from(node.number(2)? as f32) * sign;
        // Of the two operands the second is the one that is multiplied.
        let (y_times, c_times) = if position == 0 { (1.0, alpha) } else { (alpha, 1.0) };
        Some(Terms::Sum { y_times, c_times })
    };
    let terms = match node.operator.split_once('.')?.0 {
        "aten::mul" => Terms::Product,
        "aten::div" if position == 0 => Terms::Quotient,
        "aten::add" => shift(1.0)?,
        "aten::sub" => shift(-1.0)?,
        _ => return None,
    };
    Some(Affine { terms, number })
}

/// One number for everything, or one for each channel of a tensor of `rank`?
fn is_per_channel(graph: &Graph, tensor: TensorId, [rank, dim, channels]: [usize; 3]) -> bool {
    let shape = &graph.tensor(tensor).spec.shape;
    let Some(lead) = rank.checked_sub(shape.len()) else { return false };
    let fits = |(d, n): (usize, &usize)| *n == 1 || (lead + d == dim && *n == channels);
    is_constant(graph, tensor) && shape.iter().enumerate().all(fits)
}

/// The product or convolution with the new constants; `None` where a constant's contents are not to be had, or
/// the new ones would not do.
fn folded(graph: &mut Graph, host: &mut dyn Host, found: &Found) -> Result<Option<Draft>> {
    let &Found { ref affine, channels, filters, .. } = found;
    let recipe = |what: &str| {
        format!(
            "affine.{what}.{affine}.{}{}",
            u8::from(found.operand.is_some()),
            u8::from(found.bias.is_some())
        )
    };
    let mut weight = found.weight;
    if affine.scales() {
        let spec = TensorSpec { dynamism: Dynamism::Static, ..graph.tensor(weight).spec.clone() };
        let sources: Vec<TensorId> = [weight].into_iter().chain(found.operand).collect();
        let mut make = |views: &[ConstantView<'_>]| contents::weight(views, affine, filters);
        // Which elements belong together is another thing for another operator.
        let name = recipe(&format!("weight.{filters}"));
        let Some(made) = host.add_constant(graph, &name, &sources, spec, &mut make)? else { return Ok(None) };
        weight = made;
    }
    let mut bias = found.bias;
    let sources: Vec<TensorId> = found.bias.into_iter().chain(found.operand).collect();
    if bias.is_some() || affine.shifts() {
        let spec = TensorSpec {
            dtype: DType::Float32,
            shape: Dims::new(&[channels])?,
            dim_order: DimOrder::contiguous(1),
            dynamism: Dynamism::Static,
        };
        let has_bias = found.bias.is_some();
        let mut make = |views: &[ConstantView<'_>]| contents::bias(views, affine, has_bias, channels);
        let name = recipe(&format!("bias.{channels}"));
        let Some(made) = host.add_constant(graph, &name, &sources, spec, &mut make)? else { return Ok(None) };
        bias = Some(made);
    }
    Ok(Some(with_constants(graph, found, weight, bias)))
}

fn with_constants(graph: &Graph, found: &Found, weight: TensorId, bias: Option<TensorId>) -> Draft {
    let before = graph.node(found.producer);
    let mut draft = before.draft();
    draft.rename(found.y, found.result);
    draft.args[found.weight_at] = Argument::Tensor(weight);
    let Some(bias) = bias.map(Argument::Tensor) else { return draft };
    match before.operator.as_str() {
        "aten::addmm.out" => draft.args[0] = bias,
        "aten::mm.out" => {
            draft.operator = "aten::addmm.out".into();
            draft.args.insert(0, bias);
            let out = draft.args.len() - 1;
            draft.args.splice(out..out, [Argument::int(1), Argument::int(1)]);
        }
        _ => draft.args[2] = bias,
    }
    draft
}

#[cfg(test)]
mod tests;
