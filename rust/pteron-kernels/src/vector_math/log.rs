//! Logarithms: natural, of base 2 and 10, of 1 + x. x = 2^k m with m in [√½, √2); with f = m - 1 and s = f / (2 + f),
//! log m = f - (f²/2 - s (f²/2 + R(s²))), R the tail of the series of the inverse hyperbolic tangent.

use super::exp::{LN2_HIGH, LN2_LOW, polynomial};
use super::simd::Simd;

/// (ln(1 + f) - f + f²/2) / f³ in f on [√½ - 1, √2 - 1]: relative error 3e-9 of the logarithm.
const CUBIC: [f32; 9] = [
    0.333_333_3,
    -0.249_999_97,
    0.200_007_2,
    -0.166_678_1,
    0.142_488_76,
    -0.124_253_6,
    0.116_870_25,
    -0.114_830_814,
    0.069_713_466,
];

/// x as 2^k (1 + f) with 1 + f in [√½, √2), for positive finite x; exact.
#[inline(always)]
fn split<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let (k, m) = s.split_power(x);
    (k, s.sub(m, s.splat(1.0)))
}

/// ln(1 + f) as `f - (half - low)`: (half, low).
#[inline(always)]
fn tail<S: Simd>(s: S, f: S::F) -> (S::F, S::F) {
    let square = s.mul(f, f);
    (s.mul(s.splat(0.5), square), s.mul(s.mul(f, square), polynomial(s, f, CUBIC)))
}

/// `y` with the limits of a logarithm of `x`: infinite at infinity and zero, NaN for NaN and below zero.
#[inline(always)]
fn limits<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let y = s.select(s.eq(x, s.splat(f32::INFINITY)), x, y);
    let y = s.select(s.eq(x, s.zero()), s.splat(f32::NEG_INFINITY), y);
    // Negative or NaN: neither x ≥ 0 holds.
    s.select(s.ge(x, s.zero()), y, s.splat(f32::NAN))
}

/// ln x + c, c far below x.
#[inline(always)]
fn log_corrected<S: Simd>(s: S, x: S::F, c: S::F) -> S::F {
    let (k, f) = split(s, x);
    let (half, low) = tail(s, f);
    let low = s.add(s.fma(k, s.splat(LN2_LOW), c), low);
    s.fma(k, s.splat(LN2_HIGH), s.sub(f, s.sub(half, low)))
}

/// ln x. At most 0.9 ULP (0.81 measured); ln 0 = -inf, negative numbers give NaN, subnormals are exact inputs.
#[inline(always)]
pub fn log<S: Simd>(s: S, x: S::F) -> S::F {
    limits(s, x, log_corrected(s, x, s.zero()))
}

/// log₂ x. At most 2 ULP; powers of two are exact, limits as for [`log`].
#[inline(always)]
pub fn log2<S: Simd>(s: S, x: S::F) -> S::F {
    const LOG2_E_LOW: f32 = 1.925_963e-8;
    let (k, f) = split(s, x);
    let (half, low) = tail(s, f);
    let ln = s.sub(f, s.sub(half, low));
    let y = s.fma(ln, s.splat(std::f32::consts::LOG2_E), s.fma(ln, s.splat(LOG2_E_LOW), k));
    limits(s, x, y)
}

/// log₁₀ x. At most 2 ULP; limits as for [`log`].
#[inline(always)]
pub fn log10<S: Simd>(s: S, x: S::F) -> S::F {
    /// Ten bits, so that its product with k is exact.
    const LOG10_2_HIGH: f32 = 0.300_781_25;
    const LOG10_2_LOW: f32 = 2.487_456_7e-4;
    let (k, f) = split(s, x);
    let (half, low) = tail(s, f);
    let ln = s.sub(f, s.sub(half, low));
    let y = s.fma(ln, s.splat(std::f32::consts::LOG10_E), s.mul(k, s.splat(LOG10_2_LOW)));
    limits(s, x, s.fma(k, s.splat(LOG10_2_HIGH), y))
}

/// u = 1 + x rounded, and what its logarithm lacks.
#[inline(always)]
fn one_plus<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let one = s.splat(1.0);
    let u = s.add(one, x);
    // Exact whichever of the two is larger.
    let lost = s.select(s.ge(x, one), s.sub(one, s.sub(u, x)), s.sub(x, s.sub(u, one)));
    (u, s.div(lost, u))
}

/// ln(1 + x), accurate also near zero. At most 2 ULP; -inf at -1, NaN below, -0 stays -0.
#[inline(always)]
pub fn log1p<S: Simd>(s: S, x: S::F) -> S::F {
    let (u, c) = one_plus(s, x);
    let y = limits(s, u, log_corrected(s, u, c));
    s.select(s.eq(x, s.zero()), x, y)
}

/// ln(x / (1 - x)) for x in [0, 1], accurate also near one half, where it vanishes. At most 2 ULP; NaN outside.
#[inline(always)]
pub fn logit<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let is_low = s.lt(x, s.splat(0.5));
    let rest = s.sub(one, x);
    // Exact near one half, where 1 - x need not be.
    let excess = s.abs(s.sub(one, s.add(x, x)));
    // ln of the larger share over the smaller is ln(1 + excess / smaller). Very small shares would overflow.
    let smaller = s.select(is_low, x, rest);
    let is_tiny = s.lt(smaller, s.splat(8.7e-19));
    let (u, c) = one_plus(s, s.div(excess, smaller));
    let tiny = s.neg(log(s, smaller));
    let size = s.select(is_tiny, tiny, limits(s, u, log_corrected(s, u, c)));
    let y = s.select(is_low, s.neg(size), size);
    s.select(s.le(x, one), y, s.splat(f32::NAN))
}
