//! Channel planes (NCHW) into channels-last and back, a stretch of pixels at a time. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Pixels of a chunk.
pub const CHUNK_PIXELS: usize = 512;

/// One image, or a part of it.
pub struct Interleave {
    /// The image: planes of `pixels`.
    pub from: *const f32,
    /// The image: pixels, `step` apart.
    pub to: *mut f32,
    /// See [`Interleave::to`].
    pub step: usize,
    /// Channels.
    pub channels: usize,
    /// Pixels of a plane.
    pub pixels: usize,
    /// Which of them are written.
    pub range: Range<usize>,
}

impl SimdTask for Interleave {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for p in self.range.clone().step_by(S::LANES) {
            let n = S::LANES.min(self.range.end - p);
            for c in (0..self.channels).step_by(S::LANES) {
                let channels = S::LANES.min(self.channels - c);
                // SAFETY: pixels p..p + n and channels c..c + channels exist; source and target are two tensors.
                unsafe {
                    let from = self.from.add(c * self.pixels + p);
                    let to = self.to.add(p * self.step + c);
                    s.transpose_block(from, self.pixels, channels, n, to, self.step);
                }
            }
        }
    }
}

/// Pixels of a few channels back into planes.
pub struct Deinterleave {
    /// Pixels, `step` apart.
    pub from: *const f32,
    /// See [`Deinterleave::from`].
    pub step: usize,
    /// Planes, `plane` apart.
    pub to: *mut f32,
    /// See [`Deinterleave::to`].
    pub plane: usize,
    /// Channels, no more than a vector has lanes.
    pub channels: usize,
    /// Pixels.
    pub pixels: usize,
    /// Planes like the target that are added, or null.
    pub residual: *const f32,
    /// Limits after that; NaN passes.
    pub clamp: Option<(f32, f32)>,
}

impl SimdTask for Deinterleave {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for p in (0..self.pixels).step_by(S::LANES) {
            let n = S::LANES.min(self.pixels - p);
            // SAFETY: pixels p..p + n exist in every channel; the source is scratch, and the residual is read
            // before the same elements of the target are written.
            unsafe {
                let (from, to) = (self.from.add(p * self.step), self.to.add(p));
                if self.residual.is_null() {
                    s.transpose_block(from, self.step, n, self.channels, to, self.plane);
                    continue;
                }
                let mut rows = [0f32; MAX_LANES * MAX_LANES];
                s.transpose_block(from, self.step, n, self.channels, rows.as_mut_ptr(), MAX_LANES);
                for c in 0..self.channels {
                    let added = s.load_up_to(self.residual.add(p + c * self.plane), n);
                    let mut v = s.add(s.load(rows.as_ptr().add(c * MAX_LANES)), added);
                    if let Some((low, high)) = self.clamp {
                        v = s.clamp(v, s.splat(low), s.splat(high));
                    }
                    s.store_up_to(to.add(c * self.plane), v, n);
                }
            }
        }
    }
}
