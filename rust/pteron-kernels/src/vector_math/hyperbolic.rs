//! Hyperbolic sine and cosine and the inverse functions.

use super::exp::{half_exp, polynomial};
use super::log::{log, log1p};
use super::simd::Simd;
use super::tanh::with_sign_of;

/// sinh(x) / x³ - 1 / x² on [0, 1], in x²: relative error 5e-9.
const SINH: [f32; 4] = [0.166_666_67, 0.008_333_339, 1.983_810_6e-4, 2.806_280_3e-6];

/// e^|x| / 2; infinite from where it is.
#[inline(always)]
fn half_exp_of_size<S: Simd>(s: S, x: S::F) -> S::F {
    half_exp(s, s.min(s.splat(91.0), s.abs(x)))
}

/// sinh x. At most 2 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn sinh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let z = s.mul(a, a);
    let small = s.fma(s.mul(a, z), polynomial(s, z, SINH), a);
    let e = half_exp_of_size(s, x);
    let large = s.sub(e, s.div(s.splat(0.25), e));
    with_sign_of(s, s.select(s.lt(a, s.splat(1.0)), small, large), x)
}

/// cosh x. At most 2 ULP; NaN stays NaN.
#[inline(always)]
pub fn cosh<S: Simd>(s: S, x: S::F) -> S::F {
    let e = half_exp_of_size(s, x);
    s.add(e, s.div(s.splat(0.25), e))
}

/// Above this, squares of numbers would swallow one.
const LARGE: f32 = 8192.0;

/// ln(2 a) for large `a`, else ln(1 + v).
#[inline(always)]
fn log_of<S: Simd>(s: S, a: S::F, v: S::F) -> S::F {
    let large = s.add(log(s, a), s.splat(std::f32::consts::LN_2));
    s.select(s.gt(a, s.splat(LARGE)), large, log1p(s, v))
}

/// arsinh x. At most 2 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn asinh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let one = s.splat(1.0);
    let square = s.mul(a, a);
    // √(a² + 1) - 1 without cancellation.
    let v = s.add(a, s.div(square, s.add(one, s.sqrt(s.add(square, one)))));
    with_sign_of(s, log_of(s, a, v), x)
}

/// arcosh x. At most 2 ULP; NaN below one.
#[inline(always)]
pub fn acosh<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.sub(x, s.splat(1.0));
    let y = log_of(s, x, s.add(t, s.sqrt(s.fma(t, t, s.add(t, t)))));
    s.select(s.ge(x, s.splat(1.0)), y, s.splat(f32::NAN))
}

/// artanh x. At most 2 ULP; infinite at ±1, NaN beyond, -0 stays -0.
#[inline(always)]
pub fn atanh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let y = s.mul(s.splat(0.5), log1p(s, s.div(s.add(a, a), s.sub(s.splat(1.0), a))));
    let y = s.select(s.le(a, s.splat(1.0)), y, s.splat(f32::NAN));
    with_sign_of(s, s.select(s.lt(a, s.splat(f32::MIN_POSITIVE)), a, y), x)
}
