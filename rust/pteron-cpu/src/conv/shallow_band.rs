//! One band of [`super::shallow`]: the padded copy of its input rows, and tiles of 14 (6) neighbouring outputs ×
//! two vectors of channels, which stay in registers while the window runs. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::f32_conv_nr32_v1::PANEL;
use super::geometry::{Extents, Geometry};
use super::operands::Operands;
use super::shallow::Shallow;
use super::written_out::written_out;
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Output rows of a band at most.
pub const MOST_ROWS: usize = 64;
/// Outputs of the widest tile.
const WIDEST: usize = 14;

/// How the copy of a band's input rows lies: as planes [channel, row, column] or interleaved
/// [row, column, channel].
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    /// Floats from row to row, from column to column, from channel to channel.
    row: usize,
    column: usize,
    channel: usize,
    rows: usize,
    columns: usize,
}

impl Copy {
    /// Input columns that whole tiles of an output row read.
    fn columns(geometry: &Geometry, extents: &Extents) -> Option<usize> {
        let last = extents.output[2].checked_next_multiple_of(WIDEST)?.checked_sub(1)?;
        last.checked_mul(geometry.stride[2])?.checked_add(geometry.reach(2) + 1)
    }

    /// Floats of the copy for one output row, and for each further one.
    pub fn floats_of_rows(geometry: &Geometry, extents: &Extents) -> Option<[usize; 2]> {
        let line = Copy::columns(geometry, extents)?.checked_mul(geometry.in_channels)?;
        Some([line.checked_mul(geometry.reach(1) + 1)?, line.checked_mul(geometry.stride[1])?])
    }

    /// The copy for `rows` output rows.
    pub fn of(geometry: &Geometry, extents: &Extents, rows: usize, is_interleaved: bool) -> Self {
        let columns = Copy::columns(geometry, extents).unwrap_or_default();
        let rows = (rows - 1) * geometry.stride[1] + geometry.reach(1) + 1;
        let channels = geometry.in_channels;
        match is_interleaved {
            true => Copy { row: columns * channels, column: channels, channel: 1, rows, columns },
            false => Copy { row: columns, column: 1, channel: rows * columns, rows, columns },
        }
    }

    /// For each element of the depth, in the order of the packed weights, where it lies in the copy.
    pub fn fill_offsets(&self, geometry: &Geometry, offsets: &mut [usize]) {
        let width = geometry.kernel[2];
        for (k, slot) in offsets.iter_mut().enumerate() {
            let (tap, channel) = (k / geometry.in_channels, k % geometry.in_channels);
            let (y, x) = (tap / width * geometry.dilation[1], tap % width * geometry.dilation[2]);
            *slot = y * self.row + x * self.column + channel * self.channel;
        }
    }
}

/// A chunk.
pub(super) struct BandTask<'a> {
    pub convolution: &'a Shallow,
    pub extents: Extents,
    pub layout: Copy,
    pub image: usize,
    /// Output rows.
    pub rows: Range<usize>,
    pub offsets: &'a [usize],
    pub copy: *mut f32,
    pub operands: Operands,
}

/// Neighbouring outputs of a row.
struct Tile<'a> {
    /// Where the first output reads, before the offset of an element of the window; the next one reads `step`
    /// floats on.
    x: *const f32,
    step: usize,
    offsets: &'a [usize],
    /// Weights at the first channel of the tile.
    weights: *const f32,
    /// Outputs and channels that exist.
    count: usize,
    columns: usize,
    /// The first output, and from output to output.
    out: *mut f32,
    stride: usize,
    bias: *const f32,
    residual: *const f32,
    clamp: Option<(f32, f32)>,
}

impl SimdTask for BandTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `bind` checked the sizes of input and output; the copy has the floats of the band.
        unsafe {
            self.fill(s);
            // Steps that are known make addresses of neighbours part of the instructions.
            match self.convolution.geometry.stride[2] * self.layout.column {
                1 => self.all_rows::<S, 1>(s),
                2 => self.all_rows::<S, 2>(s),
                3 => self.all_rows::<S, 3>(s),
                6 => self.all_rows::<S, 6>(s),
                // Zero stands for any.
                _ => self.all_rows::<S, 0>(s),
            }
        }
    }
}

impl BandTask<'_> {
    /// Copies the input rows of the band, with zeros around.
    ///
    /// # Safety
    /// The band exists in the input; the copy has room.
    #[inline(always)]
    unsafe fn fill<S: Simd>(&self, s: S) {
        let Geometry { stride, padding, in_channels, .. } = self.convolution.geometry;
        let [_, height, width] = self.extents.input;
        let Copy { rows, columns, .. } = self.layout;
        let is_interleaved = self.convolution.is_input_interleaved;
        // Lines of the copy that belong to an input row: one, or one per channel.
        let (lines, wide) = if is_interleaved { (1, in_channels) } else { (in_channels, 1) };
        let low = padding[2].min(columns);
        let used = width.min(columns - low);
        for row in 0..rows {
            let y = (self.rows.start * stride[1] + row).wrapping_sub(padding[1]);
            for line in 0..lines {
                // SAFETY: the copy has `rows` rows of `columns` for each line, and `y` is below the height
                // where the input is read: the layout that the caller promises.
                unsafe {
                    let to = self.copy.add(line * self.layout.channel + row * self.layout.row);
                    if y >= height {
                        zero(s, to, columns * wide);
                        continue;
                    }
                    zero(s, to, low * wide);
                    let from = ((self.image * lines + line) * height + y) * width * wide;
                    copy(s, self.operands.input.add(from), to.add(low * wide), used * wide);
                    zero(s, to.add((low + used) * wide), (columns - low - used) * wide);
                }
            }
        }
    }

    /// # Safety
    /// The copy is filled.
    #[inline(always)]
    unsafe fn all_rows<S: Simd, const STEP: usize>(&self, s: S) {
        // SAFETY: the copy is filled, as the caller promises, so that every tile's window lies in it.
        unsafe {
            // 28 of 32 registers, or 12 of 16, hold sums.
            if S::LANES == 16 {
                self.tiles::<S, 14, STEP>(s);
            } else {
                self.tiles::<S, 6, STEP>(s);
            }
        }
    }

    /// # Safety
    /// The copy is filled.
    #[inline(always)]
    unsafe fn tiles<S: Simd, const MR: usize, const STEP: usize>(&self, s: S) {
        let geometry = &self.convolution.geometry;
        let (total, [_, height, width]) = (geometry.out_channels, self.extents.output);
        let step = geometry.stride[2] * self.layout.column;
        let weights = self.convolution.weights.as_ptr().cast::<f32>();
        for (i, row) in self.rows.clone().enumerate() {
            let x = self.copy.cast_const().wrapping_add(i * geometry.stride[1] * self.layout.row);
            let line = (self.image * height + row) * width;
            for channel in (0..total).step_by(2 * S::LANES) {
                let panel = channel / PANEL * geometry.depth() * PANEL + channel % PANEL;
                for first in (0..width).step_by(MR) {
                    let at = (line + first) * total + channel;
                    let tile = Tile {
                        x: x.wrapping_add(first * step),
                        step,
                        offsets: self.offsets,
                        weights: weights.wrapping_add(panel),
                        count: MR.min(width - first),
                        columns: total - channel,
                        out: self.operands.out.wrapping_add(at),
                        stride: total,
                        bias: offset(self.operands.bias, channel),
                        residual: offset(self.operands.residual, at),
                        clamp: self.convolution.epilogue.clamp,
                    };
                    // SAFETY: the caller's promise; a copy has the columns of whole tiles, and a panel whole
                    // vectors.
                    unsafe {
                        if tile.columns > S::LANES {
                            tile.compute::<S, MR, 2, STEP>(s);
                        } else {
                            tile.compute::<S, MR, 1, STEP>(s);
                        }
                    }
                }
            }
        }
    }
}

impl Tile<'_> {
    /// # Safety
    /// Pointers are valid as the fields say, for `MR` outputs where it is read and `count` where it is written.
    #[inline(always)]
    unsafe fn compute<S: Simd, const MR: usize, const W: usize, const STEP: usize>(&self, s: S) {
        let step = if STEP == 0 { self.step } else { STEP };
        let mut sums = [[s.zero(); W]; MR];
        // SAFETY: the offsets are those of taps inside the copy, for `MR` outputs, as the caller promises of
        // the fields.
        unsafe {
            let mut w = self.weights;
            for offset in self.offsets {
                let x = self.x.wrapping_add(*offset);
                let mut b = [s.zero(); W];
                written_out!(V < W, {
                    b[V] = s.load(w.wrapping_add(V * S::LANES));
                });
                written_out!(R < MR, {
                    let a = s.splat(*x.wrapping_add(R * step));
                    written_out!(V < W, {
                        sums[R][V] = s.fma(a, b[V], sums[R][V]);
                    });
                });
                w = w.wrapping_add(PANEL);
            }
            written_out!(V < W, {
                let lanes = S::LANES.min(self.columns - V * S::LANES);
                let bias = match self.bias.is_null() {
                    true => s.zero(),
                    false => s.load_up_to(self.bias.wrapping_add(V * S::LANES), lanes),
                };
                written_out!(R < MR, {
                    if R < self.count {
                        let at = R * self.stride + V * S::LANES;
                        let mut y = s.add(sums[R][V], bias);
                        if !self.residual.is_null() {
                            y = s.add(y, s.load_up_to(self.residual.wrapping_add(at), lanes));
                        }
                        if let Some((low, high)) = self.clamp {
                            y = s.clamp(y, s.splat(low), s.splat(high));
                        }
                        s.store_up_to(self.out.wrapping_add(at), y, lanes);
                    }
                });
            });
        }
    }
}

/// # Safety
/// `n` elements are writable.
#[inline(always)]
unsafe fn zero<S: Simd>(s: S, to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: element `i` is below `n`, and the caller promises `n` writable elements at `to`.
        unsafe { s.store_up_to(to.add(i), s.zero(), n - i) };
    }
}

/// # Safety
/// `n` elements are readable, and writable elsewhere.
#[inline(always)]
unsafe fn copy<S: Simd>(s: S, from: *const f32, to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: element `i` is below `n`; the caller promises `n` elements on both sides.
        unsafe { s.store_up_to(to.add(i), s.load_up_to(from.add(i), n - i), n - i) };
    }
}

/// `p` moved on, unless it stands for nothing.
#[inline(always)]
fn offset(p: *const f32, at: usize) -> *const f32 {
    if p.is_null() { p } else { p.wrapping_add(at) }
}
