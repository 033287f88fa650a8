//! Input pixels as panels for the tile: `panel[k · rows + m]` is what weight row k multiplies for output
//! pixel m. Built block by block in worker scratch (an implicit im2col that never exists as a whole).
//! Unsafe island.

use super::geometry::{Extents, Geometry};
use crate::vector_math::Simd;

/// Rows of a panel at most (and stretches of input that one panel row can consist of).
pub const MAX_ROWS: usize = 16;

/// A stretch of a panel row that comes from one input row: `n` pixels from `source` (in pixels of the
/// plane) at the horizontal stride, to places `target..target + n`.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    target: usize,
    n: usize,
    source: usize,
}

/// The input of one image and group, and how pixels and channels lie in it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// First element of the group's first channel of the image.
    pub data: *const f32,
    /// Elements between channels.
    pub channel_stride: usize,
    /// Elements between neighbouring pixels of a row.
    pub pixel_stride: usize,
    /// Window.
    pub geometry: &'a Geometry,
    /// Extents (rows flattened for pointwise convolutions).
    pub extents: Extents,
}

impl Source<'_> {
    /// The stretches of tap (ky, kx) for `valid` output pixels from `pixel` on.
    #[inline(always)]
    fn stretches(&self, pixel: usize, valid: usize, tap: [usize; 2], out: &mut [Stretch; MAX_ROWS]) -> usize {
        let Geometry { stride: [sh, sw], padding: [ph, pw], dilation: [dh, dw], .. } = *self.geometry;
        let ([height, width], [_, out_width]) = (self.extents.input, self.extents.output);
        let (mut count, mut m) = (0, 0);
        while m < valid {
            let (oy, ox) = ((pixel + m) / out_width, (pixel + m) % out_width);
            let length = (out_width - ox).min(valid - m);
            let y = (oy * sh + tap[0] * dh).wrapping_sub(ph);
            if y < height {
                // First and last window whose column x + j · sw - pw lies inside the row.
                let x = ox * sw + tap[1] * dw;
                let low = pw.saturating_sub(x).div_ceil(sw).min(length);
                let high = (width + pw).saturating_sub(x).div_ceil(sw).min(length);
                if low < high {
                    out[count] =
                        Stretch { target: m + low, n: high - low, source: y * width + x + low * sw - pw };
                    count += 1;
                }
            }
            m += length;
        }
        count
    }

    /// Packs weight rows `first..last` for `valid ≤ rows` output pixels from `pixel` on. Pixels beyond
    /// `valid` and outside the input are zero.
    ///
    /// # Safety
    /// `panel` is valid for (last - first) · rows + LANES writes; rows ≤ LANES; the source is as described.
    #[inline(always)]
    pub unsafe fn pack<S: Simd>(
        &self,
        s: S,
        pixel: usize,
        valid: usize,
        rows: usize,
        [first, last]: [usize; 2],
        panel: *mut f32,
    ) {
        let channels = self.geometry.in_channels;
        let mut stretches = [Stretch::default(); MAX_ROWS];
        let mut k = first;
        while k < last {
            let (tap, channel) = (k / channels, k % channels);
            let n = (channels - channel).min(last - k);
            let kx = self.geometry.kernel[1];
            let count = self.stretches(pixel, valid, [tap / kx, tap % kx], &mut stretches);
            // SAFETY: k - first rows precede; the caller's promise covers the rest.
            unsafe {
                let target = panel.add((k - first) * rows);
                if self.pixel_stride == 1 {
                    self.pack_planar(s, &stretches[..count], channel, n, rows, target);
                } else {
                    self.pack_interleaved(s, &stretches[..count], channel, n, rows, target);
                }
            }
            k += n;
        }
    }

    /// Channel planes: a panel row is a few stretches of pixels. Every store writes a whole vector; what
    /// spills over is overwritten by the next stretch or row, or is zero where zero is wanted.
    ///
    /// # Safety
    /// As [`Source::pack`], for `n` channels from `channel` on.
    #[inline(always)]
    unsafe fn pack_planar<S: Simd>(
        &self,
        s: S,
        stretches: &[Stretch],
        channel: usize,
        n: usize,
        rows: usize,
        panel: *mut f32,
    ) {
        let step = self.geometry.stride[1];
        let starts_at_zero = stretches.first().is_some_and(|t| t.target == 0);
        for i in 0..n {
            // SAFETY: stretches lie inside the plane; a row is shorter than a vector.
            unsafe {
                let plane = self.data.add((channel + i) * self.channel_stride);
                let row = panel.add(i * rows);
                if !starts_at_zero {
                    s.store(row, s.zero());
                }
                for t in stretches {
                    let from = plane.add(t.source);
                    let v = s.load_strided(from, step, t.n);
                    s.store(row.add(t.target), v);
                }
            }
        }
    }

    /// Channels-last: pixels are rows of channels, transposed in blocks.
    ///
    /// # Safety
    /// As [`Source::pack`], for `n` channels from `channel` on.
    #[inline(always)]
    unsafe fn pack_interleaved<S: Simd>(
        &self,
        s: S,
        stretches: &[Stretch],
        channel: usize,
        n: usize,
        rows: usize,
        panel: *mut f32,
    ) {
        let covered: usize = stretches.iter().map(|t| t.n).sum();
        // SAFETY: n · rows elements of the panel belong to these channels; stretches lie inside the image.
        unsafe {
            if covered < rows {
                std::slice::from_raw_parts_mut(panel, n * rows).fill(0.0);
            }
            for t in stretches {
                let from = self.data.add(t.source * self.pixel_stride + channel);
                let step = self.geometry.stride[1] * self.pixel_stride;
                for c in (0..n).step_by(S::LANES) {
                    let target = panel.add(c * rows + t.target);
                    s.transpose_block(from.add(c), step, t.n, S::LANES.min(n - c), target, rows);
                }
            }
        }
    }
}
