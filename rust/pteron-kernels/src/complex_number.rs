//! complex64 as a compute type: two f64, so that functions of complex numbers are rounded once.
//!
//! Formulas and branch cuts: W. Kahan, "Branch cuts for complex elementary functions" (1987).

use crate::compute::{Compute, Convert};
use pteron_core::{Complex64, Element, Scalar};
use std::f64::consts::{LN_2, LN_10};

/// A complex number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Number {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

/// A complex number.
#[inline(always)]
pub const fn number(re: f64, im: f64) -> Number {
    Number { re, im }
}

/// Complex numbers have no order: only equal ones compare.
impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl Compute for Number {
    const IS_COMPLEX: bool = true;
    #[inline(always)]
    fn read<T: Convert>(element: T) -> Self {
        element.to_complex()
    }
    #[inline(always)]
    fn write<T: Convert>(self) -> T {
        T::from_complex(self)
    }
    fn from_scalar(scalar: Scalar) -> Self {
        number(scalar.to_f64(), 0.0)
    }
    fn from_bool(value: bool) -> Self {
        number(f64::from(u8::from(value)), 0.0)
    }
    fn from_f64(value: f64) -> Self {
        number(value, 0.0)
    }
    fn from_i64(value: i64) -> Self {
        number(value as f64, 0.0)
    }
    fn to_f64(self) -> f64 {
        self.re
    }
    fn to_i64(self) -> i64 {
        self.re as i64
    }
    fn is_true(self) -> bool {
        self.re != 0.0 || self.im != 0.0
    }
    fn is_nan(self) -> bool {
        self.re.is_nan() || self.im.is_nan()
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        number(self.re + other.re, self.im + other.im)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        number(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    }
    fn magnitude(self) -> f64 {
        self.re.hypot(self.im)
    }
    const LOWEST: Self = number(f64::NEG_INFINITY, 0.0);
    const HIGHEST: Self = number(f64::INFINITY, 0.0);
    const ZERO: Self = number(0.0, 0.0);
    const ONE: Self = number(1.0, 0.0);
    fn same<T: Element>(_: &[T]) -> Option<&[Self]> {
        None
    }
}

impl Convert for Complex64 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.re
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self.re)
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self.re as i64
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Complex64 { re: value, im: 0.0 }
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        Complex64 { re: value as f32, im: 0.0 }
    }
    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        Complex64 { re: value as f32, im: 0.0 }
    }
    #[inline(always)]
    fn to_complex(self) -> Number {
        number(f64::from(self.re), f64::from(self.im))
    }
    #[inline(always)]
    fn from_complex(value: Number) -> Self {
        Complex64 { re: value.re as f32, im: value.im as f32 }
    }
}

impl Number {
    /// i times the number.
    fn turned(self) -> Number {
        number(-self.im, self.re)
    }

    /// -i times the number.
    fn turned_back(self) -> Number {
        number(self.im, -self.re)
    }

    fn conjugate(self) -> Number {
        number(self.re, -self.im)
    }

    fn scaled(self, factor: f64) -> Number {
        number(self.re * factor, self.im * factor)
    }

    fn negated(self) -> Number {
        number(-self.re, -self.im)
    }

    /// Difference.
    pub fn minus(self, other: Number) -> Number {
        number(self.re - other.re, self.im - other.im)
    }

    /// Quotient, scaled by the larger part of the divisor (R. L. Smith, "Algorithm 116", 1962).
    pub fn over(self, b: Number) -> Number {
        let a = self;
        if b.re == 0.0 && b.im == 0.0 {
            return number(a.re / b.re.abs(), a.im / b.im.abs());
        }
        if b.re.abs() >= b.im.abs() {
            let ratio = b.im / b.re;
            let scale = 1.0 / (b.re + b.im * ratio);
            return number((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale);
        }
        let ratio = b.re / b.im;
        let scale = 1.0 / (b.re * ratio + b.im);
        number((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale)
    }

    /// e to the number.
    pub fn exp(self) -> Number {
        let length = self.re.exp();
        if self.im == 0.0 {
            return number(length, self.im);
        }
        if self.re == f64::NEG_INFINITY && !self.im.is_finite() {
            return number(0.0, 0.0);
        }
        if self.re == f64::INFINITY && !self.im.is_finite() {
            return number(f64::INFINITY, f64::NAN);
        }
        number(length * self.im.cos(), length * self.im.sin())
    }

    /// 2 to the number.
    pub fn exp2(self) -> Number {
        self.scaled(LN_2).exp()
    }

    /// e to the number, less one.
    pub fn exp_m1(self) -> Number {
        let half = (self.im / 2.0).sin();
        let e = self.exp();
        number(self.re.exp_m1() * self.im.cos() - 2.0 * half * half, e.im)
    }

    /// Natural logarithm, cut along the negative real axis.
    pub fn ln(self) -> Number {
        number(self.magnitude().ln(), self.im.atan2(self.re))
    }

    /// Logarithm to base 2.
    pub fn log2(self) -> Number {
        self.ln().scaled(1.0 / LN_2)
    }

    /// Logarithm to base 10.
    pub fn log10(self) -> Number {
        self.ln().scaled(1.0 / LN_10)
    }

    /// Logarithm of one more, without cancellation near zero.
    pub fn ln_1p(self) -> Number {
        let (x, y) = (self.re, self.im);
        let square = x * (2.0 + x) + y * y;
        let length = if square.abs() < 0.5 { square.ln_1p() / 2.0 } else { (1.0 + x).hypot(y).ln() };
        number(length, y.atan2(1.0 + x))
    }

    /// Square root of a real part of at least zero.
    pub fn sqrt(self) -> Number {
        let (x, y) = (self.re, self.im);
        if x == 0.0 && y == 0.0 {
            return number(0.0, y);
        }
        if y.is_infinite() {
            return number(f64::INFINITY, y);
        }
        if x.is_infinite() {
            let other = if y.is_nan() { y } else { 0.0 };
            return if x > 0.0 {
                number(x, other.copysign(y))
            } else {
                number(other, f64::INFINITY.copysign(y))
            };
        }
        let t = ((x.abs() + self.magnitude()) / 2.0).sqrt();
        if x >= 0.0 { number(t, y / (2.0 * t)) } else { number(y.abs() / (2.0 * t), t.copysign(y)) }
    }

    /// Hyperbolic sine.
    pub fn sinh(self) -> Number {
        if self.im == 0.0 {
            return number(self.re.sinh(), self.im);
        }
        number(self.re.sinh() * self.im.cos(), self.re.cosh() * self.im.sin())
    }

    /// Hyperbolic cosine.
    pub fn cosh(self) -> Number {
        if self.im == 0.0 {
            return number(self.re.cosh(), self.im * self.re.signum());
        }
        number(self.re.cosh() * self.im.cos(), self.re.sinh() * self.im.sin())
    }

    /// Hyperbolic tangent.
    pub fn tanh(self) -> Number {
        let (x, y) = (self.re, self.im);
        if x.abs() > 20.0 {
            // What is left of the imaginary part: 4 sin y cos y e^-2|x|.
            let rest = if y.is_finite() { 4.0 * y.sin() * y.cos() * (-2.0 * x.abs()).exp() } else { 0.0 };
            return number(1f64.copysign(x), rest);
        }
        let t = y.tan();
        let beta = 1.0 + t * t;
        let s = x.sinh();
        let denominator = 1.0 + beta * s * s;
        number(beta * (1.0 + s * s).sqrt() * s / denominator, t / denominator)
    }

    /// Sine.
    pub fn sin(self) -> Number {
        self.turned().sinh().turned_back()
    }

    /// Cosine.
    pub fn cos(self) -> Number {
        self.turned().cosh()
    }

    /// Tangent.
    pub fn tan(self) -> Number {
        self.turned().tanh().turned_back()
    }

    /// √(1 - z) and √(1 + z).
    fn roots(self) -> (Number, Number) {
        (number(1.0 - self.re, -self.im).sqrt(), number(1.0 + self.re, self.im).sqrt())
    }

    /// Inverse of the sine.
    pub fn asin(self) -> Number {
        let (below, above) = self.roots();
        let real = self.re.atan2(below.times(above).re);
        number(real, below.conjugate().times(above).im.asinh())
    }

    /// Inverse of the cosine.
    pub fn acos(self) -> Number {
        let (below, above) = self.roots();
        number(2.0 * below.re.atan2(above.re), above.conjugate().times(below).im.asinh())
    }

    /// Inverse of the hyperbolic sine.
    pub fn asinh(self) -> Number {
        self.turned().asin().turned_back()
    }

    /// Inverse of the hyperbolic cosine.
    pub fn acosh(self) -> Number {
        let (below, above) = (number(self.re - 1.0, self.im).sqrt(), number(self.re + 1.0, self.im).sqrt());
        number(below.conjugate().times(above).re.asinh(), 2.0 * below.im.atan2(above.re))
    }

    /// Inverse of the hyperbolic tangent.
    pub fn atanh(self) -> Number {
        let (x, y) = (self.re, self.im);
        let apart = (1.0 - x) * (1.0 - x) + y * y;
        number((4.0 * x / apart).ln_1p() / 4.0, (2.0 * y).atan2((1.0 - x) * (1.0 + x) - y * y) / 2.0)
    }

    /// Inverse of the tangent.
    pub fn atan(self) -> Number {
        self.turned().atanh().turned_back()
    }

    /// Logistic function.
    pub fn sigmoid(self) -> Number {
        Number::ONE.over(Number::ONE.plus(self.negated().exp()))
    }

    /// The number to a power.
    pub fn pow(self, exponent: Number) -> Number {
        if exponent.re == 0.0 && exponent.im == 0.0 {
            return Number::ONE;
        }
        if !self.is_true() {
            return if exponent.re > 0.0 && exponent.im == 0.0 {
                Number::ZERO
            } else {
                self.ln().times(exponent).exp()
            };
        }
        if exponent.im == 0.0 && exponent.re.abs() <= 4.0 && exponent.re.fract() == 0.0 {
            let factors = (1..exponent.re.abs() as u32).fold(self, |product, _| product.times(self));
            return if exponent.re < 0.0 { Number::ONE.over(factors) } else { factors };
        }
        self.ln().times(exponent).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Number, b: Number) {
        let distance = a.minus(b).magnitude();
        assert!(distance <= 1e-13 * (1.0 + b.magnitude()), "{a:?} for {b:?}");
    }

    #[test]
    fn inverses_invert() {
        for z in [number(0.3, -0.7), number(-2.0, 0.5), number(0.01, 3.0), number(-0.4, -1e-3)] {
            close(z.asin().sin(), z);
            close(z.acos().cos(), z);
            close(z.atan().tan(), z);
            close(z.asinh().sinh(), z);
            close(z.acosh().cosh(), z);
            close(z.atanh().tanh(), z);
            close(z.sqrt().times(z.sqrt()), z);
            close(z.ln().exp(), z);
            close(z.log2().exp2(), z);
            close(z.ln_1p().exp_m1(), z);
            close(z.pow(number(0.5, 0.0)), z.sqrt());
            close(z.pow(number(-2.0, 0.0)).times(z.times(z)), Number::ONE);
        }
    }

    #[test]
    fn branch_cuts_take_the_sign_of_zero() {
        assert_eq!(number(-4.0, 0.0).sqrt(), number(0.0, 2.0));
        assert_eq!(number(-4.0, -0.0).sqrt(), number(0.0, -2.0));
        assert!(number(-1.0, -0.0).ln().im < 0.0);
        assert_eq!(number(f64::NEG_INFINITY, -1.0).sqrt(), number(0.0, f64::NEG_INFINITY));
        close(number(30.0, 1.0).tanh(), Number::ONE);
    }
}
