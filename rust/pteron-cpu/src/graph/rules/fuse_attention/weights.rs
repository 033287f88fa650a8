//! The softmax between the two products of attention, plain or followed by what exporters write to make
//! rows that see nothing zero.

use crate::attention::EmptyRow;
use crate::graph::{Graph, Host, Node, NodeId, TensorId};
use pteron_core::DType;

/// A softmax over the last dimension.
pub(super) struct Weights {
    /// What goes in.
    pub scores: TensorId,
    /// What comes out.
    pub weights: TensorId,
    pub empty_row: EmptyRow,
    pub nodes: Vec<NodeId>,
}

/// The softmax whose last node is the softmax call or the division `id`, with what follows it.
pub(super) fn weights(graph: &Graph, host: &dyn Host, id: NodeId) -> Option<Weights> {
    let node = graph.node(id);
    let mut found = match node.operator.as_str() {
        "aten::_softmax.out" => {
            let (scores, weights) = (node.input(0)?, node.output()?);
            let is_plain = node.number(2) == Some(0.0);
            (is_plain && is_last(graph, scores, node.number(1)?)).then(|| Weights {
                scores,
                weights,
                empty_row: EmptyRow::NaN,
                nodes: vec![id],
            })?
        }
        "aten::div.out" => decomposed(graph, id)?,
        _ => return None,
    };
    found.take_zeroed(graph, host);
    if let Some((scores, weights, casts)) = narrow(graph, &found) {
        (found.scores, found.weights) = (scores, weights);
        found.nodes.extend(casts);
        found.take_zeroed(graph, host);
    }
    Some(found)
}

impl Weights {
    /// Takes in what makes rows that see nothing zero.
    fn take_zeroed(&mut self, graph: &Graph, host: &dyn Host) {
        if let Some((out, nodes)) = zeroed(graph, host, self) {
            self.weights = out;
            self.empty_row = EmptyRow::Zero;
            self.nodes.extend(nodes);
        }
    }
}

/// Scores and weights of 16 bits around a softmax in f32, with the casts between them.
fn narrow(graph: &Graph, found: &Weights) -> Option<(TensorId, TensorId, [NodeId; 2])> {
    let dtype = |t: TensorId| graph.tensor(t).spec.dtype;
    let widening = graph.producer(found.scores).filter(|id| is_cast(graph.node(*id)))?;
    let scores = graph.node(widening).input(0)?;
    let narrowing = graph.only_reader(found.weights).filter(|id| is_cast(graph.node(*id)))?;
    let weights = graph.node(narrowing).output()?;
    let fits = dtype(found.scores) == DType::Float32
        && matches!(dtype(scores), DType::BFloat16 | DType::Float16)
        && dtype(weights) == dtype(scores)
        && graph.tensor(scores).spec.shape == graph.tensor(found.scores).spec.shape
        && graph.tensor(weights).spec.shape == graph.tensor(found.weights).spec.shape;
    fits.then_some((scores, weights, [widening, narrowing]))
}

pub(super) fn is_cast(node: &Node) -> bool {
    matches!(node.operator.as_str(), "dim_order_ops::_to_dim_order_copy.out" | "aten::_to_copy.out")
        && node.epilogue.is_none()
}

fn is_last(graph: &Graph, tensor: TensorId, dim: f64) -> bool {
    let rank = graph.tensor(tensor).spec.shape.len() as f64;
    dim == -1.0 || dim == rank - 1.0
}

/// Is the list at position 1 the last dimension alone, kept with extent one?
fn reduces_last(graph: &Graph, node: &Node) -> bool {
    let is_kept = node.number(2) == Some(1.0);
    match (node.input(0), node.ints(1)) {
        (Some(tensor), Some([dim])) => is_kept && is_last(graph, tensor, *dim as f64),
        _ => false,
    }
}

/// The node behind argument `position` of `node`, if it is a call of `operator`.
fn behind<'a>(graph: &'a Graph, node: &Node, position: usize, operator: &str) -> Option<(NodeId, &'a Node)> {
    let id = graph.producer(node.input(position)?)?;
    let found = graph.node(id);
    (found.operator == operator).then_some((id, found))
}

/// `exp(x - amax(x)) / sum(exp(x - amax(x)))`, the division given.
fn decomposed(graph: &Graph, id: NodeId) -> Option<Weights> {
    let div = graph.node(id);
    let (exp_id, exp) = behind(graph, div, 0, "aten::exp.out")?;
    let (sum_id, sum) = behind(graph, div, 1, "aten::sum.IntList_out")?;
    let (sub_id, sub) = behind(graph, exp, 0, "aten::sub.out")?;
    let (max_id, max) = behind(graph, sub, 1, "aten::amax.out")?;
    let scores = sub.input(0)?;
    let is_softmax = sum.input(0) == exp.output()
        && max.input(0) == Some(scores)
        && sub.number(2) == Some(1.0)
        && sum.is_none(3)
        && reduces_last(graph, sum)
        && reduces_last(graph, max);
    let nodes = vec![max_id, sub_id, exp_id, sum_id, id];
    is_softmax.then_some(Weights { scores, weights: div.output()?, empty_row: EmptyRow::NaN, nodes })
}

/// `where(¬any(¬(scores == -inf)), 0, weights)`: its result and its nodes.
fn zeroed(graph: &Graph, host: &dyn Host, found: &Weights) -> Option<(TensorId, Vec<NodeId>)> {
    let is_where = |id: &&NodeId| {
        let node = graph.node(**id);
        node.operator == "aten::where.self_out" && node.input(2) == Some(found.weights)
    };
    let id = *graph.readers(found.weights).iter().find(is_where)?;
    let choice = graph.node(id);
    let (none, not_any) = behind(graph, choice, 0, "aten::logical_not.out")?;
    let (some, any) = behind(graph, not_any, 0, "aten::any.out")?;
    let (seen, is_seen) = behind(graph, any, 0, "aten::logical_not.out")?;
    let (hidden, is_hidden) = behind(graph, is_seen, 0, "aten::eq.Scalar_out")?;
    let keeps_extent = any.number(2) == Some(1.0);
    let is_chain = is_hidden.input(0) == Some(found.scores)
        && is_hidden.number(1) == Some(f64::NEG_INFINITY)
        && keeps_extent
        && is_last(graph, found.scores, any.number(1)?)
        && is_filled(graph, host, choice.input(1)?, 0.0);
    let mut nodes = vec![hidden, seen, some, none];
    nodes.extend(graph.producer(choice.input(1)?));
    nodes.push(id);
    let out = choice.output()?;
    let same = graph.tensor(out).spec.shape == graph.tensor(found.weights).spec.shape;
    (is_chain && same).then_some((out, nodes))
}

/// Longest constant whose elements are looked at.
const SMALL: usize = 4096;

/// Is every element of `tensor` the number `value`, whatever its shape?
pub(super) fn is_filled(graph: &Graph, host: &dyn Host, tensor: TensorId, value: f32) -> bool {
    let t = graph.tensor(tensor);
    if t.is_constant() {
        let small = t.spec.shape.numel().is_ok_and(|n| n <= SMALL);
        let elements = host.constant(graph, tensor).filter(|_| small).and_then(|c| c.to_vec::<f32>().ok());
        return elements.is_some_and(|e| !e.is_empty() && e.iter().all(|x| *x == value));
    }
    let Some(node) = graph.producer(tensor).map(|p| graph.node(p)) else { return false };
    let number = match node.operator.as_str() {
        "aten::full_like.out" | "aten::full.out" => node.number(1),
        "aten::scalar_tensor.out" => node.number(0),
        _ => None,
    };
    number.is_some_and(|n| n as f32 == value)
}
