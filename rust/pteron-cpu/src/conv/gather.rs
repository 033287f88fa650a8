//! Input pixels of a channels-last tensor as rows of a matrix: row m holds what the weight rows multiply for
//! output pixel m. Made block by block in worker scratch, out of contiguous stretches of the input; the
//! matrix of all pixels never exists. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::window::{Axis, Phase};
use pteron_kernels::vector_math::Simd;
use std::ops::Range;

/// Output pixels of a block at most: eight of the tallest AVX-512 tiles, and even rows of the usual
/// 56, 28 and 14 pixels.
pub const BLOCK_PIXELS: usize = 112;

/// One output pixel of a block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pixel {
    /// Image.
    pub image: usize,
    /// Position in the output plane, row-major.
    pub position: usize,
    /// Input position of tap 0; negative or too large outside.
    start: [isize; 3],
}

/// The pixels `range` of a phase, counted over all images.
pub fn pixels_of(
    phase: &Phase,
    output: [usize; 3],
    range: Range<usize>,
    out: &mut [Pixel; BLOCK_PIXELS],
) -> usize {
    let [z, y, x] = phase.axes;
    let mut at = [0; 4];
    let mut rest = range.start;
    for (slot, n) in at[1..].iter_mut().zip([z.count, y.count, x.count]).rev() {
        *slot = rest % n.max(1);
        rest /= n.max(1);
    }
    at[0] = rest;
    let n = range.len().min(BLOCK_PIXELS);
    for pixel in &mut out[..n] {
        let [image, qz, qy, qx] = at;
        let place = |a: &Axis, q: usize| a.out_start + q * a.out_step;
        pixel.image = image;
        pixel.position = (place(&z, qz) * output[1] + place(&y, qy)) * output[2] + place(&x, qx);
        let start = |a: &Axis, q: usize| q as isize * a.in_step + a.in_start;
        pixel.start = [start(&z, qz), start(&y, qy), start(&x, qx)];
        for d in (0..4).rev() {
            at[d] += 1;
            if d == 0 || at[d] < phase.axes[d - 1].count {
                break;
            }
            at[d] = 0;
        }
    }
    n
}

/// A channels-last input and the channels of it that one group reads.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// First element of the group's first channel.
    pub data: *const f32,
    /// All channels.
    pub channels: usize,
    /// Channels of the group.
    pub group_channels: usize,
    /// Pixels of an image.
    pub image_pixels: usize,
    /// What an output pixel reads.
    pub phase: &'a Phase,
}

impl Source<'_> {
    /// Writes elements `k` of the rows of `pixels`: tap by tap, channels innermost; zeros outside the input.
    /// Whole vectors are stored: what spills over is overwritten by the next stretch, or lies behind the row.
    ///
    /// # Safety
    /// `panel` is valid for writes of `k.len()` elements and a vector more at every multiple of `stride` up to
    /// the number of pixels; the source is as described.
    #[inline(always)]
    pub unsafe fn gather<S: Simd>(
        &self,
        s: S,
        pixels: &[Pixel],
        k: Range<usize>,
        panel: *mut f32,
        stride: usize,
    ) {
        let [az, ay, ax] = self.phase.axes;
        let line_length = ax.taps * self.group_channels;
        let mut at = k.start;
        while at < k.end {
            let (line, first) = (at / line_length, at % line_length);
            let n = (line_length - first).min(k.end - at);
            let (tz, ty) = (line / ay.taps, line % ay.taps);
            for (m, pixel) in pixels.iter().enumerate() {
                let z = pixel.start[0] + tz as isize * az.tap_step;
                let y = pixel.start[1] + ty as isize * ay.tap_step;
                let is_inside = (0..az.size as isize).contains(&z) && (0..ay.size as isize).contains(&y);
                // SAFETY: the row belongs to the panel; the line lies inside the input when it is read.
                unsafe {
                    let to = panel.add(m * stride + (at - k.start));
                    if !is_inside {
                        fill_zero(s, to, n);
                        continue;
                    }
                    let line =
                        pixel.image * self.image_pixels + (z as usize * ay.size + y as usize) * ax.size;
                    let line = self.data.add(line * self.channels);
                    if ax.tap_step == 1 && self.channels == self.group_channels {
                        self.neighbours(s, line, pixel.start[2], first..first + n, to);
                    } else {
                        self.taps(s, line, pixel.start[2], first..first + n, to);
                    }
                }
            }
            at += n;
        }
    }

    /// Taps that lie side by side in the input: one stretch with zeros before and after.
    ///
    /// # Safety
    /// `line` is a row of the input, `to` has room for the range.
    #[inline(always)]
    unsafe fn neighbours<S: Simd>(&self, s: S, line: *const f32, x: isize, k: Range<usize>, to: *mut f32) {
        let n = k.len();
        // Element j of the line of taps is element x · channels + j of the input's row.
        let shift = x * self.channels as isize + k.start as isize;
        let row = (self.phase.axes[2].size * self.channels) as isize;
        let low = (-shift).clamp(0, n as isize) as usize;
        let high = (row - shift).clamp(low as isize, n as isize) as usize;
        // SAFETY: elements low..high lie inside the row.
        unsafe {
            fill_zero(s, to, low);
            copy(s, line.wrapping_offset(shift + low as isize), to.add(low), high - low);
            fill_zero(s, to.add(high), n - high);
        }
    }

    /// Tap by tap.
    ///
    /// # Safety
    /// As [`Source::neighbours`].
    #[inline(always)]
    unsafe fn taps<S: Simd>(&self, s: S, line: *const f32, x: isize, k: Range<usize>, mut to: *mut f32) {
        let axis = &self.phase.axes[2];
        let (mut tap, mut channel) = (k.start / self.group_channels, k.start % self.group_channels);
        let mut left = k.len();
        while left > 0 {
            let n = (self.group_channels - channel).min(left);
            let at = x + tap as isize * axis.tap_step;
            // SAFETY: the pixel is read only when it exists.
            unsafe {
                if (0..axis.size as isize).contains(&at) {
                    copy(s, line.add(at as usize * self.channels + channel), to, n);
                } else {
                    fill_zero(s, to, n);
                }
                to = to.add(n);
            }
            (tap, channel, left) = (tap + 1, 0, left - n);
        }
    }
}

/// # Safety
/// `to` is valid for `n` writes, rounded up to whole vectors.
#[inline(always)]
unsafe fn fill_zero<S: Simd>(s: S, to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: the caller promises room for `n` elements rounded up to whole vectors.
        unsafe { s.store(to.add(i), s.zero()) };
    }
}

/// # Safety
/// `n` elements may be read, and written rounded up to whole vectors; they do not overlap.
#[inline(always)]
unsafe fn copy<S: Simd>(s: S, from: *const f32, to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: at most `n - i` elements are read; the caller promises room for `n` rounded up to whole
        // vectors.
        unsafe { s.store(to.add(i), s.load_up_to(from.add(i), n - i)) };
    }
}
