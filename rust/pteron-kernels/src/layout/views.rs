//! The layout operators as strided views: permute, transpose, t, expand, clone and its synonyms, slice,
//! select, squeeze, unsqueeze, view, and copies into another dim order. All copy; none computes.

use super::strided_copy::{StridedView, prepare};
use pteron_core::{Args, Dims, Error, PrepareContext, Prepared, Result, StaticKernel};

/// `dim` of a tensor of `rank` dimensions, counted from the end when negative.
pub(crate) fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    let wrapped = if dim < 0 { dim + rank as i64 } else { dim };
    usize::try_from(wrapped).ok().filter(|d| *d < rank).ok_or_else(|| {
        Error::kernel("dimension out of range")
            .expected(format!("{}..{rank}", -(rank as i64)))
            .got(dim.to_string())
    })
}

fn permute(args: &Args<'_>) -> Result<StridedView> {
    let input = args.tensor(0)?;
    let from = StridedView::of(&input);
    let order = args.int_list(1)?;
    let mut view = StridedView { offset: 0, shape: Dims::EMPTY, strides: Dims::EMPTY };
    let mut seen = [false; pteron_core::MAX_RANK];
    for dim in order.iter() {
        let d = wrap_dim(dim?, from.shape.len())?;
        if std::mem::replace(&mut seen[d], true) {
            return Err(Error::kernel("permute names a dimension twice").got(d.to_string()));
        }
        view.shape.push(from.shape[d])?;
        view.strides.push(from.strides[d])?;
    }
    if view.shape.len() != from.shape.len() {
        return Err(Error::kernel("permute does not name every dimension")
            .expected(format!("{} dimensions", from.shape.len()))
            .got(view.shape.len().to_string()));
    }
    Ok(view)
}

fn swap(args: &Args<'_>, a: i64, b: i64) -> Result<StridedView> {
    let mut view = StridedView::of(&args.tensor(0)?);
    let (a, b) = (wrap_dim(a, view.shape.len())?, wrap_dim(b, view.shape.len())?);
    view.shape.swap(a, b);
    view.strides.swap(a, b);
    Ok(view)
}

fn transpose(args: &Args<'_>) -> Result<StridedView> {
    let dims = [args.int(1)?, args.int(2)?];
    if args.tensor(0)?.rank() == 0 && dims.iter().all(|d| (-1..=0).contains(d)) {
        // As PyTorch has it: a tensor without dimensions counts as one with a single one.
        return whole(args);
    }
    swap(args, dims[0], dims[1])
}

fn matrix_transpose(args: &Args<'_>) -> Result<StridedView> {
    let rank = args.tensor(0)?.rank();
    match rank {
        0 | 1 => whole(args),
        2 => swap(args, 0, 1),
        _ => Err(Error::kernel("t expects at most two dimensions").got(format!("rank {rank}"))),
    }
}

fn whole(args: &Args<'_>) -> Result<StridedView> {
    Ok(StridedView::of(&args.tensor(0)?))
}

fn expand(args: &Args<'_>) -> Result<StridedView> {
    let from = StridedView::of(&args.tensor(0)?);
    let sizes = args.int_list(1)?;
    let mut view = StridedView { offset: 0, shape: Dims::EMPTY, strides: Dims::EMPTY };
    let refuse = || {
        Error::kernel("expand cannot make this shape")
            .expected(format!("extents of {}, or any where it has 1", from.shape))
    };
    let missing = sizes.len().checked_sub(from.shape.len()).ok_or_else(refuse)?;
    for (d, size) in sizes.iter().enumerate() {
        let size = size?;
        let have = d.checked_sub(missing).map(|d| (from.shape[d], from.strides[d]));
        let (n, stride) = match (have, usize::try_from(size)) {
            (Some((n, stride)), Err(_)) if size == -1 => (n, stride),
            (Some((n, stride)), Ok(size)) if size == n => (n, stride),
            (Some((1, _)), Ok(size)) | (None, Ok(size)) => (size, 0),
            _ => return Err(refuse().got(format!("{size} at dimension {d}"))),
        };
        view.shape.push(n)?;
        view.strides.push(stride)?;
    }
    Ok(view)
}

fn slice(args: &Args<'_>) -> Result<StridedView> {
    let mut view = StridedView::of(&args.tensor(0)?);
    let d = wrap_dim(args.int(1)?, view.shape.len())?;
    let n = view.shape[d] as i64;
    let clamp = |v: i64| (if v < 0 { v.saturating_add(n) } else { v }).clamp(0, n);
    let start = clamp(args.optional_int(2)?.unwrap_or(0));
    let end = clamp(args.optional_int(3)?.unwrap_or(n)).max(start);
    let step = args.int(4)?;
    if step < 1 {
        return Err(Error::kernel("slice step must be positive").got(step.to_string()));
    }
    let length = (end - start) as usize;
    view.shape[d] = length.div_ceil(step as usize);
    view.offset = if view.shape[d] == 0 { 0 } else { start as usize * view.strides[d] };
    // A step beyond the extent leaves one element, whose stride is never used.
    view.strides[d] = view.strides[d].saturating_mul(step as usize);
    Ok(view)
}

fn select(args: &Args<'_>) -> Result<StridedView> {
    let mut view = StridedView::of(&args.tensor(0)?);
    let d = wrap_dim(args.int(1)?, view.shape.len())?;
    let n = view.shape[d];
    let index = args.int(2)?;
    let wrapped = if index < 0 { index + n as i64 } else { index };
    let at = usize::try_from(wrapped).ok().filter(|i| *i < n).ok_or_else(|| {
        Error::kernel("index out of range")
            .expected(format!("-{n}..{n} for dimension {d} of {}", view.shape))
            .got(index.to_string())
    })?;
    view.offset = at * view.strides[d];
    view.shape.remove(d)?;
    view.strides.remove(d)?;
    Ok(view)
}

fn unsqueeze(args: &Args<'_>) -> Result<StridedView> {
    let mut view = StridedView::of(&args.tensor(0)?);
    let d = wrap_dim(args.int(1)?, view.shape.len() + 1)?;
    view.shape.insert(d, 1)?;
    view.strides.insert(d, 0)?;
    Ok(view)
}

fn squeeze_marked(args: &Args<'_>, marked: impl Fn(usize) -> bool) -> Result<StridedView> {
    let from = StridedView::of(&args.tensor(0)?);
    let mut view = StridedView { offset: 0, shape: Dims::EMPTY, strides: Dims::EMPTY };
    for d in 0..from.shape.len() {
        if !(from.shape[d] == 1 && marked(d)) {
            view.shape.push(from.shape[d])?;
            view.strides.push(from.strides[d])?;
        }
    }
    Ok(view)
}

/// [`wrap_dim`], a tensor without dimensions counting as one with a single one, as PyTorch has it.
fn wrap_squeezed(dim: i64, rank: usize) -> Result<usize> {
    wrap_dim(dim, rank.max(1))
}

fn squeeze_dim(args: &Args<'_>) -> Result<StridedView> {
    let d = wrap_squeezed(args.int(1)?, args.tensor(0)?.rank())?;
    squeeze_marked(args, |k| k == d)
}

fn squeeze_dims(args: &Args<'_>) -> Result<StridedView> {
    let rank = args.tensor(0)?.rank();
    let mut marked = [false; pteron_core::MAX_RANK];
    for dim in args.int_list(1)?.iter() {
        let d = wrap_squeezed(dim?, rank)?;
        if std::mem::replace(&mut marked[d], true) {
            return Err(Error::kernel("squeeze names a dimension twice").got(d.to_string()));
        }
    }
    squeeze_marked(args, |d| marked[d])
}

/// The row-major input with other extents; one of them may be -1.
fn reshape(args: &Args<'_>) -> Result<StridedView> {
    let input = args.tensor(0)?;
    let sizes = args.int_list(1)?;
    let (mut known, mut inferred) = (Some(1usize), None);
    let mut shape = Dims::EMPTY;
    let refuse =
        || Error::kernel("view cannot make this shape").expected(format!("{} elements", input.numel()));
    for (d, size) in sizes.iter().enumerate() {
        match size? {
            -1 if inferred.is_none() => {
                inferred = Some(d);
                shape.push(1)?;
            }
            size => {
                let n =
                    usize::try_from(size).map_err(|_| refuse().got(format!("{size} at dimension {d}")))?;
                known = known.and_then(|k| k.checked_mul(n));
                shape.push(n)?;
            }
        }
    }
    let known = known.ok_or_else(|| refuse().got("an overflowing product"))?;
    if let Some(d) = inferred {
        // Of no elements -1 could stand for anything.
        let extent = input.numel().checked_div(known);
        shape[d] = extent.ok_or_else(|| refuse().got(format!("-1 beside an empty dimension in {shape}")))?;
    }
    if shape.numel()? != input.numel() {
        return Err(refuse().got(shape.to_string()));
    }
    let strides = pteron_core::DimOrder::contiguous(shape.len()).strides(&shape);
    Ok(StridedView { offset: 0, shape, strides })
}

fn prepare_reshape(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    // Another memory order makes a view depend on the logical order, which the reference kernel walks.
    if !ctx.tensor(0).is_some_and(|t| t.dim_order.is_contiguous()) {
        return Ok(None);
    }
    prepare(ctx, "view_copy", 2, reshape)
}

macro_rules! kernels {
    ($($schema:expr, $name:literal, $out:literal, $view:ident;)*) => {
        &[
            $(StaticKernel { schema: $schema, variant: "strided", prepare: |ctx| prepare(ctx, $name, $out, $view) },)*
            StaticKernel {
                schema: "aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)",
                variant: "strided",
                prepare: prepare_reshape,
            },
        ]
    };
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = kernels! {
    "aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)", "permute_copy", 2, permute;
    "aten::transpose_copy.int_out(Tensor self, int dim0, int dim1, *, Tensor(a!) out) -> Tensor(a!)",
        "transpose_copy", 3, transpose;
    "aten::t_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "t_copy", 1, matrix_transpose;
    "aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out) -> Tensor(a!)",
        "expand_copy", 3, expand;
    "aten::clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        "clone", 2, whole;
    "aten::detach_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "detach_copy", 1, whole;
    "aten::alias_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "alias_copy", 1, whole;
    "aten::lift_fresh_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "lift_fresh_copy", 1, whole;
    "dim_order_ops::_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, \
     Tensor(a!) out) -> Tensor(a!)", "to_dim_order_copy", 3, whole;
    "dim_order_ops::_clone_dim_order.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, \
     Tensor(a!) out) -> Tensor(a!)", "clone_dim_order", 3, whole;
    "aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *, \
     Tensor(a!) out) -> Tensor(a!)", "slice_copy", 5, slice;
    "aten::select_copy.int_out(Tensor self, int dim, SymInt index, *, Tensor(a!) out) -> Tensor(a!)",
        "select_copy", 3, select;
    "aten::unsqueeze_copy.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)", "unsqueeze_copy", 2, unsqueeze;
    "aten::squeeze_copy.dim_out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)", "squeeze_copy", 2, squeeze_dim;
    "aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out) -> Tensor(a!)",
        "squeeze_copy", 2, squeeze_dims;
};
