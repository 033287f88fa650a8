//! max_pool2d_with_indices and max_pool3d_with_indices on f32: the largest element of each window and its place in the plane. NaN
//! counts as largest; among equals the first wins.

use super::max_windows::MaxWindows;
use super::window::{Extents, Window, check_sizes, common_order, input_shape, split};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use crate::vector_math::simd::MAX_LANES;
use pteron_core::{BindArgs, DType, Error, PrepareContext, Result, Scratch};

const OUT: usize = 6;
const INDICES: usize = 7;

struct MaxPool {
    level: SimdLevel,
    window: Window,
    is_interleaved: bool,
    /// Output width at most, rounded up to whole vectors.
    row_length: usize,
}

/// The kernel for f32, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(OUT)], rank) else {
        return ctx.decline("takes float32, row-major or channels-last throughout");
    };
    let (Some(input), Some(indices)) = (ctx.tensor(0), ctx.tensor(INDICES)) else {
        return ctx.decline("an argument is no tensor");
    };
    let Some(window) = Window::of(ctx, rank, Some(4), 5) else {
        return ctx.decline("the window is not known at load");
    };
    let Ok(extents) = window.extents(&input.shape) else {
        return ctx.decline("the window does not fit the input");
    };
    // Places travel as i32.
    let is_small = i32::try_from(extents.input_pixels()).is_ok();
    if indices.dtype != DType::Int64 || indices.dim_order != input.dim_order || !is_small {
        return ctx.decline("takes int64 indices in the input's memory order, of at most 2^31 places");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("max_pool{rank}d.f32.{}", level.isa().name());
    framed(
        name,
        MaxPool { level, window, is_interleaved, row_length: extents.output[2].next_multiple_of(MAX_LANES) },
    )
}

impl UnitKernel for MaxPool {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 2 * self.row_length * size_of::<f32>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        *extents = self.window.extents(&input_shape(&args.args())?)?;
        let width = extents.output[2];
        if width > self.row_length || i32::try_from(extents.input_pixels()).is_err() {
            return Err(Error::kernel("a plane is larger than the upper bound of its extents allows")
                .got(format!("{:?}", extents.input))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        let shape = extents.output_shape(self.window.rank)?;
        for out in [OUT, INDICES] {
            args.resize(out, &shape)?;
        }
        Ok(split(extents, self.is_interleaved, self.window.kernel.iter().product::<usize>() * 2))
    }

    fn run(&self, extents: &Extents, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (input, out, indices) =
            (chunk.input(0)?, chunk.output_shared(OUT)?, chunk.output_shared(INDICES)?);
        check_sizes(extents, input.len(), out.len().min(indices.len()))?;
        self.level.dispatch(MaxWindows {
            window: &self.window,
            extents: *extents,
            units: chunk.units.clone(),
            is_interleaved: self.is_interleaved,
            input,
            out,
            indices,
            best: chunk.take_scratch(self.row_length)?,
            places: chunk.take_scratch(self.row_length)?,
        });
        Ok(())
    }
}
