//! The chunk grid of a multiplication, fixed by its shape.

use super::part;
use crate::packed::f32_nr32_v1::panel_count;
use pteron_core::{Grid, Isa};
use std::ops::Range;

/// Rows that a chunk works on while one panel of B stays in the first-level cache: ten of the
/// tallest tiles; 384 columns of A for them are 210 KiB.
pub(super) const ROWS: usize = 140;
/// Work that a chunk should have at least, in nanoseconds: a hundred times what claiming it costs.
const SMALLEST_CHUNK_NS: usize = 16_000;
/// Work that it should have at most: cancellation is polled between chunks.
const LARGEST_CHUNK_NS: usize = 500_000;
/// Chunks that are enough for any number of threads this engine is tuned for. Beyond, larger chunks
/// use what they read more often.
const ENOUGH_CHUNKS: usize = 64;
/// Floating-point operations per nanosecond that the grid is laid out for, whatever the machine.
const FLOPS_PER_NS: usize = 100;
/// Bytes of B per nanosecond that come from memory.
const BYTES_PER_NS: usize = 16;

/// What one chunk computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    pub batches: Range<usize>,
    pub rows: Range<usize>,
    /// In panels of 32 columns.
    pub panels: Range<usize>,
}

/// Batches × row blocks × panel groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiling {
    batch: usize,
    rows: usize,
    panels: usize,
    batch_parts: usize,
    row_parts: usize,
    panel_parts: usize,
    chunk_ns: usize,
}

impl Tiling {
    /// The grid for `batch` products of M x K and K x N.
    pub fn new(batch: usize, m: usize, n: usize, k: usize) -> Tiling {
        let panels = panel_count(n);
        let mut row_parts = m.div_ceil(ROWS).max(1);
        let rows = m.div_ceil(row_parts).max(1);
        let panel_ns = panel_ns(rows, k);
        let total_ns = panel_ns.saturating_mul(panels).saturating_mul(m.div_ceil(rows)).saturating_mul(batch);
        let target_ns = (total_ns / ENOUGH_CHUNKS).clamp(SMALLEST_CHUNK_NS, LARGEST_CHUNK_NS);
        let mut group = target_ns.div_ceil(panel_ns).clamp(1, panels.max(1));
        if rows <= 4 {
            // Tiles for few rows take up to four panels at once.
            group = group.next_multiple_of(4);
        }
        let panel_parts = panels.div_ceil(group).max(1);
        let mut batch_parts = batch.max(1);
        if panel_parts == 1 {
            let block_ns = panel_ns * panels.max(1);
            // Small blocks are put together, rows first.
            let together = (target_ns / block_ns.max(1)).max(1);
            row_parts = row_parts.div_ceil(together);
            if row_parts == 1 {
                let product_ns = (m.div_ceil(rows) * block_ns).max(1);
                batch_parts = batch_parts.div_ceil((target_ns / product_ns).max(1));
            }
        }
        let mut tiling = Tiling { batch, rows: m, panels, batch_parts, row_parts, panel_parts, chunk_ns: 0 };
        tiling.chunk_ns = total_ns / tiling.chunks().max(1);
        tiling
    }

    fn chunks(&self) -> usize {
        self.batch_parts * self.row_parts * self.panel_parts
    }

    /// The grid for the executor; empty when there is nothing to write.
    pub fn grid(&self, isa: Isa) -> Grid {
        if self.batch == 0 || self.rows == 0 || self.panels == 0 {
            return Grid::EMPTY;
        }
        // The layout is the same on every machine, the estimate for threading is not.
        let slower = match isa {
            Isa::Avx512 => 1,
            Isa::Avx2 => 2,
            Isa::Portable => 8,
        };
        Grid::chunks(self.chunks(), self.chunk_ns.saturating_mul(slower))
    }

    /// The part of chunk `chunk`: neighbours share rows of A.
    pub fn chunk(&self, chunk: u32) -> ChunkRange {
        let chunk = chunk as usize;
        let (rest, panel) = (chunk / self.panel_parts, chunk % self.panel_parts);
        let (batch, row) = (rest / self.row_parts, rest % self.row_parts);
        ChunkRange {
            batches: part(self.batch, self.batch_parts, batch),
            rows: part(self.rows, self.row_parts, row),
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

    #[test]
    fn chunks_cover_every_element_once() {
        for (batch, m, n, k) in [
            (1, 1, 384, 384),
            (1, 128, 1536, 384),
            (12, 128, 128, 32),
            (3, 300, 33, 7),
            (1, 20000, 16, 8),
            (5, 2, 2000, 3),
        ] {
            let tiling = Tiling::new(batch, m, n, k);
            let panels = panel_count(n);
            let mut seen = vec![0u8; batch * m * panels];
            for chunk in 0..tiling.grid(Isa::Avx512).chunk_count(0) {
                let r = tiling.chunk(chunk);
                for b in r.batches {
                    for row in r.rows.clone() {
                        for p in r.panels.clone() {
                            seen[(b * m + row) * panels + p] += 1;
                        }
                    }
                }
            }
            assert!(seen.iter().all(|c| *c == 1), "{batch} x {m} x {n} x {k}");
        }
    }

    #[test]
    fn nothing_to_write_is_an_empty_grid() {
        for (batch, m, n) in [(0, 4, 4), (1, 0, 4), (1, 4, 0)] {
            assert_eq!(Tiling::new(batch, m, n, 8).grid(Isa::Avx2), Grid::EMPTY);
        }
        assert_eq!(Tiling::new(1, 3, 3, 0).grid(Isa::Avx2).chunk_count(0), 1);
    }

    #[test]
    fn large_work_has_chunks_for_threads_and_small_work_has_one() {
        assert!(Tiling::new(1, 128, 384, 384).grid(Isa::Avx512).chunk_count(0) >= 8);
        assert!(Tiling::new(1, 1, 1536, 384).grid(Isa::Avx512).chunk_count(0) >= 2);
        assert_eq!(Tiling::new(1, 8, 64, 64).grid(Isa::Avx512).chunk_count(0), 1);
        assert_eq!(Tiling::new(12, 8, 8, 32).grid(Isa::Avx512).chunk_count(0), 1);
    }
}
