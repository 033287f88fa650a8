//! The length of a vector of two numbers.

use super::simd::{MOST_LANES, Simd};

/// √(a² + b²), of which float64 has the digits; infinite beside NaN, too.
#[inline(always)]
fn hypot_f32(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let length = (x * x + y * y).sqrt() as f32;
    if a.is_infinite() || b.is_infinite() { f32::INFINITY } else { length }
}

/// The same of vectors.
#[inline(always)]
pub fn hypot<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
    let (mut xs, mut ys) = ([0f32; MOST_LANES], [0f32; MOST_LANES]);
    // SAFETY: the arrays hold every lane.
    unsafe {
        s.store(xs.as_mut_ptr(), a);
        s.store(ys.as_mut_ptr(), b);
    }
    for i in 0..S::LANES {
        xs[i] = hypot_f32(xs[i], ys[i]);
    }
    // SAFETY: `xs` has MOST_LANES elements, at least a whole vector.
    unsafe { s.load(xs.as_ptr()) }
}
