//! What each dimension of a tensor around attention means, and how that moves through operators that
//! only rearrange.

use crate::attention::{Axes, Extent};
use crate::graph::{Graph, Node, NodeId, Op, TensorId};
use smallvec::SmallVec;

/// The meaning of each dimension.
pub(super) type Layout = SmallVec<[Extent; 4]>;

/// An operator on the way that rearranges elements and nothing else.
pub(super) struct Passed {
    pub node: NodeId,
    /// Its result's layout, when only the list of integers at this position says that shape.
    pub check: Option<(usize, Layout)>,
}

/// Largest extents by meaning; what is already known must be found again.
#[derive(Default)]
pub(super) struct Extents([Option<usize>; 7]);

impl Extents {
    /// Does a tensor with `layout` fit what is known? Takes what it adds.
    pub fn unify(&mut self, graph: &Graph, tensor: TensorId, layout: &Layout) -> bool {
        let shape = &graph.tensor(tensor).spec.shape;
        shape.len() == layout.len()
            && shape
                .iter()
                .zip(layout)
                .all(|(extent, label)| self.0[*label as usize].get_or_insert(*extent) == extent)
    }

    pub fn get(&self, label: Extent) -> Option<usize> {
        self.0[label as usize]
    }

    /// Is the joined extent the product of its parts, where all are known?
    pub fn are_consistent(&self) -> bool {
        match (self.get(Extent::Joined), self.get(Extent::Batch), self.get(Extent::Heads)) {
            (Some(joined), Some(batch), Some(heads)) => batch.checked_mul(heads) == Some(joined),
            _ => true,
        }
    }
}

/// Where the dimensions of `layout` are. `Joined` counts as heads of one sequence.
pub(super) fn axes(layout: &Layout, row: Extent, element: Extent) -> Option<Axes> {
    let at = |label: Extent| layout.iter().position(|l| *l == label).map(|i| i as u8);
    Some(Axes {
        batch: at(Extent::Batch),
        head: at(Extent::Heads).or(at(Extent::Joined)),
        row: at(row)?,
        element: at(element)?,
    })
}

/// The source of `tensor` and its layout, when `tensor` with `layout` is a rearrangement of it.
pub(super) fn up(graph: &Graph, tensor: TensorId, layout: &Layout) -> Option<(TensorId, Layout, Passed)> {
    let id = graph.producer(tensor)?;
    let node = graph.node(id);
    let base = node.input(0)?;
    let (shape, from) = (&graph.tensor(base).spec.shape, &graph.tensor(tensor).spec.shape);
    let found = match kind(node, graph)? {
        Kind::Permute(order) => {
            let mut found: Layout = layout.clone();
            for (i, from) in order.iter().enumerate() {
                *found.get_mut(*from)? = *layout.get(i)?;
            }
            (found, None)
        }
        Kind::Reshape(size) => (reshaped(layout, from, shape)?, size),
    };
    let check = found.1.map(|size| (size, layout.clone()));
    Some((base, found.0, Passed { node: id, check }))
}

/// What the only reader of `tensor` makes of it by rearranging.
pub(super) fn down(graph: &Graph, tensor: TensorId, layout: &Layout) -> Option<(TensorId, Layout, Passed)> {
    let id = graph.only_reader(tensor)?;
    let node = graph.node(id);
    let out = node.output().filter(|_| node.input(0) == Some(tensor))?;
    let (from, shape) = (&graph.tensor(tensor).spec.shape, &graph.tensor(out).spec.shape);
    let (found, size) = match kind(node, graph)? {
        Kind::Permute(order) => {
            (order.iter().map(|i| layout.get(*i).copied()).collect::<Option<Layout>>()?, None)
        }
        Kind::Reshape(size) => (reshaped(layout, from, shape)?, size),
    };
    let check = size.map(|size| (size, found.clone()));
    Some((out, found, Passed { node: id, check }))
}

enum Kind {
    /// Dimension `i` of the result is this one of the source.
    Permute(SmallVec<[usize; 4]>),
    /// Same elements in the same logical order; with the position of the list that says the shape, when
    /// the shape can change.
    Reshape(Option<usize>),
}

/// What `node` does to its first argument, if it only rearranges.
fn kind(node: &Node, graph: &Graph) -> Option<Kind> {
    let (input, output) = (node.input(0)?, node.output()?);
    let (input, output) = (&graph.tensor(input).spec, &graph.tensor(output).spec);
    let rank = input.shape.len();
    let wrap = |d: i64| {
        let d = if d < 0 { d.checked_add(rank as i64)? } else { d };
        usize::try_from(d).ok().filter(|d| *d < rank)
    };
    if input.dtype != output.dtype {
        return None;
    }
    let is_dynamic = input.is_dynamic() || output.is_dynamic();
    match node.operator.as_str() {
        _ if node.op == Op::View => Some(Kind::Reshape(is_dynamic.then_some(1))),
        "aten::view_copy.out" | "aten::expand_copy.out" => Some(Kind::Reshape(is_dynamic.then_some(1))),
        "aten::clone.out" | "aten::alias_copy.out" | "dim_order_ops::_clone_dim_order.out" => {
            Some(Kind::Reshape(None))
        }
        "aten::permute_copy.out" => {
            let order: SmallVec<[usize; 4]> =
                node.ints(1)?.iter().map(|d| wrap(*d)).collect::<Option<_>>()?;
            (order.len() == rank).then_some(Kind::Permute(order))
        }
        "aten::transpose_copy.int_out" => {
            let mut order: SmallVec<[usize; 4]> = (0..rank).collect();
            let dim = |at: usize| node.number(at).and_then(|d| wrap(d as i64));
            let (a, b) = (dim(1)?, dim(2)?);
            order.swap(a, b);
            Some(Kind::Permute(order))
        }
        _ => None,
    }
}

/// `layout` of shape `from` as the layout of the same elements in shape `to`: unchanged, with heads split
/// from sequences, or joined with them.
fn reshaped(layout: &Layout, from: &[usize], to: &[usize]) -> Option<Layout> {
    if from.len() != layout.len() {
        return None;
    }
    if from == to {
        return Some(layout.clone());
    }
    let mut found = layout.clone();
    let mut shape: SmallVec<[usize; 4]> = from.into();
    if to.len() == from.len() + 1 {
        let at = layout.iter().position(|l| *l == Extent::Joined)?;
        let (batch, heads) = (*to.get(at)?, *to.get(at + 1)?);
        if batch.checked_mul(heads) != from.get(at).copied() {
            return None;
        }
        found[at] = Extent::Batch;
        found.insert(at + 1, Extent::Heads);
        shape[at] = batch;
        shape.insert(at + 1, heads);
    } else if to.len() + 1 == from.len() {
        let at = layout.iter().position(|l| *l == Extent::Batch)?;
        if layout.get(at + 1) != Some(&Extent::Heads) {
            return None;
        }
        found[at] = Extent::Joined;
        found.remove(at + 1);
        shape[at] = shape[at].checked_mul(shape[at + 1])?;
        shape.remove(at + 1);
    }
    (*shape == *to).then_some(found)
}
