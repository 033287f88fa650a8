//! What the engine knows about operators.

use super::ids::TensorId;
use super::node::{Node, Op};
use pteron_core::{DType, TensorSpec};

/// The operator that points its output at its input's bytes.
pub const ET_VIEW: &str = "executorch_prim::et_view.default";

/// What `node` computes, of tensors with these specs.
pub(super) fn op_of<'a>(node: &Node, spec_of: impl Fn(TensorId) -> &'a TensorSpec) -> Op {
    let is_f32 = |t: TensorId| spec_of(t).dtype == DType::Float32;
    let are_outputs_f32 = || node.outputs.iter().copied().all(is_f32);
    // A clamp of anything else stays with its operator.
    let clamp =
        |min, max| if node.inputs().all(is_f32) && are_outputs_f32() { clamp(min, max) } else { Op::Opaque };
    match node.operator.as_str() {
        ET_VIEW => Op::View,
        "aten::addmm.out" | "aten::mm.out" | "aten::linear.out" | "aten::bmm.out" | "aten::baddbmm.out"
            if are_outputs_f32() =>
        {
            Op::Linear
        }
        "aten::convolution.out" if are_outputs_f32() => Op::Convolution,
        "aten::relu.out" => clamp(Some(0.0), Some(f32::INFINITY)),
        "aten::hardtanh.out" | "aten::clamp.out" => {
            clamp(bound(node, 1, f32::NEG_INFINITY), bound(node, 2, f32::INFINITY))
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

fn clamp(min: Option<f32>, max: Option<f32>) -> Op {
    match (min, max) {
        // PyTorch's clamp with min > max gives max, with NaN bounds NaN; both stay with its own kernel.
        (Some(min), Some(max)) if min <= max => Op::Clamp { min, max },
        _ => Op::Opaque,
    }
}
