//! Modified Bessel functions of the first kind, of orders zero and one, also times e^{-|x|}. Far from zero they are
//! e^|x| / √|x| times something smooth; that is a polynomial in t = a / (a + c) with a = |x|, which brings all of
//! them to [0, 1) and never overflows. Near zero the growing ones are polynomials in x².
//!
//! All polynomials are of least maximum of the relative error by reweighted least squares on Chebyshev nodes. Errors are
//! stated before and after the coefficients were rounded; those of results are of every 211th or 1009th input.

use super::exp::{about, polynomial, reduce};
use super::simd::Simd;

/// c of order zero.
const C0: f32 = 4.0;
/// e^{-a} I₀(a) √(a + c) in t - 1/4 for t in 0..=½: 2.1e-9, 9e-9.
const LOW0: [f32; 12] = [
    0.910_896_06,
    -1.681_473_6e-9,
    -2.293_663_3,
    5.896_742,
    -9.030_718,
    3.649_713_8,
    8.119_229,
    -3.818_207_3,
    -11.708_697,
    -2.216_347_2,
    13.479_247,
    12.373_398,
];
/// The same in t - 3/4 for t in ½..=1: 2.3e-8, 2.6e-8.
const HIGH0: [f32; 12] = [
    0.465_704_9,
    -6.721_364e-9,
    -0.338_841_77,
    0.375_887_72,
    -0.474_230_92,
    0.649_232_7,
    -0.951_605_86,
    1.648_132_4,
    -3.971_517,
    6.824_718,
    4.774_104_6,
    -25.561_108,
];
/// c of order one.
const C1: f32 = 3.5;
/// Where the second polynomial of order one begins.
const SPLIT1: f32 = 0.531_25;
/// e^{-a} I₁(a) √(a + c) / t - 2 in t - 17/64 for t in 0..=17/32: 1.3e-9, 2.5e-8. The two is left out, since its product
/// with t is exact.
const LOW1: [f32; 11] = [
    -0.218_957_2,
    -4.484_749_3,
    4.833_357,
    0.977_341_6,
    -5.165_714,
    -2.699_180_6,
    4.972_24,
    7.828_778_7,
    0.726_039_05,
    -10.509_208,
    -10.827_444,
];
/// e^{-a} I₁(a) √(a + c) in t - 49/64 for t in 17/32..=1: 1.2e-8, 1.3e-8.
const HIGH1: [f32; 12] = [
    0.440_535_25,
    -1.084_632_5e-8,
    -0.199_171_42,
    0.091_750_816,
    0.040_943_11,
    -0.262_618_42,
    0.689_208,
    -1.781_489_8,
    4.938_983,
    -7.197_368,
    -12.092_527,
    40.952_168,
];

/// Up to here the growing functions are polynomials in x².
const NEAR: f32 = 4.0;
/// (I₀(x) - 1) / x² in x²: 9e-10, 1.6e-8.
const SERIES0: [f32; 8] = [
    0.25,
    0.015_625_002,
    4.340_261_8e-4,
    6.782_338_5e-6,
    6.769_142_4e-8,
    4.832_382e-10,
    1.801_482e-12,
    2.153_672e-14,
];
/// (I₁(x) / x - ½) / x² in x²: 4e-10, 1.1e-8.
const SERIES1: [f32; 8] = [
    0.062_5,
    0.002_604_166_7,
    5.425_328_7e-5,
    6.782_420_3e-7,
    5.637_635_7e-9,
    3.495_534e-11,
    8.766_665_6e-14,
    1.716_519_1e-15,
];
/// Both functions are infinite in f32 from below this on.
const INFINITE: f32 = 92.0;

/// (t, √(a + c)).
#[inline(always)]
fn ratio<S: Simd>(s: S, a: S::F, c: f32) -> (S::F, S::F) {
    let sum = s.add(a, s.splat(c));
    (s.div(a, sum), s.sqrt(sum))
}

/// The polynomial `c` about the point `middle`.
#[inline(always)]
fn at<S: Simd, const N: usize>(s: S, t: S::F, middle: f32, c: [f32; N]) -> S::F {
    about(s, s.sub(t, s.splat(middle)), c)
}

/// |x|, or the largest finite number for infinities; NaN stays NaN.
#[inline(always)]
fn finite_size<S: Simd>(s: S, x: S::F) -> S::F {
    s.min(s.splat(f32::MAX), s.abs(x))
}

/// `y`, or `limit` where x is infinite.
#[inline(always)]
fn at_infinity<S: Simd>(s: S, x: S::F, limit: f32, y: S::F) -> S::F {
    s.select(s.eq(s.abs(x), s.splat(f32::INFINITY)), s.splat(limit), y)
}

/// e^{-|x|} I₀(x). At most 4 ULP (3.5 measured); zero at infinity, NaN stays NaN.
#[inline(always)]
pub fn i0e<S: Simd>(s: S, x: S::F) -> S::F {
    let (t, root) = ratio(s, finite_size(s, x), C0);
    let (low, high) = (at(s, t, 0.25, LOW0), at(s, t, 0.75, HIGH0));
    at_infinity(s, x, 0.0, s.div(s.select(s.lt(t, s.splat(0.5)), low, high), root))
}

/// An odd function's `size` with the sign of x. Zero for -0, as in PyTorch.
#[inline(always)]
fn signed<S: Simd>(s: S, size: S::F, x: S::F) -> S::F {
    s.select(s.lt(x, s.zero()), s.neg(size), size)
}

/// e^{-|x|} I₁(x). At most 4.5 ULP (3.95 measured); zero at infinity, of its sign, NaN stays NaN.
#[inline(always)]
pub fn i1e<S: Simd>(s: S, x: S::F) -> S::F {
    let (t, root) = ratio(s, finite_size(s, x), C1);
    let low = s.fma(t, polynomial(s, s.sub(t, s.splat(0.265_625)), LOW1), s.add(t, t));
    let y = s.div(s.select(s.lt(t, s.splat(SPLIT1)), low, at(s, t, 0.765_625, HIGH1)), root);
    signed(s, at_infinity(s, x, 0.0, y), x)
}

/// e^a times `scaled`, which is a function of this file, for a up to [`INFINITE`].
#[inline(always)]
fn grown<S: Simd>(s: S, a: S::F, scaled: S::F) -> S::F {
    let (n, t) = reduce(s, a);
    s.scale2(s.fma(scaled, t, scaled), n)
}

/// I₀(x). At most 4 ULP (3.7 measured); NaN at infinities, as in PyTorch, and NaN stays NaN.
#[inline(always)]
pub fn i0<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.min(s.splat(INFINITE), s.abs(x));
    let z = s.mul(a, a);
    let near = s.fma(z, polynomial(s, z, SERIES0), s.splat(1.0));
    let (t, root) = ratio(s, a, C0);
    let far = grown(s, a, s.div(at(s, t, 0.75, HIGH0), root));
    at_infinity(s, x, f32::NAN, s.select(s.lt(a, s.splat(NEAR)), near, far))
}

/// I₁(x). At most 4 ULP (2.9 measured); NaN at infinities, as in PyTorch, NaN stays NaN.
#[inline(always)]
pub fn i1<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.min(s.splat(INFINITE), s.abs(x));
    let z = s.mul(a, a);
    let near = s.mul(a, s.fma(z, polynomial(s, z, SERIES1), s.splat(0.5)));
    let (t, root) = ratio(s, a, C1);
    let far = grown(s, a, s.div(at(s, t, 0.765_625, HIGH1), root));
    let y = s.select(s.lt(a, s.splat(NEAR)), near, far);
    signed(s, at_infinity(s, x, f32::NAN, y), x)
}
