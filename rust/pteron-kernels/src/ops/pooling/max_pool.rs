//! max_pool2d_with_indices and max_pool3d_with_indices on f32 and floats of sixteen bits: the largest element of each window and
//! its place in the plane. NaN counts as largest; among equals the first wins.

use super::max_windows::MaxWindows;
use super::window::{Extents, Window, check_sizes, common_order, input_shape, split};
use crate::elementwise::operand::{Sink, Source};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use crate::vector_math::simd::MAX_LANES;
use half::{bf16, f16};
use pteron_core::{BindArgs, DType, Element, Error, PrepareContext, Result, Scratch};
use std::marker::PhantomData;

const OUT: usize = 6;
const INDICES: usize = 7;

struct MaxPool<T> {
    level: SimdLevel,
    window: Window,
    is_interleaved: bool,
    /// Output width at most, rounded up to whole vectors.
    row_length: usize,
    /// Width at most of lines of the input that are widened to f32; 0 where none are.
    line_length: usize,
    element: PhantomData<T>,
}

/// The kernel for floats of at most 32 bits, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, rank: usize) -> Preparation {
    match ctx.tensor(0).map(|input| input.dtype) {
        Some(DType::Float32) => prepare_of::<f32>(ctx, rank, "f32"),
        Some(DType::Float16) => prepare_of::<f16>(ctx, rank, "f16"),
        Some(DType::BFloat16) => prepare_of::<bf16>(ctx, rank, "bf16"),
        _ => ctx.decline("takes float32, float16 and bfloat16"),
    }
}

fn prepare_of<T: Source + Sink + Element>(
    ctx: &PrepareContext<'_>,
    rank: usize,
    dtype: &'static str,
) -> Preparation {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(OUT)], T::DTYPE, rank) else {
        return ctx.decline("takes one dtype, row-major or channels-last throughout");
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
    let row_length = extents.output[2].next_multiple_of(MAX_LANES);
    let line_length = if T::IS_F32 || is_interleaved { 0 } else { extents.input[2] };
    let name = format!("max_pool{rank}d.{dtype}.{}", level.isa().name());
    framed(
        name,
        MaxPool::<T> { level, window, is_interleaved, row_length, line_length, element: PhantomData },
    )
}

impl<T: Source + Sink + Element> UnitKernel for MaxPool<T> {
    type Problem = Extents;

    fn scratch(&self) -> Scratch {
        let floats = 2 * self.row_length + self.line_length;
        Scratch { per_worker: floats * size_of::<f32>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, extents: &mut Extents) -> Result<Split> {
        *extents = self.window.extents(&input_shape(&args.args())?)?;
        let width = extents.output[2];
        let is_wide = self.line_length > 0 && extents.input[2] > self.line_length;
        if width > self.row_length || is_wide || i32::try_from(extents.input_pixels()).is_err() {
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
            (chunk.input::<T>(0)?, chunk.output_shared::<T>(OUT)?, chunk.output_shared(INDICES)?);
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
            line: chunk.take_scratch(self.line_length)?,
        });
        Ok(())
    }
}
