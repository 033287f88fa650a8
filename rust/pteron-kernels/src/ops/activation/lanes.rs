//! Activation functions of float64 and, where there are such, of integers.

use crate::elementwise::lanewise::{Number, lanes, number_at};
use crate::vector_math::{
    Simd,
    double::{self, error_function, exponentials, logarithms},
};
use pteron_core::ArgSpec;

lanes! {
    LaneRelu: [T: Number] T => T = "relu", 4, |_s, [x]| if T::ZERO > x { T::ZERO } else { x };
    LaneHardtanh { low, high }: [T: Number] T => T = "hardtanh", 4,
        |_s, [x]| {
            let x = if x < low { low } else { x };
            if x > high { high } else { x }
        },
        from |args| [number_at(args, 1)?, number_at(args, 2)?],
        if |args| args.get(1).is_some_and(T::holds) && args.get(2).is_some_and(T::holds);
    LaneLeakyRelu { slope }: [] f64 => f64 = "leaky_relu", 4, |_s, [x]| if x > 0.0 { x } else { x * slope },
        from |args| [number_at(args, 1)?];
    LaneHardsigmoid: [] f64 => f64 = "hardsigmoid", 8, |_s, [x]| (x + 3.0).clamp(0.0, 6.0) / 6.0;
    LaneHardswish: [] f64 => f64 = "hardswish", 8, |_s, [x]| x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
    LaneSilu: [] f64 => f64 = "silu", 20, |s, [x]| x * double::sigmoid(s, x);
    LaneGeluErf: [] f64 => f64 = "gelu_erf", 70,
        |s, [x]| 0.5 * x * error_function::erfc(s, -x * std::f64::consts::FRAC_1_SQRT_2),
        if |args| matches!(args.get(1), Some(ArgSpec::String("none")));
    LaneGeluTanh: [] f64 => f64 = "gelu_tanh", 24, |s, [x]| x / (1.0 + double::exp(s, gelu_exponent(x))),
        if |args| matches!(args.get(1), Some(ArgSpec::String("tanh")));
    LaneElu { alpha, scale, input_scale }: [] f64 => f64 = "elu", 24,
        |s, [x]| {
            let low = exponentials::expm1(s, x * input_scale) * (alpha * scale);
            if x <= 0.0 { low } else { x * scale }
        },
        from |args| [number_at(args, 1)?, number_at(args, 2)?, number_at(args, 3)?];
    LaneSoftplus { beta, threshold }: [] f64 => f64 = "softplus", 70,
        |s, [x]| {
            let scaled = x * beta;
            let soft = logarithms::log1p(s, double::exp(s, scaled)) / beta;
            if scaled > threshold { x } else { soft }
        },
        from |args| [number_at(args, 1)?, number_at(args, 2)?];
    LaneMish: [] f64 => f64 = "mish", 30, |s, [x]| mish_double(s, x);
    LaneLogit { low, high }: [] f64 => f64 = "logit", 40,
        |s, [x]| {
            let bounded = if x > high { high } else { x };
            let x = if x < low { low } else { bounded };
            double::log(s, x / (1.0 - x))
        },
        from |args| double_bounds(args.optional_double(1)?);
}

/// (1 + tanh u) / 2 is the logistic function of 2 u, which does not cancel; this is -2 u.
#[inline(always)]
pub(super) fn gelu_exponent(x: f64) -> f64 {
    const TWICE_SQRT_2_OVER_PI: f64 = 1.595_769_121_605_730_8;
    -TWICE_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)
}

/// With e = e^x, tanh(ln(1 + e)) is n / (n + 2) for n = e (e + 2): nothing cancels. Subnormal exponentials have few digits;
/// PyTorch multiplies them by x, too.
#[inline(always)]
fn mish_double<S: Simd>(s: S, x: f64) -> f64 {
    // From 20 on the factor rounds to one.
    let e = double::exp(s, if x > 40.0 { 40.0 } else { x });
    let n = e * (e + 2.0);
    x * (n / (n + 2.0))
}

/// The bounds that `eps` sets; none if it is negative or NaN.
fn double_bounds(eps: Option<f64>) -> [f64; 2] {
    match eps {
        Some(eps) if eps >= 0.0 => [eps, 1.0 - eps],
        _ => [f64::NEG_INFINITY, f64::INFINITY],
    }
}
