//! Logistic function and x times it. The power of e is a normal number for all but the most negative x; the rest, where the
//! result is that power, is computed for itself when there is any: every lane has the same result whatever lies beside it.

use super::exp::{exp, exp_normal};
use super::simd::Simd;

/// Below, e^-x is too large; 1 + e^x is 1 long before.
const LEAST: f32 = -87.0;

/// 1 + e^-x for x from [`LEAST`] on; NaN stays NaN.
#[inline(always)]
fn denominator<S: Simd>(s: S, x: S::F) -> S::F {
    // The second operand is the result where one is NaN.
    let negative = s.max(s.splat(LEAST), s.neg(x));
    s.add(s.splat(1.0), exp_normal(s, negative))
}

/// 1 / (1 + e^-x). At most 2.5 ULP (2.48 in samples), subnormal results included; NaN stays NaN.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let y = s.div(s.splat(1.0), denominator(s, x));
    let is_low = s.lt(x, s.splat(LEAST));
    if s.any(is_low) { s.select(is_low, exp(s, x), y) } else { y }
}

/// x / (1 + e^-x). At most 4 ULP for x from [`LEAST`] on; below, where e^x is subnormal and has few digits, the error is a few
/// units of the smallest number times x. NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let y = s.div(x, denominator(s, x));
    let is_low = s.lt(x, s.splat(LEAST));
    if s.any(is_low) { s.select(is_low, s.mul(x, exp(s, x)), y) } else { y }
}
