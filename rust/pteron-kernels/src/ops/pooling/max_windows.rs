//! The largest elements of windows on one instruction set. Unsafe island (vector loads).

use super::window::{Extents, Window, rows_of_unit};
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::operand::{Convert, Sink, Source, load_up_to, store_up_to};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::Element;
use std::ops::Range;

/// The units of a chunk; the tensors have the elements that `extents` says.
pub struct MaxWindows<'a, T> {
    pub window: &'a Window,
    pub extents: Extents,
    pub units: Range<usize>,
    pub is_interleaved: bool,
    pub input: ChunkOf<'a, T>,
    pub out: ChunkOfMut<'a, T>,
    pub indices: ChunkOfMut<'a, i64>,
    /// Row in progress: room for the widest one, in whole vectors.
    pub best: &'a mut [f32],
    /// Places of the row in progress: i32 bits.
    pub places: &'a mut [f32],
    /// Room for a line of a planar input, where its elements are not f32.
    pub line: &'a mut [f32],
}

impl<T: Source + Sink + Element> SimdTask for MaxWindows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let needed = self.extents.output[2].next_multiple_of(MAX_LANES);
        assert!(self.best.len().min(self.places.len()) >= needed, "too little room for a row");
        let is_widened = !T::IS_F32 && !self.is_interleaved;
        assert!(!is_widened || self.line.len() >= self.extents.input[2], "too little room for a line");
        let extents = self.extents;
        for unit in self.units.clone() {
            for (i, row) in rows_of_unit(&extents, unit, self.is_interleaved).enumerate() {
                // SAFETY: the units are rows of all three tensors, whose sizes the kernel has checked; no other chunk has them.
                unsafe {
                    if self.is_interleaved {
                        self.interleaved_row(s, unit, row);
                    } else {
                        self.planar_row(s, unit * self.extents.output[0] * self.extents.output[1] + i, row);
                    }
                }
            }
        }
    }
}

/// No place: larger than any.
const NOWHERE: u32 = u32::MAX;

/// Most places of a window that are kept in a list.
const MOST_LISTED: usize = 64;

/// Takes `v` at `place` where it beats `best`.
#[inline(always)]
fn challenge<S: Simd>(s: S, (best, places): (S::F, S::F), v: S::F, place: S::F) -> (S::F, S::F) {
    let wins = s.or(s.gt(v, best), s.not(s.eq(v, v)));
    (s.select(wins, v, best), s.select(wins, place, places))
}

/// The numbers of a line of `n` elements: where they lie, or widened behind `room`.
///
/// # Safety
/// `n` elements are readable at `from`, and writable at `room` unless they are f32.
#[inline(always)]
unsafe fn widened<S: Simd, T: Source>(s: S, from: *const T, room: *mut f32, n: usize) -> *const f32 {
    if T::IS_F32 {
        return from.cast();
    }
    // The last vector may overlap the one before it, so that no element is converted by itself.
    if n >= S::LANES {
        for i in (0..n).step_by(S::LANES) {
            let i = i.min(n - S::LANES);
            // SAFETY: i + LANES ≤ n, for which the caller promises elements on both sides.
            unsafe { s.store(room.add(i), T::load(s, from.add(i))) };
        }
    } else {
        Convert { from, to: room, n }.run(s);
    }
    room
}

impl<T: Source + Sink + Element> MaxWindows<'_, T> {
    /// The place of the first element of a window.
    #[inline(always)]
    fn first_place(&self, [oz, oy, ox]: [usize; 3]) -> i32 {
        let [z, y, x] = [(0, oz), (1, oy), (2, ox)].map(|(d, o)| self.window.first_position(d, o));
        self.place(z, y, x) as i32
    }

    #[inline(always)]
    fn place(&self, z: usize, y: usize, x: usize) -> usize {
        (z * self.extents.input[1] + y) * self.extents.input[2] + x
    }

    /// Lines (first places) of the input that windows of output row (oz, oy) read, in order.
    #[inline(always)]
    fn lines(&self, oz: usize, oy: usize) -> impl Iterator<Item = usize> + Clone {
        let taps = self.window.kernel[0] * self.window.kernel[1];
        (0..taps).filter_map(move |k| {
            let z = self.window.position(&self.extents, 0, oz, k / self.window.kernel[1])?;
            let y = self.window.position(&self.extents, 1, oy, k % self.window.kernel[1])?;
            Some(self.place(z, y, 0))
        })
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&mut self, s: S, row: usize, [plane, oz, oy]: [usize; 3]) {
        let out_width = self.extents.output[2];
        let step = self.window.stride[2];
        let (best, places) = (self.best.as_mut_ptr(), self.places.as_mut_ptr());
        let (room, in_width) = (self.line.as_mut_ptr(), self.extents.input[2]);
        // SAFETY: lines lie inside the plane, and covered ranges keep loads inside a line, for which there is room where it is
        // widened; the row in progress is out_width long, rounded up to whole vectors.
        unsafe {
            let input = self.input.as_ptr().add(plane * self.extents.input_pixels());
            for ox in 0..out_width {
                *best.add(ox) = f32::NEG_INFINITY;
                *places.add(ox) = f32::from_bits(NOWHERE);
            }
            let mut ramp = [0i32; MAX_LANES];
            for (j, slot) in ramp.iter_mut().enumerate() {
                *slot = (j * step) as i32;
            }
            let ramp = s.to_bits(s.load(ramp.as_ptr().cast()));
            for line in self.lines(oz, oy) {
                let from = widened(s, input.add(line), room, in_width);
                for kx in 0..self.window.kernel[2] {
                    let (outputs, x) = self.window.covered(&self.extents, 2, kx);
                    let mut i = 0;
                    while i < outputs.len() {
                        let n = S::LANES.min(outputs.len() - i);
                        let at = x + i * step;
                        let v = s.load_strided(from.add(at), step, n);
                        let candidates = s.of_bits(s.add_i(ramp, s.splat_i((line + at) as i32)));
                        let (value, place) = (best.add(outputs.start + i), places.add(outputs.start + i));
                        let so_far = (s.load_up_to(value, n), s.load_up_to(place, n));
                        let (b, p) = challenge(s, so_far, v, candidates);
                        s.store_up_to(value, b, n);
                        s.store_up_to(place, p, n);
                        i += n;
                    }
                }
            }
            let row = row * out_width;
            Convert { from: best.cast_const(), to: self.out.as_ptr().add(row), n: out_width }.run(s);
            let mut has_all = true;
            for ox in 0..out_width {
                let place = (*places.add(ox)).to_bits();
                has_all &= place != NOWHERE;
                *self.indices.as_ptr().add(row + ox) = i64::from(place);
            }
            // Nothing beats negative infinity where there is nothing else: the first element counts.
            for ox in (0..out_width).filter(|_| !has_all) {
                if (*places.add(ox)).to_bits() == NOWHERE {
                    *self.indices.as_ptr().add(row + ox) = i64::from(self.first_place([oz, oy, ox]));
                }
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (image, oz, oy).
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, row: usize, [image, oz, oy]: [usize; 3]) {
        let first_pixel = image * self.extents.input_pixels();
        for ox in 0..self.extents.output[2] {
            let first = self.first_place([oz, oy, ox]);
            let inside = self.lines(oz, oy).flat_map(|line| {
                let x = move |kx| self.window.position(&self.extents, 2, ox, kx);
                (0..self.window.kernel[2]).filter_map(move |kx| Some(line + x(kx)?))
            });
            // Found once for all channels where a list holds them.
            let (mut listed, mut count) = ([0; MOST_LISTED], 0);
            let is_listed = self.window.kernel.iter().product::<usize>() <= MOST_LISTED;
            for (slot, place) in listed.iter_mut().zip(inside.clone()).filter(|_| is_listed) {
                (*slot, count) = (place, count + 1);
            }
            let pixel = row * self.extents.output[2] + ox;
            // SAFETY: places lie inside the image, and the pixel exists.
            unsafe {
                match is_listed {
                    true => self.pixel(s, first_pixel, first, listed[..count].iter().copied(), pixel),
                    false => self.pixel(s, first_pixel, first, inside, pixel),
                }
            }
        }
    }

    /// All channels of one pixel of the output.
    ///
    /// # Safety
    /// It exists, and `inside` are places of the image whose first pixel is given.
    #[inline(always)]
    unsafe fn pixel<S: Simd>(
        &self,
        s: S,
        first_pixel: usize,
        first_place: i32,
        inside: impl Iterator<Item = usize> + Clone,
        pixel: usize,
    ) {
        let channels = self.extents.channels;
        let (input, out, indices) = (self.input.as_ptr(), self.out.as_ptr(), self.indices.as_ptr());
        for c in (0..channels).step_by(S::LANES) {
            let n = S::LANES.min(channels - c);
            let mut state = (s.splat(f32::NEG_INFINITY), s.of_bits(s.splat_i(first_place)));
            // SAFETY: the caller's places and pixel; channels c..c + n exist.
            unsafe {
                for place in inside.clone() {
                    let v = load_up_to(s, input.add((first_pixel + place) * channels + c), n);
                    state = challenge(s, state, v, s.of_bits(s.splat_i(place as i32)));
                }
                let at = pixel * channels + c;
                store_up_to(s, out.add(at), state.0, n);
                let mut places = [0f32; MAX_LANES];
                s.store(places.as_mut_ptr(), state.1);
                for (j, p) in places.iter().enumerate().take(n) {
                    *indices.add(at + j) = i64::from(p.to_bits());
                }
            }
        }
    }
}
