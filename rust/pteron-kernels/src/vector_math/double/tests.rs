//! The functions against `libm`, and known values to their last digit.

use super::{arcs, error_function, exp, exponentials, log, logarithms, sigmoid, tanh, trigonometric};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::Isa;

/// A function, the same of `libm`, and the units in the last place that they may be apart: its own error and a unit of the
/// library's.
struct Function {
    name: &'static str,
    exact: fn(f64) -> f64,
    ulps: f64,
    apply: fn(SimdLevel, &[f64], &mut [f64]),
}

macro_rules! functions {
    ($($name:ident: $of:path, $exact:expr, $ulps:literal;)*) => { vec![$({
        struct Apply<'a>(&'a [f64], &'a mut [f64]);
        impl SimdTask for Apply<'_> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                for (x, y) in self.0.iter().zip(self.1) {
                    *y = $of(s, *x);
                }
            }
        }
        Function {
            name: stringify!($name),
            exact: $exact,
            ulps: $ulps,
            apply: |level, x, y| level.dispatch(Apply(x, y)),
        }
    }),*] };
}

/// Not those of numbers that [`trigonometric::is_near`] leaves out.
fn if_near(x: f64, y: f64) -> f64 {
    if trigonometric::is_near(x) { y } else { f64::NAN }
}

#[inline(always)]
fn near_sin<S: Simd>(s: S, x: f64) -> f64 {
    if_near(x, trigonometric::sin(s, x))
}

#[inline(always)]
fn near_cos<S: Simd>(s: S, x: f64) -> f64 {
    if_near(x, trigonometric::cos(s, x))
}

#[inline(always)]
fn near_tan<S: Simd>(s: S, x: f64) -> f64 {
    if_near(x, trigonometric::tan(s, x))
}

/// The angle of the point (3 / 4, x).
#[inline(always)]
fn right<S: Simd>(s: S, x: f64) -> f64 {
    arcs::atan2(s, x, 0.75)
}

/// The angle of the point (x, -3 / 4).
#[inline(always)]
fn lower<S: Simd>(s: S, x: f64) -> f64 {
    arcs::atan2(s, -0.75, x)
}

fn functions() -> Vec<Function> {
    functions! {
        exp: exp, libm::exp, 2.0;
        exp2: exponentials::exp2, libm::exp2, 2.4;
        expm1: exponentials::expm1, libm::expm1, 2.3;
        sinh: exponentials::sinh, libm::sinh, 4.0;
        cosh: exponentials::cosh, libm::cosh, 3.0;
        log: log, libm::log, 2.0;
        log2: logarithms::log2, libm::log2, 1.7;
        log10: logarithms::log10, libm::log10, 2.0;
        log1p: logarithms::log1p, libm::log1p, 2.4;
        atanh: logarithms::atanh, libm::atanh, 3.5;
        sin: near_sin, |x| if_near(x, libm::sin(x)), 1.9;
        cos: near_cos, |x| if_near(x, libm::cos(x)), 1.9;
        tan: near_tan, |x| if_near(x, libm::tan(x)), 3.3;
        asin: arcs::asin, libm::asin, 1.7;
        acos: arcs::acos, libm::acos, 1.7;
        atan: arcs::atan, libm::atan, 2.4;
        right: right, |x| libm::atan2(x, 0.75), 2.7;
        lower: lower, |x| libm::atan2(-0.75, x), 2.7;
        erf: error_function::erf, libm::erf, 2.7;
        erfc: error_function::erfc, libm::erfc, 3.3;
        tanh: tanh, libm::tanh, 4.0;
        sigmoid: sigmoid, |x| if x < -700.0 { libm::exp(x) } else { 1.0 / (1.0 + libm::exp(-x)) }, 5.0;
    }
}

/// The size of the last place of a number.
fn unit(x: f64) -> f64 {
    let exponent = (x.to_bits() >> 52 & 0x7ff).max(1);
    match exponent {
        53.. => f64::from_bits((exponent - 52) << 52),
        _ => f64::from_bits(1 << (exponent - 1)),
    }
}

fn inputs() -> Vec<f64> {
    let edges = [
        0.0,
        f64::INFINITY,
        f64::NAN,
        5e-324,
        1e-310,
        f64::MIN_POSITIVE,
        f64::MAX,
        1e-17,
        1e-9,
        0.5,
        1.0,
        1.0 - f64::EPSILON / 2.0,
        1.0 + f64::EPSILON,
        709.782_712_893_384,
        709.79,
        710.475_8,
        710.476,
        708.5,
        744.4,
        745.2,
        1022.5,
        1023.999,
        1024.0,
        1074.0,
        1075.0,
        26.54,
        27.3,
        std::f64::consts::FRAC_PI_4,
        std::f64::consts::FRAC_PI_2,
        std::f64::consts::PI * 300_000.0,
        1_599_999.0,
        1_600_001.0,
        9_007_199_254_740_992.0,
    ];
    let mut inputs: Vec<f64> = edges.into_iter().flat_map(|x| [x, -x]).collect();
    inputs.extend((0..4000).map(|i| f64::from(i - 2000) * 0.3737));
    inputs.extend((0..4000).map(|i| f64::from(i - 2000) * 0.003_131));
    inputs.extend((0..4000).map(|i| f64::from(i - 2000) / 2001.0));
    inputs.extend((0..2000).map(|i| 1.0 + f64::from(i - 1000) * 3.3e-5));
    inputs.extend((0..2000).map(|i| f64::from(i * 797) * std::f64::consts::FRAC_PI_4));
    inputs.extend((0..4000u64).map(|i| f64::from_bits(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    inputs
}

#[test]
fn near_the_library_everywhere() {
    let inputs = inputs();
    let mut out = vec![0.0; inputs.len()];
    for function in functions() {
        let wanted: Vec<f64> = inputs.iter().map(|x| (function.exact)(*x)).collect();
        for isa in Isa::ALL {
            (function.apply)(SimdLevel::at_most(isa), &inputs, &mut out);
            for ((x, y), want) in inputs.iter().zip(&out).zip(&wanted) {
                let is_right = match want.is_nan() || y.is_nan() || want.is_infinite() || *want == 0.0 {
                    true => (want.is_nan() && y.is_nan()) || want.to_bits() == y.to_bits(),
                    false => (y - want).abs() <= function.ulps * unit(*want) && y.signum() == want.signum(),
                };
                assert!(is_right, "{isa:?} {} {x:e}: {y:e}, not {want:e}", function.name);
            }
        }
    }
}

struct OfTwo<'a>(&'a [[f64; 2]], &'a mut [f64]);

impl SimdTask for OfTwo<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for ([y, x], angle) in self.0.iter().zip(self.1) {
            *angle = arcs::atan2(s, *y, *x);
        }
    }
}

#[test]
fn angles_of_all_quadrants_and_limits() {
    let sizes = [0.0, 5e-324, 1e-300, 0.3, 1.0, 1.5, 1e300, f64::MAX, f64::INFINITY, f64::NAN];
    let numbers: Vec<f64> = sizes.into_iter().flat_map(|x| [x, -x]).collect();
    let pairs: Vec<[f64; 2]> = numbers.iter().flat_map(|y| numbers.iter().map(move |x| [*y, *x])).collect();
    let mut out = vec![0.0; pairs.len()];
    for isa in Isa::ALL {
        SimdLevel::at_most(isa).dispatch(OfTwo(&pairs, &mut out));
        for ([y, x], got) in pairs.iter().zip(&out) {
            let want = libm::atan2(*y, *x);
            let is_right = match want.is_nan() || want == 0.0 {
                true => (want.is_nan() && got.is_nan()) || want.to_bits() == got.to_bits(),
                false => (got - want).abs() <= 2.7 * unit(want) && got.signum() == want.signum(),
            };
            assert!(is_right, "{isa:?} {y:e} {x:e}: {got:e}, not {want:e}");
        }
    }
}

struct Exact<'a>(&'a [f64], &'a mut [f64; 3]);

impl SimdTask for Exact<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for x in self.0 {
            *self.1 = [
                exponentials::exp2(s, *x),
                logarithms::log2(s, exponentials::exp2(s, *x)),
                logarithms::log10(s, libm::pow(10.0, x.abs() % 23.0)),
            ];
            assert_eq!(*self.1, [libm::exp2(*x), *x, x.abs() % 23.0], "{x}");
        }
    }
}

#[test]
fn powers_of_two_and_ten_are_exact() {
    let numbers: Vec<f64> = (-1074..1024).map(f64::from).collect();
    for isa in Isa::ALL {
        SimdLevel::at_most(isa).dispatch(Exact(&numbers, &mut [0.0; 3]));
    }
}

struct Inverse<'a>(&'a [f64], &'a mut [f64]);

impl SimdTask for Inverse<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.0.iter().zip(self.1) {
            *y = error_function::erfinv(s, *x);
        }
    }
}

#[test]
fn the_inverse_of_the_error_function_to_the_last_digits() {
    // Of 60 digits in mpmath.
    let known = [
        [1.0e-300, 8.862_269_254_527_58e-301],
        [1.0e-5, 8.862_269_254_759_594e-6],
        [0.1, 0.088_855_990_494_257_69],
        [0.3, 0.272_462_714_726_754_3],
        [0.49, 0.465_868_600_235_057_33],
        [0.625, 0.627_307_347_788_559],
        [0.699_218_75, 0.731_685_445_974_570_9],
        [0.700_195_312_5, 0.733_165_306_959_907_1],
        [0.75, 0.813_419_847_597_618_5],
        [0.815_591_837_012_950_2, 0.938_545_612_526_196_8],
        [0.9, 1.163_087_153_676_674_3],
        [0.99, 1.821_386_367_718_449_4],
        [0.999_999_046_325_683_6, 3.465_505_025_803_331],
        [0.999_999_999_999_090_5, 5.051_254_085_249_39],
        [0.999_999_999_999_999_9, 5.863_584_748_755_167_6],
    ];
    let numbers: Vec<f64> = known.iter().flat_map(|[x, _]| [*x, -*x]).collect();
    let mut out = vec![0.0; numbers.len()];
    for isa in Isa::ALL {
        SimdLevel::at_most(isa).dispatch(Inverse(&numbers, &mut out));
        for (got, [x, want]) in out.chunks_exact(2).zip(known) {
            assert!((got[0] - want).abs() <= 3.2 * unit(want), "{isa:?} {x:e}: {:e}, not {want:e}", got[0]);
            assert_eq!(got[0], -got[1]);
        }
        let edges = [0.0, -0.0, 1.0, -1.0, 1.0 + f64::EPSILON, f64::NEG_INFINITY, f64::NAN, -5e-324];
        let mut out = [0.0; 8];
        SimdLevel::at_most(isa).dispatch(Inverse(&edges, &mut out));
        let [zero, minus_zero, high, low, above, below, nan, tiny] = out;
        assert_eq!([zero.to_bits(), minus_zero.to_bits()], [0, 1 << 63]);
        assert_eq!([high, low, tiny], [f64::INFINITY, f64::NEG_INFINITY, -5e-324]);
        assert!(above.is_nan() && below.is_nan() && nan.is_nan());
    }
}
