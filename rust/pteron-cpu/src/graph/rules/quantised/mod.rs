//! What the rules about quantised tensors share: calls of `quantize_per_tensor` and `dequantize_per_tensor` whose numbers
//! are known at load.

pub(super) mod affine_reader;
mod affine_rows;
pub(super) mod fuse_integer;
pub(super) mod fuse_sum;
mod margins_of_zeros;
pub(super) mod move_dequantise;
pub(super) mod move_quantise;
pub(super) mod multiply_rows;
mod raised_bytes;
pub(super) mod rows;
mod symmetric_product;
#[cfg(test)]
pub(in crate::graph::rules) mod testing;

use crate::graph::{Argument, Graph, Node, NodeId, TensorId};
use pteron_core::DType;

pub(super) const QUANTISE: &str = "quantized_decomposed::quantize_per_tensor.out";
pub(super) const DEQUANTISE: &str = "quantized_decomposed::dequantize_per_tensor.out";
pub(super) const DEQUANTISE_CHANNELS: &str = "quantized_decomposed::dequantize_per_channel.out";

/// How the integers of a tensor stand for numbers: `(q - zero) * scale`, q from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scheme {
    pub scale: f64,
    pub zero: i32,
    pub low: i32,
    pub high: i32,
    pub dtype: DType,
}

impl Scheme {
    /// The numbers of a call whose quantised tensor is `quantised`.
    fn of(graph: &Graph, node: &Node, quantised: TensorId) -> Option<Scheme> {
        let integer = |i: usize| node.number(i).filter(|v| v.fract() == 0.0).map(|v| v as i32);
        let dtype = graph.tensor(quantised).spec.dtype;
        let (least, greatest) = match dtype {
            DType::Int8 => (-128, 127),
            DType::UInt8 => (0, 255),
            _ => return None,
        };
        let scheme =
            Scheme { scale: node.number(1)?, zero: integer(2)?, low: integer(3)?, high: integer(4)?, dtype };
        let is_range = least <= scheme.low && scheme.low <= scheme.high && scheme.high <= greatest;
        let is_stated = node.number(5) == Some(f64::from(dtype.code()));
        // Scales outside of the normal numbers of f32, or whose inverse is, stay with the plain arithmetic.
        let is_scale = (1e-30..1e30).contains(&scheme.scale);
        let is_zero = (least..=greatest).contains(&scheme.zero);
        (is_range && is_stated && is_scale && is_zero).then_some(scheme)
    }

    /// Is every number of the dtype in the range?
    fn is_whole(&self) -> bool {
        match self.dtype {
            DType::Int8 => (self.low, self.high) == (-128, 127),
            _ => (self.low, self.high) == (0, 255),
        }
    }
}

/// A call that dequantises a whole tensor into f32.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dequantised {
    pub node: NodeId,
    pub quantised: TensorId,
    pub scheme: Scheme,
}

/// The call that gives `tensor` by dequantising another one.
pub(super) fn dequantised(graph: &Graph, tensor: TensorId) -> Option<Dequantised> {
    let id = graph.producer(tensor)?;
    let node = graph.node(id);
    let is_call = node.operator == DEQUANTISE && is_plain_call(node);
    if !is_call || graph.tensor(tensor).spec.dtype != DType::Float32 {
        return None;
    }
    let quantised = node.input(0)?;
    Some(Dequantised { node: id, quantised, scheme: Scheme::of(graph, node, quantised)? })
}

/// The scheme of a call that quantises a whole tensor of f32; its input and result.
pub(super) fn quantised(graph: &Graph, id: NodeId) -> Option<(Scheme, TensorId, TensorId)> {
    let node = graph.node(id);
    if !graph.is_live(id) || node.operator != QUANTISE || !is_plain_call(node) {
        return None;
    }
    let (input, output) = (node.input(0)?, node.output()?);
    let is_single = graph.tensor(input).spec.dtype == DType::Float32;
    is_single.then_some(())?;
    Some((Scheme::of(graph, node, output)?, input, output))
}

/// A call as the file has it, without effects beyond its results.
fn is_plain_call(node: &Node) -> bool {
    node.epilogue.is_none() && node.written_values.is_empty() && !node.is_removed
}

/// The arguments of a call of [`QUANTISE`] or [`DEQUANTISE`] like `like`, from `from` to `out`.
fn moved_arguments(like: &Node, from: TensorId, out: TensorId) -> Vec<Argument> {
    let mut args = like.args.clone();
    if let (Some(first), Some(last)) = (like.input(0), like.output()) {
        args.iter_mut().for_each(|a| match a {
            Argument::Tensor(t) if *t == first => *t = from,
            Argument::Tensor(t) if *t == last => *t = out,
            _ => {}
        });
    }
    args
}
