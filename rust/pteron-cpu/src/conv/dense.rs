//! Dense and grouped f32 convolution, plain or transposed, in one to three dimensions: blocks of output pixels
//! × panels of output channels, each a small matrix product of gathered pixels and packed weights.
//! Channel planes are brought into channels-last first, in a phase of their own.

use super::dense_block::{BLOCK_PANELS, Block, panel_floats, sum_floats};
use super::f32_conv_nr32_v1::{PANEL, packed};
use super::frame::{Method, Part, framed};
use super::gather::BLOCK_PIXELS;
use super::geometry::{Extents, Geometry, INPUT, WEIGHT};
use super::operands::{Operands, post_floats};
use super::reorder::{CHUNK_PIXELS, Interleave};
use super::window::{phase, phase_count};
use crate::epilogue::Epilogue;
use crate::gemm::TileSet;
use pteron_core::{Error, Grid, PackedBytes, PrepareContext, Result};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::Arc;

/// Fewest chunks worth having, so that threads find work; panels of a block are not split below
/// [`MIN_PANELS`] for it.
const WANTED_CHUNKS: usize = 8;
const MIN_PANELS: usize = 4;

/// A convolution with packed weights.
pub struct DenseConvolution {
    pub(super) level: SimdLevel,
    pub(super) tiles: &'static TileSet,
    pub(super) geometry: Geometry,
    pub(super) weights: Arc<PackedBytes>,
    pub(super) epilogue: Epilogue,
    is_input_interleaved: bool,
    pub(super) is_output_interleaved: bool,
    /// Elements of the input at most, when it has to be reordered.
    reordered: usize,
}

/// How one call splits up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Split {
    pub extents: Extents,
    pub phases: usize,
    /// Pixels of a block; blocks of a phase, over all images.
    pub block_pixels: usize,
    pub pixel_blocks: usize,
    pub panel_blocks: usize,
    pub panels_per_block: usize,
}

impl DenseConvolution {
    /// Prepares a convolution whose weight is the constant argument 1.
    pub fn prepare(
        ctx: &PrepareContext<'_>,
        geometry: Geometry,
        epilogue: &Epilogue,
        [is_input_interleaved, is_output_interleaved]: [bool; 2],
    ) -> Preparation {
        let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else {
            return ctx.decline("the weight is no constant");
        };
        let Some(input) = ctx.tensor(INPUT) else { return ctx.decline("an argument is no tensor") };
        let Some(weights) = packed(ctx.packs, ctx.cpu, weight, &geometry)? else {
            return ctx.decline("the weight lies in a way that has no packed format");
        };
        let level = SimdLevel::at_most(ctx.cpu.isa);
        let name = format!("convolution.{}.{}", super::f32_conv_nr32_v1::FORMAT, level.isa().name());
        framed(
            name,
            DenseConvolution {
                level,
                tiles: TileSet::for_isa(level.isa()),
                geometry,
                weights,
                epilogue: epilogue.clone(),
                is_input_interleaved,
                is_output_interleaved,
                reordered: if is_input_interleaved { 0 } else { input.shape.numel()? },
            },
        )
    }

    pub(super) fn panels(&self) -> usize {
        self.geometry.out_channels.div_ceil(PANEL)
    }

    fn blocks(&self, extents: Extents) -> Split {
        let phases = phase_count(&self.geometry, &extents);
        // The first phase has the most pixels.
        let pixels = extents.images * phase(&self.geometry, &extents, 0).pixels();
        let pixel_blocks = pixels.div_ceil(BLOCK_PIXELS);
        // Blocks alike, of whole tiles where the last one is not the only one.
        let tile = self.tiles.max_rows();
        let block_pixels = pixels.div_ceil(pixel_blocks.max(1)).next_multiple_of(tile).min(BLOCK_PIXELS);
        let pixel_blocks = pixels.div_ceil(block_pixels.max(1));
        let others = (phases * self.geometry.groups * pixel_blocks).max(1);
        let wanted = WANTED_CHUNKS.div_ceil(others).min(self.panels().div_ceil(MIN_PANELS));
        let panel_blocks = wanted.max(self.panels().div_ceil(BLOCK_PANELS));
        let panels_per_block = self.panels().div_ceil(panel_blocks);
        let panel_blocks = self.panels().div_ceil(panels_per_block);
        Split { extents, phases, block_pixels, pixel_blocks, panel_blocks, panels_per_block }
    }

    fn interleave(&self, extents: &Extents, operands: &Operands, chunk: usize, to: *mut f32) {
        let pixels = extents.input_pixels();
        let per_image = pixels.div_ceil(CHUNK_PIXELS);
        let (image, first) = (chunk / per_image, chunk % per_image * CHUNK_PIXELS);
        let channels = self.geometry.total_in_channels();
        let at = image * channels * pixels;
        self.level.dispatch(Interleave {
            from: operands.input.wrapping_add(at),
            to: to.wrapping_add(at),
            step: channels,
            channels,
            pixels,
            range: first..(first + CHUNK_PIXELS).min(pixels),
        });
    }
}

impl Method for DenseConvolution {
    type Split = Split;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        (&self.geometry, &self.epilogue)
    }

    fn scratch_parts(&self) -> [usize; 2] {
        [0, panel_floats() + sum_floats() + post_floats(&self.epilogue)]
    }

    fn shared_floats(&self) -> usize {
        self.reordered
    }

    fn split(&self, extents: Extents) -> Result<(Split, Grid)> {
        if extents.pixels() == 0 {
            return Ok((Split::default(), Grid::EMPTY));
        }
        let elements = extents.images * self.geometry.total_in_channels() * extents.input_pixels();
        if !self.is_input_interleaved && elements > self.reordered {
            return Err(Error::kernel("the input of a convolution is larger than its upper bound")
                .got(format!("{elements} elements"))
                .expected(format!("at most {}", self.reordered)));
        }
        let split = self.blocks(extents);
        let chunks = split.phases * self.geometry.groups * split.pixel_blocks * split.panel_blocks;
        // About 64 multiply-adds a nanosecond.
        let work = split.block_pixels * split.panels_per_block * PANEL * self.geometry.depth() / 64;
        if self.is_input_interleaved {
            return Ok((split, Grid::chunks(chunks, work)));
        }
        let reorders = extents.images * extents.input_pixels().div_ceil(CHUNK_PIXELS);
        Ok((split, Grid::phases(&[reorders, chunks], work)))
    }

    fn run(&self, split: Split, mut operands: Operands, part: Part<'_>) -> Result<()> {
        if !self.is_input_interleaved {
            if part.phase == 0 {
                self.interleave(&split.extents, &operands, part.chunk, part.shared);
                return Ok(());
            }
            operands.input = part.shared;
        }
        let (panel, rest) = part.floats.split_at_mut(panel_floats());
        let (sums, post) = rest.split_at_mut(sum_floats());
        self.level.dispatch(Block {
            convolution: self,
            split,
            chunk: part.chunk,
            operands,
            panel: panel.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
            post,
        });
        Ok(())
    }
}
