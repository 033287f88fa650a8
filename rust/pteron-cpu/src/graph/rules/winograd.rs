//! `winograd`: 3 × 3 convolutions of unit stride over channels-last images by fewer products.
//!
//! *Before*: `y = convolution(x, W, b)`. *After*: the same call, which another kernel computes.
//!
//! Applies where [`crate::conv::winograd`] is for the shapes. Not exact: differences are about 1e-6 of the
//! largest output, and NaN or infinity in an input reaches neighbouring outputs. Where the rule is off, every
//! output is the sum of its own window.

use super::rule::Rule;
use crate::graph::{Draft, Graph, Host, Op, replace_found};
use pteron_core::Result;

pub(super) const RULE: Rule = Rule {
    name: "winograd",
    about: "3x3 convolutions by 16 products where 36 are needed otherwise",
    needs: &[&["aten::convolution.out"]],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    replace_found(graph, host, graph.ids(), |graph, id| {
        let node = graph.node(id);
        let is_convolution = graph.is_live(id) && node.op.is_convolution();
        is_convolution.then(|| (vec![id], Draft { op: Op::Winograd, ..node.draft() }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::Epilogue;
    use crate::graph::testing::{AnyKernel, Builder};

    #[test]
    fn a_convolution_keeps_what_was_fused_behind_it() {
        let mut b = Builder::new();
        let (x, w) = (b.border(&[1, 32, 8, 8]), b.constant(&[32, 32, 3, 3]));
        let y = b.call("aten::convolution.out", &[x, w], &[1, 32, 8, 8]);
        let id = b.graph.producer(y).unwrap();
        let mut draft = b.graph.node(id).draft();
        draft.epilogue = Epilogue::RELU;
        b.graph.replace(&[id], draft).unwrap();
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let nodes: Vec<_> = b.graph.live().collect();
        let [(_, node)] = nodes.as_slice() else { panic!("one node is left: {nodes:?}") };
        assert_eq!((&node.op, &node.epilogue), (&Op::Winograd, &Epilogue::RELU));
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
