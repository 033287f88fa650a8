//! `fuse_quantised_sum`: the sum behind an integer product or convolution moves into its tile.
//!
//! *Before*: `p = integer convolution(q, W, s, b); y = quantise(relu(add(dequantise(p), dequantise(r))))`. *After*:
//! `y = integer convolution + residual + clamp(q, W, s, b, r)`.
//!
//! Applies when nothing but the sum reads `p`, `r` has the dtype, shape and memory order of `p` and of `y`, and `alpha` is 1. Where
//! both summands could take the other one in, the one that is computed last does. Exact: the tile computes what the separate
//! calls do. Saves two passes over bytes.

use super::{Scheme, dequantised, is_plain_call, quantised};
use crate::graph::rules::rule::{Rule, WEIGHTED};
use crate::graph::{Draft, Graph, Host, Node, NodeId, Op, TensorId};
use crate::integer::{IntegerOutput, IntegerSum, Summand};
use pteron_core::Result;

pub(in crate::graph::rules) const RULE: Rule = Rule {
    name: "fuse_quantised_sum",
    about: "the sum of quantised tensors into the integer product or convolution before it",
    needs: &[WEIGHTED, &[ADD], &[super::QUANTISE], &[super::DEQUANTISE]],
    apply,
};

const ADD: &str = "aten::add.out";
/// Position of `alpha`.
const ALPHA: usize = 2;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        let Some(found) = find(graph, id) else { continue };
        for (nodes, draft) in candidates(graph, &found) {
            let is_possible = graph.can_replace(&nodes, &draft) && host.can_prepare(graph, &draft)?;
            if is_possible && graph.replace(&nodes, draft).is_some() {
                count += 1;
                break;
            }
        }
    }
    Ok(count)
}

/// A sum that is quantised.
struct Found {
    sum: NodeId,
    /// What comes behind it, in order: a clamp at times, the call that quantises.
    behind: Vec<NodeId>,
    clamp: Option<(f32, f32)>,
    scheme: Scheme,
    out: TensorId,
}

fn find(graph: &Graph, id: NodeId) -> Option<Found> {
    let (scheme, mut x, out) = quantised(graph, id)?;
    let (mut behind, mut clamp) = (vec![id], None);
    let mut sum = graph.sole_producer(x)?;
    if let Op::Clamp { min, max } = graph.node(sum).op {
        clamp = Some((min, max));
        behind.insert(0, sum);
        x = graph.node(sum).input(0)?;
        sum = graph.sole_producer(x)?;
    }
    let node = graph.node(sum);
    let is_sum = node.operator == ADD && node.op == Op::Opaque && node.number(ALPHA) == Some(1.0);
    (is_sum && is_plain_call(node)).then_some(Found { sum, behind, clamp, scheme, out })
}

/// The products that could take the sum in, the last one first, with the calls that go.
fn candidates(graph: &Graph, found: &Found) -> Vec<(Vec<NodeId>, Draft)> {
    let sum = graph.node(found.sum);
    let pairs = [(0, 1), (1, 0)];
    let mut fitting: Vec<_> =
        pairs.iter().filter_map(|(of, other)| fused(graph, found, sum, [*of, *other])).collect();
    fitting.sort_by(|((a, _), _), ((b, _), _)| match graph.is_before(*a, *b) {
        true => std::cmp::Ordering::Greater,
        false => std::cmp::Ordering::Less,
    });
    fitting.into_iter().map(|((_, nodes), draft)| (nodes, draft)).collect()
}

type Fused = ((NodeId, Vec<NodeId>), Draft);

fn fused(graph: &Graph, found: &Found, sum: &Node, [of, other]: [usize; 2]) -> Option<Fused> {
    let (own, summand) = (dequantised(graph, sum.input(of)?)?, dequantised(graph, sum.input(other)?)?);
    let producer = graph.sole_producer(own.quantised)?;
    let before = graph.node(producer);
    let Op::Integer(spec) = &before.op else { return None };
    let IntegerOutput::Quantised { zero_point, .. } = spec.output else { return None };
    let shape = &graph.tensor(found.out).spec;
    let are_alike = [own.quantised, summand.quantised].iter().all(|t| graph.tensor(*t).spec == *shape);
    if spec.sum.is_some() || zero_point != own.scheme.zero || !are_alike || own.node == summand.node {
        return None;
    }
    let Scheme { scale, zero, low, high, .. } = found.scheme;
    let mut spec = spec.clone();
    spec.sum = Some(Summand::Quantised(IntegerSum {
        own_scale: own.scheme.scale as f32,
        scale: summand.scheme.scale as f32,
        zero_point: summand.scheme.zero,
        clamp: found.clamp,
        inverse: (1.0 / scale) as f32,
        sum_zero_point: zero,
        low,
        high,
    }));
    let mut draft = before.draft();
    draft.op = Op::Integer(spec);
    draft.rename(own.quantised, found.out);
    draft.push_input(summand.quantised);
    let mut nodes = vec![producer, own.node, found.sum];
    // What others read of the summand in floats stays.
    nodes.extend(graph.sole_producer(sum.input(other)?));
    nodes.extend(&found.behind);
    graph.sort(&mut nodes);
    Some(((producer, nodes), draft))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{BYTES, integer_product};
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};
    use crate::graph::{Argument, Literal};
    use pteron_core::DType;

    /// An integer product of bytes.
    fn product(b: &mut Builder) -> TensorId {
        integer_product(b, BYTES)
    }

    fn integers(b: &mut Builder) -> TensorId {
        let r = b.border(&[4, 16]);
        b.cast(r, DType::Int8);
        r
    }

    /// `quantise(relu(add(dequantise(p), dequantise(r))))` and who reads it.
    fn sum(b: &mut Builder, [p, r]: [TensorId; 2], alpha: f64) -> TensorId {
        let (x, y) = (b.dequantise(p, 0.25, &[4, 16]), b.dequantise(r, 0.125, &[4, 16]));
        let alpha = Argument::Literal(Literal::Double(alpha), None);
        let args = vec![Argument::Tensor(x), Argument::Tensor(y), alpha];
        let z = b.call_with(ADD, args, &[4, 16]);
        let z = b.call("aten::relu.out", &[z], &[4, 16]);
        let out = b.quantise(z, 0.5, &[4, 16]);
        // Not a call that goes where nobody reads its result.
        b.call("aten::multinomial.out", &[out], &[4, 16]);
        b.name("y", y);
        out
    }

    #[test]
    fn a_sum_behind_a_product_is_part_of_it() {
        for is_first in [true, false] {
            let mut b = Builder::new();
            let (p, r) = (product(&mut b), integers(&mut b));
            let out = sum(&mut b, if is_first { [p, r] } else { [r, p] }, 1.0);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
            let node = b.graph.node(b.graph.producer(out).unwrap());
            let Op::Integer(spec) = &node.op else { panic!("{:?}", node.op) };
            assert_eq!((spec.summand(), spec.out()), (Some(3), 4));
            assert_eq!((node.input(3), node.output()), (Some(r), Some(out)));
            let (own_scale, scale) = if is_first { (0.25, 0.125) } else { (0.125, 0.25) };
            let expected = IntegerSum {
                own_scale,
                scale,
                zero_point: 3,
                clamp: Some((0.0, f32::INFINITY)),
                inverse: 2.0,
                sum_zero_point: 3,
                low: -128,
                high: 127,
            };
            assert_eq!(spec.sum, Some(Summand::Quantised(expected)));
            // The product and what reads it.
            assert_eq!(b.graph.live().count(), 2);
        }
    }

    #[test]
    fn the_later_product_takes_the_earlier_one_in() {
        let mut b = Builder::new();
        let (first, second) = (product(&mut b), product(&mut b));
        let out = sum(&mut b, [second, first], 1.0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        assert_eq!(b.graph.node(b.graph.producer(out).unwrap()).input(3), Some(first));
    }

    #[test]
    fn floats_that_others_read_stay_beside_the_sum() {
        let mut b = Builder::new();
        let (p, r) = (product(&mut b), integers(&mut b));
        let out = sum(&mut b, [p, r], 1.0);
        let y = b.get("y");
        b.call("aten::multinomial.out", &[y], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        assert_eq!(b.graph.node(b.graph.producer(out).unwrap()).input(3), Some(r));
        assert!(b.graph.producer(y).is_some_and(|id| b.graph.is_live(id)));
    }

    #[test]
    fn results_that_others_read_and_other_sums_stay() {
        let mut b = Builder::new();
        let (p, r) = (product(&mut b), integers(&mut b));
        b.call("aten::multinomial.out", &[p], &[4, 16]);
        sum(&mut b, [p, r], 1.0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = Builder::new();
        let (p, r) = (product(&mut b), integers(&mut b));
        sum(&mut b, [p, r], 2.0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = Builder::new();
        let p = product(&mut b);
        sum(&mut b, [p, p], 1.0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
