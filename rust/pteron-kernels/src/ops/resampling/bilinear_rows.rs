//! Output rows of a bilinear resampling on one instruction set. Unsafe island (vector loads).

use super::bilinear::Problem;
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// The units of a chunk; the tensors have the elements that `problem` says.
pub struct BilinearRows<'a> {
    pub problem: &'a Problem,
    pub units: Range<usize>,
    pub is_interleaved: bool,
    pub input: ChunkOf<'a, f32>,
    pub out: ChunkOfMut<'a, f32>,
    /// Room for input rows spread over the output columns; not used when channels-last.
    pub buffers: [&'a mut [f32]; 2],
}

impl SimdTask for BilinearRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let needed = if self.is_interleaved { 0 } else { self.problem.columns.len() };
        assert!(self.buffers.iter().all(|b| b.len() >= needed), "too little room for a row");
        // SAFETY: the kernel has checked the sizes of both tensors against the problem, of whose rows the units are some; no
        // other chunk has them. Neighbours lie inside the input, and the buffers have room by the assertion.
        unsafe {
            if self.is_interleaved {
                self.interleaved(s);
            } else {
                self.planar(s);
            }
        }
    }
}

/// `a (1 - w) + b w`.
#[inline(always)]
fn between<S: Simd>(s: S, a: S::F, b: S::F, [wa, wb]: [S::F; 2]) -> S::F {
    s.fma(b, wb, s.mul(a, wa))
}

impl BilinearRows<'_> {
    /// # Safety
    /// The units are output rows, the buffers have room for one each, and the tensors have the elements of `problem`.
    #[inline(always)]
    unsafe fn planar<S: Simd>(&mut self, s: S) {
        let buffers = [self.buffers[0].as_mut_ptr(), self.buffers[1].as_mut_ptr()];
        let ([h, w], [height, width]) = (self.problem.input(), self.problem.output());
        // Input rows, counted over all planes, that the buffers hold.
        let mut held = [usize::MAX; 2];
        for unit in self.units.clone() {
            let (plane, at) = (unit / height, self.problem.rows(unit % height));
            let wanted = [plane * h + at.first, plane * h + at.second];
            let mut place = [0; 2];
            for (i, row) in wanted.into_iter().enumerate() {
                place[i] = match held.iter().position(|r| *r == row) {
                    Some(p) => p,
                    None => {
                        // The buffer that the other row is not in.
                        let p = if held[0] == wanted[1 - i] { 1 } else { 0 };
                        let p = if i == 1 && place[0] == p { 1 - p } else { p };
                        // SAFETY: the row exists; the buffer has room for it.
                        unsafe { self.spread(self.input.as_ptr().add(row * w), buffers[p]) };
                        held[p] = row;
                        p
                    }
                };
            }
            let weights = [s.splat(1.0 - at.weight), s.splat(at.weight)];
            for x in (0..width).step_by(S::LANES) {
                let n = S::LANES.min(width - x);
                // SAFETY: columns x..x + n exist.
                unsafe {
                    let top = s.load_up_to(buffers[place[0]].add(x), n);
                    let bottom = s.load_up_to(buffers[place[1]].add(x), n);
                    s.store_up_to(
                        self.out.as_ptr().add(unit * width + x),
                        between(s, top, bottom, weights),
                        n,
                    );
                }
            }
        }
    }

    /// Writes an input row at the output columns.
    ///
    /// # Safety
    /// The row has the input's width, `to` has room for the output's.
    #[inline(always)]
    unsafe fn spread(&self, row: *const f32, to: *mut f32) {
        for (x, c) in self.problem.columns.iter().enumerate() {
            // SAFETY: neighbours lie inside the row.
            unsafe {
                let (a, b) = (*row.add(c.first), *row.add(c.second));
                *to.add(x) = b.mul_add(c.weight, a * (1.0 - c.weight));
            }
        }
    }

    /// # Safety
    /// The units are output rows, the buffers have room for one each, and the tensors have the elements of `problem`.
    #[inline(always)]
    unsafe fn interleaved<S: Simd>(&self, s: S) {
        let ([h, w], [height, width]) = (self.problem.input(), self.problem.output());
        let channels = self.problem.channels;
        for unit in self.units.clone() {
            let (image, at) = (unit / height, self.problem.rows(unit % height));
            let rows = [image * h + at.first, image * h + at.second];
            let high = [s.splat(1.0 - at.weight), s.splat(at.weight)];
            for (x, c) in self.problem.columns.iter().enumerate() {
                let wide = [s.splat(1.0 - c.weight), s.splat(c.weight)];
                // SAFETY: the four pixels exist.
                let [a, b, d, e] = [(0, c.first), (0, c.second), (1, c.first), (1, c.second)]
                    .map(|(r, column)| unsafe { self.input.as_ptr().add((rows[r] * w + column) * channels) });
                // SAFETY: so does the output pixel.
                let to = unsafe { self.out.as_ptr().add((unit * width + x) * channels) };
                for k in (0..channels).step_by(S::LANES) {
                    let n = S::LANES.min(channels - k);
                    // SAFETY: channels k..k + n exist.
                    unsafe {
                        let [a, b, d, e] = [a, b, d, e].map(|p| s.load_up_to(p.add(k), n));
                        let (top, bottom) = (between(s, a, b, wide), between(s, d, e, wide));
                        s.store_up_to(to.add(k), between(s, top, bottom, high), n);
                    }
                }
            }
        }
    }
}
