//! The error function of float64, its complement and its inverse. Up to one half by an odd polynomial, above by e^{-a²}
//! times a function that is all but 1 / (a + ½).

use super::exponentials::reduce;
use super::{log, polynomial, scale, terms};
use crate::vector_math::simd::Simd;

/// erf(x) / x - 1 in x² up to one half: error 2^-57.
const NEAR: [f64; 9] = [
    0.128_379_167_095_512_56,
    -0.376_126_389_031_834_76,
    0.112_837_916_709_255_62,
    -0.026_866_170_632_954_3,
    0.005_223_977_374_062_972,
    -8.548_297_842_497_48e-4,
    1.205_333_932_140_174_4e-4,
    -1.484_595_253_304_383_4e-5,
    1.472_689_787_947_734_2e-6,
];
/// e^{a²} erfc(a) (a + ½) - ½ in 1 / (a + 3) - [`CENTRE`], for a in 0.46..=27.3: relative error of the function 2^-57. All are
/// small, so that the half is what rounds.
const SCALED: [f64; 22] = [
    0.124_228_591_090_335_03,
    0.415_103_439_963_711_4,
    -0.637_430_508_650_361_5,
    -12.370_308_654_724_994,
    -70.193_402_806_478_43,
    -247.412_122_514_101_55,
    -539.500_827_672_284_1,
    -419.863_897_373_431_03,
    1_386.686_762_722_292_5,
    4_067.060_220_309_905,
    -1_793.410_702_704_552_2,
    -22_736.277_349_591_706,
    -4_075.189_933_658_794,
    130_817.105_017_333_19,
    40_658.157_895_193_46,
    -837_555.072_413_964_8,
    -40_890.799_017_105_98,
    5_704_689.197_883_743,
    -2_312_471.547_178_898,
    -35_980_401.661_121_1,
    21_190_912.782_144_576,
    148_989_025.073_818_48,
];
const CENTRE: f64 = 0.161_132_812_5;
/// erfinv(x) / x - 1 in 0.49 - x² for x up to 0.7, as a quotient: error 2^-58. About the end, where all coefficients of the
/// divisor are positive.
const ABOVE: [f64; 7] = [
    0.046_955_825_656_024_07,
    -0.223_899_006_944_129_4,
    -1.588_631_435_602_692_7,
    -2.756_117_791_903_093,
    -1.862_620_327_135_548_8,
    -0.467_372_055_642_985_23,
    -0.029_281_566_087_655_905,
];
const BELOW: [f64; 7] = [
    1.0,
    5.432_512_874_750_886,
    11.039_919_775_046_826,
    10.383_534_648_361_28,
    4.519_926_362_817_894,
    0.787_266_980_249_789_2,
    0.035_325_940_528_174_16,
];
/// erfinv(x) / t - 1 for t = √-ln(1 - x) in (t - k) / (t + k), k = 2.5625, for x from 0.6953 to the last number below one:
/// error 2^-57. The logarithmic singularity at 1 - x = 2 is as far from the range as infinity is.
const TAIL: [f64; 23] = [
    -0.118_843_354_754_023_2,
    0.330_460_183_266_946_54,
    -0.380_597_092_870_395_06,
    0.270_627_860_874_704,
    -0.126_269_319_097_421_92,
    -0.005_250_992_382_237_099,
    0.088_235_003_996_476_16,
    -0.115_501_510_020_634_25,
    0.094_545_039_022_180_37,
    -0.045_692_783_466_605_33,
    -0.008_709_896_600_928_439,
    0.049_002_131_548_420_88,
    -0.064_548_480_764_657_79,
    0.054_359_256_212_908_005,
    -0.026_353_870_907_295_743,
    -0.007_108_161_711_083_148,
    0.032_865_608_066_249_42,
    -0.042_626_060_582_362_19,
    0.038_596_582_480_576_7,
    -0.024_456_873_924_281_752,
    -0.008_736_422_647_271_215,
    0.043_460_569_778_312_12,
    -0.031_238_581_324_043_4,
];

/// erf x - x for x within ±½.
#[inline(always)]
fn near<S: Simd>(s: S, x: f64) -> f64 {
    x * polynomial(s, x * x, NEAR)
}

/// erfc a for a in 0.46..=28.
#[inline(always)]
fn far<S: Simd>(s: S, a: f64) -> f64 {
    let (square, rest) = terms::product(s, a, a);
    let (shifted, r, q) = reduce(s, -square);
    let t = r + q;
    let t = s.fma_double(-rest, 1.0 + t, t);
    // 1 / (a + ½) with what sum and quotient lack.
    let (sum, lost) = terms::sum(a, 0.5);
    let u = 1.0 / sum;
    let (one, lack) = terms::product(s, sum, u);
    let low = u * (((1.0 - one) - lack) - lost * u);
    let more = polynomial(s, 1.0 / (a + 3.0) - CENTRE, SCALED);
    let v = s.fma_double(0.5, u, s.fma_double(u, more, 0.5 * low));
    scale(s, s.fma_double(v, t, v), shifted)
}

/// |x|, no larger than where the complement is zero.
#[inline(always)]
fn bounded_size(x: f64) -> f64 {
    let a = x.abs();
    if a > 28.0 { 28.0 } else { a }
}

/// The error function. At most 1.7 ULP; NaN stays NaN, -0 stays -0.
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: f64) -> f64 {
    let a = bounded_size(x);
    let rest = far(s, a);
    (if a < 0.5 { a + near(s, a) } else { 1.0 - rest }).copysign(x)
}

/// 1 - erf x. At most 2.5 ULP, subnormal results included; NaN stays NaN.
#[inline(always)]
pub fn erfc<S: Simd>(s: S, x: f64) -> f64 {
    let a = bounded_size(x);
    let rest = far(s, a);
    let far = if x < 0.0 { 2.0 - rest } else { rest };
    if a < 0.5 { 1.0 - (x + near(s, x)) } else { far }
}

/// The number whose error function is x. At most 2.8 ULP; infinite at ±1, NaN beyond, -0 stays -0.
#[inline(always)]
pub fn erfinv<S: Simd>(s: S, x: f64) -> f64 {
    const MIDDLE: f64 = 2.562_5;
    let a = x.abs();
    let is_near = a < 0.7;
    let y = s.fma_double(-a, a, 0.49);
    let t = (-log(s, 1.0 - a)).sqrt();
    // One division for both.
    let above = if is_near { polynomial(s, y, ABOVE) } else { t - MIDDLE };
    let below = if is_near { polynomial(s, y, BELOW) } else { t + MIDDLE };
    let quotient = above / below;
    let factor = if is_near { quotient } else { polynomial(s, quotient, TAIL) };
    let whole = if is_near { a } else { t };
    let y = s.fma_double(whole, factor, whole);
    let y = if a == 1.0 { f64::INFINITY } else { y };
    (if a <= 1.0 { y } else { f64::NAN }).copysign(x)
}
