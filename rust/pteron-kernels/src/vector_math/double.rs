//! Transcendental functions of float64, for loops that the compiler vectorises: no branches, no tables, no
//! conversions that an instruction set lacks. Polynomials are of least maximum error, by Remez' exchange in 60-digit
//! arithmetic; errors are those of the coefficients before they are rounded. Errors of functions are the largest of a few
//! million inputs against arithmetic of 64 bits.

pub mod arcs;
pub mod error_function;
pub mod exponentials;
pub mod logarithms;
mod terms;
#[cfg(test)]
mod tests;
pub mod trigonometric;

use super::simd::Simd;

/// 1.5 · 2^52: adding it rounds to an integer, which is left in the lowest bits.
pub(super) const MAGIC: f64 = 6_755_399_441_055_744.0;
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// 32 bits of ln 2, so that products with exponents are exact without fused arithmetic, and the rest.
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
const ONE_BITS: u64 = 0x3ff0_0000_0000_0000;
const MANTISSA: u64 = (1 << 52) - 1;

/// (e^r - 1 - r) / r² for |r| ≤ ln 2 / 2, relative to e^r within 2^-61.
const Q: [f64; 11] = [
    0.5,
    0.166_666_666_666_666_7,
    0.041_666_666_666_666_67,
    0.008_333_333_333_326_084,
    0.001_388_888_888_888_371_1,
    1.984_126_987_500_228e-4,
    2.480_158_732_567_746e-5,
    2.755_725_517_000_089e-6,
    2.755_727_347_871_858e-7,
    2.510_531_272_961_210_3e-8,
    2.091_475_532_589_32e-9,
];
/// (2 artanh(s) / s - 2) / s² for |s| ≤ (√2 - 1) / (√2 + 1), relative to 2 within 2^-59.
const SERIES: [f64; 8] = [
    0.666_666_666_666_666_6,
    0.400_000_000_000_008_85,
    0.285_714_285_707_997_84,
    0.222_222_223_925_810_45,
    0.181_817_955_475_211_37,
    0.153_862_447_376_216_65,
    0.132_686_383_692_668_25,
    0.130_880_348_509_255_5,
];

/// c[0] + c[1] x + ..., in two interleaved halves: less to wait for than from the highest power down.
#[inline(always)]
pub(super) fn polynomial<S: Simd, const N: usize>(s: S, x: f64, c: [f64; N]) -> f64 {
    let square = x * x;
    let top = (N - 1) & !1;
    let mut even = c[top];
    let mut i = top;
    while i >= 2 {
        i -= 2;
        even = s.fma_double(even, square, c[i]);
    }
    let top = (N - 2) | 1;
    let mut odd = c[top];
    let mut i = top;
    while i >= 2 {
        i -= 2;
        odd = s.fma_double(odd, square, c[i]);
    }
    s.fma_double(odd, x, even)
}

/// 2^n of `n + MAGIC`, for n in -1022..=1023.
#[inline(always)]
pub(super) fn power_of_two(shifted: f64) -> f64 {
    f64::from_bits((shifted.to_bits() << 52).wrapping_add(ONE_BITS))
}

/// Positive normal x as k and m, x = 2^k m with m in [√½, √2); exact.
#[inline(always)]
pub(super) fn split(x: f64) -> (f64, f64) {
    /// 2^52, whose lowest bit counts one.
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    let shifted = x.to_bits().wrapping_add(ONE_BITS - SQRT_HALF_BITS);
    let k = f64::from_bits(shifted >> 52 | INTEGER) - (4_503_599_627_370_496.0 + 1023.0);
    (k, f64::from_bits((shifted & MANTISSA).wrapping_add(SQRT_HALF_BITS)))
}

/// 2^n v of `n + MAGIC`, for n in -2044..=2046: in two steps, so that neither factor leaves the range.
#[inline(always)]
fn scale<S: Simd>(s: S, v: f64, shifted: f64) -> f64 {
    let n = shifted - MAGIC;
    let half = s.fma_double(n, 0.5, MAGIC);
    let rest = n - (half - MAGIC) + MAGIC;
    v * power_of_two(half) * power_of_two(rest)
}

/// (n + MAGIC, e^r - 1) with x = n ln 2 + r.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: f64) -> (f64, f64) {
    let shifted = s.fma_double(x, LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = s.fma_double(-n, LN2_HIGH, x);
    let r = s.fma_double(-n, LN2_LOW, r);
    (shifted, s.fma_double(r * r, polynomial(s, r, Q), r))
}

/// e^x. At most 1.2 ULP, subnormal results included; NaN stays NaN.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: f64) -> f64 {
    let x = if x < -746.0 { -746.0 } else { x };
    let x = if x > 710.0 { 710.0 } else { x };
    let (shifted, t) = reduce(s, x);
    scale(s, 1.0 + t, shifted)
}

/// e^x - 1 for x in `0..=700`, accurate also near zero.
#[inline(always)]
fn expm1_positive<S: Simd>(s: S, x: f64) -> f64 {
    let (shifted, t) = reduce(s, x);
    let power = power_of_two(shifted);
    s.fma_double(power, t, power - 1.0)
}

/// `y` with the limits of a logarithm of `x`: infinite at infinity and zero, NaN for NaN and below zero.
#[inline(always)]
fn limits(x: f64, y: f64) -> f64 {
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f64::NAN }
}

/// ln x. At most 1 ULP; ln 0 = -inf, negative numbers give NaN, subnormals are exact inputs.
#[inline(always)]
pub fn log<S: Simd>(s: S, x: f64) -> f64 {
    let is_tiny = x < f64::MIN_POSITIVE;
    let (k, m) = split(if is_tiny { x * 18_014_398_509_481_984.0 } else { x });
    let k = if is_tiny { k - 54.0 } else { k };
    let f = m - 1.0;
    let q = f / (2.0 + f);
    let z = q * q;
    let half = 0.5 * f * f;
    let low = s.fma_double(q, s.fma_double(z, polynomial(s, z, SERIES), half), k * LN2_LOW);
    limits(x, s.fma_double(k, LN2_HIGH, f - (half - low)))
}

/// Hyperbolic tangent. At most 3 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: f64) -> f64 {
    let a = x.abs();
    let a = if a > 22.0 { 22.0 } else { a };
    let e = expm1_positive(s, a + a);
    (e / (e + 2.0)).copysign(x)
}

/// 1 / (1 + e^-x). At most 3 ULP, subnormal results included; NaN stays NaN.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: f64) -> f64 {
    let e = exp(s, -x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}
