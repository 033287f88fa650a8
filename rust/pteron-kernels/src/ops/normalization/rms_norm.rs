//! RMS norm of rows, y = x · 1/√(mean(x²) + eps) · weight, computed in f32: an operation of the engine's own, for the calls that
//! exporters write it as. Gives the bytes of these calls.

use super::tasks::RmsRows;
use crate::elementwise::operand::{Sink, Source};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{BindArgs, DType, Element, Error, PrepareContext, Result};
use std::fmt;

/// Elements that a chunk of rows holds at least.
const CHUNK: usize = 8 << 10;

/// An RMS norm over the last dimension. Arguments: x (f32, bf16 or f16); where [`RmsNorm::has_weight`], the weight (one number
/// for each element of a row, f32 or of the type of x); the output (as x).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean of the squares.
    pub eps: f32,
    /// Is there a weight?
    pub has_weight: bool,
    /// Is the row rounded to the type of x before it is multiplied with the weight?
    pub rounds: bool,
}

impl fmt::Display for RmsNorm {
    /// `rms norm`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rms norm")
    }
}

struct Kernel {
    norm: RmsNorm,
    level: SimdLevel,
    dtype: DType,
    weight: DType,
}

/// The kernel for rows in row-major order; `None` for other dtypes and orders.
pub fn prepare(ctx: &PrepareContext<'_>, norm: &RmsNorm) -> Preparation {
    let out = 1 + usize::from(norm.has_weight);
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
    let is_plain = |i: usize| ctx.tensor(i).is_some_and(|t| t.dim_order.is_contiguous());
    let is_alike = ctx.tensor(out).is_some_and(|t| t.dtype == dtype);
    let weight = ctx.tensor(out - 1).map_or(dtype, |t| t.dtype);
    let is_known = weight == dtype || weight == DType::Float32;
    if !is_float || !is_alike || !is_known || ctx.args.len() != out + 1 || !(0..=out).all(is_plain) {
        return ctx.decline("takes row-major floats of one type, with weights of that type or float32");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    framed(format!("rms_norm.{text}.{}", level.isa().name()), Kernel { norm: *norm, level, dtype, weight })
}

impl UnitKernel for Kernel {
    /// Elements of a row; units are rows.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, length: &mut usize) -> Result<Split> {
        let view = args.args();
        let x = view.tensor(0)?;
        let (shape, numel) = (*x.shape(), x.numel());
        *length = shape.last().copied().unwrap_or(1);
        if self.norm.has_weight && view.tensor(1)?.numel() != *length {
            return Err(Error::kernel("an RMS norm has a weight for each element of a row")
                .expected(format!("{length} weights"))
                .got(format!("{:?}", view.tensor(1)?))
                .hint("load the program with the rule fuse_rms_norm switched off"));
        }
        args.resize(1 + usize::from(self.norm.has_weight), &shape)?;
        let rows = numel.checked_div(*length).unwrap_or(0);
        Ok(Split::sized(rows, *length, CHUNK, 1.0 / 4.0))
    }

    fn run(&self, length: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match (self.dtype, self.weight) {
            (DType::Float16, DType::Float16) => self.rows::<f16, f16>(*length, chunk),
            (DType::Float16, _) => self.rows::<f16, f32>(*length, chunk),
            (DType::BFloat16, DType::BFloat16) => self.rows::<bf16, bf16>(*length, chunk),
            (DType::BFloat16, _) => self.rows::<bf16, f32>(*length, chunk),
            _ => self.rows::<f32, f32>(*length, chunk),
        }
    }
}

impl Kernel {
    /// The rows of a chunk, of tensors whose elements are `T`, with weights of `W`.
    fn rows<T: Source + Sink + Element, W: Source + Element>(
        &self,
        length: usize,
        chunk: &mut Chunk<'_, '_>,
    ) -> Result<()> {
        let has_weight = self.norm.has_weight;
        let weight = has_weight.then(|| chunk.input(1)).transpose()?;
        self.level.dispatch(RmsRows::<T, W> {
            input: chunk.input_units(0, length)?.as_slice()?,
            weight: weight.map(|w| w.as_slice()).transpose()?,
            eps: self.norm.eps,
            rounds: self.norm.rounds,
            out: chunk.output_units(1 + usize::from(has_weight), length)?.into_slice()?,
            length,
        });
        Ok(())
    }
}
