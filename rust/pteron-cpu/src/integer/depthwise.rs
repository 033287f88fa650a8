//! The depthwise kernel: every channel has its own window, and vectors hold channels. Tensors that lie in channel planes
//! are brought into channels-last order in phases of their own. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::columns::{Columns, Numbers};
use super::depthwise_pixels::{Block, Pixels, QUAD, Tap};
use super::kit::Kit;
use super::planes::{Phase, Reordered, Tensors};
use super::product::phases;
use super::window::Call;
use crate::conv::geometry::{Extents, Geometry};
use pteron_core::{AlignedBuffer, BindArgs, Grid, PrepareContext, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use std::ops::Range;

/// Taps of a window at most: their table is part of the scratch.
const MOST_TAPS: usize = 1024;
/// Output bytes of a chunk, about.
const CHUNK: usize = 32 << 10;
/// Channels that one kit computes.
struct Blocks {
    kit: &'static Kit,
    blocks: Vec<Block>,
}

struct Depthwise {
    call: Call,
    numbers: Numbers,
    reordered: Reordered,
    /// The first has all channels but for a rest.
    parts: Vec<Blocks>,
    window: Window,
    /// Are there fewer channels than a block has, so that they are computed in memory with room for one?
    is_narrow: bool,
}

/// The taps of a window in the order of the quads.
#[derive(Clone, Copy)]
struct Window {
    height: usize,
    width: usize,
    /// Whole quads.
    taps: usize,
    /// Is each quad a column, so that windows beside each other have quads in common? Else the elements go row by row.
    has_columns: bool,
}

impl Window {
    fn new(geometry: &Geometry) -> Window {
        let [_, height, width] = geometry.kernel;
        let has_columns = (3..=QUAD).contains(&height) && geometry.dilation[2] == 1;
        let taps = if has_columns { QUAD * width } else { (height * width).next_multiple_of(QUAD) };
        Window { height, width, taps, has_columns }
    }

    /// The tap of the element in row `y` and column `x`.
    fn place(&self, y: usize, x: usize) -> usize {
        if self.has_columns { x * QUAD + y } else { y * self.width + x }
    }
}

/// Lines of a chunk.
#[derive(Clone, Copy, Default)]
struct Bound {
    extents: Extents,
    lines: usize,
}

/// Is it a convolution for this kernel?
pub(super) fn takes(call: &Call) -> bool {
    let Geometry { in_channels, out_channels, groups, .. } = call.geometry;
    in_channels == 1 && out_channels == 1 && groups > 1 && call.geometry.taps() <= MOST_TAPS
}

/// Prepares a depthwise convolution that [`takes`] says is one; `kits` are those that may be used, best first.
pub(super) fn prepare(
    ctx: &PrepareContext<'_>,
    call: Call,
    numbers: Numbers,
    kits: &[&'static Kit],
) -> Preparation {
    // Vectors that are wider than the channels would be empty in part.
    let fitting = kits.iter().find(|kit| kit.channels <= call.geometry.groups).or(kits.first());
    let (Some(weight), Some(kit)) = (ctx.args.get(1).and_then(|a| a.constant()), fitting) else {
        return Ok(None);
    };
    // Row-major [C, 1, window].
    let weights = weight.row_major::<i8>()?;
    let (channels, window) = (call.geometry.groups, Window::new(&call.geometry));
    let mut parts: Vec<Blocks> = Vec::new();
    for (start, kit) in starts(channels, kit, kits) {
        // The last block begins earlier instead of ending later.
        let channel = start.min(channels.saturating_sub(kit.channels));
        let block = block(&numbers, kit, &weights, channels, window, channel)?;
        match parts.last_mut() {
            Some(part) if std::ptr::eq(part.kit, kit) => part.blocks.push(block),
            _ => parts.push(Blocks { kit, blocks: vec![block] }),
        }
    }
    let name = format!("integer.convolution.depthwise.{}", kit.name);
    let is_narrow = channels < kit.channels;
    let reordered = Reordered::new(ctx, call, &numbers)?;
    prepared(name, Depthwise { call, numbers, reordered, parts, window, is_narrow })
}

/// Where each block of channels starts, and the kit that computes it: `kit`, but for channels at the end that another one
/// with shorter vectors computes in less time.
fn starts(
    channels: usize,
    kit: &'static Kit,
    kits: &[&'static Kit],
) -> impl Iterator<Item = (usize, &'static Kit)> {
    let rest = channels % kit.channels;
    let time = |kit: &Kit| kit.channels * 1000 / kit.products_per_ns;
    let fits = |other: &&&'static Kit| (rest..=channels).contains(&other.channels);
    let last =
        kits.iter().filter(fits).min_by_key(|other| time(other)).filter(|other| time(other) < time(kit));
    let last = *last.unwrap_or(&kit);
    let is_rest = move |start: usize| channels - start < kit.channels;
    (0..channels).step_by(kit.channels).map(move |start| (start, if is_rest(start) { last } else { kit }))
}

/// The block that begins with `channel`.
fn block(
    numbers: &Numbers,
    kit: &Kit,
    weights: &[i8],
    channels: usize,
    shape: Window,
    channel: usize,
) -> Result<Block> {
    let lanes = kit.channels;
    let elements = shape.height * shape.width;
    let mut packed = AlignedBuffer::zeroed(shape.taps * lanes * kit.width)?;
    let mut columns = Columns::new(lanes)?;
    for lane in 0..lanes {
        let c = channel + (kit.channel_of)(lane);
        if c >= channels {
            continue;
        }
        let window = &weights[c * elements..(c + 1) * elements];
        for (i, w) in window.iter().enumerate() {
            let t = shape.place(i / shape.width, i % shape.width);
            let place = (kit.tap_place)(t, lane);
            match kit.width {
                1 => packed.as_mut_slice()[place] = *w as u8,
                _ => packed.as_mut_elements::<i16>()[place] = i16::from(*w),
            }
        }
        let sum = window.iter().map(|w| i32::from(*w)).sum();
        columns.set(lane, numbers.column(c, sum, kit.shift));
    }
    Ok(Block { channel, weights: packed, columns })
}

impl Depthwise {
    fn channels(&self) -> usize {
        self.call.geometry.groups
    }

    /// The kit of most channels.
    fn kit(&self) -> Option<&'static Kit> {
        self.parts.first().map(|part| part.kit)
    }

    /// Channels of its blocks.
    fn lanes(&self) -> usize {
        self.kit().map_or(1, |kit| kit.channels)
    }

    /// Bytes of a row of zero points, of the gathered taps and of the results of a narrow call.
    fn scratch_parts(&self) -> [usize; 3] {
        let lanes = self.lanes();
        let zeros = self.channels().max(lanes);
        match self.is_narrow {
            true => [zeros, self.window.taps * lanes, lanes * size_of::<f32>()],
            false => [zeros, 0, 0],
        }
    }

    /// Elements of the window that lie inside, along dimension `d` for output `at`, and the input position of the first of
    /// all, which may be negative.
    fn inside(&self, extents: &Extents, d: usize, at: usize) -> (Range<usize>, isize) {
        let g = &self.call.geometry;
        let start = (at * g.stride[d]) as isize - g.padding[d] as isize;
        let (step, size) = (g.dilation[d] as isize, extents.input[d] as isize);
        let is_inside = |k: &usize| (0..size).contains(&(start + *k as isize * step));
        let first = (0..g.kernel[d]).find(is_inside).unwrap_or(0);
        let count = (first..g.kernel[d]).take_while(is_inside).count();
        (first..first + count, start)
    }

    /// Output columns whose windows lie inside the image's width.
    fn whole(&self, extents: &Extents) -> Range<usize> {
        let g = &self.call.geometry;
        let (width, out) = (extents.input[2], extents.output[2]);
        let first = g.padding[2].div_ceil(g.stride[2]).min(out);
        let room = (width + g.padding[2]).checked_sub(g.reach(2) + 1);
        let end = room.map_or(0, |room| room / g.stride[2] + 1).min(out);
        first..end.max(first)
    }

    /// Fills the table for the output pixel (line, column).
    fn fill(
        &self,
        extents: &Extents,
        input: *const u8,
        zeros: *const u8,
        [line, x]: [usize; 2],
        table: &mut [Tap],
    ) {
        let g = &self.call.geometry;
        let [_, height, width] = extents.input;
        let (image, y) = (line / extents.output[1], line % extents.output[1]);
        let (rows, top) = self.inside(extents, 1, y);
        let (columns, left) = self.inside(extents, 2, x);
        let channels = self.channels();
        let outside = Tap { first: zeros as usize, step: 0 };
        table.fill(outside);
        for ky in rows {
            let row = (image * height) as isize + top + (ky * g.dilation[1]) as isize;
            for kx in columns.clone() {
                let pixel = row * width as isize + left + (kx * g.dilation[2]) as isize;
                let first = input.wrapping_offset(pixel * channels as isize);
                if let Some(tap) = table.get_mut(self.window.place(ky, kx)) {
                    *tap = Tap { first: first as usize, step: g.stride[2] * channels };
                }
            }
        }
    }
}

/// The memory of a worker.
struct Memory<'a> {
    table: &'a mut [Tap],
    /// Of a narrow call: taps that lie in `gathered`, whose place is for results of a block.
    gathered_table: &'a mut [Tap],
    gathered: &'a mut [u8],
    results: &'a mut [u8],
}

impl Depthwise {
    /// Computes `count` pixels of a line, whose table is that of the first.
    ///
    /// # Safety
    /// The taps of the pixels exist, `out` has room for their channels.
    unsafe fn pixels(&self, memory: &mut Memory<'_>, flip: u8, count: usize, out: *mut u8) {
        let (numbers, channels) = (&self.numbers, self.channels());
        let step = channels * numbers.out_bytes();
        let mut pixels = Pixels {
            blocks: &[],
            taps: memory.table,
            count,
            column_step: if self.window.has_columns { self.call.geometry.stride[2] } else { 0 },
            flip,
            low: numbers.low,
            high: numbers.high,
            is_bounded: numbers.is_bounded,
            narrowing: numbers.narrowing,
            out,
            step,
        };
        if !self.is_narrow {
            for part in &self.parts {
                pixels.blocks = &part.blocks;
                // SAFETY: the caller promises the taps and the output for all channels, which every block lies within; the
                // kit is one of this processor.
                unsafe { (part.kit.pixels)(&pixels) };
            }
            return;
        }
        let Some(part) = self.parts.first() else { return };
        pixels.blocks = &part.blocks;
        pixels.taps = memory.gathered_table;
        (pixels.count, pixels.out) = (1, memory.results.as_mut_ptr());
        for i in 0..count {
            for (tap, room) in memory.table.iter().zip(memory.gathered.chunks_exact_mut(part.kit.channels)) {
                // SAFETY: the caller promises the channels of the tap; there is room for a block's.
                unsafe { tap.channels(i, 0).copy_to_nonoverlapping(room.as_mut_ptr(), channels) };
            }
            // SAFETY: taps and results have room for a whole block; the caller promises the output for its channels; the
            // kit is one of this processor.
            unsafe {
                (part.kit.pixels)(&pixels);
                memory.results.as_ptr().copy_to_nonoverlapping(out.add(i * step), step);
            }
        }
    }
}

impl GridKernel for Depthwise {
    type Problem = Bound;

    fn scratch(&self) -> Scratch {
        let table = 2 * self.window.taps * size_of::<Tap>();
        Scratch {
            per_worker: table + self.scratch_parts().iter().sum::<usize>(),
            shared: self.reordered.shared_bytes(),
        }
    }

    fn needs(&self, index: usize) -> bool {
        index == 0 || index == self.call.out
    }

    fn new_problem(&self) -> Bound {
        Bound::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let extents = self.call.bind(args)?;
        let line = (extents.output[2] * self.channels()).max(1);
        let lines = CHUNK.div_ceil(line).max(1);
        *bound = Bound { extents, lines };
        // A fifth of what products of matrices reach.
        let work = lines * line * self.window.taps * 5 / self.kit().map_or(1, |kit| kit.products_per_ns);
        match extents.images * extents.pixels() {
            0 => Ok(Grid::EMPTY),
            _ => {
                let [before, behind] = self.reordered.chunks(&extents)?;
                let chunks = (extents.images * extents.output[1]).div_ceil(lines);
                Ok(phases([before, chunks, behind], work))
            }
        }
    }

    fn run(&self, bound: &Bound, mut part: Part<'_>) -> Result<()> {
        let (extents, shared) = (&bound.extents, part.scratch.shared);
        let phase = self.reordered.phase(part.phase);
        if phase != Phase::Compute {
            // SAFETY: `bind` asked for the chunks of these extents, the frame gives the shared scratch that was asked for, and
            // runs phases in order.
            return unsafe { self.reordered.run(&phase, part.args, extents, part.chunk, shared) };
        }
        let [zero_bytes, gathered_bytes, result_bytes] = self.scratch_parts();
        let table = part.take_scratch(self.window.taps)?;
        let gathered_table = part.take_scratch::<Tap>(self.window.taps)?;
        let results = part.take_scratch(result_bytes)?;
        let zeros = part.take_scratch::<u8>(zero_bytes)?;
        let gathered = part.take_scratch::<u8>(gathered_bytes)?;
        let Tensors { input, flip, out } = self.reordered.tensors(part.args, shared)?;
        zeros.fill(self.numbers.zero as u8 ^ flip);
        for (tap, room) in gathered_table.iter_mut().zip(gathered.chunks_exact(self.lanes())) {
            *tap = Tap { first: room.as_ptr() as usize, step: 0 };
        }
        let mut memory = Memory { table, gathered_table, gathered, results };
        let width = extents.output[2];
        let step = self.channels() * self.numbers.out_bytes();
        let all = extents.images * extents.output[1];
        let first = part.chunk * bound.lines;
        let whole = self.whole(extents);
        for line in first..(first + bound.lines).min(all) {
            let mut x = 0;
            while x < width {
                // Windows that reach beyond the image have a table each.
                let count = if whole.start == x { whole.len().max(1) } else { 1 };
                self.fill(extents, input, zeros.as_ptr(), [line, x], memory.table);
                let to = out.wrapping_add((line * width + x) * step);
                // SAFETY: the table has the taps of pixel `x`, those of its neighbours lie a step on as long as the windows are
                // inside; the output has these pixels.
                unsafe { self.pixels(&mut memory, flip, count, to) };
                x += count;
            }
        }
        Ok(())
    }
}
