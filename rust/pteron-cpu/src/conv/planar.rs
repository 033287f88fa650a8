//! f32 convolution over channel planes: pixels fill the vectors, so nothing is wasted on groups of few
//! channels. It serves pointwise convolutions of planes, which read the input as it lies; and, through padded
//! copies of a band of rows, depthwise convolutions of planes (with any multiplier), groups of few
//! channels, and few input channels.

use super::f32_conv_nr32_v1::PANEL;
use super::frame::{Method, Part, framed};
use super::geometry::{Extents, Geometry, INPUT, WEIGHT};
use super::operands::{Operands, post_floats};
use super::planar_band::{Band, BandTask, PointwiseTask};
use super::planar_tile::most_vectors;
use super::{f32_conv_groups_v1, f32_conv_nr32_v1};
use crate::epilogue::Epilogue;
use pteron_core::{Grid, PackedBytes, PrepareContext, Result};
use pteron_kernels::chunk::CHUNK;
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::Arc;

/// Pixels of a pointwise unit at most: whole tiles for every instruction set.
const POINTWISE_PIXELS: usize = 768;
/// Fewest units worth having, so that threads find work; a unit is a whole tile at least.
const WANTED_UNITS: usize = 8;

pub(super) struct PlanarConvolution {
    level: SimdLevel,
    pub(super) geometry: Geometry,
    pub(super) weights: Arc<PackedBytes>,
    /// Output channels side by side in the packed weights.
    pub(super) panel_width: usize,
    pub(super) epilogue: Epilogue,
    pub(super) is_input_interleaved: bool,
    pub(super) is_output_interleaved: bool,
    /// `None` for a pointwise convolution, which copies nothing.
    band: Option<Band>,
}

/// Work of one call in units (bands, or stretches of pixels), several to a chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PlaneSplit {
    pub extents: Extents,
    /// Blocks of rows and of columns in an output plane.
    pub blocks: [usize; 2],
    count: usize,
    per_chunk: usize,
}

/// Prepares a convolution whose weight is constant; `None` when a band of its input would not fit the caches, or
/// it is transposed.
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
    let Ok(extents) = geometry.extents(&input.shape) else {
        return ctx.decline("the window does not fit the input");
    };
    let is_pointwise = geometry.is_pointwise() && !is_input_interleaved;
    let band = if is_pointwise { None } else { Band::new(&geometry, &extents) };
    if geometry.is_transposed || (band.is_none() && !is_pointwise) {
        return ctx.decline("the convolution is transposed, or a band of its input does not fit the caches");
    }
    let (format, panel_width, packed) = match geometry.out_channels < PANEL {
        true => {
            let packed = f32_conv_groups_v1::packed(ctx.packs, weight, &geometry)?;
            (f32_conv_groups_v1::FORMAT, geometry.out_channels, packed)
        }
        false => (
            f32_conv_nr32_v1::FORMAT,
            PANEL,
            f32_conv_nr32_v1::packed(ctx.packs, ctx.cpu, weight, &geometry)?,
        ),
    };
    let Some(weights) = packed else {
        return ctx.decline("the weight lies in a way that has no packed format");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let kind = if is_pointwise { "pointwise" } else { "planes" };
    let name = format!("convolution.{format}.{kind}.{}", level.isa().name());
    framed(
        name,
        PlanarConvolution {
            level,
            geometry,
            weights,
            panel_width,
            epilogue: epilogue.clone(),
            is_input_interleaved,
            is_output_interleaved,
            band,
        },
    )
}

impl PlanarConvolution {
    /// Pixels of a pointwise unit. The weights are read once for every tile of pixels, however these are shared out.
    fn pointwise_pixels(&self, extents: &Extents) -> usize {
        let lanes = self.level.lanes();
        let tile = most_vectors(lanes) * lanes;
        let of_a_plane = WANTED_UNITS.div_ceil((extents.images * self.geometry.groups).max(1));
        extents.pixels().div_ceil(of_a_plane).next_multiple_of(tile).clamp(tile, POINTWISE_PIXELS)
    }

    fn units(&self, extents: Extents) -> PlaneSplit {
        let planes = extents.images * self.geometry.groups * extents.output[0];
        let (blocks, planes, size) = match &self.band {
            Some(band) => {
                let blocks =
                    [extents.output[1].div_ceil(band.out_rows), extents.output[2].div_ceil(band.out_columns)];
                let pixels = band.out_rows.min(extents.output[1]) * band.out_columns.min(extents.output[2]);
                (blocks, planes, pixels)
            }
            None => {
                let planes = extents.images * self.geometry.groups;
                let unit = self.pointwise_pixels(&extents);
                ([extents.pixels().div_ceil(unit), 1], planes, unit.min(extents.pixels()))
            }
        };
        let per_chunk = CHUNK.div_ceil((size * self.geometry.out_channels).max(1));
        PlaneSplit { extents, blocks, count: planes * blocks[0] * blocks[1], per_chunk }
    }
}

impl Method for PlanarConvolution {
    type Split = PlaneSplit;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        (&self.geometry, &self.epilogue)
    }

    /// A table entry per tap and channel; floats of the copy and of the program behind the convolution.
    fn scratch_parts(&self) -> [usize; 2] {
        [
            self.geometry.depth(),
            self.band.map_or(0, |b| b.floats(&self.geometry)) + post_floats(&self.epilogue),
        ]
    }

    fn split(&self, extents: Extents) -> Result<(PlaneSplit, Grid)> {
        let units = self.units(extents);
        let chunks = units.count.div_ceil(units.per_chunk);
        // About 48 multiply-adds a nanosecond.
        let elements = extents.images * self.geometry.total_out_channels() * extents.pixels();
        let work = (elements / chunks.max(1)).saturating_mul(self.geometry.depth()) / 48;
        Ok((units, Grid::chunks(chunks, work)))
    }

    fn run(&self, units: PlaneSplit, operands: Operands, part: Part<'_>) -> Result<()> {
        let (offsets, rest) = (part.table, part.floats);
        let (copy, post) = rest.split_at_mut(rest.len() - post_floats(&self.epilogue));
        let first = part.chunk * units.per_chunk;
        let range = first..(first + units.per_chunk).min(units.count);
        let (convolution, level) = (self, self.level);
        match self.band {
            Some(band) => {
                band.fill_offsets(&self.geometry, offsets);
                level.dispatch(BandTask {
                    convolution,
                    band,
                    units,
                    range,
                    offsets,
                    copy,
                    post,
                    operands,
                    level,
                });
            }
            None => {
                let plane = units.extents.pixels();
                offsets.iter_mut().enumerate().for_each(|(k, slot)| *slot = k * plane);
                let pixels = self.pointwise_pixels(&units.extents);
                level.dispatch(PointwiseTask {
                    convolution,
                    pixels,
                    units,
                    range,
                    offsets,
                    post,
                    operands,
                    level,
                });
            }
        }
        Ok(())
    }
}
