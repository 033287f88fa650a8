//! Bounds and extremes of two operands: clamp, maximum, minimum.
//!
//! Shape: broadcast. Dtype: promoted with the bounds. Edge cases: NaN in the value or in a bound gives
//! NaN; when the bounds cross, the upper one wins; `clamp` needs at least one bound.

use crate::elementwise::lanewise::{Number, lanes};
use crate::elementwise::plain::{Dtypes, Positions, number};
use crate::elementwise::pointwise::functions;
use crate::operator::{Operator, kernel};
use crate::routine::Preparation;
use pteron_core::{ArgSpec, Error, PrepareContext};

/// Are the bounds at 1 and 2 absent or numbers known at load that `holds` takes, at least one of them there? A NaN bound has
/// a meaning of its own, and a call without bounds is refused by the plain kernel.
pub(crate) fn bounds_are_plain(args: &[ArgSpec<'_>], holds: impl Fn(&ArgSpec<'_>) -> bool) -> bool {
    let is_plain = |bound: &ArgSpec<'_>| holds(bound) && bound.number().is_some_and(|v| !v.is_nan());
    let is_absent = |bound: &ArgSpec<'_>| matches!(bound, ArgSpec::None);
    [1, 2].into_iter().any(|i| args.get(i).is_some_and(is_plain))
        && [1, 2].into_iter().all(|i| args.get(i).is_some_and(|a| is_absent(a) || is_plain(a)))
}

functions! {
    /// Bounds at 1 and 2, each optional.
    Clamp { low, high } = "clamp", 3, ulps 0.0, |s, [x]| s.clamp(x, s.splat(low), s.splat(high)),
        from |args| [
            args.optional_double(1)?.map_or(f32::NEG_INFINITY, |v| v as f32),
            args.optional_double(2)?.map_or(f32::INFINITY, |v| v as f32),
        ],
        if |args| bounds_are_plain(args, |_| true);
    /// The larger; NaN when either is.
    Maximum [TAKES_NUMBERS] = "maximum", 4, |s, [a, b]| s.max_nan(a, b);
    /// The smaller; NaN when either is.
    Minimum [TAKES_NUMBERS] = "minimum", 4, |s, [a, b]| s.min_nan(a, b);
}

lanes! {
    /// Bounds at 1 and 2, each optional; NaN stays NaN.
    LaneClamp { low, high }: [T: Number] T => T = "clamp", 4,
        |_s, [x]| {
            let raised = if x < low { low } else { x };
            if raised > high { high } else { raised }
        },
        from |args| [
            args.optional_scalar(1)?.map_or(T::LOWEST, T::of_scalar),
            args.optional_scalar(2)?.map_or(T::HIGHEST, T::of_scalar),
        ],
        if |args| bounds_are_plain(args, T::holds);
    LaneMaximum: [T: Number] T => T = "maximum", 4, |_s, [a, b]| if is_nan(a) || a > b { a } else { b };
    LaneMinimum: [T: Number] T => T = "minimum", 4, |_s, [a, b]| if is_nan(a) || a < b { a } else { b };
}

/// The only number that is not equal to itself.
#[inline(always)]
#[allow(clippy::eq_op, reason = "this is what NaN is told by, in a type that may be an integer")]
fn is_nan<T: PartialOrd + Copy>(v: T) -> bool {
    v != v
}

macro_rules! extremes {
    ($t:ty, $larger:ident, $smaller:ident) => {
        #[inline(always)]
        fn $larger(a: $t, b: $t) -> $t {
            if a > b || a.is_nan() { a } else { b }
        }
        #[inline(always)]
        fn $smaller(a: $t, b: $t) -> $t {
            if a < b || a.is_nan() { a } else { b }
        }
    };
}
extremes!(f32, larger_f32, smaller_f32);
extremes!(f64, larger_f64, smaller_f64);

fn clamp_scalar(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };
    require_bound(ctx)?;
    macro_rules! body {
        ($larger:ident, $smaller:ident) => {
            |x, _, _, s| {
                let x = s.optional(0).map_or(x, |low| $larger(x, low));
                s.optional(1).map_or(x, |high| $smaller(x, high))
            }
        };
    }
    number(
        ctx,
        p,
        Dtypes::same(p.promoted(ctx)?),
        body!(larger_f32, smaller_f32),
        body!(larger_f64, smaller_f64),
        |x, _, _, s| {
            let x = s.optional(0).map_or(x, |low| x.max(low));
            Ok(s.optional(1).map_or(x, |high| x.min(high)))
        },
    )
}

fn require_bound(ctx: &PrepareContext<'_>) -> pteron_core::Result<()> {
    if matches!((ctx.args.get(1), ctx.args.get(2)), (Some(ArgSpec::None), Some(ArgSpec::None))) {
        return Err(Error::kernel("clamp needs a lower or an upper bound").argument("min"));
    }
    Ok(())
}

fn clamp_tensor(ctx: &PrepareContext<'_>) -> Preparation {
    require_bound(ctx)?;
    const BOTH: Positions = Positions { inputs: &[0, 1, 2], scalars: &[], out: 3, shape_of: None };
    const LOW: Positions = Positions { inputs: &[0, 1], ..BOTH };
    const HIGH: Positions = Positions { inputs: &[0, 2], ..BOTH };
    match (ctx.tensor(1).is_some(), ctx.tensor(2).is_some()) {
        (true, true) => number(
            ctx,
            BOTH,
            Dtypes::same(BOTH.promoted(ctx)?),
            |x, l, h, _| smaller_f32(larger_f32(x, l), h),
            |x, l, h, _| smaller_f64(larger_f64(x, l), h),
            |x, l, h, _| Ok(x.max(l).min(h)),
        ),
        (true, false) => larger(ctx, LOW),
        _ => smaller(ctx, HIGH),
    }
}

fn larger(ctx: &PrepareContext<'_>, p: Positions) -> Preparation {
    let dtypes = Dtypes::same(p.promoted(ctx)?);
    number(
        ctx,
        p,
        dtypes,
        |a, b, _, _| larger_f32(a, b),
        |a, b, _, _| larger_f64(a, b),
        |a, b, _, _| Ok(a.max(b)),
    )
}

fn smaller(ctx: &PrepareContext<'_>, p: Positions) -> Preparation {
    let dtypes = Dtypes::same(p.promoted(ctx)?);
    number(
        ctx,
        p,
        dtypes,
        |a, b, _, _| smaller_f32(a, b),
        |a, b, _, _| smaller_f64(a, b),
        |a, b, _, _| Ok(a.min(b)),
    )
}

/// clamp, maximum, minimum.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out) -> Tensor(a!)",
        clamp_scalar,
    )
    .float::<Clamp, 1>()
    .numbers::<LaneClamp, 1>(),
    kernel(
        "aten::clamp.Tensor_out(Tensor self, Tensor? min=None, Tensor? max=None, *, Tensor(a!) out) -> Tensor(a!)",
        clamp_tensor,
    ),
    kernel("aten::maximum.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        larger(ctx, Positions::BINARY)
    })
    .float::<Maximum, 2>()
    .numbers::<LaneMaximum, 2>(),
    kernel("aten::minimum.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        smaller(ctx, Positions::BINARY)
    })
    .float::<Minimum, 2>()
    .numbers::<LaneMinimum, 2>(),
    kernel("aten::max.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        larger(ctx, Positions::BINARY)
    }),
    kernel("aten::min.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        smaller(ctx, Positions::BINARY)
    }),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn nan_propagates_and_the_upper_bound_wins() {
        let x = Tensor::of(&[2], &[f32::NAN, 1.0]);
        let y =
            run_out("aten::clamp.out", &[x.into(), Arg::Double(2.0), Arg::Double(1.0)], DType::Float32, &[2]);
        let y = y.unwrap().values::<f32>();
        assert!(y[0].is_nan() && y[1] == 1.0);
        let (a, b) = (Tensor::of(&[1], &[1f32]), Tensor::of(&[1], &[f32::NAN]));
        for args in [[a.clone(), b.clone()], [b, a]] {
            let args: Vec<Arg> = args.into_iter().map(Arg::from).collect();
            assert!(
                run_out("aten::maximum.out", &args, DType::Float32, &[1]).unwrap().values::<f32>()[0]
                    .is_nan()
            );
        }
    }

    #[test]
    fn a_bound_is_needed_and_floats_promote() {
        let x = Tensor::of(&[2], &[1i64, 5]);
        let e = run_out("aten::clamp.out", &[x.clone().into(), Arg::None, Arg::None], DType::Int64, &[2]);
        assert!(error_text(e).contains("bound"));
        let y = run_out("aten::clamp.out", &[x.into(), Arg::None, Arg::Double(2.5)], DType::Float32, &[2]);
        assert_eq!(y.unwrap().values::<f32>(), [1.0, 2.5]);
    }
}
