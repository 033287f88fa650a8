//! The first phase of a call: the input in planes with margins, and the weights in tiles. Unsafe island.
#![allow(unsafe_code, reason = "elements are addressed by stride, and chunks share scratch")]

use super::super::geometry::Geometry;
use super::super::window::phase;
use super::plan::{Plan, taps_before, tile, tile_count};
use super::stored::{Number, Stored};
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Lays out lines of the planes.
pub(super) struct LayOut<'a, T: Stored> {
    pub plan: &'a Plan,
    /// The input, with strides of image, channel and three spatial dimensions.
    pub from: *const T,
    pub strides: [usize; 5],
    pub to: *mut Number<T>,
    pub lines: Range<usize>,
}

impl<T: Stored> SimdTask for LayOut<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Plan { extents, channels, remainders, size, .. } = *self.plan;
        // Image, channel, three remainders, depth, row: digits of a line's number.
        let radix = [extents.images, channels, remainders[0], remainders[1], remainders[2], size[0], size[1]];
        let mut digits = [0; 7];
        let mut rest = self.lines.start;
        for (digit, radix) in digits.iter_mut().zip(radix).rev() {
            (*digit, rest) = (rest % radix.max(1), rest / radix.max(1));
        }
        for line in self.lines.clone() {
            // SAFETY: the line is one of this chunk's, and the planes have room for all.
            unsafe { self.line(s, digits, self.to.add(line * size[2])) };
            for (digit, radix) in digits.iter_mut().zip(radix).rev() {
                *digit += 1;
                if *digit < radix {
                    break;
                }
                *digit = 0;
            }
        }
    }
}

impl<T: Stored> LayOut<'_, T> {
    /// # Safety
    /// `to` has room for a line.
    #[inline(always)]
    unsafe fn line<S: Simd>(
        &self,
        s: S,
        [image, channel, r0, r1, r2, depth, row]: [usize; 7],
        to: *mut Number<T>,
    ) {
        let Plan { extents, origin, step, size, .. } = *self.plan;
        let source = |d: usize, i: usize, r: usize| {
            let at = (i * step[d] + r) as isize + origin[d];
            usize::try_from(at).ok().filter(|at| *at < extents.input[d])
        };
        let width = size[2];
        let (low, high) = match (source(0, depth, r0), source(1, row, r1)) {
            (Some(_), Some(_)) => inside(r2 as isize + origin[2], step[2], width, extents.input[2]),
            _ => (width, width),
        };
        // SAFETY: 0 ≤ low ≤ high ≤ width, and numbers low..high of the line are inputs inside the tensor.
        unsafe {
            to.write_bytes(0, low);
            if let (Some(z), Some(y), true) = (source(0, depth, r0), source(1, row, r1), low < high) {
                let x = ((low * step[2] + r2) as isize + origin[2]) as usize;
                let at =
                    [image, channel, z, y, x].iter().zip(self.strides).map(|(i, n)| i * n).sum::<usize>();
                T::read(s, self.from.add(at), step[2] * self.strides[4], high - low, to.add(low));
            }
            to.add(high).write_bytes(0, width - high);
        }
    }
}

/// The numbers `low..high` of a line that are inputs: number `i` is input `i · step + first`.
#[inline(always)]
fn inside(first: isize, step: usize, width: usize, size: usize) -> (usize, usize) {
    let before = first.min(0).unsigned_abs();
    let until = (size as isize - first).max(0) as usize;
    let low = if step == 1 { before } else { before.div_ceil(step) }.min(width);
    let high = if step == 1 { until } else { until.div_ceil(step) }.min(width);
    (low, high.max(low))
}

/// Packs tiles of weights: the classes of taps that phases read one behind the other, in each of them input channels, taps,
/// and the tile's output channels side by side.
pub(super) struct Pack<'a, T: Stored> {
    pub geometry: &'a Geometry,
    pub plan: &'a Plan,
    /// The weight, with strides of its two leading and of three spatial dimensions.
    pub from: *const T,
    pub strides: [usize; 5],
    pub to: *mut Number<T>,
    pub tiles: Range<usize>,
}

impl<T: Stored> SimdTask for Pack<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        let per_group = tile_count(self.geometry.out_channels).max(1);
        for index in self.tiles.clone() {
            // SAFETY: the tile is one of this chunk's.
            unsafe { self.tile(index / per_group, tile(self.geometry.out_channels, index % per_group)) };
        }
    }
}

impl<T: Stored> Pack<'_, T> {
    /// # Safety
    /// The weight has the geometry's shape, and the packed weights have room for all.
    #[inline(always)]
    unsafe fn tile(&self, group: usize, [row, height]: [usize; 2]) {
        let g = self.geometry;
        let kernel = g.kernel;
        // Every phase has the same step.
        let step = phase(g, &self.plan.extents, 0).axes.map(|a| a.kernel_step);
        let [first, second, taps @ ..] = self.strides;
        let (row_step, channel_step, base) = match g.is_transposed {
            true => (second, first, group * g.in_channels * first + row * second),
            false => (first, second, (group * g.out_channels + row) * first),
        };
        let to = self.to.wrapping_add((group * g.out_channels + row) * g.depth());
        let classes = [0, 1, 2].map(|d| step[d].min(kernel[d]));
        for class in 0..classes.iter().product() {
            let start =
                [class / classes[2] / classes[1], class / classes[2] % classes[1], class % classes[2]];
            let mut to = to.wrapping_add(taps_before(kernel, start, step) * g.in_channels * height);
            for channel in 0..g.in_channels {
                for z in (start[0]..kernel[0]).step_by(step[0]) {
                    for y in (start[1]..kernel[1]).step_by(step[1]) {
                        for x in (start[2]..kernel[2]).step_by(step[2]) {
                            let at = base + channel * channel_step + z * taps[0] + y * taps[1] + x * taps[2];
                            for r in 0..height {
                                // SAFETY: output channel, input channel and tap exist; a tile has a number for each.
                                unsafe { *to.add(r) = (*self.from.add(at + r * row_step)).number() };
                            }
                            to = to.wrapping_add(height);
                        }
                    }
                }
            }
        }
    }
}
