//! Gradients of averages of row-major floats: a line of the input adds up its part of every window that it lies in. Windows
//! come in their row-major order and are divided as the plain kernel divides them, so that the bytes are the same.

use super::{GRAD, X, bind_adaptive, bind_average};
use crate::chunk::CHUNK;
use crate::compute::Compute;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::adaptive_pooling;
use crate::ops::pooling::{Axis, Mean, axes, divisor_override};
use crate::ops::real::{Float, by_float};
use crate::ops::volume::extents;
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Element, Error, PrepareContext, Result, Scratch, sizes};
use std::marker::PhantomData;
use std::ops::Range;

struct Windows<T, const N: usize> {
    level: SimdLevel,
    is_adaptive: bool,
    out: usize,
    /// Bytes for the sums of a line, and for the parts and places of a line of windows.
    scratch: usize,
    element: PhantomData<T>,
}

/// How windows lie.
#[derive(Clone, Copy)]
enum Rule {
    Fixed { axes: [Axis; 3], includes_padding: bool, divisor: Option<i64> },
    Adaptive,
}

/// A bound call. Units are lines of the input.
#[derive(Clone, Copy, Default)]
struct Problem {
    rule: Option<Rule>,
    size: [i64; 3],
    windows: [i64; 3],
}

/// The kernel of windows of one size, if it takes the call.
pub(super) fn prepare_average<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    prepare::<N>(ctx, 8)
}

/// The kernel of windows that share the input out, if it takes the call.
pub(super) fn prepare_adaptive<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    prepare::<N>(ctx, 2)
}

fn prepare<const N: usize>(ctx: &PrepareContext<'_>, out: usize) -> Preparation {
    let (Some(grad), Some(x), Some(y)) = (ctx.tensor(GRAD), ctx.tensor(X), ctx.tensor(out)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = grad.dim_order.is_contiguous() && y.dim_order.is_contiguous();
    if !is_plain || grad.dtype != y.dtype || x.dtype != y.dtype {
        return ctx.decline("takes row-major tensors of one dtype");
    }
    by_float!(ctx, y.dtype, windows[N](ctx, [grad, y].map(|t| t.shape.last().copied()), out))
}

fn windows<T: Float<Sum: Mean>, const N: usize>(
    ctx: &PrepareContext<'_>,
    widths: [Option<usize>; 2],
    out: usize,
) -> Preparation {
    let [windows, width] = widths.map(|n| n.unwrap_or(1));
    let numbers =
        windows.checked_add(width).ok_or_else(|| Error::limit("the lines of a pooling are too long"))?;
    let places = sizes::checked_nbytes(&[windows, 4], DType::Int32)?;
    let scratch = sizes::checked_nbytes(&[numbers], T::Sum::DTYPE)?.saturating_add(places);
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let op = if out == 2 { "adaptive_avg_pool" } else { "avg_pool" };
    let name = format!("{op}{N}d_backward.{}.{}", T::DTYPE.name(), level.isa().name());
    let is_adaptive = out == 2;
    framed(name, Windows::<T, N> { level, is_adaptive, out, scratch, element: PhantomData })
}

impl<T: Float<Sum: Mean>, const N: usize> UnitKernel for Windows<T, N> {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        if self.is_adaptive { bind_adaptive::<N>(args) } else { bind_average::<N>(args) }?;
        let view = args.args();
        *problem = self.problem(&view)?;
        let (pixels, width) = (view.tensor(X)?.numel(), problem.size[2] as usize);
        // Additions for each pixel, about.
        let work = match problem.rule {
            Some(Rule::Fixed { axes, .. }) => {
                let per_axis = |axis: &Axis| axis.reach().0 as f64 / axis.reach().1 as f64;
                axes.iter().map(per_axis).product()
            }
            _ => 2.0,
        };
        Ok(Split::sized(pixels / width, width, CHUNK, 0.5 + 0.5 * work))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let [_, _, width] = problem.size;
        self.level.dispatch_narrow(Task::<T, N> {
            problem: *problem,
            lines: chunk.units.clone(),
            grad: chunk.input(GRAD)?.as_slice()?,
            out: chunk.output_units(self.out, width as usize)?.into_slice()?,
            parts: chunk.take_scratch(problem.windows[2] as usize)?,
            sums: chunk.take_scratch(width as usize)?,
            places: chunk.take_scratch(problem.windows[2] as usize)?,
        })
    }
}

impl<T: Float<Sum: Mean>, const N: usize> Windows<T, N> {
    fn problem(&self, args: &Args<'_>) -> Result<Problem> {
        if !self.is_adaptive {
            let axes = axes::<N>(args, X, false)?;
            let (includes_padding, divisor) = (args.bool(6)?, divisor_override(args, 7)?);
            let rule = Some(Rule::Fixed { axes, includes_padding, divisor });
            return Ok(Problem { rule, size: axes.map(|a| a.size), windows: axes.map(|a| a.out) });
        }
        let (size, windows) =
            (extents::<N>(args.tensor(X)?.shape())?, extents::<N>(args.tensor(GRAD)?.shape())?);
        Ok(Problem { rule: Some(Rule::Adaptive), size, windows })
    }
}

struct Task<'a, T: Float, const N: usize> {
    problem: Problem,
    lines: Range<usize>,
    grad: &'a [T],
    out: &'a mut [T],
    parts: &'a mut [T::Sum],
    sums: &'a mut [T::Sum],
    places: &'a mut [Place],
}

/// Where a window lies in a line, from and to; or the windows, from and to, whose element lies inside, and that element of
/// the first.
type Place = [u32; 4];

impl<T: Float<Sum: Mean>, const N: usize> SimdTask for Task<'_, T, N> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Result<()> {
        let Problem { rule, size, windows } = self.problem;
        let [depth, height, width] = size.map(|n| n as usize);
        let rule = rule.ok_or_else(|| Error::internal("the call is not bound"))?;
        let per_plane = windows.iter().product::<i64>() as usize;
        let line = Line::new(rule, size, windows, self.places);
        let mut last = None;
        for (n, i) in self.lines.enumerate() {
            let (before, out) = self.out.split_at_mut(n * width);
            let out = &mut out[..width];
            let plane = i / (depth * height);
            let z = line.covering(0, (i / height % depth) as i64);
            let y = line.covering(1, (i % height) as i64);
            let here = (plane, z.clone(), y.clone());
            // Lines in the same windows are alike.
            if last.as_ref() == Some(&here) {
                out.copy_from_slice(&before[before.len() - width..]);
                continue;
            }
            last = Some(here);
            let grad = self.grad.get(plane * per_plane..(plane + 1) * per_plane);
            let grad = grad.ok_or_else(|| Error::internal("a window would leave its gradient"))?;
            if let Some(sums) = T::as_sums(out) {
                line.add_windows::<T, N>([z, y], grad, self.parts, sums);
                continue;
            }
            line.add_windows::<T, N>([z, y], grad, self.parts, self.sums);
            out.iter_mut().zip(self.sums.iter()).for_each(|(out, sum)| *out = T::rounded(*sum));
        }
        Ok(())
    }
}

/// What all lines have in common.
struct Line<'a> {
    rule: Rule,
    size: [i64; 3],
    windows: [i64; 3],
    places: &'a [Place],
    /// Windows of a line that lie inside it, of one size.
    whole: Range<usize>,
    /// Are places those of elements? There are fewer of them than windows then.
    is_by_element: bool,
}

impl<'a> Line<'a> {
    fn new(rule: Rule, size: [i64; 3], windows: [i64; 3], places: &'a mut [Place]) -> Line<'a> {
        let place = |from: Range<i64>, first: i64| [from.start as u32, from.end as u32, first as u32, 0];
        let (mut whole, mut is_by_element) = (0..0, false);
        match rule {
            Rule::Fixed { axes: [.., axis], .. } => {
                whole = axis.whole().start as usize..axis.whole().end as usize;
                let elements = axis.reach().0;
                is_by_element = elements <= axis.out;
                for (x, slot) in places.iter_mut().enumerate() {
                    if !is_by_element {
                        *slot = place(axis.stretch(x as i64), 0);
                    } else if (x as i64) < elements {
                        let (windows, first) = axis.with_element(x as i64);
                        *slot = place(windows, first);
                    }
                }
            }
            Rule::Adaptive => {
                for (x, slot) in places.iter_mut().enumerate() {
                    let [.., stretch] = adaptive_pooling::window(size, windows, [0, 0, x as i64]);
                    *slot = place(stretch, 0);
                }
            }
        }
        Line { rule, size, windows, places, whole, is_by_element }
    }

    /// The windows along dimension `d` that the line at `place` lies in.
    #[inline(always)]
    fn covering(&self, d: usize, place: i64) -> Range<i64> {
        let (size, windows) = (self.size[d], self.windows[d]);
        match self.rule {
            _ if [size, windows] == [1; 2] => 0..1,
            Rule::Fixed { axes, .. } => axes[d].covering(place),
            Rule::Adaptive => place * windows / size..((place + 1) * windows - 1) / size + 1,
        }
    }

    /// The sums of the line in the windows `z` and `y`.
    #[inline(always)]
    fn add_windows<T: Float<Sum: Mean>, const N: usize>(
        &self,
        [z, y]: [Range<i64>; 2],
        grad: &[T],
        parts: &mut [T::Sum],
        sums: &mut [T::Sum],
    ) {
        sums.fill(T::Sum::ZERO);
        for z in z {
            for y in y.clone() {
                let row = ((z * self.windows[1] + y) * self.windows[2]) as usize;
                let Some(grad) = grad.get(row..row + parts.len()) else { return };
                match self.rule {
                    Rule::Fixed { axes, includes_padding, divisor } => {
                        Divide { axes, includes_padding, divisor, z, y }.all(grad, parts, &self.whole);
                    }
                    Rule::Adaptive => self.divide::<T, N>([z, y], grad, parts),
                }
                self.add_parts(parts, sums);
            }
        }
    }

    /// Divides gradients by the extents of their windows: one division per dimension, as the plain kernel does it.
    #[inline(always)]
    fn divide<T: Float<Sum: Mean>, const N: usize>(
        &self,
        [z, y]: [i64; 2],
        grad: &[T],
        parts: &mut [T::Sum],
    ) {
        let [depth, height, _] = adaptive_pooling::window(self.size, self.windows, [z, y, 0]);
        let [depth, height] = [depth, height].map(|range| range.end - range.start);
        for ((part, grad), [start, end, ..]) in parts.iter_mut().zip(grad).zip(self.places) {
            *part = grad.wide();
            if N > 2 {
                *part = part.over(depth);
            }
            *part = part.over(height).over(i64::from(*end) - i64::from(*start));
        }
    }

    /// Adds the parts of a line of windows, for each pixel in the order of the windows.
    #[inline(always)]
    fn add_parts<T: Compute>(&self, parts: &[T], sums: &mut [T]) {
        let (Rule::Fixed { axes: [.., axis], .. }, true) = (self.rule, self.is_by_element) else {
            for ([start, end, ..], part) in self.places.iter().zip(parts) {
                let sums = sums.get_mut(*start as usize..*end as usize).unwrap_or(&mut []);
                sums.iter_mut().for_each(|sum| *sum = sum.plus(*part));
            }
            return;
        };
        let (elements, step) = axis.reach();
        // The last element of a window is where the first of a later one is.
        for [start, end, first, _] in self.places.iter().take(elements as usize).rev() {
            let parts = parts.get(*start as usize..*end as usize).unwrap_or(&[]);
            let sums = sums.get_mut(*first as usize..).unwrap_or(&mut []);
            match step {
                1 => sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum = sum.plus(*part)),
                // A step that is known makes a better loop.
                2 => add_stepping(sums, parts, 2),
                _ => add_stepping(sums, parts, step as usize),
            }
        }
    }
}

#[inline(always)]
fn add_stepping<T: Compute>(sums: &mut [T], parts: &[T], step: usize) {
    for (sums, part) in sums.chunks_mut(step).zip(parts) {
        sums[0] = sums[0].plus(*part);
    }
}

/// Divides the gradients of the windows at (z, y).
struct Divide {
    axes: [Axis; 3],
    includes_padding: bool,
    divisor: Option<i64>,
    z: i64,
    y: i64,
}

impl Divide {
    /// What the gradient of window `x` is divided by.
    #[inline(always)]
    fn count(&self, x: i64) -> i64 {
        let place = [self.z, self.y, x];
        let along = |d: usize| match self.includes_padding {
            true => self.axes[d].padded(place[d]),
            false => {
                let stretch = self.axes[d].stretch(place[d]);
                stretch.end - stretch.start
            }
        };
        self.divisor.unwrap_or_else(|| along(0) * along(1) * along(2))
    }

    /// Those of a line; the windows `whole` lie inside it and have one divisor.
    #[inline(always)]
    fn all<T: Float<Sum: Mean>>(&self, grad: &[T], parts: &mut [T::Sum], whole: &Range<usize>) {
        for x in (0..whole.start).chain(whole.end..grad.len()) {
            let count = self.count(x as i64);
            // Such a window has no elements.
            parts[x] = if count == 0 { T::Sum::ZERO } else { grad[x].wide().over(count) };
        }
        if !whole.is_empty() {
            let count = self.count(whole.start as i64);
            for (part, grad) in parts[whole.clone()].iter_mut().zip(&grad[whole.clone()]) {
                *part = grad.wide().over(count);
            }
        }
    }
}
