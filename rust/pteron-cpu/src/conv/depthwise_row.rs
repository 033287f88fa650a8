//! Output lines of a channels-last depthwise convolution. Four neighbouring outputs are computed together,
//! vector of channels by vector of channels; what they read is found through a table of addresses, in which
//! pixels outside the input are a stretch of zeros. Unsafe island.

// Constant ranges and indices are what the compiler unrolls.
#![allow(clippy::needless_range_loop)]

use super::depthwise::Depthwise;
use super::geometry::{Extents, Geometry};
use super::operands::{Operands, apply_post};
use crate::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Outputs of a tile.
const TILE: usize = 4;

/// Addresses that a tile needs at most.
pub fn table_entries(geometry: &Geometry) -> usize {
    // With overlapping windows fewer: (TILE - 1) · stride + width per kernel row.
    let span = (TILE * geometry.kernel[2]).max((TILE - 1) * 2 + geometry.kernel[2]);
    geometry.kernel[0] * geometry.kernel[1] * (span + 1)
}

/// Repeats every channel of some pixels `times` times.
pub struct Repeat {
    /// Pixels of `channels`.
    pub from: *const f32,
    /// Pixels of `channels · times`.
    pub to: *mut f32,
    /// Channels.
    pub channels: usize,
    /// See [`Repeat`].
    pub times: usize,
    /// Pixels.
    pub range: Range<usize>,
}

impl SimdTask for Repeat {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in self.range.start * self.channels..self.range.end * self.channels {
            for j in 0..self.times {
                // SAFETY: the element exists in both tensors.
                unsafe { *self.to.add(i * self.times + j) = *self.from.add(i) };
            }
        }
    }
}

/// Some output lines, counted over all images.
pub(super) struct LinesTask<'a> {
    pub convolution: &'a Depthwise,
    pub extents: Extents,
    pub range: Range<usize>,
    pub operands: Operands,
    /// [`table_entries`].
    pub table: &'a mut [usize],
    /// One per channel.
    pub zeros: &'a [f32],
    pub post: &'a mut [f32],
}

/// One kernel row that lies inside the input: input line and first weight row.
#[derive(Clone, Copy)]
struct Line {
    input: usize,
    weights: usize,
}

/// A tile to compute: addresses are in the table.
#[derive(Clone, Copy)]
struct Tile<'a> {
    table: &'a [usize],
    /// First weight rows of the kernel rows that take part, and addresses per kernel row.
    rows: usize,
    span: usize,
    /// First element in the output, and outputs that exist.
    out: usize,
    count: usize,
}

impl SimdTask for LinesTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let geometry = self.convolution.geometry;
        let [_, _, width] = geometry.kernel;
        let (step, has_gaps) = (geometry.stride[2], geometry.dilation[2] != 1);
        for line in self.range.clone() {
            // SAFETY: the line exists in the output, whose size `bind` checked.
            unsafe {
                match (width, step) {
                    (3, 1) if !has_gaps => self.line::<S, 3, 1>(s, line),
                    (3, 2) if !has_gaps => self.line::<S, 3, 2>(s, line),
                    (5, 1) if !has_gaps => self.line::<S, 5, 1>(s, line),
                    (5, 2) if !has_gaps => self.line::<S, 5, 2>(s, line),
                    (7, 1) if !has_gaps => self.line::<S, 7, 1>(s, line),
                    // Zeros stand for any.
                    _ => self.line::<S, 0, 0>(s, line),
                }
                self.finish(line);
            }
        }
    }
}

impl LinesTask<'_> {
    /// # Safety
    /// Output line `line` exists.
    #[inline(always)]
    unsafe fn line<S: Simd, const KW: usize, const SW: usize>(&mut self, s: S, line: usize) {
        let geometry = &self.convolution.geometry;
        let channels = geometry.total_out_channels();
        let width = self.extents.output[2];
        let kernel_width = if KW == 0 { geometry.kernel[2] } else { KW };
        let span = if KW == 0 { TILE * kernel_width } else { (TILE - 1) * SW + KW };
        for first in (0..width).step_by(TILE) {
            let count = TILE.min(width - first);
            let rows = self.fill_table::<KW, SW>(line, first, span);
            let table = &self.table[..rows * (span + 1)];
            let tile = Tile { table, rows, span, out: (line * width + first) * channels, count };
            let mut c = 0;
            // SAFETY: channels c.. of the addresses and of the output exist.
            unsafe {
                while c + 2 * S::LANES <= channels {
                    self.tile::<S, KW, SW, 2, false>(s, &tile, c, S::LANES);
                    c += 2 * S::LANES;
                }
                while c < channels {
                    let lanes = S::LANES.min(channels - c);
                    if lanes == S::LANES {
                        self.tile::<S, KW, SW, 1, false>(s, &tile, c, lanes);
                    } else {
                        self.tile::<S, KW, SW, 1, true>(s, &tile, c, lanes);
                    }
                    c += lanes;
                }
            }
        }
    }

    /// Fills the table for the outputs from `first` on of a line: for each kernel row inside the input, the
    /// first of its weight rows, then addresses. Returns the number of kernel rows.
    fn fill_table<const KW: usize, const SW: usize>(
        &mut self,
        line: usize,
        first: usize,
        span: usize,
    ) -> usize {
        let Geometry { kernel, stride, dilation, padding, .. } = self.convolution.geometry;
        let channels = self.convolution.geometry.total_out_channels();
        let (input, output) = (self.extents.input, self.extents.output);
        let (rest, oy) = (line / output[1], line % output[1]);
        let (image, oz) = (rest / output[0], rest % output[0]);
        let zeros = self.zeros.as_ptr() as usize;
        let mut rows = 0;
        for kz in 0..kernel[0] {
            let z = (oz * stride[0] + kz * dilation[0]).wrapping_sub(padding[0]);
            for ky in 0..kernel[1] {
                let y = (oy * stride[1] + ky * dilation[1]).wrapping_sub(padding[1]);
                if z >= input[0] || y >= input[1] {
                    continue;
                }
                let at = Line {
                    input: ((image * input[0] + z) * input[1] + y) * input[2],
                    weights: (kz * kernel[1] + ky) * kernel[2],
                };
                let entries = &mut self.table[rows * (span + 1)..][..span + 1];
                entries[0] = at.weights;
                for (j, slot) in entries[1..].iter_mut().enumerate() {
                    // Overlapping windows share addresses; others have TILE for each column of the kernel.
                    let column = match KW {
                        0 => (first + j % TILE) * stride[2] + j / TILE * dilation[2],
                        _ => first * SW + j,
                    };
                    let x = column.wrapping_sub(padding[2]);
                    *slot = match x < input[2] {
                        true => self.operands.input.wrapping_add((at.input + x) * channels) as usize,
                        false => zeros,
                    };
                }
                rows += 1;
            }
        }
        rows
    }

    /// `CV` vectors of channels from `c` on of a tile's outputs.
    ///
    /// # Safety
    /// Those channels exist at every address of the table; `lanes` of the vector when `MASKED`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const KW: usize, const SW: usize, const CV: usize, const MASKED: bool>(
        &self,
        s: S,
        tile: &Tile<'_>,
        c: usize,
        lanes: usize,
    ) {
        let geometry = &self.convolution.geometry;
        let channels = geometry.total_out_channels();
        let kernel_width = if KW == 0 { geometry.kernel[2] } else { KW };
        let weights = self.convolution.weights.as_ptr().cast::<f32>().wrapping_add(c);
        let mut sums = [[s.zero(); CV]; TILE];
        // SAFETY: the caller's promise; weight rows have every channel.
        unsafe {
            if !self.operands.bias.is_null() {
                for v in 0..CV {
                    let bias = load_lanes::<S, MASKED>(s, self.operands.bias.add(c + v * S::LANES), lanes);
                    for sum in &mut sums {
                        sum[v] = bias;
                    }
                }
            }
            for row in 0..tile.rows {
                let entries = tile.table.as_ptr().add(row * (tile.span + 1));
                let first = weights.add(*entries * channels);
                let addresses = entries.add(1);
                for kx in 0..kernel_width {
                    let row = first.add(kx * channels);
                    for v in 0..CV {
                        let w = load_lanes::<S, MASKED>(s, row.add(v * S::LANES), lanes);
                        for t in 0..TILE {
                            let j = if KW == 0 { kx * TILE + t } else { t * SW + kx };
                            let x = (*addresses.add(j) as *const f32).add(c + v * S::LANES);
                            sums[t][v] = s.fma(load_lanes::<S, MASKED>(s, x, lanes), w, sums[t][v]);
                        }
                    }
                }
            }
            for (t, sums) in sums.iter().enumerate() {
                if t < tile.count {
                    self.write::<S, CV, MASKED>(s, sums, tile.out + t * channels + c, lanes);
                }
            }
        }
    }

    /// # Safety
    /// The vectors exist in the output.
    #[inline(always)]
    unsafe fn write<S: Simd, const CV: usize, const MASKED: bool>(
        &self,
        s: S,
        sums: &[S::F; CV],
        at: usize,
        lanes: usize,
    ) {
        for v in 0..CV {
            let at = at + v * S::LANES;
            let mut y = sums[v];
            // SAFETY: the caller's promise.
            unsafe {
                if !self.operands.residual.is_null() {
                    y = s.add(y, load_lanes::<S, MASKED>(s, self.operands.residual.add(at), lanes));
                }
                if let Some((low, high)) = self.convolution.epilogue.clamp {
                    y = s.clamp(y, s.splat(low), s.splat(high));
                }
                let to = self.operands.out.add(at);
                if MASKED { s.store_partial(to, y, lanes) } else { s.store(to, y) }
            }
        }
    }

    /// Runs the program behind the convolution on a line.
    ///
    /// # Safety
    /// The line exists in the output.
    unsafe fn finish(&mut self, line: usize) {
        let channels = self.convolution.geometry.total_out_channels();
        let n = self.extents.output[2] * channels;
        let epilogue = &self.convolution.epilogue;
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.operands.out.add(line * n);
            apply_post(epilogue, self.convolution.level, out, n, [1, n], self.post);
        }
    }
}

/// # Safety
/// `lanes` elements are readable, a whole vector unless `MASKED`.
#[inline(always)]
unsafe fn load_lanes<S: Simd, const MASKED: bool>(s: S, p: *const f32, lanes: usize) -> S::F {
    // SAFETY: the caller's promise.
    unsafe { if MASKED { s.load_partial(p, lanes) } else { s.load(p) } }
}
