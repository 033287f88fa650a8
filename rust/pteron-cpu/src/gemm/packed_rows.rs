//! A in the order in which tiles read it: for each K-block, for each tile of rows, for each k the values of
//! the tile's rows side by side. The first element of row `r` (the first of a tile) in the K-block that
//! starts at `k` is number `k * m + r * length of the K-block`. Unsafe island.
#![allow(unsafe_code, reason = "tiles read panels and write rows by address, and chunks share the result")]

use super::{k_blocks, part};
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

/// A matrix of `m` rows, `stride` apart, whose columns are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct RowMatrix {
    pub first: *const f32,
    pub stride: usize,
    pub m: usize,
}

impl RowMatrix {
    /// Packs the tiles `tiles` of `row_tiles` in all, for every K-block of `k`, to their places in `to`.
    ///
    /// # Safety
    /// The matrix is readable for `k` columns, `to` writable for `m * k` elements; tiles have at most as
    /// many rows as `level` has lanes.
    pub unsafe fn pack(
        &self,
        level: SimdLevel,
        k: usize,
        row_tiles: usize,
        tiles: Range<usize>,
        to: *mut f32,
    ) {
        let blocks = k_blocks(k);
        for block in 0..blocks {
            let k = part(k, blocks, block);
            let to = to.wrapping_add(k.start * self.m);
            // SAFETY: the caller's contract; the block's tiles lie from `k.start * m` on.
            unsafe { self.pack_block(level, k, row_tiles, tiles.clone(), to) };
        }
    }

    /// Packs the columns `k` of `tiles`; row `r` starts at element `r * k.len()` of `to`.
    ///
    /// # Safety
    /// As [`RowMatrix::pack`], with room for the rows of the tiles in `to`.
    pub unsafe fn pack_block(
        &self,
        level: SimdLevel,
        k: Range<usize>,
        row_tiles: usize,
        tiles: Range<usize>,
        to: *mut f32,
    ) {
        for tile in tiles {
            let rows = part(self.m, row_tiles, tile);
            level.dispatch(PackTile {
                from: self.first.wrapping_add(rows.start * self.stride + k.start),
                stride: self.stride,
                rows: rows.len(),
                k: k.len(),
                to: to.wrapping_add(rows.start * k.len()),
            });
        }
    }
}

/// One tile of one K-block.
struct PackTile {
    from: *const f32,
    stride: usize,
    rows: usize,
    k: usize,
    to: *mut f32,
}

impl SimdTask for PackTile {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for k in (0..self.k).step_by(S::LANES) {
            let columns = S::LANES.min(self.k - k);
            // SAFETY: rows and columns of the tile are inside both matrices, by contract of `pack_block`.
            unsafe {
                let (from, to) = (self.from.add(k), self.to.add(k * self.rows));
                s.transpose_block(from, self.stride, self.rows, columns, to, self.rows);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{TileSet, tests::noise};
    use pteron_kernels::cpu_detect::available_isas;

    #[test]
    fn every_value_is_where_it_should_be() {
        for isa in available_isas() {
            let tiles = TileSet::for_isa(isa);
            for (m, k, stride) in [(28, 16, 16), (29, 17, 20), (43, 5, 5), (100, 800, 801)] {
                let a = noise(m * stride, 1);
                let row_tiles = tiles.row_tiles(m);
                let mut packed = vec![f32::NAN; m * k];
                let matrix = RowMatrix { first: a.as_ptr(), stride, m };
                let half = row_tiles / 2;
                for range in [0..half, half..row_tiles] {
                    // SAFETY: all sizes are as stated; the instruction set is available.
                    unsafe {
                        matrix.pack(SimdLevel::at_most(isa), k, row_tiles, range, packed.as_mut_ptr());
                    }
                }
                for block in 0..k_blocks(k) {
                    let columns = part(k, k_blocks(k), block);
                    for tile in 0..row_tiles {
                        let rows = part(m, row_tiles, tile);
                        let first = columns.start * m + rows.start * columns.len();
                        for (i, column) in columns.clone().enumerate() {
                            for (j, row) in rows.clone().enumerate() {
                                let got = packed[first + i * rows.len() + j];
                                assert_eq!(got, a[row * stride + column], "{isa:?} {m}x{k} {row}, {column}");
                            }
                        }
                    }
                }
            }
        }
    }
}
