//! max_pool2d_with_indices, max_pool3d_with_indices and their adaptive forms on floats: the largest element of each window
//! and its place in the plane. NaN counts as largest, the last of them; among equals the first wins.

use super::max_windows::{MaxWindows, Row};
use super::window::{Extents, Window, Windows, check_sizes, common_order, input_shape, spatial, split};
use crate::elementwise::columns::Columns;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use crate::vector_math::simd::MOST_LANES;
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, DType, Error, PrepareContext, Result, Scratch};
use std::marker::PhantomData;

const FIXED_OUT: usize = 6;
const ADAPTIVE_OUT: usize = 2;

struct MaxPool<T> {
    level: SimdLevel,
    windows: Windows,
    rank: usize,
    is_interleaved: bool,
    /// The values; the indices follow.
    out: usize,
    /// Width at most of lines of the input; 0 where channels are last.
    line_length: usize,
    /// Results that are computed together: the output width at most, or channels.
    row_length: usize,
    element: PhantomData<T>,
}

/// The kernel of fixed windows, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    match Window::of(ctx, rank, Some(4), 5) {
        Some(window) => by_dtype(ctx, Windows::Fixed(window), rank, FIXED_OUT),
        None => ctx.decline("the window is not known at load"),
    }
}

/// The kernel of adaptive windows, if it takes the call.
pub fn prepare_adaptive(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    match ctx.args.get(1) {
        Some(ArgSpec::IntList(size)) if size.len() == rank => {
            by_dtype(ctx, Windows::Adaptive, rank, ADAPTIVE_OUT)
        }
        // One number for all dimensions.
        _ => ctx.decline("takes one output size for each dimension"),
    }
}

fn by_dtype(ctx: &PrepareContext<'_>, windows: Windows, rank: usize, out: usize) -> Preparation {
    match ctx.tensor(0).map(|input| input.dtype) {
        Some(DType::Float32) => prepare_of::<f32>(ctx, windows, rank, out, "f32"),
        Some(DType::Float16) => prepare_of::<f16>(ctx, windows, rank, out, "f16"),
        Some(DType::BFloat16) => prepare_of::<bf16>(ctx, windows, rank, out, "bf16"),
        Some(DType::Float64) => prepare_of::<f64>(ctx, windows, rank, out, "f64"),
        _ => ctx.decline("takes floats of at least 16 bits"),
    }
}

fn prepare_of<T: Columns>(
    ctx: &PrepareContext<'_>,
    windows: Windows,
    rank: usize,
    out: usize,
    dtype: &'static str,
) -> Preparation {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(out)], T::DTYPE, rank) else {
        return ctx.decline("takes one dtype, row-major or channels-last throughout");
    };
    let (Some(input), Some(values), Some(indices)) = (ctx.tensor(0), ctx.tensor(out), ctx.tensor(out + 1))
    else {
        return ctx.decline("an argument is no tensor");
    };
    if let Windows::Fixed(window) = &windows
        && window.extents(&input.shape).is_err()
    {
        return ctx.decline("the window does not fit the input");
    }
    let line_length = spatial(&input.shape, rank)[2];
    let pixels = spatial(&input.shape, rank).iter().try_fold(1usize, |all, n| all.checked_mul(*n));
    if indices.dtype != DType::Int64 || indices.dim_order != input.dim_order || !pixels.is_some_and(are_few) {
        return ctx.decline("takes int64 indices in the input's memory order, of at most 2^31 places");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let (line_length, row_length) = match is_interleaved {
        true => (0, MOST_LANES),
        false => (line_length, spatial(&values.shape, rank)[2]),
    };
    let name = match windows {
        Windows::Fixed(_) => format!("max_pool{rank}d.{dtype}.{}", level.isa().name()),
        Windows::Adaptive => format!("adaptive_max_pool{rank}d.{dtype}.{}", level.isa().name()),
    };
    let element = PhantomData::<T>;
    framed(name, MaxPool { level, windows, rank, is_interleaved, out, line_length, row_length, element })
}

/// Do places of so many pixels fit i32, in which those of f32 are kept?
fn are_few(pixels: usize) -> bool {
    i32::try_from(pixels).is_ok()
}

impl<T: Columns> MaxPool<T> {
    fn extents(&self, args: &BindArgs<'_>) -> Result<Extents> {
        let shape = input_shape(&args.args())?;
        if let Windows::Fixed(window) = &self.windows {
            return window.extents(&shape);
        }
        // PyTorch has this rule for all dimensions but the batch.
        if shape[1..].contains(&0) {
            return Err(Error::kernel("the largest of no elements is not defined").got(shape.to_string()));
        }
        Windows::adaptive_extents(&args.args(), &shape, self.rank)
    }
}

impl<T: Columns> UnitKernel for MaxPool<T> {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        let count = self.line_length.saturating_add(self.row_length);
        Scratch { per_worker: count.saturating_mul(2 * size_of::<T::Number>()), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        *extents = self.extents(args)?;
        let (line, row) = (extents.input[2], extents.output[2]);
        let is_wide = !self.is_interleaved && (line > self.line_length || row > self.row_length);
        if is_wide || !are_few(extents.input_pixels()) {
            return Err(Error::kernel("a plane is larger than the upper bound of its extents allows")
                .got(format!("{:?}", extents.input))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        let shape = extents.output_shape(self.rank)?;
        for out in [self.out, self.out + 1] {
            args.resize(out, &shape)?;
        }
        Ok(split(extents, self.is_interleaved, self.windows.reads(extents), 0.25))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (input, out, indices) =
            (chunk.input::<T>(0)?, chunk.output_shared::<T>(self.out)?, chunk.output_shared(self.out + 1)?);
        check_sizes(extents, input.len(), out.len().min(indices.len()))?;
        let (line, row) = (self.line_length, self.row_length);
        let columns = Row { best: chunk.take_scratch(line)?, places: chunk.take_scratch(line)? };
        let results = Row { best: chunk.take_scratch(row)?, places: chunk.take_scratch(row)? };
        self.level.dispatch(MaxWindows {
            windows: &self.windows,
            extents: *extents,
            units: chunk.units.clone(),
            is_interleaved: self.is_interleaved,
            input,
            out,
            indices,
            columns,
            results,
        });
        Ok(())
    }
}
