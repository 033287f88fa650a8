//! Elementwise functions of one float tensor and scalars. NaN inputs give NaN outputs everywhere.
//!
//! Kernels: relu, clamp, hardtanh, leaky_relu, elu, gelu, sigmoid, tanh, exp, log, erf, sqrt, rsqrt, reciprocal,
//! neg, abs, pow with the exponents that need no logarithm, and add, sub, mul, div with a scalar.

use super::floats::prepare;
use super::pointwise::{NO_PARAMETERS, Parameters, Pointwise, Scalars, always, functions, scalar};
use crate::vector_math::{
    Simd,
    erf::erf,
    exp::exp,
    log::log,
    sigmoid::sigmoid,
    tanh::{tanh, with_sign_of},
};
use pteron_core::{ArgSpec, Result, StaticKernel};

/// Rough nanoseconds per 16 elements.
const CHEAP: usize = 3;
const COSTLY: usize = 10;

/// Functions without scalar arguments: `Name: "operator", cost, |s, x| expression`.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident: $op:literal, $cost:expr, |$s:ident, $x:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name;
        impl Pointwise<1> for $name {
            const NAME: &'static str = $op;
            const OUT: usize = 1;
            const COST: usize = $cost;
            fn from_scalars<A: Scalars + ?Sized>(_: &A) -> Result<Self> {
                Ok($name)
            }
            fn from_parameters(_: Parameters) -> Self {
                $name
            }
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, [$x]: [S::F; 1]) -> S::F {
                $body
            }
        }
    )* };
}

plain! {
    /// max(x, 0).
    Relu: "relu", CHEAP, |s, x| s.max(s.zero(), x);
    /// 1 / (1 + e^-x).
    Sigmoid: "sigmoid", COSTLY, |s, x| sigmoid(s, x);
    /// Hyperbolic tangent.
    Tanh: "tanh", COSTLY, |s, x| tanh(s, x);
    /// e^x.
    Exp: "exp", COSTLY, |s, x| exp(s, x);
    /// Natural logarithm.
    Log: "log", COSTLY, |s, x| log(s, x);
    /// Error function.
    Erf: "erf", COSTLY, |s, x| erf(s, x);
    /// Square root.
    Sqrt: "sqrt", CHEAP, |s, x| s.sqrt(x);
    /// 1 / sqrt(x), both steps correctly rounded.
    Rsqrt: "rsqrt", CHEAP, |s, x| s.div(s.splat(1.0), s.sqrt(x));
    /// 1 / x.
    Reciprocal: "reciprocal", CHEAP, |s, x| s.div(s.splat(1.0), x);
    /// -x.
    Neg: "neg", CHEAP, |s, x| s.neg(x);
    /// |x|.
    Abs: "abs", CHEAP, |s, x| s.abs(x);
    /// The nearest integer, ties to even.
    Round: "round", CHEAP, |s, x| round(s, x);
    /// The largest integer that is not above x.
    Floor: "floor", CHEAP, |s, x| floor(s, x);
    /// The smallest integer that is not below x.
    Ceil: "ceil", CHEAP, |s, x| s.neg(floor(s, s.neg(x)));
    /// The integer part.
    Trunc: "trunc", CHEAP, |s, x| with_sign_of(s, floor(s, s.abs(x)), x);
    /// x / (1 + e^-x).
    Silu: "silu", COSTLY, |s, x| s.mul(x, sigmoid(s, x));
}

/// Bounds at 1 and 2 are known (or absent) and not NaN: a NaN bound has a meaning of its own.
fn bounds_are_plain(args: &[ArgSpec<'_>]) -> bool {
    // The reference kernel refuses a call without any.
    if [1, 2].into_iter().all(|i| matches!(args.get(i), Some(ArgSpec::None))) {
        return false;
    }
    [1, 2].into_iter().all(|i| match args.get(i) {
        Some(ArgSpec::None) => true,
        Some(bound) => bound.number().is_some_and(|v| !v.is_nan()),
        None => false,
    })
}

functions! {
    /// Bounds at 1 and 2, each optional.
    Clamp<1> { low, high }: "clamp", 3, CHEAP, bounds_are_plain,
        |args| Clamp {
            low: args.optional_double(1)?.map_or(f32::NEG_INFINITY, |v| v as f32),
            high: args.optional_double(2)?.map_or(f32::INFINITY, |v| v as f32),
        },
        |f, s, [x]| s.clamp(x, s.splat(f.low), s.splat(f.high));
    /// Bounds at 1 and 2.
    Hardtanh<1> { low, high }: "hardtanh", 3, CHEAP, bounds_are_plain,
        |args| Hardtanh { low: scalar(args, 1)?, high: scalar(args, 2)? },
        |f, s, [x]| s.clamp(x, s.splat(f.low), s.splat(f.high));
    /// x > 0 ? x : x * slope.
    LeakyRelu<1> { slope }: "leaky_relu", 2, CHEAP, always,
        |args| LeakyRelu { slope: scalar(args, 1)? },
        |f, s, [x]| s.select(s.gt(x, s.zero()), x, s.mul(x, s.splat(f.slope)));
    /// x + alpha * other.
    AddScalar<1> { addend }: "add", 3, CHEAP, always,
        |args| AddScalar { addend: (args.double(1)? * args.double(2)?) as f32 },
        |f, s, [x]| s.add(x, s.splat(f.addend));
    /// x - alpha * other.
    SubScalar<1> { subtrahend }: "sub", 3, CHEAP, |args| !matches!(args.get(1), Some(ArgSpec::Bool(_))),
        |args| SubScalar { subtrahend: (args.double(1)? * args.double(2)?) as f32 },
        |f, s, [x]| s.sub(x, s.splat(f.subtrahend));
    /// x * other.
    MulScalar<1> { factor }: "mul", 2, CHEAP, always,
        |args| MulScalar { factor: scalar(args, 1)? },
        |f, s, [x]| s.mul(x, s.splat(f.factor));
    /// x / other.
    DivScalar<1> { divisor }: "div", 2, CHEAP, always,
        |args| DivScalar { divisor: scalar(args, 1)? },
        |f, s, [x]| s.div(x, s.splat(f.divisor));
    /// x².
    Square<1> {}: "pow_2", 2, CHEAP, |args| exponent_is(args, 2.0), |_args| Square {}, |_f, s, [x]| s.mul(x, x);
    /// x³.
    Cube<1> {}: "pow_3", 2, CHEAP, |args| exponent_is(args, 3.0), |_args| Cube {}, |_f, s, [x]| s.mul(s.mul(x, x), x);
    /// x^½, as the square root.
    PowHalf<1> {}: "pow_half", 2, CHEAP, |args| exponent_is(args, 0.5), |_args| PowHalf {}, |_f, s, [x]| s.sqrt(x);
    /// x^-½.
    PowMinusHalf<1> {}: "pow_minus_half", 2, CHEAP, |args| exponent_is(args, -0.5), |_args| PowMinusHalf {},
        |_f, s, [x]| s.div(s.splat(1.0), s.sqrt(x));
    /// x^-1.
    PowMinusOne<1> {}: "pow_minus_one", 2, CHEAP, |args| exponent_is(args, -1.0), |_args| PowMinusOne {},
        |_f, s, [x]| s.div(s.splat(1.0), x);
    /// x (1 + erf(x / √2)) / 2.
    GeluErf<1> {}: "gelu_erf", 2, COSTLY, |args| matches!(args.get(1), Some(ArgSpec::String("none"))),
        |_args| GeluErf {}, |_f, s, [x]| gelu_erf(s, x);
    /// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.
    GeluTanh<1> {}: "gelu_tanh", 2, COSTLY, |args| matches!(args.get(1), Some(ArgSpec::String("tanh"))),
        |_args| GeluTanh {}, |_f, s, [x]| gelu_tanh(s, x);
}

fn exponent_is(args: &[ArgSpec<'_>], exponent: f64) -> bool {
    args.get(1).and_then(ArgSpec::number) == Some(exponent)
}

/// Rounds to the nearest integer; a zero result keeps the sign of `x`.
#[inline(always)]
fn round<S: Simd>(s: S, x: S::F) -> S::F {
    with_sign_of(s, s.abs(s.round(x)), x)
}

/// Rounds down; a zero result keeps the sign of `x`.
#[inline(always)]
pub(super) fn floor<S: Simd>(s: S, x: S::F) -> S::F {
    let near = round(s, x);
    // Taking one from an integer below 2^24 is exact, and above there are no fractions.
    s.select(s.gt(near, x), s.sub(near, s.splat(1.0)), near)
}

/// GELU by the error function.
#[inline(always)]
pub fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(s.splat(0.5), x);
    // Not fused: the product with a factor of zero must have the sign of x.
    s.mul(half, s.add(s.splat(1.0), erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)))))
}

/// GELU by its tanh approximation.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let cubic = s.fma(s.mul(s.mul(x, x), x), s.splat(0.044_715), x);
    let half = s.mul(s.splat(0.5), x);
    s.mul(half, s.add(s.splat(1.0), tanh(s, s.mul(s.splat(SQRT_2_OVER_PI), cubic))))
}

macro_rules! kernel {
    ($schema:literal, $p:ident) => {
        StaticKernel { schema: $schema, variant: "float", prepare: prepare::<$p, 1> }
    };
}
const POW: &str =
    "aten::pow.Tensor_Scalar_out(Tensor self, Scalar exponent, *, Tensor(a!) out) -> Tensor(a!)";
const GELU: &str = "aten::gelu.out(Tensor self, *, str approximate=\"none\", Tensor(a!) out) -> Tensor(a!)";

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    kernel!("aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Relu),
    kernel!("aten::sigmoid.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Sigmoid),
    kernel!("aten::tanh.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Tanh),
    kernel!("aten::exp.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Exp),
    kernel!("aten::log.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Log),
    kernel!("aten::erf.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Erf),
    kernel!("aten::sqrt.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Sqrt),
    kernel!("aten::rsqrt.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Rsqrt),
    kernel!("aten::reciprocal.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Reciprocal),
    kernel!("aten::neg.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Neg),
    kernel!("aten::abs.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Abs),
    kernel!("aten::round.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Round),
    kernel!("aten::floor.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Floor),
    kernel!("aten::ceil.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Ceil),
    kernel!("aten::trunc.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Trunc),
    kernel!("aten::silu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Silu),
    kernel!(
        "aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out) -> Tensor(a!)",
        Clamp
    ),
    kernel!(
        "aten::hardtanh.out(Tensor self, Scalar min_val=-1, Scalar max_val=1, *, Tensor(a!) out) -> Tensor(a!)",
        Hardtanh
    ),
    kernel!(
        "aten::leaky_relu.out(Tensor self, Scalar negative_slope=0.01, *, Tensor(a!) out) -> Tensor(a!)",
        LeakyRelu
    ),
    kernel!(
        "aten::add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        AddScalar
    ),
    kernel!(
        "aten::sub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SubScalar
    ),
    kernel!("aten::mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", MulScalar),
    kernel!("aten::div.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", DivScalar),
    StaticKernel { schema: POW, variant: "float", prepare: prepare::<Square, 1> },
    StaticKernel { schema: POW, variant: "float", prepare: prepare::<Cube, 1> },
    StaticKernel { schema: POW, variant: "float", prepare: prepare::<PowHalf, 1> },
    StaticKernel { schema: POW, variant: "float", prepare: prepare::<PowMinusHalf, 1> },
    StaticKernel { schema: POW, variant: "float", prepare: prepare::<PowMinusOne, 1> },
    StaticKernel { schema: GELU, variant: "float", prepare: prepare::<GeluErf, 1> },
    StaticKernel { schema: GELU, variant: "float", prepare: prepare::<GeluTanh, 1> },
];
