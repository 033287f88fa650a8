//! f32 convolution of few input channels into a channels-last output, as the first layer of a network is: a band of
//! input rows is copied with zeros around it, and the tiles of outputs read it where it lies, in channel planes or
//! channels-last. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use super::f32_conv_nr32_v1::{FORMAT, packed};
use super::frame::{Method, Part, framed};
use super::geometry::{Extents, Geometry, INPUT, WEIGHT};
use super::operands::{Operands, apply_post, post_floats};
use super::shallow_band::{BandTask, Copy, MOST_ROWS};
use crate::epilogue::Epilogue;
use pteron_core::{Error, Grid, PackedBytes, PrepareContext, Result};
use pteron_kernels::chunk::CHUNK;
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::Arc;

/// Floats of a band that are aimed at: a small part of the second-level cache.
const FLOATS: usize = 32 << 10;
/// Floats of a band of a single output row at most.
const MOST_FLOATS: usize = 256 << 10;

pub(super) struct Shallow {
    level: SimdLevel,
    pub(super) geometry: Geometry,
    pub(super) weights: Arc<PackedBytes>,
    pub(super) epilogue: Epilogue,
    pub(super) is_input_interleaved: bool,
    /// Floats of the copy.
    floats: usize,
}

/// Work of one call in bands of output rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bands {
    extents: Extents,
    rows: usize,
    per_image: usize,
}

/// Prepares a convolution of one group, at most two dimensions and a constant weight whose output is
/// channels-last; `None` when a band would not fit the caches.
pub fn prepare(
    ctx: &PrepareContext<'_>,
    geometry: Geometry,
    epilogue: &Epilogue,
    is_input_interleaved: bool,
) -> Preparation {
    let Some(weight) = ctx.args.get(WEIGHT).and_then(|a| a.constant()) else {
        return ctx.decline("the weight is no constant");
    };
    let bound = ctx.tensor(INPUT).and_then(|t| geometry.extents(&t.shape).ok());
    let (Some(bound), 1, 1..=2) = (bound, geometry.groups, geometry.spatial_rank) else {
        return ctx.decline("takes one group and at most two dimensions");
    };
    if geometry.is_transposed {
        return ctx.decline("the convolution is transposed");
    }
    let floats = match Copy::floats_of_rows(&geometry, &bound) {
        Some([least, _]) if least <= MOST_FLOATS => least.max(FLOATS),
        _ => return ctx.decline("a band of the input does not fit the caches"),
    };
    let Some(weights) = packed(ctx.packs, ctx.cpu, weight, &geometry)? else {
        return ctx.decline("the weight lies in a way that has no packed format");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("convolution.{FORMAT}.shallow.{}", level.isa().name());
    framed(
        name,
        Shallow { level, geometry, weights, epilogue: epilogue.clone(), is_input_interleaved, floats },
    )
}

impl Shallow {
    fn bands(&self, extents: Extents) -> Result<Bands> {
        let floats =
            Copy::floats_of_rows(&self.geometry, &extents).filter(|[least, _]| *least <= self.floats);
        let Some([least, each]) = floats else {
            return Err(Error::kernel("the input of a convolution is larger than its upper bound")
                .got(format!("rows of {} elements", extents.input[2]))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        };
        let [_, height, width] = extents.output;
        let wanted = CHUNK.div_ceil((width * self.geometry.out_channels).max(1));
        let rows = wanted.min(1 + (self.floats - least) / each.max(1)).min(height).min(MOST_ROWS);
        Ok(Bands { extents, rows, per_image: height.div_ceil(rows) })
    }
}

impl Method for Shallow {
    type Split = Bands;

    fn layer(&self) -> (&Geometry, &Epilogue) {
        (&self.geometry, &self.epilogue)
    }

    /// Offsets of the elements of a window; floats of the copy and of the program behind the convolution.
    fn scratch_parts(&self) -> [usize; 2] {
        [self.geometry.depth(), self.floats + post_floats(&self.epilogue)]
    }

    fn split(&self, extents: Extents) -> Result<(Bands, Grid)> {
        let bands = self.bands(extents)?;
        // About 56 multiply-adds a nanosecond.
        let elements = bands.rows * extents.output[2] * self.geometry.out_channels;
        let work = elements * self.geometry.depth() / 56;
        Ok((bands, Grid::chunks(extents.images * bands.per_image, work)))
    }

    fn run(
        &self,
        Bands { extents, rows, per_image }: Bands,
        operands: Operands,
        part: Part<'_>,
    ) -> Result<()> {
        let (offsets, (copy, post)) = (part.table, part.floats.split_at_mut(self.floats));
        let (band, image) = (part.chunk % per_image, part.chunk / per_image);
        let [_, height, width] = extents.output;
        let range = band * rows..((band + 1) * rows).min(height);
        let layout = Copy::of(&self.geometry, &extents, range.len(), self.is_input_interleaved);
        layout.fill_offsets(&self.geometry, offsets);
        let n = range.len() * width * self.geometry.out_channels;
        let at = (image * height + range.start) * width * self.geometry.out_channels;
        self.level.dispatch(BandTask {
            convolution: self,
            extents,
            layout,
            image,
            rows: range,
            offsets,
            copy: copy.as_mut_ptr(),
            operands,
        });
        // SAFETY: the band exists in the output, whose size `bind` checked, and was just written.
        unsafe {
            let out = operands.out.wrapping_add(at);
            apply_post(&self.epilogue, self.level, out, n, [1, n], post);
        }
        Ok(())
    }
}
