//! Fourier transforms of row-major tensors in float32: many rows at once ([`crate::fourier::rows`]).
//!
//! A unit is what lies behind one position of the dimensions before the first that is transformed: a row where only
//! the last dimension is.

use super::{bind_c2c, bind_c2r, bind_r2c, dims, scale};
use crate::fourier::axis::{Axis, Kind};
use crate::fourier::rows::{Rows, scratch_floats, scratch_numbers};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::shape::wrap_dim;
use crate::vector_math::SimdLevel;
use pteron_core::{ArgSpec, BindArgs, Complex64, DType, Dims, Error, PrepareContext, Result, Scratch};

const INPUT: usize = 0;
const DIMS: usize = 1;
const IS_FORWARD: usize = 3;
const OUT: usize = 4;
/// Elements that a chunk of rows holds at least.
const CHUNK: usize = 16 << 10;
/// Rows of a chunk are a multiple of this: those of a vector.
const ROWS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Complex,
    FromReal,
    ToReal,
}

struct FourierRows {
    level: SimdLevel,
    which: Which,
    floats: usize,
    numbers: usize,
    /// Complex numbers of the copy in which the first dimensions of a transform to real numbers are transformed.
    copied: usize,
}

/// The kernel of complex numbers, if it takes the call.
pub fn prepare_c2c(ctx: &PrepareContext<'_>) -> Preparation {
    prepare(ctx, Which::Complex)
}

/// The kernel from real numbers, if it takes the call.
pub fn prepare_r2c(ctx: &PrepareContext<'_>) -> Preparation {
    prepare(ctx, Which::FromReal)
}

/// The kernel to real numbers, if it takes the call.
pub fn prepare_c2r(ctx: &PrepareContext<'_>) -> Preparation {
    prepare(ctx, Which::ToReal)
}

fn prepare(ctx: &PrepareContext<'_>, which: Which) -> Preparation {
    let (Some(x), Some(out)) = (ctx.tensor(INPUT), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let (from, to) = match which {
        Which::Complex => (DType::Complex64, DType::Complex64),
        Which::FromReal => (DType::Float32, DType::Complex64),
        Which::ToReal => (DType::Complex64, DType::Float32),
    };
    let is_row_major = x.dim_order.is_contiguous() && out.dim_order.is_contiguous();
    if (x.dtype, out.dtype) != (from, to) || !is_row_major || x.shape.len() != out.shape.len() {
        return ctx.decline("takes float32 and complex64 in row-major order");
    }
    // Extents of dimensions that are transformed, or all, if these are not known.
    let listed: Option<Vec<usize>> = match ctx.args.get(DIMS) {
        Some(ArgSpec::IntList(dims)) => {
            dims.iter().map(|d| d.and_then(|d| wrap_dim(d, x.shape.len()).ok())).collect()
        }
        _ => None,
    };
    let all = || (0..x.shape.len()).collect();
    let is_bound = x.is_dynamic() || out.is_dynamic();
    let extents = listed.unwrap_or_else(all).into_iter().flat_map(|d| [x.shape[d], out.shape[d]]);
    let sizes = extents.filter(|n| *n > 0).try_fold((0, 0), |(floats, numbers), n| {
        Some((scratch_floats(n)?.max(floats), scratch_numbers(n, is_bound)?.max(numbers)))
    });
    let copied = if which == Which::ToReal { x.shape.numel()? } else { 0 };
    let bytes = sizes.and_then(|(floats, numbers)| scratch_bytes(floats, numbers, copied));
    let (Some((floats, numbers)), Some(_)) = (sizes, bytes) else {
        return ctx.decline("takes sizes whose scratch memory can be addressed");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    framed(format!("fft.f32.{}", level.isa().name()), FourierRows { level, which, floats, numbers, copied })
}

fn scratch_bytes(floats: usize, numbers: usize, copied: usize) -> Option<usize> {
    let numbers = numbers.checked_mul(size_of::<crate::fourier::Number>())?;
    let copied = copied.checked_mul(size_of::<Complex64>())?;
    floats.checked_mul(size_of::<f32>())?.checked_add(numbers)?.checked_add(copied)
}

/// What a call has of shapes: how many units, and the first dimension of a unit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Units {
    first: usize,
}

impl UnitKernel for FourierRows {
    type Problem = Units;

    fn scratch(&self) -> Scratch {
        let bytes = scratch_bytes(self.floats, self.numbers, self.copied);
        Scratch { per_worker: bytes.unwrap_or(usize::MAX), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Units) -> Result<Split> {
        match self.which {
            Which::Complex => bind_c2c(args)?,
            Which::FromReal => bind_r2c(args)?,
            Which::ToReal => bind_c2r(args)?,
        }
        let args = args.args();
        let (x, out) = (*args.tensor(INPUT)?.shape(), *args.output(OUT)?.shape());
        let dims = dims(&args)?;
        let Some(first) = dims.iter().min().copied().or((!x.is_empty()).then(|| x.len() - 1)) else {
            // A single number, which no dimension transforms.
            *problem = Units { first: 0 };
            return Ok(Split::new(1, 1, 0));
        };
        *problem = Units { first };
        let units = x[..first].iter().product();
        let size: usize = x[first..].iter().product::<usize>().max(out[first..].iter().product());
        if units == 0 || size == 0 {
            return Ok(Split::NONE);
        }
        let rows = CHUNK.div_ceil(size).next_multiple_of(if size < CHUNK { ROWS } else { 1 });
        Ok(Split::new(units, rows, rows.min(units).saturating_mul(size).saturating_mul(2)))
    }

    fn run(&self, problem: &Units, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let args = chunk.args();
        let (x, out) = (*args.tensor(INPUT)?.shape(), *args.output(OUT)?.shape());
        let dims = dims(args)?;
        let units = chunk.units.len();
        let size = |shape: &Dims| shape[problem.first..].iter().product::<usize>();
        let signal = if self.which == Which::ToReal { &out } else { &x };
        let factor = scale(args, signal, &dims)? as f32;
        let floats = chunk.take_scratch::<f32>(self.floats)?;
        let numbers = chunk.take_scratch(self.numbers)?;
        let mut copy = chunk.take_scratch::<Complex64>(self.copied)?;
        let mut transform =
            |axis: (&Dims, usize), kind, is_forward, factor, source: Option<&[f32]>, target: &mut [f32]| {
                let (shape, dim) = axis;
                let between: usize = shape[problem.first..dim].iter().product();
                let axis =
                    Axis { outer: units * between, n: shape[dim], inner: shape[dim + 1..].iter().product() };
                self.level.dispatch(Rows {
                    axis,
                    kind,
                    is_forward,
                    factor,
                    source,
                    target,
                    scratch: floats,
                    numbers,
                })
            };
        let factor_at = |position: usize| if position + 1 == dims.len() { factor } else { 1.0 };
        match self.which {
            Which::Complex => {
                let source = pairs(chunk.input_units(INPUT, size(&x))?.as_slice()?);
                let target = pairs_mut(chunk.output_units(OUT, size(&out))?.into_slice()?);
                if dims.is_empty() {
                    target.copy_from_slice(source);
                }
                let is_forward = args.bool(IS_FORWARD)?;
                for (i, dim) in dims.iter().enumerate() {
                    let source = (i == 0).then_some(source);
                    transform((&x, *dim), Kind::Complex, is_forward, factor_at(i), source, target)?;
                }
            }
            Which::FromReal => {
                let source: &[f32] = chunk.input_units(INPUT, size(&x))?.as_slice()?;
                let target = pairs_mut(chunk.output_units(OUT, size(&out))?.into_slice()?);
                let Some((last, others)) = dims.split_last() else { return Ok(()) };
                let kind = Kind::FromReal { kept: out[*last] };
                let first_factor = if others.is_empty() { factor } else { 1.0 };
                transform((&x, *last), kind, true, first_factor, Some(source), target)?;
                for (i, dim) in others.iter().enumerate() {
                    transform((&out, *dim), Kind::Complex, true, factor_at(i + 1), None, target)?;
                }
            }
            Which::ToReal => {
                let mut source = pairs(chunk.input_units(INPUT, size(&x))?.as_slice()?);
                let target: &mut [f32] = chunk.output_units(OUT, size(&out))?.into_slice()?;
                let Some((last, others)) = dims.split_last() else { return Ok(()) };
                if !others.is_empty() {
                    let short = || Error::internal("the copy of a transform is too small");
                    copy = std::mem::take(&mut copy).get_mut(..source.len() / 2).ok_or_else(short)?;
                    let copy = pairs_mut(copy);
                    for (i, dim) in others.iter().enumerate() {
                        let from = (i == 0).then_some(source);
                        transform((&x, *dim), Kind::Complex, false, 1.0, from, copy)?;
                    }
                    source = copy;
                }
                let kind = Kind::ToReal { given: x[*last] };
                transform((&out, *last), kind, false, factor, Some(source), target)?;
            }
        }
        Ok(())
    }
}

/// Complex numbers as pairs.
fn pairs(numbers: &[Complex64]) -> &[f32] {
    bytemuck::cast_slice(numbers)
}

fn pairs_mut(numbers: &mut [Complex64]) -> &mut [f32] {
    bytemuck::cast_slice_mut(numbers)
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
