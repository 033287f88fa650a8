//! What is known at load of a convolution.

use super::geometry::{BIAS, Extents, Geometry, INPUT, OUT, WEIGHT};
use super::operands;
use crate::epilogue::Epilogue;
use pteron_core::{ArgSpec, DType, PrepareContext, TensorSpec};

/// Channels-last? `None` for memory orders that are neither that nor row-major.
fn is_interleaved(spec: &TensorSpec) -> Option<bool> {
    if spec.dim_order.is_channels_last() {
        return Some(true);
    }
    spec.dim_order.is_contiguous().then_some(false)
}

/// What is known at load of a call that the kernels of this family may take.
pub(super) struct Call {
    pub geometry: Geometry,
    /// At most; all zero when the input does not fit, which `bind` will say.
    pub extents: Extents,
    /// Of input and output.
    pub is_interleaved: [bool; 2],
}

/// What is known of a call; `None` for a call of another type, whose parameters are not known or wrong, or where a memory
/// order is neither row-major nor channels-last.
pub(super) fn call(ctx: &PrepareContext<'_>, epilogue: &Epilogue) -> Option<Call> {
    let is_f32 = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float32);
    let has_bias = !matches!(ctx.args.get(BIAS), Some(ArgSpec::None));
    if ![INPUT, WEIGHT, OUT].into_iter().all(is_f32) || (has_bias && !is_f32(BIAS)) {
        return None;
    }
    let (geometry, input, out) = (Geometry::of(ctx)?, ctx.tensor(INPUT)?, ctx.tensor(OUT)?);
    if !operands::is_supported(epilogue, ctx, out) {
        return None;
    }
    let extents = geometry.extents(&input.shape).unwrap_or_default();
    Some(Call { geometry, extents, is_interleaved: [is_interleaved(input)?, is_interleaved(out)?] })
}
