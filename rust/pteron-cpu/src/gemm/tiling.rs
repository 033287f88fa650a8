//! The chunk grid of a multiplication, fixed by its shape.

use super::{TileSet, part};
use crate::packed::f32_nr32_v1::{NR, panel_count};
use pteron_core::{Grid, Isa};
use std::ops::Range;

/// Rows that a chunk works on while one panel of B is in the caches: 16 of the tallest tiles; 384 columns
/// of A for them are 336 KiB.
pub(super) const ROWS: usize = 224;
/// Rows from which packing A is considered: two of the tallest tiles.
pub(crate) const PACKED_ROWS: usize = 28;
/// Work that a chunk should have at least, in nanoseconds: a hundred times what claiming it costs.
const SMALLEST_CHUNK_NS: usize = 16_000;
/// Work that it should have at most: cancellation is polled between chunks.
const LARGEST_CHUNK_NS: usize = 2_000_000;
/// Chunks that are enough for any number of threads this engine is tuned for. Beyond, larger chunks
/// use what they read more often.
const ENOUGH_CHUNKS: usize = 32;
/// Rows from which a product with a small B is shared out by halves of its rows: a thread then has in its own
/// caches what it wrote in the step before.
const SHARED_ROWS: usize = 96;
/// Floating-point operations per nanosecond that the grid is laid out for, whatever the machine.
const FLOPS_PER_NS: usize = 100;
/// Bytes of B per nanosecond that come from memory.
const BYTES_PER_NS: usize = 16;
/// B up to this many bytes stays in the second-level cache while the rows pass.
const SMALL_B: usize = 512 << 10;

/// What one chunk computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    pub batches: Range<usize>,
    /// Tiles of rows, of [`TileSet::row_tiles`].
    pub row_tiles: Range<usize>,
    /// In panels of 32 columns.
    pub panels: Range<usize>,
}

/// Batches × row blocks × panel groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tiling {
    batch: usize,
    row_tiles: usize,
    panels: usize,
    batch_parts: usize,
    row_parts: usize,
    panel_parts: usize,
    /// Neighbouring chunks share panels of B, not rows of A.
    is_panel_major: bool,
    chunk_ns: usize,
}

impl Tiling {
    /// The grid for `batch` products of M x K and K x N.
    pub fn new(tiles: &TileSet, batch: usize, m: usize, n: usize, k: usize) -> Tiling {
        let panels = panel_count(n);
        let row_tiles = tiles.row_tiles(m);
        let in_block = (ROWS / tiles.max_rows()).max(1);
        let is_panel_major = k.saturating_mul(panels * NR * size_of::<f32>()) > SMALL_B;
        let mut row_parts = row_tiles.div_ceil(in_block).max(1);
        if row_parts == 1 && m >= SHARED_ROWS && !is_panel_major {
            row_parts = 2;
        }
        let rows = m.div_ceil(row_parts).max(1);
        let panel_ns = panel_ns(rows, k);
        let block_ns = panel_ns.saturating_mul(panels.max(1));
        let total_ns = block_ns.saturating_mul(row_parts).saturating_mul(batch);
        let target_ns = (total_ns / ENOUGH_CHUNKS).clamp(SMALLEST_CHUNK_NS, LARGEST_CHUNK_NS);
        let mut panel_parts = block_ns.div_ceil(target_ns).min(panels).max(1);
        if rows <= 4 {
            // Tiles for few rows take up to four panels at once.
            panel_parts = panel_parts.min(panels.div_ceil(4)).max(1);
        }
        let mut batch_parts = batch.max(1);
        if panel_parts == 1 {
            // Small blocks are put together, rows first.
            let together = (target_ns / block_ns.max(1)).max(1);
            let blocks = row_parts;
            row_parts = row_parts.div_ceil(together);
            if row_parts == 1 {
                let product_ns = block_ns.saturating_mul(blocks).max(1);
                batch_parts = batch_parts.div_ceil((target_ns / product_ns).max(1));
            }
        }
        let mut tiling = Tiling {
            batch,
            row_tiles,
            panels,
            batch_parts,
            row_parts,
            panel_parts,
            is_panel_major,
            chunk_ns: 0,
        };
        tiling.chunk_ns = total_ns / tiling.chunks().max(1);
        tiling
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.batch_parts * self.row_parts * self.panel_parts
    }

    /// Do several chunks read the same columns of B?
    pub fn has_row_parts(&self) -> bool {
        self.row_parts > 1
    }

    /// Nothing to write?
    pub fn is_empty(&self) -> bool {
        self.batch == 0 || self.row_tiles == 0 || self.panels == 0
    }

    /// Estimated nanoseconds of a chunk.
    pub fn chunk_ns(&self, isa: Isa) -> usize {
        // The layout is the same on every machine, the estimate for threading is not.
        let slower = match isa {
            Isa::Avx512 => 1,
            Isa::Avx2 => 2,
            Isa::Neon => 4,
            Isa::Portable => 8,
        };
        self.chunk_ns.saturating_mul(slower)
    }

    /// The grid for the executor; empty when there is nothing to write.
    pub fn grid(&self, isa: Isa) -> Grid {
        if self.is_empty() {
            return Grid::EMPTY;
        }
        Grid::chunks(self.chunks(), self.chunk_ns(isa))
    }

    /// The part of chunk `chunk`.
    pub fn chunk(&self, chunk: usize) -> ChunkRange {
        let in_batch = self.row_parts * self.panel_parts;
        let (batch, rest) = (chunk / in_batch, chunk % in_batch);
        let (row, panel) = match self.is_panel_major {
            true => (rest % self.row_parts, rest / self.row_parts),
            false => (rest / self.panel_parts, rest % self.panel_parts),
        };
        ChunkRange {
            batches: part(self.batch, self.batch_parts, batch),
            row_tiles: part(self.row_tiles, self.row_parts, row),
            panels: self.panel_range(panel),
        }
    }

    /// Groups end at multiples of four panels where they can, see [`Tiling::new`].
    fn panel_range(&self, i: usize) -> Range<usize> {
        if self.panels.is_multiple_of(4) && self.panels / 4 >= self.panel_parts {
            let quads = part(self.panels / 4, self.panel_parts, i);
            return quads.start * 4..quads.end * 4;
        }
        part(self.panels, self.panel_parts, i)
    }
}

/// Estimated time of one panel over `rows` rows.
fn panel_ns(rows: usize, k: usize) -> usize {
    let compute = rows.saturating_mul(k).saturating_mul(64) / FLOPS_PER_NS;
    let memory = k.saturating_mul(128) / BYTES_PER_NS;
    compute.max(memory).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_kernels::cpu_detect::available_isas;

    fn grid(batch: usize, m: usize, n: usize, k: usize) -> Tiling {
        Tiling::new(TileSet::for_isa(Isa::Portable), batch, m, n, k)
    }

    #[test]
    fn chunks_cover_every_element_once() {
        for isa in available_isas() {
            for (batch, m, n, k) in [
                (1, 1, 384, 384),
                (1, 128, 1536, 384),
                (1, 500, 4096, 1024),
                (12, 128, 128, 32),
                (3, 300, 33, 7),
                (1, 20000, 16, 8),
                (5, 2, 2000, 3),
            ] {
                let tiles = TileSet::for_isa(isa);
                let tiling = Tiling::new(tiles, batch, m, n, k);
                let (panels, row_tiles) = (panel_count(n), tiles.row_tiles(m));
                let mut seen = vec![0u8; batch * row_tiles * panels];
                for chunk in 0..tiling.grid(isa).chunk_count(0) {
                    let r = tiling.chunk(chunk as usize);
                    for b in r.batches {
                        for row in r.row_tiles.clone() {
                            for p in r.panels.clone() {
                                seen[(b * row_tiles + row) * panels + p] += 1;
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|c| *c == 1), "{isa:?} {batch} x {m} x {n} x {k}");
            }
        }
    }

    #[test]
    fn nothing_to_write_is_an_empty_grid() {
        for (batch, m, n) in [(0, 4, 4), (1, 0, 4), (1, 4, 0)] {
            assert_eq!(grid(batch, m, n, 8).grid(Isa::Avx2), Grid::EMPTY);
        }
        assert_eq!(grid(1, 3, 3, 0).grid(Isa::Avx2).chunk_count(0), 1);
    }

    #[test]
    fn large_work_has_chunks_for_threads_and_small_work_has_one() {
        assert!(grid(1, 128, 384, 384).chunks() >= 8);
        assert!(grid(1, 1, 1536, 384).chunks() >= 2);
        assert_eq!(grid(1, 8, 64, 64).chunks(), 1);
        assert_eq!(grid(12, 8, 8, 32).chunks(), 1);
    }
}
