//! `fuse_tail`: elementwise functions of one matrix product or convolution run on its blocks while they
//! are hot.
//!
//! *Before*: `y = linear(x, W, b); z = gelu(y)`, or `s = sigmoid(y); z = mul(y, s)`. *After*:
//! `z = linear+chain(x, W, b)`.
//!
//! Applies to the longest row of elementwise calls that read nothing but `y`, numbers and each other, when
//! nobody else reads `y` or anything between. Exact: the chain gives the bytes of the separate calls.
//! Saves a pass over the activations for each of them.

use super::rule::{Rule, WEIGHTED};
use crate::graph::{Draft, Graph, Host, NodeId, Op, TensorId, replace_found};
use pteron_core::Result;
use pteron_kernels::elementwise::chain::{Chain, Operand, Step};
use pteron_kernels::elementwise::function_table::recognise;
use std::sync::Arc;

pub(super) const RULE: Rule = Rule {
    name: "fuse_tail",
    about: "elementwise functions into the product or convolution before them",
    needs: &[WEIGHTED],
    apply,
};

/// Most calls of one tail.
const MOST_CALLS: usize = 12;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    replace_found(graph, host, graph.ids(), find)
}

/// Calls that read `y`, numbers and each other.
struct Tail {
    nodes: Vec<NodeId>,
    results: Vec<TensorId>,
    steps: Vec<Step>,
}

fn find(graph: &Graph, producer: NodeId) -> Option<(Vec<NodeId>, Draft)> {
    let before = graph.node(producer);
    if !graph.is_live(producer) || !before.op.takes_epilogue() || before.epilogue.post.is_some() {
        return None;
    }
    let y = before.output()?;
    if !graph.tensor(y).is_private() {
        return None;
    }
    let mut tail = Tail { nodes: vec![], results: vec![], steps: vec![] };
    let mut closed = None;
    while tail.nodes.len() < MOST_CALLS {
        let Some(next) = next_call(graph, y, &tail) else { break };
        let Some((step, result)) = step_of(graph, y, &tail, next) else { break };
        tail.nodes.push(next);
        tail.results.push(result);
        tail.steps.push(step);
        if is_closed(graph, y, &tail) && Chain::new(1, tail.steps.clone()).is_ok() {
            closed = Some(tail.nodes.len());
        }
    }
    let count = closed?;
    let (last, steps) = (tail.results[count - 1], tail.steps[..count].to_vec());
    let mut draft = before.draft();
    draft.rename(y, last);
    draft.epilogue.post = Some(Arc::new(Chain::new(1, steps).ok()?));
    let mut nodes = vec![producer];
    nodes.extend(&tail.nodes[..count]);
    Some((nodes, draft))
}

/// The earliest reader of `y` or a result of the tail that is not in the tail.
fn next_call(graph: &Graph, y: TensorId, tail: &Tail) -> Option<NodeId> {
    let readers = std::iter::once(&y).chain(&tail.results).flat_map(|t| graph.readers(*t));
    let open = readers.copied().filter(|r| !tail.nodes.contains(r));
    open.reduce(|a, b| if graph.is_before(b, a) { b } else { a })
}

fn step_of(graph: &Graph, y: TensorId, tail: &Tail, node: NodeId) -> Option<(Step, TensorId)> {
    let call = graph.node(node);
    let result = call.output()?;
    let is_alike = |t: TensorId| graph.tensor(t).spec == graph.tensor(y).spec;
    let is_call = matches!(call.op, Op::Opaque | Op::Clamp { .. }) && call.epilogue.is_none();
    if !is_alike(result) || !is_call {
        return None;
    }
    let function = recognise(&call.operator, &graph.arg_specs(node))?;
    if function.is_predicate || function.has_condition {
        return None;
    }
    let operand = |position: usize| {
        let tensor = call.input(position)?;
        if tensor == y {
            return Some(Operand::Input(0));
        }
        let at = tail.results.iter().position(|t| *t == tensor)?;
        u8::try_from(at).ok().map(Operand::Step)
    };
    let operands: Option<Vec<Operand>> = (0..function.function.arity()).map(operand).collect();
    Some((Step { function: function.function, operands: operands? }, result))
}

/// Is the last result all that anybody else sees?
fn is_closed(graph: &Graph, y: TensorId, tail: &Tail) -> bool {
    let Some((_, inner)) = tail.results.split_last() else { return false };
    std::iter::once(&y)
        .chain(inner)
        .all(|t| graph.tensor(*t).is_private() && graph.readers(*t).iter().all(|r| tail.nodes.contains(r)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};

    fn product(b: &mut Builder) -> TensorId {
        let x = b.border(&[4, 8]);
        let w = b.constant(&[8, 16]);
        b.call("aten::mm.out", &[x, w], &[4, 16])
    }

    #[test]
    fn a_function_used_twice_is_one_chain() {
        let mut b = Builder::new();
        let y = product(&mut b);
        let s = b.call("aten::sigmoid.out", &[y], &[4, 16]);
        let z = b.call("aten::mul.out", &[y, s], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let fused = b.graph.node(b.graph.producer(z).unwrap());
        assert_eq!(fused.covers.as_slice(), [0, 1, 2]);
        assert_eq!(fused.epilogue.post.as_ref().unwrap().steps().len(), 2);
        assert_eq!(b.graph.live().count(), 1);
    }

    #[test]
    fn a_value_that_others_read_ends_the_tail() {
        let mut b = Builder::new();
        let y = product(&mut b);
        let s = b.call("aten::sigmoid.out", &[y], &[4, 16]);
        b.call("aten::neg.out", &[s], &[4, 16]);
        b.call("aten::sum.out", &[s], &[]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        assert_eq!(b.graph.node(b.graph.producer(s).unwrap()).covers.as_slice(), [0, 1]);
    }

    #[test]
    fn a_second_tensor_and_an_early_reader_leave_the_product_alone() {
        let mut b = Builder::new();
        let (y, other) = (product(&mut b), b.border(&[4, 16]));
        b.call("aten::mul.out", &[y, other], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = Builder::new();
        let y = product(&mut b);
        b.call("aten::sum.out", &[y], &[]);
        b.call("aten::sigmoid.out", &[y], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
