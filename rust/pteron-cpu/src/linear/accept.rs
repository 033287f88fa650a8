//! Decides whether a call is one that the f32 multiplication takes, and packs its constant weight.

use super::matmul::{MatMul, RightHand, name};
use super::problem::Limits;
use super::signature::{ADDMM, BADDBMM, BMM, LINEAR, MM, ROWS, Signature};
use super::{matrix_vector, vector_matrix};
use crate::epilogue::Epilogue;
use crate::gemm::{PanelSource, TileSet};
use crate::packed::f32_nr32_v1;
use pteron_core::{ConstantView, DType, Error, PrepareContext, Result, TensorSpec};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::grid_kernel::prepared;
use std::ops::Range;

/// Prepares `op` (`aten::addmm.out`, `aten::mm.out`, `aten::linear.out`, `aten::bmm.out` or
/// `aten::baddbmm.out`) with `epilogue` behind it. The arguments are those of the operator; `out` may be
/// the output of a later call that the epilogue stands for.
///
/// `Ok(None)`: not a case for this kernel. Errors: an operator that is none of these.
pub fn prepare_linear_like(ctx: &PrepareContext<'_>, op: &str, epilogue: &Epilogue) -> Preparation {
    let signature =
        [ADDMM, MM, LINEAR, BMM, BADDBMM].into_iter().find(|s| s.operator == op).ok_or_else(|| {
            Error::internal("this operator is no matrix multiplication")
                .expected("addmm.out, mm.out, linear.out, bmm.out or baddbmm.out")
                .got(op)
        })?;
    // Such a product sums in an order of its own, and a fused step gives the bytes of the separate ones.
    if signature.operator == MM.operator && (matrix_vector::takes(ctx, true) || vector_matrix::takes(ctx)) {
        return ctx.decline("a product of one row or column sums in an order of its own");
    }
    prepare_with(ctx, signature, epilogue)
}

/// Prepares rows of any number of leading dimensions times a K x N matrix, with `epilogue` behind it. Arguments: rows, matrix, a
/// row that is added to each if there is one, the output.
///
/// `Ok(None)`: not a case for this kernel.
pub fn prepare_rows(ctx: &PrepareContext<'_>, epilogue: &Epilogue) -> Preparation {
    let Some(out) = ctx.args.len().checked_sub(1) else { return Ok(None) };
    prepare_with(ctx, Signature { addend: (out > 2).then_some(2), out, ..ROWS }, epilogue)
}

/// A product x·B + bias with a constant B in a form of its own.
pub(crate) struct SourceProduct {
    /// B.
    pub source: Box<dyn PanelSource>,
    /// Rows of B.
    pub k: usize,
    /// Columns of B.
    pub n: usize,
    /// The arguments that B was made of.
    pub constants: Range<usize>,
    /// Position of the bias; argument 0 is x.
    pub bias: Option<usize>,
    /// Position of the output.
    pub out: usize,
}

/// Prepares `product` with `epilogue` behind it. `Ok(None)`: x or the output is not dense f32 of the right shape.
pub(crate) fn prepare_source(
    ctx: &PrepareContext<'_>,
    product: SourceProduct,
    epilogue: &Epilogue,
) -> Preparation {
    let SourceProduct { source, k, n, constants, bias, out } = product;
    let signature = Signature { left: 0, right: constants.start, addend: bias, out, ..LINEAR };
    let (Some(left), Some(to)) = (ctx.tensor(signature.left), ctx.tensor(out)) else {
        return ctx.decline("an argument is no tensor");
    };
    let fits = is_plain(left)
        && is_plain(to)
        && left.shape.last() == Some(&k)
        && to.shape.len() == left.shape.len()
        && epilogue_fits(ctx, epilogue, to);
    let Some((addend, factors)) = addend(ctx, signature).filter(|_| fits) else {
        return ctx.decline("takes dense float32 rows that fit the weight");
    };
    let rows = left.shape.split_last().map_or(&[][..], |(_, rows)| rows);
    let Some(m) = rows.iter().try_fold(1usize, |m, d| m.checked_mul(*d)) else {
        return ctx.decline("the shape is too large");
    };
    let right = RightHand::Source { source, k, n, constants };
    let tiles = TileSet::for_isa(ctx.cpu.isa);
    prepared(
        name(&right, tiles, epilogue),
        MatMul {
            signature,
            addend,
            factors,
            right,
            tiles,
            epilogue: epilogue.clone(),
            limits: Limits::new(1, [m, n, k], false),
        },
    )
}

/// Prepares without epilogue.
pub(super) fn prepare(ctx: &PrepareContext<'_>, signature: Signature) -> Preparation {
    prepare_with(ctx, signature, &Epilogue::NONE)
}

fn prepare_with(ctx: &PrepareContext<'_>, signature: Signature, epilogue: &Epilogue) -> Preparation {
    let (Some(left), Some(right), Some(out)) =
        (ctx.tensor(signature.left), ctx.tensor(signature.right), ctx.tensor(signature.out))
    else {
        return ctx.decline("an argument is no tensor");
    };
    let right_rank = signature.rank.unwrap_or(2);
    let left_fits = signature.rank.map_or(!left.shape.is_empty(), |r| left.shape.len() == r);
    if !(is_plain(left) && is_plain(out) && left_fits)
        || right.dtype != DType::Float32
        || right.shape.len() != right_rank
        || out.shape.len() != left.shape.len()
        || !epilogue_fits(ctx, epilogue, out)
    {
        return ctx.decline("takes dense float32 matrices");
    }
    let Some((addend, factors)) = addend(ctx, signature) else {
        return ctx.decline("what is added does not fit the output, or a factor is not known at load");
    };
    let is_batched = signature.rank == Some(3);
    let last = left.shape.len() - 1;
    let batch = if is_batched { left.shape[0] } else { 1 };
    let m = left.shape[usize::from(is_batched)..last].iter().try_fold(1usize, |m, d| m.checked_mul(*d));
    let (Some(m), k) = (m, left.shape[last]) else { return ctx.decline("the shape is too large") };
    let n = right.shape.iter().rev().nth(usize::from(signature.is_right_transposed)).copied().unwrap_or(0);
    let right_hand = match ctx.args.get(signature.right).and_then(|a| a.constant()) {
        Some(constant) if right_rank == 2 => {
            let view = as_k_by_n(constant, signature.is_right_transposed)?;
            let packed = f32_nr32_v1::get_or_pack(ctx.packs, ctx.cpu, &view)?;
            RightHand::Packed { packed, k: view.shape[0], n: view.shape[1] }
        }
        _ => RightHand::Computed { k_bound: k },
    };
    let tiles = TileSet::for_isa(ctx.cpu.isa);
    let is_computed = matches!(right_hand, RightHand::Computed { .. });
    prepared(
        name(&right_hand, tiles, epilogue),
        MatMul {
            signature,
            addend,
            factors,
            right: right_hand,
            tiles,
            epilogue: epilogue.clone(),
            limits: Limits::new(batch, [m, n, k], is_computed),
        },
    )
}

/// Dense rows of float32?
fn is_plain(tensor: &TensorSpec) -> bool {
    tensor.dtype == DType::Float32 && tensor.dim_order.is_contiguous()
}

/// A residual like the output, a program of one input?
fn epilogue_fits(ctx: &PrepareContext<'_>, epilogue: &Epilogue, out: &TensorSpec) -> bool {
    let residual_fits = epilogue.residual.is_none_or(|i| {
        ctx.tensor(i).is_some_and(|t| is_plain(t) && t.shape == out.shape && t.dynamism == out.dynamism)
    });
    residual_fits && epilogue.post.as_ref().is_none_or(|p| p.inputs() == 1)
}

/// Position of a tensor that is added, and `(alpha, beta)`.
type Addend = (Option<usize>, Option<(f32, f32)>);

/// The position of the tensor that is added, and `(alpha, beta)` when one is not 1. `None` when the kernel
/// cannot do what is asked.
fn addend(ctx: &PrepareContext<'_>, signature: Signature) -> Option<Addend> {
    let mut index = signature.addend.filter(|i| ctx.tensor(*i).is_some());
    let mut factors = None;
    if let Some((beta, alpha)) = signature.factors {
        let factor = |i: usize| ctx.args.get(i).and_then(|a| a.number());
        let (alpha, beta) = (factor(alpha)? as f32, factor(beta)? as f32);
        if beta == 0.0 {
            // The tensor is then ignored, NaN and all.
            index = None;
        }
        factors = (alpha != 1.0 || (beta != 1.0 && index.is_some())).then_some((alpha, beta));
    }
    let fits = index
        .and_then(|i| ctx.tensor(i))
        .is_none_or(|spec| is_plain(spec) && spec.shape.len() <= signature.rank.unwrap_or(1));
    fits.then_some((index, factors))
}

/// The constant as a matrix of K rows and N columns.
fn as_k_by_n<'a>(constant: &ConstantView<'a>, is_transposed: bool) -> Result<ConstantView<'a>> {
    let mut view = *constant;
    if view.shape.len() != 2 || view.strides.len() != 2 {
        return Err(Error::internal("a constant matrix has another rank than its spec")
            .got(format!("shape {}, strides {}", view.shape, view.strides)));
    }
    if is_transposed {
        view.shape.reverse();
        view.strides.reverse();
    }
    Ok(view)
}
