//! Division in all its roundings: div, floor_divide, fmod, remainder.
//!
//! Shape: broadcast. Dtype: true division of integers gives float32, the others keep the promoted
//! dtype. Edge cases: integer division by zero is an error, float division by zero follows IEEE;
//! the smallest integer divided by -1 wraps. `integers` has the fast kernels of integers.

use crate::elementwise::lanewise::{self, lanes, number_argument};
use crate::elementwise::plain::{Dtypes, Positions, float, number};
use crate::elementwise::pointwise::{functions, is_single, scalar};
use crate::operator::{Operator, kernel};
use crate::ops::complex_elementwise;
use crate::ops::unary_number::floor;
use crate::routine::Preparation;
use crate::vector_math::{remainders, tanh::with_sign_of};
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

mod integers;

const BINARY_MODE: Positions = Positions { inputs: &[0, 1], scalars: &[], out: 3, shape_of: None };
const SCALAR_MODE: Positions = Positions { inputs: &[0], scalars: &[1], out: 3, shape_of: None };

functions! {
    /// a / b.
    Div [TAKES_NUMBERS] = "div", 4, |s, [a, b]| s.div(a, b);
    /// x / other.
    DivScalar { divisor } = "div", 3, |s, [x]| s.div(x, s.splat(divisor)), from |args| [scalar(args, 1)?];
    /// a / b rounded down.
    DivFloor = "div_floor", 25, |s, [a, b]| remainders::floor_divide(s, a, b),
        if |args| matches!(args.get(2), Some(ArgSpec::String("floor")));
    /// The same as an operator of its own.
    FloorDivide = "floor_divide", 25, |s, [a, b]| remainders::floor_divide(s, a, b);
    /// a / b rounded to zero.
    DivTrunc = "div_trunc", 4,
        |s, [a, b]| {
            let q = s.div(a, b);
            with_sign_of(s, floor(s, s.abs(q)), q)
        },
        if |args| matches!(args.get(2), Some(ArgSpec::String("trunc")));
    /// Remainder with the sign of a.
    Fmod = "fmod", 25, |s, [a, b]| remainders::fmod(s, a, b);
    /// The same by a number.
    FmodScalar { divisor } = "fmod", 25, |s, [a]| remainders::fmod(s, a, s.splat(divisor)),
        from |args| [scalar(args, 1)?], if is_single;
    /// Remainder with the sign of b.
    Remainder = "remainder", 25, |s, [a, b]| remainders::remainder(s, a, b);
    /// The same by a number.
    RemainderScalar { divisor } = "remainder", 25, |s, [a]| remainders::remainder(s, a, s.splat(divisor)),
        from |args| [scalar(args, 1)?], if is_single;
}

lanes! {
    LaneDiv: [] f64 => f64 = "div", 4, |_s, [a, b]| a / b;
    LaneDivTrunc: [] f64 => f64 = "div_trunc", 8, |_s, [a, b]| (a / b).trunc(),
        if |args| matches!(args.get(2), Some(ArgSpec::String("trunc")));
    LaneDivFloor: [] f64 => f64 = "div_floor", 8,
        |s, [a, b]| floor_of_f64(a, b, remainders::fmod_double(s, a, b)),
        where remainders::is_near(s, a, b) => floor_f64(a, b),
        if |args| matches!(args.get(2), Some(ArgSpec::String("floor")));
    LaneFloorDivide: [] f64 => f64 = "floor_divide", 8,
        |s, [a, b]| floor_of_f64(a, b, remainders::fmod_double(s, a, b)),
        where remainders::is_near(s, a, b) => floor_f64(a, b);
    LaneFmod: [] f64 => f64 = "fmod", 8, |s, [a, b]| remainders::fmod_double(s, a, b),
        where remainders::is_near(s, a, b) => a % b;
    LaneFmodScalar { b }: [] f64 => f64 = "fmod", 8, |s, [a]| remainders::fmod_double(s, a, b),
        where remainders::is_near(s, a, b) => a % b,
        from |args| [number_argument(args)?];
    LaneRemainder: [] f64 => f64 = "remainder", 8,
        |s, [a, b]| remainder_of_f64(b, remainders::fmod_double(s, a, b)),
        where remainders::is_near(s, a, b) => remainder_f64(a, b);
    LaneRemainderScalar { b }: [] f64 => f64 = "remainder", 8,
        |s, [a]| remainder_of_f64(b, remainders::fmod_double(s, a, b)),
        where remainders::is_near(s, a, b) => remainder_f64(a, b),
        from |args| [number_argument(args)?];
}

#[cold]
fn by_zero() -> Error {
    Error::kernel("integer division by zero").argument("other")
}

/// Quotient rounded down.
pub(crate) fn int_floor(a: i64, b: i64) -> Result<i64> {
    if b == 0 {
        return Err(by_zero());
    }
    let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
    Ok(if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q })
}

/// Remainder with the sign of the divisor.
pub(crate) fn int_remainder(a: i64, b: i64) -> Result<i64> {
    if b == 0 {
        return Err(by_zero());
    }
    let r = a.wrapping_rem(b);
    Ok(if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
}

fn int_trunc(a: i64, b: i64) -> Result<i64> {
    if b == 0 { Err(by_zero()) } else { Ok(a.wrapping_div(b)) }
}

fn int_fmod(a: i64, b: i64) -> Result<i64> {
    if b == 0 { Err(by_zero()) } else { Ok(a.wrapping_rem(b)) }
}

macro_rules! float_roundings {
    ($t:ty, $floor:ident, $floor_of:ident, $remainder:ident, $remainder_of:ident) => {
        /// Quotient rounded down.
        #[inline(always)]
        fn $floor(a: $t, b: $t) -> $t {
            $floor_of(a, b, a % b)
        }

        /// Quotient rounded down: computed from the exact remainder, which has the sign of `a`, since the quotient itself
        /// may have been rounded up to the next integer. Without branches, so that loops vectorise.
        #[inline(always)]
        fn $floor_of(a: $t, b: $t, rest: $t) -> $t {
            let is_opposite = (rest != 0.0) & ((b < 0.0) != (rest < 0.0));
            let plain = a / b;
            let quotient = (a - rest) / b;
            let quotient = if is_opposite { quotient - 1.0 } else { quotient };
            let down = quotient.floor();
            let down = if quotient - down > 0.5 { down + 1.0 } else { down };
            let down = if quotient == 0.0 { (0.0 as $t).copysign(plain) } else { down };
            if b == 0.0 { plain } else { down }
        }

        /// Remainder with the sign of the divisor.
        #[inline(always)]
        fn $remainder(a: $t, b: $t) -> $t {
            $remainder_of(b, a % b)
        }

        /// The same from the one that has the sign of the dividend.
        #[inline(always)]
        fn $remainder_of(b: $t, rest: $t) -> $t {
            let is_opposite = (rest != 0.0) & ((b < 0.0) != (rest < 0.0));
            if is_opposite { rest + b } else { rest }
        }
    };
}
float_roundings!(f32, floor_f32, floor_of_f32, remainder_f32, remainder_of_f32);
float_roundings!(f64, floor_f64, floor_of_f64, remainder_f64, remainder_of_f64);

fn check_not_bool(dtype: DType) -> Result<Dtypes> {
    if dtype == DType::Bool {
        return Err(Error::kernel("bool tensors have no rounded division"));
    }
    Ok(Dtypes::same(dtype))
}

/// One kernel for two tensors or a tensor and a number.
macro_rules! rounded {
    ($ctx:expr, $tensor:expr, $scalar:expr, $single:expr, $double:expr, $int:expr) => {{
        let ctx: &PrepareContext<'_> = $ctx;
        if ctx.tensor(1).is_some() {
            let dtypes = check_not_bool($tensor.promoted(ctx)?)?;
            number(
                ctx,
                $tensor,
                dtypes,
                |a, b, _, _| $single(a, b),
                |a, b, _, _| $double(a, b),
                |a, b, _, _| $int(a, b),
            )
        } else {
            let dtypes = check_not_bool($scalar.promoted(ctx)?)?;
            number(
                ctx,
                $scalar,
                dtypes,
                |a, _, _, s| $single(a, s.get(0)),
                |a, _, _, s| $double(a, s.get(0)),
                |a, _, _, s| $int(a, s.get(0)),
            )
        }
    }};
}

fn true_division(ctx: &PrepareContext<'_>, tensor: Positions, scalar: Positions) -> Preparation {
    if ctx.tensor(1).is_some() {
        let dtypes = Dtypes::same(tensor.promoted_to_float(ctx)?);
        float(ctx, tensor, dtypes, |a, b, _, _| a / b, |a, b, _, _| a / b)
    } else {
        let dtypes = Dtypes::same(scalar.promoted_to_float(ctx)?);
        float(ctx, scalar, dtypes, |a, _, _, s| a / s.get(0), |a, _, _, s| a / s.get(0))
    }
}

fn divide(ctx: &PrepareContext<'_>) -> Preparation {
    true_division(ctx, Positions::BINARY, Positions::UNARY_SCALAR)
}

fn divide_mode(ctx: &PrepareContext<'_>) -> Preparation {
    match ctx.args.get(2) {
        Some(ArgSpec::None) => true_division(ctx, BINARY_MODE, SCALAR_MODE),
        Some(ArgSpec::String("floor")) => {
            rounded!(ctx, BINARY_MODE, SCALAR_MODE, floor_f32, floor_f64, int_floor)
        }
        Some(ArgSpec::String("trunc")) => {
            rounded!(
                ctx,
                BINARY_MODE,
                SCALAR_MODE,
                |a: f32, b: f32| (a / b).trunc(),
                |a: f64, b: f64| (a / b).trunc(),
                int_trunc
            )
        }
        _ => Err(Error::kernel("unknown rounding mode")
            .argument("rounding_mode")
            .expected("None, 'floor' or 'trunc'")),
    }
}

fn floor_divide(ctx: &PrepareContext<'_>) -> Preparation {
    rounded!(ctx, Positions::BINARY, Positions::UNARY_SCALAR, floor_f32, floor_f64, int_floor)
}

fn fmod(ctx: &PrepareContext<'_>) -> Preparation {
    rounded!(
        ctx,
        Positions::BINARY,
        Positions::UNARY_SCALAR,
        |a: f32, b: f32| a % b,
        |a: f64, b: f64| a % b,
        int_fmod
    )
}

fn remainder(ctx: &PrepareContext<'_>) -> Preparation {
    rounded!(ctx, Positions::BINARY, Positions::UNARY_SCALAR, remainder_f32, remainder_f64, int_remainder)
}

/// div and its kin.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::div.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", divide)
        .float::<Div, 2>()
        .doubles::<LaneDiv, 2>()
        .complex64(complex_elementwise::div),
    kernel("aten::div.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", divide)
        .float::<DivScalar, 1>()
        .complex64(complex_elementwise::div_number),
    kernel(
        "aten::div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out) -> Tensor(a!)",
        divide_mode,
    )
    .float::<DivFloor, 2>()
    .float::<DivTrunc, 2>()
    .doubles::<LaneDivTrunc, 2>()
    .doubles::<LaneDivFloor, 2>()
    .fast("integers", lanewise::integers::<integers::DivTrunc, 2>)
    .fast("integers_floor", lanewise::integers::<integers::DivFloor, 2>),
    kernel(
        "aten::div.Scalar_mode_out(Tensor self, Scalar other, *, str? rounding_mode, Tensor(a!) out) -> Tensor(a!)",
        divide_mode,
    ),
    kernel(
        "aten::floor_divide.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        floor_divide,
    )
    .float::<FloorDivide, 2>()
    .doubles::<LaneFloorDivide, 2>()
    .fast("integers", lanewise::integers::<integers::FloorDivide, 2>),
    kernel(
        "aten::floor_divide.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        floor_divide,
    ),
    kernel("aten::fmod.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", fmod)
        .float::<Fmod, 2>()
        .doubles::<LaneFmod, 2>()
        .fast("integers", lanewise::integers::<integers::Fmod, 2>),
    kernel("aten::fmod.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", fmod)
        .float::<FmodScalar, 1>()
        .doubles::<LaneFmodScalar, 1>(),
    kernel(
        "aten::remainder.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        remainder,
    )
    .float::<Remainder, 2>()
    .doubles::<LaneRemainder, 2>()
    .fast("integers", lanewise::integers::<integers::Remainder, 2>),
    kernel(
        "aten::remainder.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        remainder,
    )
    .float::<RemainderScalar, 1>()
    .doubles::<LaneRemainderScalar, 1>(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Arg, Tensor, error_text, run_out};

    #[test]
    fn floats_round_like_pytorch() {
        assert_eq!(floor_f32(5.0, 0.0), f32::INFINITY);
        assert_eq!(floor_f32(-5.0, 3.0), -2.0);
        assert_eq!(floor_f32(1.0, 0.1), 9.0);
        assert!(floor_f32(f32::INFINITY, 2.0).is_nan());
        assert_eq!(remainder_f32(-5.0, 3.0), 1.0);
        assert_eq!(remainder_f32(5.0, -3.0), -1.0);
        assert!(remainder_f32(-0.0, 2.0).is_sign_negative());
    }

    #[test]
    fn integers_round_wrap_and_refuse_zero() {
        let a = Tensor::of(&[3], &[-7i8, 7, -128]);
        let mode = |m: &str, d: i64| {
            run_out(
                "aten::div.Scalar_mode_out",
                &[a.clone().into(), Arg::Int(d), m.into()],
                DType::Int8,
                &[3],
            )
        };
        assert_eq!(mode("floor", 2).unwrap().values::<i8>(), [-4, 3, -64]);
        assert_eq!(mode("trunc", -1).unwrap().values::<i8>(), [7, -7, -128]);
        assert!(error_text(mode("floor", 0)).contains("by zero"));
        assert!(error_text(mode("up", 1)).contains("rounding"));
        assert_eq!(int_remainder(i64::MIN, -1).unwrap(), 0);
        assert_eq!(int_floor(i64::MIN, -1).unwrap(), i64::MIN);
    }

    #[test]
    fn true_division_of_integers_is_float32() {
        let a = Tensor::of(&[1], &[1i64]);
        let y = run_out("aten::div.Scalar_out", &[a.into(), Arg::Int(4)], DType::Float32, &[1]).unwrap();
        assert_eq!(y.values::<f32>(), [0.25]);
    }
}
