//! Decides whether a call is one that the fused kernel takes.

use super::kernel::{Attention, ScratchPlan};
use super::spec::{AttentionSpec, Axes, Operand};
use super::unit::{Number, Stored};
use pteron_core::{DType, PrepareContext, Result, TensorSpec};
use pteron_kernels::grid_kernel::{Preparation, prepared};

/// Prepares the attention of `spec` over the arguments of `ctx`.
///
/// `Ok(None)`: not a case for this kernel (element types other than f32, bfloat16 and float16 or several of them, but for int8
/// keys and values with factors and f32 queries; ranks that do
/// not fit, an output whose elements are not innermost in memory, a mask of another type than these and bool or whose keys are
/// not innermost).
/// Errors: blocks that cannot be addressed.
pub fn prepare_attention(ctx: &PrepareContext<'_>, spec: &AttentionSpec) -> Preparation {
    fn of<T: Number>(ctx: &PrepareContext<'_>, spec: &AttentionSpec) -> Preparation {
        match attention_of::<T, T>(ctx, spec)? {
            Some((name, attention)) => prepared(name, attention),
            None => Ok(None),
        }
    }
    if spec.row_factors.is_some() {
        return match attention_of::<f32, i8>(ctx, spec)? {
            Some((name, attention)) => prepared(name, attention),
            None => Ok(None),
        };
    }
    match ctx.tensor(spec.query.argument).map(|query| query.dtype) {
        Some(DType::Float32) => of::<f32>(ctx, spec),
        Some(DType::BFloat16) => of::<half::bf16>(ctx, spec),
        Some(DType::Float16) => of::<half::f16>(ctx, spec),
        _ => ctx.decline("takes queries of f32, bfloat16 and float16"),
    }
}

/// The kernel of [`prepare_attention`] for elements `T` with keys and values of elements `C`, and its name.
pub(super) fn attention_of<T: Number, C: Stored>(
    ctx: &PrepareContext<'_>,
    spec: &AttentionSpec,
) -> Result<Option<(String, Attention<T, C>)>> {
    let (Some(query), Some(key), Some(value), Some(out)) = (
        operand(ctx, &spec.query),
        operand(ctx, &spec.key),
        operand(ctx, &spec.value),
        operand(ctx, &spec.out),
    ) else {
        return Ok(None);
    };
    let fits =
        [query, out].iter().all(|t| t.dtype == T::DTYPE) && [key, value].iter().all(|t| t.dtype == C::DTYPE);
    if !fits {
        return ctx.decline("queries, keys, values and output have one element type");
    }
    let has_factor = |factor: &Operand| operand(ctx, factor).is_some_and(|t| t.dtype == DType::Float32);
    if spec.row_factors.is_some_and(|factors| !factors.iter().all(has_factor)) {
        return ctx.decline("factors of rows are f32");
    }
    let innermost = |t: &TensorSpec, axis: usize| {
        t.dim_order.as_slice().last().is_some_and(|last| usize::from(*last) == axis)
    };
    if !innermost(out, usize::from(spec.out.axes.element)) || !mask_fits(ctx, spec) {
        return Ok(None);
    }
    let extent = |t: &TensorSpec, axis: u8| t.shape.get(usize::from(axis)).copied().unwrap_or(0);
    // The bound of a dynamic tensor is on its number of elements: an extent may outgrow its own as others
    // shrink. Depth and width do not in any exported program; `bind` checks.
    let keys = if key.is_dynamic() { usize::MAX / 2 } else { extent(key, spec.key.axes.row) };
    let depth = extent(query, spec.query.axes.element);
    let width = extent(value, spec.value.axes.element);
    let scratch = ScratchPlan::new(keys, depth, width, [T::IS_F32, C::IS_F32])?;
    Ok(Some(Attention::new(spec.clone(), ctx.cpu, scratch)))
}

/// The tensor of an operand, if each of its dimensions is one of the operand's axes.
fn operand<'a>(ctx: &'a PrepareContext<'_>, operand: &Operand) -> Option<&'a TensorSpec> {
    ctx.tensor(operand.argument).filter(|t| covers(&operand.axes, t.shape.len()))
}

/// Is every one of `rank` dimensions named exactly once?
fn covers(axes: &Axes, rank: usize) -> bool {
    let mut seen = [false; 4];
    for axis in axes.present() {
        match seen.get_mut(axis) {
            Some(slot) if !*slot && axis < rank => *slot = true,
            _ => return false,
        }
    }
    axes.present().count() == rank
}

fn mask_fits(ctx: &PrepareContext<'_>, spec: &AttentionSpec) -> bool {
    let Some(mask) = spec.mask.and_then(|at| ctx.tensor(at)) else { return true };
    matches!(mask.dtype, DType::Float32 | DType::BFloat16 | DType::Float16 | DType::Bool)
        && mask.shape.len() <= 4
        && mask.dim_order.is_contiguous()
}
