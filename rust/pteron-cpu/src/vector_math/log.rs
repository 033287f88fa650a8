//! Natural logarithm. x = 2^k m with m in [√½, √2); with f = m - 1 and s = f / (2 + f),
//! log m = f - (f²/2 - s (f²/2 + R(s²))), R the tail of the series of the inverse hyperbolic tangent.

use super::exp::{LN2_HIGH, LN2_LOW, polynomial};
use super::simd::Simd;

const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
const ONE_BITS: i32 = 0x3f80_0000;
/// 2/3, 2/5, 2/7, 2/9: the next term is below 2e-9 relative for s² ≤ 0.0295.
const SERIES: [f32; 4] = [0.666_666_7, 0.4, 0.285_714_3, 0.222_222_22];

/// ln x. At most 0.9 ULP (0.81 measured); ln 0 = -inf, negative numbers give NaN, subnormals are exact inputs.
#[inline(always)]
pub fn log<S: Simd>(s: S, x: S::F) -> S::F {
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(tiny, s.mul(x, s.splat(33_554_432.0)), x);
    let shifted = s.add_i(s.to_bits(scaled), s.splat_i(ONE_BITS - SQRT_HALF_BITS));
    let k = s.to_float(s.sub_i(s.shr_i::<23>(shifted), s.splat_i(127)));
    let k = s.select(tiny, s.sub(k, s.splat(25.0)), k);
    let mantissa = s.add_i(s.and_i(shifted, s.splat_i(0x007f_ffff)), s.splat_i(SQRT_HALF_BITS));
    let f = s.sub(s.of_bits(mantissa), s.splat(1.0));

    let q = s.div(f, s.add(s.splat(2.0), f));
    let z = s.mul(q, q);
    let tail = s.mul(z, polynomial(s, z, SERIES));
    let half = s.mul(s.splat(0.5), s.mul(f, f));
    let low = s.fma(q, s.add(half, tail), s.mul(k, s.splat(LN2_LOW)));
    let y = s.fma(k, s.splat(LN2_HIGH), s.sub(f, s.sub(half, low)));

    let infinite = s.eq(x, s.splat(f32::INFINITY));
    let zero = s.eq(x, s.zero());
    let y = s.select(infinite, x, y);
    let y = s.select(zero, s.splat(f32::NEG_INFINITY), y);
    // Negative or NaN: neither x ≥ 0 holds.
    s.select(s.ge(x, s.zero()), y, s.splat(f32::NAN))
}
