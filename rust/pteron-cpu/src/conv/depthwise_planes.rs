//! Depthwise f32 convolution where input, output or both lie in channel planes: a vector's worth of channels of
//! a band of rows is brought into channels-last in worker scratch, convolved as [`super::depthwise`] does it,
//! and brought back while it is in the second-level cache. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::depthwise::Depthwise;
use super::depthwise_row::{LinesTask, Pixels};
use super::depthwise_table::table_entries;
use super::frame::{Method, Part, framed};
use super::geometry::{Extents, Geometry};
use super::operands::{Operands, apply_post, post_floats};
use super::reorder::{Deinterleave, Interleave};
use crate::epilogue::Epilogue;
use pteron_core::{Error, Grid, PrepareContext, Result};
use pteron_kernels::grid_kernel::Preparation;
use std::ops::Range;

/// Floats of a band that are aimed at: a quarter of a second-level cache.
const FLOATS: usize = 64 << 10;
/// Floats of a band of a single output row at most.
const MOST_FLOATS: usize = 512 << 10;
/// Output elements of a chunk, about.
const CHUNK: usize = 8 << 10;

struct DepthwisePlanes {
    depthwise: Depthwise,
    is_input_interleaved: bool,
    is_output_interleaved: bool,
    /// Floats of the copies of a band.
    floats: usize,
}

/// Work of one call in bands, several to a chunk.
#[derive(Debug, Clone, Copy, Default)]
struct Bands {
    extents: Extents,
    /// Output rows of a band, and bands of a plane.
    rows: usize,
    per_plane: usize,
    /// Blocks of channels.
    blocks: usize,
    count: usize,
    per_chunk: usize,
}

/// Where a band lies.
struct ChannelBand {
    image: usize,
    channel: usize,
    channels: usize,
    /// Output rows, and the input rows that they read.
    rows: Range<usize>,
    inputs: Range<usize>,
}

/// Prepares a depthwise convolution without multiplier, of at most two dimensions, whose weight is constant;
/// `None` when a band would not fit the caches.
pub fn prepare(
    ctx: &PrepareContext<'_>,
    geometry: Geometry,
    epilogue: &Epilogue,
    [is_input_interleaved, is_output_interleaved]: [bool; 2],
) -> Preparation {
    let bound = ctx.tensor(super::geometry::INPUT).and_then(|t| geometry.extents(&t.shape).ok());
    let (Some(bound), 1, 1..=2) = (bound, geometry.out_channels, geometry.spatial_rank) else {
        return ctx.decline("takes at most two dimensions without channel multiplier");
    };
    let Some(depthwise) = Depthwise::new(ctx, geometry, epilogue)? else {
        return ctx.decline("takes depthwise convolutions with a constant weight");
    };
    let name = format!("{}.planes", depthwise.name());
    let mut prepared = DepthwisePlanes { depthwise, is_input_interleaved, is_output_interleaved, floats: 0 };
    prepared.floats = match prepared.floats_of_rows(&bound) {
        Some([least, _]) if least <= MOST_FLOATS => least.max(FLOATS),
        _ => return ctx.decline("a band of the input does not fit the caches"),
    };
    framed(name, prepared)
}

impl DepthwisePlanes {
    /// Channels of a block.
    fn block(&self) -> usize {
        self.depthwise.level.lanes()
    }

    /// Floats of a band of one output row, and of each further one.
    fn floats_of_rows(&self, extents: &Extents) -> Option<[usize; 2]> {
        let geometry = &self.depthwise.geometry;
        let lines = |rows: usize, width: usize| rows.checked_mul(width)?.checked_mul(self.block());
        let first = (geometry.reach(1) + 1).min(extents.input[1]);
        let input = if self.is_input_interleaved { 0 } else { extents.input[2] };
        let output = if self.is_output_interleaved { 0 } else { extents.output[2] };
        let each = lines(geometry.stride[1], input)?.checked_add(lines(1, output)?)?;
        Some([lines(first, input)?.checked_add(lines(1, output)?)?, each])
    }

    fn bands(&self, extents: Extents) -> Result<Bands> {
        let floats = self.floats_of_rows(&extents).filter(|[least, _]| *least <= self.floats);
        let Some([least, each]) = floats else {
            return Err(Error::kernel("the input of a convolution is larger than its upper bound")
                .got(format!("rows of {} elements", extents.input[2]))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        };
        let most = 1 + (self.floats - least) / each.max(1);
        // Rows are computed in pairs.
        let most = if most > 1 { most - most % 2 } else { most };
        let rows = most.min(extents.output[1]);
        let per_plane = extents.output[1].div_ceil(rows);
        let blocks = self.depthwise.geometry.groups.div_ceil(self.block());
        let per_chunk = CHUNK.div_ceil((rows * extents.output[2] * self.block()).max(1));
        Ok(Bands { extents, rows, per_plane, blocks, count: extents.images * blocks * per_plane, per_chunk })
    }

    fn place(&self, bands: &Bands, unit: usize) -> ChannelBand {
        let Geometry { stride, padding, groups, .. } = self.depthwise.geometry;
        let (band, rest) = (unit % bands.per_plane, unit / bands.per_plane);
        let (block, image) = (rest % bands.blocks, rest / bands.blocks);
        let channel = block * self.block();
        let rows = band * bands.rows..((band + 1) * bands.rows).min(bands.extents.output[1]);
        let last = (rows.end - 1) * stride[1] + self.depthwise.geometry.reach(1) + 1;
        let end = last.saturating_sub(padding[1]).min(bands.extents.input[1]);
        let start = (rows.start * stride[1]).saturating_sub(padding[1]).min(end);
        ChannelBand { image, channel, channels: self.block().min(groups - channel), rows, inputs: start..end }
    }

    /// The band's tensors as channels-last; `copy` holds those that are not. Brings the input there.
    fn pixels(&self, bands: &Bands, place: &ChannelBand, operands: &Operands, copy: *mut f32) -> Pixels {
        let (extents, block, total) = (&bands.extents, self.block(), self.depthwise.geometry.groups);
        let [_, in_height, in_width] = extents.input;
        let [_, out_height, out_width] = extents.output;
        let ChannelBand { image, channel, channels, ref rows, ref inputs } = *place;
        let offset = |p: *const f32| if p.is_null() { p } else { p.wrapping_add(channel) };
        let (mut input, mut input_step, mut result) = (offset(operands.input), total, copy);
        if !self.is_input_interleaved {
            let plane = (image * total + channel) * in_height * in_width + inputs.start * in_width;
            self.depthwise.level.dispatch(Interleave {
                from: operands.input.wrapping_add(plane),
                to: copy,
                step: block,
                channels,
                pixels: in_height * in_width,
                range: 0..inputs.len() * in_width,
            });
            // Where pixel 0 of the first image would be.
            input = copy.cast_const().wrapping_sub((image * in_height + inputs.start) * in_width * block);
            input_step = block;
            result = copy.wrapping_add(inputs.len() * in_width * block);
        }
        let is_last = self.is_output_interleaved;
        let before = (image * out_height + rows.start) * out_width * block;
        // Where planes are written, the residual is added then, and the limits come after that.
        let clamps = is_last || operands.residual.is_null();
        Pixels {
            input,
            input_step,
            out: if is_last { operands.out.wrapping_add(channel) } else { result.wrapping_sub(before) },
            out_step: if is_last { total } else { block },
            residual: if is_last { offset(operands.residual) } else { std::ptr::null() },
            bias: offset(operands.bias),
            channel,
            channels,
            clamp: self.depthwise.epilogue.clamp.filter(|_| clamps),
        }
    }

    /// Brings the band's result into planes, and runs the program behind the convolution.
    ///
    /// # Safety
    /// The band lies inside the output and was just computed.
    unsafe fn finish(
        &self,
        bands: &Bands,
        place: &ChannelBand,
        operands: &Operands,
        pixels: &Pixels,
        post: &mut [f32],
    ) {
        let Depthwise { level, ref epilogue, geometry, .. } = self.depthwise;
        let [_, height, width] = bands.extents.output;
        let ChannelBand { image, channel, channels, ref rows, .. } = *place;
        let (count, total) = (rows.len() * width, geometry.groups);
        let pixel = (image * height + rows.start) * width;
        // SAFETY: the channels and rows of `place` are inside the output, which the caller promises to be
        // valid.
        unsafe {
            if self.is_output_interleaved {
                let out = pixels.out.wrapping_add(pixel * total);
                return apply_post(epilogue, level, out, total, [count, channels], post);
            }
            let (plane, at) =
                (height * width, (image * total + channel) * height * width + rows.start * width);
            let to = operands.out.wrapping_add(at);
            level.dispatch(Deinterleave {
                from: pixels.out.wrapping_add(pixel * pixels.out_step),
                step: pixels.out_step,
                to,
                plane,
                channels,
                pixels: count,
                residual: match operands.residual.is_null() {
                    true => std::ptr::null(),
                    false => operands.residual.wrapping_add(at),
                },
                clamp: epilogue.clamp,
            });
            apply_post(epilogue, level, to, plane, [channels, count], post);
        }
    }
}

impl Method for DepthwisePlanes {
    type Split = Bands;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        self.depthwise.layer()
    }

    /// Floats of scratch: zeros, copies of a band, what a program behind the convolution needs.
    fn scratch_parts(&self) -> [usize; 2] {
        let floats = self.depthwise.zero_floats() + self.floats + post_floats(&self.depthwise.epilogue);
        [table_entries(&self.depthwise.geometry), floats]
    }

    fn split(&self, extents: Extents) -> Result<(Bands, Grid)> {
        let bands = self.bands(extents)?;
        // About 12 multiply-adds a nanosecond, and four bytes each way.
        let elements = bands.rows * extents.output[2] * self.block() * bands.per_chunk.min(bands.count);
        let work = elements * self.depthwise.geometry.taps() / 12 + elements / 2;
        Ok((bands, Grid::chunks(bands.count.div_ceil(bands.per_chunk), work)))
    }

    fn run(&self, bands: Bands, operands: Operands, part: Part<'_>) -> Result<()> {
        let (zeros, rest) = part.floats.split_at_mut(self.depthwise.zero_floats());
        let (copy, post) = rest.split_at_mut(self.floats);
        zeros.fill(0.0);
        let first = part.chunk * bands.per_chunk;
        for unit in first..(first + bands.per_chunk).min(bands.count) {
            let place = self.place(&bands, unit);
            let pixels = self.pixels(&bands, &place, &operands, copy.as_mut_ptr());
            let line = place.image * bands.extents.output[1];
            let task = LinesTask {
                geometry: &self.depthwise.geometry,
                weights: self.depthwise.weights.as_ptr().cast(),
                extents: bands.extents,
                range: line + place.rows.start..line + place.rows.end,
                pixels,
                table: part.table,
                zeros,
            };
            task.dispatch(self.depthwise.level);
            // SAFETY: the band exists in the output, whose size `bind` checked.
            unsafe { self.finish(&bands, &place, &operands, &pixels, post) };
        }
        Ok(())
    }
}
