//! Remainders of division and quotients rounded down, exact as PyTorch has them.

use super::double::MAGIC;
use super::simd::{MOST_LANES, Simd};
use super::tanh::with_sign_of;

/// Quotients up to here are told from their neighbours in float64, and times the divisor are exact there.
const EXACT: f32 = 1e8;

/// a - n b with the largest n that leaves a remainder; of numbers whose quotient is below [`EXACT`].
#[inline(always)]
fn remainder_of_sizes(a: f32, b: f32) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let q = a / b;
    let near = (q + MAGIC) - MAGIC;
    let n = if near > q { near - 1.0 } else { near };
    (a - n * b) as f32
}

#[cold]
#[inline(never)]
fn one_by_one(a: &mut [f32; MOST_LANES], b: &[f32; MOST_LANES]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a %= b;
    }
}

/// The remainder of a / b that has the sign of a. Exact; NaN for b = 0 and infinite a, a for infinite b.
#[inline(always)]
pub fn fmod<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
    let (size, divisor) = (s.abs(a), s.abs(b));
    let infinity = s.splat(f32::INFINITY);
    let is_far = s.gt(size, s.mul(divisor, s.splat(EXACT)));
    let is_far = s.or(is_far, s.eq(divisor, infinity));
    let (mut xs, mut ys) = ([0f32; MOST_LANES], [0f32; MOST_LANES]);
    // SAFETY: the arrays hold every lane.
    unsafe {
        s.store(xs.as_mut_ptr(), size);
        s.store(ys.as_mut_ptr(), divisor);
    }
    if !s.any(is_far) {
        for i in 0..S::LANES {
            xs[i] = remainder_of_sizes(xs[i], ys[i]);
        }
    } else {
        one_by_one(&mut xs, &ys);
    }
    // SAFETY: `xs` has MOST_LANES elements, at least a whole vector.
    with_sign_of(s, unsafe { s.load(xs.as_ptr()) }, a)
}

/// Does [`fmod_double`] take these numbers? None that are not finite, no quotient whose integers are not all in float64.
#[inline(always)]
pub fn is_near<S: Simd>(_: S, a: f64, b: f64) -> bool {
    /// 2^52.
    const LIMIT: f64 = 4_503_599_627_370_496.0;
    let divisor = b.abs();
    S::FUSES_DOUBLE & (a.abs() < divisor * LIMIT) & (divisor < f64::INFINITY)
}

/// The remainder of a / b that has the sign of a, of numbers that are [`is_near`]; exact. For loops that the compiler
/// vectorises. The quotient may have been rounded up to the next integer. What is then left is still a multiple of the
/// last place of b and no larger than b, so that neither it nor what corrects it is rounded.
#[inline(always)]
pub fn fmod_double<S: Simd>(s: S, a: f64, b: f64) -> f64 {
    let (size, divisor) = (a.abs(), b.abs());
    let n = (size / divisor).trunc();
    let rest = s.fma_double(-n, divisor, size);
    let rest = if rest < 0.0 { rest + divisor } else { rest };
    rest.copysign(a)
}

/// Is there a remainder whose sign is not the divisor's?
#[inline(always)]
fn is_opposite<S: Simd>(s: S, rest: S::F, b: S::F) -> S::M {
    let one = s.splat(1.0);
    let zero = s.zero();
    let same = s.eq(with_sign_of(s, one, rest), with_sign_of(s, one, s.select(s.eq(b, zero), zero, b)));
    s.not(s.or(same, s.eq(rest, zero)))
}

/// The remainder of a / b that has the sign of b.
#[inline(always)]
pub fn remainder<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
    let rest = fmod(s, a, b);
    s.select(is_opposite(s, rest, b), s.add(rest, b), rest)
}

/// a / b rounded down, from the exact remainder: the quotient itself may have been rounded up to an integer.
#[inline(always)]
pub fn floor_divide<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
    let (zero, one) = (s.zero(), s.splat(1.0));
    let rest = fmod(s, a, b);
    let plain = s.div(a, b);
    let quotient = s.div(s.sub(a, rest), b);
    let quotient = s.select(is_opposite(s, rest, b), s.sub(quotient, one), quotient);
    let near = s.round(quotient);
    let down = s.select(s.gt(near, quotient), s.sub(near, one), near);
    let down = s.select(s.gt(s.sub(quotient, down), s.splat(0.5)), s.add(down, one), down);
    let down = s.select(s.eq(quotient, zero), with_sign_of(s, zero, plain), down);
    s.select(s.eq(b, zero), plain, down)
}
