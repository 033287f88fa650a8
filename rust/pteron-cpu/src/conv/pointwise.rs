//! Pointwise convolution of channels-last tensors: pixels × channels is a matrix as it lies, so this is one
//! matrix product with packed weights for each group. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::f32_conv_nr32_v1::{FORMAT, PANEL, packed};
use super::frame::{Method, Part, framed};
use super::geometry::{Extents, Geometry, WEIGHT};
use super::operands::Operands;
use crate::epilogue::Epilogue;
use crate::gemm::{Gemm, Lhs, Rhs, TileSet, Tiling, scratch_elements};
use pteron_core::{Grid, PackedBytes, PrepareContext, Result};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::Arc;

/// How a call splits up.
#[derive(Clone, Copy)]
struct Bounds {
    tiling: Tiling,
    /// Of all images.
    pixels: usize,
}

struct Pointwise {
    tiles: &'static TileSet,
    geometry: Geometry,
    weights: Arc<PackedBytes>,
    epilogue: Epilogue,
}

/// Prepares a pointwise convolution whose weight is constant and whose tensors are channels-last.
pub fn prepare(ctx: &PrepareContext<'_>, geometry: Geometry, epilogue: &Epilogue) -> Preparation {
    let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else {
        return ctx.decline("the weight is no constant");
    };
    let Some(weights) = packed(ctx.packs, ctx.cpu, weight, &geometry)? else {
        return ctx.decline("the weight lies in a way that has no packed format");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("convolution.{FORMAT}.product.{}", level.isa().name());
    framed(
        name,
        Pointwise { tiles: TileSet::for_isa(level.isa()), geometry, weights, epilogue: epilogue.clone() },
    )
}

impl Method for Pointwise {
    type Split = Bounds;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        (&self.geometry, &self.epilogue)
    }

    fn scratch_parts(&self) -> [usize; 2] {
        [0, scratch_elements(self.geometry.in_channels, false, true, self.epilogue.post.as_deref())]
    }

    fn split(&self, extents: Extents) -> Result<(Bounds, Grid)> {
        let Geometry { groups, in_channels, out_channels, .. } = self.geometry;
        let pixels = extents.images * extents.pixels();
        let tiling = Tiling::new(self.tiles, groups, pixels, out_channels, in_channels);
        Ok((Bounds { tiling, pixels }, tiling.grid(self.tiles.isa)))
    }

    fn run(&self, Bounds { tiling, pixels }: Bounds, operands: Operands, part: Part<'_>) -> Result<()> {
        let range = tiling.chunk(part.chunk);
        let Geometry { in_channels, out_channels, .. } = self.geometry;
        let (a_stride, c_stride) = (self.geometry.total_in_channels(), self.geometry.total_out_channels());
        let pack = self.weights.as_ptr().cast::<f32>();
        let group_floats = out_channels.div_ceil(PANEL) * PANEL * in_channels;
        for group in range.batches {
            let (read, written) = (group * in_channels, group * out_channels);
            let shifted = |p: *const f32| if p.is_null() { p } else { p.wrapping_add(written) };
            let gemm = Gemm {
                m: pixels,
                n: out_channels,
                k: in_channels,
                a: Lhs::Rows(operands.input.wrapping_add(read), a_stride),
                b: Rhs::Packed(pack.wrapping_add(group * group_floats)),
                c: operands.out.wrapping_add(written),
                c_stride,
                bias: shifted(operands.bias),
                residual: shifted(operands.residual),
                residual_stride: c_stride,
                clamp: self.epilogue.clamp,
                post: self.epilogue.post.as_deref(),
            };
            // SAFETY: `bind` checked that the shapes fit; tensors point to memory for their shapes and the output
            // overlaps no input (alias rule `None`); the pack has the size for its groups and
            // channels; the tiles come from the profile of this processor.
            unsafe { gemm.run(self.tiles, range.row_tiles.clone(), range.panels.clone(), part.floats) };
        }
        Ok(())
    }
}
