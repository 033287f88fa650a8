//! Arguments of sine, cosine and tangent: x = n π/2 + r with |r| ≤ π/4, for every f32.
//!
//! Up to 8192 by π/2 in pieces of eleven bits, whose products with n are exact without fused arithmetic.
//! Beyond, and that is rare, number by number with as many bits of 2/π as the argument's exponent asks for (Payne
//! and Hanek, "Radian reduction for trigonometric functions", 1983).

use super::simd::{MOST_LANES, Simd};

/// Largest magnitude that the pieces of π/2 suffice for: n has thirteen bits.
const DIRECT: f32 = 8192.0;
/// π/2, eleven bits at a time, then the rest.
const PIECES: [f32; 5] = [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_283e-12, 6.123_234e-17];
/// 1.5 · 2^23: adding it leaves the integer in the lowest bits.
const MAGIC: f32 = 12_582_912.0;

/// The first 256 bits of 2/π behind the point.
const TWO_OVER_PI: [u128; 2] =
    [0xa2f9_836e_4e44_1529_fc27_57d1_f534_ddc0, 0xdb62_9599_3c43_9041_fe51_63ab_debb_c561];

/// n, of which the lowest two bits count, r and what r lacks; r is NaN for infinities and NaN.
#[inline(always)]
pub(super) fn reduce<S: Simd>(s: S, x: S::F) -> (S::I, S::F, S::F) {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::FRAC_2_PI)));
    // The first two differences are exact; of the third the rounding error is kept.
    let start = s.fnma(n, s.splat(PIECES[1]), s.fnma(n, s.splat(PIECES[0]), x));
    let high = s.fnma(n, s.splat(PIECES[2]), start);
    let rest = s.fnma(n, s.splat(PIECES[2]), s.sub(start, high));
    let rest = s.fnma(n, s.splat(PIECES[4]), s.fnma(n, s.splat(PIECES[3]), rest));
    let r = s.add(high, rest);
    let low = s.add(s.sub(high, r), rest);
    let quarter = s.to_bits(s.add(n, s.splat(MAGIC)));
    if !s.any(s.gt(s.abs(x), s.splat(DIRECT))) {
        return (quarter, r, low);
    }
    let (mut angles, mut rests, mut quarters) = ([0f32; MOST_LANES], [0f32; MOST_LANES], [0f32; MOST_LANES]);
    // SAFETY: the arrays hold every lane.
    unsafe {
        s.store(angles.as_mut_ptr(), x);
        reduce_large(&mut angles, &mut rests, &mut quarters);
        let quarter = s.to_bits(s.add(s.load(quarters.as_ptr()), s.splat(MAGIC)));
        (quarter, s.load(angles.as_ptr()), s.load(rests.as_ptr()))
    }
}

/// Puts r in the place of every number, what it lacks into `rests`, and n mod 4 into `quarters`.
#[cold]
#[inline(never)]
fn reduce_large(
    angles: &mut [f32; MOST_LANES],
    rests: &mut [f32; MOST_LANES],
    quarters: &mut [f32; MOST_LANES],
) {
    for ((x, rest), quarter) in angles.iter_mut().zip(rests).zip(quarters) {
        if !x.is_finite() {
            *x = f32::NAN;
            continue;
        }
        let (n, r) = match x.abs() <= DIRECT {
            true => {
                let n = (f64::from(*x) * std::f64::consts::FRAC_2_PI).round_ties_even();
                // The second number is what float64 leaves out of π/2.
                (n, (f64::from(*x) - n * std::f64::consts::FRAC_PI_2) - n * 6.123_233_995_736_766e-17)
            }
            false => by_bits(*x),
        };
        (*x, *quarter) = (r as f32, n as f32);
        *rest = (r - f64::from(*x)) as f32;
    }
}

/// (n mod 4, r) of a finite number of at least 2^13.
fn by_bits(x: f32) -> (f64, f64) {
    let exponent = (x.to_bits() >> 23 & 0xff) as i32 - 150;
    let mantissa = u128::from(x.to_bits() & 0x007f_ffff | 0x0080_0000);
    // Bits of 2/π before `first` make multiples of four turns; a hundred are more than enough after it.
    let first = (exponent - 2).clamp(0, 127) as u32;
    let high = match first {
        0 => TWO_OVER_PI[0],
        _ => TWO_OVER_PI[0] << first | TWO_OVER_PI[1] >> (128 - first),
    };
    let product = mantissa * (high >> 28);
    let fraction_bits = (100 + first as i32 - exponent).clamp(1, 126) as u32;
    let n = (product + (1 << (fraction_bits - 1))) >> fraction_bits;
    let rest = product.wrapping_sub(n << fraction_bits) as i128 as f64 / 2f64.powi(fraction_bits as i32);
    let (n, r) = ((n & 3) as f64, rest * std::f64::consts::FRAC_PI_2);
    if x < 0.0 { (-n, -r) } else { (n, r) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arguments_as_long_arithmetic_has_them() {
        // sin and cos in 400 bits of mpmath.
        for (x, sin, cos) in [
            (1e5f32, 0.035_748_797_972_016_5, -0.999_360_807_438_212_5),
            (16_777_216.0, -0.779_563_673_217_777_8, 0.626_322_983_291_532_9),
            (f32::MAX, -0.521_876_523_333_658_5, 0.853_021_039_830_304_2),
        ] {
            let (n, r) = by_bits(x);
            let got = match n as i64 & 3 {
                0 => (r.sin(), r.cos()),
                1 => (r.cos(), -r.sin()),
                2 => (-r.sin(), -r.cos()),
                _ => (-r.cos(), r.sin()),
            };
            assert!((got.0 - sin).abs() < 1e-15 && (got.1 - cos).abs() < 1e-15, "{x}: {got:?}");
        }
    }
}
