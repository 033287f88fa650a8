//! torchao's `choose_qparams_affine`, `quantize_affine` and `dequantize_affine` of rows as a file has them: decomposed.
//!
//! *Before*, of floats x, with l and h the least and the largest of a row and of zero: `s = clamp((h - l) / 255, least)`,
//! `z = int8(clamp(-128 - round(l / s), -128, 127))`, `q = int8(clamp(round(x * (1 / s)) + z, -128, 127))`, `y = (q - z) * s`.

use super::is_plain_call;
use crate::graph::{Graph, Host, Node, Op, TensorId};
use crate::integer::RowScheme;
use pteron_core::DType;

const CASTS: [&str; 2] = ["dim_order_ops::_to_dim_order_copy.out", "aten::_to_copy.out"];

/// Operators among them that are not elementwise.
pub(in crate::graph::rules) const AFFINE: [&str; 5] =
    [CASTS[0], CASTS[1], "aten::amin.out", "aten::amax.out", "aten::full_like.out"];

/// The floats that `y` is made of so, and the scheme.
pub(super) fn rows_by_affine(graph: &Graph, host: &dyn Host, y: TensorId) -> Option<(RowScheme, TensorId)> {
    let g = Reader { graph, host };
    let [difference, scale] = g.call(y, "aten::mul.out")?;
    let [q, zero] = g.plain(difference, "aten::sub.out")?;
    let q = g.cast(q, |from, to| from == DType::Int8 && to == DType::Float32)?;
    let limited = g.cast(q, |from, to| from == DType::Float32 && to == DType::Int8)?;
    let [rounded, again] = g.plain(g.limits(limited)?, "aten::add.out")?;
    let [floats, inverse] = g.call(g.only(rounded, "aten::round.out")?, "aten::mul.out")?;
    let inverse = match g.call(inverse, "aten::mul.out") {
        Some([inverse, one]) => g.is_number(one, 1.0).then_some(inverse)?,
        None => inverse,
    };
    let is_whole = |from: DType| matches!(from, DType::Int8 | DType::Int32 | DType::Int64);
    let chosen_zero = g.unseen(g.cast(zero, |from, to| is_whole(from) && to == DType::Float32)?);
    let chosen_scale = g.unseen(scale);
    let is_alike = again == zero && g.only(inverse, "aten::reciprocal.out")? == scale;

    let (ends, least_scale) = g.at_least(chosen_scale)?;
    let [spread, steps] = g.call(ends, "aten::div.out")?;
    let [high, low] = g.plain(spread, "aten::sub.out")?;
    let limited = g.cast(chosen_zero, |from, to| from == DType::Float32 && is_whole(to))?;
    let [lowest, moved] = g.plain(g.limits(limited)?, "aten::sub.out")?;
    let divided = g.call(g.only(moved, "aten::round.out")?, "aten::div.out")?;
    let is_chosen = divided == [low, chosen_scale]
        && g.is_number(steps, 255.0)
        && g.is_number(lowest, -128.0)
        && g.is_end(low, floats, ["aten::minimum.out", "aten::amin.out"])
        && g.is_end(high, floats, ["aten::maximum.out", "aten::amax.out"]);

    let spec = &graph.tensor(floats).spec;
    let are_rows = spec.dtype == DType::Float32
        && spec.dim_order.is_contiguous()
        && graph.tensor(y).spec == *spec
        && [zero, scale].iter().all(|t| g.is_by_row(*t, floats));
    // A scale of nothing but zeros, and its inverse, are numbers.
    let is_scale = (f32::MIN_POSITIVE..1e30).contains(&least_scale);
    (is_alike && is_chosen && are_rows && is_scale).then_some((RowScheme::PerRow { least_scale }, floats))
}

/// Reads a graph backwards.
struct Reader<'a> {
    graph: &'a Graph,
    host: &'a dyn Host,
}

impl<'a> Reader<'a> {
    fn node(&self, tensor: TensorId) -> Option<&'a Node> {
        let node = self.graph.node(self.graph.producer(tensor)?);
        is_plain_call(node).then_some(node)
    }

    /// Both inputs of the call of `operator` that makes `tensor`.
    fn call(&self, tensor: TensorId, operator: &str) -> Option<[TensorId; 2]> {
        let node = self.node(tensor).filter(|node| node.operator == operator)?;
        Some([node.input(0)?, node.input(1)?])
    }

    /// As [`Reader::call`] of a sum or difference without a factor.
    fn plain(&self, tensor: TensorId, operator: &str) -> Option<[TensorId; 2]> {
        self.node(tensor).filter(|node| node.number(2) == Some(1.0))?;
        self.call(tensor, operator)
    }

    /// The input of the call of `operator`.
    fn only(&self, tensor: TensorId, operator: &str) -> Option<TensorId> {
        self.node(tensor).filter(|node| node.operator == operator)?.input(0)
    }

    /// What is converted into `tensor`, from and to types that are wanted.
    fn cast(&self, tensor: TensorId, is_wanted: impl Fn(DType, DType) -> bool) -> Option<TensorId> {
        let node = self.node(tensor).filter(|node| CASTS.contains(&node.operator.as_str()))?;
        let from = self.unseen(node.input(0)?);
        let dtype = |t: TensorId| self.graph.tensor(t).spec.dtype;
        is_wanted(dtype(from), dtype(tensor)).then_some(from)
    }

    /// What a view shows, or the tensor itself.
    fn unseen(&self, tensor: TensorId) -> TensorId {
        let view = self.node(tensor).filter(|node| node.op == Op::View);
        view.and_then(|node| node.input(0)).unwrap_or(tensor)
    }

    /// What is limited to the numbers of int8.
    fn limits(&self, tensor: TensorId) -> Option<TensorId> {
        let node = self.node(tensor)?;
        (node.op == Op::Clamp { min: -128.0, max: 127.0 }).then(|| node.input(0)).flatten()
    }

    /// What is at least some number, and the number.
    fn at_least(&self, tensor: TensorId) -> Option<(TensorId, f32)> {
        let node = self.node(tensor)?;
        match node.op {
            Op::Clamp { min, max: f32::INFINITY } => Some((node.input(0)?, min)),
            _ => None,
        }
    }

    /// Is it the constant `number`?
    fn is_number(&self, tensor: TensorId, number: f32) -> bool {
        let view = self.host.constant(self.graph, tensor);
        let values = view.filter(|view| view.dtype == DType::Float32).and_then(|v| v.to_vec::<f32>().ok());
        values.is_some_and(|values| values == [number])
    }

    /// Is it the call of `operator` of zero and of the result of `reducing` over the last dimension of `floats`?
    fn is_end(&self, tensor: TensorId, floats: TensorId, [operator, reducing]: [&str; 2]) -> bool {
        let Some([end, zeros]) = self.call(tensor, operator) else { return false };
        let Some(node) = self.node(end).filter(|node| node.operator == reducing) else { return false };
        let rank = self.graph.tensor(floats).spec.shape.len() as i64;
        let is_last = node.ints(1).is_some_and(|dims| matches!(dims, &[d] if d == -1 || d == rank - 1));
        let of_zeros = self.node(zeros).is_some_and(|zeros| {
            zeros.operator == "aten::full_like.out"
                && zeros.number(1) == Some(0.0)
                && zeros.input(0).map(|like| &self.graph.tensor(like).spec)
                    == Some(&self.graph.tensor(end).spec)
        });
        let is_zero = of_zeros || self.is_number(zeros, 0.0);
        node.input(0) == Some(floats) && is_last && is_zero
    }

    /// Has it one number for each row of `floats`?
    fn is_by_row(&self, tensor: TensorId, floats: TensorId) -> bool {
        let (shape, rows) = (&self.graph.tensor(tensor).spec.shape, &self.graph.tensor(floats).spec.shape);
        let leading = shape.len().saturating_sub(1);
        shape.len() == rows.len() && shape.last() == Some(&1) && shape[..leading] == rows[..leading]
    }
}

#[cfg(test)]
mod tests;
