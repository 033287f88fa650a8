//! `fuse_attention`: the steps that scaled dot-product attention was decomposed into become one.
//!
//! *Before*: `s = bmm(permute(q) * a, permute(k) * b) + mask; w = softmax(s); w = where(¬any(¬(s == -inf)),
//! 0, w); y = permute(bmm(w, permute(v)))`, with views between [batch, heads] and [batch · heads].
//! *After*: `y = attention(q, k, v, mask)` with the scale `a · b`.
//!
//! Permutes, copies, views and factors on the way to the first product, on the way to the second, and
//! behind it are taken in as far as they only rearrange; a mask that is `where(seen, 0, -inf)` is read as
//! `seen`. In models of 16-bit floats, casts stand before and behind the softmax: they go, too, and nothing between the products
//! is rounded to 16 bits any more. Keys and values of a cache may be int8 with a factor for each row, `cast(k) * a`: scores and
//! weights are multiplied by the factors, and nothing is widened but what is read.
//!
//! Results differ from those of the separate steps by rounding, within 1e-5 of the largest output; NaN, infinities and rows that see nothing come out as in the steps, but that keys which a mask hides are not read.
//!
//! Where shapes can change, the views that are left out state theirs in lists of integers: the step takes
//! these and checks them whenever it is bound.

mod layout;
#[cfg(test)]
mod tests;
mod weights;

use super::rule::Rule;
use crate::attention::{AttentionSpec, Causality, EmptyRow, Extent, Operand, ShapeCheck};
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use layout::{Extents, Layout, Passed, axes, down, up};
use pteron_core::{DType, Result};
use smallvec::smallvec;
use weights::{Weights, is_filled};

pub(super) const RULE: Rule = Rule {
    name: "fuse_attention",
    about: "products, mask and softmax of attention into one step, with the permutes around them",
    needs: &[&["aten::bmm.out"], &["aten::_softmax.out", "aten::exp.out"]],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        if !graph.is_live(id) {
            continue;
        }
        let Some(found) = weights::weights(graph, host, id) else { continue };
        // First with everything that can be taken in; where the memory of the file forbids reading that
        // far ahead, the products and what lies between them.
        for reach in [Reach::Far, Reach::Near] {
            if let Some((nodes, draft)) = Pattern::new(reach, found.empty_row).find(graph, host, &found)
                && host.can_prepare(graph, &draft)?
                && graph.replace(&nodes, draft).is_some()
            {
                count += 1;
                break;
            }
        }
    }
    Ok(count)
}

/// How far to look in front of and behind the products.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Far,
    Near,
}

/// What was found so far.
struct Pattern {
    reach: Reach,
    /// Of the operands.
    dtype: DType,
    extents: Extents,
    scale: f64,
    /// Nodes that are replaced.
    nodes: Vec<NodeId>,
    /// Nodes that are, if nobody else reads their results.
    perhaps: Vec<NodeId>,
    checks: Vec<(Argument, Layout)>,
    empty_row: EmptyRow,
}

/// A tensor with what its dimensions mean.
type Found = (TensorId, Layout);

impl Pattern {
    fn new(reach: Reach, empty_row: EmptyRow) -> Self {
        Pattern {
            reach,
            dtype: DType::Float32,
            extents: Extents::default(),
            scale: 1.0,
            nodes: Vec::new(),
            perhaps: Vec::new(),
            checks: Vec::new(),
            empty_row,
        }
    }

    fn find(mut self, graph: &Graph, host: &dyn Host, found: &Weights) -> Option<(Vec<NodeId>, Draft)> {
        self.nodes.extend(&found.nodes);
        let rank = graph.tensor(found.scores).spec.shape.len();
        let layout: Layout = match rank {
            3 => smallvec![Extent::Joined, Extent::Rows, Extent::Keys],
            4 => smallvec![Extent::Batch, Extent::Heads, Extent::Rows, Extent::Keys],
            _ => return None,
        };
        self.dtype = graph.tensor(found.weights).spec.dtype;
        if !matches!(self.dtype, DType::Float32 | DType::BFloat16 | DType::Float16) {
            return None;
        }
        let (first, mask) = self.scores(graph, host, found.scores, &layout)?;
        let queries = smallvec![Extent::Joined, Extent::Rows, Extent::Depth];
        let (query, of_query) = self.operand(graph, host, first, 0, queries)?;
        let keys = smallvec![Extent::Joined, Extent::Depth, Extent::Keys];
        let (key, of_keys) = self.operand(graph, host, first, 1, keys)?;
        let second = self.second_product(graph, found.weights, layout)?;
        let (factor, width) = (self.scale, smallvec![Extent::Joined, Extent::Keys, Extent::Width]);
        let (value, of_values) = self.operand(graph, host, second, 1, width)?;
        if self.scale != factor || of_query.is_some() || of_keys.is_some() != of_values.is_some() {
            return None;
        }
        let out = self.output(graph, second)?;
        let operands = [&query, &key, &value, &out];
        self.layouts_fit(&operands, rank, mask, graph).then_some(())?;
        let row_factors = of_keys.zip(of_values).map(|(keys, values)| [keys, values]);
        let draft = self.draft(graph, host, [query, key, value, out], mask, row_factors)?;
        Some((self.replaced(graph), draft))
    }

    fn pass(&mut self, graph: &Graph, passed: Passed, is_needed: bool) {
        if is_needed {
            self.nodes.push(passed.node)
        } else {
            self.perhaps.push(passed.node)
        }
        if let Some((position, layout)) = passed.check
            && let Some(argument) = graph.node(passed.node).args.get(position)
        {
            self.checks.push((argument.clone(), layout));
        }
    }

    /// From the scores that the softmax reads back to the first product; with the mask that was added.
    fn scores(
        &mut self,
        graph: &Graph,
        host: &dyn Host,
        scores: TensorId,
        layout: &Layout,
    ) -> Option<(NodeId, Option<TensorId>)> {
        let add = graph.producer(scores).filter(|id| graph.node(*id).operator == "aten::add.out");
        let Some(add) = add else {
            return self.product(graph, host, scores, layout.clone()).map(|first| (first, None));
        };
        let node = graph.node(add);
        if node.number(2) != Some(1.0) {
            return None;
        }
        for (product, mask) in [(0, 1), (1, 0)] {
            let (Some(product), Some(mask)) = (node.input(product), node.input(mask)) else { continue };
            // A sum that broadcasts the scores is no mask.
            if graph.tensor(product).spec.shape != graph.tensor(scores).spec.shape {
                continue;
            }
            let (nodes, checks, scale) = (self.nodes.len(), self.checks.len(), self.scale);
            if let Some(first) = self.product(graph, host, product, layout.clone()) {
                self.nodes.push(add);
                return Some((first, Some(mask)));
            }
            self.nodes.truncate(nodes);
            self.checks.truncate(checks);
            self.scale = scale;
        }
        None
    }

    /// From scores back to the product that made them, through factors and views.
    fn product(
        &mut self,
        graph: &Graph,
        host: &dyn Host,
        mut tensor: TensorId,
        mut layout: Layout,
    ) -> Option<NodeId> {
        loop {
            if !self.extents.unify(graph, tensor, &layout) {
                return None;
            }
            let id = graph.producer(tensor)?;
            let node = graph.node(id);
            if is_product(node) {
                self.nodes.push(id);
                return (layout.len() == 3).then_some(id);
            }
            if let Some((factor, scaled)) = factor(graph, host, node) {
                self.scale *= factor;
                self.nodes.push(id);
                tensor = scaled;
                continue;
            }
            let (base, found, passed) = up(graph, tensor, &layout)?;
            self.pass(graph, passed, true);
            (tensor, layout) = (base, found);
        }
    }

    /// From operand `position` of a product back to what was rearranged for it; int8 with a factor for each row, where it was
    /// made of that, and the factors.
    fn operand(
        &mut self,
        graph: &Graph,
        host: &dyn Host,
        product: NodeId,
        position: usize,
        mut layout: Layout,
    ) -> Option<(Found, Option<TensorId>)> {
        let mut tensor = graph.node(product).input(position)?;
        loop {
            if graph.tensor(tensor).spec.dtype != self.dtype || !self.extents.unify(graph, tensor, &layout) {
                return None;
            }
            // Past a split of heads there are rows as a linear layer leaves them.
            let Some(id) = graph.producer(tensor).filter(|_| self.reach == Reach::Far) else { break };
            let node = graph.node(id);
            if let Some(stored) = stored_rows(graph, node, &layout) {
                self.perhaps.extend([id, stored.cast]);
                return Some(((stored.rows, layout), Some(stored.factors)));
            }
            if let Some((factor, scaled)) = factor(graph, host, node) {
                self.scale *= factor;
                self.perhaps.push(id);
                tensor = scaled;
                continue;
            }
            let Some((base, found, passed)) = up(graph, tensor, &layout) else { break };
            self.pass(graph, passed, false);
            (tensor, layout) = (base, found);
        }
        Some(((tensor, layout), None))
    }

    /// From the weights on to the product with the values.
    fn second_product(&mut self, graph: &Graph, mut tensor: TensorId, mut layout: Layout) -> Option<NodeId> {
        loop {
            if !self.extents.unify(graph, tensor, &layout) {
                return None;
            }
            let id = graph.only_reader(tensor)?;
            let node = graph.node(id);
            if is_product(node) {
                let fits = node.input(0) == Some(tensor) && layout.len() == 3;
                self.nodes.push(id);
                return fits.then_some(id);
            }
            let (next, found, passed) = down(graph, tensor, &layout)?;
            self.pass(graph, passed, true);
            (tensor, layout) = (next, found);
        }
    }

    /// From the second product on to the last rearrangement whose elements lie side by side.
    fn output(&mut self, graph: &Graph, second: NodeId) -> Option<Found> {
        let mut tensor = graph.node(second).output()?;
        let mut layout: Layout = smallvec![Extent::Joined, Extent::Rows, Extent::Width];
        if !self.extents.unify(graph, tensor, &layout) {
            return None;
        }
        let mut best = (tensor, layout.clone());
        let mut ahead = Vec::new();
        while self.reach == Reach::Far
            && let Some((next, found, passed)) = down(graph, tensor, &layout)
            && self.extents.unify(graph, next, &found)
        {
            ahead.push(passed);
            (tensor, layout) = (next, found);
            let order = &graph.tensor(tensor).spec.dim_order;
            let innermost = order.as_slice().last().and_then(|d| layout.get(usize::from(*d)));
            if innermost == Some(&Extent::Width) && graph.producer(tensor).is_some_and(|p| is_copy(graph, p))
            {
                best = (tensor, layout.clone());
                for passed in ahead.drain(..) {
                    self.pass(graph, passed, true);
                }
            }
        }
        Some(best)
    }

    /// Can the kernel see all operands and the mask with the same batches and heads?
    fn layouts_fit(
        &self,
        operands: &[&Found; 4],
        rank: usize,
        mask: Option<TensorId>,
        graph: &Graph,
    ) -> bool {
        let is_joined = |l: &Layout| l.contains(&Extent::Joined);
        let joined = operands.iter().filter(|(_, l)| is_joined(l)).count();
        let is_single = self.extents.get(Extent::Batch) == Some(1);
        let all_alike = joined == 0 || joined == operands.len() || is_single;
        // A mask with batches or heads of its own has to find the same ones in the operands.
        let mask_fits = mask.is_none_or(|mask| {
            let shape = &graph.tensor(mask).spec.shape;
            let is_shared = shape.iter().rev().skip(2).all(|extent| *extent == 1);
            let is_split = joined < operands.len();
            is_shared || is_single || is_split == (rank == 4)
        });
        self.extents.are_consistent() && all_alike && mask_fits
    }

    fn draft(
        &mut self,
        graph: &Graph,
        host: &dyn Host,
        operands: [Found; 4],
        mask: Option<TensorId>,
        row_factors: Option<[TensorId; 2]>,
    ) -> Option<Draft> {
        let [query, key, value, out] = operands;
        let mut args: Vec<Argument> = [&query, &key, &value].map(|o| Argument::Tensor(o.0)).into();
        let mask = mask.map(|mask| self.seen(graph, host, mask));
        let mask_at = mask.map(|mask| {
            args.push(Argument::Tensor(mask));
            args.len() - 1
        });
        let mut checks = Vec::new();
        for (list, layout) in self.checks.drain(..) {
            checks.push(ShapeCheck { argument: args.len(), dims: layout.to_vec() });
            args.push(list);
        }
        let factors_at = args.len();
        args.extend(row_factors.into_iter().flatten().map(Argument::Tensor));
        let operand = |argument: usize, found: &Found, row: Extent, element: Extent| {
            Some(Operand { argument, axes: axes(&found.1, row, element)? })
        };
        let spec = AttentionSpec {
            query: operand(0, &query, Extent::Rows, Extent::Depth)?,
            key: operand(1, &key, Extent::Keys, Extent::Depth)?,
            value: operand(2, &value, Extent::Keys, Extent::Width)?,
            mask: mask_at,
            out: operand(args.len(), &out, Extent::Rows, Extent::Width)?,
            scale: self.scale as f32,
            causality: Causality::Everything,
            keys_from: None,
            empty_row: self.empty_row,
            row_factors: match row_factors {
                None => None,
                Some(_) => Some([
                    operand(factors_at, &key, Extent::Keys, Extent::Depth)?,
                    operand(factors_at + 1, &value, Extent::Keys, Extent::Width)?,
                ]),
            },
            checks,
        };
        args.push(Argument::Tensor(out.0));
        Some(Draft {
            op: Op::Attention(Box::new(spec)),
            operator: String::new(),
            args,
            outputs: smallvec![out.0],
            epilogue: Epilogue::NONE,
        })
    }

    /// The condition of a mask that is `where(condition, 0, -inf)`, else the mask.
    fn seen(&mut self, graph: &Graph, host: &dyn Host, mask: TensorId) -> TensorId {
        let condition = || {
            let id = graph.producer(mask)?;
            let node = graph.node(id);
            let condition = node.input(0).filter(|_| node.operator == "aten::where.self_out")?;
            let is_mask = graph.tensor(condition).spec.dtype == DType::Bool
                && is_filled(graph, host, node.input(1)?, 0.0)
                && is_filled(graph, host, node.input(2)?, f32::NEG_INFINITY)
                && graph.tensor(condition).spec.shape == graph.tensor(mask).spec.shape;
            is_mask.then_some((id, condition))
        };
        let Some((id, condition)) = condition() else { return mask };
        self.perhaps.push(id);
        condition
    }

    /// All nodes that go, in execution order: of those that may, the ones without other readers.
    fn replaced(mut self, graph: &Graph) -> Vec<NodeId> {
        loop {
            let goes = |id: &NodeId| self.nodes.contains(id) || self.perhaps.contains(id);
            let stays = |id: &NodeId| {
                graph
                    .node(*id)
                    .outputs
                    .iter()
                    .any(|t| !graph.tensor(*t).is_private() || graph.readers(*t).iter().any(|r| !goes(r)))
            };
            let Some(at) = self.perhaps.iter().position(stays) else { break };
            self.perhaps.swap_remove(at);
        }
        self.nodes.append(&mut self.perhaps);
        graph.sort(&mut self.nodes);
        self.nodes
    }
}

/// Rows of int8, and what each is multiplied with.
struct StoredRows {
    rows: TensorId,
    factors: TensorId,
    cast: NodeId,
}

/// What `node` reads, if it multiplies rows of int8, as f32, by a factor for each: `cast(rows) * factors`, of a cache.
fn stored_rows(graph: &Graph, node: &Node, layout: &Layout) -> Option<StoredRows> {
    if node.operator != "aten::mul.out" || !node.epilogue.is_none() {
        return None;
    }
    let spec = |tensor: TensorId| &graph.tensor(tensor).spec;
    let out = spec(node.output()?);
    let found = [(0, 1), (1, 0)].into_iter().find_map(|(rows, factors)| {
        let (wide, factors) = (node.input(rows)?, node.input(factors)?);
        let cast = graph.producer(wide).filter(|id| weights::is_cast(graph.node(*id)))?;
        let rows = graph.node(cast).input(0)?;
        let is_widened = spec(rows).dtype == DType::Int8 && spec(wide).dtype == DType::Float32;
        is_widened.then_some(StoredRows { rows, factors, cast })
    })?;
    let is_element = |label: &Extent| matches!(label, Extent::Depth | Extent::Width);
    let (rows, factors) = (spec(found.rows), spec(found.factors));
    let fits = rows.shape == out.shape
        && factors.dtype == DType::Float32
        && factors.shape.len() == layout.len()
        && factors
            .shape
            .iter()
            .zip(out.shape.iter())
            .zip(layout)
            .all(|((found, all), label)| if is_element(label) { *found == 1 } else { found == all });
    fits.then_some(found)
}

fn is_product(node: &Node) -> bool {
    // Of 16 bits it is no `Op::Linear`.
    matches!(node.op, Op::Linear | Op::Opaque) && node.operator == "aten::bmm.out" && node.epilogue.is_none()
}

/// Does the node write memory, other than a view?
fn is_copy(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op != Op::View
}

/// The number that a node multiplies a tensor with, and the tensor. Exporters write the number as a constant of one
/// element, too.
fn factor(graph: &Graph, host: &dyn Host, node: &Node) -> Option<(f64, TensorId)> {
    let constant = |position: usize| {
        let tensor = node.input(position).filter(|t| graph.tensor(*t).is_constant())?;
        let is_one = graph.tensor(tensor).spec.shape.iter().all(|extent| *extent == 1);
        let elements = host.constant(graph, tensor).filter(|_| is_one)?.to_vec::<f32>().ok()?;
        elements.first().map(|number| f64::from(*number))
    };
    let (number, scaled) = match node.operator.as_str() {
        _ if !node.epilogue.is_none() => return None,
        "aten::mul.Scalar_out" | "aten::div.Scalar_out" => (node.number(1)?, 0),
        "aten::mul.out" => {
            constant(1).map(|number| (number, 0)).or_else(|| constant(0).map(|number| (number, 1)))?
        }
        "aten::div.out" => (constant(1)?, 0),
        _ => return None,
    };
    let is_division = node.operator.starts_with("aten::div");
    let factor = if is_division { 1.0 / number } else { number };
    (factor.is_finite() || !is_division).then_some((factor, node.input(scaled)?))
}
