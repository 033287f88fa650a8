//! avg_pool1d, avg_pool2d, avg_pool3d and their adaptive forms on floats: the mean of each window, added up in f32 or in float64.
//!
//! The fixed window divides by its size (clipped to the padded input), by the number of elements inside the
//! input, or by a given number. The adaptive one has windows ⌊o·n/m⌋..⌈(o+1)·n/m⌉.

use super::average_out;
use super::mean_windows::{Divisor, MeanWindows};
use super::window::{Extents, Window, Windows, check_sizes, common_order, input_shape, spatial, split};
use crate::elementwise::columns::Columns;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, DType, Error, PrepareContext, Result, Scratch};
use std::marker::PhantomData;

const ADAPTIVE_OUT: usize = 2;

struct AvgPool<T> {
    level: SimdLevel,
    windows: Windows,
    divisor: Divisor,
    rank: usize,
    is_interleaved: bool,
    out: usize,
    /// Width at most of lines of a planar input, and of its output.
    lengths: [usize; 2],
    element: PhantomData<T>,
}

/// The kernel of fixed windows, if it takes the call.
pub fn prepare_fixed(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    let Some(window) = Window::of(ctx, rank, None, 4) else {
        return ctx.decline("the window is not known at load");
    };
    let Some(ArgSpec::Bool(Some(counts_padding))) = ctx.args.get(5) else {
        return ctx.decline("`count_include_pad` is not known at load");
    };
    let fixed = match ctx.args.get(6) {
        // That of signals has no divisor.
        _ if rank == 1 => None,
        Some(ArgSpec::None) => None,
        Some(ArgSpec::Int(Some(d))) if *d != 0 => Some(*d),
        _ => return ctx.decline("the divisor is zero or not known at load"),
    };
    let divisor = Divisor { counts_padding: *counts_padding, fixed };
    by_dtype(ctx, Windows::Fixed(window), divisor, rank, average_out(rank))
}

/// The kernel of adaptive windows, if it takes the call.
pub fn prepare_adaptive(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    match ctx.args.get(1) {
        Some(ArgSpec::IntList(size)) if size.len() == rank => {
            let divisor = Divisor { counts_padding: false, fixed: None };
            by_dtype(ctx, Windows::Adaptive, divisor, rank, ADAPTIVE_OUT)
        }
        // One number for all dimensions.
        _ => ctx.decline("takes one output size for each dimension"),
    }
}

fn by_dtype(
    ctx: &PrepareContext<'_>,
    windows: Windows,
    divisor: Divisor,
    rank: usize,
    out: usize,
) -> Preparation {
    match ctx.tensor(0).map(|input| input.dtype) {
        Some(DType::Float32) => prepare::<f32>(ctx, windows, divisor, rank, out, "f32"),
        Some(DType::Float16) => prepare::<f16>(ctx, windows, divisor, rank, out, "f16"),
        Some(DType::BFloat16) => prepare::<bf16>(ctx, windows, divisor, rank, out, "bf16"),
        Some(DType::Float64) => prepare::<f64>(ctx, windows, divisor, rank, out, "f64"),
        _ => ctx.decline("takes floats of at least 16 bits"),
    }
}

fn prepare<T: Columns>(
    ctx: &PrepareContext<'_>,
    windows: Windows,
    divisor: Divisor,
    rank: usize,
    out: usize,
    dtype: &'static str,
) -> Preparation {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(out)], T::DTYPE, rank) else {
        return ctx.decline("takes one dtype, row-major or channels-last throughout");
    };
    let width = |i: usize| ctx.tensor(i).map_or(0, |t| spatial(&t.shape, rank)[2]);
    let lengths = if is_interleaved { [0; 2] } else { [width(0), width(out)] };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("avg_pool{rank}d.{dtype}.{}", level.isa().name());
    let element = PhantomData::<T>;
    framed(name, AvgPool { level, windows, divisor, rank, is_interleaved, out, lengths, element })
}

impl<T: Columns> AvgPool<T> {
    /// Extents for the input, which has to be large enough.
    fn extents(&self, args: &BindArgs<'_>) -> Result<Extents> {
        let shape = input_shape(&args.args())?;
        let Windows::Fixed(window) = &self.windows else {
            let extents = Windows::adaptive_extents(&args.args(), &shape, self.rank)?;
            // PyTorch has this rule for the channels of volumes, not for those of images; one mean of a signal of no elements
            // is NaN.
            let is_defined = self.rank == 1 && extents.output == [1; 3];
            if (extents.input.contains(&0) && !is_defined) || (self.rank == 3 && shape[1] == 0) {
                return Err(Error::kernel("the mean of no elements is not defined").got(shape.to_string()));
            }
            return Ok(extents);
        };
        let extents = window.extents(&shape)?;
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
}

impl<T: Columns> UnitKernel for AvgPool<T> {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        let count = self.lengths[0].saturating_add(self.lengths[1]);
        Scratch { per_worker: count.saturating_mul(size_of::<T::Number>()), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        *extents = self.extents(args)?;
        let [line, row] = self.lengths;
        if !self.is_interleaved && (extents.input[2] > line || extents.output[2] > row) {
            return Err(Error::kernel("a line is longer than the upper bound of its extent allows")
                .got(format!("{:?}", extents.input))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        args.resize(self.out, &extents.output_shape(self.rank)?)?;
        Ok(split(extents, self.is_interleaved, self.windows.reads(extents), 0.25))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (input, out) = (chunk.input::<T>(0)?, chunk.output_shared::<T>(self.out)?);
        check_sizes(extents, input.len(), out.len())?;
        let [line, row] = self.lengths;
        self.level.dispatch(MeanWindows {
            windows: &self.windows,
            divisor: self.divisor,
            extents: *extents,
            units: chunk.units.clone(),
            is_interleaved: self.is_interleaved,
            columns: chunk.take_scratch(line)?,
            sums: chunk.take_scratch(row)?,
            input,
            out,
        });
        Ok(())
    }
}
