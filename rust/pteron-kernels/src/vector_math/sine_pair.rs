//! Sine and cosine of one float64, for loops that the compiler vectorises: no branches, no tables, and every product is
//! rounded, so that all instruction sets give the same bits.

use super::double::{MAGIC, polynomial};
use super::portable::Portable;

/// 33 bits of π/2, so that products with small integers are exact, and the rest.
const QUARTER_HIGH: f64 = 1.570_796_326_734_125_6;
const QUARTER_LOW: f64 = 6.077_100_506_506_192e-11;

/// (sin r - r) / r³ in r²: Taylor's series, whose next term is 8e-20 at π/4.
const SINE: [f64; 8] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
];
/// (cos r - 1 + r²/2) / r⁴ in r²; the next term is 2e-18 at π/4.
const COSINE: [f64; 7] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
];

/// (sin x, cos x) for |x| up to 1e5: at most 1 ULP but where they are below 1e-9, with an error of 1e-26 there.
#[inline(always)]
pub fn sin_cos(x: f64) -> (f64, f64) {
    let shifted = x * std::f64::consts::FRAC_2_PI + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * QUARTER_HIGH) - n * QUARTER_LOW;
    let square = r * r;
    let sine = r + r * square * polynomial(Portable, square, SINE);
    let half = 0.5 * square;
    let rough = 1.0 - half;
    // What `rough` lost to rounding is added to the small terms.
    let cosine = rough + (((1.0 - rough) - half) + square * square * polynomial(Portable, square, COSINE));
    let quarter = shifted.to_bits();
    let is_odd = quarter & 1 != 0;
    let (sin, cos) = if is_odd { (cosine, sine) } else { (sine, cosine) };
    let signed = |v: f64, sign: u64| f64::from_bits(v.to_bits() ^ (sign & 2) << 62);
    (signed(sin, quarter), signed(cos, quarter.wrapping_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_the_library() {
        let turns = (0..20_000).map(|i| f64::from(i) * 3.7e-4 - 0.5);
        let quarters = (0..5).map(|i| f64::from(i) * std::f64::consts::FRAC_PI_2);
        for x in turns.chain(quarters).chain([1e5, -9e4, 1e-300, 0.0]) {
            let (sin, cos) = sin_cos(x);
            for (found, want) in [(sin, libm::sin(x)), (cos, libm::cos(x))] {
                assert!((found - want).abs() <= want.abs() * f64::EPSILON + 2e-26, "{x}: {found} {want}");
            }
        }
        assert!(sin_cos(f64::NAN).0.is_nan() && sin_cos(f64::NAN).1.is_nan());
    }
}
