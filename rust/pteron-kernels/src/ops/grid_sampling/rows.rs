//! grid_sampler_2d on row-major floats, bilinear and nearest. A unit is a row of places. The pixels of some places are found
//! once; then, channel by channel, they are copied side by side and summed in a loop that the compiler vectorises.
//!
//! Halves are computed in f32 and rounded once. No product is fused with a sum: the bytes are equal for every
//! instruction set. Unsafe island (a unit's elements lie in every channel, so no slice of the output holds them).

use super::places::{Nearest, PLACES, Pairs, Real};
use super::rule::Rule;
use super::{OUT, bind};
use crate::chunk::ChunkOfMut;
use crate::compute::Compute;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::real::Float;
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{BindArgs, DType, Error, PrepareContext, Result, TensorSpec};
use std::marker::PhantomData;
use std::ops::Range;

/// Most pixels along a dimension, and most of an image: float32 has all whole numbers up to the first, and positions
/// have 31 bits.
const MOST_PIXELS: [usize; 2] = [1 << 24, 1 << 31];

/// An element that images and grids are of.
pub(super) trait Pixel: Float<Sum: Real> {}
impl<A: Float<Sum: Real>> Pixel for A {}

struct GridRows<A> {
    level: SimdLevel,
    element: PhantomData<A>,
}

/// A bound call. Units are rows of places of all images.
#[derive(Default)]
struct Problem {
    rule: Option<Rule>,
    channels: usize,
    /// Height and width.
    image: [usize; 2],
    places: [usize; 2],
}

/// The kernel for floats, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(x), Some(grid), Some(y)) = (ctx.tensor(0), ctx.tensor(1), ctx.tensor(OUT)) else {
        return ctx.decline("takes tensors");
    };
    let is_taken = |t: &TensorSpec| t.shape.len() == 4 && t.dtype == x.dtype && t.dim_order.is_contiguous();
    if !(is_taken(x) && is_taken(grid) && is_taken(y)) {
        return ctx.decline("takes row-major images of one dtype");
    }
    let mode = ctx.args.get(2).and_then(|mode| mode.number());
    if !matches!(mode, Some(0.0 | 1.0)) {
        return ctx.decline("takes bilinear and nearest samples");
    }
    let (high, wide) = (x.shape[2], x.shape[3]);
    let is_small = high.max(wide) <= MOST_PIXELS[0]
        && high.checked_mul(wide).is_some_and(|pixels| pixels < MOST_PIXELS[1]);
    if !is_small {
        return ctx.decline("takes images of fewer than 2^31 pixels");
    }
    match x.dtype {
        DType::Float32 => GridRows::<f32>::framed(ctx),
        DType::Float64 => GridRows::<f64>::framed(ctx),
        DType::Float16 => GridRows::<f16>::framed(ctx),
        DType::BFloat16 => GridRows::<bf16>::framed(ctx),
        _ => ctx.decline("takes floats"),
    }
}

impl<A: Pixel> GridRows<A> {
    fn framed(ctx: &PrepareContext<'_>) -> Preparation {
        let level = SimdLevel::at_most(ctx.cpu.isa);
        let name = format!("grid_sampler_2d.{}.{}", A::DTYPE.name(), level.isa().name());
        framed(name, GridRows::<A> { level, element: PhantomData })
    }
}

impl<A: Pixel> UnitKernel for GridRows<A> {
    type Problem = Problem;

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        let split = bind(args)?;
        let view = args.args();
        let (image, places) = (view.tensor(0)?.shape(), view.tensor(1)?.shape());
        *problem = Problem {
            rule: Some(Rule::of(&view)?),
            channels: image[1],
            image: [image[2], image[3]],
            places: [places[1], places[2]],
        };
        Ok(split)
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let Some(rule) = problem.rule else { return Err(Error::internal("a call is not bound")) };
        let ([h, w], [high, wide], channels) = (problem.image, problem.places, problem.channels);
        let units = chunk.units.clone();
        // Pairs of neighbours need two columns.
        if rule.mode == 0 && w < 2 {
            return super::run(chunk.args(), units);
        }
        let grid = chunk.input_units::<A>(1, 2 * wide)?;
        let (input, out) = (chunk.input::<A>(0)?, chunk.output_shared::<A>(OUT)?);
        let images = units.end.div_ceil(high);
        if input.len() < images * channels * h * w || out.len() < images * channels * high * wide {
            return Err(Error::internal("a sample would leave its tensors"));
        }
        self.level.dispatch_narrow(RowsTask {
            rule,
            problem,
            units,
            input: input.as_slice()?,
            grid: grid.as_slice()?,
            out,
        });
        Ok(())
    }
}

/// The units of a chunk; the image and the output have those of `problem`.
struct RowsTask<'a, A> {
    rule: Rule,
    problem: &'a Problem,
    units: Range<usize>,
    input: &'a [A],
    /// The rows of the units.
    grid: &'a [A],
    out: ChunkOfMut<'a, A>,
}

impl<A: Pixel> SimdTask for RowsTask<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        if self.rule.mode == 1 {
            self.each(Nearest::new(), [A::default(); PLACES]);
        } else {
            self.each(Pairs::new(), [[[A::default(); 2]; PLACES]; 2]);
        }
    }
}

/// Where a block of places reads.
trait Places<A: Pixel> {
    /// Room for the pixels that are read.
    type Read;
    /// Finds where `count` places read; see [`Nearest::find`].
    fn find(&mut self, rule: Rule, at: &mut [[A::Sum; PLACES]; 2], image: [usize; 2], count: usize);
    /// The samples of one channel at the places.
    fn sample(&self, pixels: &[A], read: &mut Self::Read, out: &mut [A]);
}

/// A pixel times its weight. What a weight of zero stands for may be infinite, and does not count.
#[inline(always)]
fn weighted<T: Real>(pixel: T, weight: T) -> T {
    if weight == T::ZERO { T::ZERO } else { pixel * weight }
}

impl<A: Pixel> Places<A> for Nearest<A::Sum> {
    type Read = [A; PLACES];

    #[inline(always)]
    fn find(&mut self, rule: Rule, at: &mut [[A::Sum; PLACES]; 2], image: [usize; 2], count: usize) {
        self.find(rule, at, image, count);
    }

    #[inline(always)]
    fn sample(&self, pixels: &[A], read: &mut [A; PLACES], out: &mut [A]) {
        for (read, at) in read.iter_mut().zip(&self.offsets).take(out.len()) {
            if let Some(pixel) = pixels.get(*at as usize) {
                *read = *pixel;
            }
        }
        for ((out, pixel), weight) in out.iter_mut().zip(read).zip(&self.weights) {
            *out = A::rounded(A::Sum::ZERO + weighted(pixel.wide(), *weight));
        }
    }
}

impl<A: Pixel> Places<A> for Pairs<A::Sum> {
    type Read = [[[A; 2]; PLACES]; 2];

    #[inline(always)]
    fn find(&mut self, rule: Rule, at: &mut [[A::Sum; PLACES]; 2], image: [usize; 2], count: usize) {
        self.find(rule, at, image, count);
    }

    #[inline(always)]
    fn sample(&self, pixels: &[A], read: &mut [[[A; 2]; PLACES]; 2], out: &mut [A]) {
        let count = out.len().min(PLACES);
        for (read, offsets) in read.iter_mut().zip(&self.offsets) {
            for (read, at) in read.iter_mut().zip(offsets).take(count) {
                let at = *at as usize;
                if let Some([a, b]) = pixels.get(at..at + 2) {
                    *read = [*a, *b];
                }
            }
        }
        let ([upper, lower], out) = (read, &mut out[..count]);
        for i in 0..count {
            let pixels = [upper[i][0], upper[i][1], lower[i][0], lower[i][1]];
            let mut sum = self.starts[i];
            for (pixel, weights) in pixels.iter().zip(&self.weights) {
                sum += weighted(pixel.wide(), weights[i]);
            }
            out[i] = A::rounded(sum);
        }
    }
}

impl<A: Pixel> RowsTask<'_, A> {
    /// Computes the units.
    #[inline(always)]
    fn each<P: Places<A>>(&mut self, mut places: P, mut read: P::Read) {
        let ([h, w], [high, wide]) = (self.problem.image, self.problem.places);
        let (channels, pixels) = (self.problem.channels, h * w);
        for (unit, row) in self.units.clone().zip(self.grid.chunks_exact(2 * wide)) {
            let (image, line) = (unit / high, unit % high);
            for (block, grid) in row.chunks(2 * PLACES).enumerate() {
                let count = grid.len() / 2;
                let mut at = [[A::Sum::ZERO; PLACES]; 2];
                let [across, down] = &mut at;
                for ((pair, x), y) in grid.chunks_exact(2).zip(across).zip(down) {
                    (*x, *y) = (pair[0].wide(), pair[1].wide());
                }
                places.find(self.rule, &mut at, [h, w], count);
                for plane in image * channels..(image + 1) * channels {
                    let first = (plane * high + line) * wide + block * PLACES;
                    // SAFETY: the kernel has checked that the output has the rows of every unit; these elements are of this unit's row,
                    // which no other chunk has, and no other slice of them is alive.
                    let out = unsafe { std::slice::from_raw_parts_mut(self.out.as_ptr().add(first), count) };
                    places.sample(&self.input[plane * pixels..(plane + 1) * pixels], &mut read, out);
                }
            }
        }
    }
}
