//! The means of windows on one instruction set: of planes, first the sums of each column over the lines that a row of
//! windows covers, then those of the columns. Unsafe island (vector loads).

use super::window::{Extents, Stretch, Windows, rows_of_unit};
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::columns::{Columns, Number};
use crate::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// What sums are divided by.
#[derive(Debug, Clone, Copy)]
pub struct Divisor {
    pub counts_padding: bool,
    /// This, whatever a window covers.
    pub fixed: Option<i64>,
}

impl Divisor {
    /// What the part of a window along dimension `d` counts as.
    #[inline(always)]
    fn counted(&self, windows: &Windows, extents: &Extents, d: usize, o: usize) -> usize {
        match windows {
            Windows::Fixed(window) if self.counts_padding => {
                let first = o * window.stride[d];
                (first + window.kernel[d]).min(extents.input[d] + 2 * window.padding[d]) - first
            }
            _ => {
                let Stretch { start, end, .. } = windows.stretch(extents, d, o);
                end.saturating_sub(start)
            }
        }
    }
}

/// The units of a chunk; the tensors have the elements that `extents` says.
pub struct MeanWindows<'a, T: Columns> {
    pub windows: &'a Windows,
    pub divisor: Divisor,
    pub extents: Extents,
    pub units: Range<usize>,
    pub is_interleaved: bool,
    /// The sum of every column: room for a line of a planar input.
    pub columns: &'a mut [T::Number],
    /// Room for a row of a planar output.
    pub sums: &'a mut [T::Number],
    pub input: ChunkOf<'a, T>,
    pub out: ChunkOfMut<'a, T>,
}

impl<T: Columns> SimdTask for MeanWindows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Extents { input: [_, _, n], output: [depth, height, m], .. } = self.extents;
        let has_room = self.columns.len() >= n && self.sums.len() >= m;
        assert!(self.is_interleaved || has_room, "too little room for a row");
        let extents = self.extents;
        for unit in self.units.clone() {
            for (i, row) in rows_of_unit(&extents, unit, self.is_interleaved).enumerate() {
                // SAFETY: the units are rows of both tensors, whose sizes the kernel has checked; no other chunk has them.
                unsafe {
                    match self.is_interleaved {
                        true => self.interleaved_row(s, unit, row),
                        false => self.planar_row(s, unit * depth * height + i, row),
                    }
                }
            }
        }
    }
}

/// Σ of neighbouring numbers, in an order fixed by their count.
#[inline(always)]
fn sum_of<N: Number>(x: &[N]) -> N {
    const LANES: usize = 8;
    let mut sums = [N::ZERO; LANES];
    let groups = x.chunks_exact(LANES);
    let rest = groups.remainder();
    for group in groups {
        for (sum, v) in sums.iter_mut().zip(group) {
            *sum = sum.plus(*v);
        }
    }
    let whole = match x.len() < LANES {
        true => N::ZERO,
        false => sums.iter().fold(N::ZERO, |all, v| all.plus(*v)),
    };
    rest.iter().fold(whole, |all, v| all.plus(*v))
}

impl<T: Columns> MeanWindows<'_, T> {
    /// What is counted of window `o`, whose part along the last dimension counts as `x`.
    #[inline(always)]
    fn divided_by(&self, [oz, oy]: [usize; 2], x: usize) -> T::Number {
        if let Some(divisor) = self.divisor.fixed {
            return T::Number::of(divisor as f64);
        }
        let counted = |d: usize, o: usize| self.divisor.counted(self.windows, &self.extents, d, o);
        T::Number::of((counted(0, oz) * counted(1, oy) * x) as f64)
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&mut self, s: S, row: usize, [plane, oz, oy]: [usize; 3]) {
        let Extents { input: [_, _, n], output: [_, _, m], .. } = self.extents;
        let width = T::Number::width::<S>();
        // SAFETY: lines lie inside the plane and have `n` elements, for which there is room; the row has `m`.
        unsafe {
            let plane = self.input.as_ptr().add(plane * self.extents.input_pixels());
            for c in (0..n).step_by(width) {
                match n - c >= width {
                    // A constant number: no partial loads.
                    true => self.block(s, plane, [oz, oy], c, width),
                    false => self.block(s, plane, [oz, oy], c, n - c),
                }
            }
            self.across([oz, oy]);
            for c in (0..m).step_by(width) {
                let left = width.min(m - c);
                let v = T::Number::load_block(s, self.sums.as_ptr().add(c), left);
                T::store_block(s, self.out.as_ptr().add(row * m + c), v, left);
            }
        }
    }

    /// The sums over the lines that output row (oz, oy) covers, of `n` columns from `c` on, at most those of a block.
    ///
    /// # Safety
    /// They are columns of the plane.
    #[inline(always)]
    unsafe fn block<S: Simd>(&mut self, s: S, plane: *const T, o: [usize; 2], c: usize, n: usize) {
        let mut sum = T::Number::splat(s, T::Number::ZERO);
        // SAFETY: lines lie inside the plane, and there is room for all columns.
        unsafe {
            for line in self.windows.lines(&self.extents, o) {
                sum = T::Number::add(s, sum, T::load_block(s, plane.add(line + c), n));
            }
            T::Number::store_block(s, self.columns.as_mut_ptr().add(c), sum, n);
        }
    }

    /// The means of every window of row (oz, oy), from the sums of its columns.
    #[inline(always)]
    fn across(&mut self, o: [usize; 2]) {
        let (n, m) = (self.extents.input[2], self.extents.output[2]);
        let counted = |all: &Self, ox: usize| all.divisor.counted(all.windows, &all.extents, 2, ox);
        let Windows::Fixed(window) = self.windows else {
            for ox in 0..m {
                let x = self.windows.stretch(&self.extents, 2, ox);
                let sum = sum_of(&self.columns[x.start..x.end]);
                self.sums[ox] = sum.over(self.divided_by(o, counted(self, ox)));
            }
            return;
        };
        self.sums[..m].fill(T::Number::ZERO);
        for kx in 0..window.kernel[2] {
            let (outputs, x) = window.covered(&self.extents, 2, kx);
            if outputs.is_empty() {
                continue;
            }
            let (to, from) = (self.sums[outputs].iter_mut(), self.columns[x..n].iter());
            match window.stride[2] {
                1 => to.zip(from).for_each(|(sum, v)| *sum = sum.plus(*v)),
                2 => to.zip(from.step_by(2)).for_each(|(sum, v)| *sum = sum.plus(*v)),
                step => to.zip(from.step_by(step)).for_each(|(sum, v)| *sum = sum.plus(*v)),
            }
        }
        // Windows that lie inside the input have one divisor.
        let (p, k, step) = (window.padding[2], window.kernel[2], window.stride[2]);
        let end = (n + p).checked_sub(k).map_or(0, |last| (last / step + 1).min(m));
        let start = p.div_ceil(step).min(end);
        for ox in (0..start).chain(end..m) {
            self.sums[ox] = self.sums[ox].over(self.divided_by(o, counted(self, ox)));
        }
        let divisor = self.divided_by(o, k);
        self.sums[start..end].iter_mut().for_each(|sum| *sum = sum.over(divisor));
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (image, oz, oy).
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, row: usize, [image, oz, oy]: [usize; 3]) {
        let channels = self.extents.channels;
        let width = T::Number::width::<S>();
        let first_pixel = image * self.extents.input_pixels();
        for ox in 0..self.extents.output[2] {
            let x = self.windows.stretch(&self.extents, 2, ox);
            let counted = self.divisor.counted(self.windows, &self.extents, 2, ox);
            let divisor = self.divided_by([oz, oy], counted);
            let pixel = row * self.extents.output[2] + ox;
            for c in (0..channels).step_by(width) {
                // SAFETY: the pixels exist, and channels of them from `c` on.
                unsafe {
                    let mean = match channels - c >= width {
                        true => self.mean(s, first_pixel, [oz, oy], x, c, width),
                        false => self.mean(s, first_pixel, [oz, oy], x, c, channels - c),
                    };
                    let mean = T::Number::div(s, mean, T::Number::splat(s, divisor));
                    let to = self.out.as_ptr().add(pixel * channels + c);
                    T::store_block(s, to, mean, width.min(channels - c));
                }
            }
        }
    }

    /// Σ of `n` channels from `c` on, at most those of a block, over the pixels of a window.
    ///
    /// # Safety
    /// They exist behind the first pixel of an image.
    #[inline(always)]
    unsafe fn mean<S: Simd>(
        &self,
        s: S,
        first_pixel: usize,
        o: [usize; 2],
        x: Stretch,
        c: usize,
        n: usize,
    ) -> <T::Number as Number>::Block<S> {
        let channels = self.extents.channels;
        let mut sum = T::Number::splat(s, T::Number::ZERO);
        for line in self.windows.lines(&self.extents, o) {
            let mut of_line = T::Number::splat(s, T::Number::ZERO);
            for x in x.positions() {
                // SAFETY: lines and positions lie inside the image; channels c..c + n exist.
                let v = unsafe {
                    T::load_block(s, self.input.as_ptr().add((first_pixel + line + x) * channels + c), n)
                };
                of_line = T::Number::add(s, of_line, v);
            }
            sum = T::Number::add(s, sum, of_line);
        }
        sum
    }
}
