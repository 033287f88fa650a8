//! x^y in float32: 2^(y log₂|x|) in float64, lane by lane in loops that the compiler vectorises, then the signs and
//! limits of IEEE 754's `pow`.

use super::double;
use super::simd::{MOST_LANES, Simd};

/// log₂((1 + s) / (1 - s)) / s in s², for |s| ≤ (√2 - 1) / (√2 + 1); relative error 2^-52.
const LOG2: [f64; 7] = [
    2.885_390_081_777_927,
    0.961_796_693_924_324_5,
    0.577_078_017_250_872_9,
    0.412_198_401_306_843_4,
    0.320_616_442_124_484_6,
    0.261_442_455_571_365_53,
    0.242_938_246_063_263_22,
];
/// 2^r for |r| ≤ ½; relative error 2^-40.
const EXP2: [f64; 9] = [
    1.0,
    0.693_147_180_545_911,
    0.240_226_506_958_128_33,
    0.055_504_109_412_957_17,
    0.009_618_129_159_464_759,
    0.001_333_345_048_181_932_7,
    1.540_345_579_274_964_7e-4,
    1.531_010_238_038_351e-5,
    1.325_524_079_720_696_6e-6,
];
/// Results below 2^-160 are zero in f32, above 2^160 infinite.
const RANGE: f64 = 160.0;

/// |x|^y for every |x| and y but those with a NaN on the way.
#[inline(always)]
fn magnitude<S: Simd>(s: S, x: f32, y: f32) -> f32 {
    let a = f64::from(x.abs());
    let (k, m) = double::split(a);
    let q = (m - 1.0) / (m + 1.0);
    let log2 = s.fma_double(q, double::polynomial(s, q * q, LOG2), k);
    let log2 = if a == 0.0 { f64::NEG_INFINITY } else { log2 };
    let log2 = if a == f64::INFINITY { a } else { log2 };
    let t = f64::from(y) * log2;
    let t = if t < -RANGE { -RANGE } else { t };
    let t = if t > RANGE { RANGE } else { t };
    let shifted = t + double::MAGIC;
    let n = shifted - double::MAGIC;
    (double::polynomial(s, t - n, EXP2) * double::power_of_two(shifted)) as f32
}

/// x^y. At most 0.6 ULP. x^0 and 1^y are one for every x and y; a negative x has powers for integers only.
#[inline(always)]
pub fn pow<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let (mut xs, mut ys) = ([0f32; MOST_LANES], [0f32; MOST_LANES]);
    // SAFETY: the arrays hold every lane.
    unsafe {
        s.store(xs.as_mut_ptr(), x);
        s.store(ys.as_mut_ptr(), y);
    }
    for i in 0..S::LANES {
        xs[i] = magnitude(s, xs[i], ys[i]);
    }
    // SAFETY: `xs` has MOST_LANES elements, at least a whole vector.
    let size = unsafe { s.load(xs.as_ptr()) };
    let (zero, one, infinity) = (s.zero(), s.splat(1.0), s.splat(f32::INFINITY));
    let (a, half) = (s.abs(x), s.mul(y, s.splat(0.5)));
    let is_integer = s.eq(s.round(y), y);
    let is_odd = s.not(s.or(s.not(is_integer), s.eq(s.round(half), half)));
    let sign = super::tanh::with_sign_of(s, one, x);
    let is_negative = s.lt(sign, zero);
    let signed = s.select(is_negative, s.select(is_odd, s.neg(size), size), size);
    // -0 and -inf have powers that are not integers: those of 0 and inf.
    let has_power = s.or(s.or(is_integer, s.not(is_negative)), s.or(s.eq(a, zero), s.eq(a, infinity)));
    let v = s.select(has_power, signed, s.splat(f32::NAN));
    // (±1)^±inf.
    let flat = s.eq(s.abs(y), infinity);
    let v = s.select(flat, s.select(s.eq(a, one), one, v), v);
    let v = s.select(s.eq(x, x), s.select(s.eq(y, y), v, y), x);
    s.select(s.eq(x, one), one, s.select(s.eq(y, zero), one, v))
}
