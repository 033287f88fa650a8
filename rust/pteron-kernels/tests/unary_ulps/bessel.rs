//! Modified Bessel functions of the first kind by downward recurrence (J. C. P. Miller's algorithm), another way than the
//! series of the plain kernels.

use std::f64::consts::TAU;

/// e^-|x| times the functions of orders zero and one, of |x|.
fn scaled(x: f64) -> [f64; 2] {
    let a = x.abs();
    if a.is_nan() {
        return [a; 2];
    }
    if a < 1e-6 {
        return [1.0 - a, a / 2.0 * (1.0 - a)];
    }
    if a > 200.0 {
        // Abramowitz and Stegun, 9.7.1; terms fall below 1e-17 long before they grow again.
        return [0.0, 4.0].map(|mu| {
            let (mut term, mut sum) = (1.0, 1.0);
            for k in 1..=14 {
                let odd = f64::from(2 * k - 1);
                term *= (odd * odd - mu) / (f64::from(k) * 8.0 * a);
                sum += term;
            }
            sum / (TAU * a).sqrt()
        });
    }
    // Orders beyond √(80 a) + 20 add nothing: I_k / I_0 is about e^{-k² / 2a}, and falls faster for small a.
    let orders = ((80.0 * a).sqrt() + 20.0) as u32;
    let (mut above, mut here, mut sum) = (0.0, 1e-250, 0.0);
    for k in (1..=orders).rev() {
        sum += 2.0 * here;
        (above, here) = (here, above + 2.0 * f64::from(k) / a * here);
        if here > 1e200 {
            (above, here, sum) = (above * 1e-200, here * 1e-200, sum * 1e-200);
        }
    }
    // e^a = I_0 + 2 (I_1 + I_2 + ..).
    [here / (sum + here), above / (sum + here)]
}

/// Infinities give NaN, as in PyTorch.
fn grown(x: f64, scaled: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { scaled * (x.abs() / 2.0).exp() * (x.abs() / 2.0).exp() }
}

/// Of an odd function; zero for -0, as in PyTorch.
fn signed(x: f64, size: f64) -> f64 {
    if x < 0.0 { -size } else { size }
}

pub fn i0e(x: f64) -> f64 {
    if x.is_infinite() { 0.0 } else { scaled(x)[0] }
}

pub fn i1e(x: f64) -> f64 {
    signed(x, if x.is_infinite() { 0.0 } else { scaled(x)[1] })
}

pub fn i0(x: f64) -> f64 {
    grown(x, scaled(x)[0])
}

pub fn i1(x: f64) -> f64 {
    signed(x, grown(x, scaled(x)[1]))
}
