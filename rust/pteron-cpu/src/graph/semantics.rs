//! What the engine knows about operators.

use super::{Graph, Node, Op, TensorId};
use pteron_core::DType;

/// The operator that points its output at its input's bytes.
pub const ET_VIEW: &str = "executorch_prim::et_view.default";

/// What `node` computes.
pub(super) fn op_of(graph: &Graph, node: &Node) -> Op {
    let is_f32 = |t: &TensorId| graph.tensor(*t).spec.dtype == DType::Float32;
    match node.operator.as_str() {
        ET_VIEW => Op::View,
        "aten::addmm.out" | "aten::mm.out" | "aten::linear.out" | "aten::bmm.out" | "aten::baddbmm.out"
            if node.outputs.iter().all(is_f32) =>
        {
            Op::Linear
        }
        "aten::convolution.out" if node.outputs.iter().all(is_f32) => Op::Convolution,
        "aten::relu.out" => clamp(graph, node, Some(0.0), Some(f32::INFINITY)),
        "aten::hardtanh.out" | "aten::clamp.out" => {
            clamp(graph, node, bound(node, 1, f32::NEG_INFINITY), bound(node, 2, f32::INFINITY))
        }
        _ => Op::Opaque,
    }
}

fn bound(node: &Node, position: usize, absent: f32) -> Option<f32> {
    if node.is_none(position) {
        return Some(absent);
    }
    node.number(position).map(|v| v as f32)
}

fn clamp(graph: &Graph, node: &Node, min: Option<f32>, max: Option<f32>) -> Op {
    let is_f32 = node
        .inputs()
        .chain(node.outputs.iter().copied())
        .all(|t| graph.tensor(t).spec.dtype == DType::Float32);
    match (min, max) {
        // PyTorch's clamp with min > max gives max, with NaN bounds NaN; both stay with its own kernel.
        (Some(min), Some(max)) if is_f32 && min <= max => Op::Clamp { min, max },
        _ => Op::Opaque,
    }
}
