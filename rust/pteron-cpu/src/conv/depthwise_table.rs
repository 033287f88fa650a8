//! Which input pixels the tiles of a channels-last depthwise convolution read: a table of addresses for a segment of lines, in
//! which those beside the input are a stretch of zeros.

use super::geometry::{Extents, Geometry};
use std::ops::Range;

/// Outputs of a tile along a line.
pub(super) const TILE: usize = 4;
/// Output lines that share a table where channels are a single vector; else it is two. Of many channels a whole
/// line passes before the next one begins: tensors come from afar in the order in which they lie.
pub(super) const LINES: usize = 14;
/// Largest kernel height and depth of such a window.
pub(super) const LARGEST: usize = 7;

/// Is the window one that the tiles are compiled for? They share the pixels of neighbouring outputs.
pub(super) fn is_compiled(geometry: &Geometry) -> bool {
    let Geometry { kernel: [depth, height, width], stride, dilation, .. } = *geometry;
    let is_known = matches!((width, stride[2]), (3 | 5, 1 | 2) | (7, 1));
    is_known && dilation[2] == 1 && depth <= LARGEST && height <= LARGEST
}

/// Is the window a square that moves as far down as it moves along a line, so that tiles are compiled for its height, too?
pub(super) fn is_square(geometry: &Geometry) -> bool {
    let Geometry { kernel, stride, dilation, padding, .. } = *geometry;
    let is_flat = kernel[0] == 1 && padding[0] == 0;
    is_compiled(geometry) && is_flat && kernel[1] == kernel[2] && stride[1] == stride[2] && dilation[1] == 1
}

/// Do windows of neighbouring lines overlap, so that two lines are computed together?
pub(super) fn has_pairs(geometry: &Geometry) -> bool {
    is_compiled(geometry) && geometry.dilation[1] == 1 && geometry.stride[1] <= 2
}

/// Output columns that share a table: a vector of what two lines of them read and write stays in the first-level
/// cache.
pub(super) const fn segment_length(width: usize, step: usize) -> usize {
    match (width, step) {
        (3, 1) => 56,
        (3, _) | (_, 1) => 28,
        _ => 16,
    }
}

/// Addresses per input line for `count` columns.
const fn segment_span(width: usize, step: usize, count: usize) -> usize {
    (count.next_multiple_of(TILE) - 1) * step + width
}

/// Entries of the table that a segment needs at most.
pub(super) fn table_entries(geometry: &Geometry) -> usize {
    let [depth, height, width] = geometry.kernel;
    if !is_compiled(geometry) {
        return depth * height * TILE * width;
    }
    let step = geometry.stride[2];
    let rows = if has_pairs(geometry) { (LINES - 1) * geometry.stride[1] + height } else { height };
    depth * rows * segment_span(width, step, segment_length(width, step))
}

/// Columns `first..first + count` of output lines from `line` on. The table has an address for each input pixel
/// that they read: depth by depth of the kernel (`z`), row by row (`y`, counted from the first row of the window of
/// the first line), those of them that lie inside the input.
pub(super) struct Segment {
    pub line: usize,
    pub first: usize,
    pub count: usize,
    pub z: Range<usize>,
    pub y: Range<usize>,
    /// Addresses per input line.
    pub span: usize,
}

/// The steps of a window's element along one dimension that fall inside `0..size`, when element 0 is at
/// `start` (before which `padding` is taken off) and there are `count`, `step` apart.
fn inside(start: usize, padding: usize, step: usize, count: usize, size: usize) -> Range<usize> {
    let below = |limit: usize| limit.saturating_sub(start).div_ceil(step).min(count);
    let first = below(padding);
    first..below(size + padding).max(first)
}

impl Segment {
    /// The first of the rows that the windows of `lines` lines from `start` on read, and the one behind them.
    #[inline(always)]
    pub fn window_rows(&self, start: usize, lines: usize, geometry: &Geometry) -> [usize; 2] {
        let (stride, height) = (geometry.stride[1], geometry.kernel[1]);
        let (first, last) = (start * stride, (start + lines - 1) * stride + height);
        let first = if first < self.y.start { self.y.start } else { first };
        [first, if last > self.y.end { self.y.end } else { last }]
    }
}

/// Where the pixels of a table lie.
pub(super) struct Source<'a> {
    pub geometry: &'a Geometry,
    pub extents: &'a Extents,
    /// The first channel at pixel 0 of image 0, and floats from pixel to pixel.
    pub input: *const f32,
    pub step: usize,
    /// One per channel: what a pixel outside reads.
    pub zeros: &'a [f32],
}

impl Source<'_> {
    /// Fills the table ([`table_entries`]) for columns `first..first + count` of output lines `line..line + lines`,
    /// counted over all images.
    pub fn fill<const KW: usize, const SW: usize>(
        &self,
        table: &mut [usize],
        [line, lines]: [usize; 2],
        [first, count]: [usize; 2],
    ) -> Segment {
        let Geometry { kernel, stride, dilation, padding, .. } = *self.geometry;
        let (input, output) = (self.extents.input, self.extents.output);
        let (rest, oy) = (line / output[1], line % output[1]);
        let (image, oz) = (rest / output[0], rest % output[0]);
        let rows = kernel[1] + (lines - 1) * stride[1];
        let z = inside(oz * stride[0], padding[0], dilation[0], kernel[0], input[0]);
        let y = inside(oy * stride[1], padding[1], dilation[1], rows, input[1]);
        let span = if KW == 0 { TILE * kernel[2] } else { segment_span(KW, SW, count) };
        let zeros = self.zeros.as_ptr() as usize;
        let mut entries = table.chunks_exact_mut(span);
        for kz in z.clone() {
            for ky in y.clone() {
                let z = oz * stride[0] + kz * dilation[0] - padding[0];
                let y = oy * stride[1] + ky * dilation[1] - padding[1];
                let pixel = ((image * input[0] + z) * input[1] + y) * input[2];
                let Some(entries) = entries.next() else {
                    unreachable!("the table has room for the lines of a window")
                };
                for (j, slot) in entries.iter_mut().enumerate() {
                    // Overlapping windows share addresses; others have TILE for each column of the kernel.
                    let column = match KW {
                        0 => (first + j % TILE) * stride[2] + j / TILE * dilation[2],
                        _ => first * SW + j,
                    };
                    let x = column.wrapping_sub(padding[2]);
                    *slot = match x < input[2] {
                        true => self.input.wrapping_add((pixel + x) * self.step) as usize,
                        false => zeros,
                    };
                }
            }
        }
        Segment { line, first, count, z, y, span }
    }
}
