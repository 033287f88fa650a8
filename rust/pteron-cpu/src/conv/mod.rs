//! Convolution kernels: `aten::convolution.out` in f32, one- and two-dimensional.
//!
//! Dense and grouped convolutions go through packed weights ([`dense`]); depthwise ones have direct kernels
//! ([`depthwise`]). Input and output may each lie in channel planes (NCHW) or channels-last.

pub mod dense;
pub mod depthwise;
pub mod f32_conv_nr32_v1;
pub mod geometry;
pub mod pixel_panels;
#[cfg(test)]
mod tests;
pub mod tile;

use crate::epilogue::Epilogue;
use geometry::{BIAS, Geometry, INPUT, OUT, WEIGHT};
use pteron_core::{ArgSpec, DType, PrepareContext, Prepared, Result, StaticKernel, TensorSpec};

/// Channels-last? `None` for memory orders that are neither that nor row-major.
fn is_interleaved(spec: &TensorSpec) -> Option<bool> {
    if spec.dim_order.is_channels_last() {
        return Some(true);
    }
    spec.dim_order.is_contiguous().then_some(false)
}

/// Prepares `aten::convolution.out` with `epilogue` applied to every output element. Arguments are those of
/// the operator, `out` (argument 9) being whatever tensor the epilogue's result goes to. `None` when the
/// weight is not constant, a parameter is not known, or the convolution is transposed.
pub fn prepare_convolution(
    ctx: &PrepareContext<'_>,
    epilogue: &Epilogue,
) -> Result<Option<Box<dyn Prepared>>> {
    if !epilogue.is_clamp_at_most() {
        return Ok(None);
    }
    let is_f32 = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float32);
    let has_bias = !matches!(ctx.args.get(BIAS), Some(ArgSpec::None));
    if ![INPUT, WEIGHT, OUT].into_iter().all(is_f32) || (has_bias && !is_f32(BIAS)) {
        return Ok(None);
    }
    let (Some(geometry), Some(input), Some(out)) = (Geometry::of(ctx), ctx.tensor(INPUT), ctx.tensor(OUT))
    else {
        return Ok(None);
    };
    let (Some(from), Some(to)) = (is_interleaved(input), is_interleaved(out)) else { return Ok(None) };
    if let Some(prepared) = depthwise::prepare(ctx, geometry, epilogue, [from, to])? {
        return Ok(Some(prepared));
    }
    dense::DenseConvolution::prepare(ctx, geometry, epilogue, [from, to])
}

/// Fast kernels of this family.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::convolution.out(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, \
             SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, *, Tensor(a!) out) -> Tensor(a!)",
    variant: "f32",
    prepare: |ctx| prepare_convolution(ctx, &Epilogue::NONE),
}];
