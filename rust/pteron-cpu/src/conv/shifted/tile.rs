//! The second phase of a call: tiles of output channels × pixels, whose vectors are loaded from shifted planes. Unsafe island.
#![allow(unsafe_code, reason = "planes are addressed by shift, and chunks share the output")]

use super::super::geometry::Geometry;
use super::super::window::Phase;
use super::plan::{Place, Plan, STRIPE, TILE, taps_before, tile};
use super::stored::{Computed, Number, Stored};
use crate::linear::other_dtypes::product::Product;
use pteron_kernels::vector_math::{Simd, SimdTask};

/// Output channels of a block times pixels of a phase.
pub(super) struct Unit<'a, T: Stored> {
    pub geometry: &'a Geometry,
    pub plan: &'a Plan,
    pub phase: Phase,
    pub place: Place,
    /// Where each tap reads.
    pub table: &'a [usize],
    pub packed: *const Number<T>,
    pub planes: *const Number<T>,
    /// Null for none.
    pub bias: *const T,
    pub out: *mut T,
    /// Of image, channel and three spatial dimensions.
    pub strides: [usize; 5],
    /// [`TILE`] rows of [`STRIPE`].
    pub sums: *mut Number<T>,
}

/// What one tile reads and how much it computes.
#[derive(Clone, Copy)]
pub(super) struct TileOf<N> {
    /// First output channel of the group.
    pub row: usize,
    pub height: usize,
    /// Its weights: input channels, taps, output channels.
    pub weights: *const N,
    /// Its first pixel in the first plane of the group.
    pub pixels: *const N,
    /// Pixels.
    pub width: usize,
    pub bias: [N; TILE],
}

impl<T: Stored> SimdTask for Unit<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (g, plan, place) = (self.geometry, self.plan, self.place);
        let axes = &self.phase.axes;
        let depth = g.in_channels * self.table.len();
        let is_read = !self.table.is_empty();
        let (start, step) = (axes.map(|a| a.kernel_start), axes.map(|a| a.kernel_step));
        let before = if is_read { taps_before(g.kernel, start, step) * g.in_channels } else { 0 };
        let channel = place.image * plan.channels + place.group * g.in_channels;
        let pixel = place.depth * plan.size[1] * plan.size[2] + place.pixels[0];
        let mut row = place.rows[0];
        while row < place.rows[1] {
            // Blocks of rows are whole tiles but for the last, whose rest is as in the packed weights.
            let [_, height] = tile(g.out_channels, tile_index(g.out_channels, row));
            if height == 0 {
                return;
            }
            let first_row = place.group * g.out_channels + row;
            let mut bias = [Number::<T>::default(); TILE];
            if !self.bias.is_null() {
                for (i, slot) in bias.iter_mut().enumerate().take(height) {
                    // SAFETY: the bias has an element for each output channel.
                    *slot = unsafe { (*self.bias.add(first_row + i)).number() };
                }
            }
            let tile = TileOf {
                row,
                height,
                weights: self.packed.wrapping_add(first_row * g.depth() + before * height),
                pixels: self.planes.wrapping_add(channel * plan.per_channel + pixel),
                width: place.pixels[1] - place.pixels[0],
                bias,
            };
            // SAFETY: the tile's weights and pixels are inside scratch, which the first phase has filled.
            unsafe {
                if g.is_transposed && !are_finite(tile.weights, depth * height) {
                    self.sum_carefully(s, &tile);
                } else {
                    self.sum(s, &tile);
                }
                self.write(s, &tile);
            }
            row += height;
        }
    }
}

/// The tile of `rows` output channels that begins with `row`.
fn tile_index(rows: usize, row: usize) -> usize {
    let full = rows / TILE;
    if row < full * TILE {
        return row / TILE;
    }
    // What is left is made of 4, 2 and 1: those that stand before.
    full + (row - full * TILE).count_ones() as usize
}

/// # Safety
/// `n` numbers are readable.
#[inline(always)]
unsafe fn are_finite<N: Computed>(numbers: *const N, n: usize) -> bool {
    let mut is_finite = true;
    for i in 0..n {
        // SAFETY: i < n.
        is_finite &= unsafe { *numbers.add(i) }.is_finite();
    }
    is_finite
}

impl<T: Stored> Unit<'_, T> {
    /// # Safety
    /// See [`TileOf`]: all that it says is there.
    #[inline(always)]
    unsafe fn sum<S: Simd>(&self, s: S, tile: &TileOf<Number<T>>) {
        // As many vectors of sums as an instruction set has registers for.
        // SAFETY: the arms are those of the tile's height; its weights and pixels are there, as the caller promises.
        unsafe {
            match (tile.height, S::LANES) {
                (6, 16) => self.columns::<S, 6, 4>(s, tile),
                (4, 16) => self.columns::<S, 4, 4>(s, tile),
                (6, _) => self.columns::<S, 6, 2>(s, tile),
                (4, _) => self.columns::<S, 4, 2>(s, tile),
                (2, _) => self.columns::<S, 2, 4>(s, tile),
                _ => self.columns::<S, 1, 4>(s, tile),
            }
        }
    }

    /// # Safety
    /// As for [`Unit::sum`]; the tile has `R` rows.
    #[inline(always)]
    unsafe fn columns<S: Simd, const R: usize, const W: usize>(&self, s: S, tile: &TileOf<Number<T>>) {
        let lanes = T::Of::lanes::<S>();
        let plane = self.plan.per_channel;
        for column in (0..tile.width).step_by(W * lanes) {
            let mut acc = [[T::Of::splat(s, Number::<T>::default()); W]; R];
            for (row, bias) in acc.iter_mut().zip(tile.bias) {
                *row = [T::Of::splat(s, bias); W];
            }
            let mut weights = tile.weights;
            let mut from = tile.pixels.wrapping_add(column);
            for _ in 0..self.geometry.in_channels {
                for shift in self.table {
                    // SAFETY: taps of pixels inside the unit lie inside the channel's planes; what vectors read behind lies
                    // in the next ones, or in the numbers behind all planes.
                    unsafe {
                        let from = from.add(*shift);
                        let mut b = [T::Of::splat(s, Number::<T>::default()); W];
                        for (w, v) in b.iter_mut().enumerate() {
                            *v = T::Of::load(s, from.add(w * lanes));
                        }
                        for (r, row) in acc.iter_mut().enumerate() {
                            let a = T::Of::splat(s, *weights.add(r));
                            for w in 0..W {
                                row[w] = T::Of::fma(s, a, b[w], row[w]);
                            }
                        }
                        weights = weights.add(R);
                    }
                }
                from = from.wrapping_add(plane);
            }
            for (r, row) in acc.iter().enumerate() {
                for (w, v) in row.iter().enumerate() {
                    // SAFETY: a stripe has room for the pixels of a unit, rounded up to whole vectors.
                    unsafe { T::Of::store(s, self.sums.add(r * STRIPE + column + w * lanes), *v) };
                }
            }
        }
    }

    /// Rounds and writes the pixels that are no margin.
    ///
    /// # Safety
    /// The sums of the tile are there, and its part of the output is this chunk's.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, tile: &TileOf<Number<T>>) {
        let place = self.place;
        let channel = place.group * self.geometry.out_channels + tile.row;
        let [image, channels, strides @ ..] = self.strides;
        let base = place.image * image + channel * channels;
        let axes = &self.phase.axes;
        self.runs(|[z, y, x], first, n| {
            let at = base
                + (axes[0].out_start + z * axes[0].out_step) * strides[0]
                + (axes[1].out_start + y * axes[1].out_step) * strides[1]
                + (axes[2].out_start + x * axes[2].out_step) * strides[2];
            for r in 0..tile.height {
                // SAFETY: the pixels of the run are outputs of the phase, the sums of the stripe belong to them.
                unsafe {
                    let to = self.out.add(at + r * channels);
                    T::write(s, self.sums.add(r * STRIPE + first), n, to, axes[2].out_step * strides[2]);
                }
            }
        });
    }

    /// Hands out the unit's pixels row by row: output of the phase, its number in the unit, how many.
    #[inline(always)]
    pub(super) fn runs(&self, mut each: impl FnMut([usize; 3], usize, usize)) {
        let [_, rows, columns] = self.plan.size;
        let counts = self.phase.axes.map(|a| a.count);
        let [start, end] = self.place.pixels;
        let mut x = start % columns.max(1);
        let line = start / columns.max(1);
        let (mut y, mut z) = (line % rows.max(1), self.place.depth + line / rows.max(1));
        let mut at = start;
        while at < end {
            if x < counts[2] && y < counts[1] && z < counts[0] {
                each([z, y, x], at - start, (counts[2] - x).min(end - at));
            }
            at += columns - x;
            (x, y) = (0, y + 1);
            if y == rows {
                (y, z) = (0, z + 1);
            }
        }
    }
}
