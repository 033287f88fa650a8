//! Hurwitz's zeta function and the derivatives of digamma: special_zeta, polygamma.
//!
//! Shape: that of `self`; special_zeta broadcasts. Dtype: integers and bool compute in float32; every dtype
//! but float64 is computed in float64 and rounded. Edge cases: zeta is infinite for `s` 1 and for `q` zero or
//! a negative integer, NaN for `s` below 1; a negative order is an error. For float64 PyTorch's own
//! trigamma is right to nine digits only.
//!
//! Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.4.10, 23.1.30 (Euler and Maclaurin's
//! summation).

use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::operator::{Operator, kernel};
use crate::ops::special_functions::digamma;
use pteron_core::{ArgSpec, Error};
use std::f64::consts::PI;

/// Bernoulli numbers of even index over the factorial of the index.
const BERNOULLI: [f64; 10] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
    -3617.0 / 10_670_622_842_880_000.0,
    43_867.0 / 5_109_094_217_170_944_000.0,
    -174_611.0 / 802_857_662_698_291_200_000.0,
];

/// The sum of `(q + k)^-s` over all `k` from 0 on.
fn zeta(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s < 1.0 || q == f64::INFINITY || q.is_nan() {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        if s != s.floor() {
            return f64::NAN;
        }
    }
    if s.is_nan() {
        return s;
    }
    if s.is_infinite() {
        // The first term alone is left.
        return q.powf(-s);
    }
    let (mut sum, mut a) = (0.0, q);
    let mut steps = 0;
    while a < 12.0 || steps < 12 {
        // Far below zero the terms are countless and the function is of no use.
        if steps > 1_000_000 {
            return f64::NAN;
        }
        sum += a.powf(-s);
        a += 1.0;
        steps += 1;
    }
    let power = a.powf(-s);
    sum += power * a / (s - 1.0) + power / 2.0;
    let mut factor = s * power / a;
    for (j, b) in BERNOULLI.iter().enumerate() {
        let term = factor * b;
        sum += term;
        if term.abs() < sum.abs() * 1e-17 {
            break;
        }
        let at = s + 2.0 * j as f64;
        factor *= (at + 1.0) * (at + 2.0) / (a * a);
    }
    sum
}

/// The derivative of order `n` of digamma.
fn polygamma(n: i64, x: f64) -> f64 {
    match n {
        0 => digamma(x),
        // Reflected below one half.
        1 if x < 0.5 && x != 0.0 => {
            let sine = (PI * x).sin();
            PI * PI / (sine * sine) - zeta(2.0, 1.0 - x)
        }
        1 if x == f64::INFINITY => 0.0,
        _ => {
            let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
            sign * libm::lgamma(n as f64 + 1.0).exp() * zeta(n as f64 + 1.0, x)
        }
    }
}

const OF_SECOND: Positions = Positions { inputs: &[1], scalars: &[], out: 2, shape_of: None };

/// special_zeta, polygamma.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::special_zeta.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        let common = Positions::BINARY.promoted_to_float(ctx)?;
        float(
            ctx,
            Positions::BINARY,
            Dtypes::same(common),
            |s, q, _, _| zeta(f64::from(s), f64::from(q)) as f32,
            |s, q, _, _| zeta(s, q),
        )
    }),
    kernel("aten::polygamma.out(int n, Tensor self, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        let n = match ctx.args.first() {
            Some(ArgSpec::Int(Some(n))) if *n >= 0 => *n,
            other => {
                return Err(Error::kernel("the order of a derivative is a number that the program states")
                    .argument("n")
                    .expected("an int of at least 0")
                    .got(format!("{other:?}")));
            }
        };
        let common = OF_SECOND.promoted_to_float(ctx)?;
        float(
            ctx,
            OF_SECOND,
            Dtypes::same(common),
            move |x, _, _, _| polygamma(n, f64::from(x)) as f32,
            move |x, _, _, _| polygamma(n, x),
        )
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-14, "{got} for {want}");
        close(polygamma(1, 1.0), PI * PI / 6.0);
        close(polygamma(1, 0.5), PI * PI / 2.0);
        close(polygamma(1, 0.25), PI * PI + 8.0 * 0.915_965_594_177_219);
        close(zeta(4.0, 1.0), PI.powi(4) / 90.0);
        close(zeta(3.0, 0.5), 7.0 * 1.202_056_903_159_594_2);
        close(polygamma(2, 1.0), -2.0 * 1.202_056_903_159_594_2);
        assert!(
            zeta(2.5, -0.5).is_nan() && zeta(2.0, -1e300).is_infinite() && zeta(2.0, -1e9 - 0.5).is_nan()
        );
    }
}
