//! Logarithms of float64: of base 2 and 10, of 1 + x, inverse hyperbolic tangent. x = 2^k m with m in [√½, √2); with
//! f = m - 1 and q = f / (2 + f), log m = f - (f²/2 - q (f²/2 + R(q²))), R the tail of the series of the inverse hyperbolic
//! tangent.

use super::{LN2_HIGH, LN2_LOW, MAGIC, SERIES, limits, polynomial, power_of_two, split, terms};
use crate::vector_math::simd::Simd;

/// x = 2^k m as (k, ln m, what that number lacks), for x > 0: within 2^-57.
#[inline(always)]
fn log_terms<S: Simd>(s: S, x: f64) -> (f64, f64, f64) {
    let is_tiny = x < f64::MIN_POSITIVE;
    let (k, m) = split(if is_tiny { x * 18_014_398_509_481_984.0 } else { x });
    let k = if is_tiny { k - 54.0 } else { k };
    let f = m - 1.0;
    let q = f / (2.0 + f);
    let z = q * q;
    let (square, rest) = terms::product(s, f, f);
    let half = 0.5 * square;
    let tail = q * s.fma_double(z, polynomial(s, z, SERIES), half);
    let (high, low) = terms::ordered_sum(f, -half);
    let (high, low) = terms::ordered_sum(high, tail + s.fma_double(-0.5, rest, low));
    (k, high, low)
}

/// log₂ x. At most 0.7 ULP; powers of two are exact. Limits and subnormals as for [`super::log`].
#[inline(always)]
pub fn log2<S: Simd>(s: S, x: f64) -> f64 {
    const HIGH: f64 = std::f64::consts::LOG2_E;
    const LOW: f64 = 2.035_527_374_093_103_3e-17;
    let (k, high, low) = log_terms(s, x);
    let (part, rest) = terms::product(s, high, HIGH);
    let rest = s.fma_double(high, LOW, s.fma_double(low, HIGH, rest));
    let (sum, lost) = terms::ordered_sum(k, part);
    limits(x, sum + (lost + rest))
}

/// log₁₀ x. At most 0.7 ULP; powers of ten are exact. Limits and subnormals as for [`super::log`].
#[inline(always)]
pub fn log10<S: Simd>(s: S, x: f64) -> f64 {
    const HIGH: f64 = std::f64::consts::LOG10_E;
    const LOW: f64 = 1.098_319_650_216_765e-17;
    /// 40 bits of log₁₀ 2, so that its product with k is exact, and the rest.
    const LOG10_2: [f64; 2] = [0.301_029_995_663_611_77, 3.694_239_077_158_931e-13];
    let (k, high, low) = log_terms(s, x);
    let (part, rest) = terms::product(s, high, HIGH);
    let rest = s.fma_double(high, LOW, s.fma_double(low, HIGH, rest));
    let (sum, lost) = terms::ordered_sum(k * LOG10_2[0], part);
    limits(x, sum + (lost + s.fma_double(k, LOG10_2[1], rest)))
}

/// ln(1 + x), accurate also near zero. At most 1.4 ULP; -inf at -1, NaN below, -0 stays -0.
#[inline(always)]
pub fn log1p<S: Simd>(s: S, x: f64) -> f64 {
    let u = 1.0 + x;
    // Exact whichever of the two is larger.
    let lost = if x >= 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let (k, m) = split(u);
    // What is lost counts no more long before its factor 2^-k leaves the range.
    let down = if k > 1000.0 { -1000.0 } else { -k };
    let f = s.fma_double(lost, power_of_two(down + MAGIC), m - 1.0);
    let q = f / (2.0 + f);
    let z = q * q;
    let half = 0.5 * f * f;
    let low = s.fma_double(q, s.fma_double(z, polynomial(s, z, SERIES), half), k * LN2_LOW);
    let y = limits(u, s.fma_double(k, LN2_HIGH, f - (half - low)));
    if x == 0.0 { x } else { y }
}

/// Inverse hyperbolic tangent. At most 1.7 ULP; infinite at ±1, NaN beyond, -0 stays -0.
#[inline(always)]
pub fn atanh<S: Simd>(s: S, x: f64) -> f64 {
    let a = x.abs();
    // 2 a / (1 - a); below one half, where 1 - a is rounded, as 2 a + 2 a² / (1 - a).
    let twice = a + a;
    let is_small = a < 0.5;
    let quotient = (if is_small { twice * a } else { twice }) / (1.0 - a);
    let v = if is_small { twice + quotient } else { quotient };
    (0.5 * log1p(s, v)).copysign(x)
}
