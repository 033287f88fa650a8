//! Depthwise f32 convolution of channels-last tensors: every channel has its own window, so vectors hold
//! channels and nothing is shared between lanes. With a multiplier, input channels are repeated first, in a
//! phase of their own. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::depthwise_row::{LinesTask, Pixels, Repeat};
use super::depthwise_table::table_entries;
use super::frame::{Method, Part, framed};
use super::geometry::{Extents, Geometry, INPUT, WEIGHT};
use super::operands::{Operands, apply_post, post_floats};
use crate::epilogue::Epilogue;
use crate::packed::PackedFormat;
use pteron_core::{
    AlignedBuffer, ConstantView, DType, Dims, Error, Grid, PackKey, PackedBytes, PrepareContext, Result,
};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;
use std::sync::Arc;

/// Packed format of depthwise weights for channels-last: row-major f32 [kernel, C], where C counts output
/// channels.
pub const INTERLEAVED_FORMAT: &str = "f32_depthwise_interleaved_v1";

/// The format as a table entry: the shape is that of the weight, [C, 1, kernel].
pub const PACKED_INTERLEAVED: PackedFormat = PackedFormat {
    name: INTERLEAVED_FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d)),
};

/// The pack of a weight.
fn interleaved(weight: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let data = weight.elements::<f32>()?;
    let mut pack = AlignedBuffer::zeroed(PACKED_INTERLEAVED.nbytes(DType::Float32, &weight.shape)?)?;
    let (Some(channels), Some(stride)) = (weight.shape.first(), weight.strides.first()) else {
        return Err(Error::internal("a depthwise weight has channels"));
    };
    let mut index = Dims::filled(weight.shape.len(), 0)?;
    for row in pack.as_mut_elements::<f32>().chunks_exact_mut((*channels).max(1)) {
        let first = weight.position(&index);
        for (c, slot) in row.iter_mut().enumerate() {
            let x = data.get(first + c * stride);
            *slot = *x.ok_or_else(|| Error::program("convolution weight leaves its storage"))?;
        }
        // The next tap.
        for d in (1..index.len()).rev() {
            index[d] += 1;
            if index[d] < weight.shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok(pack)
}

/// Output elements of a chunk, about.
const CHUNK: usize = 8 << 10;
/// Input pixels of a chunk of the repeating phase.
const REPEAT_PIXELS: usize = 512;

pub(super) struct Depthwise {
    pub(super) level: SimdLevel,
    pub(super) geometry: Geometry,
    pub(super) weights: Arc<PackedBytes>,
    pub(super) epilogue: Epilogue,
    /// Elements of the input with repeated channels at most; zero without a multiplier.
    repeated: usize,
}

/// Work of one call: planes × bands of output lines.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bands {
    extents: Extents,
    /// Lines of a band, bands of a plane.
    lines: usize,
    per_plane: usize,
}

/// Prepares a depthwise convolution whose weight is constant and whose tensors are channels-last.
pub fn prepare(ctx: &PrepareContext<'_>, geometry: Geometry, epilogue: &Epilogue) -> Preparation {
    Depthwise::new(ctx, geometry, epilogue)?.map_or(Ok(None), |d| framed(d.name(), d))
}

impl Depthwise {
    /// The kernel for a constant weight; `None` for a convolution that is not depthwise.
    pub(super) fn new(
        ctx: &PrepareContext<'_>,
        geometry: Geometry,
        epilogue: &Epilogue,
    ) -> Result<Option<Self>> {
        let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else {
            return ctx.decline("the weight is no constant");
        };
        let Some(input) = ctx.tensor(INPUT) else { return ctx.decline("an argument is no tensor") };
        let repeated = match geometry.out_channels {
            1 => 0,
            multiplier => input.shape.numel()?.saturating_mul(multiplier),
        };
        // The table of addresses is part of the scratch: windows of absurd size are for other kernels.
        if geometry.in_channels != 1 || geometry.is_transposed || geometry.taps() > 4096 {
            return ctx.decline("takes depthwise convolutions of at most 4,096 taps that are not transposed");
        }
        let weights =
            ctx.packs.get_or_pack(PackKey::new(weight, INTERLEAVED_FORMAT), || interleaved(weight))?;
        let level = SimdLevel::at_most(ctx.cpu.isa);
        Ok(Some(Depthwise { level, geometry, weights, epilogue: epilogue.clone(), repeated }))
    }

    /// Its name in listings.
    pub(super) fn name(&self) -> String {
        format!("convolution.{INTERLEAVED_FORMAT}.{}", self.level.isa().name())
    }

    /// Zeros, one per channel, stand for pixels outside.
    pub(super) fn zero_floats(&self) -> usize {
        self.geometry.total_out_channels()
    }

    fn bands(&self, extents: Extents) -> Bands {
        let [_, height, width] = extents.output;
        let size = (width * self.geometry.total_out_channels()).max(1);
        // Lines are computed in pairs.
        let lines = CHUNK.div_ceil(size).next_multiple_of(2).min(height);
        Bands { extents, lines, per_plane: height.div_ceil(lines) }
    }

    fn repeat(&self, lines: &Bands, operands: &Operands, chunk: usize, to: *mut f32) {
        let pixels = lines.extents.images * lines.extents.input_pixels();
        let first = chunk * REPEAT_PIXELS;
        self.level.dispatch(Repeat {
            from: operands.input,
            to,
            channels: self.geometry.groups,
            times: self.geometry.out_channels,
            range: first..(first + REPEAT_PIXELS).min(pixels),
        });
    }
}

impl Method for Depthwise {
    type Split = Bands;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        (&self.geometry, &self.epilogue)
    }

    fn scratch_parts(&self) -> [usize; 2] {
        [table_entries(&self.geometry), self.zero_floats() + post_floats(&self.epilogue)]
    }

    fn shared_floats(&self) -> usize {
        self.repeated
    }

    fn split(&self, extents: Extents) -> Result<(Bands, Grid)> {
        let bands = self.bands(extents);
        let size = bands.lines * extents.output[2] * self.geometry.total_out_channels();
        // About 24 multiply-adds a nanosecond.
        let chunks = extents.images * extents.output[0] * bands.per_plane;
        let work = (size * self.geometry.taps()) / 24;
        if self.repeated == 0 {
            return Ok((bands, Grid::chunks(chunks, work)));
        }
        let pixels = extents.images * extents.input_pixels();
        let elements = pixels * self.geometry.total_out_channels();
        if elements > self.repeated {
            return Err(Error::kernel("the input of a convolution is larger than its upper bound")
                .got(format!("{elements} elements with repeated channels"))
                .expected(format!("at most {}", self.repeated)));
        }
        Ok((bands, Grid::phases(&[pixels.div_ceil(REPEAT_PIXELS), chunks], work)))
    }

    fn run(&self, bands: Bands, mut operands: Operands, part: Part<'_>) -> Result<()> {
        if self.repeated > 0 {
            if part.phase == 0 {
                self.repeat(&bands, &operands, part.chunk, part.shared);
                return Ok(());
            }
            operands.input = part.shared;
        }
        let (zeros, post) = part.floats.split_at_mut(self.zero_floats());
        zeros.fill(0.0);
        let range = bands.chunk(part.chunk);
        let channels = self.geometry.total_out_channels();
        let task = LinesTask {
            geometry: &self.geometry,
            weights: self.weights.as_ptr().cast(),
            extents: bands.extents,
            range: range.clone(),
            pixels: Pixels {
                input: operands.input,
                input_step: channels,
                out: operands.out,
                out_step: channels,
                residual: operands.residual,
                bias: operands.bias,
                channel: 0,
                channels,
                clamp: self.epilogue.clamp,
            },
            table: part.table,
            zeros,
        };
        task.dispatch(self.level);
        let n = bands.extents.output[2] * channels;
        for line in range {
            let out = operands.out.wrapping_add(line * n);
            // SAFETY: the line exists in the output and was just written.
            unsafe { apply_post(&self.epilogue, self.level, out, n, [1, n], post) };
        }
        Ok(())
    }
}

impl Bands {
    /// Output lines of a chunk, counted over all planes.
    fn chunk(&self, chunk: usize) -> Range<usize> {
        let (band, plane) = (chunk % self.per_plane, chunk / self.per_plane);
        let height = self.extents.output[1];
        let start = band * self.lines;
        plane * height + start..plane * height + (start + self.lines).min(height)
    }
}
