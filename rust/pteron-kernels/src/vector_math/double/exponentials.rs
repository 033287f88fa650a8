//! Powers of two, exponentials less one, hyperbolic sine and cosine of float64.

use super::{LN2_HIGH, LN2_LOW, LOG2_E, MAGIC, Q, polynomial, power_of_two, scale, terms};
use crate::vector_math::simd::Simd;

/// (2^r - 1) / r for |r| ≤ ½: absolute error 2^-57 of the product with r.
const EXP2: [f64; 11] = [
    std::f64::consts::LN_2,
    0.240_226_506_959_100_97,
    0.055_504_108_664_821_666,
    0.009_618_129_107_606_859,
    0.001_333_355_814_639_480_3,
    1.540_353_044_177_819_8e-4,
    1.525_273_385_438_225e-5,
    1.321_544_256_554_386_9e-6,
    1.017_805_129_851_174_2e-7,
    7.072_589_905_748_467e-9,
    4.456_735_734_728_252e-10,
];

/// 2^x. At most 1.4 ULP, subnormal results included; integers are exact, NaN stays NaN.
#[inline(always)]
pub fn exp2<S: Simd>(s: S, x: f64) -> f64 {
    let x = if x < -1080.0 { -1080.0 } else { x };
    let x = if x > 1030.0 { 1030.0 } else { x };
    let shifted = x + MAGIC;
    let r = x - (shifted - MAGIC);
    scale(s, s.fma_double(r, polynomial(s, r, EXP2), 1.0), shifted)
}

/// x = n ln 2 + r as (n + MAGIC, r, e^r - 1 - r), the last with what the number r lacks.
#[inline(always)]
pub(super) fn reduce<S: Simd>(s: S, x: f64) -> (f64, f64, f64) {
    let shifted = s.fma_double(x, LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let start = s.fma_double(-n, LN2_HIGH, x);
    let r = s.fma_double(-n, LN2_LOW, start);
    let low = s.fma_double(-n, LN2_LOW, start - r);
    (shifted, r, s.fma_double(r * r, polynomial(s, r, Q), low))
}

/// (e^x - 1) / 2^`HALVINGS` for x in -600..=710.6, at which nothing overflows with two halvings; 1.3 ULP. Tiny numbers lose the
/// bits that halves of them do not have.
#[inline(always)]
fn halved_expm1<S: Simd, const HALVINGS: i32>(s: S, x: f64) -> f64 {
    let (shifted, r, q) = reduce(s, x);
    let power = power_of_two(shifted - f64::from(HALVINGS));
    // The first number is zero or the larger one, and the product is exact.
    let one = power_of_two(MAGIC - f64::from(HALVINGS));
    let (high, low) = terms::ordered_sum(power - one, power * r);
    high + s.fma_double(power, q, low)
}

/// e^x - 1, accurate also near zero. At most 1.3 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn expm1<S: Simd>(s: S, x: f64) -> f64 {
    let bounded = if x < -60.0 { -60.0 } else { x };
    let bounded = if bounded > 710.0 { 710.0 } else { bounded };
    let y = 2.0 * halved_expm1::<S, 1>(s, bounded);
    if x.abs() < 5e-17 { x } else { y }
}

/// |x|, no larger than where the hyperbolic functions are infinite.
#[inline(always)]
fn bounded_size(x: f64) -> f64 {
    let a = x.abs();
    if a > 710.6 { 710.6 } else { a }
}

/// Hyperbolic sine. At most 2.1 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn sinh<S: Simd>(s: S, x: f64) -> f64 {
    // With e = e^a - 1: (e + e / (e + 1)) / 2.
    let quarter = halved_expm1::<S, 2>(s, bounded_size(x));
    let y = 2.0 * (quarter + quarter / s.fma_double(4.0, quarter, 1.0));
    (if x.abs() < 1e-9 { x } else { y }).copysign(x)
}

/// Hyperbolic cosine. At most 1.6 ULP; NaN stays NaN.
#[inline(always)]
pub fn cosh<S: Simd>(s: S, x: f64) -> f64 {
    let (shifted, r, q) = reduce(s, bounded_size(x));
    let power = power_of_two(shifted - 2.0);
    let quarter = s.fma_double(power, r, power) + power * q;
    2.0 * (quarter + 0.0625 / quarter)
}
