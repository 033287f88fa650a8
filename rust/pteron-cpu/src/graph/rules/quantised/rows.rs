//! Floats whose rows are quantised at run time and dequantised again.

use super::affine_rows::rows_by_affine;
use super::is_plain_call;
use crate::graph::{Graph, Host, Node, NodeId, Op, TensorId};
use crate::integer::RowScheme;
use pteron_core::{DType, TensorSpec};

/// Operators that choose parameters, quantise by them and dequantise again.
pub(in crate::graph::rules) const BY_TOKEN: [&str; 3] = [
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
    "quantized_decomposed::quantize_per_token.out",
    "quantized_decomposed::dequantize_per_token.out",
];
pub(in crate::graph::rules) const BY_TENSOR: [&str; 3] = [
    "quantized_decomposed::choose_qparams.Tensor_out",
    "quantized_decomposed::quantize_per_tensor.Tensor_out",
    "quantized_decomposed::dequantize_per_tensor.Tensor_out",
];

/// What the rows of a product's input were before they were quantised and dequantised.
pub(super) struct QuantisedRows {
    pub scheme: RowScheme,
    pub floats: TensorId,
    /// A view between the calls that quantise and the product.
    pub view: Option<NodeId>,
}

impl QuantisedRows {
    /// Those that `x` comes from, maybe through a view that leaves rows as long as they are.
    pub(super) fn find(graph: &Graph, host: &dyn Host, x: TensorId) -> Option<QuantisedRows> {
        let (seen, view) = match graph.producer(x) {
            Some(view) if graph.node(view).op == Op::View => (graph.node(view).input(0)?, Some(view)),
            _ => (x, None),
        };
        let last = |t: TensorId| graph.tensor(t).spec.shape.last().copied();
        (last(x) == last(seen)).then_some(())?;
        let (scheme, floats) = rows_by_calls(graph, seen).or_else(|| rows_by_affine(graph, host, seen))?;
        Some(QuantisedRows { scheme, floats, view })
    }
}

/// The floats whose rows are quantised by what they hold, or by what all of them hold, and dequantised into `x` again, with operators
/// for each.
fn rows_by_calls(graph: &Graph, x: TensorId) -> Option<(RowScheme, TensorId)> {
    let call = |tensor: TensorId, operator: &str| {
        let node = graph.node(graph.producer(tensor)?);
        (node.operator == operator && is_plain_call(node)).then_some(node)
    };
    let is_int8 = |node: &Node, from: usize| {
        let code = f64::from(DType::Int8.code());
        [(from, -128.0), (from + 1, 127.0), (from + 2, code)].iter().all(|(i, v)| node.number(*i) == Some(*v))
    };
    let (back, [choosing, quantising, _]) =
        [BY_TOKEN, BY_TENSOR].into_iter().find_map(|names| Some((call(x, names[2])?, names)))?;
    let there = call(back.input(0)?, quantising)?;
    let choice = call(there.input(1)?, choosing)?;
    let code = f64::from(DType::Int8.code());
    let scheme = if choosing == BY_TOKEN[0] {
        (choice.number(1) == Some(code)).then_some(RowScheme::PerToken)?
    } else {
        let stated = [choice.number(1), choice.number(2), choice.number(4)];
        let least_scale = choice.number(3)? as f32;
        // A scale of nothing but zeros, and its inverse, are numbers.
        let is_scale = (1e-30..1e30).contains(&least_scale);
        (stated == [Some(-128.0), Some(127.0), Some(code)] && is_scale)
            .then_some(RowScheme::PerTensor { least_scale })?
    };
    let (floats, parameters) = (there.input(0)?, [there.input(1)?, there.input(2)?]);
    let spec = &graph.tensor(floats).spec;
    let is_alike = choice.outputs.as_slice() == parameters
        && choice.input(0) == Some(floats)
        && [back.input(1)?, back.input(2)?] == parameters
        && is_int8(there, 3)
        && is_int8(back, 3)
        && graph.tensor(back.input(0)?).spec.dtype == DType::Int8
        && spec.dtype == DType::Float32
        && spec.dim_order.is_contiguous()
        && graph.tensor(x).spec == *spec;
    is_alike.then_some((scheme, floats))
}

/// `floats` as `view` shows what is computed of it, maybe in another type, where `view` stands: sizes may be computed values.
pub(super) fn viewed(graph: &mut Graph, view: NodeId, floats: TensorId) -> TensorId {
    let mut draft = graph.node(view).draft();
    let (Some(from), Some(to)) = (graph.node(view).input(0), graph.node(view).output()) else {
        return floats;
    };
    let seen = graph.new_tensor(TensorSpec { dtype: DType::Float32, ..graph.tensor(to).spec.clone() });
    draft.rename(from, floats);
    draft.rename(to, seen);
    graph.insert_before(view, draft);
    seen
}
