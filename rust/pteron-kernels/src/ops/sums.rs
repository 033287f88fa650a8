//! Reductions that add or multiply: sum, mean, prod, var, std, logsumexp, vector norm. The fast kernels are in
//! [`crate::reduction`].
//!
//! Shape: the reduced dimensions vanish or become 1. Dtype: floats accumulate in float64, integers in
//! int64 (wrapping); the result takes the output's dtype. Edge cases: the sum of nothing is 0, its
//! product 1, its mean NaN; a variance with too few elements is NaN or infinite.

use crate::complex_number::{Number, number};
use crate::compute::{BLOCK, Class, Compute, Kind};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::ops::complex_sums;
use crate::reduction::fold::{Kind as FoldKind, Outputs};
use crate::reduction::plain::{LaneSum, Reduction, RunPart, bind_reduced, in_parts, listed_dims, row_major};
use crate::reduction::shape::DimsArg;
use crate::reduction::{float, other_dtypes, spread};
use crate::routine::dtype_of;
use crate::shape::{all_dims, wrap_dim};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Error, PrepareContext, Result, Scalar};
use std::ops::Range;

/// An error unless inputs and output are real numbers.
pub(crate) fn check_real(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    for i in [0, out] {
        Class::required(dtype_of(ctx, i)?)?;
    }
    Ok(())
}

/// An error unless input and output are numbers; complex ones give complex results.
fn check_numbers(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    let (input, out) = (Kind::of(dtype_of(ctx, 0)?)?, Kind::of(dtype_of(ctx, out)?)?);
    if input == Kind::Complex && out != Kind::Complex {
        return Err(Error::kernel("complex numbers need a complex result")
            .argument("out")
            .expected("complex64"));
    }
    Ok(())
}

/// An error unless the input is a float, or complex64 with float32 results in `out`.
fn check_spread(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    if dtype_of(ctx, 0)? != DType::Complex64 {
        return check_float(ctx, out);
    }
    if dtype_of(ctx, out)? == DType::Float32 {
        return Ok(());
    }
    Err(Error::kernel("distances of complex64 numbers are float32")
        .argument("out")
        .expected("float32")
        .got(dtype_of(ctx, out)?.name()))
}

/// An error unless the input is a float.
pub(crate) fn check_float(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    check_real(ctx, out)?;
    let (dtype, out) = (dtype_of(ctx, 0)?, dtype_of(ctx, out)?);
    if !dtype.is_float() || !out.is_float() {
        return Err(Error::kernel("the operator needs floats")
            .expected("floating-point input and output")
            .got(format!("{dtype} and {out}")));
    }
    Ok(())
}

fn sum_over(args: &Args<'_>, set: u32, out: usize, part: Range<usize>) -> Result<()> {
    let (x, y) = (args.tensor(0)?, args.output(out)?);
    let reduction = Reduction::new(x.meta(), set).within(part);
    if y.dtype().is_float() {
        let (x, mut y) = (Reader::<f64>::new(x)?, Writer::<f64>::new(y)?);
        return reduction.fold(&x, &mut y, LaneSum::default, |s, _, b| s.add(b, |v| v), |s| s.total());
    }
    let (x, mut y) = (Reader::<i64>::new(x)?, Writer::<i64>::new(y)?);
    let add = |s: &mut i64, _, b: &[i64]| *s = b.iter().fold(*s, |s, v| s.wrapping_add(*v));
    reduction.fold(&x, &mut y, || 0i64, add, |s| s)
}

fn product_over(args: &Args<'_>, set: u32, out: usize, part: Range<usize>) -> Result<()> {
    let (x, y) = (args.tensor(0)?, args.output(out)?);
    let reduction = Reduction::new(x.meta(), set).within(part);
    if y.dtype().is_float() {
        let (x, mut y) = (Reader::<f64>::new(x)?, Writer::<f64>::new(y)?);
        return reduction.fold(
            &x,
            &mut y,
            || 1.0,
            |p, _, b| *p = b.iter().fold(*p, |p, v| p * v),
            |p: f64| p,
        );
    }
    if y.dtype() == DType::Complex64 {
        let (x, mut y) = (Reader::<Number>::new(x)?, Writer::<Number>::new(y)?);
        let times = |p: &mut Number, _, b: &[Number]| *p = b.iter().fold(*p, |p, v| p.times(*v));
        return reduction.fold(&x, &mut y, || Number::ONE, times, |p| p);
    }
    let (x, mut y) = (Reader::<i64>::new(x)?, Writer::<i64>::new(y)?);
    let times = |p: &mut i64, _, b: &[i64]| *p = b.iter().fold(*p, |p, v| p.wrapping_mul(*v));
    reduction.fold(&x, &mut y, || 1i64, times, |p| p)
}

fn mean_over(args: &Args<'_>, set: u32, out: usize, part: Range<usize>) -> Result<()> {
    let x = args.tensor(0)?;
    let reduction = Reduction::new(x.meta(), set).within(part);
    let count = reduction.count() as f64;
    let (x, mut y) = (Reader::<f64>::new(x)?, Writer::<f64>::new(args.output(out)?)?);
    reduction.fold(&x, &mut y, LaneSum::default, |s, _, b| s.add(b, |v| v), |s| s.total() / count)
}

/// Mean and sum of squared deviations of the elements at `base`.
pub(crate) fn moments(
    x: &Reader<'_, f64>,
    walk: &crate::strided::loops::Walk,
    base: isize,
    buffer: &mut [f64; BLOCK],
) -> Result<(f64, f64)> {
    let mut sum = LaneSum::default();
    x.blocks(walk, base, buffer, |_, b| {
        sum.add(b, |v| v);
        Ok(())
    })?;
    let mean = sum.total() / walk.numel() as f64;
    let mut squares = LaneSum::default();
    x.blocks(walk, base, buffer, |_, b| {
        squares.add(b, |v| (v - mean) * (v - mean));
        Ok(())
    })?;
    Ok((mean, squares.total()))
}

/// Variances over `set` to output `out`, and means to output `mean` if there is one.
fn variance_over(
    args: &Args<'_>,
    set: u32,
    correction: f64,
    out: usize,
    mean: Option<usize>,
    map: fn(f64) -> f64,
    part: Range<usize>,
) -> Result<()> {
    let x = args.tensor(0)?;
    if x.dtype() == DType::Complex64 {
        return complex_variance(args, set, correction, out, mean, map, part);
    }
    let reduction = Reduction::new(x.meta(), set).within(part);
    let x = Reader::<f64>::new(x)?;
    let mut y = Writer::<f64>::new(args.output(out)?)?;
    let mut m = mean.map(|i| Writer::<f64>::new(args.output(i)?)).transpose()?;
    let y_at = row_major(y.meta());
    let m_at = m.as_ref().map(|m| row_major(m.meta()));
    let freedom = (reduction.count() as f64 - correction).max(0.0);
    let mut buffer = [0.0; BLOCK];
    reduction.for_each(|position, base| {
        let (mean, squares) = moments(&x, reduction.inner(), base, &mut buffer)?;
        y.write(y_at.offset(position), 1, &[map(squares / freedom)])?;
        if let (Some(m), Some(at)) = (&mut m, &m_at) {
            m.write(at.offset(position), 1, &[mean])?;
        }
        Ok(())
    })
}

/// As [`variance_over`], of complex numbers: squared distances from the mean.
fn complex_variance(
    args: &Args<'_>,
    set: u32,
    correction: f64,
    out: usize,
    mean: Option<usize>,
    map: fn(f64) -> f64,
    part: Range<usize>,
) -> Result<()> {
    let x = Reader::<Number>::new(args.tensor(0)?)?;
    let reduction = Reduction::new(x.meta(), set).within(part);
    let mut y = Writer::<f64>::new(args.output(out)?)?;
    let mut m = mean.map(|i| Writer::<Number>::new(args.output(i)?)).transpose()?;
    let y_at = row_major(y.meta());
    let m_at = m.as_ref().map(|m| row_major(m.meta()));
    let freedom = (reduction.count() as f64 - correction).max(0.0);
    let mut buffer = [Number::ZERO; BLOCK];
    reduction.for_each(|position, base| {
        let mut sum = Number::ZERO;
        x.blocks(reduction.inner(), base, &mut buffer, |_, b| {
            sum = b.iter().fold(sum, |s, v| s.plus(*v));
            Ok(())
        })?;
        let count = reduction.count() as f64;
        let mean = number(sum.re / count, sum.im / count);
        let mut squares = 0.0;
        x.blocks(reduction.inner(), base, &mut buffer, |_, b| {
            squares = b.iter().fold(squares, |s, v| s + v.minus(mean).magnitude().powi(2));
            Ok(())
        })?;
        y.write(y_at.offset(position), 1, &[map(squares / freedom)])?;
        if let (Some(m), Some(at)) = (&mut m, &m_at) {
            m.write(at.offset(position), 1, &[mean])?;
        }
        Ok(())
    })
}

fn correction(args: &Args<'_>) -> Result<f64> {
    Ok(args.optional_scalar(2)?.map_or(1.0, Scalar::to_f64))
}

fn unbiased(args: &Args<'_>) -> Result<f64> {
    Ok(if args.bool(2)? { 1.0 } else { 0.0 })
}

fn log_sum_exp(args: &Args<'_>, part: Range<usize>) -> Result<()> {
    let x = args.tensor(0)?;
    let reduction = Reduction::new(x.meta(), listed_dims(args, 1)?).within(part);
    let (x, mut y) = (Reader::<f64>::new(x)?, Writer::<f64>::new(args.output(3)?)?);
    let at = row_major(y.meta());
    let mut buffer = [0.0; BLOCK];
    reduction.for_each(|position, base| {
        let mut top = f64::NEG_INFINITY;
        x.blocks(reduction.inner(), base, &mut buffer, |_, b| {
            top = b.iter().fold(top, |t, v| if *v > t || v.is_nan() { *v } else { t });
            Ok(())
        })?;
        // Infinite maxima are their own result; subtracting them would give NaN.
        let shift = if top.is_infinite() { 0.0 } else { top };
        let mut sum = LaneSum::default();
        x.blocks(reduction.inner(), base, &mut buffer, |_, b| {
            sum.add(b, |v| (v - shift).exp());
            Ok(())
        })?;
        y.write(at.offset(position), 1, &[sum.total().ln() + shift])
    })
}

fn vector_norm<C: Compute>(args: &Args<'_>, part: Range<usize>) -> Result<()> {
    let order = args.scalar(1)?.to_f64();
    let x = args.tensor(0)?;
    let reduction = Reduction::new(x.meta(), listed_dims(args, 2)?).within(part);
    let (x, mut y) = (Reader::<C>::new(x)?, Writer::<f64>::new(args.output(5)?)?);
    let extreme = |s: &mut f64, b: &[C], larger: bool| {
        for v in b {
            let v = v.magnitude();
            if v.is_nan() || (if larger { v > *s } else { v < *s }) {
                *s = v;
            }
        }
    };
    if order == f64::INFINITY {
        return reduction.fold(&x, &mut y, || 0.0, |s, _, b| extreme(s, b, true), |s| s);
    }
    if order == f64::NEG_INFINITY {
        return reduction.fold(&x, &mut y, || f64::INFINITY, |s, _, b| extreme(s, b, false), |s| s);
    }
    if order == 0.0 {
        let count = |s: &mut LaneSum, _, b: &[C]| s.add(b, |v| f64::from(u8::from(v.is_true())));
        return reduction.fold(&x, &mut y, LaneSum::default, count, |s| s.total());
    }
    if order == 2.0 {
        return reduction.fold(
            &x,
            &mut y,
            LaneSum::default,
            |s, _, b| s.add(b, |v| v.magnitude() * v.magnitude()),
            |s| s.total().sqrt(),
        );
    }
    let power = |s: &mut LaneSum, _, b: &[C]| s.add(b, |v| v.magnitude().powf(order));
    reduction.fold(&x, &mut y, LaneSum::default, power, |s| s.total().powf(1.0 / order))
}

fn mean(ctx: &PrepareContext<'_>, dtype_argument: usize, out: usize) -> Result<()> {
    check_real(ctx, out)?;
    let asked = matches!(ctx.args.get(dtype_argument), Some(ArgSpec::Int(_)));
    if !dtype_of(ctx, out)?.is_float() || !(asked || dtype_of(ctx, 0)?.is_float()) {
        return Err(Error::kernel("a mean needs floats")
            .expected("a floating-point input or dtype, and a floating-point output")
            .got(dtype_of(ctx, 0)?.name()));
    }
    Ok(())
}

fn one_dim(args: &Args<'_>) -> Result<u32> {
    Ok(1 << wrap_dim(args.int(1)?, args.tensor(0)?.rank())?)
}

fn every_dim(args: &Args<'_>) -> Result<u32> {
    Ok(all_dims(args.tensor(0)?.rank()))
}

/// Reduces the dimensions that argument 1 lists.
fn bind_listed<const KEEPDIM: usize, const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let (set, keepdim) = (listed_dims(&args.args(), 1)?, args.args().bool(KEEPDIM)?);
    bind_reduced(args, set, keepdim, OUT)
}

fn bind_all(args: &mut BindArgs<'_>) -> Result<()> {
    args.resize(2, &[])
}

const VARIANCE: Outputs = Outputs { first: 4, second: None };
const BOTH: Outputs = Outputs { first: 4, second: Some(5) };

/// Sums and their kin.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Sum, 4, DimsArg::List))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Sum, 4, DimsArg::List))
    .plain(|ctx| {
        check_real(ctx, 4)?;
        in_parts(4, bind_listed::<2, 4>, |args, part| sum_over(args, listed_dims(args, 1)?, 4, part))
    })
    .complex64(|ctx| complex_sums::by_dims(ctx, false)),
    operator(
        "aten::sum.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Sum, 2, DimsArg::All))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Sum, 2, DimsArg::All))
    .plain(|ctx| {
        check_real(ctx, 2)?;
        in_parts(2, bind_all, |args, part| sum_over(args, every_dim(args)?, 2, part))
    })
    .complex64(|ctx| complex_sums::over_all(ctx, false)),
    operator(
        "aten::mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Mean, 4, DimsArg::List))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Mean, 4, DimsArg::List))
    .plain(|ctx| {
        mean(ctx, 3, 4)?;
        in_parts(4, bind_listed::<2, 4>, |args, part| mean_over(args, listed_dims(args, 1)?, 4, part))
    })
    .complex64(|ctx| complex_sums::by_dims(ctx, true)),
    operator(
        "aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Mean, 2, DimsArg::All))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Mean, 2, DimsArg::All))
    .plain(|ctx| {
        mean(ctx, 1, 2)?;
        in_parts(2, bind_all, |args, part| mean_over(args, every_dim(args)?, 2, part))
    })
    .complex64(|ctx| complex_sums::over_all(ctx, true)),
    operator(
        "aten::prod.int_out(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Product, 4, DimsArg::One))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Product, 4, DimsArg::One))
    .plain(|ctx| {
        check_numbers(ctx, 4)?;
        in_parts(
            4,
            |args| bind_reduced(args, one_dim(&args.args())?, args.args().bool(2)?, 4),
            |args, part| product_over(args, one_dim(args)?, 4, part),
        )
    }),
    operator(
        "aten::prod.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Product, 2, DimsArg::All))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Product, 2, DimsArg::All))
    .plain(|ctx| {
        check_numbers(ctx, 2)?;
        in_parts(2, bind_all, |args, part| product_over(args, every_dim(args)?, 2, part))
    }),
    operator(
        "aten::var.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False, Tensor(a!) out) -> Tensor(a!)"
    )
    .fast("float", |ctx| spread::prepare(ctx, VARIANCE, DimsArg::Apart, correction, false))
    .plain(|ctx| {
        check_spread(ctx, 4)?;
        in_parts(
            4,
            bind_listed::<3, 4>,
            |args, part| variance_over(args, listed_dims(args, 1)?, correction(args)?, 4, None, |v| v, part),
        )
    }),
    operator(
        "aten::var.out(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)"
    )
    .fast("float", |ctx| spread::prepare(ctx, VARIANCE, DimsArg::Apart, unbiased, false))
    .plain(|ctx| {
        check_spread(ctx, 4)?;
        in_parts(
            4,
            bind_listed::<3, 4>,
            |args, part| variance_over(args, listed_dims(args, 1)?, unbiased(args)?, 4, None, |v| v, part),
        )
    }),
    operator(
        "aten::std.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False, Tensor(a!) out) -> Tensor(a!)"
    )
    .fast("float", |ctx| spread::prepare(ctx, VARIANCE, DimsArg::Apart, correction, true))
    .plain(|ctx| {
        check_spread(ctx, 4)?;
        in_parts(
            4,
            bind_listed::<3, 4>,
            |args, part| variance_over(args, listed_dims(args, 1)?, correction(args)?, 4, None, f64::sqrt, part),
        )
    }),
    operator(
        "aten::var_mean.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))"
    )
    .fast("float", |ctx| spread::prepare(ctx, BOTH, DimsArg::Apart, correction, false))
    .plain(|ctx| {
        check_spread(ctx, 4)?;
        if dtype_of(ctx, 0)? == DType::Complex64 {
            check_numbers(ctx, 5)?;
        }
        in_parts(
            4,
            |args| {
                let (set, keepdim) = (listed_dims(&args.args(), 1)?, args.args().bool(3)?);
                bind_reduced(args, set, keepdim, 4)?;
                bind_reduced(args, set, keepdim, 5)
            },
            |args, part| variance_over(args, listed_dims(args, 1)?, correction(args)?, 4, Some(5), |v| v, part),
        )
    }),
    operator(
        "aten::logsumexp.out(Tensor self, int[1] dim, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::LogSumExp, 3, DimsArg::List))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::LogSumExp, 3, DimsArg::List))
    .plain(|ctx| {
        check_real(ctx, 3)?;
        in_parts(3, bind_listed::<2, 3>, log_sum_exp)
    }),
    operator(
        "aten::linalg_vector_norm.out(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("other_dtypes", |ctx| other_dtypes::prepare_norm(ctx, 5, DimsArg::Second))
    .plain(|ctx| {
        check_spread(ctx, 5)?;
        let run: RunPart = if dtype_of(ctx, 0)? == DType::Complex64 {
            |args, part| vector_norm::<Number>(args, part)
        } else {
            |args, part| vector_norm::<f64>(args, part)
        };
        in_parts(5, |args| bind_reduced(args, listed_dims(&args.args(), 2)?, args.args().bool(3)?, 5), run)
    }),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn sums_over_every_set_of_dimensions_and_orders() {
        let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let x = Tensor::of(&[1, 2, 3, 4], &values).in_order(&[0, 2, 3, 1]);
        let args = [x.into(), vec![1, -1].into(), true.into(), Arg::None];
        let y = run_out("aten::sum.IntList_out", &args, DType::Float32, &[1, 1, 3, 1]).unwrap();
        // Memory order is [n, h, w, c]: eight neighbours make one row.
        assert_eq!((y.shape(), y.values::<f32>()), (&[1usize, 1, 3, 1][..], vec![28.0, 92.0, 156.0]));
    }

    #[test]
    fn integers_wrap_and_bool_counts() {
        let x = Tensor::of(&[3], &[Bool8(1), Bool8(0), Bool8(9)]);
        let y = run_out(
            "aten::sum.IntList_out",
            &[x.into(), Arg::None, false.into(), Arg::None],
            DType::Int64,
            &[],
        );
        assert_eq!(y.unwrap().values::<i64>(), [2]);
        let x = Tensor::of(&[2], &[i64::MAX, 2]);
        let y = run_out("aten::prod.out", &[x.into(), Arg::None], DType::Int64, &[]).unwrap();
        assert_eq!(y.values::<i64>(), [-2]);
    }

    #[test]
    fn nothing_has_a_sum_but_no_mean() {
        let x = Tensor::of::<f32>(&[0, 2], &[]);
        let over = |op: &str, d| {
            run_out(op, &[x.clone().into(), vec![0].into(), false.into(), Arg::None], d, &[2])
                .map(|t| t.values::<f32>())
        };
        assert_eq!(over("aten::sum.IntList_out", DType::Float32).unwrap(), [0.0, 0.0]);
        assert!(over("aten::mean.out", DType::Float32).unwrap()[0].is_nan());
        let x = Tensor::of(&[1], &[1i64]);
        let e =
            run_out("aten::mean.out", &[x.into(), Arg::None, false.into(), Arg::None], DType::Float32, &[]);
        assert!(error_text(e).contains("mean needs floats"));
    }

    #[test]
    fn variance_with_too_few_elements() {
        let var = |x: &[f64], c: f64| {
            let args = [Tensor::of(&[x.len()], x).into(), Arg::None, Arg::Double(c), false.into()];
            run_out("aten::var.correction_out", &args, DType::Float64, &[]).unwrap().values::<f64>()[0]
        };
        assert_eq!(var(&[1.0, 2.0, 3.0], 1.0), 1.0);
        assert!(var(&[1.0], 1.0).is_nan());
        assert_eq!(var(&[1.0, 2.0], 5.0), f64::INFINITY);
    }
}
