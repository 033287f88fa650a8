//! Transforms of 2 to 31 complex vectors, lane by lane: the steps of [`super::rows`].

use super::tables::MOST_RADIX;
use crate::vector_math::Simd;

/// Complex numbers: the real and the imaginary part of each lane.
pub type Complex<S> = (<S as Simd>::F, <S as Simd>::F);

#[inline(always)]
fn add<S: Simd>(s: S, a: Complex<S>, b: Complex<S>) -> Complex<S> {
    (s.add(a.0, b.0), s.add(a.1, b.1))
}

#[inline(always)]
fn sub<S: Simd>(s: S, a: Complex<S>, b: Complex<S>) -> Complex<S> {
    (s.sub(a.0, b.0), s.sub(a.1, b.1))
}

/// `a + factor b`.
#[inline(always)]
fn plus_times<S: Simd>(s: S, a: Complex<S>, b: Complex<S>, factor: f32) -> Complex<S> {
    let factor = s.splat(factor);
    (s.fma(b.0, factor, a.0), s.fma(b.1, factor, a.1))
}

/// `a - i b` and `a + i b`.
#[inline(always)]
fn turned<S: Simd>(s: S, a: Complex<S>, b: Complex<S>) -> [Complex<S>; 2] {
    [(s.add(a.0, b.1), s.sub(a.1, b.0)), (s.sub(a.0, b.1), s.add(a.1, b.0))]
}

/// `a w`.
#[inline(always)]
pub fn times<S: Simd>(s: S, a: Complex<S>, w: Complex<S>) -> Complex<S> {
    (s.fnma(a.1, w.1, s.mul(a.0, w.0)), s.fma(a.0, w.1, s.mul(a.1, w.0)))
}

/// Replaces the first `radix` of `x` by their transform, `y[j] = sum of x[k] exp(-2 pi i j k / radix)`.
/// `R` is the radix where it is 2 to 5, and 0 for all others, whose roots are in `cos` and `sin`.
#[inline(always)]
pub fn butterfly<S: Simd, const R: usize>(
    s: S,
    radix: usize,
    (cos, sin): (&[f32], &[f32]),
    x: &mut [Complex<S>; MOST_RADIX],
) {
    match R {
        2 => (x[0], x[1]) = (add(s, x[0], x[1]), sub(s, x[0], x[1])),
        3 => {
            let (sum, difference) = (add(s, x[1], x[2]), sub(s, x[1], x[2]));
            let middle = plus_times(s, x[0], sum, -0.5);
            let side = s.splat(3f32.sqrt() / 2.0);
            x[0] = add(s, x[0], sum);
            [x[1], x[2]] = turned(s, middle, (s.mul(difference.0, side), s.mul(difference.1, side)));
        }
        4 => {
            let (even, odd) = (add(s, x[0], x[2]), add(s, x[1], x[3]));
            let (even_less, odd_less) = (sub(s, x[0], x[2]), sub(s, x[1], x[3]));
            (x[0], x[2]) = (add(s, even, odd), sub(s, even, odd));
            [x[1], x[3]] = turned(s, even_less, odd_less);
        }
        5 => {
            // Cosines and sines of 72 and 144 degrees.
            let [c1, c2, s1, s2] = [0.309_017, -0.809_017, 0.951_056_5, 0.587_785_24f32];
            let (sum1, less1) = (add(s, x[1], x[4]), sub(s, x[1], x[4]));
            let (sum2, less2) = (add(s, x[2], x[3]), sub(s, x[2], x[3]));
            let middle1 = plus_times(s, plus_times(s, x[0], sum1, c1), sum2, c2);
            let middle2 = plus_times(s, plus_times(s, x[0], sum1, c2), sum2, c1);
            let zero = (s.zero(), s.zero());
            let side1 = plus_times(s, plus_times(s, zero, less1, s1), less2, s2);
            let side2 = plus_times(s, plus_times(s, zero, less1, s2), less2, -s1);
            x[0] = add(s, add(s, x[0], sum1), sum2);
            [x[1], x[4]] = turned(s, middle1, side1);
            [x[2], x[3]] = turned(s, middle2, side2);
        }
        _ => odd(s, radix, (cos, sin), x),
    }
}

/// An odd radix by the definition, two results at a time: they share sums and differences of mirrored inputs.
#[inline(always)]
fn odd<S: Simd>(s: S, radix: usize, (cos, sin): (&[f32], &[f32]), x: &mut [Complex<S>; MOST_RADIX]) {
    let half = radix / 2;
    let zero = (s.zero(), s.zero());
    let mut sums = [zero; MOST_RADIX / 2 + 1];
    let mut less = [zero; MOST_RADIX / 2 + 1];
    let mut total = x[0];
    for k in 1..=half {
        sums[k] = add(s, x[k], x[radix - k]);
        less[k] = sub(s, x[k], x[radix - k]);
        total = add(s, total, sums[k]);
    }
    for j in 1..=half {
        let (mut middle, mut side) = (x[0], zero);
        for k in 1..=half {
            let root = j * k % radix;
            middle = plus_times(s, middle, sums[k], cos[root]);
            // The table has the sines of negative angles.
            side = plus_times(s, side, less[k], -sin[root]);
        }
        // Inputs are in `sums` and `less` from here on, all but the first.
        [x[j], x[radix - j]] = turned(s, middle, side);
    }
    x[0] = total;
}
