//! How a call is laid out and split: planes with margins, tiles of weights, units of pixels.

use super::super::geometry::{Extents, Geometry};
use super::super::window::{Phase, phase, phase_count};
use std::ops::Range;

/// Most output channels of a tile.
pub(super) const TILE: usize = 6;
/// Pixels of a unit at most.
const PIXELS: usize = 256;
/// Numbers between the rows of a tile's sums: a unit, and what the last vectors of it have too much.
pub(super) const STRIPE: usize = PIXELS + SLACK;
/// Zeros behind the planes, which the last vectors read: the columns of a tile at most.
pub(super) const SLACK: usize = 64;
/// Bytes of the planes that the tiles of a unit share: half a second-level cache.
const SHARED_BYTES: usize = 256 << 10;
/// Output channels of a unit: whole tiles.
const ROWS: usize = 16 * TILE;
/// Numbers that a chunk lays out at least.
const CHUNK: usize = 16 << 10;

/// The planes of a call. Number `i` of the plane of remainder `r` along a dimension is input `i · step + r + origin`, zero
/// when there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub extents: Extents,
    /// Input channels, of all groups.
    pub channels: usize,
    /// See [`Plan`].
    pub origin: [isize; 3],
    /// See [`Plan`].
    pub step: [usize; 3],
    /// Planes of a channel along each dimension.
    pub remainders: [usize; 3],
    /// Extents of a plane.
    pub size: [usize; 3],
    /// Numbers of the planes of a channel, and of all planes.
    pub per_channel: usize,
    pub planes: usize,
    /// Numbers of packed weights.
    pub packed: usize,
    /// Chunks that lay out lines, and those that pack tiles; how many a chunk has.
    pub line_chunks: usize,
    pub tile_chunks: usize,
    lines_per_chunk: usize,
    tiles_per_chunk: usize,
    /// Tiles of all groups.
    tiles: usize,
    /// Units of pixels, and about how long one takes.
    pub units: usize,
    pub unit_ns: usize,
    phases: usize,
    row_blocks: usize,
    /// Are pixels of all depths counted in one go?
    is_flat: bool,
    depths: usize,
    pixel_blocks: usize,
    pixels_per_block: usize,
}

/// The part of the output that a unit computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub image: usize,
    pub group: usize,
    pub phase: usize,
    /// Output channels within the group.
    pub rows: [usize; 2],
    /// The depth that pixels are counted from, and the numbers counted.
    pub depth: usize,
    pub pixels: [usize; 2],
}

/// Number of tiles for `rows` output channels: full ones, and a half, a third and a sixth for what is left.
pub(super) fn tile_count(rows: usize) -> usize {
    rows / TILE + (rows % TILE).count_ones() as usize
}

/// First output channel and height of tile `index` of `rows` output channels.
pub(super) fn tile(rows: usize, index: usize) -> [usize; 2] {
    let full = rows / TILE;
    if index < full {
        return [index * TILE, TILE];
    }
    let (mut row, mut left) = (full * TILE, index - full);
    for height in [4, 2, 1] {
        if (rows % TILE) & height != 0 {
            if left == 0 {
                return [row, height];
            }
            (row, left) = (row + height, left - 1);
        }
    }
    [rows, 0]
}

impl Plan {
    /// The plan of a call in numbers of `width` bytes; `None` where sizes leave their range.
    pub fn of(geometry: &Geometry, extents: &Extents, width: usize) -> Option<Plan> {
        let mut plan = Plan::planes_of(geometry, extents)?;
        let depth = geometry.depth();
        plan.packed = geometry.total_out_channels().checked_mul(depth)?;
        // The planes begin at a line of the cache.
        plan.packed = plan.packed.checked_next_multiple_of(16)?;
        plan.packed.checked_add(plan.planes)?.checked_add(SLACK)?.checked_mul(width)?;
        plan.split(geometry, depth, width)?;
        Some(plan)
    }

    /// Do the margins leave the input about as large as the tensors are?
    pub fn is_modest(&self, geometry: &Geometry) -> bool {
        let numbers = |channels: usize, extents: [usize; 3]| {
            self.extents.images.checked_mul(channels.checked_mul(product(extents)?)?)
        };
        let tensors = || {
            let input = numbers(geometry.total_in_channels(), self.extents.input)?;
            let output = numbers(geometry.total_out_channels(), self.extents.output)?;
            input.checked_add(output)?.checked_mul(4)?.checked_add(64 << 10)
        };
        tensors().is_some_and(|most| self.planes <= most)
    }

    fn planes_of(geometry: &Geometry, extents: &Extents) -> Option<Plan> {
        let mut origin = [0; 3];
        let [mut step, mut remainders, mut size] = [[0; 3]; 3];
        for d in 0..3 {
            let (stride, padding, reach) = (geometry.stride[d], geometry.padding[d], geometry.reach(d));
            let last = extents.output[d].checked_sub(1)?;
            (origin[d], step[d], remainders[d], size[d]) = match geometry.is_transposed {
                false => {
                    let rows = last.checked_add(reach / stride)?.checked_add(1)?;
                    (-(padding as isize), stride, stride.min(reach + 1), rows)
                }
                // Input (o + padding − k · dilation) / stride, from the last tap of the first output on.
                true => {
                    let first = (padding as isize - reach as isize).div_euclid(stride as isize);
                    let end = (last.checked_add(padding)? / stride) as isize;
                    (first, 1, 1, usize::try_from(end - first + 1).ok()?)
                }
            };
        }
        let channels = geometry.total_in_channels();
        let per_channel = product(remainders)?.checked_mul(product(size)?)?;
        let planes = extents.images.checked_mul(channels)?.checked_mul(per_channel)?;
        Some(Plan {
            extents: *extents,
            channels,
            origin,
            step,
            remainders,
            size,
            per_channel,
            planes,
            packed: 0,
            line_chunks: 0,
            tile_chunks: 0,
            lines_per_chunk: 1,
            tiles_per_chunk: 1,
            tiles: 0,
            units: 0,
            unit_ns: 0,
            phases: 1,
            row_blocks: 1,
            is_flat: true,
            depths: 1,
            pixel_blocks: 1,
            pixels_per_block: 1,
        })
    }

    fn split(&mut self, geometry: &Geometry, depth: usize, width: usize) -> Option<()> {
        let lines = self.planes / self.size[2].max(1);
        self.lines_per_chunk = CHUNK.div_ceil(self.size[2].max(1));
        self.line_chunks = lines.div_ceil(self.lines_per_chunk);
        self.tiles = geometry.groups.checked_mul(tile_count(geometry.out_channels))?;
        self.tiles_per_chunk = CHUNK.div_ceil(depth.saturating_mul(TILE)).max(1);
        self.tile_chunks = self.tiles.div_ceil(self.tiles_per_chunk);

        // The first phase has the most pixels.
        let counts = phase(geometry, &self.extents, 0).axes.map(|a| a.count);
        let room = (SHARED_BYTES / width / depth.max(1)).clamp(64, PIXELS) / 64 * 64;
        let rounded = |is_flat: bool| {
            let pixels = self.pixels(counts, is_flat);
            pixels.next_multiple_of(SLACK / 2).saturating_mul(if is_flat { 1 } else { counts[0] })
        };
        self.is_flat = rounded(true) <= rounded(false);
        self.depths = if self.is_flat { 1 } else { counts[0] };
        let pixels = self.pixels(counts, self.is_flat);
        self.pixel_blocks = pixels.div_ceil(room);
        // Blocks alike.
        self.pixels_per_block = pixels.div_ceil(self.pixel_blocks.max(1)).next_multiple_of(32).min(PIXELS);
        self.pixel_blocks = pixels.div_ceil(self.pixels_per_block.max(1));
        self.phases = phase_count(geometry, &self.extents);
        self.row_blocks = geometry.out_channels.div_ceil(ROWS);
        self.units = [geometry.groups, self.phases, self.row_blocks, self.depths, self.pixel_blocks]
            .into_iter()
            .try_fold(self.extents.images, usize::checked_mul)?;
        let rows = geometry.out_channels.min(ROWS);
        let products = rows.saturating_mul(self.pixels_per_block).saturating_mul(depth) / self.phases.max(1);
        // About 128 bytes of products a nanosecond.
        self.unit_ns = (products / (128 / width.max(1))).saturating_add(500);
        (self.units.max(self.line_chunks.checked_add(self.tile_chunks)?) < u32::MAX as usize).then_some(())
    }

    /// Numbers of shared scratch: weights, planes and what is read behind them.
    pub fn numbers(&self) -> usize {
        self.packed + self.planes + SLACK
    }

    /// The numbers counted for so many outputs of a phase, from the first to the last.
    fn pixels(&self, [depth, height, width]: [usize; 3], is_flat: bool) -> usize {
        let [_, rows, columns] = self.size;
        let planes = if is_flat { depth.saturating_sub(1) * rows } else { 0 };
        (planes + height.saturating_sub(1)) * columns + width
    }

    /// The lines of a chunk.
    pub fn lines_of(&self, chunk: usize) -> Range<usize> {
        let lines = self.planes / self.size[2].max(1);
        let first = (chunk * self.lines_per_chunk).min(lines);
        first..(first + self.lines_per_chunk).min(lines)
    }

    /// The tiles of a chunk, of all groups.
    pub fn tiles_of(&self, chunk: usize) -> Range<usize> {
        let first = (chunk * self.tiles_per_chunk).min(self.tiles);
        first..(first + self.tiles_per_chunk).min(self.tiles)
    }

    /// What unit `unit` computes, if anything: later phases have fewer pixels than the first.
    pub fn place(&self, geometry: &Geometry, unit: usize) -> Option<Place> {
        let mut rest = unit;
        let mut digit = |extent: usize| {
            let digit = rest % extent.max(1);
            rest /= extent.max(1);
            digit
        };
        let block = digit(self.pixel_blocks);
        let depth = digit(self.depths);
        let rows = digit(self.row_blocks) * ROWS;
        let index = digit(self.phases);
        let group = digit(geometry.groups);
        let counts = phase(geometry, &self.extents, index).axes.map(|a| a.count);
        let pixels = self.pixels(counts, self.is_flat);
        let first = block * self.pixels_per_block;
        if first >= pixels || depth >= counts[0] {
            return None;
        }
        Some(Place {
            image: rest,
            group,
            phase: index,
            rows: [rows, (rows + ROWS).min(geometry.out_channels)],
            depth,
            pixels: [first, (first + self.pixels_per_block).min(pixels)],
        })
    }

    /// Where each tap of a phase reads for the first pixel, in numbers from the beginning of a channel's planes.
    pub fn fill_table<'a>(&self, phase: &Phase, table: &'a mut [usize]) -> &'a [usize] {
        let axes = &phase.axes;
        let plane = self.size[0] * self.size[1] * self.size[2];
        let at = |d: usize, t: usize| {
            let a = &axes[d];
            let from = (a.in_start + t as isize * a.tap_step - self.origin[d]) as usize;
            let (remainder, shift) = (from % self.step[d], from / self.step[d]);
            let planes: usize = self.remainders[d + 1..].iter().product();
            let numbers: usize = self.size[d + 1..].iter().product();
            remainder * planes * plane + shift * numbers
        };
        let mut n = 0;
        for t in 0..axes[0].taps {
            for u in 0..axes[1].taps {
                for v in 0..axes[2].taps {
                    let Some(slot) = table.get_mut(n) else { return &[] };
                    *slot = at(0, t) + at(1, u) + at(2, v);
                    n += 1;
                }
            }
        }
        &table[..n]
    }
}

/// Taps in the packed weights before those of the residue class that a phase reads: classes lie one behind the other.
pub(super) fn taps_before(kernel: [usize; 3], start: [usize; 3], step: [usize; 3]) -> usize {
    let before = |d: usize| start[d] * (kernel[d] / step[d]) + start[d].min(kernel[d] % step[d]);
    let own = |d: usize| kernel[d].saturating_sub(start[d]).div_ceil(step[d]);
    (before(0) * kernel[1] + own(0) * before(1)) * kernel[2] + own(0) * own(1) * before(2)
}

fn product(extents: [usize; 3]) -> Option<usize> {
    extents.into_iter().try_fold(1, usize::checked_mul)
}
