//! Sums and products of two float64 numbers without loss, as a number and what it lacks. Formulas of D. Knuth (The Art
//! of Computer Programming, volume 2, 4.2.2) and T. J. Dekker ("A floating-point technique for extending the available
//! precision", 1971).

use crate::vector_math::simd::Simd;

/// a + b, and what the sum lacks.
#[inline(always)]
pub(super) fn sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let other = sum - a;
    (sum, (a - (sum - other)) + (b - other))
}

/// a + b for |a| ≥ |b| or a = 0, and what the sum lacks.
#[inline(always)]
pub(super) fn ordered_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// The upper 26 bits of a number; the others have at most as many.
#[inline(always)]
fn upper(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !0x07ff_ffff)
}

/// a b, and what the product lacks. Exact where neither it nor the product of the last places leaves the range.
#[inline(always)]
pub(super) fn product<S: Simd>(s: S, a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    if S::FUSES_DOUBLE {
        return (product, s.fma_double(a, b, -product));
    }
    let (a_high, b_high) = (upper(a), upper(b));
    let (a_low, b_low) = (a - a_high, b - b_high);
    (product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low))
}
