//! Reductions that choose: amax, amin, max, min, argmax, argmin, any, all. The fast kernels are in [`crate::reduction`],
//! `places` and `truth`.
//!
//! Shape: the reduced dimensions vanish or become 1. Dtype: kept; positions are int64. Edge cases:
//! the first NaN wins, of equal elements the first; an extreme of nothing is an error, `any` of
//! nothing is false and `all` true.

use crate::compute::{Class, Compute, Kind, by_kind};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::ops::layout::same_dtype;
use crate::reduction::fold::Kind as FoldKind;
use crate::reduction::plain::{Reduction, bind_reduced, check_not_empty, in_parts, listed_dims, row_major};
use crate::reduction::shape::DimsArg;
use crate::reduction::{float, other_dtypes};
use crate::routine::{Preparation, dtype_of};
use crate::shape::{all_dims, dim_set, wrap_dim};
use places::Form;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

#[allow(unsafe_code, reason = "a SIMD task")]
mod float_places;
#[allow(unsafe_code, reason = "a SIMD task")]
mod integer_places;
mod places;
mod scan;
mod truth;

/// Does `candidate` replace `best`?
#[inline(always)]
fn beats<C: Compute, const LARGEST: bool>(candidate: C, best: C) -> bool {
    if best.is_nan() {
        return false;
    }
    candidate.is_nan() || if LARGEST { candidate > best } else { candidate < best }
}

fn start<C: Compute, const LARGEST: bool>() -> C {
    if LARGEST { C::LOWEST } else { C::HIGHEST }
}

fn values_over<C: Compute, const LARGEST: bool>(
    args: &Args<'_>,
    set: u32,
    out: usize,
    part: Range<usize>,
) -> Result<()> {
    let x = args.tensor(0)?;
    let reduction = Reduction::new(x.meta(), set).within(part);
    let (x, mut y) = (Reader::<C>::new(x)?, Writer::<C>::new(args.output(out)?)?);
    let step = |best: &mut C, _, block: &[C]| {
        for v in block {
            if beats::<C, LARGEST>(*v, *best) {
                *best = *v;
            }
        }
    };
    reduction.fold(&x, &mut y, start::<C, LARGEST>, step, |best| best)
}

/// Positions (within the reduced dimensions) to output `at`, values to output `value` if there is one.
fn positions_over<C: Compute, const LARGEST: bool>(
    args: &Args<'_>,
    set: u32,
    value: Option<usize>,
    at: usize,
    part: Range<usize>,
) -> Result<()> {
    let x = args.tensor(0)?;
    let reduction = Reduction::new(x.meta(), set).within(part);
    let x = Reader::<C>::new(x)?;
    let mut positions = Writer::<i64>::new(args.output(at)?)?;
    let mut values = value.map(|i| Writer::<C>::new(args.output(i)?)).transpose()?;
    let to = row_major(positions.meta());
    let values_to = values.as_ref().map(|v| row_major(v.meta()));
    let mut buffer = [C::ZERO; crate::compute::BLOCK];
    reduction.for_each(|position, base| {
        let mut best: Option<(C, usize)> = None;
        x.blocks(reduction.inner(), base, &mut buffer, |first, block| {
            for (i, v) in block.iter().enumerate() {
                if best.is_none_or(|(b, _)| beats::<C, LARGEST>(*v, b)) {
                    best = Some((*v, first + i));
                }
            }
            Ok(())
        })?;
        let (v, i) = best.ok_or_else(|| Error::kernel("an empty dimension has no extreme"))?;
        positions.write(to.offset(position), 1, &[i as i64])?;
        if let (Some(values), Some(to)) = (&mut values, &values_to) {
            values.write(to.offset(position), 1, &[v])?;
        }
        Ok(())
    })
}

fn truth_over<const ANY: bool>(args: &Args<'_>, set: u32, out: usize, part: Range<usize>) -> Result<()> {
    let x = args.tensor(0)?;
    let reduction = Reduction::new(x.meta(), set).within(part);
    let mut y = Writer::<i64>::new(args.output(out)?)?;
    fn fold<C: Compute, const ANY: bool>(
        r: &Reduction,
        x: &Reader<'_, C>,
        y: &mut Writer<'_, i64>,
    ) -> Result<()> {
        let step = |s: &mut bool, _, b: &[C]| {
            *s = if ANY { *s | b.iter().any(|v| v.is_true()) } else { *s & b.iter().all(|v| v.is_true()) }
        };
        r.fold(x, y, || !ANY, step, i64::from)
    }
    by_kind!(Kind::of(x.dtype())?, C, fold::<C, ANY>(&reduction, &Reader::new(x)?, &mut y))
}

fn is_int(ctx: &PrepareContext<'_>) -> Result<bool> {
    Ok(Class::required(dtype_of(ctx, 0)?)? == Class::I64)
}

fn one_dim(args: &Args<'_>) -> Result<u32> {
    Ok(1 << wrap_dim(args.int(1)?, args.tensor(0)?.rank())?)
}

fn optional_dim(args: &Args<'_>) -> Result<u32> {
    let rank = args.tensor(0)?.rank();
    Ok(match args.optional_int(1)? {
        Some(dim) => 1 << wrap_dim(dim, rank)?,
        None => all_dims(rank),
    })
}

fn every_dim(args: &Args<'_>) -> Result<u32> {
    Ok(all_dims(args.tensor(0)?.rank()))
}

/// `any` and `all` over an empty list reduce nothing, unlike sums.
fn truth_dims(args: &Args<'_>) -> Result<u32> {
    match args.optional_int_list(1)? {
        Some(dims) => dim_set(&dims, args.tensor(0)?.rank()),
        None => every_dim(args),
    }
}

fn bind_extreme(args: &mut BindArgs<'_>, set: u32, keepdim: bool, out: usize) -> Result<()> {
    check_not_empty(&args.args(), set)?;
    bind_reduced(args, set, keepdim, out)
}

fn listed_values<const LARGEST: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 3)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let (set, keepdim) = (listed_dims(&args.args(), 1)?, args.args().bool(2)?);
        bind_extreme(args, set, keepdim, 3)
    }
    if is_int(ctx)? {
        in_parts(3, bind, |args, part| values_over::<i64, LARGEST>(args, listed_dims(args, 1)?, 3, part))
    } else {
        in_parts(3, bind, |args, part| values_over::<f64, LARGEST>(args, listed_dims(args, 1)?, 3, part))
    }
}

fn whole_value<const LARGEST: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 1)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let set = every_dim(&args.args())?;
        bind_extreme(args, set, false, 1)
    }
    if is_int(ctx)? {
        in_parts(1, bind, |args, part| values_over::<i64, LARGEST>(args, every_dim(args)?, 1, part))
    } else {
        in_parts(1, bind, |args, part| values_over::<f64, LARGEST>(args, every_dim(args)?, 1, part))
    }
}

fn value_and_position<const LARGEST: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 3)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let (set, keepdim) = (one_dim(&args.args())?, args.args().bool(2)?);
        bind_extreme(args, set, keepdim, 3)?;
        bind_reduced(args, set, keepdim, 4)
    }
    if is_int(ctx)? {
        in_parts(4, bind, |args, part| positions_over::<i64, LARGEST>(args, one_dim(args)?, Some(3), 4, part))
    } else {
        in_parts(4, bind, |args, part| positions_over::<f64, LARGEST>(args, one_dim(args)?, Some(3), 4, part))
    }
}

fn position<const LARGEST: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let (set, keepdim) = (optional_dim(&args.args())?, args.args().bool(2)?);
        bind_extreme(args, set, keepdim, 3)
    }
    if is_int(ctx)? {
        in_parts(3, bind, |args, part| {
            positions_over::<i64, LARGEST>(args, optional_dim(args)?, None, 3, part)
        })
    } else {
        in_parts(3, bind, |args, part| {
            positions_over::<f64, LARGEST>(args, optional_dim(args)?, None, 3, part)
        })
    }
}

fn truth_one<const ANY: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    Kind::of(dtype_of(ctx, 0)?)?;
    in_parts(
        3,
        |args| bind_reduced(args, one_dim(&args.args())?, args.args().bool(2)?, 3),
        |args, part| truth_over::<ANY>(args, one_dim(args)?, 3, part),
    )
}

fn truth_listed<const ANY: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    Kind::of(dtype_of(ctx, 0)?)?;
    in_parts(
        3,
        |args| bind_reduced(args, truth_dims(&args.args())?, args.args().bool(2)?, 3),
        |args, part| truth_over::<ANY>(args, truth_dims(args)?, 3, part),
    )
}

fn truth_all<const ANY: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    Kind::of(dtype_of(ctx, 0)?)?;
    in_parts(1, |args| args.resize(1, &[]), |args, part| truth_over::<ANY>(args, every_dim(args)?, 1, part))
}

/// As [`truth_all`], for what PyTorch asks of bools alone.
fn truth_of_bools<const ANY: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    if let Some(dtype) =
        [0, 1].into_iter().filter_map(|i| Some(ctx.tensor(i)?.dtype)).find(|d| *d != DType::Bool)
    {
        return Err(Error::kernel("the operator takes and gives truth values")
            .expected("bool")
            .got(dtype.name()));
    }
    truth_all::<ANY>(ctx)
}

const VALUE_AND_PLACE: Form = Form { is_largest: true, value: Some(3), place: 4, set: one_dim };
const PLACE: Form = Form { is_largest: true, value: None, place: 3, set: optional_dim };

/// Extremes and truth values.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Max, 3, DimsArg::List))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Max, 3, DimsArg::List))
    .plain(listed_values::<true>),
    operator(
        "aten::amin.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Min, 3, DimsArg::List))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Min, 3, DimsArg::List))
    .plain(listed_values::<false>),
    operator(
        "aten::max.unary_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Max, 1, DimsArg::All))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Max, 1, DimsArg::All))
    .plain(whole_value::<true>),
    operator(
        "aten::min.unary_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, FoldKind::Min, 1, DimsArg::All))
    .fast("other_dtypes", |ctx| other_dtypes::prepare(ctx, FoldKind::Min, 1, DimsArg::All))
    .plain(whole_value::<false>),
    operator(
        "aten::max.dim_max(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) max, Tensor(b!) max_values) -> (Tensor(a!) values, Tensor(b!) indices)",
    )
    .fast("neighbours", |ctx| places::prepare(ctx, Form { is_largest: true, ..VALUE_AND_PLACE }))
    .plain(value_and_position::<true>),
    operator(
        "aten::min.dim_min(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) min, Tensor(b!) min_indices) -> (Tensor(a!) values, Tensor(b!) indices)",
    )
    .fast("neighbours", |ctx| places::prepare(ctx, Form { is_largest: false, ..VALUE_AND_PLACE }))
    .plain(value_and_position::<false>),
    operator(
        "aten::argmax.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("neighbours", |ctx| places::prepare(ctx, Form { is_largest: true, ..PLACE }))
    .plain(position::<true>),
    operator(
        "aten::argmin.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("neighbours", |ctx| places::prepare(ctx, Form { is_largest: false, ..PLACE }))
    .plain(position::<false>),
    operator(
        "aten::any.out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("truth", |ctx| truth::prepare(ctx, true, 3, DimsArg::One))
    .plain(truth_one::<true>),
    operator("aten::all.out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("truth", |ctx| truth::prepare(ctx, false, 3, DimsArg::One))
        .plain(truth_one::<false>),
    operator(
        "aten::any.dims_out(Tensor self, int[]? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("truth", |ctx| truth::prepare(ctx, true, 3, DimsArg::List))
    .plain(truth_listed::<true>),
    operator(
        "aten::all.dims_out(Tensor self, int[]? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("truth", |ctx| truth::prepare(ctx, false, 3, DimsArg::List))
    .plain(truth_listed::<false>),
    operator(
        "aten::any.all_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("truth", |ctx| truth::prepare(ctx, true, 1, DimsArg::All))
    .plain(truth_all::<true>),
    operator("aten::all.all_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("truth", |ctx| truth::prepare(ctx, false, 1, DimsArg::All))
        .plain(truth_all::<false>),
    operator("aten::_is_all_true.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("truth", |ctx| match ctx.tensor(0).map(|t| t.dtype) {
            Some(DType::Bool) => truth::prepare(ctx, false, 1, DimsArg::All),
            _ => ctx.decline("takes bool"),
        })
        .plain(truth_of_bools::<false>),
    operator(
        "aten::_is_any_true.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("truth", |ctx| match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Bool) => truth::prepare(ctx, true, 1, DimsArg::All),
        _ => ctx.decline("takes bool"),
    })
    .plain(truth_of_bools::<true>),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn the_first_nan_wins() {
        let x = Tensor::of(&[4], &[1.0f32, f32::NAN, 3.0, f32::NAN]);
        let y = run_out(
            "aten::amax.out",
            &[x.clone().into(), Arg::IntList(vec![]), false.into()],
            DType::Float32,
            &[],
        );
        assert!(y.unwrap().values::<f32>()[0].is_nan());
        let y = run_out("aten::argmin.out", &[x.into(), Arg::None, false.into()], DType::Int64, &[]).unwrap();
        assert_eq!(y.values::<i64>(), [1]);
    }

    #[test]
    fn values_and_first_positions() {
        let x = Tensor::of(&[2, 3], &[5i16, 7, 7, -1, -1, -2]);
        let args = [
            x.into(),
            1i64.into(),
            true.into(),
            Tensor::output(DType::Int16, &[2, 1]).into(),
            Tensor::output(DType::Int64, &[2, 1]).into(),
        ];
        let result = call("aten::max.dim_max", &args).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&result[3], &result[4]) else { panic!("no tensors") };
        assert_eq!((v.values::<i16>(), i.values::<i64>()), (vec![7, -1], vec![1, 0]));
    }

    #[test]
    fn nothing_has_no_extreme() {
        let x = Tensor::of::<f32>(&[0, 3], &[]);
        let args = [x.clone().into(), vec![0].into(), false.into()];
        assert!(error_text(run_out("aten::amax.out", &args, DType::Float32, &[3])).contains("extreme"));
        let args = [x.clone().into(), vec![1].into(), false.into()];
        assert_eq!(run_out("aten::amax.out", &args, DType::Float32, &[0]).unwrap().shape(), &[0]);
        let y = run_out("aten::all.all_out", &[x.into()], DType::Bool, &[]).unwrap();
        assert_eq!(y.values::<Bool8>(), [Bool8(1)]);
    }

    #[test]
    fn smallest_integers_are_found() {
        let x = Tensor::of(&[2], &[i64::MIN, i64::MIN]);
        let y = run_out("aten::max.unary_out", &[x.into()], DType::Int64, &[]).unwrap();
        assert_eq!(y.values::<i64>(), [i64::MIN]);
    }
}
