//! Bytes that are raised by 128 before they are multiplied, whose share is taken from the sums again: so torchao writes products for
//! processors with AVX-512 VNNI, which multiply unsigned bytes.

use super::affine_reader::CASTS;
use super::is_plain_call;
use crate::graph::{Graph, Host, NodeId, TensorId};
use pteron_core::DType;

/// What is added to the bytes.
const RAISED_BY: i32 = 128;

/// The int8 that `x` is, if need be before it was raised: `uint8(int32(q) + 128)`.
pub(super) fn unraised(graph: &Graph, host: &dyn Host, x: TensorId) -> Option<TensorId> {
    if graph.tensor(x).spec.dtype != DType::UInt8 {
        return Some(x);
    }
    let raised = converted(graph, x, [DType::Int32, DType::UInt8])?;
    let sum = graph.node(graph.producer(raised)?);
    let is_sum = sum.operator == "aten::add.out" && is_plain_call(sum) && sum.number(2) == Some(1.0);
    let (words, by) = is_sum.then_some((sum.input(0)?, sum.input(1)?))?;
    let by = host.constant(graph, by)?;
    let is_right = by.dtype == DType::Int32 && by.to_vec::<i32>().ok()? == [RAISED_BY];
    is_right.then(|| converted(graph, words, [DType::Int8, DType::Int32])).flatten()
}

/// The call that takes the share of 128 from `sums`, the products of raised bytes and `weight`, [K, N]: `sums - 128 * sum(weight)`.
pub(super) fn lowered(graph: &Graph, host: &dyn Host, sums: TensorId, weight: TensorId) -> Option<NodeId> {
    let id = graph.only_reader(sums)?;
    let node = graph.node(id);
    let is_difference =
        node.operator == "aten::sub.out" && is_plain_call(node) && node.number(2) == Some(1.0);
    (is_difference && node.input(0) == Some(sums)).then_some(())?;
    let (shares, weight) = (host.constant(graph, node.input(1)?)?, host.constant(graph, weight)?);
    let &[_, n] = &*weight.shape else { return None };
    (shares.dtype == DType::Int32 && weight.dtype == DType::Int8).then_some(())?;
    let mut expected = vec![0i32; n];
    for row in weight.row_major::<i8>().ok()?.chunks_exact(n.max(1)) {
        for (sum, w) in expected.iter_mut().zip(row) {
            *sum = sum.wrapping_add(RAISED_BY * i32::from(*w));
        }
    }
    (shares.to_vec::<i32>().ok()? == expected).then_some(id)
}

/// What is converted into `tensor`, from and to these types.
fn converted(graph: &Graph, tensor: TensorId, [from, to]: [DType; 2]) -> Option<TensorId> {
    let node = graph.node(graph.producer(tensor)?);
    let input = node.input(0)?;
    let dtype = |t: TensorId| graph.tensor(t).spec.dtype;
    let is_cast = CASTS.contains(&node.operator.as_str()) && is_plain_call(node);
    (is_cast && dtype(input) == from && dtype(tensor) == to).then_some(input)
}
