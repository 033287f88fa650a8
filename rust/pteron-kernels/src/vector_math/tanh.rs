//! tanh x = e / (e + 2) with e = e^{2|x|} - 1, sign put back: no cancellation anywhere.

use super::exp::expm1_positive;
use super::simd::Simd;

/// Gives `magnitude` (non-negative) the sign of `x`.
#[inline(always)]
pub fn with_sign_of<S: Simd>(s: S, magnitude: S::F, x: S::F) -> S::F {
    let sign = s.and_i(s.to_bits(x), s.splat_i(i32::MIN));
    s.of_bits(s.or_i(s.to_bits(magnitude), sign))
}

/// Hyperbolic tangent. At most 2.7 ULP (2.58 measured); NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // Above 10 the result rounds to one; `min` hands a NaN through.
    let a = s.min(s.splat(10.0), s.abs(x));
    let e = expm1_positive(s, s.add(a, a));
    with_sign_of(s, s.div(e, s.add(e, s.splat(2.0))), x)
}
