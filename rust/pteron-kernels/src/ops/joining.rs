//! Several tensors into one and one into several: cat, stack, repeat, roll, split, unbind, pads,
//! slices written into a copy.
//!
//! Shape: stated by the arguments. Dtype: `cat` and `stack` convert to the output's, the others keep
//! it. Edge cases: `cat` skips one-dimensional empty tensors, as PyTorch does.

use crate::chunked;
use crate::operator::{Operator, kernel, operator};
use crate::ops::layout::same_dtype;
use crate::promotion::{Promotion, check_cast};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_same, wrap_dim};
use crate::strided::copy::{StridedRegion, copy_positions, copy_region, copy_to_update};
use crate::strided::mapped_copy::{self, Mapping};
use crate::strided::views::View;
use pteron_core::{
    ArgSpec, Args, BindArgs, DType, Dims, Error, PrepareContext, Result, TensorListView, TensorView,
};
use std::ops::Range;

mod cat;

fn check_list_cast(ctx: &PrepareContext<'_>) -> Result<()> {
    let Some(ArgSpec::TensorList(list)) = ctx.args.first() else {
        return Err(Error::kernel("argument 0 has the wrong kind").expected("Tensor[]"));
    };
    let out = dtype_of(ctx, 2)?;
    if list.iter().flatten().all(|spec| spec.dtype == out) {
        return Ok(());
    }
    let mut promotion = Promotion::default();
    for spec in list.iter().flatten() {
        promotion.tensor(spec.dtype, spec.shape.len())?;
    }
    check_cast(promotion.result()?, out)
}

/// `cat` takes no notice of tensors of shape `[0]`, whatever the rank of the others.
fn is_skipped(t: &TensorView<'_>) -> bool {
    **t.shape() == [0]
}

/// The dimension and the resulting shape of a cat.
fn cat_shape(list: &TensorListView<'_>, dim: i64) -> Result<(usize, Dims)> {
    let mut found: Option<(usize, Dims)> = None;
    for j in 0..list.len() {
        let t = list.get(j)?;
        if is_skipped(&t) {
            continue;
        }
        if t.rank() == 0 {
            return Err(Error::kernel("tensors without dimensions do not concatenate").argument("tensors"));
        }
        match &mut found {
            None => found = Some((wrap_dim(dim, t.rank())?, *t.shape())),
            Some((d, shape)) => {
                let other = *t.shape();
                let fits =
                    other.len() == shape.len() && (0..shape.len()).all(|k| k == *d || other[k] == shape[k]);
                if !fits {
                    return Err(Error::kernel("the tensors to join differ outside the joined dimension")
                        .expected(format!("{shape} except at dimension {d}"))
                        .got(format!("{other} at position {j}")));
                }
                shape[*d] = shape[*d]
                    .checked_add(t.shape()[*d])
                    .ok_or_else(|| Error::kernel("the result is too large"))?;
            }
        }
    }
    if list.is_empty() {
        return Err(Error::kernel("there is nothing to concatenate").argument("tensors"));
    }
    Ok(found.unwrap_or((0, Dims::new(&[0])?)))
}

fn bind_cat(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = cat_shape(&args.args().tensor_list(0)?, args.args().int(1)?)?.1;
    args.resize(2, &shape)
}

fn prepare_cat(ctx: &PrepareContext<'_>) -> Preparation {
    check_list_cast(ctx)?;
    Routine::prepare(bind_cat, |args, _| copy_all(args))
}

fn copy_all(args: &Args<'_>) -> Result<()> {
    let list = args.tensor_list(0)?;
    let (dim, _) = cat_shape(&list, args.int(1)?)?;
    let mut out = args.output(2)?;
    let mut to = StridedRegion::of(out.strides());
    for j in 0..list.len() {
        let t = list.get(j)?;
        if is_skipped(&t) {
            continue;
        }
        copy_region(t.shape(), &t, StridedRegion::of(t.strides()), &mut out, to)?;
        to.offset += t.shape()[dim] as isize * to.strides[dim];
    }
    Ok(())
}

fn stack_shape(list: &TensorListView<'_>, dim: i64) -> Result<(usize, Dims)> {
    if list.is_empty() {
        return Err(Error::kernel("there is nothing to stack").argument("tensors"));
    }
    let first = list.get(0)?;
    for j in 1..list.len() {
        check_same("a tensor to stack", first.shape(), list.get(j)?.shape())?;
    }
    let mut shape = *first.shape();
    let dim = wrap_dim(dim, shape.len() + 1)?;
    shape.insert(dim, list.len())?;
    Ok((dim, shape))
}

/// Nanoseconds to move one of `count` equal parts of argument `whole`.
fn part_ns(args: &Args<'_>, whole: usize, count: usize) -> Result<usize> {
    Ok(args.tensor(whole)?.numel() / count.max(1))
}

fn bind_stack(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let shape = stack_shape(&args.args().tensor_list(0)?, args.args().int(1)?)?.1;
    args.resize(2, &shape)?;
    let count = args.args().tensor_list(0)?.len();
    Ok((count, part_ns(&args.args(), 2, count)?))
}

fn stack(args: &Args<'_>, j: usize) -> Result<()> {
    let (mut out, t) = (args.output(2)?, args.tensor_list(0)?.get(j)?);
    let to = View::new(0, *out.shape(), out.strides()).select(args.int(1)?, j as i64)?;
    copy_region(t.shape(), &t, StridedRegion::of(t.strides()), &mut out, to.region)
}

fn map_repeat(args: &Args<'_>) -> Result<Mapping> {
    let (x, repeats) = (args.tensor(0)?, args.int_list(1)?.to_dims()?);
    let lead = repeats.len().checked_sub(x.rank()).ok_or_else(|| {
        Error::kernel("there must be a repeat for every dimension")
            .argument("repeats")
            .got(repeats.to_string())
    })?;
    let (mut shape, mut listed) = (repeats, 0);
    for (d, extent) in x.shape().iter().enumerate() {
        if repeats[lead + d] != 1 && *extent != 1 {
            listed |= 1 << (lead + d);
        }
        shape[lead + d] =
            shape[lead + d].checked_mul(*extent).ok_or_else(|| Error::kernel("the result is too large"))?;
    }
    Ok(Mapping::new(&x, shape, listed))
}

fn list_repeat(args: &Args<'_>, d: usize, first: usize, list: &mut [usize]) -> Result<()> {
    let shape = *args.tensor(0)?.shape();
    let lead = args.int_list(1)?.len() - shape.len();
    let extent = d.checked_sub(lead).and_then(|d| shape.get(d)).copied().unwrap_or(1);
    let mut next = first % extent.max(1);
    for slot in list {
        *slot = next;
        next = if next + 1 < extent { next + 1 } else { 0 };
    }
    Ok(())
}

/// The shift of every dimension, between 0 and its extent.
fn roll_shifts(args: &Args<'_>, x: &TensorView<'_>) -> Result<Dims> {
    let (shifts, dims) = (args.int_list(1)?, args.int_list(2)?);
    let mut out = Dims::filled(x.rank(), 0)?;
    if shifts.len() != dims.len() {
        return Err(Error::kernel("there must be a shift for every dimension").argument("shifts"));
    }
    for (shift, dim) in shifts.iter().zip(dims.iter()) {
        let d = wrap_dim(dim?, x.rank())?;
        if let (Some(slot), Some(&extent)) = (out.get_mut(d), x.shape().get(d))
            && extent > 0
        {
            *slot = (*slot + shift?.rem_euclid(extent as i64) as usize) % extent;
        }
    }
    Ok(out)
}

fn map_roll(args: &Args<'_>) -> Result<Mapping> {
    let x = args.tensor(0)?;
    if x.rank() == 0 && !args.int_list(2)?.is_empty() {
        return Err(Error::kernel("a tensor without dimensions has none to roll").argument("dims"));
    }
    let shifts = roll_shifts(args, &x)?;
    let listed = shifts.iter().enumerate().fold(0, |set, (d, shift)| set | u32::from(*shift != 0) << d);
    Ok(Mapping::new(&x, *x.shape(), listed))
}

fn list_roll(args: &Args<'_>, d: usize, first: usize, list: &mut [usize]) -> Result<()> {
    let x = args.tensor(0)?;
    let extent = x.shape().get(d).copied().unwrap_or(1).max(1);
    let shift = roll_shifts(args, &x)?.get(d).copied().unwrap_or(0).min(extent);
    let mut next = (first + extent - shift) % extent;
    for slot in list {
        *slot = next;
        next = if next + 1 < extent { next + 1 } else { 0 };
    }
    Ok(())
}

/// Without dimensions, the row-major sequence of all elements is rolled; the shift.
fn bind_flat_roll(args: &mut BindArgs<'_>, shift: &mut usize) -> Result<usize> {
    let view = args.args();
    let (x, shifts) = (view.tensor(0)?, view.int_list(1)?);
    if shifts.len() != 1 {
        return Err(Error::kernel("rolling all elements takes one shift")
            .argument("shifts")
            .got(shifts.len().to_string()));
    }
    let (shape, numel) = (*x.shape(), x.numel());
    *shift = shifts.get(0)?.rem_euclid(numel.max(1) as i64) as usize;
    args.resize(3, &shape)?;
    Ok(numel)
}

fn flat_roll(shift: &usize, args: &Args<'_>, range: Range<usize>) -> Result<()> {
    let (x, mut out) = (args.tensor(0)?, args.output(3)?);
    // Positions before the shift show the end of the input.
    let border = range.end.min(range.start.max(*shift));
    copy_positions(&x, range.start + x.numel() - shift, &mut out, range.start..border)?;
    copy_positions(&x, border.saturating_sub(*shift), &mut out, border..range.end)
}

/// Where part `j` of a split along the dimension begins and how long it is.
type PartFn = fn(&Args<'_>, usize, usize) -> Result<(usize, usize)>;

fn split_parts(args: &Args<'_>, extent: usize, j: usize) -> Result<(usize, usize)> {
    let size = args.int(1)?;
    if size < 0 || (size == 0 && extent != 0) {
        return Err(Error::kernel("the split size must be positive")
            .argument("split_size")
            .got(size.to_string()));
    }
    let start = (size as usize).saturating_mul(j).min(extent);
    Ok((start, (size as usize).min(extent - start)))
}

fn sized_parts(args: &Args<'_>, extent: usize, j: usize) -> Result<(usize, usize)> {
    let mut start = 0usize;
    let mut result = (0, 0);
    for (k, size) in args.int_list(1)?.iter().enumerate() {
        let size = size?;
        let size = usize::try_from(size)
            .map_err(|_| Error::kernel("negative extent").argument("split_sizes").got(size.to_string()))?;
        if k == j {
            result = (start, size);
        }
        start = start.checked_add(size).ok_or_else(|| Error::kernel("the sizes are too large"))?;
    }
    if start != extent {
        return Err(Error::kernel("the sizes must add up to the extent")
            .argument("split_sizes")
            .expected(extent.to_string())
            .got(start.to_string()));
    }
    Ok(result)
}

fn check_count(args: &Args<'_>, dim: i64, part: PartFn) -> Result<usize> {
    let (x, out) = (args.tensor(0)?, args.tensor_list(3)?);
    if x.rank() == 0 {
        return Err(Error::kernel("a tensor without dimensions cannot be split").argument("self"));
    }
    let dim = wrap_dim(dim, x.rank())?;
    let mut covered = 0;
    for j in 0..out.len() {
        covered += part(args, x.shape()[dim], j)?.1;
    }
    if covered != x.shape()[dim] {
        return Err(Error::kernel("the outputs do not cover the tensor")
            .argument("out")
            .expected(format!("parts of {} elements in all", x.shape()[dim]))
            .got(format!("{} parts of {covered} elements", out.len())));
    }
    Ok(dim)
}

fn bind_split(args: &mut BindArgs<'_>, part: PartFn) -> Result<(usize, usize)> {
    let view = args.args();
    let dim = check_count(&view, view.int(2)?, part)?;
    let mut shape = *view.tensor(0)?.shape();
    let extent = shape[dim];
    let count = args.args().tensor_list(3)?.len();
    for j in 0..count {
        shape[dim] = part(&args.args(), extent, j)?.1;
        args.resize_in_list(3, j, &shape)?;
    }
    Ok((count, part_ns(&args.args(), 0, count)?))
}

fn split(args: &Args<'_>, part: PartFn, j: usize) -> Result<()> {
    let x = args.tensor(0)?;
    let dim = wrap_dim(args.int(2)?, x.rank())?;
    let (start, length) = part(args, x.shape()[dim], j)?;
    copy_to(&x, View::of(&x).narrow(dim as i64, start as i64, length as i64)?, args, 3, j)
}

/// Copies what a view shows of `x` to output `j` of the list at `out`.
fn copy_to(x: &TensorView<'_>, from: View, args: &Args<'_>, out: usize, j: usize) -> Result<()> {
    let mut out = args.tensor_list(out)?.output(j)?;
    check_same("an output", &from.shape, out.shape())?;
    let to = StridedRegion::of(out.strides());
    copy_region(&from.shape, x, from.region, &mut out, to)
}

fn bind_unbind(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (x, out) = (view.tensor(0)?, view.tensor_list(2)?);
    let dim = wrap_dim(view.int(1)?, x.rank())?;
    let mut shape = *x.shape();
    if shape.is_empty() || shape.remove(dim)? != out.len() {
        return Err(Error::kernel("there must be an output for every slice")
            .argument("out")
            .expected(x.shape().to_string())
            .got(out.len().to_string()));
    }
    let count = args.args().tensor_list(2)?.len();
    for j in 0..count {
        args.resize_in_list(2, j, &shape)?;
    }
    Ok((count, part_ns(&args.args(), 0, count)?))
}

fn unbind(args: &Args<'_>, j: usize) -> Result<()> {
    let x = args.tensor(0)?;
    copy_to(&x, View::of(&x).select(args.int(1)?, j as i64)?, args, 2, j)
}

fn list_dtypes(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    let dtype = dtype_of(ctx, 0)?;
    match ctx.args.get(out) {
        Some(ArgSpec::TensorList(list)) if list.iter().flatten().all(|s| s.dtype == dtype) => Ok(()),
        _ => Err(Error::kernel("the outputs must have the dtype of the input")
            .argument("out")
            .expected(dtype.name())),
    }
}

/// Copies `self`, then `src` over what `view` shows of the copy.
fn scatter_into<const OUT: usize>(args: &Args<'_>, view: impl Fn(View) -> Result<View>) -> Result<()> {
    let src = args.tensor(1)?;
    let mut out = args.output(OUT)?;
    let to = view(View::new(0, *out.shape(), out.strides()))?;
    check_same("src", &to.shape, src.shape())?;
    copy_to_update(&args.tensor(0)?, &mut out)?;
    copy_region(&to.shape, &src, StridedRegion::of(src.strides()), &mut out, to.region)
}

fn select_scatter(args: &Args<'_>) -> Result<()> {
    let (dim, index) = (args.int(2)?, args.int(3)?);
    scatter_into::<4>(args, |out| out.select(dim, index))
}

fn slice_scatter(args: &Args<'_>) -> Result<()> {
    let (dim, start, end, step) = (args.int(2)?, args.optional_int(3)?, args.optional_int(4)?, args.int(5)?);
    scatter_into::<6>(args, |out| out.slice(dim, start, end, step))
}

fn bind_out<const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    args.resize(OUT, &shape)
}

fn scattering<const OUT: usize>(ctx: &PrepareContext<'_>, run: crate::routine::RunFn) -> Preparation {
    same_dtype(ctx, 0, OUT)?;
    if dtype_of(ctx, 1)? == DType::Complex64 && dtype_of(ctx, 0)? != DType::Complex64 {
        return Err(Error::kernel("complex does not convert").argument("src"));
    }
    Routine::prepare_update(0, bind_out::<OUT>, run)
}

/// Joins, splits, repeats.
pub static OPERATORS: &[Operator] = &[
    operator("aten::cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("copy", cat::prepare)
        .plain(prepare_cat),
    kernel("aten::stack.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check_list_cast(ctx)?;
        Routine::per_item(0, bind_stack, |args, j, _| stack(args, j))
    }),
    kernel("aten::repeat.out(Tensor self, SymInt[] repeats, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        same_dtype(ctx, 0, 2)?;
        mapped_copy::prepare(ctx, 2, map_repeat, list_repeat)
    }),
    kernel(
        "aten::roll.out(Tensor self, SymInt[1] shifts, int[1] dims=[], *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 3)?;
            match ctx.args.get(2) {
                Some(ArgSpec::IntList(dims)) if dims.is_empty() => {
                    chunked::prepare(bind_flat_roll, flat_roll)
                }
                _ => mapped_copy::prepare(ctx, 3, map_roll, list_roll),
            }
        },
    ),
    kernel(
        "aten::split_copy.Tensor_out(Tensor self, SymInt split_size, int dim=0, *, Tensor(a!)[] out) -> ()",
        |ctx| {
            list_dtypes(ctx, 3)?;
            Routine::per_item(
                0,
                |args| bind_split(args, split_parts),
                |args, j, _| split(args, split_parts, j),
            )
        },
    ),
    kernel(
        "aten::split_with_sizes_copy.out(Tensor self, SymInt[] split_sizes, int dim=0, *, Tensor(a!)[] out) -> ()",
        |ctx| {
            list_dtypes(ctx, 3)?;
            Routine::per_item(
                0,
                |args| bind_split(args, sized_parts),
                |args, j, _| split(args, sized_parts, j),
            )
        },
    ),
    kernel("aten::unbind_copy.int_out(Tensor self, int dim=0, *, Tensor(a!)[] out) -> ()", |ctx| {
        list_dtypes(ctx, 2)?;
        Routine::per_item(0, bind_unbind, |args, j, _| unbind(args, j))
    }),
    kernel(
        "aten::select_scatter.out(Tensor self, Tensor src, int dim, SymInt index, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| scattering::<4>(ctx, |args, _| select_scatter(args)),
    ),
    kernel(
        "aten::slice_scatter.out(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| scattering::<6>(ctx, |args, _| slice_scatter(args)),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn cat_skips_legacy_empties_and_converts() {
        let a = Tensor::of(&[1, 2], &[1f32, 2.0]);
        let b = Tensor::of(&[1, 2], &[3i64, 4]);
        let none = Tensor::of::<f32>(&[0], &[]);
        let list = Arg::TensorList(vec![Some(none), Some(a.clone()), Some(b)]);
        let y = run_out("aten::cat.out", &[list, 0i64.into()], DType::Float32, &[2, 2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, 2.0, 3.0, 4.0]);
        let odd = Arg::TensorList(vec![Some(a), Some(Tensor::of(&[1, 3], &[0f32; 3]))]);
        assert!(
            error_text(run_out("aten::cat.out", &[odd, 0i64.into()], DType::Float32, &[2, 3]))
                .contains("joined dimension")
        );
    }

    #[test]
    fn stack_repeat_roll() {
        let a = Tensor::of(&[2], &[1i32, 2]);
        let list = Arg::TensorList(vec![Some(a.clone()), Some(Tensor::of(&[2], &[3i32, 4]))]);
        let y = run_out("aten::stack.out", &[list, (-1i64).into()], DType::Int32, &[2, 2]).unwrap();
        assert_eq!(y.values::<i32>(), [1, 3, 2, 4]);
        let y = run_out("aten::repeat.out", &[a.clone().into(), vec![2, 2].into()], DType::Int32, &[2, 4])
            .unwrap();
        assert_eq!(y.values::<i32>(), [1, 2, 1, 2, 1, 2, 1, 2]);
        let x = Tensor::of(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        let args = [x.clone().into(), vec![1, -1].into(), vec![0, 1].into()];
        assert_eq!(
            run_out("aten::roll.out", &args, DType::Int32, &[2, 3]).unwrap().values::<i32>(),
            [5, 6, 4, 2, 3, 1]
        );
        let args = [x.into(), vec![-8].into(), Arg::IntList(vec![])];
        assert_eq!(
            run_out("aten::roll.out", &args, DType::Int32, &[2, 3]).unwrap().values::<i32>(),
            [3, 4, 5, 6, 1, 2]
        );
    }

    #[test]
    fn splits_fill_every_output() {
        let x = Tensor::of(&[5], &[1u8, 2, 3, 4, 5]);
        let outs = |sizes: &[usize]| {
            Arg::TensorList(sizes.iter().map(|n| Some(Tensor::output(DType::UInt8, &[*n]))).collect())
        };
        let args = [x.clone().into(), 2i64.into(), 0i64.into(), outs(&[2, 2, 1])];
        let Some(Arg::TensorList(parts)) = call("aten::split_copy.Tensor_out", &args).unwrap().pop() else {
            panic!("no list")
        };
        let parts: Vec<Vec<u8>> = parts.iter().flatten().map(Tensor::values).collect();
        assert_eq!(parts, [vec![1, 2], vec![3, 4], vec![5]]);
        let args = [x.clone().into(), vec![2, 2].into(), 0i64.into(), outs(&[2, 2])];
        assert!(error_text(call("aten::split_with_sizes_copy.out", &args)).contains("add up"));
        let args = [x.into(), 2i64.into(), 0i64.into(), outs(&[2, 2])];
        assert!(error_text(call("aten::split_copy.Tensor_out", &args)).contains("cover"));
    }

    #[test]
    fn slices_are_written_into_a_copy() {
        let x = Tensor::of(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let src = Tensor::of(&[2], &[8f32, 9.0]);
        let args = [x.clone().into(), src.clone().into(), 1i64.into(), (-1i64).into()];
        let y = run_out("aten::select_scatter.out", &args, DType::Float32, &[2, 2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, 8.0, 3.0, 9.0]);
        let args = [x.into(), src.into(), 0i64.into(), Arg::Int(0), Arg::Int(1), 1i64.into()];
        assert!(
            error_text(run_out("aten::slice_scatter.out", &args, DType::Float32, &[2, 2])).contains("src")
        );
    }
}
