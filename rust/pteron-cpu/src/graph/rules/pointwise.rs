//! Convolutions that look at one pixel at a time: matrix products over the channels.

use crate::graph::{Graph, Node, Op, TensorId};
use pteron_core::DType;

// Positions among the arguments of a convolution.
pub(super) const INPUT: usize = 0;
pub(super) const WEIGHT: usize = 1;
pub(super) const BIAS: usize = 2;
const STRIDE: usize = 3;
const PADDING: usize = 4;
const TRANSPOSED: usize = 6;
const GROUPS: usize = 8;

/// A convolution of single pixels with constants in f32, nothing fused behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pointwise {
    pub image: TensorId,
    /// `[outputs, inputs, 1, 1]`, row-major.
    pub weight: TensorId,
    pub bias: Option<TensorId>,
    pub out: TensorId,
    pub outputs: usize,
    pub inputs: usize,
}

/// `node` as a convolution of single pixels of images whose size is known.
pub(super) fn pointwise(graph: &Graph, node: &Node) -> Option<Pointwise> {
    let are =
        |position: usize, value: i64| node.ints(position).is_some_and(|v| v.iter().all(|n| *n == value));
    let is_plain = node.op == Op::Convolution
        && node.epilogue.is_none()
        && are(STRIDE, 1)
        && are(PADDING, 0)
        && node.number(TRANSPOSED) == Some(0.0)
        && node.number(GROUPS) == Some(1.0);
    if !is_plain {
        return None;
    }
    let (image, weight, out) = (node.input(INPUT)?, node.input(WEIGHT)?, node.output()?);
    let &[outputs, inputs, 1, 1] = &*graph.tensor(weight).spec.shape else { return None };
    let bias = node.input(BIAS);
    let is_known = is_static_f32(graph, image)
        && is_static_f32(graph, out)
        && is_row_major_constant(graph, weight)
        && bias.map_or(node.is_none(BIAS), |b| is_row_major_constant(graph, b));
    is_known.then_some(Pointwise { image, weight, bias, out, outputs, inputs })
}

pub(super) fn is_static_f32(graph: &Graph, tensor: TensorId) -> bool {
    let spec = &graph.tensor(tensor).spec;
    spec.dtype == DType::Float32 && !spec.is_dynamic()
}

pub(super) fn is_row_major_constant(graph: &Graph, tensor: TensorId) -> bool {
    let t = graph.tensor(tensor);
    t.is_constant() && is_static_f32(graph, tensor) && t.spec.dim_order.is_contiguous()
}
