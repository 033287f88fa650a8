//! _native_batch_norm_legit_no_training of floats, computed in f32: y = x · scale + shift per channel (dimension 1),
//! with scale = weight / sqrt(running_var + eps) and shift = bias - running_mean · scale.

use super::tasks::{ChannelParameters, ChannelPixels, ChannelPlanes};
use crate::chunk::CHUNK;
use crate::elementwise::operand::{Sink, Source};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{AliasRule, ArgSpec, BindArgs, DType, Element, Error, PrepareContext, Result, Scratch};

const INPUT: usize = 0;
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const RUNNING_MEAN: usize = 3;
const RUNNING_VAR: usize = 4;
const EPS: usize = 6;
const OUT: usize = 7;
const SAVED: [usize; 2] = [8, 9];

struct BatchNorm {
    level: SimdLevel,
    dtype: DType,
    /// That of the numbers of channels: the same, or float32.
    parameters: DType,
    /// Channels at most.
    channels: usize,
    /// Is the channel the innermost dimension in memory?
    is_channels_last: bool,
}

/// The tensor in memory order. Units are planes of one channel, or pixels of all channels where these are innermost.
#[derive(Debug, Clone, Copy, Default)]
struct Layout {
    channels: usize,
    /// Elements of a unit.
    size: usize,
}

/// The kernel for floats, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype_of = |i: usize| ctx.tensor(i).map(|t| t.dtype);
    let (Some(dtype), Some(parameters)) = (dtype_of(INPUT), dtype_of(RUNNING_MEAN)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None));
    let fits = dtype_of(OUT) == Some(dtype)
        && dtype_of(RUNNING_VAR) == Some(parameters)
        && [WEIGHT, BIAS].into_iter().all(|i| is_absent(i) || dtype_of(i) == Some(parameters))
        && matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16)
        && [dtype, DType::Float32].contains(&parameters);
    let (Some(input), Some(out)) = (ctx.tensor(INPUT), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let order = input.dim_order.as_slice();
    let is_channels_last = order.len() > 2 && order.last() == Some(&1) && order.first() == Some(&0);
    if !fits || order.len() < 2 || input.dim_order != out.dim_order {
        return ctx.decline(
            "takes float32 or a 16-bit float with at least 2 dimensions in one memory order, and numbers of channels of that type or float32",
        );
    }
    if !(input.dim_order.is_contiguous() || is_channels_last) {
        return ctx.decline("takes row-major or channels-last tensors");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    let name = format!("batch_norm.{text}.{}", level.isa().name());
    framed(name, BatchNorm { level, dtype, parameters, channels: input.shape[1], is_channels_last })
}

impl UnitKernel for BatchNorm {
    type Problem = Layout;

    fn scratch(&self) -> Scratch {
        let rows = if self.is_channels_last { 2 } else { 0 };
        Scratch { per_worker: rows * self.channels * size_of::<f32>(), shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        AliasRule::InPlace
    }

    fn bind(&self, args: &mut BindArgs<'_>, layout: &mut Layout) -> Result<Split> {
        let input = args.args().tensor(INPUT)?;
        let (shape, numel) = (*input.shape(), input.numel());
        let channels = shape[1];
        for (i, name) in
            [(WEIGHT, "weight"), (BIAS, "bias"), (RUNNING_MEAN, "running_mean"), (RUNNING_VAR, "running_var")]
        {
            if let Some(t) = args.args().optional_tensor(i)?
                && t.numel() != channels
            {
                return Err(Error::kernel("a batch norm parameter does not have one element per channel")
                    .argument(name)
                    .expected(format!("[{channels}] for an input of shape {shape}"))
                    .got(t.shape().to_string()));
            }
        }
        args.resize(OUT, &shape)?;
        for i in SAVED {
            args.resize(i, &[0])?;
        }
        if numel == 0 {
            return Ok(Split::NONE);
        }
        let size = if self.is_channels_last { channels } else { numel / (shape[0] * channels) };
        *layout = Layout { channels, size };
        Ok(Split::sized(numel / size, size, CHUNK, 0.2))
    }

    fn run(&self, layout: &Layout, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match (self.dtype, self.parameters) {
            (DType::Float16, DType::Float16) => self.units::<f16, f16>(layout, chunk),
            (DType::Float16, _) => self.units::<f16, f32>(layout, chunk),
            (DType::BFloat16, DType::BFloat16) => self.units::<bf16, bf16>(layout, chunk),
            (DType::BFloat16, _) => self.units::<bf16, f32>(layout, chunk),
            _ => self.units::<f32, f32>(layout, chunk),
        }
    }
}

impl BatchNorm {
    /// The units of a chunk, of a tensor of `T` with numbers of channels of `P`.
    fn units<T: Source + Sink + Element, P: Source + Element>(
        &self,
        &Layout { channels, size }: &Layout,
        chunk: &mut Chunk<'_, '_>,
    ) -> Result<()> {
        let input = chunk.input_units::<T>(INPUT, size)?;
        let parameters = ChannelParameters::<P> {
            weight: chunk.optional_input(WEIGHT)?,
            bias: chunk.optional_input(BIAS)?,
            mean: chunk.input(RUNNING_MEAN)?,
            var: chunk.input(RUNNING_VAR)?,
            eps: chunk.args().double(EPS)?,
            channels,
        };
        let out = chunk.output_units::<T>(OUT, size)?;
        if self.is_channels_last {
            let (scales, shifts) = (chunk.take_scratch(channels)?, chunk.take_scratch(channels)?);
            self.level.dispatch(ChannelPixels { input, out, parameters, scales, shifts });
        } else {
            self.level.dispatch(ChannelPlanes { input, out, parameters, first: chunk.units.start, size });
        }
        Ok(())
    }
}
