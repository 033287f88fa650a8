//! The means of windows on one instruction set. Unsafe island (vector loads).

use super::window::{Extents, Window, rows_of_unit};
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::reduction::moments::sum_of;
use crate::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Which elements an output averages.
#[derive(Debug, Clone, Copy)]
pub enum Windows {
    Fixed {
        window: Window,
        counts_padding: bool,
        divisor: Option<f32>,
    },
    /// ⌊o·n/m⌋..⌈(o+1)·n/m⌉.
    Adaptive,
}

/// The part of a window along one dimension: input positions and the number it counts as.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start: usize,
    end: usize,
    counted: usize,
}

impl Windows {
    #[inline(always)]
    fn stretch(&self, extents: &Extents, d: usize, o: usize) -> Stretch {
        let n = extents.input[d];
        match self {
            Windows::Fixed { window, counts_padding, .. } => {
                let (p, k) = (window.padding[d], window.kernel[d]);
                // In coordinates that start at the leading padding.
                let first = o * window.stride[d];
                let last = (first + k).min(n + 2 * p);
                let (start, end) = (first.saturating_sub(p).min(n), last.saturating_sub(p).min(n));
                Stretch { start, end, counted: if *counts_padding { last - first } else { end - start } }
            }
            Windows::Adaptive => {
                let m = extents.output[d];
                let (start, end) = (o * n / m, ((o + 1) * n).div_ceil(m));
                Stretch { start, end, counted: end - start }
            }
        }
    }

    #[inline(always)]
    fn divisor(&self, window: [Stretch; 3]) -> f32 {
        match self {
            Windows::Fixed { divisor: Some(d), .. } => *d,
            _ => window.iter().map(|w| w.counted).product::<usize>() as f32,
        }
    }
}

/// The units of a chunk; the tensors have the elements that `extents` says.
pub struct MeanWindows<'a> {
    pub windows: Windows,
    pub extents: Extents,
    pub units: Range<usize>,
    pub is_interleaved: bool,
    /// A row of outputs in progress.
    pub sums: &'a mut [f32],
    pub input: ChunkOf<'a, f32>,
    pub out: ChunkOfMut<'a, f32>,
}

impl SimdTask for MeanWindows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let extents = self.extents;
        for unit in self.units.clone() {
            for (i, row) in rows_of_unit(&extents, unit, self.is_interleaved).enumerate() {
                // SAFETY: the units are rows of both tensors, whose sizes the kernel has checked; no other chunk has them.
                unsafe {
                    if self.is_interleaved {
                        self.interleaved_row(s, unit, row);
                        continue;
                    }
                    let at = unit * self.extents.output[0] * self.extents.output[1] + i;
                    match self.windows {
                        Windows::Fixed { window, .. } if self.is_by_elements() => {
                            self.planar_row_by_elements(s, &window, at, row);
                        }
                        _ => self.planar_row(s, at, row),
                    }
                }
            }
        }
    }
}

/// Σ of a window of a plane of width `w`.
///
/// # Safety
/// The stretches lie inside the plane.
#[inline(always)]
unsafe fn window_sum<S: Simd>(s: S, plane: *const f32, w: usize, y: Stretch, x: Stretch) -> f32 {
    let n = x.end - x.start;
    // SAFETY: the stretches lie inside the plane, so lines `y` have columns `x`.
    unsafe {
        if n == w {
            // Whole rows follow each other.
            return sum_of(s, plane.add(y.start * w), (y.end - y.start) * w, |v| v) as f32;
        }
        let mut sum = 0f32;
        for row in y.start..y.end {
            let from = plane.add(row * w + x.start);
            if n >= 2 * S::LANES {
                sum += sum_of(s, from, n, |v| v) as f32;
            } else {
                for i in 0..n {
                    sum += *from.add(i);
                }
            }
        }
        sum
    }
}

impl MeanWindows<'_> {
    /// Are there outputs enough in a row of planes, and room for them?
    fn is_by_elements(&self) -> bool {
        (4..=self.sums.len()).contains(&self.extents.output[2])
    }

    /// Output row `row` of all: an element of the window for all outputs at a time.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row_by_elements<S: Simd>(
        &mut self,
        s: S,
        window: &Window,
        row: usize,
        [plane, oz, oy]: [usize; 3],
    ) {
        let Extents { input: [_, h, w], output: [_, _, width], .. } = self.extents;
        let z = self.windows.stretch(&self.extents, 0, oz);
        let y = self.windows.stretch(&self.extents, 1, oy);
        let step = window.stride[2];
        self.sums[..width].fill(0.0);
        let sums = self.sums.as_mut_ptr();
        // SAFETY: the stretches and what is covered lie inside the plane; the sums are of a whole row.
        unsafe {
            let plane = self.input.as_ptr().add(plane * self.extents.input_pixels());
            for slice in z.start..z.end {
                for line in y.start..y.end {
                    let from = plane.add((slice * h + line) * w);
                    for kx in 0..window.kernel[2] {
                        let (outputs, x) = window.covered(&self.extents, 2, kx);
                        for i in (0..outputs.len()).step_by(S::LANES) {
                            let n = S::LANES.min(outputs.len() - i);
                            let to = sums.add(outputs.start + i);
                            let v = s.load_strided(from.add(x + i * step), step, n);
                            s.store_up_to(to, s.add(s.load_up_to(to, n), v), n);
                        }
                    }
                }
            }
            self.divide(s, window, [z, y], row * width);
        }
    }

    /// The row in progress by the divisors of its windows, into the output from `at` on.
    ///
    /// # Safety
    /// The row exists there.
    #[inline(always)]
    unsafe fn divide<S: Simd>(&self, s: S, window: &Window, [z, y]: [Stretch; 2], at: usize) {
        let (n, width) = (self.extents.input[2], self.extents.output[2]);
        let (p, k, step) = (window.padding[2], window.kernel[2], window.stride[2]);
        // Windows that lie inside the input have one divisor.
        let end = (n + p).checked_sub(k).map_or(0, |last| (last / step + 1).min(width));
        let start = p.div_ceil(step).min(end);
        let sums = self.sums.as_ptr();
        // SAFETY: outputs `0..width` lie behind `at`, as this function asks for, and the sums are as many.
        unsafe {
            let out = self.out.as_ptr().add(at);
            for ox in (0..start).chain(end..width) {
                let x = self.windows.stretch(&self.extents, 2, ox);
                *out.add(ox) = *sums.add(ox) / self.windows.divisor([z, y, x]);
            }
            if start < end {
                let x = self.windows.stretch(&self.extents, 2, start);
                let divisor = s.splat(self.windows.divisor([z, y, x]));
                for ox in (start..end).step_by(S::LANES) {
                    let lanes = S::LANES.min(end - ox);
                    s.store_up_to(out.add(ox), s.div(s.load_up_to(sums.add(ox), lanes), divisor), lanes);
                }
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&self, s: S, row: usize, [plane, oz, oy]: [usize; 3]) {
        let Extents { input: [_, h, w], output: [_, _, width], .. } = self.extents;
        let z = self.windows.stretch(&self.extents, 0, oz);
        let y = self.windows.stretch(&self.extents, 1, oy);
        // SAFETY: the stretches lie inside the plane; the output row has `width` elements.
        unsafe {
            let plane = self.input.as_ptr().add(plane * self.extents.input_pixels());
            let out = self.out.as_ptr().add(row * width);
            for ox in 0..width {
                let x = self.windows.stretch(&self.extents, 2, ox);
                let mut sum = 0f32;
                for slice in z.start..z.end {
                    sum += window_sum(s, plane.add(slice * h * w), w, y, x);
                }
                *out.add(ox) = sum / self.windows.divisor([z, y, x]);
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (image, oz, oy).
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, row: usize, [image, oz, oy]: [usize; 3]) {
        let Extents { channels, input: [_, h, w], output: [_, _, width], .. } = self.extents;
        let z = self.windows.stretch(&self.extents, 0, oz);
        let y = self.windows.stretch(&self.extents, 1, oy);
        let first_pixel = image * self.extents.input_pixels();
        for ox in 0..width {
            let x = self.windows.stretch(&self.extents, 2, ox);
            let divisor = s.splat(self.windows.divisor([z, y, x]));
            for c in (0..channels).step_by(S::LANES) {
                let n = S::LANES.min(channels - c);
                // SAFETY: the stretches lie inside the image, channels c..c + n exist.
                unsafe {
                    let mut sum = s.zero();
                    for line in
                        (z.start..z.end).flat_map(|slice| (y.start..y.end).map(move |l| slice * h + l))
                    {
                        let mut row_sum = s.zero();
                        for column in x.start..x.end {
                            let pixel = first_pixel + line * w + column;
                            row_sum = s
                                .add(row_sum, s.load_up_to(self.input.as_ptr().add(pixel * channels + c), n));
                        }
                        sum = s.add(sum, row_sum);
                    }
                    let at = (row * width + ox) * channels + c;
                    s.store_up_to(self.out.as_ptr().add(at), s.div(sum, divisor), n);
                }
            }
        }
    }
}
