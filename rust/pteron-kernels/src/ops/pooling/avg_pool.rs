//! avg_pool2d, avg_pool3d and their adaptive forms on f32: the mean of each window.
//!
//! The fixed window divides by its size (clipped to the padded input), by the number of elements inside the
//! input, or by a given number. The adaptive one has windows ⌊o·n/m⌋..⌈(o+1)·n/m⌉.

use super::mean_windows::{MeanWindows, Windows};
use super::window::{Extents, Window, check_sizes, common_order, input_shape, spatial, split};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use crate::vector_math::simd::MAX_LANES;
use pteron_core::{ArgSpec, BindArgs, DType, Dims, Error, PrepareContext, Result, Scratch};

struct AvgPool {
    level: SimdLevel,
    windows: Windows,
    rank: usize,
    is_interleaved: bool,
    out: usize,
    /// Output width up to which rows of planes are computed element by element of the window, whole vectors.
    row_length: usize,
}

/// Widest window for which that is done: few elements leave nothing to add up in vectors.
const WIDEST: usize = 16;

/// Longest row that is kept in scratch.
const LONGEST: usize = 64 << 10;

const FIXED_OUT: usize = 7;
const ADAPTIVE_OUT: usize = 2;

/// The kernel of fixed windows for f32, if it takes the call.
pub fn prepare_fixed(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    let Some(window) = Window::of(ctx, rank, None, 4) else {
        return ctx.decline("the window is not known at load");
    };
    let Some(ArgSpec::Bool(Some(counts_padding))) = ctx.args.get(5) else {
        return ctx.decline("`count_include_pad` is not known at load");
    };
    let divisor = match ctx.args.get(6) {
        Some(ArgSpec::None) => None,
        Some(ArgSpec::Int(Some(d))) if *d != 0 => Some(*d as f32),
        _ => return ctx.decline("the divisor is zero or not known at load"),
    };
    prepare(ctx, Windows::Fixed { window, counts_padding: *counts_padding, divisor }, rank, FIXED_OUT)
}

/// The kernel of adaptive windows for f32, if it takes the call.
pub fn prepare_adaptive(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    match ctx.args.get(1) {
        Some(ArgSpec::IntList(size)) if size.len() == rank => {
            prepare(ctx, Windows::Adaptive, rank, ADAPTIVE_OUT)
        }
        // One number for all dimensions.
        _ => ctx.decline("takes one output size for each dimension"),
    }
}

fn prepare(ctx: &PrepareContext<'_>, windows: Windows, rank: usize, out: usize) -> Preparation {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(out)], DType::Float32, rank) else {
        return ctx.decline("takes float32, row-major or channels-last throughout");
    };
    let row_length = match (&windows, ctx.tensor(0)) {
        (Windows::Fixed { window, .. }, Some(input)) if !is_interleaved && window.kernel[2] <= WIDEST => {
            window.extents(&input.shape).map_or(0, |e| e.output[2].min(LONGEST).next_multiple_of(MAX_LANES))
        }
        _ => 0,
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("avg_pool{rank}d.f32.{}", level.isa().name());
    framed(name, AvgPool { level, windows, rank, is_interleaved, out, row_length })
}

impl AvgPool {
    /// Extents for an input of `shape`, which has to be large enough.
    fn extents(&self, shape: &Dims, args: &BindArgs<'_>) -> Result<Extents> {
        let Windows::Fixed { window, .. } = &self.windows else { return self.adaptive_extents(shape, args) };
        let extents = window.extents(shape)?;
        // PyTorch has this rule for volumes alone, whatever the padding and the rounding.
        let too_small = (0..3).find(|d| extents.input[*d] < window.kernel[*d]);
        if let (3, Some(d)) = (self.rank, too_small) {
            return Err(Error::kernel("the window is larger than the input")
                .argument("kernel_size")
                .expected(format!("at most {}", extents.input[d]))
                .got(window.kernel[d].to_string()));
        }
        Ok(extents)
    }

    fn adaptive_extents(&self, shape: &Dims, args: &BindArgs<'_>) -> Result<Extents> {
        let size = args.args().int_list(1)?.to_dims()?;
        if size.len() != self.rank {
            return Err(Error::kernel("output_size needs one extent per spatial dimension")
                .expected(self.rank.to_string())
                .got(size.to_string()));
        }
        let (input, mut output) = (spatial(shape, self.rank), [1; 3]);
        output[3 - self.rank..].copy_from_slice(&size);
        // PyTorch has this rule for the channels of volumes, not for those of images.
        if input.contains(&0) || (self.rank == 3 && shape[1] == 0) {
            return Err(Error::kernel("the mean of no elements is not defined").got(shape.to_string()));
        }
        Ok(Extents { images: shape[0], channels: shape[1], input, output })
    }
}

impl UnitKernel for AvgPool {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.row_length * size_of::<f32>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        *extents = self.extents(&input_shape(&args.args())?, args)?;
        args.resize(self.out, &extents.output_shape(self.rank)?)?;
        let reads_per_output: usize = match &self.windows {
            Windows::Fixed { window, .. } => window.kernel.iter().product(),
            Windows::Adaptive => {
                (0..3).map(|d| extents.input[d].div_ceil(extents.output[d].max(1))).product()
            }
        };
        Ok(split(extents, self.is_interleaved, reads_per_output * 4))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (input, out) = (chunk.input(0)?, chunk.output_shared(self.out)?);
        check_sizes(extents, input.len(), out.len())?;
        self.level.dispatch(MeanWindows {
            windows: self.windows,
            extents: *extents,
            units: chunk.units.clone(),
            is_interleaved: self.is_interleaved,
            sums: chunk.take_scratch(self.row_length)?,
            input,
            out,
        });
        Ok(())
    }
}
