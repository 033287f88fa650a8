//! Distance in units in the last place, and the largest one met.

use std::fmt;

/// The largest error so far and the input where it occurred.
#[derive(Debug, Clone, Copy, Default)]
pub struct Worst {
    pub ulps: f64,
    pub input: f32,
    pub got: f32,
}

impl Worst {
    /// Takes in one block of results; `wanted` has one number per input.
    pub fn take(&mut self, inputs: &[f32], got: &[f32], wanted: &[f64], is_at_argument: bool) {
        for ((x, y), want) in inputs.iter().zip(got).zip(wanted) {
            if (*want as f32).to_bits() == y.to_bits() && self.ulps >= 0.5 {
                // Rounded correctly: at most half a unit.
                continue;
            }
            let size = if is_at_argument { want.abs().max(f64::from(x.abs())) } else { want.abs() };
            let ulps = ulps(*y, *want, size);
            if ulps > self.ulps {
                *self = Worst { ulps, input: *x, got: *y };
            }
        }
    }

    /// Keeps the larger of two.
    pub fn join(&mut self, other: Worst) {
        if other.ulps > self.ulps {
            *self = other;
        }
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} at {:e} (0x{:08x}) → {:e}", self.ulps, self.input, self.input.to_bits(), self.got)
    }
}

/// The largest f32's successor, where the scale ends.
const END: f64 = 340282366920938463463374607431768211456.0;

/// Distance of `got` from `want` in units in the last place of an f32 of the size `size`. Infinite for a
/// NaN in place of a number, a number in place of a NaN and for the wrong sign of a zero.
pub fn ulps(got: f32, want: f64, size: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == 0.0 && want == 0.0 {
        return if got.is_sign_negative() == want.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    let got = if got.is_infinite() { END.copysign(f64::from(got)) } else { f64::from(got) };
    let want = want.clamp(-END, END);
    let biased = ((size.to_bits() >> 52) & 0x7ff) as i32;
    let exponent = (biased - 1023).clamp(-126, 127);
    // 2^(exponent - 23), built from its bits.
    let unit = f64::from_bits(((exponent - 23 + 1023) as u64) << 52);
    (got - want).abs() / unit
}
