//! Special functions of one number: erfc, erfinv, lgamma, digamma, i0.
//!
//! Shape: that of `self`. Dtype: integers and bool compute in float32; every dtype but float64 is
//! computed in float64 and rounded, but for the fast kernels of erfc, erfinv and i0, which compute in float32.
//! Edge cases: as PyTorch has them, `digamma` of a negative integer is NaN and of a zero the infinity of the other
//! sign, `i0` of an infinity is NaN.
//!
//! Sources: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.3 (digamma);
//! S. Winitzki, "A handy approximation for the error function and its inverse" (2008).

use crate::elementwise::lanewise::lanes;
use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::elementwise::pointwise::functions;
use crate::operator::{Operator, kernel};
use crate::ops::bessel_functions::i0;
use crate::vector_math::{bessel, double::error_function, erfc, erfinv as inverse};
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

functions! {
    /// 1 - erf x.
    Erfc = "erfc", 14, ulps 4.0, |s, [x]| erfc::erfc(s, x);
    /// The number whose error function is x.
    Erfinv = "erfinv", 16, ulps 4.0, |s, [x]| inverse::erfinv(s, x);
    /// The modified Bessel function of order zero.
    I0 = "i0", 16, ulps 4.0, |s, [x]| bessel::i0(s, x);
}

lanes! {
    LaneErfc: [] f64 => f64 = "erfc", 80, |s, [x]| error_function::erfc(s, x);
    LaneErfinv: [] f64 => f64 = "erfinv", 130, |s, [x]| error_function::erfinv(s, x);
}

/// erfc and its kin.
pub static OPERATORS: &[Operator] = &[
    special_function!("erfc", libm::erfc).float::<Erfc, 1>().doubles::<LaneErfc, 1>(),
    special_function!("erfinv", erfinv).float::<Erfinv, 1>().doubles::<LaneErfinv, 1>(),
    special_function!("lgamma", libm::lgamma).within_ulps(4.0),
    special_function!("digamma", digamma),
    special_function!("i0", i0).float::<I0, 1>(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{Tensor, error_text, run_out};
    use half::{bf16, f16};
    use pteron_core::{DType, Element, Isa, StaticKernel};

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

    /// What `kernel` makes of `x` on this instruction set, in place where that is asked for; nothing where it declines.
    fn answer<T: Element>(kernel: &StaticKernel, isa: Isa, x: &[T], is_in_place: bool) -> Option<Vec<T>> {
        let out = match is_in_place {
            true => CallArg::SameBytesAs(0),
            false => CallArg::Tensor(HostTensor::zeros(T::DTYPE, &[x.len()]).unwrap()),
        };
        let args = vec![CallArg::Tensor(HostTensor::new(&[x.len()], x).unwrap()), out];
        let mut call = SingleCall::new(kernel.prepare, &profile(isa)?, args).unwrap()?;
        call.call().unwrap();
        Some(call.output(1).unwrap())
    }

    /// Compares the fast kernel of every operator that has one with the plain one, and answers how many results it saw.
    fn compare<T: Element + std::fmt::Debug>(x: &[T], is_close: fn(T, T) -> bool) -> usize {
        let all = OPERATORS.iter().chain(crate::ops::bessel_functions::OPERATORS);
        let mut seen = 0;
        for row in all {
            let Some(fast) = row.fast_kernels().next() else { continue };
            let Some(plain) = row.plain_kernels().next() else { continue };
            for isa in Isa::ALL {
                for n in [0, 1, 7, 33, x.len()] {
                    let Some(got) = answer(&fast, isa, &x[..n], n == 7) else { continue };
                    let want = answer(&plain, isa, &x[..n], false).unwrap();
                    for i in 0..n {
                        let (x, got, want) = (x[i], got[i], want[i]);
                        assert!(is_close(got, want), "{} {isa:?} {x:?}: {got:?} for {want:?}", row.name());
                        seen += 1;
                    }
                }
            }
        }
        seen
    }

    /// Numbers of all sizes, behind those where something changes.
    fn inputs() -> Vec<f32> {
        let mut x: Vec<f32> = vec![];
        for edge in
            [0.0, 0.5, 0.921_875, 1.0, 2.571_428_5, 4.0, 9.2, 10.05, 10.06, 88.73, 91.9, 91.91, 1e-45, 1e-38]
        {
            for near in [f32::next_down(edge), edge, f32::next_up(edge)] {
                x.extend([near, -near]);
            }
        }
        x.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.996_6, 1.0 - 6e-8]);
        x.extend((0..2000).map(|i| (i - 1000) as f32 * 1e-3));
        x.extend((0..2000).map(|i| (i - 1000) as f32 * 0.1));
        x.extend((0..2000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))));
        x
    }

    #[test]
    fn fast_kernels_agree_with_the_plain_ones() {
        // Steps between neighbouring numbers, across zero too; of zeros and infinities the sign counts.
        fn steps(a: f32, b: f32) -> i64 {
            let order =
                |v: f32| i64::from(v.to_bits() & 0x7fff_ffff) * if v.is_sign_negative() { -1 } else { 1 };
            (order(a) - order(b)).abs()
        }
        let seen = compare(&inputs(), |got, want| {
            let is_special = want == 0.0 && got == 0.0;
            if is_special || want.is_nan() {
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
            } else {
                steps(got, want) <= 4
            }
        });
        assert!(seen > 8 * 6000, "{seen}");
    }

    #[test]
    fn fast_kernels_of_halves_are_a_step_from_the_plain_ones_at_most() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let seen = compare(&halves, |got, want| {
            got.is_nan() && want.is_nan() || (i32::from(got.to_bits()) - i32::from(want.to_bits())).abs() <= 1
        });
        assert!(seen > 6 * 60_000, "{seen}");
        let brains: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        compare(&brains, |got, want| {
            got.is_nan() && want.is_nan() || (i32::from(got.to_bits()) - i32::from(want.to_bits())).abs() <= 1
        });
    }
}
