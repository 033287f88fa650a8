//! Depthwise f32 convolution of channels-last tensors: every channel has its own window, so vectors hold
//! channels and nothing is shared between lanes. With a multiplier, input channels are repeated first, in a
//! phase of their own. Unsafe island.

use super::depthwise_row::{LinesTask, Repeat, table_entries};
use super::geometry::{Extents, Geometry, INPUT, OUT, WEIGHT};
use super::operands::{Operands, check_bias, check_residual, post_floats};
use crate::epilogue::Epilogue;
use crate::packed::PackedFormat;
use crate::vector_math::SimdLevel;
use pteron_core::{
    AlignedBuffer, Args, BindArgs, Bound, DType, Error, Grid, PackKey, PackedBytes, PrepareContext, Prepared,
    Result, Scratch, WorkerScratch,
};
use std::sync::Arc;

/// Packed format of depthwise weights for channels-last: row-major f32 [kernel, C], where C counts output
/// channels.
pub const INTERLEAVED_FORMAT: &str = "f32_depthwise_interleaved_v1";

/// The format as a table entry: the shape is that of the weight, [C, 1, kernel].
pub const PACKED_INTERLEAVED: PackedFormat = PackedFormat {
    name: INTERLEAVED_FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d)),
    position: |shape, index| {
        let tap = shape.iter().zip(index).skip(1).fold(0, |at, (n, i)| at * n + i);
        tap * shape.first().copied().unwrap_or(0) + index.first().copied().unwrap_or(0)
    },
};

/// Output elements of a chunk, about.
const CHUNK: usize = 8 << 10;
/// Input pixels of a chunk of the repeating phase.
const REPEAT_PIXELS: usize = 512;

pub(super) struct Depthwise {
    pub(super) level: SimdLevel,
    name: String,
    pub(super) geometry: Geometry,
    pub(super) weights: Arc<PackedBytes>,
    pub(super) epilogue: Epilogue,
    /// Elements of the input with repeated channels at most; zero without a multiplier.
    repeated: usize,
}

/// Work of one call: output lines, counted over all images.
#[derive(Debug, Clone, Copy, Default)]
struct Lines {
    extents: Extents,
    count: usize,
    per_chunk: usize,
}

/// Prepares a depthwise convolution whose weight is constant and whose tensors are channels-last.
pub fn prepare(
    ctx: &PrepareContext<'_>,
    geometry: Geometry,
    epilogue: &Epilogue,
) -> Result<Option<Box<dyn Prepared>>> {
    let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else { return Ok(None) };
    let Some(input) = ctx.tensor(INPUT) else { return Ok(None) };
    let repeated = match geometry.out_channels {
        1 => 0,
        multiplier => input.shape.numel()?.saturating_mul(multiplier),
    };
    // The table of addresses is part of the scratch: windows of absurd size are for other kernels.
    if geometry.in_channels != 1 || geometry.is_transposed || geometry.taps() > 4096 {
        return Ok(None);
    }
    let weights = ctx.packs.get_or_pack(PackKey::new(weight, INTERLEAVED_FORMAT), || {
        let (values, taps) = (weight.to_vec::<f32>()?, geometry.taps());
        let channels = geometry.total_out_channels();
        let mut pack = AlignedBuffer::zeroed(values.len() * size_of::<f32>())?;
        for (i, slot) in pack.as_mut_elements::<f32>().iter_mut().enumerate() {
            let at = i % channels * taps + i / channels;
            *slot = *values.get(at).ok_or_else(|| Error::internal("depthwise weight is too small"))?;
        }
        Ok(pack)
    })?;
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(Depthwise {
        level,
        name: format!("convolution.{INTERLEAVED_FORMAT}.{}", level.isa().name()),
        geometry,
        weights,
        epilogue: epilogue.clone(),
        repeated,
    })))
}

impl Depthwise {
    /// Zeros, one per channel, stand for pixels outside.
    fn zero_floats(&self) -> usize {
        self.geometry.total_out_channels()
    }

    fn scratch_parts(&self) -> [usize; 2] {
        [table_entries(&self.geometry), self.zero_floats() + post_floats(&self.epilogue)]
    }

    fn repeat(&self, lines: &Lines, operands: &Operands, chunk: usize, to: *mut f32) {
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

impl Prepared for Depthwise {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        let [entries, floats] = self.scratch_parts();
        Scratch {
            per_worker: entries * size_of::<usize>() + floats * size_of::<f32>(),
            shared: self.repeated.saturating_mul(size_of::<f32>()),
        }
    }

    fn needs(&self, index: usize) -> bool {
        index != WEIGHT
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Lines::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let extents = self.geometry.extents(args.args().tensor(INPUT)?.shape())?;
        let shape = self.geometry.output_shape(&extents)?;
        args.resize(OUT, &shape)?;
        check_bias(&args.args(), &self.geometry)?;
        check_residual(&args.args(), &self.epilogue, &shape)?;
        if extents.images == 0 {
            return Ok(Grid::EMPTY);
        }
        let count = extents.images * extents.output[0] * extents.output[1];
        let size = extents.output[2] * self.geometry.total_out_channels();
        let per_chunk = CHUNK.div_ceil(size.max(1));
        *bound.get_mut::<Lines>()? = Lines { extents, count, per_chunk };
        let chunks = count.div_ceil(per_chunk);
        // About 16 multiply-adds a nanosecond.
        let work = per_chunk.min(count) * size * self.geometry.taps() / 16;
        if self.repeated == 0 {
            return Ok(Grid::chunks(chunks, work));
        }
        let pixels = extents.images * extents.input_pixels();
        let elements = pixels * self.geometry.total_out_channels();
        if elements > self.repeated {
            return Err(Error::kernel("the input of a convolution is larger than its upper bound")
                .got(format!("{elements} elements with repeated channels"))
                .expected(format!("at most {}", self.repeated)));
        }
        Ok(Grid::phases(&[pixels.div_ceil(REPEAT_PIXELS), chunks], work))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let lines = *bound.get::<Lines>()?;
        let mut operands = Operands::of(args, &self.epilogue)?;
        if self.repeated > 0 {
            let repeated: *mut f32 = scratch.shared.cast();
            if phase == 0 {
                self.repeat(&lines, &operands, chunk as usize, repeated);
                return Ok(());
            }
            operands.input = repeated;
        }
        let [entries, floats] = self.scratch_parts();
        let too_small = || Error::internal("worker scratch is too small or misaligned");
        let (table, rest) =
            scratch.worker.split_at_mut_checked(entries * size_of::<usize>()).ok_or_else(too_small)?;
        let rest = rest.get_mut(..floats * size_of::<f32>()).ok_or_else(too_small)?;
        let table: &mut [usize] = bytemuck::try_cast_slice_mut(table).map_err(|_| too_small())?;
        let rest: &mut [f32] = bytemuck::try_cast_slice_mut(rest).map_err(|_| too_small())?;
        let (zeros, post) = rest.split_at_mut(self.zero_floats());
        zeros.fill(0.0);
        let first = chunk as usize * lines.per_chunk;
        self.level.dispatch(LinesTask {
            convolution: self,
            extents: lines.extents,
            range: first..(first + lines.per_chunk).min(lines.count),
            operands,
            table,
            zeros,
            post,
        });
        Ok(())
    }
}
