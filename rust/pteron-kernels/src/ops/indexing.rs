//! Slices by positions that are tensor data: embedding, index_select.
//!
//! Dtype: data keeps its dtype, any one; positions are int32 or int64. Every position is checked when it is
//! used; a negative one, or one outside its dimension, is an error that names it.

<<<<<<< HEAD
use crate::elements::Reader;
use crate::mapped_copy::{self, Mapping};
=======
use crate::compute::{Compute, Kind, by_kind};
use crate::elements::{Reader, UpdateView, Writer};
>>>>>>> 340b015 (Operators on complex64, incomplete gammas, distinct elements, random counts; variants at the edges of every operator against eager PyTorch; the table of operators is generated)
use crate::ops::layout::same_dtype;
use crate::reduction::row_major;
use crate::region::{Region, copy_region};
use crate::routine::{Routine, dtype_of, kernel};
use crate::shape::{check_index, wrap_dim};
use crate::walk::{Walk, signed};
use pteron_core::{
    Args, BindArgs, DType, Dims, Error, PrepareContext, Result, StaticKernel,
};

pub(crate) fn check_positions(ctx: &PrepareContext<'_>, i: usize) -> Result<()> {
    match dtype_of(ctx, i)? {
        DType::Int64 | DType::Int32 => Ok(()),
        other => Err(Error::kernel("positions must be integers")
            .argument("index")
            .expected("int64 or int32")
            .got(other.name())),
    }
}

fn bind_embedding(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (weight, indices) = (view.tensor(0)?, view.tensor(1)?);
    if weight.rank() != 2 {
        return Err(Error::kernel("the table must be a matrix").argument("weight").got(weight.shape().to_string()));
    }
    let mut shape = *indices.shape();
    shape.push(weight.shape()[1])?;
    args.resize(5, &shape)
}

fn embedding(args: &Args<'_>) -> Result<()> {
    let weight = args.tensor(0)?;
    let indices = Reader::<i64>::new(args.tensor(1)?)?;
    let mut out = args.output(5)?;
    let (at, last) = (row_major(indices.meta()), out.rank() - 1);
    let row = Dims::new(&[weight.shape()[1]])?;
    let targets = Walk::new(0..last, out.shape(), &signed(out.strides()));
    let mut to = Region::of(&out.strides()[last..]);
    let mut from = Region::of(&weight.strides()[1..]);
    for position in 0..indices.meta().numel() {
        let index = indices.get(at.offset(position) as usize)?;
        let index = check_index(index, weight.shape()[0]).map_err(|e| e.argument("indices"))?;
        from.offset = index as isize * weight.strides()[0] as isize;
        to.offset = targets.offset(position);
        copy_region(&row, &weight, from, &mut out, to)?;
    }
    Ok(())
}

fn map_index_select(args: &Args<'_>) -> Result<Mapping> {
    let (x, index) = (args.tensor(0)?, args.tensor(2)?);
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    if index.rank() > 1 || (x.rank() == 0 && index.numel() != 1) {
        return Err(Error::kernel("positions must be a vector").argument("index").got(index.shape().to_string()));
    }
    let mut shape = *x.shape();
    if let Some(extent) = shape.get_mut(dim) {
        *extent = index.numel();
    }
    Ok(Mapping::new(&x, shape, 1 << dim))
}

fn list_index_select(args: &Args<'_>, d: usize, list: &mut [usize]) -> Result<()> {
    let index = Reader::<i64>::new(args.tensor(2)?)?;
    let extent = args.tensor(0)?.shape().get(d).copied().unwrap_or(1);
    for (i, slot) in list.iter_mut().enumerate() {
        *slot = check_index(index.get(i)?, extent).map_err(|e| e.argument("index"))?;
    }
    Ok(())
}

<<<<<<< HEAD
/// embedding, index_select.
=======
/// Checks that an index tensor has the rank of the data and stays within it, save along `dim`.
fn check_index_shape(index: &TensorView<'_>, data: &Dims, dim: usize) -> Result<()> {
    let fits = index.rank().max(1) == data.len().max(1)
        && index.shape().iter().zip(data.iter()).enumerate().all(|(d, (i, n))| d == dim || i <= n);
    if index.numel() > 0 && !fits {
        return Err(Error::kernel("the index must lie within the tensor in every other dimension")
            .argument("index")
            .expected(format!("at most {data}, any extent in dimension {dim}"))
            .got(index.shape().to_string()));
    }
    Ok(())
}

/// Visits every element of an index tensor in row-major order: `(position, value)`, checked.
fn for_each_index(
    index: &Reader<'_, i64>,
    extent: usize,
    mut visit: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let walk = row_major(index.meta());
    walk.runs(0, walk.numel(), |first, offset, stride, len| {
        (0..len).try_for_each(|i| {
            let value = index.get((offset + i as isize * stride) as usize)?;
            visit(first + i, check_index(value, extent).map_err(|e| e.argument("index"))?)
        })
    })
}

/// Walks `shape` through a tensor with `strides`, standing still along `dim`.
fn beside(shape: &Dims, strides: &Dims, dim: usize) -> Walk {
    let mut strides = signed(strides);
    strides[dim] = 0;
    Walk::row_major(shape, &strides)
}

fn bind_gather(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (x, index) = (view.tensor(0)?, view.tensor(2)?);
    check_index_shape(&index, x.shape(), wrap_dim(view.int(1)?, x.rank())?)?;
    let shape = *index.shape();
    args.resize(4, &shape)
}

fn gather<C: Compute>(args: &Args<'_>) -> Result<()> {
    let (x, index) = (Reader::<C>::new(args.tensor(0)?)?, Reader::<i64>::new(args.tensor(2)?)?);
    let mut y = Writer::<C>::new(args.output(4)?)?;
    let dim = wrap_dim(args.int(1)?, x.meta().rank())?;
    let (extent, stride) = along(x.meta().shape(), x.meta().strides(), dim);
    let from = beside(index.meta().shape(), x.meta().strides(), dim);
    let to = row_major(y.meta());
    for_each_index(&index, extent, |position, chosen| {
        let value = x.get(from.offset(position) as usize + chosen * stride)?;
        y.put(to.offset(position) as usize, value)
    })
}

/// Extent and stride of a dimension; those of a single element for a 0-d tensor.
fn along(shape: &Dims, strides: &Dims, dim: usize) -> (usize, usize) {
    (shape.get(dim).copied().unwrap_or(1), strides.get(dim).copied().unwrap_or(0))
}

/// How a scattered value meets the one that is there.
#[derive(Clone, Copy, PartialEq)]
enum Meet {
    Replace,
    Add,
    Multiply,
    Mean,
    Maximum,
    Minimum,
}

impl Meet {
    fn apply<C: Compute>(self, old: C, new: C) -> C {
        match self {
            Meet::Replace => new,
            Meet::Add | Meet::Mean => old.plus(new),
            Meet::Multiply => old.times(new),
            Meet::Maximum => {
                if old.is_nan() || old > new { old } else { new }
            }
            Meet::Minimum => {
                if old.is_nan() || old < new { old } else { new }
            }
        }
    }
}

/// Writes `value(position)` to the places an index names in a copy of argument 0.
fn scatter<C: Compute>(
    args: &Args<'_>,
    out: usize,
    meet: Meet,
    mut value: impl FnMut(usize) -> Result<C>,
) -> Result<()> {
    copy_to_update(&args.tensor(0)?, &mut args.output(out)?)?;
    update_named::<C, _>(args, out, |position, _| {
        let new = value(position)?;
        Ok(move |old| meet.apply(old, new))
    })
}

/// `change(position, chosen index)` gives the function that replaces the element an index names; called in
/// row-major order of the index.
fn update_named<C: Compute, F: FnOnce(C) -> C>(
    args: &Args<'_>,
    out: usize,
    mut change: impl FnMut(usize, usize) -> Result<F>,
) -> Result<()> {
    let index = Reader::<i64>::new(args.tensor(2)?)?;
    let mut y = UpdateView::<C>::new(args, out)?;
    let meta = y.meta;
    let dim = wrap_dim(args.int(1)?, meta.rank())?;
    let (extent, stride) = along(meta.shape(), meta.strides(), dim);
    let to = beside(index.meta().shape(), meta.strides(), dim);
    for_each_index(&index, extent, |position, chosen| {
        let change = change(position, chosen)?;
        y.update(to.offset(position) as usize + chosen * stride, change)
    })
}

fn bind_scatter(args: &mut BindArgs<'_>, src: Option<usize>, out: usize) -> Result<()> {
    let view = args.args();
    let (x, index) = (view.tensor(0)?, view.tensor(2)?);
    let dim = wrap_dim(view.int(1)?, x.rank())?;
    check_index_shape(&index, x.shape(), dim)?;
    if let Some(src) = src {
        let src = view.tensor(src)?;
        let fits = src.rank().max(1) == index.rank().max(1) && index.shape().iter().zip(src.shape().iter()).all(|(i, s)| i <= s);
        if index.numel() > 0 && !fits {
            return Err(Error::kernel("there must be a value for every position")
                .argument("src")
                .expected(format!("at least {}", index.shape()))
                .got(src.shape().to_string()));
        }
    }
    let shape = *x.shape();
    args.resize(out, &shape)
}

fn scatter_source<C: Compute>(args: &Args<'_>, out: usize, meet: Meet) -> Result<()> {
    let src = Reader::<C>::new(args.tensor(3)?)?;
    let from = Walk::row_major(args.tensor(2)?.shape(), &signed(src.meta().strides()));
    scatter::<C>(args, out, meet, |position| src.get(from.offset(position) as usize))
}

fn scatter_value<C: Compute>(args: &Args<'_>) -> Result<()> {
    let value = C::from_scalar(args.scalar(3)?);
    scatter::<C>(args, 4, Meet::Replace, |_| Ok(value))
}

fn check_scatter(ctx: &PrepareContext<'_>, has_source: bool, out: usize) -> Result<Kind> {
    same_dtype(ctx, 0, out)?;
    check_positions(ctx, 2)?;
    if has_source {
        same_dtype(ctx, 3, out)?;
    }
    Kind::of(dtype_of(ctx, 0)?)
}


/// How `scatter_reduce` combines, by name.
fn reduction_of(args: &Args<'_>) -> Result<Meet> {
    Ok(match args.optional_string(4)? {
        Some("sum") => Meet::Add,
        Some("prod") => Meet::Multiply,
        Some("mean") => Meet::Mean,
        Some("amax") => Meet::Maximum,
        Some("amin") => Meet::Minimum,
        other => {
            return Err(Error::kernel("unknown reduction")
                .argument("reduce")
                .expected("sum, prod, mean, amax or amin")
                .got(format!("{other:?}")));
        }
    })
}

/// Sets every element that an index names to what leaves the values for it unchanged.
fn reset_named<C: Compute>(args: &Args<'_>, reduction: Meet) -> Result<()> {
    let src = Reader::<C>::new(args.tensor(3)?)?;
    let from = Walk::row_major(args.tensor(2)?.shape(), &signed(src.meta().strides()));
    update_named::<C, _>(args, REDUCED, |position, _| {
        let start = match reduction {
            Meet::Multiply => C::ONE,
            // One of the values that compete: meeting it again changes nothing.
            Meet::Maximum | Meet::Minimum => src.get(from.offset(position) as usize)?,
            Meet::Replace | Meet::Add | Meet::Mean => C::ZERO,
        };
        Ok(move |_| start)
    })
}

/// Divides every element that an index names, once, by the number of values it is the sum of.
fn divide_named<C: Compute>(args: &Args<'_>, includes_self: bool, divide: fn(C, i64) -> C) -> Result<()> {
    let index = Reader::<i64>::new(args.tensor(2)?)?;
    let shape = index.meta().shape();
    let dim = wrap_dim(args.int(1)?, shape.len())?;
    let places = row_major(index.meta());
    let extent = shape.get(dim).copied().unwrap_or(1);
    let inner: usize = shape.iter().skip(dim + 1).product();
    update_named::<C, _>(args, REDUCED, |position, chosen| {
        // Only positions on one line along `dim` can name the same element; the first of them divides.
        let on_line = position / inner % extent;
        let start = position - on_line * inner;
        let (mut count, mut first) = (i64::from(includes_self), None);
        for step in 0..extent {
            if usize::try_from(index.get(places.offset(start + step * inner) as usize)?) == Ok(chosen) {
                first.get_or_insert(step);
                count += 1;
            }
        }
        let divisor = if first == Some(on_line) { count } else { 1 };
        Ok(move |sum| divide(sum, divisor))
    })
}

/// Where the output of `scatter_reduce` stands.
const REDUCED: usize = 6;

/// The values meet in the copy of the input, or among themselves where the input does not count.
fn reduce_scattered<C: Compute>(args: &Args<'_>, divide: fn(C, i64) -> C) -> Result<()> {
    let (reduction, includes_self) = (reduction_of(args)?, args.bool(5)?);
    let src = Reader::<C>::new(args.tensor(3)?)?;
    let from = Walk::row_major(args.tensor(2)?.shape(), &signed(src.meta().strides()));
    copy_whole(&args.tensor(0)?, &mut args.output(REDUCED)?)?;
    if !includes_self {
        reset_named::<C>(args, reduction)?;
    }
    update_named::<C, _>(args, REDUCED, |position, _| {
        let new = src.get(from.offset(position) as usize)?;
        Ok(move |old| reduction.apply(old, new))
    })?;
    if reduction == Meet::Mean { divide_named::<C>(args, includes_self, divide) } else { Ok(()) }
}

fn scatter_reduce(ctx: &PrepareContext<'_>) -> Preparation {
    let bind = |args: &mut BindArgs<'_>| bind_scatter(args, Some(3), REDUCED);
    match check_scatter(ctx, true, REDUCED)? {
        // Integers round down, as PyTorch does; the divisor is positive.
        Kind::Integer => Routine::prepare(bind, |args, _| reduce_scattered::<i64>(args, i64::div_euclid)),
        Kind::Float => Routine::prepare(bind, |args, _| reduce_scattered::<f64>(args, |sum, count| sum / count as f64)),
        Kind::Complex => Err(Error::kernel("complex numbers have no order to reduce by").argument("self")),
    }
}

/// Slices of the source meet those that positions name in a copy of the input, one position after the other.
fn bind_index_reduce(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (x, index, source) = (view.tensor(0)?, view.tensor(2)?, view.tensor(3)?);
    let dim = wrap_dim(view.int(1)?, x.rank())?;
    let mut wanted = *x.shape();
    if let Some(extent) = wanted.get_mut(dim) {
        *extent = index.numel();
    }
    if index.rank() > 1 || source.shape() != &wanted || (x.rank() == 0 && index.numel() != 1) {
        return Err(Error::kernel("there must be one slice of the source for every position")
            .argument("source")
            .expected(wanted.to_string())
            .got(source.shape().to_string()));
    }
    let shape = *x.shape();
    args.resize(REDUCED, &shape)
}

fn index_reduce<C: Compute>(args: &Args<'_>, divide: fn(C, i64) -> C) -> Result<()> {
    let reduction = match reduction_of(args)? {
        Meet::Add => return Err(Error::kernel("unknown reduction").argument("reduce").expected("prod, mean, amax or amin")),
        other => other,
    };
    let (includes_self, index) = (args.bool(5)?, Reader::<i64>::new(args.tensor(2)?)?);
    copy_whole(&args.tensor(0)?, &mut args.output(REDUCED)?)?;
    let src = Reader::<C>::new(args.tensor(3)?)?;
    let mut y = UpdateView::<C>::new(args, REDUCED)?;
    let meta = y.meta;
    let dim = wrap_dim(args.int(1)?, meta.rank())?;
    let (extent, stride) = along(meta.shape(), meta.strides(), dim);
    let (_, src_stride) = along(src.meta().shape(), src.meta().strides(), dim);
    let (rest, from) = without_dim(src.meta().shape(), src.meta().strides(), dim);
    let (_, to) = without_dim(src.meta().shape(), meta.strides(), dim);
    let count = index.meta().numel();
    for i in 0..count {
        let named = |j: usize| Ok::<_, Error>(check_index(index.get(j)?, extent).map_err(|e| e.argument("index"))? as i64);
        let chosen = named(i)?;
        let (mut is_first, mut is_last, mut times) = (!includes_self, true, i64::from(includes_self));
        for j in 0..count {
            if named(j)? == chosen {
                is_first &= j >= i;
                is_last &= j <= i;
                times += 1;
            }
        }
        for position in 0..rest {
            let value = src.get(from.offset(position) as usize + i * src_stride)?;
            y.update(to.offset(position) as usize + chosen as usize * stride, |old| {
                let met = if is_first { value } else { reduction.apply(old, value) };
                if is_last && reduction == Meet::Mean { divide(met, times) } else { met }
            })?;
        }
    }
    Ok(())
}

/// Elements beside one dimension, and a walk over them by `strides`.
fn without_dim(shape: &Dims, strides: &Dims, dim: usize) -> (usize, Walk) {
    let walk = Walk::new((0..shape.len()).filter(|d| *d != dim), shape, &signed(strides));
    (walk.numel(), walk)
}

macro_rules! of_kind {
    ($kind:expr, $prepare:path, ($($first:expr,)*), $bind:expr, $function:ident $(, $extra:expr)*) => {
        by_kind!($kind, C, $prepare($($first,)* $bind, |args, _| $function::<C>(args $(, $extra)*)))
    };
}

/// Indexing.
>>>>>>> 340b015 (Operators on complex64, incomplete gammas, distinct elements, random counts; variants at the edges of every operator against eager PyTorch; the table of operators is generated)
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::embedding.out(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 5)?;
            check_positions(ctx, 1)?;
            Routine::prepare(bind_embedding, |args, _| embedding(args))
        },
    ),
    kernel("aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        same_dtype(ctx, 0, 3)?;
        check_positions(ctx, 2)?;
        mapped_copy::prepare(ctx, 3, map_index_select, list_index_select)
    }),
<<<<<<< HEAD
=======
    kernel(
        "aten::gather.out(Tensor self, int dim, Tensor index, *, bool sparse_grad=False, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 4)?;
            check_positions(ctx, 2)?;
            of_kind!(Kind::of(dtype_of(ctx, 0)?)?, Routine::prepare, (), bind_gather, gather)
        },
    ),
    kernel(
        "aten::scatter.src_out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| of_kind!(check_scatter(ctx, true, 4)?, Routine::prepare_update, (0,), |args| bind_scatter(args, Some(3), 4), scatter_source, 4, Meet::Replace),
    ),
    kernel(
        "aten::scatter.value_out(Tensor self, int dim, Tensor index, Scalar value, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| of_kind!(check_scatter(ctx, false, 4)?, Routine::prepare_update, (0,), |args| bind_scatter(args, None, 4), scatter_value),
    ),
    kernel(
        "aten::scatter_add.out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| of_kind!(check_scatter(ctx, true, 4)?, Routine::prepare_update, (0,), |args| bind_scatter(args, Some(3), 4), scatter_source, 4, Meet::Add),
    ),
    kernel(
        "aten::scatter_reduce.two_out(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True, Tensor(a!) out) -> Tensor(a!)",
        scatter_reduce,
    ),
    kernel(
        "aten::index_reduce.out(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True, Tensor(a!) out) -> Tensor(a!)",
        |ctx| match check_scatter(ctx, true, REDUCED)? {
            // Integers round down, as PyTorch does; the divisor is positive.
            Kind::Integer => Routine::prepare(bind_index_reduce, |args, _| index_reduce::<i64>(args, i64::div_euclid)),
            Kind::Float => {
                Routine::prepare(bind_index_reduce, |args, _| index_reduce::<f64>(args, |sum, count| sum / count as f64))
            }
            Kind::Complex => Err(Error::kernel("complex numbers have no order to reduce by").argument("self")),
        },
    ),
>>>>>>> 340b015 (Operators on complex64, incomplete gammas, distinct elements, random counts; variants at the edges of every operator against eager PyTorch; the table of operators is generated)
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::DType;
    use proptest::prelude::*;

    fn table() -> Tensor {
        Tensor::of(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
    }

    #[test]
    fn rows_of_a_table() {
        let look = |i: &[i32]| {
            let args = [table().into(), Tensor::of(&[i.len()], i).into(), (-1i64).into(), false.into(), false.into()];
            run_out("aten::embedding.out", &args, DType::Float32, &[i.len(), 2])
        };
        assert_eq!(look(&[2, 0]).unwrap().values::<f32>(), [5.0, 6.0, 1.0, 2.0]);
        assert!(error_text(look(&[3])).contains("got 3"));
        assert!(error_text(look(&[-1])).contains("got -1"));
    }

    proptest! {
        // Hostile positions are refused or used, never followed outside.
        #[test]
        fn positions_outside_are_refused(i in prop_oneof![any::<i64>(), -4i64..5], j in -4i64..5) {
            let index = Tensor::of(&[2], &[i, j]);
            let inside = |v: i64| (0..3).contains(&v);
            let args = [table().into(), 0i64.into(), index.into()];
            let got = run_out("aten::index_select.out", &args, DType::Float32, &[2, 2]);
            prop_assert_eq!(got.is_ok(), inside(i) && inside(j));
        }
    }
}
