//! Bessel functions of the second kind of orders zero and one in float64, for positive numbers below eight, for loops that the
//! compiler vectorises. Every product is rounded: all instruction sets give the same bits.
//!
//! Y0 = 2/π ln x J0 + R0 and Y1 = 2/π (ln x J1 - 1/x) + x R1, where J0, J1/x, R0 and R1 are power series in x²
//! (Abramowitz and Stegun, Handbook of Mathematical Functions, 9.1.11). Below, these are polynomials in t = x²/32 - 1,
//! between -1 and 1: interpolated at Chebyshev's nodes with fifty digits. What they leave out is below 2e-17.

use super::double::{log, polynomial};
use super::portable::Portable;
use std::f64::consts::FRAC_2_PI;

/// Numbers below it are in reach.
pub const LIMIT: f64 = 8.0;

/// J0.
const J0: [f64; 19] = [
    0.045_829_664_859_813_77,
    0.930_301_247_295_857_2,
    -0.648_469_283_087_183_7,
    -0.808_088_807_669_687,
    1.038_379_461_143_721_1,
    -0.507_468_045_847_102,
    0.145_988_848_567_592_73,
    -0.028_472_718_610_869_575,
    0.004_058_078_989_140_49,
    -0.000_443_545_922_472_722_07,
    3.847_319_785_739_11e-5,
    -2.717_749_145_023_612e-6,
    1.595_610_885_904_22e-7,
    -7.915_407_738_244_705e-9,
    3.363_471_859_731_152e-10,
    -1.238_463_725_979_940_5e-11,
    3.990_813_460_898_220_5e-13,
    -1.138_222_421_972_995_5e-14,
    2.877_737_927_781_749_3e-16,
];
/// R0.
const R0: [f64; 19] = [
    -0.382_250_654_459_425,
    -0.828_435_890_360_458_7,
    1.647_096_478_874_546_6,
    0.144_126_323_693_024_42,
    -1.077_547_733_821_599_5,
    0.672_177_078_343_172_3,
    -0.218_957_470_961_716_5,
    0.046_367_047_681_347_1,
    -0.007_025_741_057_269_826,
    0.000_806_158_606_055_064_4,
    -7.279_541_882_784_614e-5,
    5.321_318_633_735_118e-6,
    -3.218_507_788_508_935_7e-7,
    1.639_106_526_825_776_8e-8,
    -7.130_516_933_709_929e-10,
    2.681_822_138_003_041_4e-11,
    -8.810_528_980_336_584e-13,
    2.558_039_399_850_299e-14,
    -6.574_025_715_773_563e-16,
];
/// J1 / x.
const J1: [f64; 17] = [
    -0.058_143_827_955_991_07,
    0.081_058_660_385_897_96,
    0.151_516_651_438_066_34,
    -0.259_594_865_285_930_3,
    0.158_583_764_327_219_38,
    -0.054_745_818_212_847_22,
    0.012_456_814_392_255_438,
    -0.002_029_039_494_570_599_6,
    0.000_249_494_581_390_904_94,
    -2.404_574_865_968_698_3e-5,
    1.868_452_537_205_727_2e-6,
    -1.196_708_186_787_217_2e-7,
    6.431_268_785_753_088e-9,
    -2.943_013_798_390_916e-10,
    1.161_059_791_404_296_5e-11,
    -4.004_572_738_786_147e-13,
    1.209_361_339_633_828_9e-14,
];
/// R1.
const R1: [f64; 16] = [
    0.070_759_858_821_180_05,
    -0.243_377_430_791_931_14,
    0.023_367_571_720_993_48,
    0.235_072_092_066_697_55,
    -0.196_398_398_599_302_03,
    0.078_547_869_222_425_38,
    -0.019_628_756_833_117_11,
    0.003_422_490_739_918_527_3,
    -0.000_443_817_343_442_018_36,
    4.467_433_012_725_2e-5,
    -3.601_000_022_585_099_2e-6,
    2.380_493_031_731_060_4e-7,
    -1.315_314_737_099_212_9e-8,
    6.169_694_909_376_002e-10,
    -2.499_531_434_822_496_3e-11,
    8.758_166_378_734_063e-13,
];

#[inline(always)]
fn scaled(x: f64) -> f64 {
    x * x * (1.0 / 32.0) - 1.0
}

/// Y0 of x in `0..8`, without its ends: within 1.2e-15 of the larger of one and its size.
#[inline(always)]
pub fn y0(x: f64) -> f64 {
    let t = scaled(x);
    FRAC_2_PI * log(Portable, x) * polynomial(Portable, t, J0) + polynomial(Portable, t, R0)
}

/// Y1 of x in `0..8`, without its ends: within 1.2e-15 of the larger of one and its size.
#[inline(always)]
pub fn y1(x: f64) -> f64 {
    let t = scaled(x);
    let rest = log(Portable, x) * (x * polynomial(Portable, t, J1)) - 1.0 / x;
    FRAC_2_PI * rest + x * polynomial(Portable, t, R1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_the_library() {
        let grid = (1..4000).map(|i| f64::from(i) * 0.002);
        let ends = [
            f64::MIN_POSITIVE,
            1e-200,
            1e-20,
            1e-8,
            1e-3,
            8.0 - 1e-15,
            0.893_576_966_279_167_5,
            2.197_141_326_031_017,
        ];
        for x in grid.chain(ends) {
            for (found, want) in [(y0(x), libm::y0(x)), (y1(x), libm::y1(x))] {
                assert!((found - want).abs() <= 1.5e-15 * want.abs().max(1.0), "{x}: {found} {want}");
            }
        }
        // 2 / (π x) overflows.
        assert_eq!(y1(5e-324), f64::NEG_INFINITY);
    }
}
