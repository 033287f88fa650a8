//! Activations that are made of elementary functions: elu, softplus, mish, logit, hardswish, hardsigmoid. NaN stays NaN.

use super::floats::prepare;
use super::pointwise::{NO_PARAMETERS, Parameters, Pointwise, Scalars, always, functions, scalar};
use crate::vector_math::{
    Simd,
    exp::{exp, expm1},
    log::{log1p, logit},
};
use pteron_core::{ArgSpec, StaticKernel};

/// Rough nanoseconds per 16 elements.
const CHEAP: usize = 4;
const COSTLY: usize = 20;

/// The bounds that `eps` sets; a negative one sets none.
fn logit_bounds(eps: Option<f64>) -> [f32; 2] {
    match eps.map(|eps| eps as f32) {
        Some(eps) if eps >= 0.0 => [eps, 1.0 - eps],
        _ => [f32::NEG_INFINITY, f32::INFINITY],
    }
}

/// `eps` is absent or a number known at load, NaN left out.
fn eps_is_plain(args: &[ArgSpec<'_>]) -> bool {
    match args.get(1) {
        Some(ArgSpec::None) => true,
        Some(eps) => eps.number().is_some_and(|v| !v.is_nan()),
        None => false,
    }
}

functions! {
    /// x > 0 ? scale x : alpha scale (e^(input_scale x) - 1).
    Elu<1> { low, scale, input_scale }: "elu", 4, COSTLY, always,
        |args| Elu { low: scalar(args, 1)? * scalar(args, 2)?, scale: scalar(args, 2)?, input_scale: scalar(args, 3)? },
        |f, s, [x]| {
            let low = s.mul(expm1(s, s.mul(x, s.splat(f.input_scale))), s.splat(f.low));
            s.select(s.le(x, s.zero()), low, s.mul(x, s.splat(f.scale)))
        };
    /// ln(1 + e^(beta x)) / beta, x itself where beta x is above the threshold.
    Softplus<1> { beta, threshold }: "softplus", 3, COSTLY, always,
        |args| Softplus { beta: scalar(args, 1)?, threshold: scalar(args, 2)? },
        |f, s, [x]| {
            let beta = s.splat(f.beta);
            let scaled = s.mul(x, beta);
            let soft = s.div(log1p(s, exp(s, scaled)), beta);
            s.select(s.gt(scaled, s.splat(f.threshold)), x, soft)
        };
    /// x tanh(ln(1 + e^x)).
    Mish<1> {}: "mish", 1, COSTLY, always, |_args| Mish {}, |_f, s, [x]| mish(s, x);
    /// ln(x / (1 - x)), x within bounds first.
    Logit<1> { low, high }: "logit", 2, COSTLY, eps_is_plain,
        |args| {
            let [low, high] = logit_bounds(args.optional_double(1)?);
            Logit { low, high }
        },
        |f, s, [x]| {
            let (low, high) = (s.splat(f.low), s.splat(f.high));
            logit(s, s.select(s.lt(x, low), low, s.select(s.gt(x, high), high, x)))
        };
    /// x min(max(x + 3, 0), 6) / 6.
    Hardswish<1> {}: "hardswish", 1, CHEAP, always, |_args| Hardswish {},
        |_f, s, [x]| s.div(s.mul(x, gate(s, x)), s.splat(6.0));
    /// min(max(x + 3, 0), 6) / 6.
    Hardsigmoid<1> {}: "hardsigmoid", 1, CHEAP, always, |_args| Hardsigmoid {},
        |_f, s, [x]| s.div(gate(s, x), s.splat(6.0));
}

/// min(max(x + 3, 0), 6).
#[inline(always)]
fn gate<S: Simd>(s: S, x: S::F) -> S::F {
    s.clamp(s.add(x, s.splat(3.0)), s.zero(), s.splat(6.0))
}

/// With e = e^x, tanh(ln(1 + e)) is n / (n + 2) for n = e (e + 2): nothing cancels.
#[inline(always)]
fn mish<S: Simd>(s: S, x: S::F) -> S::F {
    /// e^-32.
    const LOW: f32 = 1.266_416_6e-14;
    // From 20 on the factor rounds to one. Below -60 it is e^x, computed far from the subnormal numbers.
    let limit = s.splat(20.0);
    let is_low = s.lt(x, s.splat(-60.0));
    let e = exp(s, s.select(is_low, s.add(x, s.splat(32.0)), s.min(limit, x)));
    let n = s.mul(e, s.add(e, s.splat(2.0)));
    let y = s.div(s.mul(x, n), s.add(n, s.splat(2.0)));
    s.select(is_low, s.mul(s.mul(x, e), s.splat(LOW)), s.select(s.gt(x, limit), x, y))
}

macro_rules! kernel {
    ($schema:literal, $p:ident) => {
        StaticKernel { schema: $schema, variant: "float", prepare: prepare::<$p, 1> }
    };
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    kernel!(
        "aten::elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1, *, Tensor(a!) out) -> Tensor(a!)",
        Elu
    ),
    kernel!(
        "aten::softplus.out(Tensor self, Scalar beta=1, Scalar threshold=20, *, Tensor(a!) out) -> Tensor(a!)",
        Softplus
    ),
    kernel!("aten::mish.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Mish),
    kernel!("aten::logit.out(Tensor self, float? eps=None, *, Tensor(a!) out) -> Tensor(a!)", Logit),
    kernel!("aten::hardswish.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Hardswish),
    kernel!("aten::hardsigmoid.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Hardsigmoid),
];
