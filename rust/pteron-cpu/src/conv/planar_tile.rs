//! The micro-kernel of convolutions over channel planes: a few output channels × a few vectors of output pixels
//! stay in registers while the depth runs; weights are broadcast. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::written_out::written_out;
use pteron_kernels::vector_math::Simd;
use pteron_kernels::vector_math::simd::MAX_LANES;
use std::mem::MaybeUninit;

/// Most output channels of a tile.
const MAX_CHANNELS: usize = 6;
/// Most vectors of pixels of a tile.
pub const MAX_VECTORS: usize = 4;

/// Vectors of the largest tile: with AVX-512 24 of 32 registers hold sums, else 12 of 16.
#[inline(always)]
pub const fn most_vectors(lanes: usize) -> usize {
    if lanes == 16 { 4 } else { 3 }
}

/// One vector of output pixels.
#[derive(Clone, Copy)]
pub struct Vector {
    /// Where the first pixel reads, before the offset of an element of the depth.
    pub x: *const f32,
    /// First pixel in the output, for the first channel of the tile.
    pub out: usize,
    /// Pixels that exist.
    pub lanes: usize,
}

impl Vector {
    /// No pixels.
    pub const NONE: Vector = Vector { x: std::ptr::null(), out: 0, lanes: 0 };
}

/// A tile; see the module documentation.
#[derive(Clone, Copy)]
pub struct PlanarTile<'a> {
    /// For each element of the depth, how far its pixels lie from [`Vector::x`].
    pub offsets: &'a [usize],
    /// Weights at the first channel of the tile.
    pub weights: *const f32,
    /// From one element of the depth to the next in the weights.
    pub weight_stride: usize,
    /// One number per channel of the tile; null for none.
    pub bias: *const f32,
    /// Added at the place of the output; null for none.
    pub residual: *const f32,
    /// Result.
    pub out: *mut f32,
    /// From channel to channel and from pixel to pixel in the output; one of them is 1.
    pub strides: [usize; 2],
    /// Limits; NaN passes.
    pub clamp: Option<(f32, f32)>,
}

impl PlanarTile<'_> {
    /// Computes `channels` channels (1, 2, 4 or, with 16 lanes, 6) of `vectors`; when `is_masked`, of a single
    /// vector, of which only the pixels that exist are read.
    ///
    /// # Safety
    /// Pointers are valid as their fields say; every vector is readable at every offset, whole unless
    /// `is_masked`.
    #[inline(always)]
    pub unsafe fn compute<S: Simd>(&self, s: S, channels: usize, vectors: &[Vector], is_masked: bool) {
        // Not set to zero: that would cost as much as a small tile.
        let mut sums = MaybeUninit::<Sums>::uninit();
        let sums: *mut f32 = sums.as_mut_ptr().cast();
        // SAFETY: the caller's promise; `sums` writes the vectors that `write` reads.
        unsafe {
            match (channels, vectors.len()) {
                (1, 1) if is_masked => self.sums::<S, 1, 1, true>(s, vectors, sums),
                (2, 1) if is_masked => self.sums::<S, 2, 1, true>(s, vectors, sums),
                (4, 1) if is_masked => self.sums::<S, 4, 1, true>(s, vectors, sums),
                (6, 1) if is_masked && S::LANES == 16 => self.sums::<S, 6, 1, true>(s, vectors, sums),
                (1, 1) => self.sums::<S, 1, 1, false>(s, vectors, sums),
                (1, 2) => self.sums::<S, 1, 2, false>(s, vectors, sums),
                (1, 3) => self.sums::<S, 1, 3, false>(s, vectors, sums),
                (1, 4) if S::LANES == 16 => self.sums::<S, 1, 4, false>(s, vectors, sums),
                (2, 1) => self.sums::<S, 2, 1, false>(s, vectors, sums),
                (2, 2) => self.sums::<S, 2, 2, false>(s, vectors, sums),
                (2, 3) => self.sums::<S, 2, 3, false>(s, vectors, sums),
                (2, 4) if S::LANES == 16 => self.sums::<S, 2, 4, false>(s, vectors, sums),
                (4, 1) => self.sums::<S, 4, 1, false>(s, vectors, sums),
                (4, 2) => self.sums::<S, 4, 2, false>(s, vectors, sums),
                (4, 3) => self.sums::<S, 4, 3, false>(s, vectors, sums),
                (4, 4) if S::LANES == 16 => self.sums::<S, 4, 4, false>(s, vectors, sums),
                (6, 1) if S::LANES == 16 => self.sums::<S, 6, 1, false>(s, vectors, sums),
                (6, 2) if S::LANES == 16 => self.sums::<S, 6, 2, false>(s, vectors, sums),
                (6, 3) if S::LANES == 16 => self.sums::<S, 6, 3, false>(s, vectors, sums),
                (6, 4) if S::LANES == 16 => self.sums::<S, 6, 4, false>(s, vectors, sums),
                _ => {
                    debug_assert!(false, "no tile of {channels} channels and {} vectors", vectors.len());
                    return;
                }
            }
            for (j, vector) in vectors.iter().enumerate() {
                self.write(s, sums.add(j * MAX_CHANNELS * MAX_LANES), channels, vector);
            }
        }
    }

    /// # Safety
    /// As [`PlanarTile::compute`]; there are `V` vectors, and `out` has room for [`Sums`].
    #[inline(always)]
    unsafe fn sums<S: Simd, const R: usize, const V: usize, const MASKED: bool>(
        &self,
        s: S,
        vectors: &[Vector],
        out: *mut f32,
    ) {
        let mut sums = [[s.zero(); V]; R];
        let mut from = [std::ptr::null::<f32>(); V];
        for (from, vector) in from.iter_mut().zip(vectors) {
            *from = vector.x;
        }
        let lanes = vectors[0].lanes;
        // SAFETY: the caller's promise; `out` has room for every sum.
        unsafe {
            if !self.bias.is_null() {
                written_out!(I < R, {
                    sums[I] = [s.splat(*self.bias.add(I)); V];
                });
            }
            let mut w = self.weights;
            for offset in self.offsets {
                let mut x = [s.zero(); V];
                written_out!(J < V, {
                    let from = from[J].wrapping_add(*offset);
                    x[J] = if MASKED { s.load_up_to(from, lanes) } else { s.load(from) };
                });
                written_out!(I < R, {
                    let weight = s.splat(*w.wrapping_add(I));
                    written_out!(J < V, {
                        sums[I][J] = s.fma(weight, x[J], sums[I][J]);
                    });
                });
                w = w.wrapping_add(self.weight_stride);
            }
            written_out!(I < R, {
                written_out!(J < V, {
                    s.store(out.add((J * MAX_CHANNELS + I) * MAX_LANES), sums[I][J]);
                });
            });
        }
    }

    /// Adds and clamps what follows, and writes one vector of pixels of some channels.
    ///
    /// # Safety
    /// As [`PlanarTile::compute`]; `rows` holds a vector for each of the `channels`, [`MAX_LANES`] apart.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, rows: *mut f32, channels: usize, vector: &Vector) {
        let [channel_stride, pixel_stride] = self.strides;
        let Vector { out, lanes, .. } = *vector;
        // SAFETY: these pixels of the channels exist; a row holds every lane.
        unsafe {
            for i in 0..channels {
                let row = rows.add(i * MAX_LANES);
                let at = out + i * channel_stride;
                let mut y = s.load(row);
                if !self.residual.is_null() {
                    y = s.add(y, s.load_strided(self.residual.add(at), pixel_stride, lanes));
                }
                if let Some((low, high)) = self.clamp {
                    y = s.clamp(y, s.splat(low), s.splat(high));
                }
                if pixel_stride == 1 {
                    s.store_up_to(self.out.add(at), y, lanes);
                } else {
                    s.store(row, y);
                }
            }
            if pixel_stride != 1 {
                let to = self.out.add(out);
                s.transpose_block(rows, MAX_LANES, channels, lanes, to, pixel_stride);
            }
        }
    }
}

/// Sums of a tile, vector by vector and channel by channel.
#[repr(align(64))]
struct Sums(
    #[allow(dead_code, reason = "written and read through a pointer")]
    [[f32; MAX_LANES]; MAX_CHANNELS * MAX_VECTORS],
);

/// As many of `left` channels as a tile takes.
#[inline(always)]
pub const fn channels_of_tile(left: usize, lanes: usize) -> usize {
    match left {
        0 | 1 => left,
        2 | 3 => 2,
        // Two tiles of four rather than six and two.
        4 | 5 | 8 => 4,
        _ if lanes == 16 => 6,
        _ => 4,
    }
}
