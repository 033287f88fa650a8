//! Output lines of a channels-last depthwise convolution. Two lines × four columns of outputs are computed
//! together, the channels of a cache line at a time: what they read of it then stays in the first-level cache
//! while the tiles move along the lines and down. Input pixels are found through a table of addresses
//! (`depthwise_table`). Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::depthwise_table::{
    LARGEST, LINES, Segment, Source, TILE, has_pairs, is_compiled, is_square, segment_length,
};
use super::geometry::{Extents, Geometry};
use super::written_out::written_out;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

/// Channels of a tile that are computed before the next tile: those of a cache line. Where pixels lie a multiple of some lines
/// apart they share few sets of the first-level cache, and what the next vector needs would be gone.
const BESIDE: usize = 16;
/// Room for the input pixels of a line that a tile reads, through a window that the tiles are compiled for.
const SPAN: usize = (TILE - 1) * 2 + 8;
/// The weights of a square window for the channels of a block, tap by tap: at distances that the compiler knows.
type BlockWeights = [[f32; BESIDE]; LARGEST * LARGEST];

/// The sums of a tile: lines × columns.
type Sums<S> = [[<S as Simd>::F; TILE]; 2];

/// Channels-last tensors, or a block of channels of them.
#[derive(Clone, Copy)]
pub(super) struct Pixels {
    /// The first channel at pixel 0 of line 0, lines being counted over all images, and from pixel to pixel.
    pub input: *const f32,
    pub input_step: usize,
    /// The same of the output.
    pub out: *mut f32,
    pub out_step: usize,
    /// Lies as the output does; null when absent.
    pub residual: *const f32,
    /// One number per channel; null when absent.
    pub bias: *const f32,
    /// Which of all channels these are: the first, and how many.
    pub channel: usize,
    pub channels: usize,
    /// Limits; NaN passes.
    pub clamp: Option<(f32, f32)>,
}

/// Repeats every channel of some pixels `times` times.
pub struct Repeat {
    /// Pixels of `channels`.
    pub from: *const f32,
    /// Pixels of `channels · times`.
    pub to: *mut f32,
    /// Channels.
    pub channels: usize,
    /// See [`Repeat`].
    pub times: usize,
    /// Pixels.
    pub range: Range<usize>,
}

impl SimdTask for Repeat {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in self.range.start * self.channels..self.range.end * self.channels {
            for j in 0..self.times {
                // SAFETY: the element exists in both tensors.
                unsafe { *self.to.add(i * self.times + j) = *self.from.add(i) };
            }
        }
    }
}

/// Some output lines of one plane, counted over all images.
pub(super) struct LinesTask<'a> {
    pub geometry: &'a Geometry,
    /// Of all channels, tap by tap.
    pub weights: *const f32,
    pub extents: Extents,
    pub range: Range<usize>,
    pub pixels: Pixels,
    /// [`table_entries`].
    pub table: &'a mut [usize],
    /// One per channel.
    pub zeros: &'a [f32],
}

/// Lines through windows of `KW` columns, `SW` apart; zeros stand for any.
struct LinesOf<'a, const KW: usize, const SW: usize>(LinesTask<'a>);

impl<const KW: usize, const SW: usize> SimdTask for LinesOf<'_, KW, SW> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // SAFETY: the lines exist in the output, whose size `bind` checked.
        unsafe { self.0.lines::<S, KW, SW>(s) };
    }
}

impl LinesTask<'_> {
    /// Computes the lines. Every window is a task of its own: in one function for all, the compiler takes minutes.
    pub(super) fn dispatch(self, level: SimdLevel) {
        let geometry = self.geometry;
        let width = if is_compiled(geometry) { geometry.kernel[2] } else { 0 };
        match (width, geometry.stride[2]) {
            (3, 1) => level.dispatch(LinesOf::<3, 1>(self)),
            (3, _) => level.dispatch(LinesOf::<3, 2>(self)),
            (5, 1) => level.dispatch(LinesOf::<5, 1>(self)),
            (5, _) => level.dispatch(LinesOf::<5, 2>(self)),
            (7, _) => level.dispatch(LinesOf::<7, 1>(self)),
            _ => level.dispatch(LinesOf::<0, 0>(self)),
        }
    }
}

impl LinesTask<'_> {
    /// # Safety
    /// The output lines exist.
    #[inline(always)]
    unsafe fn lines<S: Simd, const KW: usize, const SW: usize>(&mut self, s: S) {
        let has_pairs = has_pairs(self.geometry);
        let most = match has_pairs {
            true if self.pixels.channels <= S::LANES => LINES,
            true => 2,
            false => 1,
        };
        let length = const { if KW == 0 { TILE } else { segment_length(KW, SW) } };
        let width = self.extents.output[2];
        let source = Source {
            geometry: self.geometry,
            extents: &self.extents,
            input: self.pixels.input,
            step: self.pixels.input_step,
            zeros: self.zeros,
        };
        for line in self.range.clone().step_by(most) {
            let lines = most.min(self.range.end - line);
            for first in (0..width).step_by(length) {
                let count = length.min(width - first);
                let segment = source.fill::<KW, SW>(self.table, [line, lines], [first, count]);
                // SAFETY: `fill` made the segment of lines and columns inside the image; the operands
                // are those that the caller promises.
                unsafe { self.segment::<S, KW, SW>(s, &segment, lines) };
            }
        }
    }

    /// # Safety
    /// `lines` output lines of the segment exist.
    #[inline(always)]
    unsafe fn segment<S: Simd, const KW: usize, const SW: usize>(
        &self,
        s: S,
        segment: &Segment,
        lines: usize,
    ) {
        const { assert!(S::LANES <= BESIDE) };
        let channels = self.pixels.channels;
        let whole = channels - channels % S::LANES;
        // Two tiles a line do not pay for weights that are gathered first.
        let is_square = is_square(self.geometry) && segment.count > 2 * TILE;
        let mut weights: BlockWeights = [[0.0; BESIDE]; LARGEST * LARGEST];
        // SAFETY: channels c.. of the addresses, of the weights and of the output exist.
        unsafe {
            for first in (0..whole).step_by(BESIDE) {
                let block = first..(first + BESIDE).min(whole);
                let weights = is_square.then(|| self.gather_weights(s, &block, &mut weights));
                let mut line = 0;
                while line + 2 <= lines {
                    self.tiles::<S, KW, SW, 2, false>(s, segment, line, block.clone(), weights);
                    line += 2;
                }
                if line < lines {
                    self.tiles::<S, KW, SW, 1, false>(s, segment, line, block, weights);
                }
            }
            if whole < channels {
                for line in 0..lines {
                    self.tiles::<S, KW, SW, 1, true>(s, segment, line, whole..channels, None);
                }
            }
        }
    }

    /// The weights of at most [`BESIDE`] channels, which are whole vectors.
    ///
    /// # Safety
    /// The channels exist.
    #[inline(always)]
    unsafe fn gather_weights<'w, S: Simd>(
        &self,
        s: S,
        block: &Range<usize>,
        weights: &'w mut BlockWeights,
    ) -> &'w BlockWeights {
        let geometry = self.geometry;
        let (taps, total) = (geometry.taps(), geometry.total_out_channels());
        let mut from = self.weights.wrapping_add(self.pixels.channel + block.start);
        for row in weights.iter_mut().take(taps) {
            let mut c = 0;
            while c < block.len() {
                // SAFETY: the weights have `total` channels for each tap, among which the caller promises those of the
                // block, whole vectors. A row has room for a vector at every multiple of its length.
                unsafe { s.store(row.as_mut_ptr().add(c), s.load(from.add(c))) };
                c += S::LANES;
            }
            from = from.wrapping_add(total);
        }
        weights
    }

    /// The vectors of channels of a block, of `R` lines of a segment from its line `start` on.
    ///
    /// # Safety
    /// Those lines exist, and the channels at every address of the table; whole vectors of them unless `MASKED`.
    #[inline(always)]
    unsafe fn tiles<S: Simd, const KW: usize, const SW: usize, const R: usize, const MASKED: bool>(
        &self,
        s: S,
        segment: &Segment,
        start: usize,
        block: Range<usize>,
        weights: Option<&BlockWeights>,
    ) {
        let width = self.extents.output[2];
        let rows = segment.window_rows(start, R, self.geometry);
        // Where rows of the window are missing, those that are there are added one by one.
        let weights = weights.filter(|_| rows[0] + KW + (R - 1) * SW == rows[1]);
        let mut tile = 0;
        while tile < segment.count {
            let mut c = block.start;
            while c < block.end {
                let lanes = block.end - c;
                let bias = match self.pixels.bias.is_null() {
                    true => s.zero(),
                    // SAFETY: the bias has a value for each channel of the block, which exist as the caller promises.
                    false => unsafe { load_lanes::<S, MASKED>(s, self.pixels.bias.add(c), lanes) },
                };
                // Written as they are: the compiler makes a loop of a repeated value, and the sums then stay in
                // memory.
                let mut sums = [[bias, bias, bias, bias], [bias, bias, bias, bias]];
                // SAFETY: the caller's promise; the table has the addresses of whole tiles.
                unsafe {
                    match (KW, weights) {
                        (0, _) => self.any_window::<S, MASKED>(s, segment, [c, lanes], &mut sums),
                        // What is left of the channels is little, and masks make long code of it.
                        (_, Some(weights)) if const { !MASKED } => {
                            let at = (start * SW - segment.y.start) * segment.span + tile * SW;
                            let weights = weights.as_ptr().cast::<f32>().add(c - block.start);
                            self.square::<S, KW, SW, R>(s, [at, segment.span], c, weights, &mut sums);
                        }
                        _ => {
                            let place = [start, tile * SW];
                            self.window::<S, KW, SW, R, MASKED>(
                                s,
                                segment,
                                place,
                                rows,
                                [c, lanes],
                                &mut sums,
                            );
                        }
                    }
                    let count = segment.count - tile;
                    written_out!(L < R, {
                        let pixel = (segment.line + start + L) * width + segment.first + tile;
                        let at = pixel * self.pixels.out_step + c;
                        self.write::<S, MASKED>(s, sums[L % 2], count, at, lanes);
                    });
                }
                c += S::LANES;
            }
            tile += TILE;
        }
    }

    /// Adds a square window to a tile, whose addresses begin at `at` in the table, `span` from row to row.
    ///
    /// # Safety
    /// As [`LinesTask::tiles`]; behind `weights` are those of the channels in [`BlockWeights`].
    #[inline(always)]
    unsafe fn square<S: Simd, const KW: usize, const SW: usize, const R: usize>(
        &self,
        s: S,
        [at, span]: [usize; 2],
        c: usize,
        mut weights: *const f32,
        sums: &mut Sums<S>,
    ) {
        let mut row = self.table.as_ptr().wrapping_add(at);
        // Rows that the first line alone reads, both lines, the second line alone. Bounds are constants: no row asks whose
        // it is.
        let alone = const { if R == 2 && SW < KW { SW } else { KW } };
        let both = const { if R == 2 && SW < KW { KW - SW } else { 0 } };
        let behind = const { if R == 2 { SW } else { 0 } };
        // SAFETY: the caller's promise; the table has a row of addresses for each row of the windows.
        unsafe {
            for _ in 0..alone {
                let x = columns::<S, KW, SW, false>(s, row, [c, S::LANES]);
                add_row::<S, KW, SW>(s, &x, weights, &mut sums[0]);
                weights = weights.wrapping_add(KW * BESIDE);
                row = row.wrapping_add(span);
            }
            for _ in 0..both {
                let x = columns::<S, KW, SW, false>(s, row, [c, S::LANES]);
                add_row::<S, KW, SW>(s, &x, weights, &mut sums[0]);
                add_row::<S, KW, SW>(s, &x, weights.wrapping_sub(SW * KW * BESIDE), &mut sums[1]);
                weights = weights.wrapping_add(KW * BESIDE);
                row = row.wrapping_add(span);
            }
            for _ in 0..behind {
                let x = columns::<S, KW, SW, false>(s, row, [c, S::LANES]);
                add_row::<S, KW, SW>(s, &x, weights.wrapping_sub(SW * KW * BESIDE), &mut sums[1]);
                weights = weights.wrapping_add(KW * BESIDE);
                row = row.wrapping_add(span);
            }
        }
    }

    /// Adds rows `first..last` of the window of a tile, whose addresses begin at `at` in every line of the table.
    ///
    /// # Safety
    /// As [`LinesTask::tiles`].
    #[inline(always)]
    unsafe fn window<S: Simd, const KW: usize, const SW: usize, const R: usize, const MASKED: bool>(
        &self,
        s: S,
        segment: &Segment,
        [start, at]: [usize; 2],
        [first, last]: [usize; 2],
        [c, lanes]: [usize; 2],
        sums: &mut Sums<S>,
    ) {
        let geometry = self.geometry;
        let (height, stride) = (geometry.kernel[1], geometry.stride[1]);
        let total = geometry.total_out_channels();
        // SAFETY: the caller's promise; weight rows have every channel.
        unsafe {
            let weights = self.weights.add(self.pixels.channel + c);
            let mut table = self.table.as_ptr().add(at);
            let mut z = segment.z.start;
            while z < segment.z.end {
                let mut addresses = table.wrapping_add((first - segment.y.start) * segment.span);
                let mut y = first;
                while y < last {
                    let x = columns::<S, KW, SW, MASKED>(s, addresses, [c, lanes]);
                    written_out!(L < R, {
                        let ky = y.wrapping_sub((start + L) * stride);
                        if ky < height {
                            let row = weights.add((z * height + ky) * KW * total);
                            written_out!(K < KW, {
                                let w = load_lanes::<S, MASKED>(s, row.add(K * total), lanes);
                                sums[L % 2][0] = s.fma(x[K], w, sums[L % 2][0]);
                                sums[L % 2][1] = s.fma(x[SW + K], w, sums[L % 2][1]);
                                sums[L % 2][2] = s.fma(x[2 * SW + K], w, sums[L % 2][2]);
                                sums[L % 2][3] = s.fma(x[3 * SW + K], w, sums[L % 2][3]);
                            });
                        }
                    });
                    addresses = addresses.wrapping_add(segment.span);
                    y += 1;
                }
                table = table.wrapping_add(segment.y.len() * segment.span);
                z += 1;
            }
        }
    }

    /// Adds a window of any width and step; the table is of one line.
    ///
    /// # Safety
    /// As [`LinesTask::tiles`].
    #[inline(always)]
    unsafe fn any_window<S: Simd, const MASKED: bool>(
        &self,
        s: S,
        segment: &Segment,
        [c, lanes]: [usize; 2],
        sums: &mut Sums<S>,
    ) {
        let geometry = self.geometry;
        let [_, height, width] = geometry.kernel;
        let total = geometry.total_out_channels();
        // SAFETY: the caller's promise; weight rows have every channel.
        unsafe {
            let weights = self.weights.add(self.pixels.channel + c);
            let mut addresses = self.table.as_ptr();
            for z in segment.z.clone() {
                for ky in segment.y.clone() {
                    let row = weights.add((z * height + ky) * width * total);
                    for kx in 0..width {
                        let w = load_lanes::<S, MASKED>(s, row.add(kx * total), lanes);
                        for (t, sum) in sums[0].iter_mut().enumerate() {
                            let x = (*addresses.add(kx * TILE + t) as *const f32).add(c);
                            *sum = s.fma(load_lanes::<S, MASKED>(s, x, lanes), w, *sum);
                        }
                    }
                    addresses = addresses.add(segment.span);
                }
            }
        }
    }

    /// Writes at most `count` neighbouring outputs, the first at `at`.
    ///
    /// # Safety
    /// The vectors exist in the output.
    #[inline(always)]
    unsafe fn write<S: Simd, const MASKED: bool>(
        &self,
        s: S,
        sums: [S::F; TILE],
        count: usize,
        at: usize,
        lanes: usize,
    ) {
        // SAFETY: output `at + T * out_step` exists for `T < count`, with `lanes` channels, as the caller
        // promises.
        unsafe {
            written_out!(T < TILE, {
                if T < count {
                    let at = at + T * self.pixels.out_step;
                    let mut y = sums[T % TILE];
                    if !self.pixels.residual.is_null() {
                        y = s
                            .add(y, load_lanes::<S, MASKED>(s, self.pixels.residual.wrapping_add(at), lanes));
                    }
                    if let Some((low, high)) = self.pixels.clamp {
                        y = s.clamp(y, s.splat(low), s.splat(high));
                    }
                    let to = self.pixels.out.wrapping_add(at);
                    if MASKED { s.store_partial(to, y, lanes) } else { s.store(to, y) }
                }
            });
        }
    }
}

/// The pixels of a row that a tile reads.
///
/// # Safety
/// The table has their addresses, at which the channels exist.
#[inline(always)]
unsafe fn columns<S: Simd, const KW: usize, const SW: usize, const MASKED: bool>(
    s: S,
    addresses: *const usize,
    [c, lanes]: [usize; 2],
) -> [S::F; SPAN] {
    let no = s.zero();
    let mut x: [S::F; SPAN] = [no, no, no, no, no, no, no, no, no, no, no, no, no, no];
    // SAFETY: `addresses` has an entry for every `J` below the bound, and channel `c` exists at each, as the caller promises.
    unsafe {
        written_out!(J < (TILE - 1) * SW + KW, {
            x[J] = load_lanes::<S, MASKED>(s, (*addresses.add(J) as *const f32).add(c), lanes);
        });
    }
    x
}

/// Adds a row of a square window, whose weights lie in [`BlockWeights`], to a line of a tile.
///
/// # Safety
/// `KW` taps are readable behind `weights`.
#[inline(always)]
unsafe fn add_row<S: Simd, const KW: usize, const SW: usize>(
    s: S,
    x: &[S::F; SPAN],
    weights: *const f32,
    sums: &mut [S::F; TILE],
) {
    // SAFETY: the caller's promise; a tap has a whole vector of channels.
    unsafe {
        written_out!(K < KW, {
            let w = s.load(weights.add(K * BESIDE));
            sums[0] = s.fma(x[K], w, sums[0]);
            sums[1] = s.fma(x[SW + K], w, sums[1]);
            sums[2] = s.fma(x[2 * SW + K], w, sums[2]);
            sums[3] = s.fma(x[3 * SW + K], w, sums[3]);
        });
    }
}

/// # Safety
/// `lanes` elements are readable, a whole vector unless `MASKED`.
#[inline(always)]
unsafe fn load_lanes<S: Simd, const MASKED: bool>(s: S, p: *const f32, lanes: usize) -> S::F {
    // SAFETY: the caller promises `lanes` elements, a whole vector where nothing is masked.
    unsafe { if MASKED { s.load_partial(p, lanes) } else { s.load(p) } }
}
