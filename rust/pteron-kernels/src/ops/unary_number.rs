//! Functions of one number that keep its dtype (abs, neg, sign, rounding, ...) and tests for NaN and
//! infinity.
//!
//! Shape: that of `self`. Dtype: that of `self`; bool is refused where PyTorch refuses it. Edge
//! cases: `round` goes to the even neighbour, `sign` of NaN is 0, the smallest integer negates to itself.

use crate::elementwise::lanewise::{HalfBits, Number, lanes};
use crate::elementwise::plain::{Dtypes, Positions, Scalars, both_floats, float};
use crate::elementwise::pointwise::functions;
use crate::operator::{Operator, kernel};
use crate::ops::complex_lanes::ComplexNeg;
use crate::ops::{complex_elementwise, complex_functions};
use crate::routine::{Preparation, dtype_of};
use crate::vector_math::{Simd, tanh::with_sign_of};
use half::{bf16, f16};
use pteron_core::{Bool8, DType, Error, PrepareContext, Result};

/// The dtypes of a call that bool has no place in.
fn not_bool(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    let dtype = dtype_of(ctx, 0)?;
    if dtype == DType::Bool {
        return Err(Error::kernel("the operator is not defined for bool")
            .argument("self")
            .hint("use logical_not"));
    }
    Ok(Dtypes::same(dtype))
}

fn any(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    Ok(Dtypes::same(dtype_of(ctx, 0)?))
}

fn float_only(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    let dtype = dtype_of(ctx, 0)?;
    if !dtype.is_float() {
        return Err(Error::kernel("the operator needs floats").argument("self").got(dtype.name()));
    }
    Ok(Dtypes::same(dtype))
}

/// Squares are powers with an int64 exponent, which bool promotes to.
fn powers(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    Ok(Dtypes::same(match dtype_of(ctx, 0)? {
        DType::Bool => DType::Int64,
        dtype => dtype,
    }))
}

fn predicate(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    Ok(Dtypes::predicate(dtype_of(ctx, 0)?))
}

/// Rounds to `decimals` places; every step rounds to the dtype, as in PyTorch.
fn round_to_places(ctx: &PrepareContext<'_>) -> Preparation {
    let positions = Positions { inputs: &[0], scalars: &[1], out: 2, shape_of: None };
    let dtypes = float_only(ctx)?;
    macro_rules! rounded {
        ($t:ty, $narrow:expr) => {
            |x: $t, _, _, s: &Scalars<$t>| {
                let places = s.get(0);
                let scale: $t = $narrow((10.0 as $t).powf(places.abs()));
                if places < 0.0 {
                    let quotient: $t = $narrow(x / scale);
                    quotient.round_ties_even() * scale
                } else {
                    let product: $t = $narrow(x * scale);
                    product.round_ties_even() / scale
                }
            }
        };
    }
    let double = rounded!(f64, |x: f64| x);
    match dtypes.common {
        DType::Float16 => {
            float(ctx, positions, dtypes, rounded!(f32, |x: f32| f16::from_f32(x).to_f32()), double)
        }
        DType::BFloat16 => {
            float(ctx, positions, dtypes, rounded!(f32, |x: f32| bf16::from_f32(x).to_f32()), double)
        }
        _ => float(ctx, positions, dtypes, rounded!(f32, |x: f32| x), double),
    }
}

functions! {
    /// -x.
    Neg = "neg", 3, ulps 0.0, |s, [x]| s.neg(x);
    /// |x|.
    Abs = "abs", 3, ulps 0.0, |s, [x]| s.abs(x);
    /// -1, 0 or 1; 0 for NaN.
    Sign = "sign", 3, ulps 0.0, |s, [x]| sign(s, x);
    /// The nearest integer, ties to even.
    Round = "round", 3, ulps 0.0, |s, [x]| round(s, x);
    /// The largest integer that is not above x.
    Floor = "floor", 3, ulps 0.0, |s, [x]| floor(s, x);
    /// The smallest integer that is not below x.
    Ceil = "ceil", 3, ulps 0.0, |s, [x]| s.neg(floor(s, s.neg(x)));
    /// The integer part.
    Trunc = "trunc", 3, ulps 0.0, |s, [x]| with_sign_of(s, floor(s, s.abs(x)), x);
    /// What is behind the point, with the sign of x: x - trunc(x), NaN for infinities.
    Frac = "frac", 3, ulps 0.0, |s, [x]| s.sub(x, with_sign_of(s, floor(s, s.abs(x)), x));
    /// x².
    Square = "square", 3, ulps 0.5, |s, [x]| s.mul(x, x);
}

lanes! {
    LaneNeg: [T: Number] T => T = "neg", 4, |_s, [x]| x.negated();
    LaneAbs: [T: Number] T => T = "abs", 4, |_s, [x]| x.magnitude();
    LaneSign: [T: Number] T => T = "sign", 4,
        |_s, [x]| if x > T::ZERO { T::ONE } else if x < T::ZERO { T::ONE.negated() } else { T::ZERO };
    LaneFrac: [] f64 => f64 = "frac", 4, |_s, [x]| x - x.trunc();
    LaneFloor: [] f64 => f64 = "floor", 4, |_s, [x]| x.floor();
    LaneCeil: [] f64 => f64 = "ceil", 4, |_s, [x]| x.ceil();
    LaneTrunc: [] f64 => f64 = "trunc", 4, |_s, [x]| x.trunc();
    LaneRound: [] f64 => f64 = "round", 4, |_s, [x]| x.round_ties_even();
    LaneNot: [] Bool8 => Bool8 = "logical_not", 1, |_s, [x]| Bool8::from(x.0 == 0);
    NumberNot: [T: Number] T => Bool8 = "logical_not", 3, |_s, [x]| Bool8::from(x == T::ZERO);
    LaneSignbit: [T: Number] T => Bool8 = "signbit", 3, |_s, [x]| Bool8::from(x.has_sign());
    /// Of NaN, too, it is the sign alone that changes.
    HalfNeg: [T: HalfBits] T => T = "neg", 1, |_s, [x]| T::of_bits(x.bits() ^ 0x8000);
    HalfAbs: [T: HalfBits] T => T = "abs", 1, |_s, [x]| T::of_bits(x.bits() & 0x7fff);
}

/// With a zero for NaN.
#[inline(always)]
fn sign<S: Simd>(s: S, x: S::F) -> S::F {
    let (zero, one) = (s.zero(), s.splat(1.0));
    s.select(s.gt(x, zero), one, s.select(s.lt(x, zero), s.neg(one), zero))
}

/// Rounds to the nearest integer; a zero result keeps the sign of `x`.
#[inline(always)]
fn round<S: Simd>(s: S, x: S::F) -> S::F {
    with_sign_of(s, s.abs(s.round(x)), x)
}

/// Rounds down; a zero result keeps the sign of `x`.
#[inline(always)]
pub(crate) fn floor<S: Simd>(s: S, x: S::F) -> S::F {
    let near = round(s, x);
    // Taking one from an integer below 2^24 is exact, and above there are no fractions.
    s.select(s.gt(near, x), s.sub(near, s.splat(1.0)), near)
}

macro_rules! function {
    ($name:literal, $dtypes:ident, |$x:ident| float $float:expr, int $int:expr) => {
        kernel(
            concat!("aten::", $name, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"),
            |ctx| {
                both_floats!(ctx, Positions::UNARY, $dtypes(ctx)?, |$x, _, _, _| $float, int $int)
            },
        )
    };
}

/// abs and its kin.
pub static OPERATORS: &[Operator] = &[
    function!("abs", not_bool, |x| float x.abs(), int x.wrapping_abs())
    .halves::<HalfAbs, 1>()
    .float::<Abs, 1>()
    .numbers::<LaneAbs, 1>()
    .complex64(complex_elementwise::abs),
    function!("neg", not_bool, |x| float -x, int x.wrapping_neg())
    .halves::<HalfNeg, 1>()
    .float::<Neg, 1>()
    .numbers::<LaneNeg, 1>()
    .complexes::<ComplexNeg, 1>()
    .complex64(complex_elementwise::neg),
    function!("sign", any, |x| float if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 }, int x.signum())
    .float::<Sign, 1>()
    .numbers::<LaneSign, 1>(),
    function!("sgn", any, |x| float if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 }, int x.signum())
    .float::<Sign, 1>()
    .numbers::<LaneSign, 1>()
    .complex64(complex_functions::sgn),
    function!("floor", not_bool, |x| float x.floor(), int x)
    .float::<Floor, 1>()
    .doubles::<LaneFloor, 1>(),
    function!("ceil", not_bool, |x| float x.ceil(), int x)
    .float::<Ceil, 1>()
    .doubles::<LaneCeil, 1>(),
    function!("trunc", not_bool, |x| float x.trunc(), int x)
    .float::<Trunc, 1>()
    .doubles::<LaneTrunc, 1>(),
    function!("round", not_bool, |x| float x.round_ties_even(), int x)
    .float::<Round, 1>()
    .doubles::<LaneRound, 1>(),
    function!("frac", float_only, |x| float x - x.trunc(), int { let _ = x; 0 })
    .float::<Frac, 1>()
    .doubles::<LaneFrac, 1>(),
    function!("square", powers, |x| float x * x, int x.wrapping_mul(x))
    .float::<Square, 1>()
    .complex64(complex_elementwise::square),
    function!("_conj_physical", any, |x| float x, int x)
    .complex64(complex_elementwise::conj),
    function!("isnan", predicate, |x| float x.is_nan() as u8 as _, int { let _ = x; 0 })
    .complex64(complex_elementwise::isnan),
    function!("isinf", predicate, |x| float x.is_infinite() as u8 as _, int { let _ = x; 0 })
    .complex64(complex_functions::isinf),
    function!("signbit", predicate, |x| float x.is_sign_negative() as u8 as _, int (x < 0) as i64)
    .numbers::<LaneSignbit, 1>(),
    kernel("aten::round.decimals_out(Tensor self, *, int decimals, Tensor(a!) out) -> Tensor(a!)", round_to_places),
    function!("logical_not", predicate, |x| float (x == 0.0) as u8 as _, int (x == 0) as i64)
    .bools::<LaneNot, 1>()
    .numbers::<NumberNot, 1>()
    .complex64(complex_functions::logical_not),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn rounding_goes_to_even() {
        let x = Tensor::of(&[4], &[0.5f32, 1.5, 2.5, -0.5]);
        let y = run_out("aten::round.out", &[x.into()], DType::Float32, &[4]).unwrap();
        assert_eq!(y.values::<f32>(), [0.0, 2.0, 2.0, -0.0]);
    }

    #[test]
    fn smallest_integers_wrap() {
        let x = Tensor::of(&[2], &[i8::MIN, -7]);
        let y = run_out("aten::abs.out", &[x.into()], DType::Int8, &[2]).unwrap();
        assert_eq!(y.values::<i8>(), [i8::MIN, 7]);
        let x = Tensor::of(&[1], &[3u8]);
        assert_eq!(run_out("aten::neg.out", &[x.into()], DType::UInt8, &[1]).unwrap().values::<u8>(), [253]);
    }

    #[test]
    fn sign_of_nan_and_minus_zero() {
        let x = Tensor::of(&[3], &[f32::NAN, -0.0, -3.0]);
        let y = run_out("aten::sign.out", &[x.into()], DType::Float32, &[3]).unwrap();
        assert_eq!(y.values::<f32>(), [0.0, 0.0, -1.0]);
    }

    #[test]
    fn bool_is_refused_where_pytorch_refuses_it() {
        let x = Tensor::of(&[1], &[Bool8(1)]);
        assert!(
            error_text(run_out("aten::neg.out", &[x.clone().into()], DType::Bool, &[1]))
                .contains("logical_not")
        );
        let y = run_out("aten::logical_not.out", &[x.into()], DType::Bool, &[1]).unwrap();
        assert_eq!(y.values::<Bool8>(), [Bool8(0)]);
    }

    #[test]
    fn channels_last_keeps_its_order() {
        let x = Tensor::of(&[1, 2, 1, 2], &[-1f32, -2.0, -3.0, -4.0]).in_order(&[0, 2, 3, 1]);
        let args = [x.into(), Tensor::output(DType::Float32, &[1, 2, 1, 2]).into()];
        let out = crate::testing::call("aten::abs.out", &args).unwrap().pop().unwrap();
        let crate::testing::Arg::Tensor(out) = out else { unreachable!() };
        assert_eq!(out.values::<f32>(), [1.0, 3.0, 2.0, 4.0]);
    }
}
