//! Tensors made of numbers: full, ones, zeros, empty, fill, arange, eye, scalar_tensor, tril, triu.
//!
//! Shape: stated by the arguments. Dtype: that of the output. Edge cases: a number that an integer
//! dtype cannot hold is refused; `empty` leaves its memory as it is.

use crate::chunked;
use crate::complex_number::Number;
use crate::compute::{BLOCK, Class, Compute, Kind, by_kind};
use crate::elements::Writer;
use crate::operator::{Operator, kernel, operator};
use crate::ops::layout::same_dtype;
use crate::ops::masked_choice::check_representable;
use crate::routine::{BindFn, Preparation, Routine, dtype_of};
use crate::strided::copy::{StridedRegion, copy_region, zero};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, Scalar, TensorViewMut};

mod triangle;
use std::ops::Range;

/// Writes one number to a range of elements.
fn fill(args: &Args<'_>, value: Scalar, out: usize, range: Range<usize>) -> Result<()> {
    let y = args.output(out)?;
    match (value, y.dtype().is_float()) {
        _ if y.dtype() == DType::Complex64 => {
            Writer::<Number>::new(y)?.fill_range(range, Number::from_scalar(value))
        }
        (Scalar::Double(v), _) => Writer::<f64>::new(y)?.fill_range(range, v),
        (v, true) => Writer::<f64>::new(y)?.fill_range(range, v.to_f64()),
        (v, false) => Writer::<i64>::new(y)?.fill_range(range, v.to_i64()),
    }
}

/// A kernel that writes the elements of output `out` in chunks, apart from each other.
fn in_chunks(
    out: usize,
    bind: BindFn,
    write: impl Fn(&Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    chunked::prepare(
        move |args, _: &mut ()| {
            bind(args)?;
            Ok(args.args().output(out)?.numel())
        },
        move |_, args, range| write(args, range),
    )
}

fn bind_size<const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = args.args().int_list(0)?.to_dims()?;
    args.resize(OUT, &shape)
}

fn bind_like<const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    args.resize(OUT, &shape)
}

fn check_value(ctx: &PrepareContext<'_>, value: usize, out: usize) -> Result<()> {
    let dtype = dtype_of(ctx, out)?;
    Kind::of(dtype)?;
    check_representable(ctx.args.get(value), dtype)
}

/// An error unless the output holds real numbers.
fn check_real(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    Class::required(dtype_of(ctx, out)?).map(drop)
}

fn fill_tensor(ctx: &PrepareContext<'_>) -> Preparation {
    if ctx.tensor(1).is_some_and(|t| !t.shape.is_empty()) {
        return Err(Error::kernel("the value must have no dimensions").argument("value"));
    }
    Routine::prepare(bind_like::<2>, |args, _| {
        let value = args.tensor(1)?;
        let mut out = args.output(2)?;
        let (shape, to) = (*out.shape(), StridedRegion::of(out.strides()));
        copy_region(&shape, &value, StridedRegion::of(&[0; 16]), &mut out, to)
    })
}

/// First number, step and count of an arange.
struct Numbers {
    start: Scalar,
    step: Scalar,
    count: usize,
}

/// The range whose numbers have type `dtype`. Integers count from the whole part of `start` in steps of the
/// whole part of `step`, as PyTorch has it; how many there are the numbers say as they were given, but for
/// int64, where the whole parts say that, too.
fn range(dtype: DType, start: Scalar, end: Scalar, step: Scalar) -> Result<Numbers> {
    let wrong = |what: &str| {
        Error::kernel(format!("not a range: {what}")).got(format!("{start:?} to {end:?} by {step:?}"))
    };
    let misled = || wrong("the step must lead from start to end");
    let is_given_as_float = [start, end, step].iter().any(|s| matches!(s, Scalar::Double(_)));
    let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
    if is_given_as_float && !(a.is_finite() && b.is_finite() && s.is_finite()) {
        return Err(misled());
    }
    let mut count = ((b - a) / s).ceil();
    if dtype.is_float() && is_given_as_float {
        if s == 0.0 || (b - a) * s < 0.0 {
            return Err(misled());
        }
    } else {
        let (a, b, s) = (start.to_i64() as i128, end.to_i64() as i128, step.to_i64() as i128);
        if s == 0 || (b - a) * s.signum() < 0 {
            return Err(misled());
        }
        if !is_given_as_float || dtype == DType::Int64 {
            count = ((b - a) / s + i128::from((b - a) % s != 0)) as f64;
        }
    }
    // Shapes far beyond memory are refused by the resize. Whole parts may lead where the numbers do not.
    if count > (1u64 << 52) as f64 {
        return Err(wrong("too many elements"));
    }
    Ok(Numbers { start, step, count: count.max(0.0) as usize })
}

/// Writes those of the numbers of a range that are numbered `part`; floats are computed as `start + i * step`.
fn write_range(args: &Args<'_>, range: &Numbers, out: usize, part: Range<usize>) -> Result<()> {
    fn blocks<C: Compute>(
        y: TensorViewMut<'_>,
        part: Range<usize>,
        number: impl Fn(usize, i32) -> C,
    ) -> Result<()> {
        let (mut y, mut block) = (Writer::<C>::new(y)?, [C::ZERO; BLOCK]);
        for first in part.clone().step_by(BLOCK) {
            let block = &mut block[..(part.end - first).min(BLOCK)];
            // Counting in 32 bits lets the conversion to floats vectorise.
            for (i, slot) in (0i32..).zip(block.iter_mut()) {
                *slot = number(first, i);
            }
            y.write(first as isize, 1, block)?;
        }
        Ok(())
    }
    let y = args.output(out)?;
    if y.dtype().is_float() {
        let (start, step) = (range.start.to_f64(), range.step.to_f64());
        // Numbers of elements are below 2^53: their sum is exact.
        return blocks(y, part, |first, i| start + (first as f64 + f64::from(i)) * step);
    }
    let (start, step) = (range.start.to_i64(), range.step.to_i64());
    if y.dtype() == DType::Int64 {
        let mut y = Writer::<i64>::new(y)?;
        let mut next = start.wrapping_add(step.wrapping_mul(part.start as i64));
        if let Some(place) = y.place(part.start as isize, part.len())? {
            for slot in place {
                *slot = next;
                next = next.wrapping_add(step);
            }
        }
        return Ok(());
    }
    blocks(y, part, |first, i| start.wrapping_add(step.wrapping_mul(first as i64 + i64::from(i))))
}

fn range_to_end(args: &Args<'_>) -> Result<Numbers> {
    range(args.output(1)?.dtype(), Scalar::Int(0), args.scalar(0)?, Scalar::Int(1))
}

fn range_with_step(args: &Args<'_>) -> Result<Numbers> {
    range(args.output(3)?.dtype(), args.scalar(0)?, args.scalar(1)?, args.scalar(2)?)
}

fn eye(args: &Args<'_>, out: usize) -> Result<()> {
    by_kind!(Kind::of(args.output(out)?.dtype())?, C, {
        let mut y = Writer::<C>::new(args.output(out)?)?;
        y.fill(C::ZERO)?;
        let (shape, strides) = (y.meta().shape(), y.meta().strides());
        (0..shape[0].min(shape[1])).try_for_each(|i| y.put(i * (strides[0] + strides[1]), C::ONE))
    })
}

fn non_negative(value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::kernel("negative extent").got(value.to_string()))
}

/// Keeps the elements on one side of a diagonal and clears the others.
fn copy_triangle<const LOWER: bool>(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let mut y = zero(args.output(2)?);
    let rank = x.rank();
    let (rows, columns) = (x.shape()[rank - 2] as i64, x.shape()[rank - 1] as i64);
    let diagonal = args.int(1)?.clamp(-rows, columns);
    for row in 0..rows {
        let border = (row + diagonal + i64::from(LOWER)).clamp(0, columns) as usize;
        let (first, count) = if LOWER { (0, border) } else { (border, columns as usize - border) };
        let mut shape = *x.shape();
        (shape[rank - 2], shape[rank - 1]) = (1, count);
        let at = |strides: &Dims| {
            let mut region = StridedRegion::of(strides);
            region.offset = (row as usize * strides[rank - 2] + first * strides[rank - 1]) as isize;
            region
        };
        let (from, to) = (at(x.strides()), at(y.strides()));
        copy_region(&shape, &x, from, &mut y, to)?;
    }
    Ok(())
}

fn bind_triangle(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    if shape.len() < 2 {
        return Err(Error::kernel("a triangle needs two dimensions").argument("self").got(shape.to_string()));
    }
    args.resize(2, &shape)
}

fn plain_triangle<const IS_LOWER: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    Routine::prepare(bind_triangle, |args, _| copy_triangle::<IS_LOWER>(args))
}

macro_rules! constant {
    ($schema:literal, $bind:expr, $out:literal, $value:literal) => {
        kernel($schema, |ctx| {
            check_value(ctx, usize::MAX, $out)?;
            in_chunks($out, $bind, |args, range| fill(args, Scalar::Int($value), $out, range))
        })
    };
}

macro_rules! number {
    ($schema:literal, $bind:expr, $value:literal, $out:literal) => {
        kernel($schema, |ctx| {
            check_value(ctx, $value, $out)?;
            in_chunks($out, $bind, |args, range| fill(args, args.scalar($value)?, $out, range))
        })
    };
}

/// Tensors made of numbers.
pub static OPERATORS: &[Operator] = &[
    number!(
        "aten::full.out(SymInt[] size, Scalar fill_value, *, Tensor(a!) out) -> Tensor(a!)",
        bind_size::<2>,
        1,
        2
    ),
    number!(
        "aten::full_like.out(Tensor self, Scalar fill_value, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        bind_like::<3>,
        1,
        3
    ),
    number!(
        "aten::fill.Scalar_out(Tensor self, Scalar value, *, Tensor(a!) out) -> Tensor(a!)",
        bind_like::<2>,
        1,
        2
    ),
    number!(
        "aten::scalar_tensor.out(Scalar s, *, Tensor(a!) out) -> Tensor(a!)",
        |args| args.resize(1, &[]),
        0,
        1
    ),
    kernel("aten::fill.Tensor_out(Tensor self, Tensor value, *, Tensor(a!) out) -> Tensor(a!)", fill_tensor),
    constant!("aten::ones.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", bind_size::<1>, 1, 1),
    constant!("aten::zeros.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", bind_size::<1>, 1, 0),
    constant!(
        "aten::ones_like.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        bind_like::<2>,
        2,
        1
    ),
    constant!(
        "aten::zeros_like.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        bind_like::<2>,
        2,
        0
    ),
    kernel(
        "aten::empty.out(SymInt[] size, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |_| Routine::scalar(bind_size::<2>),
    ),
    kernel(
        "dim_order_ops::_empty_dim_order.out(int[] size, *, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)",
        |_| Routine::scalar(bind_size::<2>),
    ),
    // Memory is dense in the dim order that the output states; strides are that order's.
    kernel(
        "aten::empty_strided.out(SymInt[] size, SymInt[] stride, *, Tensor(a!) out) -> Tensor(a!)",
        |_| {
            Routine::scalar(|args| {
                let view = args.args();
                let (size, strides) = (view.int_list(0)?.len(), view.int_list(1)?.len());
                if size != strides {
                    return Err(Error::kernel("there must be one stride per dimension")
                        .argument("stride")
                        .expected(size.to_string())
                        .got(strides.to_string()));
                }
                bind_size::<2>(args)
            })
        },
    ),
    kernel(
        "aten::empty_like.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |_| Routine::scalar(bind_like::<2>),
    ),
    kernel("aten::arange.out(Scalar end, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check_real(ctx, 1)?;
        in_chunks(
            1,
            |args| {
                let count = range_to_end(&args.args())?.count;
                args.resize(1, &[count])
            },
            |args, part| write_range(args, &range_to_end(args)?, 1, part),
        )
    }),
    kernel(
        "aten::arange.start_out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check_real(ctx, 3)?;
            in_chunks(
                3,
                |args| {
                    let count = range_with_step(&args.args())?.count;
                    args.resize(3, &[count])
                },
                |args, part| write_range(args, &range_with_step(args)?, 3, part),
            )
        },
    ),
    kernel("aten::eye.out(SymInt n, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check_value(ctx, usize::MAX, 1)?;
        Routine::prepare(
            |args| {
                let n = non_negative(args.args().int(0)?)?;
                args.resize(1, &[n, n])
            },
            |args, _| eye(args, 1),
        )
    }),
    kernel("aten::eye.m_out(SymInt n, SymInt m, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check_value(ctx, usize::MAX, 2)?;
        Routine::prepare(
            |args| {
                let (n, m) = (non_negative(args.args().int(0)?)?, non_negative(args.args().int(1)?)?);
                args.resize(2, &[n, m])
            },
            |args, _| eye(args, 2),
        )
    }),
    operator("aten::tril.out(Tensor self, SymInt diagonal=0, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("rows", triangle::prepare::<true>)
        .plain(plain_triangle::<true>),
    operator("aten::triu.out(Tensor self, SymInt diagonal=0, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("rows", triangle::prepare::<false>)
        .plain(plain_triangle::<false>),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use half::bf16;
    use pteron_core::DType;

    #[test]
    fn numbers_fill_and_must_fit() {
        let full = |v: Arg, d| run_out("aten::full.out", &[vec![2].into(), v], d, &[2]);
        assert_eq!(full(Arg::Double(2.7), DType::Int32).unwrap().values::<i32>(), [2, 2]);
        assert_eq!(full(Arg::Int(1), DType::BFloat16).unwrap().values::<bf16>()[1].to_f32(), 1.0);
        assert!(error_text(full(Arg::Int(300), DType::UInt8)).contains("does not fit"));
        assert_eq!(full(Arg::Int(i64::MAX), DType::Int64).unwrap().values::<i64>(), [i64::MAX; 2]);
    }

    #[test]
    fn ranges() {
        let arange = |a: Arg, b: Arg, s: Arg, d, n| run_out("aten::arange.start_out", &[a, b, s], d, &[n]);
        let y = arange(Arg::Int(5), Arg::Int(0), Arg::Int(-2), DType::Int16, 3).unwrap();
        assert_eq!(y.values::<i16>(), [5, 3, 1]);
        let y = arange(Arg::Double(0.0), Arg::Double(1.0), Arg::Double(0.25), DType::Float32, 4).unwrap();
        assert_eq!(y.values::<f32>(), [0.0, 0.25, 0.5, 0.75]);
        let y = arange(Arg::Double(-0.9), Arg::Double(2.1), Arg::Double(2.0), DType::Int32, 2).unwrap();
        assert_eq!(y.values::<i32>(), [0, 2]);
        let y = arange(Arg::Double(0.0), Arg::Double(-8.5), Arg::Int(-4), DType::Int64, 2).unwrap();
        assert_eq!(y.values::<i64>(), [0, -4]);
        let half = arange(Arg::Int(0), Arg::Int(4), Arg::Double(0.5), DType::Int64, 8);
        assert!(error_text(half).contains("not a range"));
        for (a, b, s) in [(0, 5, 0), (0, 5, -1), (i64::MIN, i64::MAX, 1)] {
            assert!(
                error_text(arange(Arg::Int(a), Arg::Int(b), Arg::Int(s), DType::Int64, 1))
                    .contains("not a range")
            );
        }
    }

    #[test]
    fn triangles_of_batches() {
        let x = Tensor::of(&[1, 2, 3], &[1i8, 2, 3, 4, 5, 6]);
        let tri =
            |op: &str, d: i64| run_out(op, &[x.clone().into(), d.into()], DType::Int8, &[1, 2, 3]).unwrap();
        assert_eq!(tri("aten::tril.out", 0).values::<i8>(), [1, 0, 0, 4, 5, 0]);
        assert_eq!(tri("aten::triu.out", 1).values::<i8>(), [0, 2, 3, 0, 0, 6]);
        assert_eq!(tri("aten::triu.out", i64::MIN).values::<i8>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(tri("aten::tril.out", -5).values::<i8>(), [0; 6]);
    }
}
