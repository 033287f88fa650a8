//! `drop_indices`: max pooling whose indices nobody reads does not compute them.
//!
//! *Before*: `y, i = max_pool2d_with_indices(x)`, `i` unread. *After*: `y = max pool(x)`. Exact. Indices are eight bytes for
//! every element, and following them is most of the arithmetic.

use super::rule::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, replace_found};
use pteron_core::Result;
use smallvec::smallvec;

pub(super) const RULE: Rule = Rule {
    name: "drop_indices",
    about: "max pooling without indices that nobody reads",
    needs: &[POOLS],
    apply,
};

const POOLS: &[&str] = &["aten::max_pool2d_with_indices.out", "aten::max_pool3d_with_indices.out"];

/// Behind input, kernel size, stride, padding, dilation and ceil mode.
const OUT: usize = 6;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    replace_found(graph, host, graph.ids(), find)
}

fn find(graph: &Graph, id: NodeId) -> Option<(Vec<NodeId>, Draft)> {
    let node = graph.node(id);
    let is_call = graph.is_live(id) && node.op == Op::Opaque && POOLS.contains(&node.operator.as_str());
    let &[values, indices] = node.outputs.as_slice() else { return None };
    let is_unread = graph.tensor(indices).is_private() && graph.readers(indices).is_empty();
    if !is_call || !is_unread {
        return None;
    }
    let mut args = node.args.get(..OUT)?.to_vec();
    args.push(Argument::Tensor(values));
    let draft = Draft {
        op: Op::MaxPool,
        operator: String::new(),
        args,
        outputs: smallvec![values],
        epilogue: Epilogue::NONE,
    };
    Some((vec![id], draft))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};
    use crate::graph::{Node, TensorId};

    fn pool(b: &mut Builder) -> [TensorId; 2] {
        let x = b.border(&[1, 4, 8, 8]);
        let list = |v: i64| Argument::ints(&[v, v]);
        let mut args = vec![Argument::Tensor(x), list(2), list(2), list(0), list(1)];
        args.push(Argument::Literal(crate::graph::Literal::Bool(false), None));
        let [values, indices] = b.results(&[1, 4, 4, 4]);
        args.extend([values, indices].map(Argument::Tensor));
        b.graph.push(Node::call(POOLS[0], args, smallvec![values, indices], 0));
        [values, indices]
    }

    #[test]
    fn unread_indices_are_not_computed() {
        let mut b = Builder::new();
        let [values, _] = pool(&mut b);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let node = b.graph.node(b.graph.producer(values).unwrap());
        assert_eq!((node.op.clone(), node.args.len()), (Op::MaxPool, OUT + 1));
    }

    #[test]
    fn indices_that_are_read_stay() {
        let mut b = Builder::new();
        let [_, indices] = pool(&mut b);
        b.call("aten::neg.out", &[indices], &[1, 4, 4, 4]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
