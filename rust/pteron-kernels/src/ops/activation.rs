//! Activation functions.
//!
//! Shape: that of `self`. Dtype: floats; `relu` and `hardtanh` also integers. Edge cases: NaN stays
//! NaN; `logit` without `eps` gives NaN outside [0, 1].
//!
//! Formulas that overflow or cancel somewhere in the range of float32 are computed in float64 and rounded.

mod lanes;

use crate::elementwise::lanewise;
use crate::elementwise::plain::{Dtypes, Positions, both_floats, float};
use crate::elementwise::pointwise::{functions, scalar};
use crate::operator::{Operator, kernel};
use crate::ops::clamp::bounds_are_plain;
use crate::ops::complex_functions;
use crate::routine::{Preparation, dtype_of};
use crate::vector_math::{
    Simd,
    erf::erf,
    exp::{exp, expm1},
    log::{log1p, logit},
    sigmoid::silu,
    tanh::tanh,
};
use lanes::{
    LaneElu, LaneGeluErf, LaneGeluTanh, LaneHardsigmoid, LaneHardswish, LaneHardtanh, LaneLeakyRelu,
    LaneLogit, LaneMish, LaneRelu, LaneSilu, LaneSoftplus, gelu_exponent,
};
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

functions! {
    /// max(x, 0).
    Relu = "relu", 3, ulps 0.0, |s, [x]| s.max(s.zero(), x);
    /// Bounds at 1 and 2.
    Hardtanh { low, high } = "hardtanh", 3, ulps 0.0, |s, [x]| s.clamp(x, s.splat(low), s.splat(high)),
        from |args| [scalar(args, 1)?, scalar(args, 2)?], if |args| bounds_are_plain(args, |_| true);
    /// x > 0 ? x : x * slope.
    LeakyRelu { slope } = "leaky_relu", 3, ulps 0.5,
        |s, [x]| s.select(s.gt(x, s.zero()), x, s.mul(x, s.splat(slope))), from |args| [scalar(args, 1)?];
    /// x (1 + erf(x / √2)) / 2.
    GeluErf = "gelu_erf", 10, ulps 4.0, |s, [x]| gelu_erf(s, x),
        if |args| matches!(args.get(1), Some(ArgSpec::String("none")));
    /// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.
    GeluTanh = "gelu_tanh", 10, ulps 4.0, |s, [x]| gelu_tanh(s, x),
        if |args| matches!(args.get(1), Some(ArgSpec::String("tanh")));
    /// x / (1 + e^-x).
    Silu = "silu", 10, ulps 4.0, |s, [x]| silu(s, x);
    /// x > 0 ? scale x : alpha scale (e^(input_scale x) - 1).
    Elu { low, scale, input_scale } = "elu", 20, ulps 4.0,
        |s, [x]| {
            let low = s.mul(expm1(s, s.mul(x, s.splat(input_scale))), s.splat(low));
            s.select(s.le(x, s.zero()), low, s.mul(x, s.splat(scale)))
        },
        from |args| [scalar(args, 1)? * scalar(args, 2)?, scalar(args, 2)?, scalar(args, 3)?];
    /// ln(1 + e^(beta x)) / beta, x itself where beta x is above the threshold.
    Softplus { beta, threshold } = "softplus", 20, ulps 4.0,
        |s, [x]| {
            let beta = s.splat(beta);
            let scaled = s.mul(x, beta);
            let soft = s.div(log1p(s, exp(s, scaled)), beta);
            s.select(s.gt(scaled, s.splat(threshold)), x, soft)
        },
        from |args| [scalar(args, 1)?, scalar(args, 2)?];
    /// x tanh(ln(1 + e^x)). The error of e^x enters e^2x + 2 e^x almost twice, then come a quotient and a product: 4.683 ulps
    /// at -3.2350252.
    Mish = "mish", 20, ulps 5.0, |s, [x]| mish(s, x);
    /// ln(x / (1 - x)), x within bounds first.
    Logit { low, high } = "logit", 20, ulps 4.0,
        |s, [x]| {
            let (low, high) = (s.splat(low), s.splat(high));
            logit(s, s.select(s.lt(x, low), low, s.select(s.gt(x, high), high, x)))
        },
        from |args| logit_bounds(args.optional_double(1)?), if eps_is_plain;
    /// x min(max(x + 3, 0), 6) / 6.
    Hardswish = "hardswish", 4, ulps 2.0, |s, [x]| s.div(s.mul(x, gate(s, x)), s.splat(6.0));
    /// min(max(x + 3, 0), 6) / 6.
    Hardsigmoid = "hardsigmoid", 4, ulps 1.5, |s, [x]| s.div(gate(s, x), s.splat(6.0));
}

/// GELU by the error function.
#[inline(always)]
fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(s.splat(0.5), x);
    // Not fused: the product with a factor of zero must have the sign of x.
    s.mul(half, s.add(s.splat(1.0), erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)))))
}

/// GELU by its tanh approximation.
#[inline(always)]
fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let cubic = s.fma(s.mul(s.mul(x, x), x), s.splat(0.044_715), x);
    let half = s.mul(s.splat(0.5), x);
    s.mul(half, s.add(s.splat(1.0), tanh(s, s.mul(s.splat(SQRT_2_OVER_PI), cubic))))
}

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

fn own(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    Ok(Dtypes::same(dtype_of(ctx, 0)?))
}

fn not_bool(ctx: &PrepareContext<'_>) -> Result<Dtypes> {
    match dtype_of(ctx, 0)? {
        DType::Bool => Err(Error::kernel("the operator is not defined for bool").argument("self")),
        dtype => Ok(Dtypes::same(dtype)),
    }
}

macro_rules! activation {
    ($name:literal, |$x:ident| $e:expr) => {
        kernel(concat!("aten::", $name, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"), |ctx| {
            float(ctx, Positions::UNARY, own(ctx)?, |$x, _, _, _| $e, |$x, _, _, _| $e)
        })
    };
    ($name:literal, in float64 $function:expr) => {
        kernel(concat!("aten::", $name, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"), |ctx| {
            float(
                ctx,
                Positions::UNARY,
                own(ctx)?,
                |x, _, _, _| $function(f64::from(x)) as f32,
                |x, _, _, _| $function(x),
            )
        })
    };
}

fn plain_silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn plain_mish(x: f64) -> f64 {
    x * x.exp().ln_1p().tanh()
}

/// By the complementary error function, which keeps its digits where 1 + erf cancels.
fn plain_gelu_erf(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn plain_gelu_tanh(x: f64) -> f64 {
    x / (1.0 + gelu_exponent(x).exp())
}

fn gelu(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[], out: 2, shape_of: None };
    match ctx.args.get(1) {
        Some(ArgSpec::String("none")) => float(
            ctx,
            POSITIONS,
            own(ctx)?,
            |x, _, _, _| plain_gelu_erf(f64::from(x)) as f32,
            |x, _, _, _| plain_gelu_erf(x),
        ),
        Some(ArgSpec::String("tanh")) => float(
            ctx,
            POSITIONS,
            own(ctx)?,
            |x, _, _, _| plain_gelu_tanh(f64::from(x)) as f32,
            |x, _, _, _| plain_gelu_tanh(x),
        ),
        _ => Err(Error::kernel("unknown approximation").argument("approximate").expected("'none' or 'tanh'")),
    }
}

/// ln(x / (1 - x)), x clamped to [eps, 1 - eps] first if there is an `eps` that is not negative.
fn logit_of(x: f64, eps: Option<f64>, one_less_eps: f64) -> f64 {
    let x = match eps {
        Some(eps) if eps >= 0.0 && x < eps => eps,
        Some(eps) if eps >= 0.0 && x > one_less_eps => one_less_eps,
        _ => x,
    };
    (x / (1.0 - x)).ln()
}

fn prepare_logit(ctx: &PrepareContext<'_>) -> Preparation {
    let dtypes = Dtypes::same(Positions::UNARY.promoted_to_float(ctx)?);
    float(
        ctx,
        Positions::UNARY_SCALAR,
        dtypes,
        |x, _, _, s| {
            // The upper bound is a float32, too.
            let upper = f64::from(1.0 - s.optional(0).unwrap_or(0.0));
            logit_of(f64::from(x), s.optional(0).map(f64::from), upper) as f32
        },
        |x, _, _, s| logit_of(x, s.optional(0), 1.0 - s.optional(0).unwrap_or(0.0)),
    )
}

fn elu(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[1, 2, 3], out: 4, shape_of: None };
    both_floats!(ctx, POSITIONS, own(ctx)?, |x, _, _, s| {
        let (alpha, scale, input_scale) = (s.get(0), s.get(1), s.get(2));
        if x <= 0.0 { (x * input_scale).exp_m1() * (alpha * scale) } else { x * scale }
    })
}

fn softplus(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };
    both_floats!(ctx, POSITIONS, own(ctx)?, |x, _, _, s| {
        let scaled = x * s.get(0);
        if scaled > s.get(1) { x } else { scaled.exp().ln_1p() / s.get(0) }
    })
}

fn leaky_relu(ctx: &PrepareContext<'_>) -> Preparation {
    both_floats!(ctx, Positions::UNARY_SCALAR, own(ctx)?, |x, _, _, s| if x > 0.0 { x } else { x * s.get(0) })
}

fn relu(ctx: &PrepareContext<'_>) -> Preparation {
    // The comparison that keeps NaN.
    both_floats!(ctx, Positions::UNARY, not_bool(ctx)?, |x, _, _, _| if x < 0.0 { 0.0 } else { x }, int x.max(0))
}

fn hardtanh(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };
    both_floats!(ctx, POSITIONS, not_bool(ctx)?, |x, _, _, s| {
        let x = if x < s.get(0) { s.get(0) } else { x };
        if x > s.get(1) { s.get(1) } else { x }
    }, int x.max(s.get(0)).min(s.get(1)))
}

/// relu and its kin.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", relu)
    .float::<Relu, 1>()
    .numbers::<LaneRelu, 1>(),
    kernel("aten::gelu.out(Tensor self, *, str approximate=\"none\", Tensor(a!) out) -> Tensor(a!)", gelu)
    .float::<GeluErf, 1>()
    .float::<GeluTanh, 1>()
    .doubles::<LaneGeluErf, 1>()
    .fast("vectorised_tanh", lanewise::prepare::<LaneGeluTanh, f64, 1>),
    kernel(
        "aten::hardtanh.out(Tensor self, Scalar min_val=-1, Scalar max_val=1, *, Tensor(a!) out) -> Tensor(a!)",
        hardtanh,
    )
    .float::<Hardtanh, 1>()
    .numbers::<LaneHardtanh, 1>(),
    kernel(
        "aten::leaky_relu.out(Tensor self, Scalar negative_slope=0.01, *, Tensor(a!) out) -> Tensor(a!)",
        leaky_relu,
    )
    .float::<LeakyRelu, 1>()
    .doubles::<LaneLeakyRelu, 1>(),
    kernel(
        "aten::elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1, *, Tensor(a!) out) -> Tensor(a!)",
        elu,
    )
    .float::<Elu, 1>()
    .doubles::<LaneElu, 1>(),
    kernel("aten::logit.out(Tensor self, float? eps=None, *, Tensor(a!) out) -> Tensor(a!)", prepare_logit)
    .float::<Logit, 1>()
    .doubles::<LaneLogit, 1>(),
    kernel(
        "aten::softplus.out(Tensor self, Scalar beta=1, Scalar threshold=20, *, Tensor(a!) out) -> Tensor(a!)",
        softplus,
    )
    .float::<Softplus, 1>()
    .doubles::<LaneSoftplus, 1>(),
    activation!("silu", in float64 plain_silu)
    .float::<Silu, 1>()
    .doubles::<LaneSilu, 1>()
    .complex64(complex_functions::silu),
    activation!("mish", in float64 plain_mish)
    .float::<Mish, 1>()
    .doubles::<LaneMish, 1>(),
    activation!("hardsigmoid", |x| (x + 3.0).clamp(0.0, 6.0) / 6.0)
    .float::<Hardsigmoid, 1>()
    .doubles::<LaneHardsigmoid, 1>(),
    activation!("hardswish", |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)
    .float::<Hardswish, 1>()
    .doubles::<LaneHardswish, 1>(),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    fn apply(operator: &str, extra: &[Arg], x: &[f32]) -> Vec<f32> {
        let mut args = vec![Arg::Tensor(Tensor::of(&[x.len()], x))];
        args.extend_from_slice(extra);
        run_out(operator, &args, DType::Float32, &[x.len()]).unwrap().values()
    }

    #[test]
    fn nan_stays_nan() {
        for (op, extra) in [
            ("aten::relu.out", vec![]),
            ("aten::hardtanh.out", vec![Arg::Double(-1.0), Arg::Double(1.0)]),
            ("aten::leaky_relu.out", vec![Arg::Double(0.1)]),
            ("aten::gelu.out", vec![Arg::from("none")]),
            ("aten::hardsigmoid.out", vec![]),
            ("aten::hardswish.out", vec![]),
        ] {
            assert!(apply(op, &extra, &[f32::NAN])[0].is_nan(), "{op}");
        }
    }

    #[test]
    fn known_values() {
        let close = |got: f32, want: f32| assert!((got - want).abs() < 1e-6, "{got} {want}");
        close(apply("aten::gelu.out", &["none".into()], &[1.0])[0], 0.841_344_7);
        close(apply("aten::gelu.out", &["tanh".into()], &[1.0])[0], 0.841_192);
        close(
            apply("aten::elu.out", &[Arg::Double(2.0), Arg::Int(1), Arg::Int(1)], &[-1.0])[0],
            -1.264_241_1,
        );
        close(apply("aten::logit.out", &[Arg::Double(0.1)], &[0.0])[0], -2.197_224_6);
        assert!(apply("aten::logit.out", &[Arg::None], &[2.0])[0].is_nan());
    }

    #[test]
    fn wrong_arguments_are_named() {
        let x = Tensor::of(&[1], &[1f32]);
        let e = error_text(run_out("aten::gelu.out", &[x.into(), "fast".into()], DType::Float32, &[1]));
        assert!(e.contains("'tanh'"), "{e}");
        let x = Tensor::of(&[1], &[1i32]);
        let e = error_text(run_out("aten::silu.out", &[x.into()], DType::Int32, &[1]));
        assert!(e.contains("floating-point") && e.contains("int32"), "{e}");
    }
}
