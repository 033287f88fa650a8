//! `fuse_residual`: an addition behind a matrix product or convolution moves into its tile.
//!
//! *Before*: `y = convolution(x, W, b); z = add(y, r)`. *After*: `z = convolution+residual(x, W, b, r)`.
//!
//! Products in integers, too, where they write floats. Applies when the addition is the only reader of `y`, `r` has the shape and memory order of `y`, and
//! `alpha` is 1. Where both summands could take the other one in, the one that is computed last does. Exact:
//! the tile adds the same two numbers. Saves a pass over the activations.

use super::rule::{Rule, WEIGHTED};
use crate::graph::{Draft, Graph, Host, Node, NodeId, Op};
use crate::integer::{IntegerOutput, Summand};
use pteron_core::Result;

pub(super) const RULE: Rule = Rule {
    name: "fuse_residual",
    about: "an addition into the product or convolution before it",
    needs: &[WEIGHTED, &[ADD]],
    apply,
};

const ADD: &str = "aten::add.out";
/// Position of `alpha`.
const ALPHA: usize = 2;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for sum in graph.ids() {
        for (producer, draft) in candidates(graph, sum) {
            if host.can_prepare(graph, &draft)? && graph.replace(&[producer, sum], draft).is_some() {
                count += 1;
                break;
            }
        }
    }
    Ok(count)
}

/// The products that could take the sum in, the last one first.
fn candidates(graph: &Graph, sum: NodeId) -> Vec<(NodeId, Draft)> {
    let node = graph.node(sum);
    if !graph.is_live(sum) || node.operator != ADD || node.op != Op::Opaque || node.number(ALPHA) != Some(1.0)
    {
        return vec![];
    }
    let mut found: Vec<_> =
        [(0, 1), (1, 0)].iter().filter_map(|(of, other)| fused(graph, node, *of, *other)).collect();
    found.sort_by(|(a, _), (b, _)| {
        if graph.is_before(*a, *b) { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less }
    });
    found
}

fn fused(graph: &Graph, sum: &Node, of: usize, other: usize) -> Option<(NodeId, Draft)> {
    let (input, residual, output) = (sum.input(of)?, sum.input(other)?, sum.output()?);
    let spec = &graph.tensor(output).spec;
    let producer = graph.sole_producer(input)?;
    let before = graph.node(producer);
    let are_alike = [input, residual].iter().all(|t| graph.tensor(*t).spec == *spec);
    if !are_alike || !before.epilogue.is_none() {
        return None;
    }
    let mut draft = before.draft();
    draft.rename(input, output);
    let position = draft.push_input(residual);
    match &mut draft.op {
        Op::Integer(spec) if spec.output == IntegerOutput::Float && spec.sum.is_none() => {
            spec.sum = Some(Summand::Floats);
        }
        op if op.takes_epilogue() => draft.epilogue.residual = Some(position),
        _ => return None,
    }
    Some((producer, draft))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Argument;
    use crate::graph::testing::{AnyKernel, Builder};
    use pteron_core::TensorSpec;

    fn sum(b: &mut Builder, y: crate::graph::TensorId, r: crate::graph::TensorId, alpha: i64) {
        let args = vec![Argument::Tensor(y), Argument::Tensor(r), Argument::int(alpha)];
        let z = b.call_with(ADD, args, &[4, 16]);
        b.name("z", z);
    }

    fn product(b: &mut Builder) -> crate::graph::TensorId {
        let x = b.border(&[4, 8]);
        let w = b.constant(&[8, 16]);
        b.call("aten::mm.out", &[x, w], &[4, 16])
    }

    #[test]
    fn the_later_product_takes_the_earlier_one_in() {
        let mut b = Builder::new();
        let (first, second) = (product(&mut b), product(&mut b));
        sum(&mut b, second, first, 1);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let fused = b.graph.node(b.graph.producer(b.get("z")).unwrap());
        assert_eq!(fused.epilogue.residual, Some(3));
        assert_eq!(fused.input(3), Some(first));
        assert_eq!(fused.covers.as_slice(), [1, 2]);
    }

    #[test]
    fn an_integer_product_that_writes_floats_takes_it_in() {
        use crate::graph::rules::quantised::testing::integer_product;
        for (output, count) in
            [(IntegerOutput::Float, 1), (crate::graph::rules::quantised::testing::BYTES, 0)]
        {
            let mut b = Builder::new();
            let y = integer_product(&mut b, output);
            let r = b.border(&[4, 16]);
            sum(&mut b, y, r, 1);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), count);
            if count == 1 {
                let node = b.graph.node(b.graph.producer(b.get("z")).unwrap());
                let Op::Integer(spec) = &node.op else { panic!("{:?}", node.op) };
                assert_eq!((spec.sum, spec.summand()), (Some(Summand::Floats), Some(3)));
                assert_eq!(node.input(3), Some(r));
            }
        }
    }

    #[test]
    fn a_product_is_not_added_to_itself_and_alpha_must_be_one() {
        let mut b = Builder::new();
        let y = product(&mut b);
        sum(&mut b, y, y, 1);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = Builder::new();
        let (y, r) = (product(&mut b), b.border(&[4, 16]));
        sum(&mut b, y, r, 2);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn a_summand_that_broadcasts_stays_apart() {
        let mut b = Builder::new();
        let (y, r) = (product(&mut b), b.border(&[1, 16]));
        sum(&mut b, y, r, 1);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        assert_eq!(
            b.graph.tensor(r).spec,
            TensorSpec::contiguous(pteron_core::DType::Float32, &[1, 16]).unwrap()
        );
    }
}
