//! How two floats are combined, number by number and as the total of accumulators. Unsafe island (vector stores).

use crate::vector_math::Simd;
use crate::vector_math::simd::MAX_LANES;

/// A sum, a product or an extreme.
pub(super) trait Step {
    /// What changes nothing.
    const START: f32;
    /// Lane by lane.
    fn step<S: Simd>(s: S, a: S::F, b: S::F) -> S::F;
    /// The totals of two sets of elements.
    fn join(a: f64, b: f64) -> f64;
    /// All lanes of all accumulators.
    fn total<S: Simd>(s: S, all: [S::F; 4]) -> f64;
}

pub(super) struct Add;
pub(super) struct Times;
pub(super) struct Larger;
pub(super) struct Smaller;

/// The lanes in f64, whose range is larger: products of many numbers soon are subnormal in f32, which is slow.
#[inline(always)]
fn wide_total<S: Simd>(s: S, all: [S::F; 4], start: f64, join: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0f32; 4 * MAX_LANES];
    for (k, each) in all.iter().enumerate() {
        // SAFETY: k < 4, and there is room for four vectors.
        unsafe { s.store(lanes.as_mut_ptr().add(k * S::LANES), *each) };
    }
    let mut parts = [start; 8];
    for group in lanes[..4 * S::LANES].chunks_exact(8) {
        for (part, v) in parts.iter_mut().zip(group) {
            *part = join(*part, f64::from(*v));
        }
    }
    parts.into_iter().fold(start, join)
}

/// The lanes of the accumulator that has the best ones of all.
#[inline(always)]
fn best<C: Step, S: Simd>(s: S, [a, b, c, d]: [S::F; 4]) -> f64 {
    let mut lanes = [0f32; MAX_LANES];
    // SAFETY: there is room for a vector of any instruction set.
    unsafe { s.store(lanes.as_mut_ptr(), C::step(s, C::step(s, a, b), C::step(s, c, d))) };
    lanes[..S::LANES].iter().fold(f64::from(C::START), |best, v| C::join(best, f64::from(*v)))
}

impl Step for Add {
    const START: f32 = 0.0;
    #[inline(always)]
    fn step<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        s.add(a, b)
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        a + b
    }
    #[inline(always)]
    fn total<S: Simd>(s: S, all: [S::F; 4]) -> f64 {
        wide_total(s, all, 0.0, Self::join)
    }
}

impl Step for Times {
    const START: f32 = 1.0;
    #[inline(always)]
    fn step<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        s.mul(a, b)
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        a * b
    }
    #[inline(always)]
    fn total<S: Simd>(s: S, all: [S::F; 4]) -> f64 {
        wide_total(s, all, 1.0, Self::join)
    }
}

impl Step for Larger {
    const START: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn step<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        s.max_nan(a, b)
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        if a > b || a.is_nan() { a } else { b }
    }
    #[inline(always)]
    fn total<S: Simd>(s: S, all: [S::F; 4]) -> f64 {
        best::<Self, S>(s, all)
    }
}

impl Step for Smaller {
    const START: f32 = f32::INFINITY;
    #[inline(always)]
    fn step<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        s.min_nan(a, b)
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        if a < b || a.is_nan() { a } else { b }
    }
    #[inline(always)]
    fn total<S: Simd>(s: S, all: [S::F; 4]) -> f64 {
        best::<Self, S>(s, all)
    }
}
