//! The regularised incomplete gamma functions: igamma (lower), igammac (upper).
//!
//! Shape: operands broadcast. Dtype: floats; every one but float64 is computed in float64 and rounded. Edge
//! cases: NaN for negative operands and for two zeros or two infinities; a step where one of them is zero or
//! infinite. In float64 PyTorch's own are right to nine digits only for shapes from 20 to 200.
//!
//! Sources: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.5.29 and 6.5.31; W. J. Lentz's
//! evaluation of continued fractions (1976); N. M. Temme, "The asymptotic expansion of the incomplete gamma
//! functions" (1979), for operands above 1e8.

use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::operator::{Operator, kernel};
use crate::routine::Preparation;
use pteron_core::{Error, PrepareContext};
use std::f64::consts::PI;

/// Above this, the first term of the asymptotic expansion is exact to float64's digits.
const LARGE: f64 = 1e8;

/// ln(1 + m) - m without cancellation.
fn log_1p_less(m: f64) -> f64 {
    if m.abs() > 0.5 {
        return m.ln_1p() - m;
    }
    let (mut power, mut sum) = (-m * m, 0.0);
    for n in 2..80 {
        let term = power / f64::from(n);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
        power *= -m;
    }
    sum
}

/// x^a e^-x / Γ(a + 1).
fn density(a: f64, x: f64) -> f64 {
    if a < 20.0 {
        return (a * x.ln() - x - libm::lgamma(a + 1.0)).exp();
    }
    // Stirling's series; what is left of the exponent does not cancel.
    let r = 1.0 / (a * a);
    let rest = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / a;
    (a * log_1p_less((x - a) / a) - rest).exp() / (2.0 * PI * a).sqrt()
}

fn most_terms(a: f64) -> usize {
    2000 + 20 * a.sqrt() as usize
}

/// The lower function by its power series, for x below a + 1.
fn series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut at) = (1.0, 1.0, a);
    for _ in 0..most_terms(a) {
        at += 1.0;
        term *= x / at;
        sum += term;
        if term <= sum * 1e-17 {
            break;
        }
    }
    density(a, x) * sum
}

/// The upper function by its continued fraction, for x from a + 1 on.
fn fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut product = d;
    for i in 1..most_terms(a) {
        let i = i as f64;
        let factor = -i * (i - a);
        b += 2.0;
        d = 1.0 / nonzero(factor * d + b);
        c = nonzero(b + factor / c);
        product *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    density(a, x) * a * product
}

fn nonzero(x: f64) -> f64 {
    if x == 0.0 { 1e-300 } else { x }
}

/// The upper function for small operands, where it is the small rest of the lower one.
fn upper_series(a: f64, x: f64) -> f64 {
    let (mut power, mut sum) = (1.0, 0.0);
    for n in 1..200 {
        let n = f64::from(n);
        power *= -x / n;
        let term = power / (a + n);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
    }
    let log = a * x.ln();
    let gamma = libm::lgamma(1.0 + a);
    -(log - gamma).exp_m1() - (log - gamma).exp() * a * sum
}

/// Of large operands: both functions as the integral of a normal distribution with one correction.
fn asymptotic(a: f64, x: f64, is_upper: bool) -> f64 {
    let m = (x - a) / a;
    let eta = (-2.0 * log_1p_less(m)).sqrt().copysign(m);
    let correction = if m.abs() < 1e-5 { -1.0 / 3.0 + m / 12.0 } else { 1.0 / m - 1.0 / eta };
    let rest = (-0.5 * a * eta * eta).exp() / (2.0 * PI * a).sqrt() * correction;
    let side = if is_upper { 1.0 } else { -1.0 };
    let value = 0.5 * libm::erfc(side * eta * (a / 2.0).sqrt()) + side * rest;
    value.clamp(0.0, 1.0)
}

/// Values of the lower function at the ends of the domain, asked in PyTorch's order; `None` inside.
fn at_the_ends(a: f64, x: f64) -> Option<f64> {
    if x < 0.0 || a < 0.0 {
        return Some(f64::NAN);
    }
    if a == 0.0 {
        return Some(if x > 0.0 { 1.0 } else { f64::NAN });
    }
    if x == 0.0 {
        return Some(0.0);
    }
    if a.is_infinite() {
        return Some(if x.is_infinite() { f64::NAN } else { 0.0 });
    }
    if x.is_infinite() {
        return Some(1.0);
    }
    (a.is_nan() || x.is_nan()).then_some(f64::NAN)
}

/// The lower function.
pub(crate) fn igamma(a: f64, x: f64) -> f64 {
    if let Some(value) = at_the_ends(a, x) {
        return value;
    }
    if a > LARGE {
        return asymptotic(a, x, false);
    }
    if x < a + 1.0 { series(a, x).min(1.0) } else { 1.0 - fraction(a, x) }
}

/// The upper function.
pub(crate) fn igammac(a: f64, x: f64) -> f64 {
    if let Some(value) = at_the_ends(a, x) {
        return 1.0 - value;
    }
    if a > LARGE {
        return asymptotic(a, x, true);
    }
    if x <= 1.1 && a < 1.0 {
        return upper_series(a, x);
    }
    if x < a + 1.0 { 1.0 - series(a, x).min(1.0) } else { fraction(a, x) }
}

fn prepare(ctx: &PrepareContext<'_>, f: fn(f64, f64) -> f64) -> Preparation {
    let common = Positions::BINARY.promoted(ctx)?;
    if !common.is_float() {
        return Err(Error::kernel("the operator takes floats")
            .expected("a floating-point dtype")
            .got(common.name()));
    }
    float(
        ctx,
        Positions::BINARY,
        Dtypes::same(common),
        move |a, x, _, _| f(f64::from(a), f64::from(x)) as f32,
        move |a, x, _, _| f(a, x),
    )
}

/// igamma, igammac.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::igamma.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        prepare(ctx, igamma)
    }),
    kernel("aten::igammac.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        prepare(ctx, igammac)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_forms_and_the_two_add_up() {
        // Of shape one the lower function is 1 - e^-x, of one half it is erf(√x).
        for x in [1e-8, 0.3, 1.0, 2.5, 30.0] {
            assert!((igamma(1.0, x) / -(-x).exp_m1() - 1.0).abs() < 1e-14, "{x}");
            assert!((igamma(0.5, x) / libm::erf(x.sqrt()) - 1.0).abs() < 1e-14, "{x}");
            assert!((igammac(1.0, x) / (-x).exp() - 1.0).abs() < 1e-13, "{x}");
        }
        for a in [1e-3, 0.7, 3.0, 40.0, 1e4, 9.9e7, 1.01e8, 1e12] {
            for m in [0.5, 0.99, 1.0, 1.0001, 1.5] {
                let sum = igamma(a, a * m) + igammac(a, a * m);
                assert!((sum - 1.0).abs() < 1e-12, "{a} {m}: {sum}");
            }
        }
    }

    #[test]
    fn the_asymptotic_form_meets_the_series() {
        for x in [0.9999e8, 1e8, 1.0001e8] {
            assert!((asymptotic(1e8, x, false) - igamma(1e8, x)).abs() < 1e-12);
        }
    }
}
