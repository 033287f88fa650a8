//! The micro-kernel of dense convolutions: `rows` output pixels × two vectors of output channels held in
//! registers while the depth runs. Unsafe island.

use super::f32_conv_nr32_v1::PANEL;
use crate::vector_math::Simd;

/// Output pixels of a full tile: 28 of 32 registers accumulate with AVX-512, 12 of 16 with AVX2.
#[inline(always)]
pub const fn tile_rows(lanes: usize) -> usize {
    if lanes == 16 { 14 } else { 6 }
}

/// One tile of one block of the depth.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Pixel panel: `depth` rows of `rows` pixels.
    pub pixels: *const f32,
    /// Weight panel: `depth` rows of [`PANEL`] channels, at the first channel of this tile.
    pub weights: *const f32,
    /// Multiplications.
    pub depth: usize,
    /// Result so far and afterwards: `rows` rows of [`PANEL`] channels.
    pub sums: *mut f32,
    /// First block of the depth: starts from these two vectors instead of `sums`.
    pub start: Option<*const f32>,
    /// Last block: clamps.
    pub clamp: Option<(f32, f32)>,
}

impl Tile {
    /// Computes the tile for `rows` pixels, even and at most [`tile_rows`].
    ///
    /// # Safety
    /// Pointers are valid as their fields say; `start` holds two vectors.
    #[inline(always)]
    pub unsafe fn compute<S: Simd>(&self, s: S, rows: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                2 => self.with_rows::<S, 2>(s),
                4 => self.with_rows::<S, 4>(s),
                6 => self.with_rows::<S, 6>(s),
                // Eight lanes never get here: tile_rows is 6.
                8 if S::LANES == 16 => self.with_rows::<S, 8>(s),
                10 if S::LANES == 16 => self.with_rows::<S, 10>(s),
                12 if S::LANES == 16 => self.with_rows::<S, 12>(s),
                14 if S::LANES == 16 => self.with_rows::<S, 14>(s),
                _ => debug_assert!(false, "no tile of {rows} rows"),
            }
        }
    }

    /// # Safety
    /// As [`Tile::compute`].
    #[inline(always)]
    unsafe fn with_rows<S: Simd, const ROWS: usize>(&self, s: S) {
        let mut sums = [[s.zero(); 2]; ROWS];
        // SAFETY: the caller's promise.
        unsafe {
            for (m, row) in sums.iter_mut().enumerate() {
                let from = match self.start {
                    Some(start) => start,
                    None => self.sums.add(m * PANEL).cast_const(),
                };
                *row = [s.load(from), s.load(from.add(S::LANES))];
            }
            let (mut pixels, mut weights) = (self.pixels, self.weights);
            for _ in 0..self.depth {
                let (w0, w1) = (s.load(weights), s.load(weights.add(S::LANES)));
                for (m, row) in sums.iter_mut().enumerate() {
                    let x = s.splat(*pixels.add(m));
                    row[0] = s.fma(x, w0, row[0]);
                    row[1] = s.fma(x, w1, row[1]);
                }
                pixels = pixels.add(ROWS);
                weights = weights.add(PANEL);
            }
            for (m, row) in sums.iter().enumerate() {
                let [mut a, mut b] = *row;
                if let Some((low, high)) = self.clamp {
                    let (low, high) = (s.splat(low), s.splat(high));
                    a = s.clamp(a, low, high);
                    b = s.clamp(b, low, high);
                }
                s.store(self.sums.add(m * PANEL), a);
                s.store(self.sums.add(m * PANEL + S::LANES), b);
            }
        }
    }
}
