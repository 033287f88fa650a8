//! e^x, 2^x, e^x - 1 and the pieces of them that tanh, sigmoid, erf and the hyperbolic functions are made of.
//!
//! x = n ln 2 + r with |r| ≤ ln 2 / 2; e^r = 1 + r + r² q(r), q fitted to an absolute error of 3e-9 in
//! r² q. The product n · ln 2 is split so that its large part is exact without fused arithmetic.

use super::simd::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// Nine bits, so n · LN2_HIGH is exact for every n that occurs.
pub(super) const LN2_HIGH: f32 = 355.0 / 512.0;
/// ln 2 - LN2_HIGH.
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;
const Q: [f32; 5] = [0.5, 0.166_665_18, 0.041_666_206, 0.008_368_958, 0.001_395_055_3];

/// Evaluates `c[0] + c[1] x + ..` from the highest power down.
#[inline(always)]
pub(super) fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, c: [f32; N]) -> S::F {
    let mut acc = s.splat(c[N - 1]);
    for i in (0..N - 1).rev() {
        acc = s.fma(acc, x, s.splat(c[i]));
    }
    acc
}

/// As [`polynomial`], about a point that `v` is the distance from, with the lowest coefficient in two parts, `c[0]` and
/// `c[1]`: the last rounding is then the only large one.
#[inline(always)]
pub(super) fn about<S: Simd, const N: usize>(s: S, v: S::F, c: [f32; N]) -> S::F {
    let mut acc = s.splat(c[N - 1]);
    for i in (1..N - 1).rev() {
        acc = s.fma(acc, v, s.splat(c[i]));
    }
    s.add(s.splat(c[0]), acc)
}

/// (n, e^r - 1) for finite x within ±300 ln 2: e^x is 2^n times e^r.
#[inline(always)]
pub(super) fn reduce<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let r = s.fnma(n, s.splat(LN2_HIGH), x);
    let r = s.fnma(n, s.splat(LN2_LOW), r);
    (n, s.fma(s.mul(r, r), polynomial(s, r, Q), r))
}

/// [`reduce`] for the sum of `x`, an f32 or a product of two numbers of twelve bits, and `rest`, at most 0.1.
#[inline(always)]
pub(super) fn reduce_sum<S: Simd>(s: S, x: S::F, rest: S::F) -> (S::F, S::F) {
    let n = s.round(s.mul(s.add(x, rest), s.splat(LOG2_E)));
    // Exact, as in `reduce`.
    let r = s.fnma(n, s.splat(LN2_HIGH), x);
    let r = s.add(s.fnma(n, s.splat(LN2_LOW), rest), r);
    (n, s.fma(s.mul(r, r), polynomial(s, r, Q), r))
}

/// e^x. At most 1.1 ULP (1.042 over all inputs), subnormal results included; NaN stays NaN.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Outside these bounds the result is 0 or infinity, which the scaling below produces.
    let x = s.clamp(x, s.splat(-104.0), s.splat(89.0));
    let (n, t) = reduce(s, x);
    s.scale2(s.add(s.splat(1.0), t), n)
}

/// e^x for x in `-87..=88`, where it is a normal number. As accurate as [`exp`].
#[inline(always)]
pub fn exp_normal<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, t) = reduce(s, x);
    s.scale2_normal(s.add(s.splat(1.0), t), n)
}

/// e^x - 1 for x in `0..=87`, accurate to 2 ULP also near zero.
#[inline(always)]
pub(super) fn expm1_positive<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, t) = reduce(s, x);
    let power = s.scale2_normal(s.splat(1.0), n);
    s.fma(power, t, s.sub(power, s.splat(1.0)))
}

/// e^x / 2 for x in `-100..=91`, which is finite a little longer than e^x.
#[inline(always)]
pub(super) fn half_exp<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, t) = reduce(s, x);
    s.scale2(s.add(s.splat(1.0), t), s.sub(n, s.splat(1.0)))
}

/// 2^x. At most 1.6 ULP, subnormal results included; NaN stays NaN.
#[inline(always)]
pub fn exp2<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.clamp(x, s.splat(-151.0), s.splat(129.0));
    let n = s.round(x);
    // At most ln 2 / 2, so that its rounding is less than a third of a unit of the result.
    let r = s.mul(s.sub(x, n), s.splat(std::f32::consts::LN_2));
    let t = s.fma(s.mul(r, r), polynomial(s, r, Q), r);
    s.scale2(s.add(s.splat(1.0), t), n)
}

/// e^x - 1, accurate also near zero. At most 2 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn expm1<S: Simd>(s: S, x: S::F) -> S::F {
    // Below -104 the result is -1, above 89 infinite.
    let (n, t) = reduce(s, s.clamp(x, s.splat(-104.0), s.splat(89.0)));
    // Half of it, whose power of two is always finite.
    let half = s.splat(0.5);
    let power = s.scale2(half, n);
    let y = s.fma(power, t, s.sub(power, half));
    // Where x²/2 is below half a unit the result is x; halves of subnormal numbers would lose a bit.
    s.select(s.lt(s.abs(x), s.splat(2.980_232_2e-8)), x, s.add(y, y))
}
