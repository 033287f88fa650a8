//! `move_dequantise`: what only moves or chooses elements works on the integers.
//!
//! *Before*: `y = permute(dequantise(q)); p = quantise(max_pool(y))`. *After*: `p = max_pool(permute(q))`, and a
//! `dequantise` behind each for who else reads it.
//!
//! Views, copies in another order, slices, max pooling, concatenation of tensors of one scheme. Where what comes out is
//! quantised again by the same numbers, both calls go. Exact: dequantising is a function of one element that keeps
//! the order of numbers, and quantising gives back the integer it came from. Saves three quarters of the bytes, and other
//! rules see integers on both sides of what they fuse.

use super::{DEQUANTISE, Dequantised, QUANTISE, dequantised, moved_arguments, quantised};
use crate::epilogue::Epilogue;
use crate::graph::rules::rule::Rule;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, TensorId};
use pteron_core::{DType, Result, TensorSpec};
use smallvec::smallvec;

pub(in crate::graph::rules) const RULE: Rule = Rule {
    name: "move_dequantise",
    about: "views, copies, slices, max pooling and concatenation work on quantised integers",
    needs: &[&[DEQUANTISE], &[QUANTISE]],
    apply,
};

/// Calls whose result is made of elements of the first argument.
const MOVES: &[&str] = &[
    "aten::view_copy.out",
    "aten::permute_copy.out",
    "aten::transpose_copy.int_out",
    "aten::unsqueeze_copy.out",
    "aten::squeeze_copy.dim_out",
    "aten::squeeze_copy.dims_out",
    "aten::slice_copy.Tensor_out",
    "aten::select_copy.int_out",
    "aten::clone.out",
    "aten::alias_copy.out",
    "aten::detach_copy.out",
    "aten::lift_fresh_copy.out",
    "dim_order_ops::_clone_dim_order.out",
    "dim_order_ops::_to_dim_order_copy.out",
    "aten::pixel_shuffle.out",
    "aten::pixel_unshuffle.out",
];

const CAT: &str = "aten::cat.out";

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        if let Some(found) = find(graph, id) {
            count += usize::from(swap(graph, host, id, found)?);
        } else if cancel(graph, id) {
            count += 1;
        }
    }
    Ok(count)
}

/// The first of the calls that dequantise what `id` moves.
fn find(graph: &Graph, id: NodeId) -> Option<Dequantised> {
    let node = graph.node(id);
    if !graph.is_live(id) || !node.written_values.is_empty() || !node.epilogue.is_none() {
        return None;
    }
    let out = node.output()?;
    let is_result = graph.tensor(out).is_private() && graph.tensor(out).spec.dtype == DType::Float32;
    if !is_result {
        return None;
    }
    if node.operator == CAT {
        let Some(Argument::Tensors(list)) = node.args.first() else { return None };
        let parts: Option<Vec<Dequantised>> = list.iter().map(|t| dequantised(graph, (*t)?)).collect();
        let parts = parts?;
        let first = *parts.first()?;
        return parts.iter().all(|p| p.scheme == first.scheme).then_some(first);
    }
    let is_move = matches!(node.op, Op::View | Op::MaxPool)
        || (node.op == Op::Opaque && MOVES.contains(&node.operator.as_str()));
    is_move.then(|| dequantised(graph, node.input(0)?)).flatten()
}

/// Puts the call before the one that dequantises.
fn swap(graph: &mut Graph, host: &mut dyn Host, id: NodeId, found: Dequantised) -> Result<bool> {
    let node = graph.node(id);
    let Some(out) = node.output() else { return Ok(false) };
    let mut moved = node.draft();
    let sources: Vec<(TensorId, TensorId)> =
        node.inputs().filter_map(|t| Some((t, dequantised(graph, t)?.quantised))).collect();
    // The plan of the file knows of no reader of the integers behind the call that dequantises them.
    if !sources.iter().all(|(_, to)| graph.lasts_until(*to, &[id])) {
        return Ok(false);
    }
    sources.into_iter().for_each(|(from, to)| moved.rename(from, to));
    let spec = TensorSpec { dtype: found.scheme.dtype, ..graph.tensor(out).spec.clone() };
    let integers = graph.new_tensor(spec);
    moved.rename(out, integers);
    // Calls that move elements have kernels for every dtype.
    if moved.op == Op::MaxPool && !host.can_prepare(graph, &moved)? {
        return Ok(false);
    }
    let after = Draft {
        op: Op::Opaque,
        operator: DEQUANTISE.into(),
        args: moved_arguments(graph.node(found.node), integers, out),
        outputs: smallvec![out],
        epilogue: Epilogue::NONE,
    };
    let inserted = graph.insert_before(id, moved);
    let is_swapped = graph.replace(&[id], after).is_some();
    if !is_swapped {
        graph.remove(inserted);
    }
    Ok(is_swapped)
}

/// What dequantises and quantises again by the same numbers gives its input.
fn cancel(graph: &mut Graph, id: NodeId) -> bool {
    let Some((scheme, input, output)) = quantised(graph, id) else { return false };
    let Some(before) = dequantised(graph, input) else { return false };
    let is_same = before.scheme == scheme
        && scheme.is_whole()
        && graph.tensor(output).is_private()
        && graph.tensor(before.quantised).spec == graph.tensor(output).spec;
    if !is_same {
        return false;
    }
    let readers: Vec<NodeId> = graph.readers(output).to_vec();
    graph.redirect(&readers, output, before.quantised) && graph.remove(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ET_VIEW;
    use crate::graph::testing::{AnyKernel, Builder};

    fn integers(b: &mut Builder, shape: &[usize]) -> TensorId {
        let q = b.border(shape);
        b.cast(q, DType::Int8)
    }

    fn operators(b: &Builder) -> Vec<(&str, DType)> {
        let of = |(_, n): (NodeId, &crate::graph::Node)| b.graph.tensor(n.outputs[0]).spec.dtype;
        b.graph.live().map(|n| (n.1.operator.as_str(), of(n))).collect()
    }

    #[test]
    fn what_moves_elements_works_on_integers() {
        let mut b = Builder::new();
        let q = integers(&mut b, &[4, 8]);
        let x = b.dequantise(q, 0.5, &[4, 8]);
        let v = b.call_with(ET_VIEW, vec![Argument::Tensor(x), Argument::ints(&[8, 4])], &[8, 4]);
        let p = b.call_with(
            "aten::permute_copy.out",
            vec![Argument::Tensor(v), Argument::ints(&[1, 0])],
            &[4, 8],
        );
        let r = b.quantise(p, 0.5, &[4, 8]);
        let s = b.call("aten::neg.out", &[r], &[4, 8]);
        b.cast(s, DType::Int8);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 3);
        let last = b.graph.node(b.graph.producer(s).unwrap()).input(0).unwrap();
        let permuted = b.graph.node(b.graph.producer(last).unwrap());
        assert_eq!(permuted.operator, "aten::permute_copy.out");
        let viewed = b.graph.node(b.graph.producer(permuted.input(0).unwrap()).unwrap());
        assert_eq!((viewed.op.clone(), viewed.input(0)), (Op::View, Some(q)));
    }

    #[test]
    fn tensors_of_one_scheme_are_joined_as_integers() {
        for (scale, count) in [(0.5, 1), (0.25, 0)] {
            let mut b = Builder::new();
            let (q, p) = (integers(&mut b, &[4, 8]), b.border(&[4, 8]));
            b.cast(p, DType::Int8);
            let (x, y) = (b.dequantise(q, 0.5, &[4, 8]), b.dequantise(p, scale, &[4, 8]));
            b.call_with(CAT, vec![Argument::Tensors(vec![Some(x), Some(y)]), Argument::int(0)], &[8, 8]);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), count, "{:?}", operators(&b));
        }
    }

    #[test]
    fn other_numbers_quantise_again() {
        let mut b = Builder::new();
        let q = integers(&mut b, &[4]);
        let x = b.dequantise(q, 0.5, &[4]);
        b.quantise(x, 0.25, &[4]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn integers_that_are_overwritten_are_not_read_later() {
        for (start, count) in [(4096, 1), (0, 0)] {
            let mut b = Builder::new();
            let q = integers(&mut b, &[4, 8]);
            let x = b.dequantise(q, 0.5, &[4, 8]);
            let other = b.call("aten::neg.out", &[x], &[4, 8]);
            b.name("other", other).pin("other", start);
            let dims = Argument::ints(&[1, 0]);
            b.call_with("aten::permute_copy.out", vec![Argument::Tensor(x), dims], &[8, 4]);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), count, "{:?}", operators(&b));
        }
    }

    #[test]
    fn a_result_at_the_border_keeps_its_call() {
        let mut b = Builder::new();
        let q = integers(&mut b, &[4, 8]);
        let x = b.dequantise(q, 0.5, &[4, 8]);
        let p = b.call_with(
            "aten::permute_copy.out",
            vec![Argument::Tensor(x), Argument::ints(&[1, 0])],
            &[8, 4],
        );
        b.name("p", p).pin("p", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
