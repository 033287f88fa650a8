//! A block of rows of unsigned bytes times panels of weights, and how a call is cut into such blocks. Unsafe island.
#![allow(unsafe_code, reason = "tiles read rows and panels and write results by address")]

use super::columns::{Columns, Numbers};
use super::finish::{Ending, Finish};
use super::gather::Widen;
use super::kit::Kit;
use super::tile::{Registers, Tile};
use crate::executor::even_parts;
use crate::gemm::part;
use crate::gemm::tile::prefetch;
use crate::packed::s8_nr32k4_v1::{NR, Panels, QUAD};
use pteron_core::Grid;
use std::ops::Range;

/// Rows of the tallest tile of any instruction set.
pub(super) const MOST_ROWS: usize = 32;
/// Bytes of a block of rows at most, as tiles read them: it stays in the second-level cache while panels pass.
const BLOCK_BYTES: usize = 192 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Rows of a block at most.
const BLOCK_ROWS: usize = 240;
/// Bytes of panels up to which each tile of rows meets all of them before the next one does.
const SMALL_PANELS: usize = 256 << 10;
/// Work that a chunk should have at least, in nanoseconds: a hundred times what claiming it costs.
const SMALLEST_CHUNK_NS: usize = 16_000;
/// Work that it should have at most: cancellation is polled between chunks.
const LARGEST_CHUNK_NS: usize = 2_000_000;
/// Chunks that are enough for any number of threads this engine is tuned for.
const ENOUGH_CHUNKS: usize = 32;
/// Panels of a chunk at least where there are many rows: each chunk brings its rows together.
const FEWEST_PANELS: usize = 4;
/// Products per nanosecond that the grid is laid out for where a processor computes more.
const MOST_PRODUCTS_PER_NS: usize = 200;
/// Bytes of panels per nanosecond that come from memory.
const BYTES_PER_NS: usize = 16;

/// A group's weights and what its sums are multiplied with.
pub(super) struct Group {
    pub panels: Panels,
    pub columns: Columns,
}

/// The product of a call.
pub(super) struct Product {
    pub kit: &'static Kit,
    pub numbers: Numbers,
    /// Of channels; one where there are none.
    pub groups: Vec<Group>,
    /// Output channels of a group.
    pub n: usize,
    /// Products of an output element.
    pub k: usize,
}

/// Rows of unsigned bytes, or of what [`Product::widened`] makes of them.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub first: *const u8,
    pub stride: usize,
    pub count: usize,
    /// Zero points and scales, where each row has its own.
    pub parameters: Option<(*const i32, *const f32)>,
}

/// Where results go.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// The first channel of the first row of the block, of all groups.
    pub out: *mut u8,
    /// Bytes between rows.
    pub stride: usize,
    /// What is added to a result, for the channel `out` is of: it lies alike.
    pub summand: *const u8,
}

/// Sums of a tile, vectors of them in one cache line each.
#[repr(align(64))]
struct Sums([i32; MOST_ROWS * NR]);

/// Bytes from a row to the next: an odd number of cache lines, so that the rows of a tile do not push each other out of
/// the first-level cache.
pub(super) fn row_stride(k: usize) -> usize {
    let lines = k.div_ceil(64).max(1);
    (lines + usize::from(lines.is_multiple_of(2))) * 64
}

impl Product {
    fn panels(&self) -> usize {
        self.n.div_ceil(NR)
    }

    /// Bytes of a block of rows as tiles read them.
    pub(super) fn block_bytes(&self) -> usize {
        block_rows(self.k, self.kit) * row_stride(self.k) * self.kit.width
    }

    /// Where rows are brought together as bytes in a block of [`Product::block_bytes`]: at its end, so that they can be widened in
    /// place.
    pub(super) fn bytes_of(&self, block: *mut u8) -> *mut u8 {
        let bytes = self.block_bytes();
        block.wrapping_add(bytes - bytes / self.kit.width)
    }

    /// Rows of bytes as tiles read them: as they are, or widened into `block`.
    ///
    /// # Safety
    /// There are at most [`block_rows`], at most [`row_stride`] bytes apart, which can be read to the end of their last cache line;
    /// `block` has [`Product::block_bytes`], at whose end [`Product::bytes_of`] the rows may lie.
    pub(super) unsafe fn widened(&self, rows: Rows, block: *mut u8) -> Rows {
        if self.kit.width == 1 {
            return rows;
        }
        let is_dense = rows.stride == self.k;
        let w = Widen {
            from: rows.first,
            to: block,
            stride: rows.stride,
            length: if is_dense { rows.count * self.k } else { self.k },
            count: if is_dense { 1 } else { rows.count },
        };
        // SAFETY: the kit is one of this processor; the caller promises the rows and a block that has twice as many bytes as
        // they, whole cache lines of them.
        unsafe { (self.kit.widen)(&w) };
        Rows { first: block, stride: rows.stride * self.kit.width, ..rows }
    }

    /// The rows times panels `panels` of a group.
    ///
    /// # Safety
    /// The rows are as tiles read them and can be read, for whole quads; the output can be written for the columns of the
    /// panels, and overlaps nothing that is read; where something is added, the summand can be read for as much.
    pub(super) unsafe fn run(&self, group: usize, rows: Rows, panels: Range<usize>, target: Target) {
        let tiles = rows.count.div_ceil(self.kit.max_rows());
        let Some(group_parts) = self.groups.get(group) else {
            return;
        };
        let mut sums = Sums([0; MOST_ROWS * NR]);
        let mut registers = None;
        let bytes = panels.len() * group_parts.panels.stride();
        let mut one = |tile: usize, panel: usize| {
            let rows_here = part(rows.count, tiles, tile);
            // SAFETY: the rows of the tile and the panel are among those that the caller promises.
            unsafe { self.tile(group, rows, rows_here, panel, target, (&mut sums, &mut registers)) };
        };
        if bytes <= SMALL_PANELS {
            for tile in 0..tiles {
                panels.clone().for_each(|panel| one(tile, panel));
            }
        } else {
            for panel in panels {
                (0..tiles).for_each(|tile| one(tile, panel));
            }
        }
        // SAFETY: the setting is that of this kit's tiles, and the kit is one of this processor.
        unsafe { (self.kit.leave)(registers) };
    }

    /// Some rows, at most those of a tile, times one panel.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn tile(
        &self,
        group: usize,
        rows: Rows,
        range: Range<usize>,
        panel: usize,
        target: Target,
        (Sums(sums), registers): (&mut Sums, &mut Registers),
    ) {
        let (Some(group_parts), Some(of_rows)) = (self.groups.get(group), range.len().checked_sub(1)) else {
            return;
        };
        let (numbers, column, sums) = (&self.numbers, panel * NR, sums.as_mut_ptr());
        let columns = NR.min(self.n - column);
        let ending = match rows.parameters {
            Some((zeros, scales)) => Ending::Rows {
                zeros: zeros.wrapping_add(range.start),
                scales: scales.wrapping_add(range.start),
            },
            None => numbers.ending(),
        };
        let offset = range.start * target.stride + (group * self.n + column) * numbers.out_bytes();
        let f = Finish {
            sums,
            rows: range.len(),
            columns,
            start: group_parts.columns.start(column),
            factor: group_parts.columns.factor(column),
            bias: group_parts.columns.bias(column),
            low: numbers.low,
            high: numbers.high,
            is_bounded: numbers.is_bounded,
            ending,
            out: target.out.wrapping_add(offset),
            stride: target.stride,
            sum: numbers.sum,
            adds_floats: numbers.adds_floats,
            summand: target.summand.wrapping_add(offset),
        };
        let first = group_parts.panels.as_ptr().wrapping_add(panel * group_parts.panels.stride());
        let t = Tile {
            rows: rows.first.wrapping_add(range.start * rows.stride),
            stride: rows.stride,
            quads: self.k.div_ceil(QUAD),
            panel: first,
            sums,
            registers,
        };
        if !matches!(ending, Ending::Bytes(_)) {
            bring(&f);
        } else if columns == NR
            && numbers.is_bounded
            && let tiles = if numbers.sum.is_some() { self.kit.of_sums } else { self.kit.of_bytes }
            && let Some(tile) = tiles.get(of_rows)
        {
            // SAFETY: as below; the ending is what these tiles are for.
            return unsafe { tile(&t, &f) };
        }
        let whole = self.kit.whole.get(of_rows).map(|tile| (tile, NR));
        let Some((tile, step)) = whole.or_else(|| Some((self.kit.tiles.get(of_rows)?, self.kit.columns)))
        else {
            return;
        };
        for at in (0..columns).step_by(step) {
            let (panel, sums) = (t.panel.wrapping_add(at * QUAD), t.sums.wrapping_add(at));
            // SAFETY: the kit is one of this processor; the caller promises the rows, a panel has its quads for all of
            // its columns, and there is room for the sums of the tallest tile.
            unsafe { tile(&Tile { panel, sums, ..t }) };
        }
        // SAFETY: the kit is one of this processor; parameters of columns are there for whole panels, and the caller
        // promises the output and the summand.
        unsafe { (self.kit.finish)(&f) };
    }
}

/// Brings the places of results in f32 into the first-level cache, and what is added to them, while the tile is computed: rows are
/// too far apart for the processor to foresee them. Bytes are a quarter, and gain nothing.
fn bring(f: &Finish) {
    for row in 0..f.rows {
        for at in (0..f.columns * size_of::<f32>()).step_by(LINE) {
            let at = row * f.stride + at;
            prefetch(f.out.wrapping_add(at));
            if f.adds_floats {
                prefetch(f.summand.wrapping_add(at));
            }
        }
    }
}

/// Row blocks × panel groups × groups.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Split {
    /// Rows in all, and tiles of them.
    pub rows: usize,
    tiles: usize,
    panels: usize,
    groups: usize,
    row_parts: usize,
    panel_parts: usize,
    /// Tiles of a block.
    block_tiles: usize,
    /// On this processor.
    chunk_ns: usize,
}

/// What one chunk computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChunkRange {
    pub group: usize,
    pub tiles: Range<usize>,
    pub panels: Range<usize>,
}

impl Split {
    pub(super) fn new(product: &Product, rows: usize) -> Split {
        let (panels, groups) = (product.panels(), product.groups.len());
        let max_rows = product.kit.max_rows();
        let tiles = rows.div_ceil(max_rows);
        let block_tiles = block_rows(product.k, product.kit) / max_rows;
        let blocks = tiles.div_ceil(block_tiles.max(1)).max(1);
        let in_block = rows.div_ceil(blocks).max(1);
        let quads = product.k.div_ceil(QUAD).max(1);
        let rate = product.kit.products_per_ns.min(MOST_PRODUCTS_PER_NS);
        let panel_ns = (in_block * quads * QUAD * NR / rate).max(quads * QUAD * NR / BYTES_PER_NS).max(1);
        let block_ns = panel_ns.saturating_mul(panels.max(1));
        let total_ns = block_ns.saturating_mul(blocks).saturating_mul(groups);
        let target_ns = (total_ns / ENOUGH_CHUNKS).clamp(SMALLEST_CHUNK_NS, LARGEST_CHUNK_NS);
        let fewest = if in_block <= max_rows { 1 } else { FEWEST_PANELS };
        let panel_parts = block_ns.div_ceil(target_ns).min(panels.div_ceil(fewest)).max(1);
        let panel_parts = if blocks * groups == 1 { even_parts(panel_parts, panels) } else { panel_parts };
        let row_parts = match panel_parts {
            1 if groups == 1 => even_parts(blocks.div_ceil((target_ns / block_ns.max(1)).max(1)), tiles),
            1 => blocks.div_ceil((target_ns / block_ns.max(1)).max(1)),
            _ => blocks,
        };
        let chunks = row_parts * panel_parts * groups.max(1);
        Split {
            rows,
            tiles,
            panels,
            groups,
            row_parts,
            panel_parts,
            block_tiles,
            chunk_ns: (total_ns / chunks.max(1)).saturating_mul(rate) / product.kit.products_per_ns,
        }
    }

    /// Number of chunks; none when there is nothing to write.
    pub(super) fn chunks(&self) -> usize {
        match self.tiles == 0 || self.panels == 0 {
            true => 0,
            false => self.groups * self.row_parts * self.panel_parts,
        }
    }

    /// Phases of so many chunks before and behind those of the product.
    pub(super) fn grid(&self, before: usize, behind: usize) -> Grid {
        if self.chunks() == 0 {
            return Grid::EMPTY;
        }
        phases([before, self.chunks(), behind], self.chunk_ns)
    }

    /// The phases of the product behind two of `before` chunks each.
    pub(super) fn grid_behind_two(&self, before: usize) -> Grid {
        match self.chunks() {
            0 => Grid::EMPTY,
            chunks => Grid::phases(&[before, before, chunks], self.chunk_ns),
        }
    }

    /// The part of chunk `chunk`.
    pub(super) fn chunk(&self, chunk: usize) -> ChunkRange {
        let in_group = self.row_parts * self.panel_parts;
        let (group, rest) = (chunk / in_group, chunk % in_group);
        // Neighbouring chunks share rows.
        let (row, panel) = (rest / self.panel_parts, rest % self.panel_parts);
        ChunkRange {
            group,
            tiles: part(self.tiles, self.row_parts, row),
            panels: part(self.panels, self.panel_parts, panel),
        }
    }

    /// The blocks of rows of a chunk.
    pub(super) fn blocks(&self, tiles: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (split, tiles) = (*self, tiles.clone());
        let blocks = tiles.len().div_ceil(split.block_tiles.max(1));
        (0..blocks).map(move |i| {
            let here = part(tiles.len(), blocks, i);
            let (first, last) = (tiles.start + here.start, tiles.start + here.end - 1);
            part(split.rows, split.tiles, first).start..part(split.rows, split.tiles, last).end
        })
    }
}

/// Rows of a block at most, a multiple of the tallest tile's: two of them at least, since panels pass once for each block.
fn block_rows(k: usize, kit: &Kit) -> usize {
    let max_rows = kit.max_rows();
    let rows = (BLOCK_BYTES / (row_stride(k) * kit.width)).clamp(2 * max_rows, BLOCK_ROWS);
    rows / max_rows * max_rows
}

/// Phases of so many chunks; the first and the last one may have none.
pub(super) fn phases(chunks: [usize; 3], chunk_ns: usize) -> Grid {
    let [before, _, behind] = chunks;
    let (first, end) = (usize::from(before == 0), if behind == 0 { 2 } else { 3 });
    Grid::phases(&chunks[first..end], chunk_ns)
}
