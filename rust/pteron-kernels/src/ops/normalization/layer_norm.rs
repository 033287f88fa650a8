//! native_layer_norm of floats, computed in f32: y = (x - mean) · rstd · weight + bias over the trailing dimensions, with mean
//! and rstd as further outputs. Rows are independent; each is read three times from the nearest cache.

use super::tasks::LayerRows;
use crate::elementwise::operand::{Sink, Source};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, DType, Dims, Element, Error, PrepareContext, Result};

const INPUT: usize = 0;
const NORMALIZED_SHAPE: usize = 1;
const WEIGHT: usize = 2;
const BIAS: usize = 3;
const EPS: usize = 4;
const OUT: usize = 5;
const MEAN: usize = 6;
const RSTD: usize = 7;
/// Elements that a chunk of rows holds at least.
const CHUNK: usize = 8 << 10;

struct LayerNorm {
    level: SimdLevel,
    dtype: DType,
}

/// The kernel for floats in row-major order, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let Some(dtype) = ctx.tensor(INPUT).map(|t| t.dtype) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous());
    let is_plain_or_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None)) || is_plain(i);
    let fits = [INPUT, OUT, MEAN, RSTD].into_iter().all(is_plain)
        && [WEIGHT, BIAS].into_iter().all(is_plain_or_absent);
    let Some(ArgSpec::IntList(normalized)) = ctx.args.get(NORMALIZED_SHAPE) else {
        return ctx.decline("the normalised shape is not known at load");
    };
    let is_float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
    // Rows of nothing have a mean that is not a number.
    let shape = ctx.tensor(INPUT).map(|t| t.shape).unwrap_or(Dims::EMPTY);
    let is_nothing = shape.iter().rev().take(normalized.len()).any(|e| *e == 0);
    if !fits || !is_float || normalized.is_empty() || is_nothing {
        return ctx.decline("takes float32 or one 16-bit float, row-major, and rows that are not empty");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    framed(format!("layer_norm.{text}.{}", level.isa().name()), LayerNorm { level, dtype })
}

impl UnitKernel for LayerNorm {
    /// Elements of a row; units are rows.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, length: &mut usize) -> Result<Split> {
        super::bind_layer(args)?;
        let view = args.args();
        *length = view.int_list(NORMALIZED_SHAPE)?.to_dims()?.numel()?;
        let rows = view.output(MEAN)?.numel();
        if *length == 0 && rows > 0 {
            let shape = view.tensor(INPUT)?.shape();
            return Err(Error::kernel("layer norm over no elements").got(format!("input {shape}")));
        }
        Ok(Split::sized(rows, *length, CHUNK, 1.0 / 3.0))
    }

    fn run(&self, length: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match self.dtype {
            DType::Float16 => self.rows::<f16>(*length, chunk),
            DType::BFloat16 => self.rows::<bf16>(*length, chunk),
            _ => self.rows::<f32>(*length, chunk),
        }
    }
}

impl LayerNorm {
    /// The rows of a chunk, of tensors whose elements are `T`.
    fn rows<T: Source + Sink + Element>(&self, length: usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.level.dispatch(LayerRows::<T> {
            input: chunk.input_units(INPUT, length)?.as_slice()?,
            weight: chunk.optional_input(WEIGHT)?.map(|w| w.as_slice()).transpose()?,
            bias: chunk.optional_input(BIAS)?.map(|b| b.as_slice()).transpose()?,
            eps: chunk.args().double(EPS)?,
            out: chunk.output_units(OUT, length)?.into_slice()?,
            mean: chunk.output_units(MEAN, 1)?.into_slice()?,
            rstd: chunk.output_units(RSTD, 1)?.into_slice()?,
            length,
        });
        Ok(())
    }
}
