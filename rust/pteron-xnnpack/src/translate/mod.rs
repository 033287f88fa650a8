//! A payload to calls of operators, node by node.
//!
//! **Layout.** XNNPACK computes with channels last, between transposes that its exporter puts in; our operators state shapes
//! with channels first. A transpose makes no call: each value carries the order in which XNNPACK sees the dimensions of its
//! tensor ([`held::Held`]), convolutions and pooling find what they want, elementwise functions pass the order on, and a copy
//! stands only where a product, a reshape or an output asks for another one. So the calls are those of the model before it was
//! lowered, and the engine fuses and lays them out as it does with any program's.
//!
//! **Arithmetic.** fp32, fp16 and bf16 nodes are calls in the dtype of their result. Quantised nodes follow the model that was
//! exported, not XNNPACK's integer kernels: operands are dequantised to f32, the node computes in f32, and its result is
//! quantised with `quantize_per_tensor` (`rhe(x * (1 / scale)) + zero_point`, cut to the type). XNNPACK adds up integers and
//! multiplies once; the exact sums are the same as long as f32 holds them, so that results differ where a number lies next to
//! the middle of two steps, by one step. Values that are quantised when they run take the parameters of
//! `choose_qparams_per_token_asymmetric`, which are XNNPACK's on machines without unsigned dot products. Elements that only move
//! (transpose, reshape, slice, copy, concatenation with equal parameters) stay integers. Filters of 4 bits and
//! symmetric weights of 8 stay as they are, with calls that dequantise them, which rules at load take into products; other quantised
//! weights become f32 at load, weights of other types than the node's are rounded to it.
//!
//! **Refused**, since ExecuTorch 1.5 writes none of it: flags but those of transposed filters, kept dimensions and aligned
//! corners; places of largest elements in windows that are not whole rows or columns; products of matrices in pairs with other
//! than three dimensions; uneven padding of averages and transposed convolutions; scaled dot product attention, which
//! ExecuTorch does not run either.

mod constants;
mod convolution;
mod elementwise;
mod held;
mod integers;
mod matrix;
mod nibbles;
mod pooling;
mod quantised_rows;
mod rearrange;
mod sheet;
mod translator;
mod unused;
mod windows;

use crate::expansion::Expansion;
use crate::node_place::in_node;
use crate::payload::{Node, Operation, Payload, Quantisation, Source, Unary};
use convolution::ConvolutionNode;
use matrix::FullyConnected;
use pteron_core::{DType, Error, NamedData, Result, TensorSpec};
use translator::Translator;

/// Translates a checked payload, whose bytes are `bytes`.
///
/// # Errors
/// As [`crate::expand`].
pub(crate) fn translate(
    payload: &Payload,
    bytes: &[u8],
    arguments: &[Option<TensorSpec>],
    named: &dyn NamedData,
) -> Result<Expansion> {
    let mut translator = Translator::new(payload, bytes, arguments, named)?;
    for (number, node) in payload.nodes.iter().enumerate() {
        translator.sheet.node = (number, node.debug_handle);
        one(&mut translator, node).map_err(|e| in_node(e, number, node))?;
        for output in node.operation.operands().1 {
            if let Some(writer) = translator.writers.get_mut(output) {
                *writer = translator.sheet.node;
            }
        }
    }
    for (index, value) in payload.values.iter().enumerate() {
        let Source::Output(argument) = value.source else { continue };
        translator.sheet.node = translator.writers.get(index).copied().unwrap_or_default();
        let (number, _) = translator.sheet.node;
        let result = output(&mut translator, index, argument);
        result.map_err(|e| {
            payload
                .nodes
                .get(number)
                .map_or_else(|| Error::internal("no writer"), |node| in_node(e, number, node))
        })?;
    }
    unused::without_unused(translator.sheet.expansion)
}

fn one(t: &mut Translator<'_>, node: &Node) -> Result<()> {
    let limits = node.limits;
    match &node.operation {
        Operation::Unary { function: Unary::Convert, input, output } => convert(t, *input, *output, limits),
        Operation::Unary { function, input, output } => t.unary(*function, *input, *output, limits),
        Operation::Binary { function, inputs, output } => t.binary(*function, *inputs, *output, limits),
        Operation::FullyConnected { input, filter, bias, output, is_inputs_first } => {
            let (input, filter, bias, output) = (*input, *filter, *bias, *output);
            t.fully_connected(
                &FullyConnected { input, filter, bias, output, is_inputs_first: *is_inputs_first },
                limits,
            )
        }
        Operation::BatchMatrixMultiply { inputs, output } => {
            t.batch_matrix_multiply(*inputs, *output, limits)
        }
        Operation::Convolution { kind, window, groups, input, filter, bias, output } => {
            let (kind, window, groups) = (*kind, *window, *groups);
            let (input, filter, bias, output) = (*input, *filter, *bias, *output);
            t.convolution(&ConvolutionNode { kind, window, groups, input, filter, bias, output }, limits)
        }
        Operation::MaxPooling { window, input, output } => t.max_pooling(window, *input, *output, limits),
        Operation::AveragePooling { window, input, output } => {
            t.average_pooling(window, *input, *output, limits)
        }
        Operation::ArgMaxPooling { window, input, values, indices } => {
            t.arg_max_pooling(window, *input, *values, *indices)
        }
        Operation::GlobalAveragePooling { input, output, keeps_dims } => {
            t.global_average_pooling(*input, *output, *keeps_dims, limits)
        }
        Operation::Transpose { order, input, output } => t.transpose(order, *input, *output, limits),
        Operation::Reshape { shape, input, output } => t.reshape(shape, *input, *output, limits),
        Operation::Slice { offsets, sizes, input, output } => {
            t.slice((offsets, sizes), *input, *output, limits)
        }
        Operation::Pad { before, after, value, input, output } => {
            t.pad((before, after, *value), *input, *output, limits)
        }
        Operation::Concatenate { axis, inputs, output } => t.concatenate(*axis, inputs, *output, limits),
        Operation::ResizeBilinear { height, width, aligns_corners, input, output } => {
            t.resize((*height, *width), *aligns_corners, *input, *output, limits)
        }
    }
}

fn convert(t: &mut Translator<'_>, input: usize, output: usize, limits: (f32, f32)) -> Result<()> {
    match t.value(output)?.quantisation {
        Quantisation::Dynamic { row_dims } => t.quantise_rows(row_dims, input, output),
        _ => t.unary(Unary::Convert, input, output, limits),
    }
}

/// Sees to it that argument `argument` of the delegate call holds the value: the call that computes it writes there.
fn output(t: &mut Translator<'_>, value: usize, argument: usize) -> Result<()> {
    let spec = t.spec(argument)?;
    let mut held = t.result(value)?;
    // Places of largest elements are 64-bit integers here, whatever the model has.
    if matches!((held.dtype, spec.dtype), (DType::Int32, DType::Int64) | (DType::Int64, DType::Int32)) {
        held = t.cast(&held, spec.dtype)?;
    }
    if held.dtype != spec.dtype {
        return Err(Error::program("an output is of another type than its argument")
            .expected(format!("{} for argument {argument}", spec.dtype))
            .got(held.dtype.name()));
    }
    if spec.shape.is_empty() && *held.extents == [1] {
        held = t.view(&held, &[])?;
    }
    let wrong_extents = |found: String| {
        Error::program("an output has other extents than its argument")
            .expected(format!("{} for argument {argument}", spec.shape))
            .got(found)
    };
    if held.rank() != spec.shape.len() {
        return Err(wrong_extents(held.dims()?.to_string()));
    }
    let held = t.ordered(&held, spec.dim_order)?;
    if !held.is_dynamic && held.extents != spec.shape {
        return Err(wrong_extents(held.extents.to_string()));
    }
    if spec.dim_order.is_contiguous() && t.sheet.becomes_argument(held.tensor, argument) {
        return Ok(());
    }
    let target = t.sheet.argument(argument);
    if spec.dim_order.is_contiguous() {
        let none = t.sheet.none();
        t.sheet.call("aten::clone.out", &[held.tensor, none], &[target]);
    } else {
        let axes: Vec<usize> = (0..held.rank()).collect();
        let axes = t.sheet.extents(&axes);
        t.sheet.call("aten::permute_copy.out", &[held.tensor, axes], &[target]);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
