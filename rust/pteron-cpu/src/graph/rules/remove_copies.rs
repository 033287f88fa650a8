//! `remove_copies`: copies into the same dtype and memory order are not made.
//!
//! *Before*: `c = clone(addmm(b, x, W)); z = add(c, r)`. *After*: `z = add(addmm(b, x, W), r)`.
//!
//! Exporters leave a copy for every dropout and `contiguous()`. Applies when only this run sees the copied
//! tensor and the copy, and nothing
//! overwrites the bytes before the last reader of the copy. Exact. Saves the copy, and other rules see what stands behind it.

use super::rule::Rule;
use crate::graph::{Graph, Host, NodeId};

pub(super) const RULE: Rule = Rule {
    name: "remove_copies",
    about: "copies into the same dtype and memory order",
    needs: &[COPIES],
    apply: |graph, _: &mut dyn Host| Ok(remove_copies(graph)),
};

/// Operators that give the elements of their first argument.
pub(super) const COPIES: &[&str] = &[
    "aten::clone.out",
    "aten::alias_copy.out",
    "aten::detach_copy.out",
    "aten::lift_fresh_copy.out",
    "aten::_to_copy.out",
    "dim_order_ops::_clone_dim_order.out",
    "dim_order_ops::_to_dim_order_copy.out",
];

/// Lets readers of idle copies read what was copied; returns the number of copies.
pub(super) fn remove_copies(graph: &mut Graph) -> usize {
    let ids: Vec<NodeId> = graph.ids().collect();
    ids.into_iter().filter(|id| remove(graph, *id)).count()
}

fn remove(graph: &mut Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    if !graph.is_live(id) || !COPIES.contains(&node.operator.as_str()) || !node.epilogue.is_none() {
        return false;
    }
    let (Some(input), Some(output)) = (node.input(0), node.output()) else { return false };
    // Who overwrites a tensor has it as `self` of an operator that works in place: such tensors are
    // not private.
    let (from, to) = (graph.tensor(input), graph.tensor(output));
    if !from.is_private() || !to.is_private() || from.spec != to.spec {
        return false;
    }
    let readers: Vec<NodeId> = graph.readers(output).to_vec();
    // What is copied may be a view of a tensor that stays where the file has it.
    graph.redirect(&readers, output, input) && graph.remove(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::Builder;
    use crate::graph::{Argument, ET_VIEW};

    #[test]
    fn a_copy_goes_unless_somebody_else_sees_it() {
        for is_seen in [false, true] {
            let mut b = Builder::new();
            let x = b.border(&[4, 8]);
            let y = b.call("aten::neg.out", &[x], &[4, 8]);
            let c = b.call_with("aten::clone.out", vec![Argument::Tensor(y), Argument::none()], &[4, 8]);
            let z = b.call("aten::exp.out", &[c], &[4, 8]);
            b.name("c", c);
            if is_seen {
                b.pin("c", 4096);
            }
            assert_eq!(remove_copies(&mut b.graph), usize::from(!is_seen));
            let read = b.graph.node(b.graph.producer(z).unwrap()).input(0);
            assert_eq!(read, Some(if is_seen { c } else { y }));
        }
    }

    /// x; v = view(x); c = clone(v); w = view(c); z = relu(w), and `exp(w)` where there is `a_later_reader`.
    fn copy_of_a_view(a_later_reader: bool) -> Builder {
        let mut b = Builder::new();
        let x = b.border(&[4, 8]);
        let v = b.call_with(ET_VIEW, vec![Argument::Tensor(x), Argument::none()], &[32]);
        let c = b.call_with("aten::clone.out", vec![Argument::Tensor(v), Argument::none()], &[32]);
        let w = b.call_with(ET_VIEW, vec![Argument::Tensor(c), Argument::none()], &[4, 8]);
        let z = b.call("aten::relu.out", &[w], &[4, 8]);
        b.name("w", w).name("z", z);
        if a_later_reader {
            b.call("aten::exp.out", &[w], &[4, 8]);
        }
        b
    }

    #[test]
    fn a_copy_of_a_view_stays_where_its_bytes_are_overwritten() {
        for (place, a_later_reader, is_removed) in [(4096, true, true), (64, false, false), (64, true, false)]
        {
            let mut b = copy_of_a_view(a_later_reader);
            b.pin("z", place);
            assert_eq!(remove_copies(&mut b.graph), usize::from(is_removed), "{place} {a_later_reader}");
        }
        // Overwritten once the last reader has run.
        let mut b = copy_of_a_view(false);
        let w = b.get("w");
        let later = b.call("aten::neg.out", &[w], &[4, 8]);
        b.call("aten::exp.out", &[later], &[4, 8]);
        let end = b.call("aten::exp.out", &[later], &[4, 8]);
        b.name("end", end).pin("end", 0);
        assert_eq!(remove_copies(&mut b.graph), 1);
    }

    #[test]
    fn a_copy_of_what_the_run_finds_stays() {
        let mut b = Builder::new();
        let x = b.border(&[4, 8]);
        let c = b.call_with("aten::clone.out", vec![Argument::Tensor(x), Argument::none()], &[4, 8]);
        b.call("aten::exp.out", &[c], &[4, 8]);
        assert_eq!(remove_copies(&mut b.graph), 0);
    }
}
