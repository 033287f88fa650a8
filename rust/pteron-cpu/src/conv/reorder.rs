//! Channel planes (NCHW) into channels-last, a stretch of pixels at a time. Unsafe island.

use crate::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Pixels of a chunk.
pub const CHUNK_PIXELS: usize = 512;

/// One image, or a part of it.
pub struct Interleave {
    /// The image: planes of `pixels`.
    pub from: *const f32,
    /// The image: pixels of `channels`.
    pub to: *mut f32,
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
                    let to = self.to.add(p * self.channels + c);
                    s.transpose_block(from, self.pixels, channels, n, to, self.channels);
                }
            }
        }
    }
}
