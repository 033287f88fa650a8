//! Arc sine, cosine and tangent of float64.

use super::{polynomial, terms};
use crate::vector_math::simd::Simd;
use std::f64::consts::{FRAC_PI_2, PI};

/// What the numbers nearest to π and π/2 lack.
const PI_LOW: f64 = 1.224_646_799_147_353_2e-16;
const FRAC_PI_2_LOW: f64 = PI_LOW / 2.0;
/// asin(w) / w³ - 1 / w², in w², for w in [0, ½]: error 2^-56.
const ASIN: [f64; 13] = [
    0.166_666_666_666_666_69,
    0.074_999_999_999_982_43,
    0.044_642_857_146_720_3,
    0.030_381_944_111_196_26,
    0.022_372_173_999_536_275,
    0.017_352_368_599_355_402,
    0.013_971_561_671_456_184,
    0.011_475_860_246_285_007,
    0.010_343_859_874_876_541,
    0.005_369_333_364_802_806,
    0.017_635_110_531_967_18,
    -0.015_209_288_309_718_802,
    0.028_996_414_690_760_062,
];
/// atan(q) / q³ - 1 / q² in q² - ½, for q in [0, 1]: error 2^-55. About the middle, where the terms do not cancel.
const ATAN: [f64; 20] = [
    -0.259_160_497_265_793_6,
    0.110_814_825_130_713_86,
    -0.054_814_840_604_580_285,
    0.029_135_862_645_292_332,
    -0.016_172_974_900_104_546,
    0.009_243_096_219_409_665,
    -0.005_394_792_736_198_837,
    0.003_199_175_345_646_707,
    -0.001_920_938_914_034_666_8,
    0.001_165_062_235_171_1,
    -0.000_712_530_280_726_267_2,
    0.000_438_797_807_276_164_04,
    -0.000_271_385_660_345_469_1,
    0.000_168_790_499_331_441_2,
    -0.000_107_909_950_861_677_62,
    6.835_739_456_838_083e-5,
    -3.502_104_661_485_183e-5,
    2.089_521_360_348_521_7e-5,
    -2.839_406_603_130_583_3e-5,
    1.907_311_143_548_131e-5,
];

/// `angle` + v + rest for |v| up to `angle`, where that is not zero, and a small rest.
#[inline(always)]
fn turned(angle: f64, v: f64, rest: f64) -> f64 {
    let (sum, lost) = terms::ordered_sum(angle, v);
    sum + (lost + rest)
}

/// (|x| > ½, w, asin w - w): w is |x| or, above ½, √((1 - |x|) / 2).
#[inline(always)]
fn arc<S: Simd>(s: S, x: f64) -> (bool, f64, f64) {
    let a = x.abs();
    let is_large = a > 0.5;
    // 1 - a is exact there.
    let z = if is_large { (1.0 - a) * 0.5 } else { a * a };
    let root = z.sqrt();
    let w = if is_large { root } else { a };
    let (square, rest) = terms::product(s, root, root);
    // What the root lacks; of zero, nothing.
    let lost = ((z - square) - rest) / (root + root + f64::MIN_POSITIVE);
    let lost = if is_large { lost } else { 0.0 };
    (is_large, w, s.fma_double(w * z, polynomial(s, z, ASIN), lost))
}

/// Arc sine. At most 0.7 ULP; NaN outside [-1, 1], -0 stays -0.
#[inline(always)]
pub fn asin<S: Simd>(s: S, x: f64) -> f64 {
    let (is_large, w, more) = arc(s, x);
    let large = turned(FRAC_PI_2, -(w + w), FRAC_PI_2_LOW - (more + more));
    (if is_large { large } else { w + more }).copysign(x)
}

/// Arc cosine. At most 0.7 ULP; NaN outside [-1, 1].
#[inline(always)]
pub fn acos<S: Simd>(s: S, x: f64) -> f64 {
    let (is_large, w, more) = arc(s, x);
    let small = turned(FRAC_PI_2, -w.copysign(x), FRAC_PI_2_LOW - more.copysign(x));
    let left = turned(PI, -(w + w), PI_LOW - (more + more));
    let large = if x < 0.0 { left } else { 2.0 * (w + more) };
    if is_large { large } else { small }
}

/// Arc tangent of q in [0, 1] less q.
#[inline(always)]
fn bend<S: Simd>(s: S, q: f64) -> f64 {
    let z = q * q;
    q * z * polynomial(s, z - 0.5, ATAN)
}

/// Arc tangent. At most 1.4 ULP; ±π/2 at infinity, -0 stays -0.
#[inline(always)]
pub fn atan<S: Simd>(s: S, x: f64) -> f64 {
    let a = x.abs();
    let is_large = a > 1.0;
    let q = (if is_large { 1.0 } else { a }) / (if is_large { a } else { 1.0 });
    let more = bend(s, q);
    let large = turned(FRAC_PI_2, -q, FRAC_PI_2_LOW - more);
    (if is_large { large } else { q + more }).copysign(x)
}

/// The angle of the point (x, y), in [-π, π]. At most 1.7 ULP; zeros count by their sign, as do infinities, and NaN
/// stays NaN.
#[inline(always)]
pub fn atan2<S: Simd>(s: S, y: f64, x: f64) -> f64 {
    let (ax, ay) = (x.abs(), y.abs());
    let is_steep = ay > ax;
    let (shorter, longer) = if is_steep { (ax, ay) } else { (ay, ax) };
    let q = shorter / (if longer == 0.0 { 1.0 } else { longer });
    let q = if shorter == f64::INFINITY { 1.0 } else { q };
    let more = bend(s, q);
    let is_left = 1f64.copysign(x) < 0.0;
    // The angle is q counted on from the right or the upper side, or back from the upper or the left one.
    let (start, low) = if is_left { (PI, PI_LOW) } else { (0.0, 0.0) };
    let (start, low) = if is_steep { (FRAC_PI_2, FRAC_PI_2_LOW) } else { (start, low) };
    let is_back = is_steep != is_left;
    let (v, more) = if is_back { (-q, -more) } else { (q, more) };
    let angle = turned(start, v, low + more).copysign(y);
    // A NaN may have been lost in a comparison.
    if x.is_nan() || y.is_nan() { x + y } else { angle }
}
