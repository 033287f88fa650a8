//! Products of rows that are quantised at run time with 4-bit weights that have a scale for each column, or for each group of k of a
//! column.
//!
//! Layers: `dots` (what an instruction set has) → `tile` (the micro-kernel) → `kit` (what is compiled, and which of it a processor
//! gets); `rows` (floats to bytes) → `linear` (the kernel). Weights are read from [`crate::packed::u4_nr32k8_v1`], scales in half the
//! bytes where all of them are numbers of bfloat16 ([`crate::packed::bf16_scales_nr32_v1`]): they are a fifth of what a row reads.
//!
//! *Numbers.* With zero point z and scale s of a row, in blocks of 32 k: the sum of `q * w` of a block is exact. It is multiplied with
//! the scale of its group and added to the blocks before; z times the sum of the column's weights is taken away, the rest
//! multiplied with s, the bias added, each step rounded to f32. Every instruction set, number of rows and number of threads gives the same bytes.

mod dots;
mod kit;
mod linear;
mod rows;
mod tile;

use super::spec::RowScheme;
use crate::packed::u4_nr32k8_v1::{BLOCK, NR, PACKED, Panels};
use crate::packed::{bf16_scales_nr32_v1, f32_nr32_v1};
use kit::Kit;
use linear::Linear;
use pteron_core::{AlignedBuffer, ConstantView, DType, PrepareContext, Result};
use pteron_kernels::grid_kernel::{Preparation, prepared};
use pteron_kernels::vector_math::SimdLevel;

/// A product whose first argument is an f32 tensor with rows of `k` numbers.
pub struct NibbleProduct<'a> {
    /// The weight: int8 [K, N], numbers from -8 to 7, or uint8 [K / 2, N] of two numbers each, as
    /// [`crate::packed::u4_nr32k8_v1`] has it; any strides.
    pub weight: ConstantView<'a>,
    /// f32, [groups, N], any strides.
    pub scales: ConstantView<'a>,
    /// f32, N elements: the sum of scale · weight of each column.
    pub sums: &'a ConstantView<'a>,
    /// f32, N elements.
    pub bias: Option<&'a ConstantView<'a>>,
    /// Products of an output element.
    pub k: usize,
    /// Those that share a scale.
    pub group: usize,
    /// Output features.
    pub n: usize,
    /// How rows are quantised.
    pub scheme: RowScheme,
    /// What is written is not below and not above these.
    pub clamp: Option<(f32, f32)>,
    /// Position of the output, dense f32.
    pub out: usize,
}

/// Can groups of so many of `k` be computed?
pub fn takes_groups(k: usize, group: usize) -> bool {
    k > 0 && (group == k || group.is_multiple_of(BLOCK) && group > 0 && k.is_multiple_of(group))
}

/// Prepares the kernel of `product`; `None` when it does not take the arguments: tensors that are not dense f32, groups that are no whole
/// blocks of 32, rows that all have the same scale.
///
/// Errors: weights that cannot be packed.
pub fn prepare_nibbles(ctx: &PrepareContext<'_>, product: &NibbleProduct<'_>) -> Preparation {
    prepare_with(ctx, product, |_| true)
}

/// As [`prepare_nibbles`], with kits that `is_wanted` lets through.
fn prepare_with(
    ctx: &PrepareContext<'_>,
    product: &NibbleProduct<'_>,
    is_wanted: impl Fn(&Kit) -> bool,
) -> Preparation {
    let &NibbleProduct { k, group, n, scheme, out, .. } = product;
    let (Some(input), Some(output)) = (ctx.tensor(0), ctx.tensor(out)) else { return Ok(None) };
    let are_rows = [input, output].iter().all(|t| t.dim_order.is_contiguous() && t.dtype == DType::Float32)
        && input.shape.last() == Some(&k)
        && output.shape.len() == input.shape.len();
    if !are_rows || n == 0 || !takes_groups(k, group) || matches!(scheme, RowScheme::PerTensor { .. }) {
        return Ok(None);
    }
    let best = Kit::available().find(|(isa, kit)| *isa <= ctx.cpu.isa && is_wanted(kit));
    let (Some((_, kit)), Some(columns)) = (best, columns(product)?) else { return Ok(None) };
    let panels = match product.weight.dtype {
        DType::UInt8 => Panels::get_or_pack_pairs(ctx.packs, ctx.cpu, &product.weight)?,
        _ => Panels::get_or_pack(ctx.packs, ctx.cpu, &product.weight)?,
    };
    let brain = bf16_scales_nr32_v1::get_or_pack(ctx.packs, ctx.cpu, &product.scales)?;
    let are_brain = brain.is_some();
    let scales = match brain {
        Some(scales) => scales,
        None => f32_nr32_v1::get_or_pack(ctx.packs, ctx.cpu, &product.scales)?,
    };
    let (low, high) = product.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    let kernel = Linear {
        kit,
        level: SimdLevel::at_most(ctx.cpu.isa),
        blocks_of_group: if group == k { panels.blocks } else { group / BLOCK },
        panels,
        scales,
        are_brain,
        columns,
        has_bias: product.bias.is_some(),
        scheme,
        k,
        n,
        low,
        high,
        out,
        most_rows: input.shape[..input.shape.len() - 1].iter().fold(1, |m: usize, d| m.saturating_mul(*d)),
    };
    prepared(format!("integer.linear.{}.rows.{}", PACKED.name, kit.name), kernel)
}

/// The sums of the weights of whole panels of columns, then the biases; `None` where they are not f32 or not as many as columns.
fn columns(product: &NibbleProduct<'_>) -> Result<Option<AlignedBuffer>> {
    let whole = product.n.next_multiple_of(NR);
    let mut columns = AlignedBuffer::zeroed(2 * whole * size_of::<f32>())?;
    let parts = columns.as_mut_elements::<f32>().chunks_exact_mut(whole);
    for (part, view) in parts.zip([Some(product.sums), product.bias]) {
        let Some(view) = view else { continue };
        let numbers = if view.dtype == DType::Float32 { view.to_vec::<f32>()? } else { vec![] };
        if numbers.len() != product.n {
            return Ok(None);
        }
        part[..product.n].copy_from_slice(&numbers);
    }
    Ok(Some(columns))
}

#[cfg(test)]
mod tests;
