//! The bound shapes of a multiplication, and what of it is packed in a phase of its own.

use crate::gemm::{PACKED_ROWS, ROWS_WORTH_PACKING, TileSet, Tiling, part};
use crate::packed::f32_nr32_v1::{NR, panel_count};
use pteron_core::{Grid, Isa};
use std::ops::Range;

/// Elements of a packed operand at most: 16 MiB. Beyond, workers pack blocks of their own.
const MOST_PACKED: usize = 4 << 20;
/// Length of rows that lie in pages of their own, so that the rows of a tile take as many entries of the
/// translation buffer.
const LONG_ROW: usize = 1024;
/// Panels of B from which packing A pays if its rows are so long: it is then read so many times over.
const PANELS_FOR_LONG_ROWS: usize = 4;
/// Panels from which it pays in any case.
const PANELS_FOR_ANY_ROWS: usize = 24;
/// Elements that a chunk of the packing phase moves: some 16 microseconds.
const PACKED_PER_CHUNK: usize = 64 << 10;
/// Its chunks at most.
const PACKING_CHUNKS: usize = 32;

/// Room for packed operands in the scratch that all workers share, in elements.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    pub packed_a: usize,
    pub packed_b: usize,
}

impl Limits {
    /// For shapes up to these. `is_computed`: B is no constant.
    pub fn new(batch: usize, [m, n, k]: [usize; 3], is_computed: bool) -> Limits {
        let panels = panel_count(n);
        let least = if k >= LONG_ROW { PANELS_FOR_LONG_ROWS } else { PANELS_FOR_ANY_ROWS };
        let packs_a = batch == 1 && m >= PACKED_ROWS && panels >= least;
        let packed_a = m.saturating_mul(k).next_multiple_of(NR).min(MOST_PACKED);
        let packs_b = is_computed && m >= ROWS_WORTH_PACKING;
        let packed_b = batch.saturating_mul(k).saturating_mul(panels).saturating_mul(NR).min(MOST_PACKED);
        Limits { packed_a: if packs_a { packed_a } else { 0 }, packed_b: if packs_b { packed_b } else { 0 } }
    }
}

/// The bound shapes.
#[derive(Default)]
pub(super) struct Problem {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Strides of B in elements: batch, row, column.
    pub right: [usize; 3],
    /// Strides of what is added in elements: batch, row, column.
    pub addend: [usize; 3],
    /// Tiles leave the plain product, and a pass behind them does the rest.
    pub is_combined: bool,
    pub packs_a: bool,
    pub packs_b: bool,
    pub a_chunks: usize,
    pub b_chunks: usize,
    pub tiling: Tiling,
}

impl Problem {
    pub fn new(
        tiles: &TileSet,
        batch: usize,
        [m, n, k]: [usize; 3],
        right: [usize; 3],
        limits: &Limits,
    ) -> Problem {
        let tiling = Tiling::new(tiles, batch, m, n, k);
        let mut p = Problem { batch, m, n, k, right, tiling, ..Problem::default() };
        if tiling.is_empty() || k == 0 {
            return p;
        }
        let a_elements = m.saturating_mul(k);
        p.packs_a = batch == 1
            && m >= PACKED_ROWS
            && p.panels() >= if k >= LONG_ROW { PANELS_FOR_LONG_ROWS } else { PANELS_FOR_ANY_ROWS }
            && a_elements.next_multiple_of(NR) <= limits.packed_a
            && tiles.has_packed(m);
        let b_elements = batch.saturating_mul(k).saturating_mul(p.panels() * NR);
        // Chunks pack what they alone read themselves, while it is hot.
        p.packs_b = tiling.has_row_parts() && b_elements <= limits.packed_b;
        let chunks = |elements: usize| elements.div_ceil(PACKED_PER_CHUNK).min(PACKING_CHUNKS);
        if p.packs_a {
            p.a_chunks = chunks(a_elements).min(tiles.row_tiles(m));
        }
        if p.packs_b {
            p.b_chunks = chunks(b_elements).min(batch * p.panels());
        }
        p
    }

    /// Panels of B.
    pub fn panels(&self) -> usize {
        panel_count(self.n)
    }

    /// Is there a packing phase?
    pub fn is_packing(&self) -> bool {
        self.a_chunks + self.b_chunks > 0
    }

    /// Where the packed B of product `batch` starts in the shared scratch, in elements.
    pub fn packed_b_at(&self, batch: usize) -> usize {
        let a = if self.packs_a { (self.m * self.k).next_multiple_of(NR) } else { 0 };
        a + batch * self.k * self.panels() * NR
    }

    /// The rows and columns of a chunk.
    pub fn elements(
        &self,
        tiles: &TileSet,
        row_tiles: &Range<usize>,
        panels: &Range<usize>,
    ) -> (Range<usize>, Range<usize>) {
        let all = tiles.row_tiles(self.m);
        let rows = match row_tiles.is_empty() {
            true => 0..0,
            false => part(self.m, all, row_tiles.start).start..part(self.m, all, row_tiles.end - 1).end,
        };
        (rows, panels.start * NR..(panels.end * NR).min(self.n))
    }

    /// Phases and chunks.
    pub fn grid(&self, isa: Isa) -> Grid {
        if self.is_packing() && !self.tiling.is_empty() {
            let chunks = [self.a_chunks + self.b_chunks, self.tiling.chunks()];
            return Grid::phases(&chunks, self.tiling.chunk_ns(isa));
        }
        self.tiling.grid(isa)
    }
}
