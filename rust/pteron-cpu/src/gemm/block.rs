//! One chunk of a multiplication: K-blocks, inside them panels of B, inside those tiles of rows.
//! Unsafe island.
#![allow(unsafe_code, reason = "tiles read panels and write rows by address, and chunks share the result")]

use super::packed_rows::RowMatrix;
use super::panel_source::PanelSource;
use super::tile::{Fetch, Tile};
use super::tile_set::{TileSet, TileVariant};
use super::tiling::{PACKED_ROWS, ROWS};
use super::{K_BLOCK, k_blocks, longest_k_block, part};
use crate::packed::f32_nr32_v1::NR;
use crate::packed::pack_block;
use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;

/// Where A comes from.
#[derive(Clone, Copy)]
pub(crate) enum Lhs {
    /// Rows this many elements apart, columns side by side.
    Rows(*const f32, usize),
    /// Packed for the tiles of all rows, see [`RowMatrix::pack`].
    Packed(*const f32),
}

/// Where B comes from.
#[derive(Clone, Copy)]
pub(crate) enum Rhs<'a> {
    /// Panels of `f32_nr32_v1`.
    Packed(*const f32),
    /// A matrix with any strides (row, column); panels are packed into scratch where that pays.
    Strided(*const f32, usize, usize),
    /// Panels that are unpacked into scratch for each block of rows.
    Source(&'a dyn PanelSource),
}

/// One product C = A·B with what follows it. Rows of C are `c_stride` apart, its columns are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Gemm<'a> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Lhs,
    pub b: Rhs<'a>,
    pub c: *mut f32,
    pub c_stride: usize,
    /// One value per column, or null.
    pub bias: *const f32,
    /// A matrix like C that is added, or null. It must not overlap C where K takes several blocks: the
    /// first block of K is written to C before the last one adds this.
    pub residual: *const f32,
    pub residual_stride: usize,
    /// Limits, NaN passes.
    pub clamp: Option<(f32, f32)>,
    /// Run last, on finished blocks of C while they are in the cache.
    pub post: Option<&'a Chain>,
}

/// Elements of scratch a worker needs for sums of length `k`. With `is_bound`, `k` is only the largest
/// length; `is_packed` says that B is [`Rhs::Packed`].
pub(crate) fn scratch_elements(k: usize, is_bound: bool, is_packed: bool, post: Option<&Chain>) -> usize {
    // A smaller k can have a longer K-block than a larger one, never longer than K_BLOCK.
    let block = if is_bound { k.min(K_BLOCK) } else { longest_k_block(k) };
    let b = if is_packed { 0 } else { block * NR };
    let may_pack = if is_bound { k >= BAD_STRIDE } else { lies_badly(k) };
    b + if may_pack { ROWS * block } else { 0 } + post.map_or(0, Chain::scratch_floats)
}

/// Rows of A that are a multiple of this many elements (4 KiB) apart all fall into the same few lines of
/// the first-level cache and push each other out.
const BAD_STRIDE: usize = 1024;

/// Do rows so far apart push each other out of the cache?
pub(super) fn lies_badly(a_stride: usize) -> bool {
    a_stride >= BAD_STRIDE && a_stride.is_multiple_of(BAD_STRIDE)
}

/// Rows from which a panel that lies apart is worth packing: it is then read this many tiles over.
pub(crate) const ROWS_WORTH_PACKING: usize = 48;

/// Bytes of a group of panels up to which it is read from the second-level cache for every tile of rows.
const SMALL_PANELS: usize = 256 << 10;

/// Panels after which a post chain runs: enough columns for its loops, few enough to be in the cache.
const POST_PANELS: usize = 4;

/// Longest k of tiles that fetch what they write: others wait for little beside their arithmetic.
const SHORT: usize = 128;
/// Elements of C from which a call before has pushed it out of the second-level cache.
const FAR_RESULTS: usize = 256 << 10;

/// A block of A as the tiles read it.
#[derive(Clone, Copy)]
struct LeftRows {
    /// The first row of the block.
    first: *const f32,
    /// From row to row; for a packed A from the tile of one row to the tile of another.
    stride: usize,
    is_packed: bool,
}

/// Which block of the product is computed.
struct BlockPlace<'a> {
    rows: &'a Range<usize>,
    /// Tiles it is cut into: so many, the first `taller` of them of `each + 1` rows and the others of
    /// `each`, as [`part`] has it. Kept here, since a division takes as long as several k of a tile.
    row_tiles: usize,
    each: usize,
    taller: usize,
    k: &'a Range<usize>,
    is_last: bool,
    a: LeftRows,
    panels: &'a Range<usize>,
    /// [`Fetch::results`].
    fetches_results: bool,
}

/// A panel of B as the tiles read it.
struct Panel {
    b: *const f32,
    stride: usize,
    panel_stride: usize,
    /// The panel that will be read after it, if it lies alike.
    next: Option<*const f32>,
}

impl Gemm<'_> {
    /// Computes the rows of `row_tiles` (of [`TileSet::row_tiles`] for all rows) and the columns of
    /// `panels`.
    ///
    /// # Safety
    /// All pointers are valid for the matrices they stand for, C overlaps no input but the residual, `tiles`
    /// are for this processor; `scratch` has [`scratch_elements`] for this K. A is packed only if
    /// [`TileSet::has_packed`] for its rows.
    pub unsafe fn run(
        &self,
        tiles: &TileSet,
        row_tiles: Range<usize>,
        panels: Range<usize>,
        scratch: &mut [f32],
    ) {
        let in_block = (ROWS / tiles.max_rows()).max(1);
        let blocks = row_tiles.len().div_ceil(in_block);
        for block in 0..blocks {
            let part = part(row_tiles.len(), blocks, block);
            let block = row_tiles.start + part.start..row_tiles.start + part.end;
            // SAFETY: `block` is a part of the row tiles for which the caller promises valid operands.
            unsafe { self.run_rows(tiles, block, &panels, scratch) };
        }
    }

    /// As [`Gemm::run`] for at most [`ROWS`] rows.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn run_rows(
        &self,
        tiles: &TileSet,
        row_tiles: Range<usize>,
        panels: &Range<usize>,
        scratch: &mut [f32],
    ) {
        let all = tiles.row_tiles(self.m);
        let rows = part(self.m, all, row_tiles.start).start..part(self.m, all, row_tiles.end - 1).end;
        let k_parts = k_blocks(self.k);
        // A single panel reads A once: packing it first gains nothing.
        let packs = matches!(self.a, Lhs::Rows(_, stride) if lies_badly(stride))
            && self.m >= PACKED_ROWS
            && panels.len() > 1
            && tiles.has_packed(self.m);
        let (own_a, scratch) = scratch.split_at_mut(if packs { ROWS * longest_k_block(self.k) } else { 0 });
        for k_part in 0..k_parts {
            let k = part(self.k, k_parts, k_part);
            let is_last = k_part + 1 == k_parts;
            let a = match self.a {
                Lhs::Rows(first, stride) if packs => {
                    let matrix = RowMatrix { first, stride, m: self.m };
                    // Where the first row of all would be packed.
                    let to = own_a.as_mut_ptr().wrapping_sub(rows.start * k.len());
                    let level = SimdLevel::at_most(tiles.isa);
                    // SAFETY: rows and k are in range by contract; the scratch has room for the block.
                    unsafe { matrix.pack_block(level, k.clone(), all, row_tiles.clone(), to) };
                    LeftRows { first: own_a.as_ptr(), stride: k.len(), is_packed: true }
                }
                Lhs::Rows(first, stride) => LeftRows {
                    first: first.wrapping_add(rows.start * stride + k.start),
                    stride,
                    is_packed: false,
                },
                Lhs::Packed(first) => LeftRows {
                    first: first.wrapping_add(k.start * self.m + rows.start * k.len()),
                    stride: k.len(),
                    is_packed: true,
                },
            };
            let at = BlockPlace {
                rows: &rows,
                row_tiles: row_tiles.len(),
                each: rows.len() / row_tiles.len(),
                taller: rows.len() % row_tiles.len(),
                k: &k,
                is_last,
                a,
                panels,
                fetches_results: k.len() <= SHORT && self.m * self.n >= FAR_RESULTS,
            };
            // SAFETY: the caller's contract; rows, panels and k are in range.
            unsafe { self.run_k_block(tiles, &at, scratch) };
        }
    }

    /// All panels of one K-block.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn run_k_block(&self, tiles: &TileSet, at: &BlockPlace<'_>, scratch: &mut [f32]) {
        let panels = at.panels;
        if let (Rhs::Packed(b), false) = (self.b, at.a.is_packed) {
            let bytes = at.k.len() * panels.len() * NR * size_of::<f32>();
            if at.row_tiles > 1 && panels.len() > 1 && bytes <= SMALL_PANELS {
                // SAFETY: the panels of this K-block are part of those for which the caller promises valid
                // operands; A is not packed here.
                return unsafe { self.run_by_tiles(tiles, at, b, scratch) };
            }
        }
        let (mut p, mut finished) = (panels.start, panels.start);
        while p < panels.end {
            // SAFETY: panel `p` is below `panels.end`, for which the caller promises valid operands.
            p += unsafe { self.run_panels(tiles, at, p, scratch) };
            let Some(post) = self.post.filter(|_| at.is_last) else { continue };
            if p - finished >= POST_PANELS || p == panels.end {
                let columns = finished * NR..(p * NR).min(self.n);
                let block = self.c.wrapping_add(at.rows.start * self.c_stride + columns.start);
                let level = SimdLevel::at_most(tiles.isa);
                // SAFETY: the block was just written and is inside C.
                unsafe { post.apply(level, block, self.c_stride, [at.rows.len(), columns.len()], scratch) };
                finished = p;
            }
        }
    }

    /// All panels of one K-block, tile by tile: rows of A that lie as they are come into the first-level
    /// cache once, not once for each panel.
    ///
    /// # Safety
    /// As [`Gemm::run`]; `b` are the panels of B, A is not packed.
    unsafe fn run_by_tiles(&self, tiles: &TileSet, at: &BlockPlace<'_>, b: *const f32, scratch: &mut [f32]) {
        let mut row = 0;
        for i in 0..at.row_tiles {
            let rows = at.each + usize::from(i < at.taller);
            for p in at.panels.clone() {
                let b = b.wrapping_add((p * self.k + at.k.start) * NR);
                let panel = Panel { b, stride: NR, panel_stride: 0, next: None };
                // SAFETY: row tile `i` and panel `p` are inside the block for which the caller promises valid
                // operands.
                unsafe { self.run_row(tiles, at, [row, rows], p, NR, &panel, panel.fetch(i, 1, 0)) };
            }
            if let Some(post) = self.post.filter(|_| at.is_last) {
                let columns = at.panels.start * NR..(at.panels.end * NR).min(self.n);
                let offset = (at.rows.start + row) * self.c_stride + columns.start;
                let level = SimdLevel::at_most(tiles.isa);
                // SAFETY: these rows were just written and are inside C.
                unsafe {
                    let block = self.c.wrapping_add(offset);
                    post.apply(level, block, self.c_stride, [rows, columns.len()], scratch);
                }
            }
            row += rows;
        }
    }

    /// The tiles of some rows (first in the block, number) over panel `p`, of which at most `columns` are
    /// asked for.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    #[allow(clippy::too_many_arguments, reason = "a struct of them would be filled for every tile")]
    unsafe fn run_row(
        &self,
        tiles: &TileSet,
        at: &BlockPlace<'_>,
        [row, rows]: [usize; 2],
        p: usize,
        columns: usize,
        panel: &Panel,
        fetch: Fetch,
    ) {
        let columns = columns.min(self.n - p * NR);
        let mut column = 0;
        // Tiles of a part of the panel fetch as large a part of the next one each.
        let fetched = |column: usize| Fetch {
            next: fetch.next.wrapping_add(column * at.k.len() * fetch.next_step / BETWEEN_FETCHES),
            ..fetch
        };
        while column < columns {
            let Some(variant) = tiles.within_panel(rows, columns - column, at.a.is_packed) else {
                // Every number of rows up to the tallest tile's has one, and those of a packed A were asked
                // for before it was packed.
                unreachable!("no tile for {rows} rows");
            };
            // SAFETY: `within_panel` gives a tile of at most these rows and columns, inside the block that
            // the caller promises.
            unsafe { self.run_tile(variant, at, row, p * NR + column, column, panel, fetched(column)) };
            column += variant.columns;
        }
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
        scratch: &mut [f32],
    ) -> usize {
        let rows = at.rows.len();
        let n0 = p * NR;
        let wide = tiles.wide(rows, at.panels.end - p).filter(|w| match self.b {
            Rhs::Packed(_) => true,
            Rhs::Source(_) => false,
            Rhs::Strided(_, _, stride_n) => stride_n == 1 && n0 + w.columns <= self.n,
        });
        let columns = (self.n - n0).min(wide.map_or(NR, |w| w.columns));
        // SAFETY: `columns` columns of panel `p` exist in B, which the caller promises to be readable.
        let panel = unsafe { self.panel(tiles, at, p, columns, scratch) };
        let mut row = 0;
        for i in 0..at.row_tiles {
            let tile_rows = at.each + usize::from(i < at.taller);
            let fetch = panel.fetch(i, at.row_tiles, at.k.len());
            // SAFETY: the rows of tile `i` and the columns of these panels are inside the block that the
            // caller promises.
            unsafe {
                match wide {
                    Some(wide) => self.run_tile(wide, at, row, n0, 0, &panel, fetch),
                    None => self.run_row(tiles, at, [row, tile_rows], p, columns, &panel, fetch),
                }
            }
            row += tile_rows;
        }
        wide.map_or(1, |w| w.columns / NR)
    }

    /// Panel `p` (and its neighbours, when `columns` says so) for the K-block.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn panel(
        &self,
        tiles: &TileSet,
        at: &BlockPlace<'_>,
        p: usize,
        columns: usize,
        scratch: &mut [f32],
    ) -> Panel {
        let k = at.k;
        match self.b {
            Rhs::Packed(b) => Panel {
                b: b.wrapping_add((p * self.k + k.start) * NR),
                stride: NR,
                panel_stride: self.k * NR,
                next: Some(b.wrapping_add(self.next_panel(at, p) * NR)),
            },
            Rhs::Source(source) => {
                debug_assert!(scratch.len() >= k.len() * NR);
                let to = scratch.as_mut_ptr();
                // SAFETY: panel and rows are inside B, the scratch is large enough by contract; the tiles are for this
                // processor.
                unsafe { source.unpack(SimdLevel::at_most(tiles.isa), p, k.clone(), to) };
                Panel { b: to, stride: NR, panel_stride: 0, next: None }
            }
            Rhs::Strided(b, stride_k, stride_n) => {
                let lies_well = stride_n == 1 && columns.is_multiple_of(NR) && columns > 0;
                let first = b.wrapping_add(k.start * stride_k + p * NR * stride_n);
                if lies_well && (at.rows.len() < ROWS_WORTH_PACKING || stride_k <= 2 * NR) {
                    return Panel { b: first, stride: stride_k, panel_stride: NR, next: None };
                }
                debug_assert!(scratch.len() >= k.len() * NR && columns <= NR);
                let to = scratch.as_mut_ptr();
                // SAFETY: the source block is inside B, the scratch is large enough by contract.
                unsafe { pack_block(tiles.isa, first, (stride_k, stride_n), k.len(), columns, to) };
                Panel { b: to, stride: NR, panel_stride: 0, next: None }
            }
        }
    }

    /// The row of packed B at which the panel starts that is read after panel `p`: its neighbour, the first
    /// panel in the next K-block, or (of the next chunk) the neighbour in the first K-block.
    fn next_panel(&self, at: &BlockPlace<'_>, p: usize) -> usize {
        match (p + 1 == at.panels.end, at.is_last) {
            (false, _) => (p + 1) * self.k + at.k.start,
            (true, false) => at.panels.start * self.k + at.k.end,
            (true, true) => (p + 1) * self.k,
        }
    }

    /// The tile at row `row` of the block and column `column`, which is column `in_panel` of the panel.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    #[allow(clippy::too_many_arguments, reason = "a struct of them would be filled for every tile")]
    unsafe fn run_tile(
        &self,
        variant: &TileVariant,
        at: &BlockPlace<'_>,
        row: usize,
        column: usize,
        in_panel: usize,
        panel: &Panel,
        fetch: Fetch,
    ) {
        let c_row = at.rows.start + row;
        let offset = |p: *const f32, stride: usize| {
            if p.is_null() { p } else { p.wrapping_add(c_row * stride + column) }
        };
        let tile = Tile {
            k: at.k.len(),
            a: at.a.first.wrapping_add(row * at.a.stride),
            a_stride: at.a.stride,
            b: panel.b.wrapping_add(in_panel),
            b_stride: panel.stride,
            b_panel_stride: panel.panel_stride,
            fetch: Fetch { results: at.fetches_results, ..fetch },
            c: self.c.wrapping_add(c_row * self.c_stride + column),
            c_stride: self.c_stride,
            columns: self.n - column,
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

/// Rows of tiles over which the fetching of the next panel is spread: a line every few k, so that memory has time
/// for it, and the loads of the tiles themselves are not kept waiting.
const FETCHING_TILES: usize = 16;
/// Elements of B that a tile reads between two fetches: of 32 columns two k, of 16 columns four.
const BETWEEN_FETCHES: usize = 2 * NR;

impl Panel {
    /// What tile `i` of `count` over a K-block of `k` fetches.
    fn fetch(&self, i: usize, count: usize, k: usize) -> Fetch {
        let own = if i == 0 { Fetch::FAR } else { Fetch::NEAR };
        match self.next {
            Some(next) if count > 1 && i < FETCHING_TILES => {
                let spread = count.min(FETCHING_TILES);
                Fetch {
                    next: next.wrapping_add(i * k / spread * NR),
                    next_step: BETWEEN_FETCHES / spread,
                    ..own
                }
            }
            _ => Fetch { next: self.b, ..own },
        }
    }
}
