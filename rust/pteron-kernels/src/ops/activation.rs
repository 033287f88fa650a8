//! Activation functions.
//!
//! Shape: that of `self`. Dtype: floats; `relu` and `hardtanh` also integers. Edge cases: NaN stays
//! NaN; `logit` without `eps` gives NaN outside [0, 1].
//!
//! Formulas that overflow or cancel somewhere in the range of float32 are computed in float64 and rounded.

use crate::operator::{Operator, kernel};
use crate::elementwise::plain::{Dtypes, Positions, float, number};
use crate::routine::{Preparation, dtype_of};
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

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

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn mish(x: f64) -> f64 {
    x * x.exp().ln_1p().tanh()
}

/// By the complementary error function, which keeps its digits where 1 + erf cancels.
fn gelu_erf(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// (1 + tanh u) / 2 as a logistic function of 2 u, which does not cancel.
fn gelu_tanh(x: f64) -> f64 {
    const TWICE_SQRT_2_OVER_PI: f64 = 1.595_769_121_605_730_8;
    x / (1.0 + (-TWICE_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).exp())
}

fn gelu(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[], out: 2, shape_of: None };
    match ctx.args.get(1) {
        Some(ArgSpec::String("none")) => float(
            ctx,
            POSITIONS,
            own(ctx)?,
            |x, _, _, _| gelu_erf(f64::from(x)) as f32,
            |x, _, _, _| gelu_erf(x),
        ),
        Some(ArgSpec::String("tanh")) => float(
            ctx,
            POSITIONS,
            own(ctx)?,
            |x, _, _, _| gelu_tanh(f64::from(x)) as f32,
            |x, _, _, _| gelu_tanh(x),
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

fn logit(ctx: &PrepareContext<'_>) -> Preparation {
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
    macro_rules! body {
        () => {
            |x, _, _, s| {
                let (alpha, scale, input_scale) = (s.get(0), s.get(1), s.get(2));
                if x <= 0.0 { (x * input_scale).exp_m1() * (alpha * scale) } else { x * scale }
            }
        };
    }
    float(ctx, POSITIONS, own(ctx)?, body!(), body!())
}

fn softplus(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };
    macro_rules! body {
        () => {
            |x, _, _, s| {
                let scaled = x * s.get(0);
                if scaled > s.get(1) { x } else { scaled.exp().ln_1p() / s.get(0) }
            }
        };
    }
    float(ctx, POSITIONS, own(ctx)?, body!(), body!())
}

fn leaky_relu(ctx: &PrepareContext<'_>) -> Preparation {
    macro_rules! body {
        () => {
            |x, _, _, s| if x > 0.0 { x } else { x * s.get(0) }
        };
    }
    float(ctx, Positions::UNARY_SCALAR, own(ctx)?, body!(), body!())
}

fn relu(ctx: &PrepareContext<'_>) -> Preparation {
    // The comparison that keeps NaN.
    number(
        ctx,
        Positions::UNARY,
        not_bool(ctx)?,
        |x, _, _, _| if x < 0.0 { 0.0 } else { x },
        |x, _, _, _| if x < 0.0 { 0.0 } else { x },
        |x, _, _, _| Ok(x.max(0)),
    )
}

fn hardtanh(ctx: &PrepareContext<'_>) -> Preparation {
    const POSITIONS: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };
    macro_rules! body {
        () => {
            |x, _, _, s| {
                let x = if x < s.get(0) { s.get(0) } else { x };
                if x > s.get(1) { s.get(1) } else { x }
            }
        };
    }
    number(ctx, POSITIONS, not_bool(ctx)?, body!(), body!(), |x, _, _, s| Ok(x.max(s.get(0)).min(s.get(1))))
}

/// relu and its kin.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", relu),
    kernel("aten::gelu.out(Tensor self, *, str approximate=\"none\", Tensor(a!) out) -> Tensor(a!)", gelu),
    kernel(
        "aten::hardtanh.out(Tensor self, Scalar min_val=-1, Scalar max_val=1, *, Tensor(a!) out) -> Tensor(a!)",
        hardtanh,
    ),
    kernel(
        "aten::leaky_relu.out(Tensor self, Scalar negative_slope=0.01, *, Tensor(a!) out) -> Tensor(a!)",
        leaky_relu,
    ),
    kernel(
        "aten::elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1, *, Tensor(a!) out) -> Tensor(a!)",
        elu,
    ),
    kernel("aten::logit.out(Tensor self, float? eps=None, *, Tensor(a!) out) -> Tensor(a!)", logit),
    kernel(
        "aten::softplus.out(Tensor self, Scalar beta=1, Scalar threshold=20, *, Tensor(a!) out) -> Tensor(a!)",
        softplus,
    ),
    activation!("silu", in float64 silu),
    activation!("mish", in float64 mish),
    activation!("hardsigmoid", |x| (x + 3.0).clamp(0.0, 6.0) / 6.0),
    activation!("hardswish", |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
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
        close(apply("aten::elu.out", &[Arg::Double(2.0), Arg::Int(1), Arg::Int(1)], &[-1.0])[0], -1.264_241_1);
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
