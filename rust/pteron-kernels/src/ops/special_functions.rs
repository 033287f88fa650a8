//! Special functions of one number: erfc, erfinv, lgamma, digamma, i0.
//!
//! Shape: that of `self`. Dtype: integers and bool compute in float32; every dtype but float64 is
//! computed in float64 and rounded. Edge cases: as PyTorch has them, `digamma` of a negative integer
//! is NaN and of a zero the infinity of the other sign, `i0` of an infinity is NaN.
//!
//! Sources: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.3 (digamma);
//! S. Winitzki, "A handy approximation for the error function and its inverse" (2008).

use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::operator::{Operator, kernel};
use crate::ops::bessel_functions::i0;
use std::f64::consts::{FRAC_2_SQRT_PI, PI};

/// The number whose error function is `y`.
fn erfinv(y: f64) -> f64 {
    let size = y.abs();
    if size.is_nan() || size > 1.0 {
        return f64::NAN;
    }
    if size == 1.0 || y == 0.0 {
        return if y == 0.0 { y } else { y * f64::INFINITY };
    }
    // Within 0.2 percent; each of Halley's steps then cubes the error.
    let rest = 1.0 - size;
    let log = (rest * (1.0 + size)).ln();
    const A: f64 = 0.147;
    let half = 2.0 / (PI * A) + log / 2.0;
    // The difference of the roots, without cancellation for small arguments.
    let square = -log / A / ((half * half - log / A).sqrt() + half);
    let mut x = if size < 1e-4 { size / FRAC_2_SQRT_PI } else { square.sqrt() };
    for _ in 0..3 {
        // Near one, the complement is the number that has digits left.
        let miss = if size < 0.5 { libm::erf(x) - size } else { rest - libm::erfc(x) };
        let step = miss / (FRAC_2_SQRT_PI * (-x * x).exp());
        x -= step / (1.0 + step * x);
    }
    x.copysign(y)
}

/// The logarithmic derivative of the gamma function.
pub(crate) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        // Reflection; only the fraction decides the tangent.
        return digamma(1.0 - x) - PI / (PI * (x - x.trunc())).tan();
    }
    let (mut at, mut sum) = (x, 0.0);
    while at < 10.0 {
        sum -= 1.0 / at;
        at += 1.0;
    }
    let r = 1.0 / (at * at);
    const BERNOULLI: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0];
    let series = BERNOULLI.iter().rev().fold(0.0, |s, b| (s + b) * r);
    sum + at.ln() - 0.5 / at - series
}

macro_rules! special_function {
    ($name:literal, $function:expr) => {
        kernel(concat!("aten::", $name, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"), |ctx| {
            let dtypes = Dtypes::same(Positions::UNARY.promoted_to_float(ctx)?);
            float(
                ctx,
                Positions::UNARY,
                dtypes,
                |x, _, _, _| $function(f64::from(x)) as f32,
                |x, _, _, _| $function(x),
            )
        })
    };
}

/// erfc and its kin.
pub static OPERATORS: &[Operator] = &[
    special_function!("erfc", libm::erfc).within_ulps(4.0),
    special_function!("erfinv", erfinv),
    special_function!("lgamma", libm::lgamma).within_ulps(4.0),
    special_function!("digamma", digamma),
    special_function!("i0", i0),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::DType;

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-14 * want.abs().max(1.0), "{got} for {want}");
    }

    #[test]
    fn the_inverse_gives_the_argument_back() {
        for x in [1e-300, 1e-9, 1e-4, 0.3, 0.477, 0.9, 2.0, 3.7] {
            let y = libm::erf(x);
            // A rounding of `y` moves the answer by its slope there.
            let slope = (x * x).exp() * 1e-16;
            assert!((erfinv(y) / x - 1.0).abs() < 1e-14 + slope / x, "{x}");
            assert_eq!(erfinv(-y), -erfinv(y));
        }
        assert_eq!((erfinv(1.0), erfinv(-1.0)), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(erfinv(1.5).is_nan() && erfinv(f64::NAN).is_nan() && erfinv(-0.0).is_sign_negative());
    }

    #[test]
    fn digamma_at_known_points() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        close(digamma(1.0), -EULER);
        close(digamma(0.5), -EULER - 2.0 * 2f64.ln());
        close(digamma(-0.5), 2.0 - EULER - 2.0 * 2f64.ln());
        close(digamma(1e6), 13.815_510_057_964_19);
        assert_eq!((digamma(0.0), digamma(-0.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(digamma(-3.0).is_nan() && digamma(f64::NEG_INFINITY).is_nan());
        assert_eq!(digamma(f64::INFINITY), f64::INFINITY);
    }

    #[test]
    fn both_series_of_i0_meet() {
        assert_eq!(i0(0.0), 1.0);
        close(i0(1.0), 1.266_065_877_752_008_3);
        assert!((i0(30.0 + 1e-12) / i0(30.0) - 1.0).abs() < 1e-11);
        assert!(i0(700.0).is_finite() && i0(f64::INFINITY).is_nan());
    }

    #[test]
    fn integers_compute_in_float32_and_results_stay_floats() {
        let x = Tensor::of(&[2], &[3i32, 5]);
        let y =
            run_out("aten::lgamma.out", &[x.clone().into()], DType::Float32, &[2]).unwrap().values::<f32>();
        assert_eq!(y, [2f32.ln(), 24f32.ln()]);
        let e = run_out("aten::erfc.out", &[x.into()], DType::Int32, &[2]);
        assert!(error_text(e).contains("output's dtype"));
    }
}
