//! upsample_bilinear2d on f32.
//!
//! Row-major images are resampled in two steps: an input row is spread over the output columns once and kept
//! while output rows need it, then an output row is a weighted sum of two such rows. Channels-last images
//! sum four pixels, vectors running over channels. Both compute rows before columns, so the bytes are equal
//! for every split into chunks.

use super::bilinear_rows::BilinearRows;
use super::{Axis, Form, axes, extents};
use crate::chunk::CHUNK;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::pooling::window::common_order;
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use crate::vector_math::simd::MAX_LANES;
use pteron_core::{ArgSpec, BindArgs, DType, Error, PrepareContext, Result, Scratch};

struct Bilinear {
    level: SimdLevel,
    form: Form,
    is_interleaved: bool,
    /// Output width at most, rounded up to whole vectors.
    row_length: usize,
}

/// Two neighbouring input positions and the weight of the second.
#[derive(Debug, Clone, Copy)]
pub struct Neighbours {
    pub first: usize,
    pub second: usize,
    /// From 0 to 1.
    pub weight: f32,
}

/// A bound call. Units are output rows of all planes, or of all images when channels-last.
#[derive(Default)]
pub struct Problem {
    /// Vertical and horizontal.
    axes: [Axis; 2],
    images: usize,
    pub channels: usize,
    /// For every output column.
    pub columns: Vec<Neighbours>,
}

impl Problem {
    /// Height and width of the input.
    pub fn input(&self) -> [usize; 2] {
        self.axes.map(|a| a.input as usize)
    }

    /// Height and width of the output.
    pub fn output(&self) -> [usize; 2] {
        self.axes.map(|a| a.output as usize)
    }

    /// The input rows around output row `y` of a plane.
    #[inline]
    pub fn rows(&self, y: usize) -> Neighbours {
        Neighbours::of(self.axes[0], y)
    }
}

impl Neighbours {
    fn of(axis: Axis, o: usize) -> Neighbours {
        let [(first, _), (second, weight), ..] = axis.linear(o as i64).taps;
        Neighbours { first: first as usize, second: second as usize, weight: weight as f32 }
    }
}

/// Most columns of an output; the plain kernel takes wider ones.
const LONGEST_ROW: usize = 1 << 16;

/// The kernel for f32, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(form.out)], DType::Float32, 2) else {
        return ctx.decline("takes float32, row-major or channels-last throughout");
    };
    let (Some(out), Some(ArgSpec::Bool(_))) =
        (ctx.tensor(form.out), form.align.and_then(|i| ctx.args.get(i)))
    else {
        return ctx.decline("an argument is no tensor or no bool");
    };
    // Extents of an empty tensor may be anything; the table of columns is made without asking.
    if out.shape[3] > LONGEST_ROW {
        return ctx.decline("rows of the output are longer than 65,536 columns");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("upsample_bilinear2d.f32.{}", level.isa().name());
    framed(
        name,
        Bilinear { level, form, is_interleaved, row_length: out.shape[3].next_multiple_of(MAX_LANES) },
    )
}

impl UnitKernel for Bilinear {
    type Problem = Problem;

    fn new_problem(&self) -> Problem {
        Problem { columns: Vec::with_capacity(self.row_length), ..Problem::default() }
    }

    fn scratch(&self) -> Scratch {
        let rows = if self.is_interleaved { 0 } else { 2 };
        Scratch { per_worker: rows * self.row_length * size_of::<f32>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        let shape = *args.args().tensor(0)?.shape();
        let ([height, width], _) = extents::<2>(&args.args(), self.form)?;
        args.resize(self.form.out, &[shape[0], shape[1], height, width])?;
        let [_, vertical, horizontal] = axes::<2>(&args.args(), self.form)?;
        problem.axes = [vertical, horizontal];
        (problem.images, problem.channels) = (shape[0], shape[1]);
        if width > self.row_length {
            return Err(Error::kernel("an output is larger than the upper bound of its extents allows")
                .expected(format!("at most {} columns", self.row_length))
                .got(width.to_string())
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        problem.columns.clear();
        problem.columns.extend((0..width).map(|x| Neighbours::of(horizontal, x)));
        let (planes, row) = match self.is_interleaved {
            true => (shape[0], width * shape[1]),
            false => (shape[0] * shape[1], width),
        };
        Ok(Split::sized(planes * height, row, CHUNK, 0.5))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (input, out) = (chunk.input(0)?, chunk.output_shared(self.form.out)?);
        let planes = problem.images * problem.channels;
        let needed = [problem.input(), problem.output()].map(|[height, width]| planes * height * width);
        if input.len() < needed[0] || out.len() < needed[1] {
            return Err(Error::internal("a resampling would leave its tensors"));
        }
        let length = if self.is_interleaved { 0 } else { self.row_length };
        self.level.dispatch(BilinearRows {
            problem,
            units: chunk.units.clone(),
            is_interleaved: self.is_interleaved,
            input,
            out,
            buffers: [chunk.take_scratch(length)?, chunk.take_scratch(length)?],
        });
        Ok(())
    }
}
