//! Reads backwards what torchao's operators of affine quantisation become in a file.

use super::is_plain_call;
use crate::graph::{Graph, Host, Node, Op, TensorId};
use pteron_core::DType;

pub(super) const CASTS: [&str; 2] = ["dim_order_ops::_to_dim_order_copy.out", "aten::_to_copy.out"];

/// Operators among them that are no elementwise functions of floats.
pub(in crate::graph::rules) const AFFINE: [&str; 6] =
    [CASTS[0], CASTS[1], "aten::add.out", "aten::amin.out", "aten::amax.out", "aten::full_like.out"];

/// `q = int8(clamp(round(floats * (1 / scale)) + zero, -128, 127))`, maybe with a factor of one behind the inverse.
pub(super) struct Quantised {
    pub floats: TensorId,
    pub scale: TensorId,
    pub zero: TensorId,
}

/// Reads a graph backwards.
pub(super) struct Reader<'a> {
    pub graph: &'a Graph,
    pub host: &'a dyn Host,
}

impl<'a> Reader<'a> {
    fn node(&self, tensor: TensorId) -> Option<&'a Node> {
        let node = self.graph.node(self.graph.producer(tensor)?);
        is_plain_call(node).then_some(node)
    }

    /// What the bytes `q` are made of.
    pub(super) fn quantised(&self, q: TensorId) -> Option<Quantised> {
        let limited = self.cast(q, |from, to| from == DType::Float32 && to == DType::Int8)?;
        let [rounded, zero] = self.plain(self.limits(limited)?, "aten::add.out")?;
        let [floats, inverse] = self.call(self.only(rounded, "aten::round.out")?, "aten::mul.out")?;
        let inverse = match self.call(inverse, "aten::mul.out") {
            Some([inverse, one]) => self.is_number(one, 1.0).then_some(inverse)?,
            None => inverse,
        };
        Some(Quantised { floats, scale: self.only(inverse, "aten::reciprocal.out")?, zero })
    }

    /// Both inputs of the call of `operator` that makes `tensor`.
    pub(super) fn call(&self, tensor: TensorId, operator: &str) -> Option<[TensorId; 2]> {
        let node = self.node(tensor).filter(|node| node.operator == operator)?;
        Some([node.input(0)?, node.input(1)?])
    }

    /// As [`Reader::call`] of a sum or difference without a factor.
    pub(super) fn plain(&self, tensor: TensorId, operator: &str) -> Option<[TensorId; 2]> {
        self.node(tensor).filter(|node| node.number(2) == Some(1.0))?;
        self.call(tensor, operator)
    }

    /// The input of the call of `operator`.
    pub(super) fn only(&self, tensor: TensorId, operator: &str) -> Option<TensorId> {
        self.node(tensor).filter(|node| node.operator == operator)?.input(0)
    }

    /// What is converted into `tensor`, from and to types that are wanted.
    pub(super) fn cast(
        &self,
        tensor: TensorId,
        is_wanted: impl Fn(DType, DType) -> bool,
    ) -> Option<TensorId> {
        let node = self.node(tensor).filter(|node| CASTS.contains(&node.operator.as_str()))?;
        let from = self.unseen(node.input(0)?);
        let dtype = |t: TensorId| self.graph.tensor(t).spec.dtype;
        is_wanted(dtype(from), dtype(tensor)).then_some(from)
    }

    /// What a view shows, or the tensor itself.
    pub(super) fn unseen(&self, tensor: TensorId) -> TensorId {
        let view = self.node(tensor).filter(|node| node.op == Op::View);
        view.and_then(|node| node.input(0)).unwrap_or(tensor)
    }

    /// What is limited to the numbers of int8.
    pub(super) fn limits(&self, tensor: TensorId) -> Option<TensorId> {
        let node = self.node(tensor)?;
        (node.op == Op::Clamp { min: -128.0, max: 127.0 }).then(|| node.input(0)).flatten()
    }

    /// What is at least some number, and the number.
    pub(super) fn at_least(&self, tensor: TensorId) -> Option<(TensorId, f32)> {
        let node = self.node(tensor)?;
        match node.op {
            Op::Clamp { min, max: f32::INFINITY } => Some((node.input(0)?, min)),
            _ => None,
        }
    }

    /// Is it the constant `number`?
    pub(super) fn is_number(&self, tensor: TensorId, number: f32) -> bool {
        let view = self.host.constant(self.graph, tensor);
        let values = view.filter(|view| view.dtype == DType::Float32).and_then(|v| v.to_vec::<f32>().ok());
        values.is_some_and(|values| values == [number])
    }

    /// Is it the least of each row of `floats` and of zero?
    pub(super) fn is_least(&self, tensor: TensorId, floats: TensorId) -> bool {
        self.is_end(tensor, floats, ["aten::minimum.out", "aten::amin.out"])
    }

    /// Is it the largest of each row of `floats` and of zero?
    pub(super) fn is_largest(&self, tensor: TensorId, floats: TensorId) -> bool {
        self.is_end(tensor, floats, ["aten::maximum.out", "aten::amax.out"])
    }

    /// Are they zeros in the shape of something else?
    pub(super) fn are_zeros(&self, tensor: TensorId) -> bool {
        let node = self.node(tensor).filter(|node| node.operator == "aten::full_like.out");
        node.is_some_and(|node| node.number(1) == Some(0.0))
    }

    /// Are they rows in f32, one behind another?
    pub(super) fn are_rows(&self, tensor: TensorId) -> bool {
        let spec = &self.graph.tensor(tensor).spec;
        spec.dtype == DType::Float32 && spec.dim_order.is_contiguous()
    }

    /// Is it the call of `operator` of zero and of the result of `reducing` over the last dimension of `floats`?
    fn is_end(&self, tensor: TensorId, floats: TensorId, [operator, reducing]: [&str; 2]) -> bool {
        let Some([end, zeros]) = self.call(tensor, operator) else { return false };
        let Some(node) = self.node(end).filter(|node| node.operator == reducing) else { return false };
        let rank = self.graph.tensor(floats).spec.shape.len() as i64;
        let is_last = node.ints(1).is_some_and(|dims| matches!(dims, &[d] if d == -1 || d == rank - 1));
        let is_alike = self.node(zeros).is_none_or(|zeros| {
            zeros.input(0).map(|like| &self.graph.tensor(like).spec) == Some(&self.graph.tensor(end).spec)
        });
        let is_zero = (is_alike && self.are_zeros(zeros)) || self.is_number(zeros, 0.0);
        node.input(0) == Some(floats) && is_last && is_zero
    }

    /// Has it one number for each row of `floats`?
    pub(super) fn is_by_row(&self, tensor: TensorId, floats: TensorId) -> bool {
        let (shape, rows) = (&self.graph.tensor(tensor).spec.shape, &self.graph.tensor(floats).spec.shape);
        let leading = shape.len().saturating_sub(1);
        shape.len() == rows.len() && shape.last() == Some(&1) && shape[..leading] == rows[..leading]
    }
}
