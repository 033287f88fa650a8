//! The functions of one tensor, their arguments, and their values in f64. The largest error that they may have is
//! stated by the rows of the operator table.

use crate::bessel;
use pteron_core::{ArgSpec, DType, Scalar, TensorSpec};
use pteron_kernels::Operator;
use pteron_kernels::single_call::CallArg;
use std::borrow::Cow;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// A function of one f32 tensor.
pub struct Function {
    /// What it is called in the results.
    pub name: &'static str,
    /// Operator and overload.
    pub operator: String,
    /// Arguments between the tensor and the output.
    pub arguments: fn() -> Vec<CallArg>,
    /// The function in f64.
    pub exact: fn(f64) -> f64,
    /// Do units count at the size of the argument, where the result is smaller? For formulas that cancel, in
    /// PyTorch as here: the GELU is x times a difference from one.
    pub is_at_argument: bool,
}

impl Function {
    /// The row of the operator table.
    pub fn row(&self) -> &'static Operator {
        let name = format!("aten::{}", self.operator);
        pteron_kernels::operators()
            .find(|row| row.name() == name)
            .unwrap_or_else(|| panic!("no row of {name}"))
    }

    /// The arguments as load knows them.
    pub fn specs(&self) -> Vec<ArgSpec<'static>> {
        let tensor = || ArgSpec::Tensor(TensorSpec::contiguous(DType::Float32, &[1]).unwrap(), None);
        let number = |arg: CallArg| match arg {
            CallArg::None => ArgSpec::None,
            CallArg::Number(Scalar::Double(v)) => ArgSpec::Double(Some(v)),
            CallArg::String(Cow::Borrowed(v)) => ArgSpec::String(v),
            _ => panic!("{} has an argument of another kind", self.name),
        };
        [tensor()].into_iter().chain((self.arguments)().into_iter().map(number)).chain([tensor()]).collect()
    }

    /// Largest error in units in the last place that the row states, for every kernel on every instruction set.
    pub fn bound(&self) -> f64 {
        self.row()
            .max_ulps(&self.specs())
            .unwrap_or_else(|| panic!("the row of {} states no bound", self.name))
    }
}

fn plain(name: &'static str, exact: fn(f64) -> f64) -> Function {
    Function { name, operator: format!("{name}.out"), arguments: Vec::new, exact, is_at_argument: false }
}

fn with(
    name: &'static str,
    operator: &str,
    arguments: fn() -> Vec<CallArg>,
    exact: fn(f64) -> f64,
) -> Function {
    Function { name, operator: operator.to_string(), arguments, exact, is_at_argument: false }
}

/// x, or NaN if it is NaN, for functions made of comparisons.
fn kept(x: f64, y: f64) -> f64 {
    if x.is_nan() { x } else { y }
}

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 as x times a logistic function, which does not cancel.
fn gelu_tanh(x: f64) -> f64 {
    tail(x, |x| x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)))
}

/// Of a function that is x times something that vanishes at -∞ the limit there is -0.
fn tail(x: f64, f: fn(f64) -> f64) -> f64 {
    if x == f64::NEG_INFINITY { f64::NAN } else { f(x) }
}

fn mish(x: f64) -> f64 {
    // tanh(ln(1 + e^x)) = (e^2x + 2 e^x) / (e^2x + 2 e^x + 2).
    let e = x.min(40.0).exp();
    kept(x, x * (e * (e + 2.0) / (e * (e + 2.0) + 2.0)))
}

/// Zero for NaN, as PyTorch has it.
fn sign(x: f64) -> f64 {
    f64::from(i8::from(x > 0.0) - i8::from(x < 0.0))
}

/// x min(max(x + 3, 0), 6) / 6 with PyTorch's product first, which overflows in f32.
fn hardswish(x: f64) -> f64 {
    let product = x * (x + 3.0).clamp(0.0, 6.0);
    if product > f64::from(f32::MAX) { f64::INFINITY } else { kept(x, product / 6.0) }
}

fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

fn half() -> Vec<CallArg> {
    vec![CallArg::double(0.5)]
}

/// All of them, those with fast kernels first.
pub fn functions() -> Vec<Function> {
    [vectorised(), elementary(), exact(), powers(), special()].into_iter().flatten().collect()
}

fn vectorised() -> Vec<Function> {
    let none = || vec![CallArg::String("none".into())];
    let tanh = || vec![CallArg::String("tanh".into())];
    vec![
        plain("exp", f64::exp),
        plain("tanh", f64::tanh),
        plain("sigmoid", sigmoid),
        plain("log", f64::ln),
        plain("erf", libm::erf),
        Function {
            is_at_argument: true,
            ..with("gelu", "gelu.out", none, |x| tail(x, |x| 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2)))
        },
        Function { is_at_argument: true, ..with("gelu tanh", "gelu.out", tanh, gelu_tanh) },
        // Below -87 the logistic factor is subnormal, and x times its rounding is many units of a result that
        // small; PyTorch gives zero there.
        Function { is_at_argument: true, ..plain("silu", |x| tail(x, |x| x * sigmoid(x))) },
        with(
            "elu",
            "elu.out",
            || vec![CallArg::double(1.0), CallArg::double(1.0), CallArg::double(1.0)],
            |x| {
                if x <= 0.0 { x.exp_m1() } else { x }
            },
        ),
        plain("mish", |x| tail(x, mish)),
        with(
            "softplus",
            "softplus.out",
            || vec![CallArg::double(1.0), CallArg::double(20.0)],
            |x| {
                if x > 20.0 { x } else { x.exp().ln_1p() }
            },
        ),
        plain("hardsigmoid", |x| kept(x, (x + 3.0).clamp(0.0, 6.0) / 6.0)),
        plain("hardswish", hardswish),
    ]
}

fn elementary() -> Vec<Function> {
    vec![
        plain("exp2", f64::exp2),
        plain("expm1", f64::exp_m1),
        plain("log2", f64::log2),
        plain("log10", f64::log10),
        plain("log1p", f64::ln_1p),
        plain("sin", f64::sin),
        plain("cos", f64::cos),
        plain("tan", f64::tan),
        plain("asin", f64::asin),
        plain("acos", f64::acos),
        plain("atan", f64::atan),
        plain("sinh", f64::sinh),
        plain("cosh", f64::cosh),
        plain("asinh", libm::asinh),
        plain("acosh", acosh),
        plain("atanh", libm::atanh),
        plain("sqrt", f64::sqrt),
        plain("rsqrt", |x| 1.0 / x.sqrt()),
        plain("reciprocal", |x| 1.0 / x),
        with("logit", "logit.out", || vec![CallArg::None], |x| (x / (1.0 - x)).ln()),
    ]
}

fn exact() -> Vec<Function> {
    vec![
        plain("abs", f64::abs),
        plain("neg", |x| -x),
        plain("sign", sign),
        plain("sgn", sign),
        plain("floor", f64::floor),
        plain("ceil", f64::ceil),
        plain("trunc", f64::trunc),
        plain("round", f64::round_ties_even),
        plain("frac", |x| x - x.trunc()),
        plain("square", |x| x * x),
        plain("relu", |x| if x < 0.0 { 0.0 } else { x }),
        with(
            "hardtanh",
            "hardtanh.out",
            || vec![CallArg::double(-1.0), CallArg::double(1.0)],
            |x| kept(x, x.clamp(-1.0, 1.0)),
        ),
        with("clamp", "clamp.out", || vec![CallArg::double(-0.5), CallArg::None], |x| kept(x, x.max(-0.5))),
        with(
            "leaky_relu",
            "leaky_relu.out",
            || vec![CallArg::double(0.25)],
            |x| {
                if x > 0.0 { x } else { 0.25 * x }
            },
        ),
    ]
}

fn powers() -> Vec<Function> {
    const POW: &str = "pow.Tensor_Scalar_out";
    vec![
        with("pow 2", POW, || vec![CallArg::double(2.0)], |x| x * x),
        with("pow 3", POW, || vec![CallArg::double(3.0)], |x| x * x * x),
        with("pow 0.5", POW, half, f64::sqrt),
        with("pow -0.5", POW, || vec![CallArg::double(-0.5)], |x| 1.0 / x.sqrt()),
        with("pow -1", POW, || vec![CallArg::double(-1.0)], |x| 1.0 / x),
        with("rsub", "rsub.Scalar_out", || vec![CallArg::double(1.0), CallArg::double(1.0)], |x| 1.0 - x),
        with("pow 1.7", POW, || vec![CallArg::double(f64::from(1.7f32))], |x| x.powf(f64::from(1.7f32))),
    ]
}

fn special() -> Vec<Function> {
    let named = |name, operator, exact| with(name, operator, Vec::new, exact);
    vec![
        plain("erfc", libm::erfc),
        plain("lgamma", libm::lgamma),
        plain("erfinv", erfinv),
        plain("i0", bessel::i0),
        named("i0e", "special_i0e.out", bessel::i0e),
        named("i1", "special_i1.out", bessel::i1),
        named("i1e", "special_i1e.out", bessel::i1e),
        named("modified_bessel_i0", "special_modified_bessel_i0.out", bessel::i0),
        named("modified_bessel_i1", "special_modified_bessel_i1.out", bessel::i1),
    ]
}

/// By Newton's steps in ln erfc, which is all but a parabola and so needs no good guess.
fn erfinv(y: f64) -> f64 {
    let size = y.abs();
    if size.is_nan() || size >= 1.0 {
        return if size == 1.0 { y * f64::INFINITY } else { f64::NAN };
    }
    // Below, (√π / 2) (y + π y³ / 12) is right to y⁴ / 8.
    if size < 1e-4 {
        return y * (PI.sqrt() / 2.0) * (1.0 + PI / 12.0 * y * y);
    }
    let mut x = 0.0;
    for _ in 0..40 {
        let rest = libm::erfc(x);
        // ln(erfc x / (1 - size)); near zero by a difference that has all digits.
        let miss = if size < 0.5 {
            ((size - libm::erf(x)) / (1.0 - size)).ln_1p()
        } else {
            (rest / (1.0 - size)).ln()
        };
        let step = miss * rest / (2.0 / PI.sqrt() * (-x * x).exp());
        x += step;
        if step.abs() <= 1e-15 * x {
            break;
        }
    }
    x.copysign(y)
}
