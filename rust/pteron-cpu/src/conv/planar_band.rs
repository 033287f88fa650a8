//! Chunks of [`super::planar`]: padded copies of bands of the input, and the tiles over them. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::geometry::{Extents, Geometry};
use super::operands::{Operands, apply_post};
use super::planar::{PlanarConvolution, PlaneSplit};
use super::planar_tile::{MAX_VECTORS, PlanarTile, Vector, channels_of_tile, most_vectors};
use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

/// Output columns of a band at most.
const COLUMNS: usize = 256;
/// Floats of a band that are aimed at: half of a small second-level cache.
const FLOATS: usize = 32 << 10;
/// Floats of a band of a single output row at most; beyond, gathering pixels is better.
const MOST_FLOATS: usize = 256 << 10;

/// A band of the input planes of a group, as copied: zeros around, columns of one stride phase side by side.
/// Extents are [channel, kernel depth, row, phase, column].
#[derive(Debug, Clone, Copy)]
pub struct Band {
    /// Output rows and columns of a full band.
    pub out_rows: usize,
    /// See [`Band::out_rows`].
    pub out_columns: usize,
    rows: usize,
    phases: usize,
    phase_length: usize,
}

impl Band {
    /// The band for a geometry whose extents are at most about `bound`; `None` when one output row would need
    /// too much.
    pub fn new(geometry: &Geometry, bound: &Extents) -> Option<Band> {
        let out_columns = bound.output[2].next_multiple_of(MAX_LANES).min(COLUMNS);
        let [_, sh, sw] = geometry.stride;
        // Whole vectors are loaded at row ends.
        let phase_length = out_columns.checked_add(geometry.reach(2) / sw + 1)?;
        let row = phase_length.checked_mul(sw)?;
        let per_row = row.checked_mul(geometry.in_channels)?.checked_mul(geometry.kernel[0])?;
        let least = per_row.checked_mul(geometry.reach(1) + 1)?;
        if least > MOST_FLOATS {
            return None;
        }
        let more = FLOATS.saturating_sub(least) / per_row / sh;
        let out_rows = (1 + more).min(bound.output[1]).max(1);
        Some(Band {
            out_rows,
            out_columns,
            rows: (out_rows - 1) * sh + geometry.reach(1) + 1,
            phases: sw,
            phase_length,
        })
    }

    fn row_length(&self) -> usize {
        self.phases * self.phase_length
    }

    /// Floats from channel to channel.
    fn channel_length(&self, geometry: &Geometry) -> usize {
        geometry.kernel[0] * self.rows * self.row_length()
    }

    /// Floats of the copy.
    pub fn floats(&self, geometry: &Geometry) -> usize {
        geometry.in_channels * self.channel_length(geometry)
    }

    /// For each element of the depth, in the order of the packed weights, where it lies in the copy.
    pub fn fill_offsets(&self, geometry: &Geometry, offsets: &mut [usize]) {
        let [_, height, width] = geometry.kernel;
        let [_, dh, dw] = geometry.dilation;
        for (k, slot) in offsets.iter_mut().enumerate() {
            let (tap, channel) = (k / geometry.in_channels, k % geometry.in_channels);
            let (kz, ky, kx) = (tap / width / height, tap / width % height, tap % width);
            let column = kx * dw;
            let row = kz * self.rows + ky * dh;
            *slot = channel * self.channel_length(geometry)
                + row * self.row_length()
                + column % self.phases * self.phase_length
                + column / self.phases;
        }
    }
}

/// Where a unit lies in the output.
struct OutputBand {
    image: usize,
    group: usize,
    depth: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Columns of one stride phase of a copy: zeros before `low` and from `high` to `used`, between them the input
/// from column `x` on.
struct Columns {
    low: usize,
    high: usize,
    used: usize,
    x: usize,
}

/// Units of a convolution with padded copies.
pub(super) struct BandTask<'a> {
    pub convolution: &'a PlanarConvolution,
    pub band: Band,
    pub units: PlaneSplit,
    pub range: Range<usize>,
    pub offsets: &'a [usize],
    pub copy: &'a mut [f32],
    pub post: &'a mut [f32],
    pub operands: Operands,
    pub level: SimdLevel,
}

impl SimdTask for BandTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for unit in self.range.clone() {
            let place = self.place(unit);
            // SAFETY: the unit exists in input and output, whose sizes `bind` checked; the copy has the size of
            // the band.
            unsafe {
                self.fill(s, &place);
                self.multiply(s, &place);
                self.finish(&place);
            }
        }
    }
}

impl BandTask<'_> {
    fn place(&self, unit: usize) -> OutputBand {
        let PlaneSplit { extents, blocks: [row_blocks, column_blocks], .. } = self.units;
        let (column, rest) = (unit % column_blocks, unit / column_blocks);
        let (row, rest) = (rest % row_blocks, rest / row_blocks);
        let (depth, rest) = (rest % extents.output[0], rest / extents.output[0]);
        let groups = self.convolution.geometry.groups;
        let part = |i: usize, size: usize, n: usize| i * size..((i + 1) * size).min(n);
        OutputBand {
            image: rest / groups,
            group: rest % groups,
            depth,
            rows: part(row, self.band.out_rows, extents.output[1]),
            columns: part(column, self.band.out_columns, extents.output[2]),
        }
    }

    /// Copies what the unit reads.
    ///
    /// # Safety
    /// The unit exists.
    #[inline(always)]
    unsafe fn fill<S: Simd>(&mut self, s: S, place: &OutputBand) {
        let Geometry { kernel, stride, dilation, padding, .. } = self.convolution.geometry;
        let input = self.units.extents.input;
        let rows = (place.rows.len() - 1) * stride[1] + self.convolution.geometry.reach(1) + 1;
        for phase in 0..self.band.phases {
            let columns = self.columns(place, phase, S::LANES);
            for kz in 0..kernel[0] {
                let z = (place.depth * stride[0] + kz * dilation[0]).wrapping_sub(padding[0]);
                for row in 0..rows {
                    let y = (place.rows.start * stride[1] + row).wrapping_sub(padding[1]);
                    let line = (z < input[0] && y < input[1]).then_some(z * input[1] + y);
                    let to =
                        (kz * self.band.rows + row) * self.band.row_length() + phase * self.band.phase_length;
                    // SAFETY: the line exists.
                    unsafe { self.fill_row(s, place, to, line, &columns) };
                }
            }
        }
    }

    /// The columns of one stride phase.
    fn columns(&self, place: &OutputBand, phase: usize, lanes: usize) -> Columns {
        let geometry = &self.convolution.geometry;
        let (step, padding) = (geometry.stride[2], geometry.padding[2]);
        // What whole vectors of this unit can reach.
        let used = place.columns.len().next_multiple_of(lanes) + geometry.reach(2) / step + 1;
        let used = used.min(self.band.phase_length);
        // Column q of this phase is column (first output + q) · step + phase - padding of the plane.
        let origin = place.columns.start * step + phase;
        let inside = |limit: usize| limit.saturating_sub(origin).div_ceil(step).min(used);
        let low = inside(padding);
        let high = inside(self.units.extents.input[2] + padding).max(low);
        Columns { low, high, used, x: (origin + low * step).saturating_sub(padding) }
    }

    /// Row at `to` of every channel of the copy: line `line` of the input plane, zeros where there is none.
    ///
    /// # Safety
    /// As [`BandTask::fill`].
    #[inline(always)]
    unsafe fn fill_row<S: Simd>(
        &mut self,
        s: S,
        place: &OutputBand,
        to: usize,
        line: Option<usize>,
        columns: &Columns,
    ) {
        let geometry = &self.convolution.geometry;
        let channels = geometry.in_channels;
        let channel_length = self.band.channel_length(geometry);
        let Columns { low, high, used, x } = *columns;
        let (low, high) = if line.is_some() { (low, high) } else { (used, used) };
        // SAFETY: `used` columns from `to` on belong to the row in every channel; the line has the columns from x on.
        unsafe {
            let target = self.copy.as_mut_ptr().add(to);
            for c in 0..channels {
                let row = target.add(c * channel_length);
                zero(s, row, low);
                zero(s, row.add(high), used - high);
            }
            let Some(line) = line.filter(|_| low < high) else { return };
            let (target, step) = (target.add(low), geometry.stride[2]);
            let (total, pixels) = (geometry.total_in_channels(), self.units.extents.input_pixels());
            let channel = place.group * channels;
            let pixel = line * self.units.extents.input[2] + x;
            if self.convolution.is_input_interleaved {
                let from = self.operands.input.add((place.image * pixels + pixel) * total + channel);
                split_pixels(s, from, [step * total, channels], target, channel_length, high - low);
                return;
            }
            for c in 0..channels {
                let plane = (place.image * total + channel + c) * pixels;
                let from = self.operands.input.add(plane + pixel);
                copy_strided(s, from, step, target.add(c * channel_length), high - low);
            }
        }
    }

    /// All output channels of the group for the rows and columns of the unit.
    ///
    /// # Safety
    /// The copy is filled.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(&self, _: S, place: &OutputBand) {
        let geometry = &self.convolution.geometry;
        let width = self.units.extents.output[2];
        let most = most_vectors(S::LANES);
        let mut vectors = [Vector::NONE; MAX_VECTORS];
        let mut count = 0;
        let channels = Channels::of_group(self.convolution, &self.units.extents, place.image, place.group);
        let first = place.depth * self.units.extents.output[1];
        for (i, row) in place.rows.clone().enumerate() {
            let line = i * geometry.stride[1] * self.band.row_length();
            for column in (0..place.columns.len()).step_by(S::LANES) {
                vectors[count] = Vector {
                    x: self.copy.as_ptr().wrapping_add(line + column),
                    out: channels.at((first + row) * width + place.columns.start + column),
                    lanes: S::LANES.min(place.columns.len() - column),
                };
                count += 1;
                let is_last = i + 1 == place.rows.len() && column + S::LANES >= place.columns.len();
                if count == most || is_last {
                    // SAFETY: the vectors lie inside the copy, which has slack for whole ones.
                    unsafe {
                        channels.multiply(self.level, &vectors[..count], self.offsets, &self.operands, false)
                    };
                    count = 0;
                }
            }
        }
    }

    /// Runs the program behind the convolution on what the unit wrote.
    ///
    /// # Safety
    /// The unit exists.
    unsafe fn finish(&mut self, place: &OutputBand) {
        let epilogue = &self.convolution.epilogue;
        if epilogue.post.is_none() {
            return;
        }
        let channels = Channels::of_group(self.convolution, &self.units.extents, place.image, place.group);
        let [_, height, width] = self.units.extents.output;
        for row in place.rows.clone() {
            let at = channels.at((place.depth * height + row) * width + place.columns.start);
            // SAFETY: this stretch of a row exists in every channel of the group.
            unsafe { channels.post(self.level, self.operands.out.add(at), place.columns.len(), self.post) };
        }
    }
}

/// Units of a pointwise convolution of planes: stretches of pixels, read as they lie.
pub(super) struct PointwiseTask<'a> {
    pub convolution: &'a PlanarConvolution,
    /// Of a unit.
    pub pixels: usize,
    pub units: PlaneSplit,
    pub range: Range<usize>,
    pub offsets: &'a [usize],
    pub post: &'a mut [f32],
    pub operands: Operands,
    pub level: SimdLevel,
}

impl SimdTask for PointwiseTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let geometry = &self.convolution.geometry;
        let extents = &self.units.extents;
        let (plane, blocks) = (extents.pixels(), self.units.blocks[0]);
        for unit in self.range {
            let (block, rest) = (unit % blocks, unit / blocks);
            let (image, group) = (rest / geometry.groups, rest % geometry.groups);
            let channels = Channels::of_group(self.convolution, extents, image, group);
            let input = (image * geometry.total_in_channels() + group * geometry.in_channels) * plane;
            let (start, end) = (block * self.pixels, plane.min((block + 1) * self.pixels));
            let vector = |p: usize| Vector {
                x: self.operands.input.wrapping_add(input + p),
                out: channels.at(p),
                lanes: S::LANES.min(end - p),
            };
            let mut p = start;
            while p < end {
                let whole = ((end - p) / S::LANES).min(most_vectors(S::LANES));
                let mut vectors = [vector(p); MAX_VECTORS];
                for (j, slot) in vectors.iter_mut().enumerate().take(whole) {
                    *slot = vector(p + j * S::LANES);
                }
                let vectors = &vectors[..whole.max(1)];
                // SAFETY: pixels of the vectors exist in every plane of the group.
                unsafe { channels.multiply(self.level, vectors, self.offsets, &self.operands, whole == 0) };
                p += vectors.len() * S::LANES;
            }
            // SAFETY: the stretch exists.
            unsafe {
                let out = self.operands.out.add(channels.at(start));
                channels.post(self.level, out, end - start, self.post);
            }
        }
    }
}

/// The output channels of a group of one image.
struct Channels<'a> {
    convolution: &'a PlanarConvolution,
    group: usize,
    panels: usize,
    /// First element.
    first: usize,
    /// From channel to channel, from pixel to pixel.
    strides: [usize; 2],
}

impl<'a> Channels<'a> {
    fn of_group(convolution: &'a PlanarConvolution, extents: &Extents, image: usize, group: usize) -> Self {
        let geometry = &convolution.geometry;
        let (total, pixels) = (geometry.total_out_channels(), extents.pixels());
        let strides = if convolution.is_output_interleaved { [1, total] } else { [pixels, 1] };
        let first = image * total * pixels + group * geometry.out_channels * strides[0];
        let panels = geometry.out_channels.div_ceil(convolution.panel_width);
        Channels { convolution, group, panels, first, strides }
    }

    /// Element of the first channel at `pixel`.
    #[inline(always)]
    fn at(&self, pixel: usize) -> usize {
        self.first + pixel * self.strides[1]
    }

    /// All channels for a few vectors of pixels. Entered anew, so that the tiles are compiled once.
    ///
    /// # Safety
    /// As [`PlanarTile::compute`].
    unsafe fn multiply(
        &self,
        level: SimdLevel,
        vectors: &[Vector],
        offsets: &[usize],
        operands: &Operands,
        is_masked: bool,
    ) {
        level.dispatch(ChannelTiles { channels: self, vectors, offsets, operands, is_masked });
    }

    /// Runs the program behind the convolution on `pixels` pixels of every channel.
    ///
    /// # Safety
    /// They are writable from `out` on.
    unsafe fn post(&self, level: SimdLevel, out: *mut f32, pixels: usize, scratch: &mut [f32]) {
        let (channels, epilogue) = (self.convolution.geometry.out_channels, &self.convolution.epilogue);
        let (stride, extents) = match self.convolution.is_output_interleaved {
            true => (self.strides[1], [pixels, channels]),
            false => (self.strides[0], [channels, pixels]),
        };
        // SAFETY: `out` begins the pixels of every channel of this band, which the caller promises to be
        // writable.
        unsafe { apply_post(epilogue, level, out, stride, extents, scratch) };
    }
}

/// All channels of a group for a few vectors of pixels.
struct ChannelTiles<'a> {
    channels: &'a Channels<'a>,
    vectors: &'a [Vector],
    offsets: &'a [usize],
    operands: &'a Operands,
    is_masked: bool,
}

impl SimdTask for ChannelTiles<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Channels { convolution, group, panels, strides, .. } = *self.channels;
        let (outputs, depth) = (convolution.geometry.out_channels, self.offsets.len());
        let weights = convolution.weights.as_ptr().cast::<f32>();
        let width = convolution.panel_width;
        let Operands { bias, residual, out, .. } = *self.operands;
        for panel in 0..panels {
            let columns = width.min(outputs - panel * width);
            let mut first = 0;
            while first < columns {
                let n = channels_of_tile(columns - first, S::LANES);
                let channel = panel * width + first;
                let row = (group * panels + panel) * depth * width + first;
                let at = channel * strides[0];
                let tile = PlanarTile {
                    offsets: self.offsets,
                    weights: weights.wrapping_add(row),
                    weight_stride: width,
                    bias: if bias.is_null() { bias } else { bias.wrapping_add(group * outputs + channel) },
                    residual: if residual.is_null() { residual } else { residual.wrapping_add(at) },
                    out: out.wrapping_add(at),
                    strides,
                    clamp: convolution.epilogue.clamp,
                };
                // SAFETY: the promise of `Channels::multiply`; the channels exist in weights, bias and output.
                unsafe { tile.compute(s, n, self.vectors, self.is_masked) };
                first += n;
            }
        }
    }
}

/// # Safety
/// `n` elements are writable.
#[inline(always)]
unsafe fn zero<S: Simd>(s: S, to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: element `i` is below `n`, and the caller promises `n` writable elements at `to`.
        unsafe { s.store_up_to(to.add(i), s.zero(), n - i) };
    }
}

/// Copies `n` elements at `step`.
///
/// # Safety
/// They are readable, and `to` writable.
#[inline(always)]
unsafe fn copy_strided<S: Simd>(s: S, from: *const f32, step: usize, to: *mut f32, n: usize) {
    for q in (0..n).step_by(S::LANES) {
        let lanes = S::LANES.min(n - q);
        // SAFETY: `q + lanes` is at most `n`; the caller promises `n` elements at `step` behind `from` and
        // `n` behind `to`.
        unsafe { s.store_up_to(to.add(q), s.load_strided(from.add(q * step), step, lanes), lanes) };
    }
}

/// Channels-last pixels, `stride` apart, into planes that are `plane` apart.
///
/// # Safety
/// `n` pixels of `channels` are readable, and writable in the planes.
#[inline(always)]
unsafe fn split_pixels<S: Simd>(
    s: S,
    from: *const f32,
    [stride, channels]: [usize; 2],
    to: *mut f32,
    plane: usize,
    n: usize,
) {
    for q in (0..n).step_by(S::LANES) {
        for c in (0..channels).step_by(S::LANES) {
            let (rows, columns) = (S::LANES.min(n - q), S::LANES.min(channels - c));
            // SAFETY: `q + rows` is at most `n` and `c + columns` at most `channels`: pixels and planes that
            // the caller promises.
            unsafe {
                s.transpose_block(
                    from.add(q * stride + c),
                    stride,
                    rows,
                    columns,
                    to.add(c * plane + q),
                    plane,
                )
            };
        }
    }
}
