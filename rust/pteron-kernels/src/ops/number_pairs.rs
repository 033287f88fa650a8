//! Functions of two numbers outside arithmetic: hypot, copysign, nextafter, heaviside, gcd, lcm, fmax, fmin.
//!
//! Shape: broadcast. Dtype: promoted; hypot and nextafter take floats, gcd and lcm integers, copysign
//! makes floats of integers, heaviside wants equal dtypes. Edge cases: a zero's sign counts for copysign;
//! nextafter steps in the common dtype, float16 and bfloat16 too; heaviside of NaN is 0; gcd(0, 0) is 0;
//! fmax and fmin are NaN only where both numbers are.

use crate::elementwise::lanewise::{self, HalfBits, lanes};
use crate::elementwise::plain::{Dtypes, Positions, both_floats, float, integer, number};
use crate::elementwise::pointwise::functions;
use crate::operator::{Operator, kernel};
use crate::routine::{Preparation, dtype_of};
use crate::vector_math::{hypot, tanh::with_sign_of};
use half::{bf16, f16};
use pteron_core::{DType, Error, PrepareContext, Result};

/// The neighbour of `$a` towards `$b` among the numbers of type `$t`.
macro_rules! neighbour {
    ($t:ty, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        if a.is_nan() || b.is_nan() {
            <$t>::NAN
        } else if a == b {
            b
        } else if a == <$t>::from_bits(0) {
            <$t>::from_bits(1).copysign(b)
        } else if (a < b) == a.is_sign_positive() {
            <$t>::from_bits(a.to_bits().wrapping_add(1))
        } else {
            <$t>::from_bits(a.to_bits().wrapping_sub(1))
        }
    }};
}

functions! {
    /// The size of a with the sign of b.
    Copysign = "copysign", 4, |s, [a, b]| with_sign_of(s, s.abs(a), b);
    /// √(a² + b²); infinite beside NaN, too.
    Hypot = "hypot", 12, |s, [a, b]| hypot::hypot(s, a, b);
    /// The larger number; the other one beside NaN.
    Fmax = "fmax", 4, |s, [a, b]| s.select(s.eq(a, a), s.max(b, a), b);
    /// The smaller number; the other one beside NaN.
    Fmin = "fmin", 4, |s, [a, b]| s.select(s.eq(a, a), s.min(b, a), b);
}

lanes! {
    HalfCopysign: [T: HalfBits] T => T = "copysign", 2,
        |_s, [a, b]| T::of_bits((a.bits() & 0x7fff) | (b.bits() & 0x8000));
    LaneNextafter: [] f64 => f64 = "nextafter", 8, |_s, [a, b]| neighbour!(f64, a, b);
    LaneNextafterSingle: [] f32 => f32 = "nextafter", 6, |_s, [a, b]| neighbour!(f32, a, b);
    LaneCopysign: [] f64 => f64 = "copysign", 4, |_s, [a, b]| a.copysign(b);
    LaneHypotDouble: [] f64 => f64 = "hypot", 24, |_s, [a, b]| (a * a + b * b).sqrt(),
        where has_square(a, b) => hypot_f64(a, b);
}

/// Do the squares neither overflow nor lose digits to underflow?
#[inline(always)]
fn has_square(a: f64, b: f64) -> bool {
    let larger = if a.abs() > b.abs() { a.abs() } else { b.abs() };
    // NaN is not below; one in `a` does not take part in the comparison.
    (larger == 0.0 || larger > 1e-140) & (larger < 1e150) & !a.is_nan()
}

/// √(a² + b²); infinite beside NaN, too.
fn hypot_f64(a: f64, b: f64) -> f64 {
    if has_square(a, b) { (a * a + b * b).sqrt() } else { a.hypot(b) }
}

fn promoted(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    Ok(Dtypes::same(Positions::BINARY.promoted(ctx)?))
}

fn hypot(ctx: &PrepareContext<'_>) -> Preparation {
    both_floats!(ctx, Positions::BINARY, promoted(ctx)?, |a, b, _, _| a.hypot(b))
}

fn copysign(ctx: &PrepareContext<'_>) -> Preparation {
    let dtypes = Dtypes::same(Positions::BINARY.promoted_to_float(ctx)?);
    both_floats!(ctx, Positions::BINARY, dtypes, |a, b, _, _| a.copysign(b))
}

fn copysign_number(ctx: &PrepareContext<'_>) -> Preparation {
    let dtypes = Dtypes::same(Positions::UNARY_SCALAR.promoted_to_float(ctx)?);
    both_floats!(ctx, Positions::UNARY_SCALAR, dtypes, |a, _, _, s| a.copysign(s.get(0)))
}

fn nextafter(ctx: &PrepareContext<'_>) -> Preparation {
    let (p, dtypes) = (Positions::BINARY, promoted(ctx)?);
    let double = |a: f64, b: f64, _: f64, _: &_| neighbour!(f64, a, b);
    match dtypes.common {
        DType::Float16 => float(
            ctx,
            p,
            dtypes,
            |a, b, _, _| neighbour!(f16, f16::from_f32(a), f16::from_f32(b)).to_f32(),
            double,
        ),
        DType::BFloat16 => float(
            ctx,
            p,
            dtypes,
            |a, b, _, _| neighbour!(bf16, bf16::from_f32(a), bf16::from_f32(b)).to_f32(),
            double,
        ),
        _ => float(ctx, p, dtypes, |a, b, _, _| neighbour!(f32, a, b), double),
    }
}

fn heaviside(ctx: &PrepareContext<'_>) -> Preparation {
    let (x, values) = (dtype_of(ctx, 0)?, dtype_of(ctx, 1)?);
    if x != values {
        return Err(Error::kernel("heaviside needs equal dtypes")
            .argument("values")
            .expected(x.name())
            .got(values.name()));
    }
    number(
        ctx,
        Positions::BINARY,
        promoted(ctx)?,
        |x, at_zero, _, _| if x == 0.0 { at_zero } else { f32::from(x > 0.0) },
        |x, at_zero, _, _| if x == 0.0 { at_zero } else { f64::from(x > 0.0) },
        |x, at_zero, _, _| Ok(if x == 0 { at_zero } else { i64::from(x > 0) }),
    )
}

/// The absolute value in a signed dtype whose smallest number is `low`: that one has none, and keeps its sign.
fn absolute(v: i64, low: i64) -> i64 {
    if v == low { v } else { v.wrapping_abs() }
}

/// Euclid's algorithm; a divisor of the smallest number may be negative, as in PyTorch.
fn greatest_divisor(a: i64, b: i64, low: i64) -> i64 {
    let (mut a, mut b) = (absolute(a, low), absolute(b, low));
    while a != 0 {
        (a, b) = (b.wrapping_rem(a), a);
    }
    b
}

fn least_multiple(a: i64, b: i64, low: i64) -> i64 {
    let divisor = greatest_divisor(a, b, low);
    if divisor == 0 {
        return 0;
    }
    let product = a.wrapping_div(divisor).wrapping_mul(b);
    // PyTorch computes in 32 bits at least: a product that does not fit wraps before its sign is taken off.
    if low == i64::from(i32::MIN) {
        i64::from((product as i32).wrapping_abs())
    } else {
        product.wrapping_abs()
    }
}

/// `apply` has as third number the smallest one of the dtype, if that is signed.
fn divisors(ctx: &PrepareContext<'_>, apply: fn(i64, i64, i64) -> i64) -> Preparation {
    let dtypes = promoted(ctx)?;
    let low = match dtypes.common {
        DType::Int8 => i64::from(i8::MIN),
        DType::Int16 => i64::from(i16::MIN),
        DType::Int32 => i64::from(i32::MIN),
        _ => i64::MIN,
    };
    if dtypes.common == DType::Bool {
        return Err(Error::kernel("bool tensors have no divisors").hint("convert them to an integer dtype"));
    }
    integer(ctx, Positions::BINARY, dtypes, move |a, b, _, _| Ok(apply(a, b, low)))
}

/// hypot and its kin.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::hypot.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", hypot)
        .float::<Hypot, 2>()
        .doubles::<LaneHypotDouble, 2>(),
    kernel("aten::copysign.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", copysign)
        .halves::<HalfCopysign, 2>()
        .float::<Copysign, 2>()
        .doubles::<LaneCopysign, 2>(),
    kernel(
        "aten::copysign.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        copysign_number,
    ),
    kernel("aten::nextafter.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", nextafter)
        .fast("float32", lanewise::prepare::<LaneNextafterSingle, f32, 2>)
        .doubles::<LaneNextafter, 2>(),
    kernel("aten::heaviside.out(Tensor self, Tensor values, *, Tensor(a!) out) -> Tensor(a!)", heaviside),
    kernel("aten::gcd.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        divisors(ctx, greatest_divisor)
    }),
    kernel("aten::lcm.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        divisors(ctx, least_multiple)
    }),
    kernel(
        "aten::fmax.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| both_floats!(ctx, Positions::BINARY, promoted(ctx)?, |a, b, _, _| a.max(b), int a.max(b)),
    )
    .float::<Fmax, 2>(),
    kernel(
        "aten::fmin.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| both_floats!(ctx, Positions::BINARY, promoted(ctx)?, |a, b, _, _| a.min(b), int a.min(b)),
    )
    .float::<Fmin, 2>(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, error_text, run_out};

    #[test]
    fn divisors_of_extremes_do_not_overflow() {
        assert_eq!((greatest_divisor(0, 0, i64::MIN), least_multiple(0, 0, i64::MIN)), (0, 0));
        assert_eq!((greatest_divisor(-12, 18, i64::MIN), least_multiple(-4, 6, i64::MIN)), (6, 12));
        assert_eq!(greatest_divisor(i64::MIN, -1, i64::MIN), 1);
        assert_eq!(greatest_divisor(i64::MIN, i64::MIN, i64::MIN), i64::MIN);
        assert_eq!(least_multiple(i64::MIN, -1, i64::MIN), i64::MIN);
    }

    #[test]
    fn neighbours_are_those_of_the_dtype() {
        let next = |a: f32, b: f32| neighbour!(f32, a, b);
        assert_eq!(next(0.0, 1.0).to_bits(), 1);
        assert_eq!(next(0.0, -1.0).to_bits(), 1 | 1 << 31);
        assert!(next(0.0, -0.0).is_sign_negative());
        assert_eq!(next(f32::MAX, f32::INFINITY), f32::INFINITY);
        assert_eq!(next(f32::NEG_INFINITY, 0.0), f32::MIN);
        assert!(next(1.0, f32::NAN).is_nan());
        let (x, y) = (Tensor::of(&[1], &[bf16::ONE]), Tensor::of(&[1], &[bf16::from_f32(2.0)]));
        let r = run_out("aten::nextafter.out", &[x.into(), y.into()], DType::BFloat16, &[1]).unwrap();
        assert_eq!(r.values::<bf16>()[0].to_f32(), 1.0 + 1.0 / 128.0);
    }

    #[test]
    fn refusals_name_the_dtype() {
        let (f, i) = (Tensor::of(&[1], &[0f32]), Tensor::of(&[1], &[1i32]));
        let e = run_out("aten::heaviside.out", &[f.clone().into(), i.clone().into()], DType::Float32, &[1]);
        assert!(error_text(e).contains("equal dtypes"));
        let e = run_out("aten::gcd.out", &[f.clone().into(), f.into()], DType::Float32, &[1]);
        assert!(error_text(e).contains("integer"));
        let e = run_out("aten::hypot.out", &[i.clone().into(), i.into()], DType::Int32, &[1]);
        let text = error_text(e);
        assert!(text.contains("floating-point"), "{text}");
    }
}
