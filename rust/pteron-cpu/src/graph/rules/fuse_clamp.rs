//! `fuse_clamp`: a clamp behind a matrix product or convolution moves into its tile.
//!
//! *Before*: `y = linear(x, W, b); z = relu(y)`. *After*: `z = linear+clamp(x, W, b)`.
//!
//! Applies when the clamp is the only reader of `y`; also to products and convolutions in integers that are written in
//! floats. Exact: clamping in registers or from memory gives the same bytes. Saves one pass over the activations.

use super::rule::{Rule, WEIGHTED};
use crate::graph::{Draft, Graph, Host, NodeId, Op, replace_found};
use crate::integer::IntegerOutput;
use pteron_core::Result;

pub(super) const RULE: Rule = Rule {
    name: "fuse_clamp",
    about: "relu, hardtanh or clamp into the product or convolution before it",
    needs: &[WEIGHTED, &["aten::relu.out", "aten::hardtanh.out", "aten::clamp.out"]],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    replace_found(graph, host, graph.ids(), find)
}

fn find(graph: &Graph, consumer: NodeId) -> Option<(Vec<NodeId>, Draft)> {
    let node = graph.node(consumer);
    let Op::Clamp { min, max } = node.op else { return None };
    if !graph.is_live(consumer) {
        return None;
    }
    let (input, output) = (node.input(0)?, node.output()?);
    let producer = graph.sole_producer(input)?;
    let before = graph.node(producer);
    let is_last = before.epilogue.clamp.is_none() && before.epilogue.post.is_none();
    if !is_last || graph.tensor(input).spec != graph.tensor(output).spec {
        return None;
    }
    let mut draft = before.draft();
    draft.rename(input, output);
    match &mut draft.op {
        // A part of what it computes, before anything is added.
        Op::Integer(spec)
            if spec.clamp.is_none() && spec.output == IntegerOutput::Float && spec.sum.is_none() =>
        {
            spec.clamp = Some((min, max));
        }
        op if op.takes_epilogue() => draft.epilogue.clamp = Some((min, max)),
        _ => return None,
    }
    Some((vec![producer, consumer], draft))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::Epilogue;
    use crate::graph::testing::{AnyKernel, Builder};

    /// x → linear → relu.
    fn linear_relu() -> Builder {
        let mut b = Builder::new();
        let x = b.border(&[4, 8]);
        let w = b.constant(&[8, 16]);
        let y = b.call("aten::mm.out", &[x, w], &[4, 16]);
        let z = b.call("aten::relu.out", &[y], &[4, 16]);
        b.name("y", y).name("z", z);
        b
    }

    #[test]
    fn a_sum_behind_an_integer_product_is_not_clamped_before_it() {
        use crate::graph::rules::quantised::testing::integer_product;
        for (sum, count) in [(None, 1), (Some(crate::integer::Summand::Floats), 0)] {
            let mut b = Builder::new();
            let y = integer_product(&mut b, IntegerOutput::Float);
            let id = b.graph.producer(y).unwrap();
            let mut draft = b.graph.node(id).draft();
            if let Op::Integer(spec) = &mut draft.op {
                spec.sum = sum;
            }
            b.graph.replace(&[id], draft).unwrap();
            b.call("aten::relu.out", &[y], &[4, 16]);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), count);
        }
    }

    #[test]
    fn fuses_the_only_reader() {
        let mut b = linear_relu();
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let nodes: Vec<_> = b.graph.live().collect();
        let [(_, fused)] = nodes.as_slice() else { panic!("one node is left: {nodes:?}") };
        assert_eq!((fused.op.clone(), fused.output()), (Op::Linear, Some(b.get("z"))));
        assert_eq!(fused.covers.as_slice(), [0, 1]);
        assert_eq!(fused.epilogue, Epilogue::RELU);
    }

    #[test]
    fn leaves_values_with_other_readers_alone() {
        let mut b = linear_relu();
        let y = b.get("y");
        b.call("aten::neg.out", &[y], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = linear_relu();
        b.pin("y", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn one_clamp_per_tile() {
        let mut b = linear_relu();
        let z = b.get("z");
        b.call("aten::relu.out", &[z], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
    }

    #[test]
    fn an_output_over_the_input_keeps_them_apart() {
        let mut b = linear_relu();
        b.pin("z", 0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        b.pin("z", 8192);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
    }
}
