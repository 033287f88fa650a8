//! `sink_views`: a view between a matrix product and an elementwise call moves behind the call.
//!
//! *Before*: `y = linear(x, W); v = view(y, [b, l, n]); z = gelu(v)`. *After*: `t = gelu(y); z = view(t)`; with
//! `z = add(v, r)`: `t = add(y, view(r)); z = view(t)`.
//!
//! Applies when nobody else reads `y` or `v` and `z` is seen by this run alone. Exact: the same numbers, in
//! the same order in memory. Views cost nothing; what is gained is that the other rules see the call
//! right behind the product.

use super::{Rule, WEIGHTED};
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, TensorId};
use pteron_core::{DType, Result, TensorSpec};
use smallvec::smallvec;

pub(super) const RULE: Rule = Rule {
    name: "sink_views",
    about: "a view behind a product moves behind the elementwise call that reads it",
    // Views need no instruction: some files leave them unsaid.
    needs: &[WEIGHTED, ELEMENTWISE],
    apply,
};

/// Calls whose tensors all have the shape of the first, or are one further summand.
const ELEMENTWISE: &[&str] = &[
    "aten::relu.out",
    "aten::gelu.out",
    "aten::sigmoid.out",
    "aten::tanh.out",
    "aten::hardtanh.out",
    "aten::clamp.out",
    "aten::leaky_relu.out",
    "aten::add.out",
];

const ET_VIEW: &str = "executorch_prim::et_view.default";

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

/// `y`, `v`, the node between them, and the other summand.
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
    let product = graph.sole_producer(y)?;
    let (from, to) = (&graph.tensor(y).spec, &graph.tensor(v).spec);
    let is_plain = |s: &TensorSpec| s.dtype == DType::Float32 && s.dim_order.is_contiguous();
    let is_fit = graph.node(product).op == Op::Linear
        && from.shape.len() == 2
        && is_plain(from)
        && is_plain(to)
        && to.shape.last() == from.shape.last()
        && graph.tensor(z).is_private()
        && graph.tensor(z).spec == *to;
    let is_sum = node.operator == "aten::add.out";
    let other = node.input(1 - position).filter(|_| is_sum);
    let is_alike = other.is_none_or(|r| r != v && graph.tensor(r).spec == *to);
    (is_fit && is_alike && (position == 0 || is_sum) && other.is_some() == is_sum).then_some(Found {
        y,
        v,
        view,
        other,
    })
}

fn sink(graph: &mut Graph, call: NodeId, found: &Found) -> bool {
    let Found { y, v, view, other } = *found;
    let Some(z) = graph.node(call).output() else { return false };
    let spec = graph.tensor(y).spec.clone();
    let mut sizes = graph.node(view).args.get(1).cloned().unwrap_or_else(Argument::none);
    if graph.node(view).instruction.is_none() {
        sizes = Argument::ints(&graph.tensor(v).spec.shape.iter().map(|n| *n as i64).collect::<Vec<_>>());
    }
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
