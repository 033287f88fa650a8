//! Convolution kernels: `aten::convolution.out` in f32, in one to three dimensions, plain and transposed, in any
//! number of groups. Input and output may each lie in channel planes (NCHW) or channels-last.
//!
//! [`dense`] gathers pixels and multiplies them with packed panels of weights; [`pointwise`] is a matrix
//! product over channels-last pixels; [`planar`] keeps to channel planes (pointwise, depthwise, small
//! groups); [`depthwise`] is for channels-last, `depthwise_planes` for planes; `shallow` for the first layer
//! of a network. [`prepare_convolution`] chooses. [`winograd`] is what the rule of that name asks for. `shifted` takes
//! other floats, and weights that are no constants.

mod call;
pub mod dense;
mod dense_block;
pub mod depthwise;
mod depthwise_planes;
mod depthwise_row;
mod depthwise_table;
pub mod f32_conv_groups_v1;
pub mod f32_conv_nr32_v1;
mod frame;
mod gather;
pub mod geometry;
mod operands;
pub mod planar;
mod planar_band;
mod planar_tile;
pub mod pointwise;
mod reorder;
mod shallow;
mod shallow_band;
mod shifted;
#[cfg(test)]
mod test_cases;
#[cfg(test)]
mod tests;
pub mod window;
mod window_panel;
pub mod winograd;
mod written_out;

use crate::engine_kernel::{EngineKernel, engine_kernel};
use crate::epilogue::Epilogue;
use call::{Call, call};
use geometry::{Extents, Geometry};
use pteron_core::PrepareContext;
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::SimdLevel;

/// Output channels of a group up to which pixels fill vectors better than channels do.
const FEW_OUTPUTS: usize = 16;
/// Input channels up to which bringing planes into channels-last costs more than it gains.
const FEW_INPUTS: usize = 4;
/// Products of an output element above which that does not count: patches of an image, say.
const DEEP: usize = 256;

/// Which kernel a convolution gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Pointwise,
    Depthwise,
    DepthwisePlanes,
    Planar,
    Shallow,
    Dense,
}

fn choose(geometry: &Geometry, extents: &Extents, [from, to]: [bool; 2], lanes: usize) -> Choice {
    let is_interleaved = from && to;
    // Of a group with few outputs, most of a panel is padding.
    let fills_panels = geometry.groups == 1 || geometry.out_channels > FEW_OUTPUTS;
    if geometry.is_pointwise() && fills_panels && is_interleaved {
        return Choice::Pointwise;
    }
    if geometry.is_transposed {
        return Choice::Dense;
    }
    if geometry.in_channels == 1 && geometry.groups > 1 {
        if is_interleaved {
            return Choice::Depthwise;
        }
        if geometry.out_channels == 1 && geometry.spatial_rank <= 2 {
            return Choice::DepthwisePlanes;
        }
    }
    if geometry.is_pointwise() && !from && !to {
        // Lanes that do useful work: over pixels, or over channels.
        let filled = |n: usize, width: usize| n as f64 / n.next_multiple_of(width) as f64;
        let (pixels, channels) = (filled(extents.pixels(), lanes), filled(geometry.out_channels, 2 * lanes));
        return if pixels >= 0.8 * channels { Choice::Planar } else { Choice::Dense };
    }
    // The rows of a deep window would not be worth their padded copy.
    let is_deep = geometry.depth() > DEEP;
    let is_shallow = geometry.groups == 1 && geometry.in_channels <= FEW_INPUTS && !is_deep;
    if is_shallow && to && geometry.spatial_rank <= 2 && 2 * geometry.out_channels >= lanes {
        return Choice::Shallow;
    }
    let has_small_groups = geometry.groups > 1 && geometry.out_channels <= FEW_OUTPUTS;
    if has_small_groups || (geometry.in_channels <= FEW_INPUTS && !from && !is_deep) {
        Choice::Planar
    } else {
        Choice::Dense
    }
}

/// Prepares `aten::convolution.out` with `epilogue` applied to every output element. Arguments are those of
/// the operator, `out` being whatever tensor the epilogue's result goes to, and behind them what the epilogue
/// reads. `None` when the weight is not constant, a parameter is not known
/// or wrong, or a memory order is neither row-major nor channels-last.
pub fn prepare_convolution(ctx: &PrepareContext<'_>, epilogue: &Epilogue) -> Preparation {
    let Some(Call { geometry, extents, is_interleaved: [from, to] }) = call(ctx, epilogue) else {
        return ctx.decline("takes a constant float32 weight, known numbers, row-major or channels-last");
    };
    let lanes = SimdLevel::at_most(ctx.cpu.isa).lanes();
    let prepared = match choose(&geometry, &extents, [from, to], lanes) {
        Choice::Pointwise => pointwise::prepare(ctx, geometry, epilogue)?,
        Choice::Depthwise => depthwise::prepare(ctx, geometry, epilogue)?,
        Choice::DepthwisePlanes => depthwise_planes::prepare(ctx, geometry, epilogue, [from, to])?,
        Choice::Planar => planar::prepare(ctx, geometry, epilogue, [from, to])?,
        Choice::Shallow => shallow::prepare(ctx, geometry, epilogue, from)?,
        Choice::Dense => None,
    };
    match prepared {
        Some(prepared) => Ok(Some(prepared)),
        None => dense::DenseConvolution::prepare(ctx, geometry, epilogue, [from, to]),
    }
}

/// The kernels of this family.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::convolution.out", "f32", |ctx| match geometry::has_margins_apart(ctx) {
        true => ctx.decline("the padding differs at the two ends of a dimension"),
        false => prepare_convolution(ctx, &Epilogue::NONE),
    }),
    engine_kernel("aten::convolution.out", "shifted", shifted::prepare),
];
