//! `sink_views`: a view between a matrix product and an elementwise call moves behind the call.
//!
//! *Before*: `y = linear(x, W); v = view(y, [b, l, n]); z = gelu(v)`. *After*: `t = gelu(y); z = view(t)`; with
//! `z = add(v, r)`: `t = add(y, view(r)); z = view(t)`.
//!
//! Other operands are constants, one number or one per column, which stay, or a summand like `r`. Applies when
//! nobody else reads `y` or `v` and `z` is seen by this run alone. Exact: the same numbers, in
//! the same order in memory. Views cost nothing; what is gained is that the other rules see the call
//! right behind the product.

use super::rule::{Rule, WEIGHTED};
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, ET_VIEW, Graph, Host, NodeId, Op, TensorId};
use pteron_core::{DType, Result, TensorSpec};
use smallvec::smallvec;

pub(super) const RULE: Rule = Rule {
    name: "sink_views",
    about: "a view behind a product moves behind the elementwise call that reads it",
    // Views need no instruction: some files leave them unsaid.
    needs: &[WEIGHTED, ELEMENTWISE],
    apply,
};

/// Calls with one operand or two.
const ELEMENTWISE: &[&str] = &[
    "aten::relu.out",
    "aten::gelu.out",
    "aten::sigmoid.out",
    "aten::tanh.out",
    "aten::hardtanh.out",
    "aten::clamp.out",
    "aten::leaky_relu.out",
    "aten::add.Scalar_out",
    "aten::sub.Scalar_out",
    "aten::mul.Scalar_out",
    "aten::div.Scalar_out",
    "aten::add.out",
    "aten::sub.out",
    "aten::mul.out",
    "aten::div.out",
];

/// Those with a second tensor: a constant row or number, or, of the first, a summand of the shape of the view.
const PAIRS: &[&str] = &["aten::add.out", "aten::sub.out", "aten::mul.out", "aten::div.out"];

/// Views whose argument 1 is the sizes of their result.
const NAMES_SIZES: &[&str] = &[ET_VIEW, "aten::view_copy.out"];

fn apply(graph: &mut Graph, _: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for call in graph.ids() {
        let found = (0..2).find_map(|position| find(graph, call, position));
        if let Some(found) = found {
            count += usize::from(sink(graph, call, &found));
        }
    }
    Ok(count)
}

/// `y`, `v`, the node between them, and the other summand if it has to be seen as rows, too.
struct Found {
    y: TensorId,
    v: TensorId,
    view: NodeId,
    other: Option<TensorId>,
}

fn find(graph: &Graph, call: NodeId, position: usize) -> Option<Found> {
    let node = graph.node(call);
    if !graph.is_live(call) || !ELEMENTWISE.contains(&node.operator.as_str()) || !node.epilogue.is_none() {
        return None;
    }
    let (v, z) = (node.input(position)?, node.output()?);
    let view = graph.sole_producer(v)?;
    let y = graph.node(view).input(0).filter(|_| graph.node(view).op == Op::View)?;
    let (from, to) = (&graph.tensor(y).spec, &graph.tensor(v).spec);
    let is_plain = |s: &TensorSpec| s.dtype == DType::Float32 && s.dim_order.is_contiguous();
    let is_fit = is_of_product(graph, y)
        && from.shape.len() == 2
        && is_plain(from)
        && is_plain(to)
        && to.shape.last() == from.shape.last()
        && graph.tensor(z).is_private()
        && graph.tensor(z).spec == *to;
    let other = node.input(1 - position).filter(|r| *r != v);
    if !is_fit || other.is_some() != PAIRS.contains(&node.operator.as_str()) {
        return None;
    }
    let other = match other {
        Some(r) if is_row(graph, r, to.shape.last().copied()?) => None,
        Some(r) if node.operator == PAIRS[0] && graph.tensor(r).spec == *to => Some(r),
        Some(_) => return None,
        None => None,
    };
    Some(Found { y, v, view, other })
}

/// A product that nobody else reads, or one that went through calls with constants?
fn is_of_product(graph: &Graph, mut y: TensorId) -> bool {
    while let Some(producer) = graph.sole_producer(y) {
        let node = graph.node(producer);
        if matches!(node.op, Op::Linear | Op::WeightOnly(_)) {
            return true;
        }
        let is_constant = |t: &TensorId| graph.tensor(*t).is_constant();
        let mut others = node.inputs().filter(|t| !is_constant(t));
        let (Some(other), None) = (others.next(), others.next()) else { return false };
        if !ELEMENTWISE.contains(&node.operator.as_str()) || !node.epilogue.is_none() {
            return false;
        }
        y = other;
    }
    false
}

/// A constant that is the same for every row of so many columns?
fn is_row(graph: &Graph, tensor: TensorId, columns: usize) -> bool {
    let t = graph.tensor(tensor);
    t.is_constant()
        && match &*t.spec.shape {
            [] => true,
            [n] | [1, n] => *n == 1 || *n == columns,
            _ => false,
        }
}

/// The sizes that the node `view` gives its result `v`, as an argument. A view that names its sizes hands them on: those
/// of a dynamic tensor are known in the call alone.
pub(super) fn named_sizes(graph: &Graph, view: NodeId, v: TensorId) -> Option<Argument> {
    let (shown, spec) = (graph.node(view), &graph.tensor(v).spec);
    match shown.args.get(1) {
        Some(sizes) if NAMES_SIZES.contains(&shown.operator.as_str()) => Some(sizes.clone()),
        _ if spec.is_dynamic() => None,
        _ => Some(Argument::ints(&spec.shape.iter().map(|n| *n as i64).collect::<Vec<_>>())),
    }
}

fn sink(graph: &mut Graph, call: NodeId, found: &Found) -> bool {
    let Found { y, v, view, other } = *found;
    let Some(z) = graph.node(call).output() else { return false };
    let spec = graph.tensor(y).spec.clone();
    let Some(sizes) = named_sizes(graph, view, v) else { return false };
    let t = graph.new_tensor(spec.clone());
    let after = Draft {
        op: Op::View,
        operator: ET_VIEW.into(),
        args: vec![Argument::Tensor(t), sizes, Argument::Tensor(z)],
        outputs: smallvec![z],
        epilogue: Epilogue::NONE,
    };
    let mut moved = graph.node(call).draft();
    moved.rename(v, y);
    moved.rename(z, t);
    if !graph.can_replace(&[view, call], &after) {
        return false;
    }
    if let Some(other) = other {
        let columns = spec.shape.last().copied().unwrap_or(0) as i64;
        let flat = graph.new_tensor(spec);
        graph.insert_before(
            call,
            Draft {
                op: Op::View,
                operator: ET_VIEW.into(),
                args: vec![Argument::Tensor(other), Argument::ints(&[-1, columns]), Argument::Tensor(flat)],
                outputs: smallvec![flat],
                epilogue: Epilogue::NONE,
            },
        );
        moved.rename(other, flat);
    }
    graph.insert_before(call, moved);
    graph.replace(&[view, call], after).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};

    fn viewed(b: &mut Builder) -> TensorId {
        let x = b.border(&[6, 8]);
        let w = b.constant(&[8, 16]);
        let y = b.call("aten::mm.out", &[x, w], &[6, 16]);
        b.call_with(ET_VIEW, vec![Argument::Tensor(y), Argument::ints(&[2, 3, 16])], &[2, 3, 16])
    }

    #[test]
    fn a_call_moves_to_the_product() {
        let mut b = Builder::new();
        let v = viewed(&mut b);
        let z = b.call("aten::gelu.out", &[v], &[2, 3, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
        assert_eq!(operators, ["aten::mm.out", "aten::gelu.out", ET_VIEW]);
        assert_eq!(b.graph.node(b.graph.producer(z).unwrap()).op, Op::View);
    }

    #[test]
    fn the_other_summand_is_seen_flat() {
        let mut b = Builder::new();
        let v = viewed(&mut b);
        let r = b.border(&[2, 3, 16]);
        let args = vec![Argument::Tensor(r), Argument::Tensor(v), Argument::int(1)];
        b.call_with("aten::add.out", args, &[2, 3, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
        assert_eq!(operators, ["aten::mm.out", ET_VIEW, "aten::add.out", ET_VIEW]);
    }

    #[test]
    fn results_at_the_border_keep_their_shape() {
        let mut b = Builder::new();
        let v = viewed(&mut b);
        let z = b.call("aten::gelu.out", &[v], &[2, 3, 16]);
        b.name("z", z).pin("z", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
