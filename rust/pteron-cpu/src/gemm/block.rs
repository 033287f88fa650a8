//! One chunk of a multiplication: K-blocks, inside them panels of B, inside those tiles of rows.
//! Unsafe island.

use super::tile::Tile;
use super::tile_set::{TileSet, TileVariant};
use super::tiling::ROWS;
use super::{K_BLOCK, k_blocks, longest_k_block, part};
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
pub(crate) type PostOp = unsafe fn(*mut f32, usize, usize, usize);

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

/// Elements of scratch a worker needs for sums of length `k`. With `is_bound`, `k` is only the largest
/// length; `is_packed` says that B is [`Rhs::Packed`].
pub(crate) fn scratch_elements(k: usize, is_bound: bool, is_packed: bool) -> usize {
    // A smaller k can have a longer K-block than a larger one, never longer than K_BLOCK.
    let block = if is_bound { k.min(K_BLOCK) } else { longest_k_block(k) };
    let b = if is_packed { 0 } else { block * NR };
    let may_copy = if is_bound { k >= BAD_STRIDE } else { lies_badly(k) };
    b + if may_copy { ROWS * (block + A_PADDING) } else { 0 }
}

/// Rows of A that are a multiple of this many elements (4 KiB) apart all fall into the same few lines of
/// the first-level cache and push each other out.
const BAD_STRIDE: usize = 1024;
/// Such rows are copied first, this much further apart.
const A_PADDING: usize = 16;
/// As many rows as the cache has ways (8 to 12) live together even so.
const FEW_ROWS: usize = 8;

fn lies_badly(a_stride: usize) -> bool {
    a_stride >= BAD_STRIDE && a_stride.is_multiple_of(BAD_STRIDE)
}

/// Rows from which a panel that lies apart is worth packing: it is then read this many tiles over.
const ROWS_WORTH_PACKING: usize = 48;

/// A block of A as the tiles read it.
#[derive(Clone, Copy)]
struct Rows {
    first: *const f32,
    stride: usize,
}

/// Which block of the product is computed.
struct BlockPlace<'a> {
    rows: &'a Range<usize>,
    k: &'a Range<usize>,
    is_last: bool,
    a: Rows,
}

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
    /// this processor; `scratch` has [`scratch_elements`] for this K.
    pub unsafe fn run(&self, tiles: &TileSet, rows: Range<usize>, panels: Range<usize>, scratch: &mut [f32]) {
        let row_blocks = rows.len().div_ceil(ROWS);
        for block in 0..row_blocks {
            let part = part(rows.len(), row_blocks, block);
            // SAFETY: the caller's contract.
            unsafe { self.run_rows(tiles, rows.start + part.start..rows.start + part.end, &panels, scratch) };
        }
    }

    /// As [`Gemm::run`] for at most [`ROWS`] rows.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn run_rows(
        &self,
        tiles: &TileSet,
        rows: Range<usize>,
        panels: &Range<usize>,
        scratch: &mut [f32],
    ) {
        let k_parts = k_blocks(self.k);
        // A single panel reads A once: copying it first gains nothing.
        let copies = lies_badly(self.a_stride) && rows.len() > FEW_ROWS && panels.len() > 1;
        let copy_elements = if copies { ROWS * (longest_k_block(self.k) + A_PADDING) } else { 0 };
        let (copy, scratch) = scratch.split_at_mut(copy_elements);
        for k_part in 0..k_parts {
            let k = part(self.k, k_parts, k_part);
            let is_last = k_part + 1 == k_parts;
            let a = if copies {
                // SAFETY: rows and k are in range by contract, `copy` was sized for both.
                unsafe { self.copy_rows(&rows, &k, copy) }
            } else {
                self.rows_in_place(&rows, &k)
            };
            let mut p = panels.start;
            while p < panels.end {
                let at = BlockPlace { rows: &rows, k: &k, is_last, a };
                // SAFETY: the caller's contract; rows, panels and k are in range.
                p += unsafe { self.run_panels(tiles, &at, p, panels.end, scratch) };
            }
        }
    }

    fn rows_in_place(&self, rows: &Range<usize>, k: &Range<usize>) -> Rows {
        Rows { first: self.a.wrapping_add(rows.start * self.a_stride + k.start), stride: self.a_stride }
    }

    /// Copies a block of A so that its rows lie well.
    ///
    /// # Safety
    /// `rows` and `k` are inside A; `to` has `rows.len() * (k.len() + A_PADDING)` elements.
    unsafe fn copy_rows(&self, rows: &Range<usize>, k: &Range<usize>, to: &mut [f32]) -> Rows {
        let stride = k.len() + A_PADDING;
        let from = self.rows_in_place(rows, k);
        for (row, to) in to.chunks_exact_mut(stride).take(rows.len()).enumerate() {
            // SAFETY: the row is inside A by contract; `to` is longer than the block.
            unsafe { from.first.add(row * from.stride).copy_to_nonoverlapping(to.as_mut_ptr(), k.len()) };
        }
        Rows { first: to.as_ptr(), stride }
    }

    /// Computes one panel, or several at once if a wide tile fits; returns how many.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn run_panels(
        &self,
        tiles: &TileSet,
        at: &BlockPlace<'_>,
        p: usize,
        end: usize,
        scratch: &mut [f32],
    ) -> usize {
        let rows = at.rows;
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
        let panel = unsafe { self.panel(tiles, p, at.k, columns, rows.len(), scratch) };
        let tall = rows.len().div_ceil(tiles.max_rows());
        for i in 0..tall {
            let tile_rows = part(rows.len(), tall, i);
            let Some(variant) = wide.or_else(|| tiles.narrow.get(tile_rows.len() - 1)) else {
                continue;
            };
            // SAFETY: the caller's contract.
            unsafe { self.run_tiles(variant, at, tile_rows.start, n0..n0 + columns, &panel) };
        }
        if let Some(post) = self.post.filter(|_| at.is_last) {
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
                let lies_well = stride_n == 1 && columns.is_multiple_of(NR) && columns > 0;
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

    /// All tiles of one variant that cover `columns`, from row `row` of the block on.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn run_tiles(
        &self,
        variant: &TileVariant,
        at: &BlockPlace<'_>,
        row: usize,
        columns: Range<usize>,
        panel: &Panel,
    ) {
        let c_row = at.rows.start + row;
        for column in columns.clone().step_by(variant.columns) {
            let offset = |p: *const f32, stride: usize| {
                if p.is_null() { p } else { p.wrapping_add(c_row * stride + column) }
            };
            let tile = Tile {
                k: at.k.len(),
                a: at.a.first.wrapping_add(row * at.a.stride),
                a_stride: at.a.stride,
                b: panel.b.wrapping_add(column - columns.start),
                b_stride: panel.stride,
                b_panel_stride: panel.panel_stride,
                c: self.c.wrapping_add(c_row * self.c_stride + column),
                c_stride: self.c_stride,
                columns: columns.end - column,
                is_first: at.k.start == 0,
                is_last: at.is_last,
                bias: offset(self.bias, 0),
                residual: offset(self.residual, self.residual_stride),
                residual_stride: self.residual_stride,
                clamp: self.clamp,
            };
            // SAFETY: the tile's rows and the columns that exist are inside the matrices; B's panel has all
            // columns of the tile (padded, packed into scratch, or really there).
            unsafe { (variant.run)(&tile) };
        }
    }
}
