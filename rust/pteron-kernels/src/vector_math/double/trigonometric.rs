//! Sine, cosine and tangent of float64 up to a million and a half. x = n π/2 + r by π/2 in pieces of 33 bits, whose products
//! with n of 20 bits are exact without fused arithmetic (W. J. Cody and W. Waite, Software Manual for the Elementary Functions,
//! 1980); r keeps what it lacks.

use super::{MAGIC, polynomial, terms};
use crate::vector_math::simd::Simd;

/// Below 2^20 π/2.
const LIMIT: f64 = 1_600_000.0;
/// π/2, 33 bits at a time, then the rest.
const PIECES: [f64; 4] = [
    1.570_796_326_734_125_6,
    6.077_100_506_303_966e-11,
    2.022_266_248_711_166_5e-21,
    8.478_427_660_368_9e-32,
];
/// sin(r) / r³ - 1 / r², in r², for r within ±π/4: error 2^-55.
const SIN: [f64; 6] = [
    -0.166_666_666_666_666_66,
    0.008_333_333_333_330_95,
    -1.984_126_983_675_920_8e-4,
    2.755_731_610_272_346_3e-6,
    -2.505_113_185_503_840_4e-8,
    1.591_812_854_191_806e-10,
];
/// (cos(r) - 1 + r²/2) / r⁴, in r², for r within ±π/4: error 2^-59.
const COS: [f64; 6] = [
    0.041_666_666_666_666_664,
    -0.001_388_888_888_888_739_8,
    2.480_158_729_876_591_6e-5,
    -2.755_731_727_175_98e-7,
    2.087_614_626_041_983e-9,
    -1.138_263_102_983_074_6e-11,
];

/// Do the functions here take this number? No infinity, no NaN.
#[inline(always)]
pub fn is_near(x: f64) -> bool {
    x.abs() < LIMIT
}

/// n, of which the lowest two bits count, r and what r lacks.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: f64) -> (u64, f64, f64) {
    let shifted = s.fma_double(x, std::f64::consts::FRAC_2_PI, MAGIC);
    let n = shifted - MAGIC;
    // Both are near each other, and so is their difference exact.
    let start = x - n * PIECES[0];
    let (start, first) = terms::sum(start, -(n * PIECES[1]));
    let (start, second) = terms::sum(start, -(n * PIECES[2]));
    let (r, low) = terms::ordered_sum(start, s.fma_double(-n, PIECES[3], first + second));
    (shifted.to_bits(), r, low)
}

/// The sine and the cosine of r, which lacks `low`. Each is the last sum of a large number and small ones.
#[inline(always)]
fn both<S: Simd>(s: S, r: f64, low: f64) -> (f64, f64) {
    let z = r * r;
    let half = 0.5 * z;
    let rest = s.fma_double(-half, low, low);
    let sin = r + s.fma_double(r * z, polynomial(s, z, SIN), rest);
    let (one, lost) = terms::ordered_sum(1.0, -half);
    let cos = one + (lost + s.fma_double(z * z, polynomial(s, z, COS), -(r * low)));
    (sin, cos)
}

/// sin(r + quarter · π/2).
#[inline(always)]
fn sine<S: Simd>(s: S, quarter: u64, r: f64, low: f64) -> f64 {
    let (sin, cos) = both(s, r, low);
    let y = if quarter & 1 == 0 { sin } else { cos };
    f64::from_bits(y.to_bits() ^ (quarter & 2) << 62)
}

/// sin x. At most 0.9 ULP where [`is_near`]; -0 stays -0.
#[inline(always)]
pub fn sin<S: Simd>(s: S, x: f64) -> f64 {
    let (quarter, r, low) = reduce(s, x);
    if x == 0.0 { x } else { sine(s, quarter, r, low) }
}

/// cos x. At most 0.9 ULP where [`is_near`].
#[inline(always)]
pub fn cos<S: Simd>(s: S, x: f64) -> f64 {
    let (quarter, r, low) = reduce(s, x);
    sine(s, quarter.wrapping_add(1), r, low)
}

/// tan x. At most 2.3 ULP where [`is_near`]; -0 stays -0.
#[inline(always)]
pub fn tan<S: Simd>(s: S, x: f64) -> f64 {
    let (quarter, r, low) = reduce(s, x);
    let (sin, cos) = both(s, r, low);
    let is_even = quarter & 1 == 0;
    let y = (if is_even { sin } else { -cos }) / (if is_even { cos } else { sin });
    if x == 0.0 { x } else { y }
}
