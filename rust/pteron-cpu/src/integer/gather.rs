//! Rows of activations as the tiles read them: unsigned bytes, one row after another, the pixels of a window side by side.
//! Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride")]

use super::dots::Dots;
use crate::conv::geometry::{Extents, Geometry};
use std::ops::Range;

/// Bytes that short lines of windows are copied in, a little beyond their end, and how many such pieces make a short line.
const PIECE: usize = 16;
const MOST_PIECES: usize = 2;

/// Where rows come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// They lie as they are, this many bytes apart.
    Rows(usize),
    /// Each is the window of an output pixel of a channels-last tensor, counted over all images.
    Windows(&'a Geometry, &'a Extents),
}

/// Some rows that are brought together.
pub(super) struct Gather<'a> {
    pub source: Source<'a>,
    /// The first byte of the first row of all; of windows, of the group's first channel.
    pub input: *const u8,
    /// Bytes from there to the end of the input.
    pub readable: usize,
    /// Bytes of a row.
    pub length: usize,
    /// Bits that make unsigned bytes of the input's.
    pub flip: u8,
    /// What a pixel outside the image is, as an unsigned byte.
    pub zero: u8,
    /// Number of the first row.
    pub first: usize,
    pub count: usize,
    /// Where the first one goes; rows are `stride` bytes apart.
    pub to: *mut u8,
    pub stride: usize,
}

/// [`gather`] compiled for an instruction set.
pub(super) type GatherFn = unsafe fn(&Gather<'_>);

/// Brings the rows together.
///
/// # Safety
/// The caller is compiled for the instruction set of `D`, which the processor has; the rows exist in the source, and their
/// places can be written.
#[inline(always)]
pub(super) unsafe fn gather<D: Dots>(g: &Gather<'_>) {
    match g.source {
        Source::Rows(step) if step == g.length && g.stride == g.length => {
            // SAFETY: the caller promises these rows, which lie without gaps, and their places, which do, too.
            unsafe { D::copy(g.input.wrapping_add(g.first * step), g.to, g.count * g.length, g.flip) };
        }
        Source::Rows(step) => {
            for i in 0..g.count {
                let from = g.input.wrapping_add((g.first + i) * step);
                // SAFETY: the caller promises that row `first + i` exists and that its place can be written.
                unsafe { D::copy(from, g.to.wrapping_add(i * g.stride), g.length, g.flip) };
            }
        }
        Source::Windows(geometry, extents) => {
            let [_, height, width] = extents.output;
            let (mut x, rest) = (g.first % width, g.first / width);
            let (mut y, mut image) = (rest % height, rest / height);
            let mut line = Line::new(geometry, extents, y);
            let mut i = 0;
            while i < g.count {
                let to = g.to.wrapping_add(i * g.stride);
                // SAFETY: the caller promises that the windows exist and that their rows can be written.
                let done = unsafe {
                    match short::<D>(g, geometry, extents, &line, [image, x], g.count - i, to) {
                        0 => {
                            window::<D>(g, geometry, extents, &line, [image, x], to);
                            1
                        }
                        many => many,
                    }
                };
                (i, x) = (i + done, x + done);
                if x < width {
                    continue;
                }
                (x, y) = (0, y + 1);
                if y == height {
                    (y, image) = (0, image + 1);
                }
                line = Line::new(geometry, extents, y);
            }
        }
    }
}

/// Rows of bytes that become rows of 16-bit numbers.
pub(super) struct Widen {
    pub from: *const u8,
    /// May be before the rows themselves, in one piece of memory with them: `2 * count * stride` bytes before its end.
    pub to: *mut u8,
    /// Bytes between rows; twice as many between those that are made.
    pub stride: usize,
    /// Bytes of a row, at most `stride` when they are rounded up to [`PIECE`], unless there is a single row.
    pub length: usize,
    pub count: usize,
}

/// [`widen`] compiled for an instruction set.
pub(super) type WidenFn = unsafe fn(&Widen);

/// Widens the rows.
///
/// # Safety
/// The caller is compiled for the instruction set of `D`, which the processor has; rows, rounded up to [`PIECE`], can be read,
/// and twice as many bytes written.
#[inline(always)]
pub(super) unsafe fn widen<D: Dots>(w: &Widen) {
    for row in 0..w.count {
        let (from, to) = (w.from.wrapping_add(row * w.stride), w.to.wrapping_add(2 * row * w.stride));
        for at in (0..w.length).step_by(PIECE) {
            // SAFETY: the caller promises the piece and its place. What is written ends at or before the next piece that
            // is read: with `b` bytes read so far, gaps included, it ends at `2 * b`, and the next lies at `2 * all - all + b`.
            unsafe { D::widen(from.wrapping_add(at), to.wrapping_add(2 * at)) };
        }
    }
}

/// The windows of a line of output pixels.
struct Line {
    /// Input line of the window's first, with `padding` added.
    top: usize,
    /// Lines of the window that are inside the image.
    rows: Range<usize>,
    /// Output pixels whose windows are inside it from left to right.
    whole: Range<usize>,
}

impl Line {
    fn new(geometry: &Geometry, extents: &Extents, y: usize) -> Line {
        let (top, [_, height, width]) = (y * geometry.stride[1], extents.input);
        let rows = inside(top, geometry.padding[1], geometry.dilation[1], geometry.kernel[1], height);
        let first = geometry.padding[2].div_ceil(geometry.stride[2]);
        let room = (width + geometry.padding[2]).checked_sub(geometry.reach(2) + 1);
        let end = room.map_or(0, |room| room / geometry.stride[2] + 1);
        Line { top, rows, whole: first..end.max(first) }
    }
}

/// The elements of a window of `count` steps from `start` on (before which `padding` is taken off) that lie in `0..size`.
#[inline(always)]
fn inside(start: usize, padding: usize, step: usize, count: usize, size: usize) -> Range<usize> {
    let below = |limit: usize| limit.saturating_sub(start).div_ceil(step).min(count);
    let first = below(padding);
    first..below(size + padding).max(first)
}

/// Windows with short lines that lie inside the image, side by side, from column `x` on: `most` at most, how many. None
/// where they are other windows, or the input ends too soon behind them.
///
/// # Safety
/// As [`gather`]; the first output pixel exists, `to` has room for `most` rows.
#[inline(always)]
unsafe fn short<D: Dots>(
    g: &Gather<'_>,
    geometry: &Geometry,
    extents: &Extents,
    line: &Line,
    [image, x]: [usize; 2],
    most: usize,
    to: *mut u8,
) -> usize {
    let (channels, total) = (geometry.in_channels, geometry.total_in_channels());
    let [_, kernel_height, kernel_width] = geometry.kernel;
    let [_, height, width] = extents.input;
    let length = kernel_width * channels;
    let pieces = length.div_ceil(PIECE);
    let is_short = channels == total && geometry.dilation[2] == 1 && (1..=MOST_PIECES).contains(&pieces);
    let is_whole = line.rows.len() == kernel_height && line.whole.contains(&x);
    let has_room = (kernel_height - 1) * length + pieces * PIECE <= g.stride;
    if !(is_short && is_whole && has_room) {
        return 0;
    }
    let left = x * geometry.stride[2] - geometry.padding[2];
    let first = ((image * height + line.top - geometry.padding[1]) * width + left) * total;
    let (step, line_step) = (geometry.stride[2] * total, geometry.dilation[1] * width * total);
    let end = first + (kernel_height - 1) * line_step + pieces * PIECE;
    let Some(room) = g.readable.checked_sub(end) else { return 0 };
    let count = most.min(line.whole.end - x).min(extents.output[2] - x).min(room / step + 1);
    for i in 0..count {
        let (mut from, mut to) = (g.input.wrapping_add(first + i * step), to.wrapping_add(i * g.stride));
        for _ in 0..kernel_height {
            // Bytes behind a line are overwritten by the next one, or lie behind the row.
            // SAFETY: the last piece of the last line of the last window ends inside the input and before the next row, as
            // was just asked, and so do all others.
            unsafe {
                D::copy_16(from, to, g.flip);
                if pieces == 2 {
                    D::copy_16(from.wrapping_add(PIECE), to.wrapping_add(PIECE), g.flip);
                }
            }
            (from, to) = (from.wrapping_add(line_step), to.wrapping_add(length));
        }
    }
    count
}

/// One window.
///
/// # Safety
/// As [`gather`]; the output pixel exists, `to_row` has room for a row.
#[inline(always)]
unsafe fn window<D: Dots>(
    g: &Gather<'_>,
    geometry: &Geometry,
    extents: &Extents,
    line: &Line,
    [image, x]: [usize; 2],
    to_row: *mut u8,
) {
    let (channels, total) = (geometry.in_channels, geometry.total_in_channels());
    let [_, kernel_height, kernel_width] = geometry.kernel;
    let [_, height, width] = extents.input;
    let left = x * geometry.stride[2];
    let columns = match line.whole.contains(&x) {
        true => 0..kernel_width,
        false => inside(left, geometry.padding[2], geometry.dilation[2], kernel_width, width),
    };
    let length = kernel_width * channels;
    let is_run = channels == total && geometry.dilation[2] == 1;
    // SAFETY: lines and columns in range lie inside the image; the parts of a row are its bytes, once each.
    unsafe {
        let to = to_row;
        if line.rows.len() < kernel_height {
            to.write_bytes(g.zero, line.rows.start * length);
            to.add(line.rows.end * length).write_bytes(g.zero, (kernel_height - line.rows.end) * length);
        }
        for ky in line.rows.clone() {
            let at = line.top + ky * geometry.dilation[1] - geometry.padding[1];
            let to = to.add(ky * length);
            if columns.len() < kernel_width {
                to.write_bytes(g.zero, columns.start * channels);
                to.add(columns.end * channels).write_bytes(g.zero, (kernel_width - columns.end) * channels);
            }
            let pixels = (image * height + at) * width + left;
            let pixel = |kx: usize| pixels + kx * geometry.dilation[2] - geometry.padding[2];
            if is_run && !columns.is_empty() {
                let from = g.input.add(pixel(columns.start) * total);
                D::copy(from, to.add(columns.start * channels), columns.len() * channels, g.flip);
                continue;
            }
            for kx in columns.clone() {
                D::copy(g.input.add(pixel(kx) * total), to.add(kx * channels), channels, g.flip);
            }
        }
    }
}
