//! The kernel: a phase that quantises rows into the shared scratch, a phase of products. Unsafe island.
#![allow(unsafe_code, reason = "rows are addressed by stride, and chunks share the result")]

use super::kit::Kit;
use super::rows::PrepareRows;
use super::tile::Tile;
use crate::executor::even_parts;
use crate::gemm::part;
use crate::integer::product::row_stride;
use crate::integer::spec::RowScheme;
use crate::packed::u4_nr32k8_v1::{BLOCK, NR, Panels};
use pteron_core::{AlignedBuffer, Args, BindArgs, Error, Grid, PackedBytes, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part};
use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;
use std::sync::Arc;

/// Numbers that a chunk of the quantising phase takes, about.
const CHOSEN: usize = 32 << 10;
/// Rows that meet a panel while it is in the cache.
const BLOCK_ROWS: usize = 96;
/// Work that a chunk should have at least, in nanoseconds: fifty times what claiming it costs.
const SMALLEST_CHUNK_NS: usize = 8_000;
/// Work that it should have at most: cancellation is polled between chunks.
const LARGEST_CHUNK_NS: usize = 1_000_000;
/// Chunks that are enough for any number of threads this engine is tuned for.
const ENOUGH_CHUNKS: usize = 32;
/// Bytes of panels and scales per nanosecond that come from memory.
const BYTES_PER_NS: usize = 14;

pub(super) struct Linear {
    pub kit: &'static Kit,
    pub level: SimdLevel,
    pub panels: Panels,
    /// [groups, N] in panels.
    pub scales: Arc<PackedBytes>,
    /// Are scales of bfloat16? Else of f32.
    pub are_brain: bool,
    /// Sums of the weights of whole panels of columns, then as many biases, if there are any.
    pub columns: AlignedBuffer,
    pub has_bias: bool,
    pub scheme: RowScheme,
    pub k: usize,
    pub n: usize,
    /// Blocks that share a scale.
    pub blocks_of_group: usize,
    pub low: f32,
    pub high: f32,
    /// Position of the output.
    pub out: usize,
    /// Rows at most.
    pub most_rows: usize,
}

/// Row blocks × panel groups.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Split {
    rows: usize,
    row_parts: usize,
    panels: usize,
    panel_parts: usize,
}

/// Where the parts of a scratch for rows are.
struct Quantised {
    bytes: *mut u8,
    starts: *mut u32,
    zeros: *mut f32,
    scales: *mut f32,
}

impl Linear {
    fn blocks(&self) -> usize {
        self.k.div_ceil(BLOCK)
    }

    /// Bytes between rows of the scratch.
    fn stride(&self) -> usize {
        row_stride(self.k)
    }

    /// Bytes of the scales of a panel.
    fn scale_bytes(&self) -> usize {
        let size = if self.are_brain { size_of::<u16>() } else { size_of::<f32>() };
        self.blocks() / self.blocks_of_group * NR * size
    }

    /// Rows of a chunk of the quantising phase.
    fn chosen_rows(&self) -> usize {
        CHOSEN.div_ceil(self.k.max(1))
    }

    /// Bytes of the parts of a scratch for so many rows, in order.
    fn parts(&self, rows: usize) -> [usize; 4] {
        let words = |count: usize| rows.saturating_mul(count).saturating_mul(size_of::<u32>());
        [rows.saturating_mul(self.stride()), words(self.blocks()), words(1), words(1)]
    }

    fn bytes_for(&self, rows: usize) -> usize {
        self.parts(rows).into_iter().fold(0, usize::saturating_add)
    }

    fn quantised(&self, scratch: *mut u8, rows: usize) -> Quantised {
        let [bytes, starts, zeros, _] = self.parts(rows);
        let at = |offset: usize| scratch.wrapping_add(offset);
        Quantised {
            bytes: scratch,
            starts: at(bytes).cast(),
            zeros: at(bytes + starts).cast(),
            scales: at(bytes + starts + zeros).cast(),
        }
    }

    fn split(&self, rows: usize) -> (Split, usize) {
        let panels = self.n.div_ceil(NR);
        let row_parts = rows.div_ceil(BLOCK_ROWS).max(1);
        let panel_products = rows.div_ceil(row_parts) * self.k * NR;
        let panel_bytes = self.panels.stride() + self.scale_bytes();
        let panel_ns = (panel_products / self.kit.products_per_ns).max(panel_bytes / BYTES_PER_NS).max(1);
        let total_ns = panel_ns.saturating_mul(panels).saturating_mul(row_parts);
        let target_ns = (total_ns / ENOUGH_CHUNKS).clamp(SMALLEST_CHUNK_NS, LARGEST_CHUNK_NS);
        let panel_parts = panel_ns.saturating_mul(panels).div_ceil(target_ns).clamp(1, panels.max(1));
        let panel_parts = if row_parts == 1 { even_parts(panel_parts, panels) } else { panel_parts };
        let chunk_ns = total_ns / (row_parts * panel_parts);
        (Split { rows, row_parts, panels, panel_parts }, chunk_ns)
    }

    /// Quantises rows `range` into a scratch.
    ///
    /// # Safety
    /// The scratch has room for the rows, and nobody else writes what is theirs.
    unsafe fn choose(&self, args: &Args<'_>, range: Range<usize>, shared: &Quantised) -> Result<()> {
        let (k, stride, blocks, n) = (self.k, self.stride(), self.blocks(), range.len());
        let input = args.tensor(0)?.ptr::<f32>()?;
        // SAFETY: the rows exist in the input (`bind` counted them) and in the scratch, which nobody else writes, as the caller
        // promises; parts of the scratch begin at multiples of four.
        let task = unsafe {
            PrepareRows {
                rows: std::slice::from_raw_parts(input.add(range.start * k), n * k),
                length: k,
                scheme: self.scheme,
                bytes: std::slice::from_raw_parts_mut(shared.bytes.add(range.start * stride), n * stride),
                stride,
                starts: std::slice::from_raw_parts_mut(shared.starts.add(range.start * blocks), n * blocks),
                halves: self.kit.halves,
                zeros: std::slice::from_raw_parts_mut(shared.zeros.add(range.start), n),
                scales: std::slice::from_raw_parts_mut(shared.scales.add(range.start), n),
            }
        };
        self.level.dispatch(task);
        Ok(())
    }

    /// Rows `rows` times panels `panels`.
    ///
    /// # Safety
    /// The rows were quantised; the output has them, and no other chunk writes these columns of theirs.
    unsafe fn multiply(&self, rows: Range<usize>, panels: Range<usize>, shared: &Quantised, out: *mut f32) {
        let blocks = self.blocks();
        let whole = self.n.next_multiple_of(NR);
        let functions = self.kit.tiles[usize::from(self.are_brain)];
        let (sums, scales) = (self.columns.as_ptr().cast::<f32>(), self.scales.as_ptr());
        let tiles = rows.len().div_ceil(self.kit.max_rows());
        for panel in panels {
            let column = panel * NR;
            for i in 0..tiles {
                let part = part(rows.len(), tiles, i);
                let (row, count) = (rows.start + part.start, part.len());
                let tile = Tile {
                    blocks,
                    in_group: self.blocks_of_group,
                    row: shared.bytes.wrapping_add(row * self.stride()).cast_const().cast(),
                    stride: self.stride(),
                    starts: shared.starts.wrapping_add(row * blocks),
                    zeros: shared.zeros.wrapping_add(row),
                    row_scales: shared.scales.wrapping_add(row),
                    panel: self.panels.as_ptr().wrapping_add(panel * self.panels.stride()),
                    scales: scales.wrapping_add(panel * self.scale_bytes()),
                    weight_sums: sums.wrapping_add(column),
                    bias: if self.has_bias { sums.wrapping_add(whole + column) } else { std::ptr::null() },
                    columns: NR.min(self.n - column),
                    low: self.low,
                    high: self.high,
                    out: out.wrapping_add(row * self.n + column),
                    out_stride: self.n,
                };
                if let Some(function) = count.checked_sub(1).and_then(|i| functions.get(i)) {
                    // SAFETY: the kit is one of this processor; panels, scales and columns are there for whole panels of
                    // whole blocks, and the caller promises rows and output.
                    unsafe { function(&tile) };
                }
            }
        }
    }
}

impl GridKernel for Linear {
    type Problem = Split;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 0, shared: self.bytes_for(self.most_rows) }
    }

    fn needs(&self, index: usize) -> bool {
        index == 0 || index == self.out
    }

    fn new_problem(&self) -> Split {
        Split::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, split: &mut Split) -> Result<Grid> {
        let mut shape = *args.args().tensor(0)?.shape();
        let last = shape.last_mut().filter(|last| **last == self.k).ok_or_else(|| {
            Error::kernel("the input of a linear layer has another length than its weight")
                .expected(format!("rows of {}", self.k))
        })?;
        *last = self.n;
        let rows: usize = shape[..shape.len() - 1].iter().product();
        args.resize(self.out, &shape)?;
        if rows > self.most_rows {
            return Err(Error::kernel("the input of a linear layer is larger than its upper bound")
                .expected(format!("at most {} rows", self.most_rows))
                .got(rows.to_string()));
        }
        if rows == 0 {
            return Ok(Grid::EMPTY);
        }
        let (found, chunk_ns) = self.split(rows);
        *split = found;
        let chunks = [rows.div_ceil(self.chosen_rows()), found.row_parts * found.panel_parts];
        Ok(Grid::phases(&chunks, chunk_ns))
    }

    fn run(&self, split: &Split, part_of: Part<'_>) -> Result<()> {
        let quantised = self.quantised(part_of.scratch.shared, self.most_rows);
        if part_of.phase == 0 {
            let rows = self.chosen_rows();
            let first = part_of.chunk * rows;
            // SAFETY: the shared scratch has room for `most_rows`, and no other chunk has these rows.
            return unsafe { self.choose(part_of.args, first..(first + rows).min(split.rows), &quantised) };
        }
        // Neighbouring chunks share panels.
        let (panel, row) = (part_of.chunk / split.row_parts, part_of.chunk % split.row_parts);
        let rows = part(split.rows, split.row_parts, row);
        let panels = part(split.panels, split.panel_parts, panel);
        let out = part_of.args.output(self.out)?.as_ptr().cast::<f32>();
        // SAFETY: all rows are quantised in the phase before; the output is dense f32, has a row for each, and overlaps nothing
        // (alias rule `None`); chunks are of different rows or panels.
        unsafe { self.multiply(rows, panels, &quantised, out) };
        Ok(())
    }
}
