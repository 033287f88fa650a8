//! Elementary functions of one float tensor: exponentials, logarithms, trigonometric and hyperbolic functions
//! and their inverses, sign, square, fraction. NaN inputs give NaN outputs (0 for sign).

use super::floats::prepare;
use super::pointwise::{NO_PARAMETERS, Parameters, Pointwise, Scalars, always, functions};
use super::unary::floor;
use crate::vector_math::{
    Simd,
    exp::{exp2, expm1},
    hyperbolic::{acosh, asinh, atanh, cosh, sinh},
    inverse_trigonometric::{acos, asin, atan},
    log::{log1p, log2, log10},
    tanh::with_sign_of,
    trigonometric::{cos, sin, tan},
};
use pteron_core::StaticKernel;

/// Rough nanoseconds per 16 elements.
const CHEAP: usize = 3;
const COSTLY: usize = 12;

functions! {
    /// 2^x.
    Exp2<1> {}: "exp2", 1, COSTLY, always, |_args| Exp2 {}, |_f, s, [x]| exp2(s, x);
    /// e^x - 1.
    Expm1<1> {}: "expm1", 1, COSTLY, always, |_args| Expm1 {}, |_f, s, [x]| expm1(s, x);
    /// log₂ x.
    Log2<1> {}: "log2", 1, COSTLY, always, |_args| Log2 {}, |_f, s, [x]| log2(s, x);
    /// log₁₀ x.
    Log10<1> {}: "log10", 1, COSTLY, always, |_args| Log10 {}, |_f, s, [x]| log10(s, x);
    /// ln(1 + x).
    Log1p<1> {}: "log1p", 1, COSTLY, always, |_args| Log1p {}, |_f, s, [x]| log1p(s, x);
    /// Sine.
    Sin<1> {}: "sin", 1, COSTLY, always, |_args| Sin {}, |_f, s, [x]| sin(s, x);
    /// Cosine.
    Cos<1> {}: "cos", 1, COSTLY, always, |_args| Cos {}, |_f, s, [x]| cos(s, x);
    /// Tangent.
    Tan<1> {}: "tan", 1, COSTLY, always, |_args| Tan {}, |_f, s, [x]| tan(s, x);
    /// Arc sine.
    Asin<1> {}: "asin", 1, COSTLY, always, |_args| Asin {}, |_f, s, [x]| asin(s, x);
    /// Arc cosine.
    Acos<1> {}: "acos", 1, COSTLY, always, |_args| Acos {}, |_f, s, [x]| acos(s, x);
    /// Arc tangent.
    Atan<1> {}: "atan", 1, COSTLY, always, |_args| Atan {}, |_f, s, [x]| atan(s, x);
    /// Hyperbolic sine.
    Sinh<1> {}: "sinh", 1, COSTLY, always, |_args| Sinh {}, |_f, s, [x]| sinh(s, x);
    /// Hyperbolic cosine.
    Cosh<1> {}: "cosh", 1, COSTLY, always, |_args| Cosh {}, |_f, s, [x]| cosh(s, x);
    /// Inverse hyperbolic sine.
    Asinh<1> {}: "asinh", 1, COSTLY, always, |_args| Asinh {}, |_f, s, [x]| asinh(s, x);
    /// Inverse hyperbolic cosine.
    Acosh<1> {}: "acosh", 1, COSTLY, always, |_args| Acosh {}, |_f, s, [x]| acosh(s, x);
    /// Inverse hyperbolic tangent.
    Atanh<1> {}: "atanh", 1, COSTLY, always, |_args| Atanh {}, |_f, s, [x]| atanh(s, x);
    /// -1, 0 or 1; 0 for NaN.
    Sign<1> {}: "sign", 1, CHEAP, always, |_args| Sign {}, |_f, s, [x]| sign(s, x);
    /// x².
    Square<1> {}: "square", 1, CHEAP, always, |_args| Square {}, |_f, s, [x]| s.mul(x, x);
    /// What is behind the point, with the sign of x.
    Frac<1> {}: "frac", 1, CHEAP, always, |_args| Frac {}, |_f, s, [x]| frac(s, x);
}

/// With a zero for NaN.
#[inline(always)]
fn sign<S: Simd>(s: S, x: S::F) -> S::F {
    let (zero, one) = (s.zero(), s.splat(1.0));
    s.select(s.gt(x, zero), one, s.select(s.lt(x, zero), s.neg(one), zero))
}

/// x - trunc(x); NaN for infinities.
#[inline(always)]
fn frac<S: Simd>(s: S, x: S::F) -> S::F {
    s.sub(x, with_sign_of(s, floor(s, s.abs(x)), x))
}

macro_rules! kernels {
    ($($op:literal, $p:ident;)*) => {
        &[$(StaticKernel {
            schema: concat!("aten::", $op, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"),
            variant: "float",
            prepare: prepare::<$p, 1>,
        }),*]
    };
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = kernels! {
    "exp2", Exp2;
    "expm1", Expm1;
    "log2", Log2;
    "log10", Log10;
    "log1p", Log1p;
    "sin", Sin;
    "cos", Cos;
    "tan", Tan;
    "asin", Asin;
    "acos", Acos;
    "atan", Atan;
    "sinh", Sinh;
    "cosh", Cosh;
    "asinh", Asinh;
    "acosh", Acosh;
    "atanh", Atanh;
    "sign", Sign;
    "square", Square;
    "frac", Frac;
};
