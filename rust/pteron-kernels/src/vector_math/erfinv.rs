//! The inverse of the error function: x times a polynomial in w = -ln(1 - x²), or in √w near ±1, as M. Giles has it
//! ("Approximating the erfinv function", GPU Computing Gems, Jade Edition, 2011); the polynomials are our own, of
//! least maximum of the relative error by reweighted least squares on Chebyshev nodes.

use super::exp::about;
use super::log::log;
use super::simd::Simd;

/// From here on the polynomial is one in √w.
const SPLIT: f32 = 5.0;
/// erfinv(x) / x in w - 5/2 for w in 0..=5: relative error 6e-9, 2.2e-8 with rounded coefficients.
const CENTRE: [f32; 11] = [
    1.501_409_4,
    -5.214_786_5e-8,
    0.246_640_28,
    -0.004_177_387,
    -0.001_252_741_9,
    2.183_444_4e-4,
    -4.963_347_7e-6,
    -3.462_704_9e-6,
    4.661_706_6e-7,
    2.323_264_4e-8,
    -8.791_057e-9,
];
/// erfinv(x) / x in √w - 25/8 for w in 5..=16, which holds all f32 below one: relative error 6e-9, 1.8e-8 with rounded
/// coefficients.
const TAIL: [f32; 11] = [
    2.958_320_1,
    -7.629_096e-9,
    1.003_718_7,
    0.007_049_046_5,
    -0.005_301_045_7,
    0.003_781_668_1,
    -0.002_520_972_9,
    0.001_310_627_7,
    -3.231_046_4e-4,
    -1.737_095_2e-4,
    1.291_584_9e-4,
];

/// The number whose error function is x. At most 3 ULP; infinite at ±1, NaN beyond, -0 stays -0.
#[inline(always)]
pub fn erfinv<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    // Infinite at ±1, NaN beyond; a little below zero it may come out where it is all but zero.
    let w = s.neg(log(s, s.mul(s.sub(one, x), s.add(one, x))));
    let centre = about(s, s.sub(w, s.splat(2.5)), CENTRE);
    let tail = about(s, s.sub(s.sqrt(w), s.splat(3.125)), TAIL);
    // The highest coefficient of the tail is above zero, so that infinity comes through.
    s.mul(x, s.select(s.lt(w, s.splat(SPLIT)), centre, tail))
}
