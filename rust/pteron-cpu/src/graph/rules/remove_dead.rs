//! `remove_dead`: calls whose results nobody reads are not made.
//!
//! *Before*: `y = permute_copy(x); z = relu(x)`, `y` unread. *After*: `z = relu(x)`.
//!
//! Applies to views, copies, casts, pads by known margins, least and largest elements, elementwise functions, matrix products,
//! convolutions and constants that are dequantised: calls that have no effect but their result and cannot fail on the contents of a
//! tensor. Exact.

use super::fold_constants::DEQUANTISE;
use super::fold_padding::{PAD, PADS};
use super::quantised::affine_reader::AFFINE;
use super::quantised::rows::{BY_TENSOR, BY_TOKEN};
use super::rule::{Rule, WEIGHTED};
use crate::graph::{Graph, Host, NodeId, Op};
use pteron_core::Result;
use pteron_kernels::elementwise::function_table::recognise;

pub(super) const RULE: Rule = Rule {
    name: "remove_dead",
    about: "calls whose results nobody reads",
    // Nothing but what other rules leave behind is dead: exporters remove the rest.
    needs: &[WEIGHTED],
    apply,
};

/// Operators that only copy, besides views.
const COPIES: &[&str] = &[
    "aten::permute_copy.out",
    "aten::transpose_copy.int_out",
    "aten::t_copy.out",
    "aten::view_copy.out",
    "aten::unsqueeze_copy.out",
    "aten::squeeze_copy.dim_out",
    "aten::squeeze_copy.dims_out",
    "aten::clone.out",
    "aten::alias_copy.out",
    "aten::detach_copy.out",
    "aten::lift_fresh_copy.out",
];

fn apply(graph: &mut Graph, _: &mut dyn Host) -> Result<usize> {
    Ok(remove_dead(graph))
}

/// Removes what leads to nothing; returns the number of nodes.
pub(super) fn remove_dead(graph: &mut Graph) -> usize {
    let ids: Vec<NodeId> = graph.ids().collect();
    let dead = |graph: &mut Graph, id: &NodeId| is_pure(graph, *id) && graph.remove(*id);
    ids.iter().rev().filter(|id| dead(graph, id)).count()
}

fn is_pure(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::View
        | Op::Linear
        | Op::RowProduct
        | Op::Integer(_)
        | Op::WeightOnly(_)
        | Op::MaxPool
        | Op::RmsNorm(_)
        | Op::Rotary(_)
        | Op::Convolution
        | Op::PaddedConvolution
        | Op::Winograd
        | Op::Clamp { .. } => true,
        _ => {
            COPIES.contains(&node.operator.as_str())
                || (node.operator == PAD && node.ints(PADS).is_some())
                || DEQUANTISE.contains(&node.operator.as_str())
                || [&BY_TOKEN[..], &BY_TENSOR, &AFFINE]
                    .iter()
                    .any(|set| set.contains(&node.operator.as_str()))
                || recognise(&node.operator, &graph.arg_specs(id)).is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};

    #[test]
    fn what_leads_to_nothing_goes() {
        let mut b = Builder::new();
        let x = b.border(&[4, 8]);
        let y = b.call("aten::neg.out", &[x], &[4, 8]);
        b.call("aten::relu.out", &[y], &[4, 8]);
        let z = b.call("aten::exp.out", &[x], &[4, 8]);
        b.call("aten::multinomial.out", &[x], &[4]);
        b.name("z", z).pin("z", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 2);
        assert_eq!(b.graph.live().count(), 2);
    }
}
