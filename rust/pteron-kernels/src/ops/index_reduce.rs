//! index_reduce: slices of a source meet the slices of a tensor that positions name.
//!
//! Shape: that of `self`. Dtype: kept, the source has the same; positions are int32 or int64 and checked.
//! Edge cases: NaN wins every extreme; means of integers round down; without `include_self` a named slice
//! starts from the first that meets it.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, UpdateView};
use crate::operator::{Operator, kernel};
use crate::ops::indexing::check_positions;
use crate::ops::layout::same_dtype;
use crate::routine::{Routine, dtype_of};
use crate::shape::{check_index, wrap_dim};
use crate::strided::copy::copy_whole;
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, Dims, Error, Result};

/// How a slice meets the one that is there.
#[derive(Clone, Copy, PartialEq)]
enum Meet {
    Multiply,
    Mean,
    Maximum,
    Minimum,
}

impl Meet {
    fn of(args: &Args<'_>) -> Result<Meet> {
        Ok(match args.optional_string(4)? {
            Some("prod") => Meet::Multiply,
            Some("mean") => Meet::Mean,
            Some("amax") => Meet::Maximum,
            Some("amin") => Meet::Minimum,
            other => {
                return Err(Error::kernel("unknown reduction")
                    .argument("reduce")
                    .expected("prod, mean, amax or amin")
                    .got(format!("{other:?}")));
            }
        })
    }

    fn apply<C: Compute>(self, old: C, new: C) -> C {
        match self {
            Meet::Multiply => old.times(new),
            Meet::Mean => old.plus(new),
            Meet::Maximum if old.is_nan() || old > new => old,
            Meet::Minimum if old.is_nan() || old < new => old,
            Meet::Maximum | Meet::Minimum => new,
        }
    }
}

/// Where the output stands.
const REDUCED: usize = 6;

fn along(shape: &Dims, strides: &Dims, dim: usize) -> (usize, usize) {
    (shape.get(dim).copied().unwrap_or(1), strides.get(dim).copied().unwrap_or(0))
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
    let reduction = Meet::of(args)?;
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
        let named = |j: usize| {
            Ok::<_, Error>(check_index(index.get(j)?, extent).map_err(|e| e.argument("index"))? as i64)
        };
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

/// index_reduce.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::index_reduce.out(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True, Tensor(a!) out) -> Tensor(a!)",
    |ctx| {
        same_dtype(ctx, 0, REDUCED)?;
        same_dtype(ctx, 3, REDUCED)?;
        check_positions(ctx, 2)?;
        match Class::required(dtype_of(ctx, 0)?)? {
            // Integers round down, as PyTorch does; the divisor is positive.
            Class::I64 => {
                Routine::prepare(bind_index_reduce, |args, _| index_reduce::<i64>(args, i64::div_euclid))
            }
            _ => Routine::prepare(bind_index_reduce, |args, _| {
                index_reduce::<f64>(args, |sum, count| sum / count as f64)
            }),
        }
    },
)];
