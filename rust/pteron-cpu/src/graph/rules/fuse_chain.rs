//! `fuse_chain`: elementwise calls that feed each other become one chain over whole tensors.
//!
//! *Before*: `s = sigmoid(x); y = mul(x, s); z = add(y, b)`. *After*: `z = elementwise[sigmoid, mul, add](x, b)`.
//!
//! Starts at a call and takes in, as long as a chain has room, every producer whose result has as many
//! elements and is read by nothing outside. Broadcasting stays right for shapes that change, since a
//! function of one element at a time does not care whether it comes before or after a repetition. Exact:
//! the chain gives the bytes of the separate calls. Saves a pass over memory for each call but one.
//! Runs behind the rules that put elementwise calls into products and convolutions.

use super::rule::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, TensorId, replace_found};
use pteron_core::Result;
use pteron_kernels::elementwise::chain::{Chain, Operand, Step};
use pteron_kernels::elementwise::function::ElementwiseCall;
use pteron_kernels::elementwise::function_table::{is_elementwise, recognise};
use std::sync::Arc;

pub(super) const RULE: Rule = Rule {
    name: "fuse_chain",
    about: "elementwise calls that feed each other into one chain",
    needs: &[],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let ids: Vec<NodeId> = graph.ids().collect();
    // From the end: what a call could take in has not been taken by an earlier one.
    replace_found(graph, host, ids.into_iter().rev(), find)
}

/// A call that may be a step.
#[derive(Clone)]
struct Member {
    node: NodeId,
    call: ElementwiseCall,
    operands: Vec<TensorId>,
    result: TensorId,
}

fn member(graph: &Graph, id: NodeId) -> Option<Member> {
    let node = graph.node(id);
    let is_plain = graph.is_live(id)
        && node.epilogue.is_none()
        && node.written_values.is_empty()
        && is_elementwise(&node.operator);
    if !is_plain {
        return None;
    }
    let call = recognise(&node.operator, &graph.arg_specs(id))?;
    let operands: Option<Vec<TensorId>> = (0..call.function.arity()).map(|i| node.input(i)).collect();
    Some(Member { node: id, call, operands: operands?, result: node.output()? })
}

fn find(graph: &Graph, last: NodeId) -> Option<(Vec<NodeId>, Draft)> {
    let mut members = vec![member(graph, last)?];
    let mut chain = None;
    let mut refused: Vec<NodeId> = Vec::new();
    // A chain is built for several more calls at once, twice as many after each that had room: building one for
    // every call would take time that grows with the square of their number.
    let mut batch = 1;
    loop {
        let (mut grown, mut newest) = (members.clone(), None);
        while grown.len() < members.len() + batch {
            let Some(next) = candidate(graph, &grown, &refused) else { break };
            newest = Some(next.node);
            grown.insert(grown.partition_point(|m| graph.is_before(m.node, next.node)), next);
        }
        let (Some(newest), added) = (newest, grown.len() - members.len()) else { break };
        match build(&grown) {
            Some(built) => {
                chain = Some(built);
                members = grown;
                batch = 2 * added;
            }
            None if added > 1 => batch = added / 2,
            None => refused.push(newest),
        }
    }
    let (chain, inputs) = chain?;
    let result = graph.node(last).output()?;
    let mut args: Vec<Argument> = inputs.into_iter().map(Argument::Tensor).collect();
    args.push(Argument::Tensor(result));
    let draft = Draft {
        op: Op::Elementwise(Arc::new(chain)),
        operator: String::new(),
        args,
        outputs: smallvec::smallvec![result],
        epilogue: Epilogue::NONE,
    };
    Some((members.iter().map(|m| m.node).collect(), draft))
}

/// A producer of an operand that nothing but the members reads.
fn candidate(graph: &Graph, members: &[Member], refused: &[NodeId]) -> Option<Member> {
    let is_member = |id: &NodeId| members.iter().any(|m| m.node == *id);
    let size = |t: TensorId| graph.tensor(t).spec.shape.numel().ok();
    members.iter().flat_map(|m| m.operands.iter().map(move |t| (m, *t))).find_map(|(reader, tensor)| {
        let producer = graph.producer(tensor).filter(|p| !is_member(p) && !refused.contains(p))?;
        let is_ours = graph.tensor(tensor).is_private()
            && graph.readers(tensor).iter().all(is_member)
            && size(tensor) == size(reader.result);
        is_ours.then(|| member(graph, producer)).flatten()
    })
}

/// The chain of `members`, in execution order, and the tensors that are its inputs.
fn build(members: &[Member]) -> Option<(Chain, Vec<TensorId>)> {
    let mut inputs: Vec<TensorId> = Vec::new();
    let mut steps = Vec::with_capacity(members.len());
    for (at, m) in members.iter().enumerate() {
        let mut operands = Vec::with_capacity(m.operands.len());
        for tensor in &m.operands {
            let step = members[..at].iter().position(|m| m.result == *tensor);
            operands.push(match step {
                Some(step) => Operand::Step(u8::try_from(step).ok()?),
                None => {
                    let known = inputs.iter().position(|t| t == tensor);
                    let input = known.unwrap_or_else(|| {
                        inputs.push(*tensor);
                        inputs.len() - 1
                    });
                    Operand::Input(u8::try_from(input).ok()?)
                }
            });
        }
        steps.push(Step { function: m.call.function, operands });
    }
    Some((Chain::new(inputs.len(), steps).ok()?, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Literal;
    use crate::graph::testing::{AnyKernel, Builder};

    const SHAPE: &[usize] = &[4, 16];

    fn chain(b: &Builder, result: TensorId) -> String {
        let node = b.graph.node(b.graph.producer(result).unwrap());
        match &node.op {
            Op::Elementwise(chain) => format!("{chain}({})", node.inputs().count()),
            _ => node.operator.clone(),
        }
    }

    fn add(b: &mut Builder, x: TensorId, y: TensorId, shape: &[usize]) -> TensorId {
        let one = Argument::Literal(Literal::Int(1), None);
        b.call_with("aten::add.out", vec![Argument::Tensor(x), Argument::Tensor(y), one], shape)
    }

    #[test]
    fn a_chain_and_a_small_tree_become_one_chain() {
        let mut b = Builder::new();
        let (x, row) = (b.border(SHAPE), b.constant(&[16]));
        let s = b.call("aten::sigmoid.out", &[x], SHAPE);
        let y = b.call("aten::mul.out", &[x, s], SHAPE);
        let t = b.call("aten::tanh.out", &[x], SHAPE);
        let u = add(&mut b, y, t, SHAPE);
        let z = add(&mut b, u, row, SHAPE);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        assert_eq!(chain(&b, z), "sigmoid, mul, tanh, add, add(2)");
        let node = b.graph.node(b.graph.producer(z).unwrap());
        assert_eq!(node.covers.as_slice(), [0, 1, 2, 3, 4]);
        assert_eq!(b.graph.live().count(), 1);
    }

    #[test]
    fn a_value_that_others_see_ends_the_chain() {
        let mut b = Builder::new();
        let x = b.border(SHAPE);
        let y = b.call("aten::tanh.out", &[x], SHAPE);
        let z = b.call("aten::exp.out", &[y], SHAPE);
        let w = b.call("aten::neg.out", &[z], SHAPE);
        b.call("aten::sum.out", &[y], &[]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        assert_eq!((chain(&b, y), chain(&b, w)), ("aten::tanh.out".into(), "exp, neg(1)".into()));
    }

    #[test]
    fn a_row_is_computed_once_not_per_row() {
        let mut b = Builder::new();
        let (x, row) = (b.border(SHAPE), b.border(&[16]));
        let r = b.call("aten::exp.out", &[row], &[16]);
        let y = b.call("aten::mul.out", &[x, r], SHAPE);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        assert_eq!(chain(&b, y), "aten::mul.out");
    }

    #[test]
    fn the_last_call_may_not_overwrite_what_the_first_reads() {
        let mut b = Builder::new();
        let x = b.border(SHAPE);
        let y = b.call("aten::exp.out", &[x], SHAPE);
        let z = b.call("aten::neg.out", &[y], SHAPE);
        b.name("z", z).pin("z", 0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn long_chains_are_cut_where_a_chain_is_full() {
        let mut b = Builder::new();
        let mut x = b.border(SHAPE);
        for _ in 0..100 {
            x = b.call("aten::exp.out", &[x], SHAPE);
        }
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 2);
        assert_eq!(b.graph.live().count(), 2);
    }
}
