//! native_group_norm of row-major floats, computed in f32: each group of channels of each image is normalised by its
//! own mean and deviation, then scaled and shifted per channel.

use super::tasks::ChannelGroups;
use crate::elementwise::operand::{Sink, Source};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, DType, Element, Error, PrepareContext, Result};

const INPUT: usize = 0;
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const IMAGES: usize = 3;
const CHANNELS: usize = 4;
const PIXELS: usize = 5;
const GROUPS: usize = 6;
const EPS: usize = 7;
const OUT: usize = 8;
const MEAN: usize = 9;
const RSTD: usize = 10;

struct GroupNorm {
    level: SimdLevel,
    dtype: DType,
}

/// How channels are grouped; units are the groups of all images.
#[derive(Debug, Clone, Copy, Default)]
pub struct Grouping {
    /// Groups of an image.
    pub groups: usize,
    pub channels_per_group: usize,
    /// Elements of a channel.
    pub pixels: usize,
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
    if !fits || !matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16) {
        return ctx.decline("takes float32 or one 16-bit float in row-major order");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    framed(format!("group_norm.{text}.{}", level.isa().name()), GroupNorm { level, dtype })
}

impl UnitKernel for GroupNorm {
    type Problem = Grouping;

    fn bind(&self, args: &mut BindArgs<'_>, grouping: &mut Grouping) -> Result<Split> {
        let a = args.args();
        let input = a.tensor(INPUT)?;
        let (shape, numel) = (*input.shape(), input.numel());
        let size = |i: usize| -> Result<usize> {
            let v = a.int(i)?;
            usize::try_from(v).map_err(|_| Error::kernel("negative extent").got(v.to_string()))
        };
        let (images, channels, pixels, groups) =
            (size(IMAGES)?, size(CHANNELS)?, size(PIXELS)?, size(GROUPS)?);
        let volume = images.checked_mul(channels).and_then(|v| v.checked_mul(pixels));
        if volume != Some(numel) || groups == 0 || channels % groups != 0 {
            return Err(Error::kernel("group norm sizes do not fit the input")
                .expected(format!("N · C · HxW elements of {shape} and C divisible by the groups"))
                .got(format!("N {images}, C {channels}, HxW {pixels}, {groups} groups")));
        }
        for i in [WEIGHT, BIAS] {
            if let Some(t) = a.optional_tensor(i)?
                && t.numel() != channels
            {
                return Err(Error::kernel("a group norm parameter does not have one element per channel")
                    .argument(if i == WEIGHT { "weight" } else { "bias" })
                    .expected(format!("[{channels}]"))
                    .got(t.shape().to_string()));
            }
        }
        args.resize(OUT, &shape)?;
        args.resize(MEAN, &[images, groups])?;
        args.resize(RSTD, &[images, groups])?;
        if numel == 0 {
            return Ok(Split::NONE);
        }
        let channels_per_group = channels / groups;
        *grouping = Grouping { groups, channels_per_group, pixels };
        Ok(Split::new(images * groups, 1, channels_per_group * pixels / 3))
    }

    fn run(&self, grouping: &Grouping, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match self.dtype {
            DType::Float16 => self.groups::<f16>(grouping, chunk),
            DType::BFloat16 => self.groups::<bf16>(grouping, chunk),
            _ => self.groups::<f32>(grouping, chunk),
        }
    }
}

impl GroupNorm {
    /// The groups of a chunk, of tensors whose elements are `T`.
    fn groups<T: Source + Sink + Element>(
        &self,
        grouping: &Grouping,
        chunk: &mut Chunk<'_, '_>,
    ) -> Result<()> {
        let size = grouping.channels_per_group * grouping.pixels;
        self.level.dispatch(ChannelGroups::<T> {
            input: chunk.input_units(INPUT, size)?.as_slice()?,
            weight: chunk.optional_input(WEIGHT)?.map(|w| w.as_slice()).transpose()?,
            bias: chunk.optional_input(BIAS)?.map(|b| b.as_slice()).transpose()?,
            eps: chunk.args().double(EPS)?,
            out: chunk.output_units(OUT, size)?.into_slice()?,
            mean: chunk.output_units(MEAN, 1)?.into_slice()?,
            rstd: chunk.output_units(RSTD, 1)?.into_slice()?,
            first: chunk.units.start,
            grouping: *grouping,
        });
        Ok(())
    }
}
