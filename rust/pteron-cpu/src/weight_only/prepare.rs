//! Packs the weight of a product and prepares its kernel.

use super::panels::{Width, are_nibbles, get_or_pack, get_or_pack_pairs};
use super::spec::WeightOnlySpec;
use super::weights::Weights;
use crate::epilogue::Epilogue;
use crate::integer::{NibbleProduct, RowScheme, prepare_nibbles};
use crate::linear::{SourceProduct, prepare_source};
use crate::packed::f32_nr32_v1;
use pteron_core::{AlignedBuffer, ConstantView, DType, Dims, PrepareContext, Result};
use pteron_kernels::grid_kernel::Preparation;

// Positions of arguments.
const QUANTISED: usize = 1;
const SCALES: usize = 2;

/// Prepares the product of `spec`, with `epilogue` behind it, over the arguments of `ctx`.
///
/// `Ok(None)`: not a case for the kernel (an x or an output that is not dense f32, parameters that are no constants of the
/// right size). Errors: weights that cannot be packed.
pub fn prepare(ctx: &PrepareContext<'_>, spec: &WeightOnlySpec, epilogue: &Epilogue) -> Preparation {
    let Some(numel) = spec.k.checked_mul(spec.n).filter(|n| *n > 0) else { return Ok(None) };
    let (groups, group) = (spec.groups(), spec.group);
    if group == 0 || !spec.k.is_multiple_of(group) {
        return Ok(None);
    }
    if let Some(scheme) = spec.rows {
        return prepare_rows(ctx, spec, epilogue, (scheme, numel));
    }
    let zeros_at = SCALES + 1;
    let constants_end = zeros_at + usize::from(spec.has_zeros);
    let parameters = |at: usize| dense(ctx, at, DType::Float32, groups * spec.n);
    let Some(scales) = parameters(SCALES) else { return Ok(None) };
    let zeros = match spec.has_zeros {
        true => match parameters(zeros_at) {
            Some(zeros) => Some(zeros),
            None => return Ok(None),
        },
        false => None,
    };
    let by_group =
        |view| f32_nr32_v1::get_or_pack(ctx.packs, ctx.cpu, &seen_as(view, [groups, spec.n], [1, groups])?);
    // Two rows share a byte, and a group begins with a byte.
    let may_be_nibbles = groups == 1 || group.is_multiple_of(2);
    let (width, quantised) = if spec.has_pairs {
        let Some(pairs) = pairs_matrix(ctx, spec, numel)?.filter(|_| may_be_nibbles) else {
            return Ok(None);
        };
        (Width::Nibble, get_or_pack_pairs(ctx.packs, ctx.cpu, &pairs)?)
    } else {
        let Some(quantised) = quantised_matrix(ctx, spec, numel)? else { return Ok(None) };
        get_or_pack(ctx.packs, ctx.cpu, &quantised, may_be_nibbles)?
    };
    let weights = Weights {
        width,
        quantised,
        scales: by_group(scales)?,
        zeros: zeros.map(by_group).transpose()?,
        k: spec.k,
        n: spec.n,
        group,
    };
    let product = SourceProduct {
        source: Box::new(weights),
        k: spec.k,
        n: spec.n,
        constants: QUANTISED..constants_end,
        bias: spec.has_bias.then_some(constants_end),
        out: ctx.args.len().saturating_sub(1),
    };
    prepare_source(ctx, product, epilogue)
}

/// As [`prepare`], of rows that are quantised at run time.
fn prepare_rows(
    ctx: &PrepareContext<'_>,
    spec: &WeightOnlySpec,
    epilogue: &Epilogue,
    (scheme, numel): (RowScheme, usize),
) -> Preparation {
    let sums_at = SCALES + 1;
    let parameters = |at: usize, numel: usize| dense(ctx, at, DType::Float32, numel);
    let bias = match spec.has_bias {
        true => parameters(sums_at + 1, spec.n),
        false => None,
    };
    let weight = match spec.has_pairs {
        true => pairs_matrix(ctx, spec, numel)?,
        false => match quantised_matrix(ctx, spec, numel)? {
            Some(matrix) if are_nibbles(&matrix)? => Some(matrix),
            _ => None,
        },
    };
    let groups = spec.groups();
    let (Some(weight), Some(scales), Some(sums)) =
        (weight, parameters(SCALES, groups * spec.n), parameters(sums_at, spec.n))
    else {
        return Ok(None);
    };
    if spec.has_zeros || bias.is_some() != spec.has_bias || !epilogue.is_clamp_at_most() {
        return Ok(None);
    }
    let product = NibbleProduct {
        weight,
        scales: seen_as(scales, [groups, spec.n], [1, groups])?,
        sums,
        bias,
        k: spec.k,
        group: spec.group,
        n: spec.n,
        scheme,
        clamp: epilogue.clamp,
        out: ctx.args.len().saturating_sub(1),
    };
    prepare_nibbles(ctx, &product)
}

/// The sum of scale · weight of each column, each rounded once; `None` for a weight or scales that `spec` does not describe.
///
/// Errors: constants that leave their storage, no memory.
pub fn sums_of_columns(
    spec: &WeightOnlySpec,
    weight: &ConstantView<'_>,
    scales: &ConstantView<'_>,
) -> Result<Option<AlignedBuffer>> {
    let &WeightOnlySpec { k, n, group, .. } = spec;
    let (numel, groups) = (k.checked_mul(n), spec.groups());
    let scales = scales.row_major::<f32>()?;
    let (pairs, bytes) = match weight.dtype {
        DType::UInt8 => (weight.row_major::<u8>()?, None),
        _ => (Default::default(), Some(weight.row_major::<i8>()?)),
    };
    let given = bytes.as_ref().map_or(pairs.len().checked_mul(2), |bytes| Some(bytes.len()));
    let is_described = given == numel && scales.len() == groups.saturating_mul(n) && group > 0;
    if !is_described || bytes.is_some() == spec.has_pairs || spec.has_pairs && !group.is_multiple_of(2) {
        return Ok(None);
    }
    // Of the numbers of one group of one column.
    let in_group = |column: usize, g: usize| -> i64 {
        let (first, last) = (g * group, k.min((g + 1) * group));
        match &bytes {
            None => {
                let both = |b: &u8| i64::from(b >> 4) + i64::from(b & 15) - 16;
                pairs[(column * k + first) / 2..(column * k + last) / 2].iter().map(both).sum()
            }
            Some(bytes) if spec.is_row_per_output => {
                bytes[column * k + first..column * k + last].iter().map(|w| i64::from(*w)).sum()
            }
            Some(bytes) => (first..last).map(|row| i64::from(bytes[row * n + column])).sum(),
        }
    };
    let of_column = |column: usize| {
        let terms = scales[column * groups..][..groups].iter().enumerate();
        terms.map(|(g, scale)| f64::from(*scale) * in_group(column, g) as f64).sum::<f64>() as f32
    };
    let mut sums = AlignedBuffer::zeroed(n.saturating_mul(size_of::<f32>()))?;
    sums.as_mut_elements::<f32>().iter_mut().enumerate().for_each(|(column, sum)| *sum = of_column(column));
    Ok(Some(sums))
}

/// The quantised constant as a matrix of K rows and N columns. One that load sees through a permute of its bytes has
/// strides of its own.
fn quantised_matrix<'a>(
    ctx: &PrepareContext<'a>,
    spec: &WeightOnlySpec,
    numel: usize,
) -> Result<Option<ConstantView<'a>>> {
    let (k, n) = (spec.k, spec.n);
    if let Some(dense) = dense(ctx, QUANTISED, DType::Int8, numel) {
        return seen_as(dense, [k, n], if spec.is_row_per_output { [1, k] } else { [n, 1] }).map(Some);
    }
    let Some(view) = ctx.args.get(QUANTISED).and_then(|a| a.constant()) else { return Ok(None) };
    let (&[rows, columns], &[down, across]) = (&*view.shape, &*view.strides) else { return Ok(None) };
    let (shape, strides) = match spec.is_row_per_output {
        true => ([columns, rows], [across, down]),
        false => ([rows, columns], [down, across]),
    };
    let fits = view.dtype == DType::Int8 && shape == [k, n];
    fits.then(|| seen_as(view, shape, strides)).transpose()
}

/// The constant of two numbers in each byte as a matrix of K / 2 rows and N columns.
fn pairs_matrix<'a>(
    ctx: &PrepareContext<'a>,
    spec: &WeightOnlySpec,
    numel: usize,
) -> Result<Option<ConstantView<'a>>> {
    if !spec.k.is_multiple_of(2) || !spec.is_row_per_output {
        return Ok(None);
    }
    let pairs = spec.k / 2;
    let plain = dense(ctx, QUANTISED, DType::UInt8, numel / 2);
    plain.map(|view| seen_as(view, [pairs, spec.n], [1, pairs])).transpose()
}

/// The constant argument `at` if it has `numel` elements of `dtype`, one behind the other.
fn dense<'a>(
    ctx: &PrepareContext<'a>,
    at: usize,
    dtype: DType,
    numel: usize,
) -> Option<&'a ConstantView<'a>> {
    let view = ctx.args.get(at)?.constant()?;
    let mut stride = 1usize;
    let is_dense = view.shape.iter().zip(view.strides.iter()).rev().all(|(extent, found)| {
        let fits = *extent == 1 || *found == stride;
        stride = stride.saturating_mul(*extent);
        fits
    });
    (is_dense && view.dtype == dtype && view.numel().is_ok_and(|n| n == numel)).then_some(view)
}

/// The same elements as a matrix.
fn seen_as<'a>(view: &ConstantView<'a>, shape: [usize; 2], strides: [usize; 2]) -> Result<ConstantView<'a>> {
    Ok(ConstantView { shape: Dims::new(&shape)?, strides: Dims::new(&strides)?, ..*view })
}
