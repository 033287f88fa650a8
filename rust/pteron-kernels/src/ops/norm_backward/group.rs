//! Gradients of group norms of row-major floats. Some units of work are groups of channels of the gradient of the input;
//! others are channels of the gradients of weight and bias, which add up all images in their order.

use super::totals::{Factor, Members};
use super::{GRAD, X, bind_group, mask};
use crate::compute::Compute;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::normalization::group_counts;
use crate::ops::real::{Float, by_float};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, BindArgs, PrepareContext, Result};
use std::marker::PhantomData;

const MEAN: usize = 2;
const RSTD: usize = 3;
const WEIGHT: usize = 4;
const MASK: usize = 9;
const OUT: usize = 10;

struct GroupNorm<T> {
    level: SimdLevel,
    element: PhantomData<T>,
}

/// A bound call: units of groups come first.
#[derive(Clone, Copy, Default)]
struct Problem {
    mask: [bool; 3],
    channels: usize,
    per_group: usize,
    pixels: usize,
    group_units: usize,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let Some(dtype) = ctx.tensor(X).map(|t| t.dtype) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous());
    let is_plain_or_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None)) || is_plain(i);
    let fits = [GRAD, X, MEAN, RSTD].into_iter().all(is_plain)
        && [WEIGHT, OUT, OUT + 1, OUT + 2].into_iter().all(is_plain_or_absent);
    if !fits {
        return ctx.decline("takes row-major tensors of one dtype");
    }
    by_float!(ctx, dtype, group_norm(ctx))
}

fn group_norm<T: Float>(ctx: &PrepareContext<'_>) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("group_norm_backward.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, GroupNorm::<T> { level, element: PhantomData })
}

impl<T: Float> UnitKernel for GroupNorm<T> {
    type Problem = Problem;

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        bind_group(args)?;
        let view = args.args();
        let (images, channels, groups) = group_counts(&view, X, 5)?;
        let numel = view.tensor(X)?.numel();
        let pixels = numel.checked_div(images.saturating_mul(channels)).unwrap_or(0);
        let (mask, per_group) = (mask(&view, MASK)?, channels / groups);
        // A group without pixels has no gradient.
        let group_units = if mask[0] && numel > 0 { images * groups } else { 0 };
        let channel_units = if mask[1] || mask[2] { channels } else { 0 };
        *problem = Problem { mask, channels, per_group, pixels, group_units };
        Ok(Split::new(group_units + channel_units, 1, (numel / channels.max(1)).saturating_mul(per_group)))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let unit = chunk.units.start;
        let mut task = Task::<T> {
            grad: chunk.input(GRAD)?.as_slice()?,
            x: chunk.input(X)?.as_slice()?,
            mean: chunk.input(MEAN)?.as_slice()?,
            rstd: chunk.input(RSTD)?.as_slice()?,
            weight: chunk.optional_input(WEIGHT)?.map(|w| w.as_slice()).transpose()?,
            problem: *problem,
            out: Out::Group { unit, out: &mut [] },
        };
        if unit < problem.group_units {
            let size = problem.per_group * problem.pixels;
            let out = chunk.output_part(OUT, unit * size..(unit + 1) * size)?.into_slice()?;
            task.out = Out::Group { unit, out };
        } else {
            let channel = unit - problem.group_units;
            let mut part = |i: usize| -> Result<Option<&mut [T]>> {
                if !problem.mask[i] {
                    return Ok(None);
                }
                chunk.output_part(OUT + i, channel..channel + 1)?.into_slice().map(Some)
            };
            task.out = Out::Channel { channel, bias: part(2)?, weight: part(1)? };
        }
        self.level.dispatch_narrow(task);
        Ok(())
    }
}

/// What a unit computes.
enum Out<'a, T> {
    Group { unit: usize, out: &'a mut [T] },
    Channel { channel: usize, weight: Option<&'a mut [T]>, bias: Option<&'a mut [T]> },
}

struct Task<'a, T> {
    grad: &'a [T],
    x: &'a [T],
    mean: &'a [T],
    rstd: &'a [T],
    weight: Option<&'a [T]>,
    problem: Problem,
    out: Out<'a, T>,
}

impl<T: Float> Task<'_, T> {
    /// A channel, counted through all images, with the statistics of its group.
    #[inline(always)]
    fn members(&self, plane: usize, factor: T::Sum) -> Members<'_, T> {
        let Problem { per_group, pixels, .. } = self.problem;
        let (at, group) = (plane * pixels..(plane + 1) * pixels, plane / per_group);
        let moments = [self.mean[group].wide(), self.rstd[group].wide()];
        Members { grad: &self.grad[at.clone()], x: &self.x[at], moments, factor: Factor::All(factor) }
    }
}

impl<T: Float> SimdTask for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let Problem { channels, per_group, pixels, .. } = self.problem;
        match std::mem::replace(&mut self.out, Out::Group { unit: 0, out: &mut [] }) {
            Out::Group { unit, out } => {
                let planes = unit * per_group..(unit + 1) * per_group;
                let factor = |plane: usize| self.weight.map_or(T::Sum::ONE, |w| w[plane % channels].wide());
                let mut sums = [0.0; 2];
                for plane in planes.clone() {
                    let totals = self.members(plane, factor(plane)).totals();
                    sums = [sums[0] + totals[0], sums[1] + totals[1]];
                }
                let means = sums.map(|sum| sum / (per_group * pixels) as f64);
                for (plane, out) in planes.zip(out.chunks_exact_mut(pixels)) {
                    self.members(plane, factor(plane)).slopes(means, out);
                }
            }
            Out::Channel { channel, weight, bias } => {
                let images = self.mean.len() / (channels / per_group);
                let mut sums = [0.0; 2];
                for image in 0..images {
                    let totals = self.members(image * channels + channel, T::Sum::ONE).totals();
                    sums = [sums[0] + totals[0], sums[1] + totals[1]];
                }
                for (out, sum) in [bias, weight].into_iter().zip(sums) {
                    out.into_iter().flatten().for_each(|out| *out = T::rounded(T::Sum::from_f64(sum)));
                }
            }
        }
    }
}
