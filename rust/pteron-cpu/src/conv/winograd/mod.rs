//! 3 × 3 convolution of unit stride over channels-last images by Winograd's minimal filtering F(2 × 2, 3 × 3):
//! 16 products where 36 are needed otherwise. (Lavin and Gray, "Fast algorithms for convolutional neural networks",
//! 2015.)
//!
//! Tiles of 2 × 2 outputs read 4 × 4 inputs. Inputs and weights go through linear transforms with coefficients 0,
//! ±1 and ½, then 16 matrix products over channels, then a transform back. Sums of other terms are
//! rounded than in a direct convolution: differences are about 1e-6 of the largest output. NaN or infinity
//! in an input reaches all outputs of the tiles that read it, where a direct convolution has them in the
//! windows that hold it; an infinity comes out as NaN.

mod block;
mod weights;

use super::call::{Call, call};
use super::f32_conv_nr32_v1::PANEL;
use super::frame::{Method, Part, framed};
use super::geometry::{Extents, Geometry, WEIGHT};
use super::operands::{Operands, post_floats};
use crate::epilogue::Epilogue;
use crate::gemm::{TileSet, part};
use block::{BlockTask, MOST_PANELS, MOST_TILES, product_floats, table_entries, transformed_floats};
use pteron_core::{Grid, PackedBytes, PrepareContext, Result};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::Arc;
pub(crate) use weights::PACKED;

/// Fewest channels on both sides: the transforms cost as much for each channel as a product with so many.
const FEWEST_CHANNELS: usize = 32;
/// Most input channels: the transformed tiles of a block have to stay in the second-level cache.
const MOST_CHANNELS: usize = 256;
/// Fewest tiles of an image: with less, reading the larger weights is what takes the time.
const FEWEST_TILES: usize = 24;

struct Winograd {
    level: SimdLevel,
    tiles: &'static TileSet,
    geometry: Geometry,
    weights: Arc<PackedBytes>,
    epilogue: Epilogue,
}

/// How one call splits up: blocks of tiles × groups of channels × parts of their panels.
#[derive(Debug, Clone, Copy, Default)]
struct Split {
    extents: Extents,
    /// Tiles down and across an image.
    grid: [usize; 2],
    blocks: usize,
    /// Parts of the panels of a group.
    parts: usize,
}

impl Split {
    fn tiles(&self) -> usize {
        self.extents.images * self.grid[0] * self.grid[1]
    }
}

/// Is this convolution one that the method computes, and faster?
fn is_fit(geometry: &Geometry, extents: &Extents) -> bool {
    let plain = Geometry {
        spatial_rank: 2,
        kernel: [1, 3, 3],
        stride: [1; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        is_transposed: false,
        ..*geometry
    };
    let [_, height, width] = extents.output;
    // Panels of a group hold its outputs alone.
    let has_own_panels = geometry.groups == 1 || geometry.out_channels.is_multiple_of(PANEL);
    *geometry == plain
        && has_own_panels
        && (FEWEST_CHANNELS..=MOST_CHANNELS).contains(&geometry.in_channels)
        && geometry.out_channels >= FEWEST_CHANNELS
        && height.div_ceil(2) * width.div_ceil(2) >= FEWEST_TILES
}

/// Prepares a convolution as [`super::prepare_convolution`] does; `None` for one that the method is not for.
pub fn prepare(ctx: &PrepareContext<'_>, epilogue: &Epilogue) -> Preparation {
    let Some(Call { geometry, extents, is_interleaved: [true, true] }) = call(ctx, epilogue) else {
        return ctx.decline("takes channels-last tensors and a constant float32 weight");
    };
    let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else {
        return ctx.decline("the weight is no constant");
    };
    if !is_fit(&geometry, &extents) {
        return ctx.decline("takes 3x3 windows of stride 1 with enough channels and tiles");
    }
    let Some(weights) = weights::packed(ctx.packs, ctx.cpu, weight, &geometry)? else {
        return ctx.decline("the weight lies in a way that has no packed format");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("convolution.winograd_2x2_3x3.{}", level.isa().name());
    framed(
        name,
        Winograd {
            level,
            tiles: TileSet::for_isa(level.isa()),
            geometry,
            weights,
            epilogue: epilogue.clone(),
        },
    )
}

impl Winograd {
    /// Of a group of channels.
    fn panels(&self) -> usize {
        self.geometry.out_channels.div_ceil(PANEL)
    }
}

impl Method for Winograd {
    type Split = Split;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        (&self.geometry, &self.epilogue)
    }

    /// Table entries; floats of zeros, transformed inputs, products, and the program behind the convolution.
    fn scratch_parts(&self) -> [usize; 2] {
        let channels = self.geometry.in_channels.next_multiple_of(PANEL);
        let floats = channels + transformed_floats(self.geometry.in_channels) + product_floats();
        [table_entries(), floats + post_floats(&self.epilogue)]
    }

    fn split(&self, extents: Extents) -> Result<(Split, Grid)> {
        let [_, height, width] = extents.output;
        let grid = [height.div_ceil(2), width.div_ceil(2)];
        let mut split = Split { extents, grid, blocks: 0, parts: self.panels().div_ceil(MOST_PANELS) };
        split.blocks = split.tiles().div_ceil(MOST_TILES);
        let chunks = split.blocks * split.parts;
        // About 64 multiply-adds a nanosecond.
        let products = weights::POINTS * split.tiles() * self.geometry.in_channels;
        let work = (products / chunks).saturating_mul(self.panels() * PANEL) / 64;
        Ok((split, Grid::chunks(chunks * self.geometry.groups, work)))
    }

    fn run(&self, split: Split, operands: Operands, chunk: Part<'_>) -> Result<()> {
        let channels = self.geometry.in_channels;
        let (zeros, rest) = chunk.floats.split_at_mut(channels.next_multiple_of(PANEL));
        let (transformed, rest) = rest.split_at_mut(transformed_floats(channels));
        let (products, post) = rest.split_at_mut(product_floats());
        zeros.fill(0.0);
        let (rest, part_of_group) = (chunk.chunk / split.parts, chunk.chunk % split.parts);
        let (block, group) = (rest / self.geometry.groups, rest % self.geometry.groups);
        let panels = part(self.panels(), split.parts, part_of_group);
        let first = group * self.panels();
        self.level.dispatch(BlockTask {
            convolution: self,
            split,
            tiles: part(split.tiles(), split.blocks, block),
            group,
            panels: first + panels.start..first + panels.end,
            operands,
            table: chunk.table,
            zeros,
            transformed: transformed.as_mut_ptr(),
            products: products.as_mut_ptr(),
            post,
        });
        Ok(())
    }
}
