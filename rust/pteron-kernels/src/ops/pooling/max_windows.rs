//! The largest elements of windows on one instruction set: of planes, first the largest of each column among the lines that
//! a row of windows covers, then that of the columns. Unsafe island (vector loads).

use super::window::{Extents, Windows, rows_of_unit};
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::columns::{Columns, Number};
use crate::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// The numbers and places of a row in progress.
pub struct Row<'a, N: Number> {
    pub best: &'a mut [N],
    pub places: &'a mut [N::Place],
}

/// The units of a chunk; the tensors have the elements that `extents` says.
pub struct MaxWindows<'a, T: Columns> {
    pub windows: &'a Windows,
    pub extents: Extents,
    pub units: Range<usize>,
    pub is_interleaved: bool,
    pub input: ChunkOf<'a, T>,
    pub out: ChunkOfMut<'a, T>,
    pub indices: ChunkOfMut<'a, i64>,
    /// The largest of every column: room for a line of a planar input.
    pub columns: Row<'a, T::Number>,
    /// Room for a row of results: of a planar output, or a vector of channels.
    pub results: Row<'a, T::Number>,
}

impl<T: Columns> SimdTask for MaxWindows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Extents { input: [_, _, n], output: [depth, height, m], .. } = self.extents;
        let has_room = |row: &Row<'_, T::Number>, n: usize| row.best.len().min(row.places.len()) >= n;
        let (line, row) = if self.is_interleaved { (0, T::Number::width::<S>()) } else { (n, m) };
        assert!(has_room(&self.columns, line) && has_room(&self.results, row), "too little room for a row");
        let extents = self.extents;
        for unit in self.units.clone() {
            for (i, row) in rows_of_unit(&extents, unit, self.is_interleaved).enumerate() {
                // SAFETY: the units are rows of all three tensors, whose sizes the kernel has checked; no other chunk has them.
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

/// Takes `v` at `place` where it beats the best: the first of equals, and the last NaN.
#[inline(always)]
fn challenge<N: Number>(best: &mut N, best_place: &mut N::Place, v: N, place: N::Place) {
    let (is_nan, was_nan) = (v.is_nan(), best.is_nan());
    let is_first = place < *best_place;
    let wins = (v > *best) | ((v == *best) & is_first) | (is_nan & !(was_nan & is_first));
    *best = if wins { v } else { *best };
    *best_place = if wins { place } else { *best_place };
}

impl<T: Columns> MaxWindows<'_, T> {
    /// The place of the first element of a window, or of what would be the first of one that lies outside.
    #[inline(always)]
    fn first_place(&self, o: [usize; 3]) -> usize {
        let [z, y, x] = [0, 1, 2].map(|d| self.windows.stretch(&self.extents, d, o[d]).start);
        (z * self.extents.input[1] + y) * self.extents.input[2] + x
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&mut self, s: S, row: usize, [plane, oz, oy]: [usize; 3]) {
        let Extents { input: [_, _, n], output: [_, _, m], .. } = self.extents;
        let width = T::Number::width::<S>();
        let at = row * m;
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
            self.results.best[..m].fill(T::Number::LEAST);
            self.results.places[..m].fill(T::Number::NOWHERE);
            self.across(s);
            for c in (0..m).step_by(width) {
                let left = width.min(m - c);
                let v = T::Number::load_block(s, self.results.best.as_ptr().add(c), left);
                T::store_block(s, self.out.as_ptr().add(at + c), v, left);
            }
            let mut has_all = true;
            for (ox, place) in self.results.places[..m].iter().enumerate() {
                has_all &= *place != T::Number::NOWHERE;
                *self.indices.as_ptr().add(at + ox) = (*place).into();
            }
            // A window that lies outside has a place in eager too.
            for ox in (0..m).filter(|_| !has_all) {
                if self.results.places[ox] == T::Number::NOWHERE {
                    *self.indices.as_ptr().add(at + ox) = self.first_place([oz, oy, ox]) as i64;
                }
            }
        }
    }

    /// The largest among the lines that output row (oz, oy) covers, of `n` columns from `c` on, at most those of a block.
    ///
    /// # Safety
    /// They are columns of the plane.
    #[inline(always)]
    unsafe fn block<S: Simd>(&mut self, s: S, plane: *const T, o: [usize; 2], c: usize, n: usize) {
        let mut lines = self.windows.lines(&self.extents, o);
        let columns = &mut self.columns;
        // SAFETY: lines lie inside the plane, and there is room for all columns.
        unsafe {
            let (best, places) = (columns.best.as_mut_ptr().add(c), columns.places.as_mut_ptr().add(c));
            let Some(first) = lines.next() else {
                columns.best[c..c + n].fill(T::Number::LEAST);
                columns.places[c..c + n].fill(T::Number::NOWHERE);
                return;
            };
            let mut state = (T::load_block(s, plane.add(first + c), n), T::Number::places(s, first));
            for line in lines {
                let v = T::load_block(s, plane.add(line + c), n);
                state = T::Number::challenge(s, state, v, T::Number::places(s, line));
            }
            T::Number::store_block(s, best, state.0, n);
            T::Number::store_places(s, places, state.1, n);
        }
        for (i, place) in columns.places[c..c + n].iter_mut().enumerate() {
            *place = T::Number::later(*place, c + i);
        }
    }

    /// The largest of the columns of every window of a row.
    #[inline(always)]
    fn across<S: Simd>(&mut self, s: S) {
        let (from, to) = (&self.columns, &mut self.results);
        let line = from.best.len().min(from.places.len());
        let row = to.best.len().min(to.places.len());
        match self.windows {
            Windows::Fixed(window) => {
                for kx in 0..window.kernel[2] {
                    let (outputs, x) = window.covered(&self.extents, 2, kx);
                    if outputs.is_empty() {
                        continue;
                    }
                    let (step, width) = (window.stride[2], T::Number::width::<S>());
                    for i in (0..outputs.len()).step_by(width) {
                        let n = width.min(outputs.len() - i);
                        let (x, o) = (x + i * step, outputs.start + i);
                        assert!(x + (n - 1) * step < line && o + n <= row, "a window outside its row");
                        // SAFETY: the assertion: there is room for a line and for a row.
                        unsafe {
                            let v = T::Number::load_strided(s, from.best.as_ptr().add(x), step, n);
                            let p = T::Number::load_places(s, from.places.as_ptr().add(x), step, n);
                            let (best, places) = (to.best.as_mut_ptr().add(o), to.places.as_mut_ptr().add(o));
                            let so_far =
                                (T::Number::load_block(s, best, n), T::Number::load_places(s, places, 1, n));
                            let (v, p) = T::Number::contest(s, so_far, v, p);
                            T::Number::store_block(s, best, v, n);
                            T::Number::store_places(s, places, p, n);
                        }
                    }
                }
            }
            Windows::Adaptive => {
                for ox in 0..self.extents.output[2] {
                    let x = self.windows.stretch(&self.extents, 2, ox);
                    let (mut best, mut place) = (T::Number::LEAST, T::Number::NOWHERE);
                    for (v, q) in from.best[x.start..x.end].iter().zip(&from.places[x.start..x.end]) {
                        challenge(&mut best, &mut place, *v, *q);
                    }
                    (to.best[ox], to.places[ox]) = (best, place);
                }
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (image, oz, oy).
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&mut self, s: S, row: usize, [image, oz, oy]: [usize; 3]) {
        let channels = self.extents.channels;
        let width = T::Number::width::<S>();
        let first_pixel = image * self.extents.input_pixels();
        for ox in 0..self.extents.output[2] {
            let o = [oz, oy, ox];
            let pixel = row * self.extents.output[2] + ox;
            for c in (0..channels).step_by(width) {
                // SAFETY: the pixels exist, and channels of them from `c` on.
                unsafe {
                    match channels - c >= width {
                        true => self.pixel(s, first_pixel, o, pixel, c, width),
                        false => self.pixel(s, first_pixel, o, pixel, c, channels - c),
                    }
                }
            }
        }
    }

    /// `n` channels from `c` on, at most those of a block, of one pixel of the output.
    ///
    /// # Safety
    /// They and the pixel exist, and `o` is its place behind the first pixel of an image.
    #[inline(always)]
    unsafe fn pixel<S: Simd>(
        &mut self,
        s: S,
        first_pixel: usize,
        o: [usize; 3],
        pixel: usize,
        c: usize,
        n: usize,
    ) {
        let channels = self.extents.channels;
        let x = self.windows.stretch(&self.extents, 2, o[2]);
        let mut state = (T::Number::splat(s, T::Number::LEAST), T::Number::places(s, self.first_place(o)));
        // SAFETY: lines and positions lie inside the image; channels c..c + n exist; there is room for a block.
        unsafe {
            for line in self.windows.lines(&self.extents, [o[0], o[1]]) {
                for x in x.positions() {
                    let from = self.input.as_ptr().add((first_pixel + line + x) * channels + c);
                    let v = T::load_block(s, from, n);
                    state = T::Number::challenge(s, state, v, T::Number::places(s, line + x));
                }
            }
            let at = pixel * channels + c;
            T::store_block(s, self.out.as_ptr().add(at), state.0, n);
            T::Number::store_places(s, self.results.places.as_mut_ptr(), state.1, n);
            for (i, place) in self.results.places.iter().enumerate().take(n) {
                *self.indices.as_ptr().add(at + i) = (*place).into();
            }
        }
    }
}
