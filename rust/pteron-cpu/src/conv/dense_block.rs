//! One chunk of a dense convolution: the pixels of a block are gathered a stretch of the depth at a time,
//! multiplied with panels of weights, and written to the output in its memory order. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::dense::{DenseConvolution, Split};
use super::f32_conv_nr32_v1::PANEL;
use super::gather::{BLOCK_PIXELS, Pixel, Source, pixels_of};
use super::operands::{Operands, apply_post};
use super::window::{Phase, phase};
use crate::gemm::{Fetch, K_BLOCK, Tile, k_blocks, part};
use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Weight panels of a block at most, so that its sums stay in the second-level cache.
pub const BLOCK_PANELS: usize = 8;
/// Rows are this much longer than the stretch of the depth, so that they do not all fall into the same few
/// lines of the first-level cache.
const PADDING: usize = 16;

/// Floats of the gathered pixels.
pub const fn panel_floats() -> usize {
    BLOCK_PIXELS * (K_BLOCK + PADDING)
}

/// Floats of the sums of a block.
pub const fn sum_floats() -> usize {
    BLOCK_PANELS * BLOCK_PIXELS * PANEL
}

/// A chunk.
pub(super) struct Block<'a> {
    pub convolution: &'a DenseConvolution,
    pub split: Split,
    pub chunk: usize,
    /// The input lies in channels-last order.
    pub operands: Operands,
    /// [`panel_floats`].
    pub panel: *mut f32,
    /// [`sum_floats`].
    pub sums: *mut f32,
    /// What the program behind the convolution needs.
    pub post: &'a mut [f32],
}

/// Where a block lies.
struct OutputBlock {
    phase: Phase,
    /// Pixels of the phase, counted over all images.
    first_pixel: usize,
    group: usize,
    panel: usize,
    panels: usize,
}

impl SimdTask for Block<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let place = self.place();
        let total = self.split.extents.images * place.phase.pixels();
        let last = total.min(place.first_pixel + self.split.block_pixels);
        if place.first_pixel >= last {
            return;
        }
        let mut pixels = [Pixel::default(); BLOCK_PIXELS];
        let range = place.first_pixel..last;
        let n = pixels_of(&place.phase, self.split.extents.output, range, &mut pixels);
        let pixels = &pixels[..n];
        let depth = place.phase.taps() * self.convolution.geometry.in_channels;
        let parts = k_blocks(depth);
        let is_direct = self.is_direct();
        for i in 0..parts {
            let k = part(depth, parts, i);
            let stride = k.len().next_multiple_of(MAX_LANES) + PADDING;
            // SAFETY: `bind` checked the sizes of input, weights and output; scratch holds a panel of
            // BLOCK_PIXELS × K_BLOCK and the sums of BLOCK_PANELS.
            unsafe {
                self.source(&place).gather(s, pixels, k.clone(), self.panel, stride);
                self.multiply(&place, pixels, [&k, &(0..depth)], stride, is_direct);
            }
        }
        // SAFETY: `bind` checked the sizes of input, weights and output; scratch holds the sums of
        // BLOCK_PANELS that `multiply` has written.
        unsafe {
            if !is_direct {
                self.write(s, &place, pixels);
            }
            self.post(&place, pixels);
        }
    }
}

impl Block<'_> {
    fn place(&self) -> OutputBlock {
        let Split { extents, pixel_blocks, panel_blocks, panels_per_block, block_pixels, .. } = self.split;
        let geometry = &self.convolution.geometry;
        let (panel_block, rest) = (self.chunk % panel_blocks, self.chunk / panel_blocks);
        let (pixel_block, rest) = (rest % pixel_blocks, rest / pixel_blocks);
        let panel = panel_block * panels_per_block;
        OutputBlock {
            phase: phase(geometry, &extents, rest / geometry.groups),
            first_pixel: pixel_block * block_pixels,
            group: rest % geometry.groups,
            panel,
            panels: panels_per_block.min(self.convolution.panels() - panel),
        }
    }

    /// Do tiles write to the output themselves?
    fn is_direct(&self) -> bool {
        self.convolution.is_output_interleaved && !self.convolution.geometry.is_transposed
    }

    fn source<'p>(&self, place: &'p OutputBlock) -> Source<'p> {
        let geometry = &self.convolution.geometry;
        Source {
            data: self.operands.input.wrapping_add(place.group * geometry.in_channels),
            channels: geometry.total_in_channels(),
            group_channels: geometry.in_channels,
            image_pixels: self.split.extents.input_pixels(),
            phase: &place.phase,
        }
    }

    /// Channels of panel `j` of the block: the first of all, and how many.
    fn channels(&self, place: &OutputBlock, j: usize) -> (usize, usize) {
        let outputs = self.convolution.geometry.out_channels;
        let in_group = (place.panel + j) * PANEL;
        (place.group * outputs + in_group, PANEL.min(outputs - in_group))
    }

    /// First element of a pixel's channel in a channels-last tensor.
    fn interleaved_at(&self, pixel: &Pixel, channel: usize) -> usize {
        let row = pixel.image * self.split.extents.pixels() + pixel.position;
        row * self.convolution.geometry.total_out_channels() + channel
    }

    /// The panel of gathered pixels (elements `k` of all `depth`) times the panels of weights.
    ///
    /// # Safety
    /// The gathered panel holds the pixels; sums or output have room for them.
    unsafe fn multiply(
        &self,
        place: &OutputBlock,
        pixels: &[Pixel],
        [k, depth]: [&Range<usize>; 2],
        stride: usize,
        is_direct: bool,
    ) {
        let run = self.weight_run(&place.phase);
        for j in 0..place.panels {
            let mut at = k.start;
            loop {
                let end = k.end.min((at / run + 1) * run);
                // SAFETY: `at..end` lies in `k`, and panel `j` is below `place.panels`: inside what the
                // caller promises.
                unsafe {
                    self.multiply_run(place, pixels, j, [at, end], k.start, depth.end, stride, is_direct);
                }
                at = end;
                if at >= k.end {
                    break;
                }
            }
        }
    }

    /// How many rows of the depth lie side by side in the packed weights.
    fn weight_run(&self, phase: &Phase) -> usize {
        let geometry = &self.convolution.geometry;
        let whole = |d: usize| phase.axes[d].taps == geometry.kernel[d];
        let channels = geometry.in_channels;
        match [0, 1, 2].map(whole) {
            [true, true, true] => channels * geometry.taps(),
            [_, _, true] => channels * geometry.kernel[2],
            _ => channels,
        }
    }

    /// The row of the packed weights that element `k` of the phase's depth is multiplied with.
    fn weight_row(&self, phase: &Phase, k: usize) -> usize {
        let geometry = &self.convolution.geometry;
        let (mut tap, channel) = (k / geometry.in_channels, k % geometry.in_channels);
        let mut at = [0; 3];
        for d in (0..3).rev() {
            let axis = &phase.axes[d];
            at[d] = axis.kernel_start + tap % axis.taps.max(1) * axis.kernel_step;
            tap /= axis.taps.max(1);
        }
        let [_, height, width] = geometry.kernel;
        ((at[0] * height + at[1]) * width + at[2]) * geometry.in_channels + channel
    }

    /// Tiles of one panel for elements `at..end` of the depth, whose packed weights lie side by side.
    ///
    /// # Safety
    /// As [`Block::multiply`].
    #[allow(clippy::too_many_arguments, reason = "a struct of them would be filled for every tile")]
    unsafe fn multiply_run(
        &self,
        place: &OutputBlock,
        pixels: &[Pixel],
        j: usize,
        [at, end]: [usize; 2],
        panel_start: usize,
        depth: usize,
        stride: usize,
        is_direct: bool,
    ) {
        let convolution = self.convolution;
        let (channel, columns) = self.channels(place, j);
        let panel = place.group * convolution.panels() + place.panel + j;
        let row = if at < end { self.weight_row(&place.phase, at) } else { 0 };
        let weights = convolution.weights.as_ptr().cast::<f32>();
        let weights = weights.wrapping_add((panel * convolution.geometry.depth() + row) * PANEL);
        let total = convolution.geometry.total_out_channels();
        let (c, c_stride) = match is_direct {
            true => (self.operands.out.wrapping_add(self.interleaved_at(&pixels[0], channel)), total),
            false => (self.sums.wrapping_add(j * BLOCK_PIXELS * PANEL), PANEL),
        };
        let residual = match is_direct && !self.operands.residual.is_null() {
            true => self.operands.residual.wrapping_add(self.interleaved_at(&pixels[0], channel)),
            false => std::ptr::null(),
        };
        let (is_first, is_last) = (at == 0, end == depth);
        // Where the output is written later, so is what is added to it; the clamp comes after that.
        let has_clamp = is_direct || self.operands.residual.is_null();
        let tall = convolution.tiles.row_tiles(pixels.len());
        for i in 0..tall {
            let rows = part(pixels.len(), tall, i);
            let mut column = 0;
            while column < columns {
                let variant = convolution.tiles.within_panel(rows.len(), columns - column, false);
                let Some(variant) = variant else { break };
                let offset = |p: *const f32, at: usize| if p.is_null() { p } else { p.wrapping_add(at) };
                let tile = Tile {
                    k: end - at,
                    a: self.panel.wrapping_add(rows.start * stride + at - panel_start),
                    a_stride: stride,
                    b: weights.wrapping_add(column),
                    b_stride: PANEL,
                    b_panel_stride: 0,
                    // The first tile brings the panel in from afar, the others find it there.
                    fetch: if i == 0 { Fetch::FAR } else { Fetch::NEAR },
                    c: c.wrapping_add(rows.start * c_stride + column),
                    c_stride,
                    columns: columns - column,
                    is_first,
                    is_last,
                    bias: offset(self.operands.bias, channel + column),
                    residual: offset(residual, rows.start * total + column),
                    residual_stride: total,
                    clamp: convolution.epilogue.clamp.filter(|_| has_clamp),
                };
                // SAFETY: rows and columns of the tile lie inside the gathered panel, the packed panel and the
                // sums or the output; the tiles come from the profile of this processor.
                unsafe { (variant.run)(&tile) };
                column += variant.columns;
            }
        }
    }

    /// Writes the sums to the output in its memory order.
    ///
    /// # Safety
    /// The sums hold the block, which lies inside the output.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, place: &OutputBlock, pixels: &[Pixel]) {
        for j in 0..place.panels {
            let (channel, n) = self.channels(place, j);
            // SAFETY: pixels and channels exist; each panel of sums has BLOCK_PIXELS rows.
            unsafe {
                let sums = self.sums.add(j * BLOCK_PIXELS * PANEL).cast_const();
                match self.convolution.is_output_interleaved {
                    true => self.write_interleaved(s, sums, pixels, channel, n),
                    false => self.write_planes(s, sums, pixels, channel, n),
                }
            }
        }
    }

    /// # Safety
    /// As [`Block::write`], for the `n` channels from `channel` on.
    #[inline(always)]
    unsafe fn write_interleaved<S: Simd>(
        &self,
        s: S,
        sums: *const f32,
        pixels: &[Pixel],
        channel: usize,
        n: usize,
    ) {
        let clamp = self.late_clamp();
        for (m, pixel) in pixels.iter().enumerate() {
            let at = self.interleaved_at(pixel, channel);
            for c in (0..n).step_by(S::LANES) {
                let lanes = S::LANES.min(n - c);
                // SAFETY: pixel `m` has a row of PANEL sums, and `lanes` channels of it exist in the output,
                // as the caller promises.
                unsafe {
                    let mut v = s.load(sums.add(m * PANEL + c));
                    if !self.operands.residual.is_null() {
                        v = s.add(v, s.load_up_to(self.operands.residual.add(at + c), lanes));
                    }
                    if let Some((low, high)) = clamp {
                        v = s.clamp(v, s.splat(low), s.splat(high));
                    }
                    s.store_up_to(self.operands.out.add(at + c), v, lanes);
                }
            }
        }
    }

    /// The clamp, when it has to wait for the residual.
    fn late_clamp(&self) -> Option<(f32, f32)> {
        self.convolution.epilogue.clamp.filter(|_| !self.operands.residual.is_null())
    }

    /// How many pixels from the first of `pixels` on lie at even distances in one plane, at most `most`, and the
    /// distance.
    fn stretch(pixels: &[Pixel], most: usize) -> (usize, usize) {
        let [first, second, ..] = pixels else { return (pixels.len(), 1) };
        let step = second.position.wrapping_sub(first.position);
        let is_next = |(i, p): &(usize, &Pixel)| {
            p.image == first.image && p.position == first.position.wrapping_add(i.wrapping_mul(step))
        };
        let n = pixels.iter().enumerate().take(most).take_while(is_next).count();
        (n, step)
    }

    /// # Safety
    /// As [`Block::write`], for the `n` channels from `channel` on.
    #[inline(always)]
    unsafe fn write_planes<S: Simd>(
        &self,
        s: S,
        sums: *const f32,
        pixels: &[Pixel],
        channel: usize,
        n: usize,
    ) {
        let plane = self.split.extents.pixels();
        let total = self.convolution.geometry.total_out_channels();
        let mut m = 0;
        while m < pixels.len() {
            let (count, step) = Self::stretch(&pixels[m..], S::LANES);
            let at = (pixels[m].image * total + channel) * plane + pixels[m].position;
            for c in (0..n).step_by(S::LANES) {
                let channels = S::LANES.min(n - c);
                // SAFETY: the pixels of a stretch lie side by side in a plane, `channels` planes exist from
                // `channel + c` on, as the caller promises.
                unsafe {
                    let from = sums.add(m * PANEL + c);
                    if step == 1 && self.operands.residual.is_null() {
                        let to = self.operands.out.add(at + c * plane);
                        s.transpose_block(from, PANEL, count, channels, to, plane);
                    } else {
                        self.write_rows(s, from, [count, step, channels], at + c * plane);
                    }
                }
            }
            m += count;
        }
    }

    /// A few pixels, `step` apart, of a few channels, with what is added to them.
    ///
    /// # Safety
    /// As [`Block::write`].
    #[inline(always)]
    unsafe fn write_rows<S: Simd>(
        &self,
        s: S,
        from: *const f32,
        [count, step, channels]: [usize; 3],
        at: usize,
    ) {
        let plane = self.split.extents.pixels();
        let clamp = self.late_clamp();
        let mut rows = [0f32; MAX_LANES * MAX_LANES];
        // SAFETY: at most LANES pixels and channels; the caller's promise for the output.
        unsafe {
            s.transpose_block(from, PANEL, count, channels, rows.as_mut_ptr(), MAX_LANES);
            for c in 0..channels {
                let row = &mut rows[c * MAX_LANES..(c + 1) * MAX_LANES];
                let at = at + c * plane;
                if !self.operands.residual.is_null() {
                    let mut v = s.load(row.as_ptr());
                    v = s.add(v, s.load_strided(self.operands.residual.add(at), step, count));
                    if let Some((low, high)) = clamp {
                        v = s.clamp(v, s.splat(low), s.splat(high));
                    }
                    s.store(row.as_mut_ptr(), v);
                }
                if step == 1 {
                    s.store_up_to(self.operands.out.add(at), s.load(row.as_ptr()), count);
                } else {
                    for (i, v) in row[..count].iter().enumerate() {
                        *self.operands.out.add(at + i * step) = *v;
                    }
                }
            }
        }
    }

    /// Runs the program behind the convolution on what this block wrote.
    ///
    /// # Safety
    /// The block lies inside the output.
    unsafe fn post(&mut self, place: &OutputBlock, pixels: &[Pixel]) {
        let (epilogue, level) = (&self.convolution.epilogue, self.convolution.level);
        if epilogue.post.is_none() {
            return;
        }
        let (channel, _) = self.channels(place, 0);
        let (last, n) = self.channels(place, place.panels - 1);
        let channels = last + n - channel;
        let plane = self.split.extents.pixels();
        let total = self.convolution.geometry.total_out_channels();
        let mut m = 0;
        while m < pixels.len() {
            let (count, step) = Self::stretch(&pixels[m..], pixels.len());
            let (at, stride, extents) = match self.convolution.is_output_interleaved {
                true => (self.interleaved_at(&pixels[m], channel), step * total, [count, channels]),
                false => (
                    (pixels[m].image * total + channel) * plane + pixels[m].position,
                    plane,
                    [channels, count],
                ),
            };
            // SAFETY: the caller's promise; pixels that are not neighbours in a plane go one by one.
            unsafe {
                let block = self.operands.out.add(at);
                if step == 1 || self.convolution.is_output_interleaved {
                    apply_post(epilogue, level, block, stride, extents, self.post);
                } else {
                    for i in 0..count {
                        apply_post(epilogue, level, block.add(i * step), stride, [channels, 1], self.post);
                    }
                }
            }
            m += count;
        }
    }
}
