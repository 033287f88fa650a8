//! Dense (and grouped) f32 convolution: blocks of output pixels × blocks of output channels, each a small
//! GEMM over panels of pixels and packed weights. Reads and writes channel planes or channels-last.
//! Unsafe island.

use super::f32_conv_nr32_v1::{PANEL, packed};
use super::geometry::{BIAS, Extents, Geometry, INPUT, OUT, WEIGHT};
use super::pixel_panels::Source;
use super::tile::{Tile, tile_rows};
use crate::epilogue::Epilogue;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    Args, BindArgs, Bound, Error, Grid, PackedBytes, PrepareContext, Prepared, Result, Scratch, WorkerScratch,
};
use std::sync::Arc;

/// Output pixels of a block: whole tiles for every instruction set.
const BLOCK_PIXELS: usize = 84;
/// Multiplications of a block: a weight panel of this depth fits the first-level cache.
const BLOCK_DEPTH: usize = 256;
/// Weight panels of a block at most, so that its sums stay in the second-level cache.
const BLOCK_PANELS: usize = 8;
/// Fewest chunks worth having, so that threads find work; panels of a block are not split below
/// [`MIN_PANELS`] for it.
const WANTED_CHUNKS: usize = 8;
const MIN_PANELS: usize = 4;

/// A convolution with packed weights.
pub struct DenseConvolution {
    level: SimdLevel,
    name: String,
    geometry: Geometry,
    weights: Arc<PackedBytes>,
    epilogue: Epilogue,
    is_input_interleaved: bool,
    is_output_interleaved: bool,
}

/// How one call splits up.
#[derive(Debug, Clone, Copy, Default)]
struct Blocks {
    extents: Extents,
    pixel_blocks: usize,
    panel_blocks: usize,
    panels_per_block: usize,
}

impl DenseConvolution {
    /// Prepares a convolution whose weight is the constant argument 1.
    pub fn prepare(
        ctx: &PrepareContext<'_>,
        geometry: Geometry,
        epilogue: &Epilogue,
        [is_input_interleaved, is_output_interleaved]: [bool; 2],
    ) -> Result<Option<Box<dyn Prepared>>> {
        let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else { return Ok(None) };
        let weights = packed(ctx.packs, weight, &geometry)?;
        let level = SimdLevel::at_most(ctx.cpu.isa);
        Ok(Some(Box::new(DenseConvolution {
            level,
            name: format!("convolution.{}.{}", super::f32_conv_nr32_v1::FORMAT, level.isa().name()),
            geometry,
            weights,
            epilogue: epilogue.clone(),
            is_input_interleaved,
            is_output_interleaved,
        })))
    }

    fn panels(&self) -> usize {
        self.geometry.out_channels.div_ceil(PANEL)
    }

    fn blocks(&self, extents: Extents) -> Blocks {
        let pixel_blocks = extents.pixels().div_ceil(BLOCK_PIXELS);
        let others = (extents.images * self.geometry.groups * pixel_blocks).max(1);
        let wanted = WANTED_CHUNKS.div_ceil(others).min(self.panels().div_ceil(MIN_PANELS));
        let panel_blocks = wanted.max(self.panels().div_ceil(BLOCK_PANELS));
        let panels_per_block = self.panels().div_ceil(panel_blocks);
        let panel_blocks = self.panels().div_ceil(panels_per_block);
        Blocks { extents, pixel_blocks, panel_blocks, panels_per_block }
    }
}

const PANEL_FLOATS: usize = BLOCK_PIXELS * BLOCK_DEPTH + 16;
const SUM_FLOATS: usize = BLOCK_PANELS * BLOCK_PIXELS * PANEL;

impl Prepared for DenseConvolution {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: (PANEL_FLOATS + SUM_FLOATS) * size_of::<f32>(), shared: 0 }
    }

    fn needs(&self, index: usize) -> bool {
        index != WEIGHT
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Blocks::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let mut extents = self.geometry.extents(args.args().tensor(INPUT)?.shape())?;
        args.resize(OUT, &self.geometry.output_shape(&extents)?)?;
        check_bias(&args.args(), &self.geometry)?;
        if extents.images == 0 || extents.pixels() == 0 {
            return Ok(Grid::EMPTY);
        }
        if self.geometry.is_pointwise() {
            // Rows follow each other without gaps: one long row has no row ends inside tiles.
            extents.input = [1, extents.input[0] * extents.input[1]];
            extents.output = extents.input;
        }
        let blocks = self.blocks(extents);
        *bound.get_mut::<Blocks>()? = blocks;
        let chunks = extents.images * self.geometry.groups * blocks.pixel_blocks * blocks.panel_blocks;
        // About 64 multiply-adds a nanosecond.
        let multiplications =
            BLOCK_PIXELS.min(extents.pixels()) * blocks.panels_per_block * PANEL * self.geometry.depth();
        Ok(Grid::chunks(chunks, multiplications / 64))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let blocks = *bound.get::<Blocks>()?;
        let bias = args.optional_tensor(BIAS)?.map_or(Ok(std::ptr::null()), |t| t.ptr::<f32>())?;
        if scratch.worker.len() < (PANEL_FLOATS + SUM_FLOATS) * size_of::<f32>() {
            return Err(Error::internal("worker scratch is too small"));
        }
        let panel: *mut f32 = scratch.worker.as_mut_ptr().cast();
        let task = BlockTask {
            convolution: self,
            blocks,
            chunk: chunk as usize,
            input: args.tensor(INPUT)?.ptr()?,
            bias,
            out: args.output(OUT)?.ptr()?,
            panel,
            // SAFETY: the length was checked above.
            sums: unsafe { panel.add(PANEL_FLOATS) },
        };
        self.level.dispatch(task);
        Ok(())
    }
}

/// An error when the bias does not have one element per output channel.
pub fn check_bias(args: &Args<'_>, geometry: &Geometry) -> Result<()> {
    match args.optional_tensor(BIAS)? {
        Some(bias) if bias.numel() != geometry.total_out_channels() => {
            Err(Error::kernel("the bias of a convolution does not have one element per output channel")
                .argument("bias")
                .expected(format!("[{}]", geometry.total_out_channels()))
                .got(bias.shape().to_string()))
        }
        _ => Ok(()),
    }
}

struct BlockTask<'a> {
    convolution: &'a DenseConvolution,
    blocks: Blocks,
    chunk: usize,
    input: *const f32,
    /// Null when absent.
    bias: *const f32,
    out: *mut f32,
    panel: *mut f32,
    sums: *mut f32,
}

/// Where a block lies.
#[derive(Clone, Copy)]
struct Place {
    image: usize,
    group: usize,
    pixel: usize,
    pixels: usize,
    panel: usize,
    panels: usize,
}

impl SimdTask for BlockTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let place = self.place();
        let depth = self.convolution.geometry.depth();
        let mut first = 0;
        while first < depth {
            let last = depth.min(first + BLOCK_DEPTH);
            // SAFETY: the block lies inside input, weights and output, whose sizes `bind` checked; scratch
            // holds a panel of BLOCK_PIXELS × BLOCK_DEPTH and the sums of BLOCK_PANELS.
            unsafe {
                self.pack(s, &place, [first, last]);
                self.multiply(s, &place, [first, last]);
            }
            first = last;
        }
        // SAFETY: as above.
        unsafe { self.write(s, &place) };
    }
}

impl BlockTask<'_> {
    #[inline(always)]
    fn place(&self) -> Place {
        let Blocks { extents, pixel_blocks, panel_blocks, panels_per_block } = self.blocks;
        let (panel_block, rest) = (self.chunk % panel_blocks, self.chunk / panel_blocks);
        let (pixel_block, rest) = (rest % pixel_blocks, rest / pixel_blocks);
        let groups = self.convolution.geometry.groups;
        let (pixel, panel) = (pixel_block * BLOCK_PIXELS, panel_block * panels_per_block);
        Place {
            image: rest / groups,
            group: rest % groups,
            pixel,
            pixels: BLOCK_PIXELS.min(extents.pixels() - pixel),
            panel,
            panels: panels_per_block.min(self.convolution.panels() - panel),
        }
    }

    /// Pixels that exist and rows that are computed of the tile at `start` of the block.
    #[inline(always)]
    fn tile_at<S: Simd>(place: &Place, start: usize) -> (usize, usize) {
        let valid = tile_rows(S::LANES).min(place.pixels - start);
        (valid, valid.next_multiple_of(2))
    }

    /// # Safety
    /// The block lies inside the input; the panel has room for it.
    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, s: S, place: &Place, depth: [usize; 2]) {
        let geometry = &self.convolution.geometry;
        let extents = self.blocks.extents;
        let pixels = extents.input[0] * extents.input[1];
        let image = place.image * geometry.total_in_channels() * pixels;
        let channel = place.group * geometry.in_channels;
        let (channel_stride, pixel_stride) = match self.convolution.is_input_interleaved {
            true => (1, geometry.total_in_channels()),
            false => (pixels, 1),
        };
        // SAFETY: image and group exist.
        let data = unsafe { self.input.add(image + channel * channel_stride) };
        let source = Source { data, channel_stride, pixel_stride, geometry, extents };
        for start in (0..place.pixels).step_by(tile_rows(S::LANES)) {
            let (valid, rows) = Self::tile_at::<S>(place, start);
            // SAFETY: tiles lie one after the other in the panel, rows ≤ LANES; the slack at the end of the
            // panel takes the last spill.
            unsafe {
                let panel = self.panel.add(start * (depth[1] - depth[0]));
                source.pack(s, place.pixel + start, valid, rows, depth, panel);
            }
        }
    }

    /// # Safety
    /// The panel holds the block; the sums have room for it.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(&self, s: S, place: &Place, [first, last]: [usize; 2]) {
        let geometry = &self.convolution.geometry;
        let total = geometry.depth();
        let clamp = if last == total { self.convolution.epilogue.clamp } else { None };
        let weights: *const f32 = self.convolution.weights.as_ptr().cast();
        for j in 0..place.panels {
            let panel = place.panel + j;
            let start = self.starting_sums(place.group, panel);
            for half in (0..PANEL).step_by(2 * S::LANES) {
                if panel * PANEL + half >= geometry.out_channels {
                    break;
                }
                for at in (0..place.pixels).step_by(tile_rows(S::LANES)) {
                    let (_, rows) = Self::tile_at::<S>(place, at);
                    // SAFETY: (group, panel, first) is a row of the pack; sums are BLOCK_PIXELS × PANEL per
                    // panel; `start` holds PANEL numbers.
                    unsafe {
                        let row = (place.group * self.convolution.panels() + panel) * total + first;
                        let tile = Tile {
                            pixels: self.panel.add(at * (last - first)),
                            weights: weights.add(row * PANEL + half),
                            depth: last - first,
                            sums: self.sums.add((j * BLOCK_PIXELS + at) * PANEL + half),
                            start: if first == 0 { Some(start.as_ptr().add(half)) } else { None },
                            clamp,
                        };
                        tile.compute(s, rows);
                    }
                }
            }
        }
    }

    /// The bias of a panel's channels, zero where there is none.
    #[inline(always)]
    fn starting_sums(&self, group: usize, panel: usize) -> [f32; PANEL] {
        let mut start = [0f32; PANEL];
        if !self.bias.is_null() {
            let channels = self.convolution.geometry.out_channels;
            let n = PANEL.min(channels - panel * PANEL);
            // SAFETY: the bias has one element per output channel (checked in `bind`).
            unsafe {
                let from = self.bias.add(group * channels + panel * PANEL);
                std::ptr::copy_nonoverlapping(from, start.as_mut_ptr(), n);
            }
        }
        start
    }

    /// Writes the sums to the output in its memory order.
    ///
    /// # Safety
    /// The block lies inside the output.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, place: &Place) {
        let geometry = &self.convolution.geometry;
        let (channels, pixels) = (geometry.total_out_channels(), self.blocks.extents.pixels());
        for j in 0..place.panels {
            let in_group = (place.panel + j) * PANEL;
            let n = PANEL.min(geometry.out_channels - in_group);
            let channel = place.group * geometry.out_channels + in_group;
            // SAFETY: pixels place.pixel.. and channels channel..channel + n of the image exist.
            unsafe {
                let sums = self.sums.add(j * BLOCK_PIXELS * PANEL).cast_const();
                let image = self.out.add(place.image * channels * pixels);
                if self.convolution.is_output_interleaved {
                    for m in 0..place.pixels {
                        let to = image.add((place.pixel + m) * channels + channel);
                        for c in (0..n).step_by(S::LANES) {
                            let v = s.load(sums.add(m * PANEL + c));
                            s.store_up_to(to.add(c), v, S::LANES.min(n - c));
                        }
                    }
                    continue;
                }
                for m in (0..place.pixels).step_by(S::LANES) {
                    let rows = S::LANES.min(place.pixels - m);
                    for c in (0..n).step_by(S::LANES) {
                        let to = image.add((channel + c) * pixels + place.pixel + m);
                        s.transpose_block(
                            sums.add(m * PANEL + c),
                            PANEL,
                            rows,
                            S::LANES.min(n - c),
                            to,
                            pixels,
                        );
                    }
                }
            }
        }
    }
}
