//! Bessel functions of orders zero and one: special_bessel_j0, j1, y0, y1, special_modified_bessel_i0, i1,
//! special_i0e, special_i1, special_i1e.
//!
//! Shape: that of `self`. Dtype: integers and bool compute in float32; every dtype but float64 is computed in
//! float64 and rounded, but for the fast kernels of the modified functions, which compute in float32; those of y0 and y1 have
//! polynomials below eight, of the plain kernels' absolute accuracy. As in PyTorch,
//! only special_i0e, i1 and i1e take float16 and bfloat16. Edge cases: infinities give NaN, but 0 for special_i0e and
//! i1e. For float64 beyond five, PyTorch's own j and y are right to nine digits only; these to fifteen.
//!
//! Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 9.6.10 (series) and 9.7.1 (asymptotic).

use crate::compute::unsupported;
use crate::elementwise::lanewise::{self, lanes};
use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::elementwise::pointwise::{functions, is_single};
use crate::operator::{Operator, kernel};
use crate::routine::Preparation;
use crate::vector_math::{bessel, bessel_second as second};
use pteron_core::{DType, PrepareContext};

/// From here on the asymptotic series has all digits.
const FAR: f64 = 30.0;

/// The modified function of an order, times `exp(-|x|)`.
fn scaled(order: u32, x: f64) -> f64 {
    let size = x.abs();
    let value = if size <= FAR {
        let quarter = size * size / 4.0;
        let mut term = if order == 0 { 1.0 } else { size / 2.0 };
        let (mut sum, mut k) = (term, 1.0);
        while term > sum * 1e-17 {
            term *= quarter / (k * (k + f64::from(order)));
            sum += term;
            k += 1.0;
        }
        sum * (-size).exp()
    } else {
        let mu = f64::from(4 * order * order);
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..=20u32 {
            let odd = f64::from(2 * k - 1);
            term *= (odd * odd - mu) / (f64::from(k) * 8.0 * size);
            sum += term;
        }
        sum / (std::f64::consts::TAU * size).sqrt()
    };
    if order == 1 && x < 0.0 { -value } else { value }
}

fn grown(order: u32, x: f64) -> f64 {
    if x.is_infinite() {
        return f64::NAN;
    }
    // In two steps, so that only what overflows does.
    let half = (x.abs() / 2.0).exp();
    scaled(order, x) * half * half
}

/// The modified function of the first kind of order zero.
pub(crate) fn i0(x: f64) -> f64 {
    grown(0, x)
}

/// Not a number at infinities, where libm has the limit.
fn finite(f: fn(f64) -> f64, x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { f(x) }
}

/// By vectors where they reach, else by the library.
fn y(near: fn(f64) -> f64, far: fn(f64) -> f64, x: f64) -> f64 {
    if is_near(x) { near(x) } else { finite(far, x) }
}

/// Do the vectorised functions of the second kind reach x?
#[inline(always)]
fn is_near(x: f64) -> bool {
    x > 0.0 && x < second::LIMIT
}

lanes! {
    /// The function of the second kind of order zero.
    Y0: [] f64 => f64 = "bessel_y0", 130, |_s, [x]| second::y0(x),
        where is_near(x) => y(second::y0, libm::y0, x);
    /// The same of float32.
    SingleY0: [] f32 => f32 = "bessel_y0", 130, |_s, [x]| second::y0(f64::from(x)) as f32,
        where is_near(f64::from(x)) => y(second::y0, libm::y0, f64::from(x)) as f32;
    /// The function of the second kind of order one.
    Y1: [] f64 => f64 = "bessel_y1", 130, |_s, [x]| second::y1(x),
        where is_near(x) => y(second::y1, libm::y1, x);
    /// The same of float32.
    SingleY1: [] f32 => f32 = "bessel_y1", 130, |_s, [x]| second::y1(f64::from(x)) as f32,
        where is_near(f64::from(x)) => y(second::y1, libm::y1, f64::from(x)) as f32;
}

fn prepare(ctx: &PrepareContext<'_>, takes_halves: bool, f: fn(f64) -> f64) -> Preparation {
    let common = Positions::UNARY.promoted_to_float(ctx)?;
    if !takes_halves && matches!(common, DType::Float16 | DType::BFloat16) {
        return Err(unsupported(common).argument("self").expected("float32 or float64"));
    }
    float(
        ctx,
        Positions::UNARY,
        Dtypes::same(common),
        move |x, _, _, _| f(f64::from(x)) as f32,
        move |x, _, _, _| f(x),
    )
}

macro_rules! function {
    ($name:literal, $halves:literal, $f:expr) => {
        kernel(
            concat!("aten::special_", $name, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"),
            |ctx| prepare(ctx, $halves, $f),
        )
    };
}

functions! {
    /// The modified function of order zero, of a tensor that is not of sixteen bits.
    SingleI0 = "modified_bessel_i0", 16, ulps 4.0, |s, [x]| bessel::i0(s, x), if is_single;
    /// The one of order one.
    SingleI1 = "modified_bessel_i1", 16, ulps 4.0, |s, [x]| bessel::i1(s, x), if is_single;
    /// Of order zero, times e^-|x|.
    I0e = "i0e", 16, ulps 4.0, |s, [x]| bessel::i0e(s, x);
    /// The modified function of order one.
    I1 = "i1", 16, ulps 4.0, |s, [x]| bessel::i1(s, x);
    /// Of order one, times e^-|x|.
    I1e = "i1e", 16, ulps 4.5, |s, [x]| bessel::i1e(s, x);
}

/// Bessel functions.
pub static OPERATORS: &[Operator] = &[
    function!("bessel_j0", false, |x| finite(libm::j0, x)),
    function!("bessel_j1", false, |x| finite(libm::j1, x)),
    function!("bessel_y0", false, |x| finite(libm::y0, x))
        .fast("single", lanewise::prepare::<SingleY0, f32, 1>)
        .fast("double", lanewise::prepare::<Y0, f64, 1>),
    function!("bessel_y1", false, |x| finite(libm::y1, x))
        .fast("single", lanewise::prepare::<SingleY1, f32, 1>)
        .fast("double", lanewise::prepare::<Y1, f64, 1>),
    function!("modified_bessel_i0", false, i0).float::<SingleI0, 1>(),
    function!("modified_bessel_i1", false, |x| grown(1, x)).float::<SingleI1, 1>(),
    function!("i0e", true, |x| if x.is_infinite() { 0.0 } else { scaled(0, x) }).float::<I0e, 1>(),
    function!("i1", true, |x| grown(1, x)).float::<I1, 1>(),
    function!("i1e", true, |x| if x.is_infinite() { 0f64.copysign(x) } else { scaled(1, x) })
        .float::<I1e, 1>(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::prepare_of;
    use pteron_core::{Element, Isa};

    #[test]
    fn the_second_kind_by_vectors_is_that_of_the_plain_kernel() {
        fn check<T: Element + Into<f64>>(operator: &str, variant: &str, of: fn(f64) -> T, error: f64) {
            // More than a group of elements that are near, then near ones beside all others.
            let mut x: Vec<T> = (1..150).map(|i| of(f64::from(i) * 0.0533)).collect();
            let special =
                [0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 8.0, 1e10, 1e-30, 9.5];
            x.extend(special.map(of));
            for isa in Isa::ALL {
                let call = |variant| {
                    let out = HostTensor::zeros(T::DTYPE, &[x.len()]).unwrap();
                    let args =
                        vec![HostTensor::new(&[x.len()], &x).unwrap(), out].into_iter().map(CallArg::Tensor);
                    let prepare = prepare_of(operator, variant);
                    let mut call =
                        SingleCall::new(prepare, &profile(isa)?, args.collect()).unwrap().expect("taken");
                    call.call().unwrap();
                    Some(call.output::<T>(1).unwrap())
                };
                let (Some(found), Some(want)) = (call(variant), call("reference")) else { continue };
                for ((x, found), want) in x.iter().zip(found).zip(want) {
                    let (x, found, want): (f64, f64, f64) = ((*x).into(), found.into(), want.into());
                    let is_same = found == want || (found.is_nan() && want.is_nan());
                    let is_near = (found - want).abs() <= error * want.abs().max(1.0);
                    assert!(is_same || is_near, "{operator} {isa:?} {x}: {found} {want}");
                }
            }
        }
        for operator in ["aten::special_bessel_y0.out", "aten::special_bessel_y1.out"] {
            check::<f64>(operator, "double", |x| x, 1.5e-15);
            check::<f32>(operator, "single", |x| x as f32, 6e-8);
        }
    }

    #[test]
    fn functions_are_their_integrals() {
        // The rectangle rule converges faster than any power for periodic functions.
        let mean = |f: &dyn Fn(f64) -> f64| {
            (0..4000).map(|i| f((f64::from(i) + 0.5) / 4000.0 * std::f64::consts::PI)).sum::<f64>() / 4000.0
        };
        for x in [0.3f64, 4.99, 5.01, 12.5, 29.9, 30.1, 80.0] {
            assert!((libm::j0(x) - mean(&|t| (x * t.sin()).cos())).abs() < 1e-14);
            assert!((libm::j1(x) - mean(&|t| (t - x * t.sin()).cos())).abs() < 1e-14);
            let zero = mean(&|t| (x * t.cos() - x).exp());
            let one = mean(&|t| (x * t.cos() - x).exp() * t.cos());
            assert!(
                (scaled(0, x) / zero - 1.0).abs() < 1e-13 && (scaled(1, x) / one - 1.0).abs() < 1e-13,
                "{x}"
            );
            assert_eq!(scaled(1, -x), -scaled(1, x));
        }
    }
}
