//! The chunk grid of an attention step, fixed by its shape.

use super::problem::Problem;
use crate::gemm::part;
use pteron_core::{Grid, Isa};
use std::ops::Range;

/// Work that a chunk should have at least, in nanoseconds.
const SMALLEST_CHUNK_NS: usize = 16_000;
/// Chunks that are enough for any number of threads this engine is tuned for.
const ENOUGH_CHUNKS: usize = 8;
/// Rows from which packing a head's keys and values again for another chunk costs little.
const WORTH_PACKING: usize = 128;
/// Most rows of a chunk: sizes what is kept per row.
pub(super) const MAX_CHUNK_ROWS: usize = 1024;

/// Key heads × groups of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ChunkGrid {
    units: usize,
    unit_parts: usize,
    rows: usize,
    row_parts: usize,
    chunk_ns: usize,
}

impl ChunkGrid {
    pub(super) fn new(p: &Problem) -> ChunkGrid {
        let units = p.batch.saturating_mul(p.key_heads);
        let rows = p.unit_rows();
        let row_ns = row_ns(p);
        let unit_ns = row_ns.saturating_mul(rows).max(1);
        let total_ns = unit_ns.saturating_mul(units);
        let target_ns = (total_ns / ENOUGH_CHUNKS).max(SMALLEST_CHUNK_NS);
        // A unit is cut when it alone is more than a chunk should be, but not into slivers.
        let wanted = unit_ns.div_ceil(target_ns).min(rows.div_ceil(WORTH_PACKING));
        let row_parts = wanted.max(rows.div_ceil(MAX_CHUNK_ROWS)).max(1);
        // Few rows pack nothing, so that halves of them cost nothing; an odd head would be left to one of two threads.
        let halves =
            rows >= 2 && !units.is_multiple_of(2) && units < ENOUGH_CHUNKS && p.is_direct_or_scattered();
        let row_parts = if row_parts == 1 && halves { 2 } else { row_parts };
        let together = if row_parts == 1 { (target_ns / unit_ns).max(1) } else { 1 };
        let unit_parts = units.div_ceil(together).max(1);
        let chunk_ns = total_ns / (unit_parts.saturating_mul(row_parts)).max(1);
        ChunkGrid { units, unit_parts, rows, row_parts, chunk_ns }
    }

    /// The grid for the executor; empty when there is nothing to write.
    pub(super) fn grid(&self, isa: Isa) -> Grid {
        if self.units == 0 || self.rows == 0 {
            return Grid::EMPTY;
        }
        let slower = match isa {
            Isa::Avx512 => 1,
            Isa::Avx2 => 2,
            Isa::Neon => 4,
            Isa::Portable => 8,
        };
        let chunks = self.unit_parts.saturating_mul(self.row_parts);
        Grid::chunks(chunks, self.chunk_ns.saturating_mul(slower))
    }

    /// Units and rows of chunk `chunk`.
    pub(super) fn chunk(&self, chunk: usize) -> (Range<usize>, Range<usize>) {
        (
            part(self.units, self.unit_parts, chunk / self.row_parts),
            part(self.rows, self.row_parts, chunk % self.row_parts),
        )
    }
}

/// Estimated time of one query, at 100 floating-point operations per nanosecond.
fn row_ns(p: &Problem) -> usize {
    let products = p.depth.saturating_add(p.width).saturating_mul(2).saturating_mul(p.keys) / 100;
    products.saturating_add(p.keys / 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_row_once() {
        for (batch, key_heads, group, rows, keys) in [
            (1, 12, 1, 128, 128),
            (2, 1, 1, 2000, 2000),
            (1, 2, 4, 1, 900),
            (3, 12, 1, 8, 8),
            (1, 1, 1, 1, 1),
        ] {
            let p =
                Problem { batch, key_heads, group, rows, keys, depth: 64, width: 64, ..Problem::default() };
            let grid = ChunkGrid::new(&p);
            let mut seen = vec![0u8; batch * key_heads * group * rows];
            for chunk in 0..grid.grid(Isa::Avx512).chunk_count(0) {
                let (units, rows) = grid.chunk(chunk as usize);
                assert!(rows.len() <= MAX_CHUNK_ROWS);
                for unit in units {
                    rows.clone().for_each(|r| seen[unit * p.unit_rows() + r] += 1);
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{batch} {key_heads} {group} {rows} {keys}");
        }
    }

    #[test]
    fn nothing_to_write_is_an_empty_grid() {
        for (batch, key_heads, rows) in [(0, 4, 4), (1, 0, 4), (1, 4, 0)] {
            let p = Problem { batch, key_heads, group: 1, rows, keys: 3, ..Problem::default() };
            assert_eq!(ChunkGrid::new(&p).grid(Isa::Avx2), Grid::EMPTY);
        }
    }

    #[test]
    fn heads_are_shared_by_threads_and_small_work_is_one_chunk() {
        let p = Problem {
            batch: 1,
            key_heads: 12,
            group: 1,
            rows: 128,
            keys: 128,
            depth: 32,
            width: 32,
            ..Problem::default()
        };
        assert!(ChunkGrid::new(&p).grid(Isa::Avx512).chunk_count(0) >= 6);
        let p = Problem { rows: 8, keys: 8, ..p };
        assert_eq!(ChunkGrid::new(&p).grid(Isa::Avx512).chunk_count(0), 1);
    }
}
