//! One chunk of a multiplication: K-blocks, inside them panels of B, inside those tiles of rows.
//! Unsafe island.

use super::tile::Tile;
use super::tile_set::{TileSet, TileVariant};
use super::{k_blocks, longest_k_block, part};
use crate::packed::f32_nr32_v1::NR;
use crate::packed::pack_block;
use std::ops::Range;

/// Where B comes from.
#[derive(Clone, Copy)]
pub(crate) enum Rhs {
    /// Panels of `f32_nr32_v1`.
    Packed(*const f32),
    /// A matrix with any strides (row, column); panels are packed into scratch where that pays.
    Strided(*const f32, usize, usize),
}

/// Work on a finished block of C while it is in the cache: start, row stride, rows, columns.
pub type PostOp = unsafe fn(*mut f32, usize, usize, usize);

/// One product C = A·B with what follows it. Rows of A and C are `a_stride` and `c_stride` apart, their
/// columns are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Gemm {
    pub n: usize,
    pub k: usize,
    pub a: *const f32,
    pub a_stride: usize,
    pub b: Rhs,
    pub c: *mut f32,
    pub c_stride: usize,
    /// One value per column, or null.
    pub bias: *const f32,
    /// A matrix like C that is added, or null.
    pub residual: *const f32,
    pub residual_stride: usize,
    /// Limits, NaN passes.
    pub clamp: Option<(f32, f32)>,
    /// Called last.
    pub post: Option<PostOp>,
}

/// Elements of scratch a worker needs for [`Rhs::Strided`].
pub(crate) fn scratch_elements(k: usize) -> usize {
    longest_k_block(k) * NR
}

/// Rows from which a panel that lies apart is worth packing: it is then read this many tiles over.
const ROWS_WORTH_PACKING: usize = 48;

/// A panel of B as the tiles read it.
struct Panel {
    b: *const f32,
    stride: usize,
    panel_stride: usize,
}

impl Gemm {
    /// Computes `rows` of the columns of `panels`.
    ///
    /// # Safety
    /// All pointers are valid for the matrices they stand for, C overlaps no input, `tiles` are for
    /// this processor; `scratch` has [`scratch_elements`] when B is strided.
    pub unsafe fn run(&self, tiles: &TileSet, rows: Range<usize>, panels: Range<usize>, scratch: &mut [f32]) {
        if rows.is_empty() {
            return;
        }
        let k_parts = k_blocks(self.k);
        for k_part in 0..k_parts {
            let k_range = part(self.k, k_parts, k_part);
            let is_last = k_part + 1 == k_parts;
            let mut p = panels.start;
            while p < panels.end {
                // SAFETY: the caller's contract; rows, panels and k are in range.
                p += unsafe { self.run_panels(tiles, &rows, p, panels.end, &k_range, is_last, scratch) };
            }
        }
    }

    /// Computes one panel, or several at once if a wide tile fits; returns how many.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn run_panels(
        &self,
        tiles: &TileSet,
        rows: &Range<usize>,
        p: usize,
        end: usize,
        k: &Range<usize>,
        is_last: bool,
        scratch: &mut [f32],
    ) -> usize {
        let n0 = p * NR;
        let wide = tiles.wide.get(rows.len() - 1).filter(|w| {
            let is_readable = match self.b {
                Rhs::Packed(_) => true,
                Rhs::Strided(_, _, stride_n) => stride_n == 1 && n0 + w.columns <= self.n,
            };
            p + w.columns / NR <= end && is_readable
        });
        let columns = (self.n - n0).min(wide.map_or(NR, |w| w.columns));
        // SAFETY: the caller's contract.
        let panel = unsafe { self.panel(tiles, p, k, columns, rows.len(), scratch) };
        let tall = rows.len().div_ceil(tiles.max_rows());
        for i in 0..tall {
            let tile_rows = part(rows.len(), tall, i);
            let Some(variant) = wide.or_else(|| tiles.narrow.get(tile_rows.len() - 1)) else {
                continue;
            };
            let row = rows.start + tile_rows.start;
            // SAFETY: the caller's contract.
            unsafe { self.run_tiles(variant, row, n0, columns, k, is_last, &panel) };
        }
        if let Some(post) = self.post.filter(|_| is_last) {
            // SAFETY: the block was just written and is inside C.
            unsafe { post(self.c.add(rows.start * self.c_stride + n0), self.c_stride, rows.len(), columns) };
        }
        wide.map_or(1, |w| w.columns / NR)
    }

    /// Panel `p` (and its neighbours, when `columns` says so) for the K-block `k`.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn panel(
        &self,
        tiles: &TileSet,
        p: usize,
        k: &Range<usize>,
        columns: usize,
        rows: usize,
        scratch: &mut [f32],
    ) -> Panel {
        match self.b {
            Rhs::Packed(b) => Panel {
                b: b.wrapping_add((p * self.k + k.start) * NR),
                stride: NR,
                panel_stride: self.k * NR,
            },
            Rhs::Strided(b, stride_k, stride_n) => {
                let lies_well = stride_n == 1 && columns % NR == 0 && columns > 0;
                let first = b.wrapping_add(k.start * stride_k + p * NR * stride_n);
                if lies_well && (rows < ROWS_WORTH_PACKING || stride_k <= 2 * NR) {
                    return Panel { b: first, stride: stride_k, panel_stride: NR };
                }
                debug_assert!(scratch.len() >= k.len() * NR && columns <= NR);
                let to = scratch.as_mut_ptr();
                // SAFETY: the source block is inside B, the scratch is large enough by contract.
                unsafe { pack_block(tiles.isa, first, (stride_k, stride_n), k.len(), columns, to) };
                Panel { b: to, stride: NR, panel_stride: 0 }
            }
        }
    }

    /// All tiles of one variant that cover `columns` columns from `n0` on, rows from `row` on.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn run_tiles(
        &self,
        variant: &TileVariant,
        row: usize,
        n0: usize,
        columns: usize,
        k: &Range<usize>,
        is_last: bool,
        panel: &Panel,
    ) {
        for at in (0..columns).step_by(variant.columns) {
            let column = n0 + at;
            let offset = |p: *const f32, stride: usize| {
                if p.is_null() { p } else { p.wrapping_add(row * stride + column) }
            };
            let tile = Tile {
                k: k.len(),
                a: self.a.wrapping_add(row * self.a_stride + k.start),
                a_stride: self.a_stride,
                b: panel.b.wrapping_add(at),
                b_stride: panel.stride,
                b_panel_stride: panel.panel_stride,
                c: self.c.wrapping_add(row * self.c_stride + column),
                c_stride: self.c_stride,
                columns: columns - at,
                is_first: k.start == 0,
                is_last,
                bias: offset(self.bias, 0),
                residual: offset(self.residual, self.residual_stride),
                residual_stride: self.residual_stride,
                clamp: self.clamp,
            };
            // SAFETY: the tile's rows and its first `columns` columns are inside the matrices; B's panel
            // has all columns of the tile (padded, packed into scratch, or really there).
            unsafe { (variant.run)(&tile) };
        }
    }
}
