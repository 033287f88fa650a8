//! `fuse_weight_only`: a product with a dequantised constant reads the quantised one.
//!
//! *Before*: `w = mul(sub(to_f32(Q), z), s); y = addmm(b, x, permute(view(w)))`, or `w = dequantize_per_channel(Q, s, z)`,
//! or `w = embedding_4bit(Q, s, z, [0, 1, ..])` with two numbers in each byte of Q,
//! or `y = add(mul(mm(x, to_f32(Q)), s), b)`. *After*: `y = weight-only linear(x, Q, s, z, b)`.
//!
//! Q is an int8 constant, s and z are constants with one number for each column of the product or for each group of k of
//! a column; zero points that are all zero go. Numbers: the same bytes as with a dequantised weight from five rows on
//! ([`crate::weight_only`]), else sums in another order; `mul` behind the product becomes part of the weight. Saves the
//! dequantised weight: its making in every call, or its memory, four or eight times that of Q.

mod pattern;

use super::rows_behind::Product;
use super::rule::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, Op, TensorId};
use crate::weight_only::WeightOnlySpec;
use pattern::{Found, find};
use pteron_core::{AlignedBuffer, ConstantView, DType, Dynamism, Result, TensorSpec};
use smallvec::smallvec;

pub(super) const RULE: Rule = Rule {
    name: "fuse_weight_only",
    about: "products with dequantised constants read the quantised ones",
    needs: &[&["aten::addmm.out", "aten::mm.out", "aten::linear.out"], pattern::SOURCES],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        let Some(found) = find(graph, id) else { continue };
        let Some(draft) = draft(graph, host, &found)? else { continue };
        let is_taken = host.can_prepare(graph, &draft)?;
        let product = Product { nodes: &found.nodes, draft, y: found.y, tail: found.tail.as_ref() };
        count += usize::from(is_taken && product.put(graph));
    }
    Ok(count)
}

fn draft(graph: &mut Graph, host: &mut dyn Host, found: &Found) -> Result<Option<Draft>> {
    let weight = &found.weight;
    if !weight.rows_of_pairs.map_or(Ok(true), |rows| are_in_order(graph, host, rows))? {
        return Ok(None);
    }
    let scales = match weight.scales {
        Some(scales) => as_f32(graph, host, scales)?,
        None => ones(graph, host, weight.quantised, weight.n)?,
    };
    let Some(scales) = scales else { return Ok(None) };
    let zeros = match weight.zeros {
        Some(zeros) if are_all_zero(graph, host, zeros)? => None,
        Some(zeros) => match as_f32(graph, host, zeros)? {
            Some(zeros) => Some(zeros),
            None => return Ok(None),
        },
        None => None,
    };
    let spec = WeightOnlySpec {
        k: weight.k,
        n: weight.n,
        group: weight.group,
        is_row_per_output: weight.is_row_per_output,
        has_pairs: weight.rows_of_pairs.is_some(),
        has_zeros: zeros.is_some(),
        has_bias: found.bias.is_some(),
        rows: None,
    };
    let inputs = [Some(found.x), Some(weight.quantised), Some(scales), zeros, found.bias];
    let args = inputs.into_iter().flatten().chain([found.y]).map(Argument::Tensor).collect();
    Ok(Some(Draft {
        op: Op::WeightOnly(Box::new(spec)),
        operator: String::new(),
        args,
        outputs: smallvec![found.y],
        epilogue: Epilogue::NONE,
    }))
}

/// The numbers of a constant in f32; `None` for dtypes that parameters never have.
fn numbers(view: &ConstantView<'_>) -> Result<Option<Vec<f32>>> {
    Ok(Some(match view.dtype {
        DType::Float32 => view.to_vec::<f32>()?,
        DType::Float64 => view.to_vec::<f64>()?.into_iter().map(|v| v as f32).collect(),
        DType::Int8 => view.to_vec::<i8>()?.into_iter().map(f32::from).collect(),
        DType::Int32 => view.to_vec::<i32>()?.into_iter().map(|v| v as f32).collect(),
        DType::Int64 => view.to_vec::<i64>()?.into_iter().map(|v| v as f32).collect(),
        _ => return Ok(None),
    }))
}

fn are_all_zero(graph: &Graph, host: &dyn Host, tensor: TensorId) -> Result<bool> {
    let Some(view) = host.constant(graph, tensor) else { return Ok(false) };
    Ok(numbers(&view)?.is_some_and(|numbers| numbers.iter().all(|v| *v == 0.0)))
}

/// Is it 0, 1, 2 and so on?
fn are_in_order(graph: &Graph, host: &dyn Host, tensor: TensorId) -> Result<bool> {
    let Some(view) = host.constant(graph, tensor) else { return Ok(false) };
    Ok(view.to_vec::<i64>()?.into_iter().eq(0..view.numel()? as i64))
}

/// The constant, or one of the same numbers in f32.
fn as_f32(graph: &mut Graph, host: &mut dyn Host, tensor: TensorId) -> Result<Option<TensorId>> {
    let spec = &graph.tensor(tensor).spec;
    if spec.dtype == DType::Float32 {
        return Ok(Some(tensor));
    }
    let spec = TensorSpec { dtype: DType::Float32, dynamism: Dynamism::Static, ..spec.clone() };
    let mut make = |views: &[ConstantView<'_>]| {
        let Some(numbers) = views.first().map(numbers).transpose()?.flatten() else { return Ok(None) };
        AlignedBuffer::copy_of(bytemuck::cast_slice(&numbers)).map(Some)
    };
    host.add_constant(graph, "weight_only.f32", &[tensor], spec, &mut make)
}

/// A scale of one for each column.
fn ones(graph: &mut Graph, host: &mut dyn Host, source: TensorId, n: usize) -> Result<Option<TensorId>> {
    let spec = TensorSpec::contiguous(DType::Float32, &[n])?;
    let mut make =
        |_: &[ConstantView<'_>]| AlignedBuffer::copy_of(bytemuck::cast_slice(&vec![1f32; n])).map(Some);
    host.add_constant(graph, &format!("weight_only.ones.{n}"), &[source], spec, &mut make)
}

#[cfg(test)]
mod tests;
