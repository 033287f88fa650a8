//! Constant rows that scale what a product makes, or are added to it.

use super::sink_views::named_sizes;
use crate::graph::{Argument, Draft, Graph, NodeId, Op, TensorId};
use pteron_core::DType;

/// `result = operator(y, row)`, the only reader of y.
pub(super) struct RowCall {
    pub node: NodeId,
    pub row: TensorId,
    pub result: TensorId,
}

/// The only reader of `y` if it is `operator` with a constant row of one number for each of `n` columns.
pub(super) fn row_call(graph: &Graph, y: TensorId, operator: &str, n: usize) -> Option<RowCall> {
    let id = graph.only_reader(y)?;
    let node = graph.node(id);
    let is_plain_sum = operator != "aten::add.out" || node.number(2) == Some(1.0);
    let row = (0..2).find(|at| node.input(*at) == Some(y)).and_then(|at| node.input(1 - at))?;
    let result = node.output()?;
    (node.operator == operator
        && node.epilogue.is_none()
        && is_plain_sum
        && graph.tensor(row).is_constant()
        && is_row(graph, row, n)
        && graph.tensor(y).spec.shape.last() == Some(&n)
        && graph.tensor(y).spec == graph.tensor(result).spec)
        .then_some(RowCall { node: id, row, result })
}

/// One f32 number for each of `n` columns?
pub(super) fn is_row(graph: &Graph, tensor: TensorId, n: usize) -> bool {
    let spec = &graph.tensor(tensor).spec;
    spec.dtype == DType::Float32 && *spec.shape == [n]
}

/// `z = add(view(y), bias)`.
pub(super) struct Tail {
    view: NodeId,
    sum: NodeId,
    /// Of the view.
    sizes: Argument,
    /// z.
    result: TensorId,
}

/// A bias that is added behind a product.
pub(super) enum BiasBehind {
    /// `add(y, bias)`.
    Sum(RowCall),
    /// `add(view(y), bias)`: the bias, and what is left of it.
    View(TensorId, Tail),
}

impl BiasBehind {
    /// The one behind `y`, which has `n` columns.
    pub(super) fn find(graph: &Graph, y: TensorId, n: usize) -> Option<BiasBehind> {
        if let Some(call) = row_call(graph, y, "aten::add.out", n) {
            return Some(BiasBehind::Sum(call));
        }
        let view = graph.only_reader(y).filter(|id| graph.node(*id).op == Op::View)?;
        let v = graph.node(view).output()?;
        let RowCall { node: sum, row, result } = row_call(graph, v, "aten::add.out", n)?;
        let sizes = named_sizes(graph, view, v).filter(|_| graph.tensor(result).is_private())?;
        Some(BiasBehind::View(row, Tail { view, sum, sizes, result }))
    }
}

/// A product in another form, the nodes it replaces, and what is behind it.
pub(super) struct Product<'a> {
    pub nodes: &'a [NodeId],
    pub draft: Draft,
    /// The result.
    pub y: TensorId,
    pub tail: Option<&'a Tail>,
}

impl Product<'_> {
    /// Can [`Product::put`] do it?
    pub(super) fn fits(&self, graph: &Graph) -> bool {
        let can_view = |tail: &Tail| graph.can_replace(&[tail.view, tail.sum], &self.view(tail));
        graph.can_replace(self.nodes, &self.draft) && self.tail.is_none_or(can_view)
    }

    /// Puts the draft in, and the view behind it in the place of the sum that the draft took in; both or none.
    pub(super) fn put(self, graph: &mut Graph) -> bool {
        if !self.fits(graph) {
            return false;
        }
        if let Some(tail) = self.tail {
            graph.replace(&[tail.view, tail.sum], self.view(tail));
        }
        graph.replace(self.nodes, self.draft).is_some()
    }

    fn view(&self, tail: &Tail) -> Draft {
        Draft::view(self.y, tail.sizes.clone(), tail.result)
    }
}
