//! Functions of one float: exp, log, trigonometry, roots, error function.
//!
//! Shape: that of `self`. Dtype: integers and bool compute in float32; float16 and bfloat16 in
//! float32. Edge cases: those of IEEE arithmetic, NaN stays NaN.

use crate::elementwise::lanewise::lanes;
use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::elementwise::pointwise::functions;
use crate::operator::{Operator, kernel};
use crate::ops::{complex_elementwise, complex_functions};
use crate::vector_math::{
    double::{self, arcs, error_function, exponentials, logarithms, trigonometric},
    erf::erf,
    exp::{exp, exp2, expm1},
    hyperbolic::{acosh, asinh, atanh, cosh, sinh},
    inverse_trigonometric::{acos, asin, atan},
    log::{log, log1p, log2, log10},
    sigmoid::sigmoid,
    tanh::tanh,
    trigonometric::{cos, sin, tan},
};
use pteron_core::PrepareContext;

fn dtypes(ctx: &PrepareContext<'_>) -> pteron_core::Result<Dtypes> {
    Ok(Dtypes::same(Positions::UNARY.promoted_to_float(ctx)?))
}

// The standard library's inverse hyperbolic functions lose digits, and overflow before their results do.

/// NaN below one, where the library answers with numbers for some arguments.
fn plain_acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// For float32 in float64: its exponential overflows where the result is still a number.
fn plain_sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

lanes! {
    LaneExp: [] f64 => f64 = "exp", 16, |s, [x]| double::exp(s, x);
    LaneExp2: [] f64 => f64 = "exp2", 16, |s, [x]| exponentials::exp2(s, x);
    LaneExpm1: [] f64 => f64 = "expm1", 20, |s, [x]| exponentials::expm1(s, x);
    LaneLog: [] f64 => f64 = "log", 20, |s, [x]| double::log(s, x);
    LaneLog2: [] f64 => f64 = "log2", 60, |s, [x]| logarithms::log2(s, x);
    LaneLog10: [] f64 => f64 = "log10", 60, |s, [x]| logarithms::log10(s, x);
    LaneLog1p: [] f64 => f64 = "log1p", 50, |s, [x]| logarithms::log1p(s, x);
    LaneSqrt: [] f64 => f64 = "sqrt", 8, |_s, [x]| x.sqrt();
    LaneRsqrt: [] f64 => f64 = "rsqrt", 8, |_s, [x]| 1.0 / x.sqrt();
    LaneReciprocal: [] f64 => f64 = "reciprocal", 4, |_s, [x]| 1.0 / x;
    LaneSin: [] f64 => f64 = "sin", 45, |s, [x]| trigonometric::sin(s, x),
        where trigonometric::is_near(x) => if trigonometric::is_near(x) { trigonometric::sin(s, x) } else { x.sin() };
    LaneCos: [] f64 => f64 = "cos", 45, |s, [x]| trigonometric::cos(s, x),
        where trigonometric::is_near(x) => if trigonometric::is_near(x) { trigonometric::cos(s, x) } else { x.cos() };
    LaneTan: [] f64 => f64 = "tan", 50, |s, [x]| trigonometric::tan(s, x),
        where trigonometric::is_near(x) => if trigonometric::is_near(x) { trigonometric::tan(s, x) } else { x.tan() };
    LaneAsin: [] f64 => f64 = "asin", 40, |s, [x]| arcs::asin(s, x);
    LaneAcos: [] f64 => f64 = "acos", 40, |s, [x]| arcs::acos(s, x);
    LaneAtan: [] f64 => f64 = "atan", 65, |s, [x]| arcs::atan(s, x);
    LaneSinh: [] f64 => f64 = "sinh", 30, |s, [x]| exponentials::sinh(s, x);
    LaneCosh: [] f64 => f64 = "cosh", 30, |s, [x]| exponentials::cosh(s, x);
    LaneTanh: [] f64 => f64 = "tanh", 20, |s, [x]| double::tanh(s, x);
    LaneAtanh: [] f64 => f64 = "atanh", 75, |s, [x]| logarithms::atanh(s, x);
    LaneErf: [] f64 => f64 = "erf", 80, |s, [x]| error_function::erf(s, x);
    LaneSigmoid: [] f64 => f64 = "sigmoid", 20, |s, [x]| double::sigmoid(s, x);
}

/// Rows of operators of one float. Each entry states what it is called, the nanoseconds that 16 elements take, the largest
/// error for all f32 inputs in units in the last place, the function of a vector, the plain function of an element (of float64
/// where it is another), and other kernels of the row.
macro_rules! float_functions {
    ($($(#[$doc:meta])* $name:ident = $op:literal, $cost:literal, ulps $ulps:literal, |$s:ident, $v:ident| $vector:expr,
        plain |$x:ident| $single:expr $(, of float64 $double:expr)?, [$($more:tt)*];)*) => {
        functions! { $($(#[$doc])* $name = $op, $cost, ulps $ulps, |$s, [$v]| $vector;)* }

        /// exp and its kin.
        pub static OPERATORS: &[Operator] = &[$(
            kernel(concat!("aten::", $op, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"), |ctx| {
                float_functions!(@plain ctx, |$x| $single $(, $double)?)
            })
            .float::<$name, 1>()
            $($more)*
        ),*];
    };
    (@plain $ctx:ident, |$x:ident| $both:expr) => { float_functions!(@plain $ctx, |$x| $both, $both) };
    (@plain $ctx:ident, |$x:ident| $single:expr, $double:expr) => {
        float($ctx, Positions::UNARY, dtypes($ctx)?, |$x, _, _, _| $single, |$x, _, _, _| $double)
    };
}

float_functions! {
    /// e^x.
    Exp = "exp", 10, ulps 1.1, |s, x| exp(s, x),
        plain |x| x.exp(), [.doubles::<LaneExp, 1>().complex64(complex_elementwise::exp)];
    /// 2^x.
    Exp2 = "exp2", 12, ulps 4.0, |s, x| exp2(s, x),
        plain |x| x.exp2(), [.doubles::<LaneExp2, 1>().complex64(complex_functions::exp2)];
    /// e^x - 1.
    Expm1 = "expm1", 12, ulps 4.0, |s, x| expm1(s, x),
        plain |x| x.exp_m1(), [.doubles::<LaneExpm1, 1>().complex64(complex_functions::expm1)];
    /// Natural logarithm.
    Log = "log", 10, ulps 0.9, |s, x| log(s, x),
        plain |x| x.ln(), [.doubles::<LaneLog, 1>().complex64(complex_elementwise::log)];
    /// log₂ x.
    Log2 = "log2", 12, ulps 4.0, |s, x| log2(s, x),
        plain |x| x.log2(), [.doubles::<LaneLog2, 1>().complex64(complex_functions::log2)];
    /// log₁₀ x.
    Log10 = "log10", 12, ulps 4.0, |s, x| log10(s, x),
        plain |x| x.log10(), [.doubles::<LaneLog10, 1>().complex64(complex_functions::log10)];
    /// ln(1 + x).
    Log1p = "log1p", 12, ulps 4.0, |s, x| log1p(s, x),
        plain |x| x.ln_1p(), [.doubles::<LaneLog1p, 1>().complex64(complex_functions::log1p)];
    /// Square root.
    Sqrt = "sqrt", 3, ulps 0.5, |s, x| s.sqrt(x),
        plain |x| x.sqrt(), [.doubles::<LaneSqrt, 1>().complex64(complex_functions::sqrt)];
    /// 1 / √x, both steps correctly rounded.
    Rsqrt = "rsqrt", 3, ulps 1.5, |s, x| s.div(s.splat(1.0), s.sqrt(x)),
        plain |x| 1.0 / x.sqrt(), [.doubles::<LaneRsqrt, 1>().complex64(complex_functions::rsqrt)];
    /// 1 / x.
    Reciprocal = "reciprocal", 3, ulps 0.5, |s, x| s.div(s.splat(1.0), x),
        plain |x| 1.0 / x, [.doubles::<LaneReciprocal, 1>().complex64(complex_elementwise::reciprocal)];
    /// Sine.
    Sin = "sin", 12, ulps 4.0, |s, x| sin(s, x),
        plain |x| x.sin(), [.doubles::<LaneSin, 1>().complex64(complex_functions::sin)];
    /// Cosine.
    Cos = "cos", 12, ulps 4.0, |s, x| cos(s, x),
        plain |x| x.cos(), [.doubles::<LaneCos, 1>().complex64(complex_functions::cos)];
    /// Tangent.
    Tan = "tan", 12, ulps 4.0, |s, x| tan(s, x),
        plain |x| x.tan(), [.doubles::<LaneTan, 1>().complex64(complex_functions::tan)];
    /// Arc sine.
    Asin = "asin", 12, ulps 4.0, |s, x| asin(s, x),
        plain |x| x.asin(), [.doubles::<LaneAsin, 1>().complex64(complex_functions::asin)];
    /// Arc cosine.
    Acos = "acos", 12, ulps 4.0, |s, x| acos(s, x),
        plain |x| x.acos(), [.doubles::<LaneAcos, 1>().complex64(complex_functions::acos)];
    /// Arc tangent.
    Atan = "atan", 12, ulps 4.0, |s, x| atan(s, x),
        plain |x| x.atan(), [.doubles::<LaneAtan, 1>().complex64(complex_functions::atan)];
    /// Hyperbolic sine.
    Sinh = "sinh", 12, ulps 4.0, |s, x| sinh(s, x),
        plain |x| x.sinh(), [.doubles::<LaneSinh, 1>().complex64(complex_functions::sinh)];
    /// Hyperbolic cosine.
    Cosh = "cosh", 12, ulps 4.0, |s, x| cosh(s, x),
        plain |x| x.cosh(), [.doubles::<LaneCosh, 1>().complex64(complex_functions::cosh)];
    /// Hyperbolic tangent.
    Tanh = "tanh", 10, ulps 2.7, |s, x| tanh(s, x),
        plain |x| x.tanh(), [.doubles::<LaneTanh, 1>().complex64(complex_functions::tanh)];
    /// Inverse hyperbolic sine.
    Asinh = "asinh", 12, ulps 4.0, |s, x| asinh(s, x),
        plain |x| libm::asinh(f64::from(x)) as f32, of float64 libm::asinh(x), [.complex64(complex_functions::asinh)];
    /// Inverse hyperbolic cosine.
    Acosh = "acosh", 12, ulps 4.0, |s, x| acosh(s, x),
        plain |x| plain_acosh(f64::from(x)) as f32, of float64 plain_acosh(x), [.complex64(complex_functions::acosh)];
    /// Inverse hyperbolic tangent.
    Atanh = "atanh", 12, ulps 4.0, |s, x| atanh(s, x),
        plain |x| libm::atanh(f64::from(x)) as f32, of float64 libm::atanh(x), [.doubles::<LaneAtanh, 1>().complex64(complex_functions::atanh)];
    /// Error function.
    Erf = "erf", 10, ulps 1.3, |s, x| erf(s, x),
        plain |x| libm::erff(x), of float64 libm::erf(x), [.doubles::<LaneErf, 1>()];
    /// 1 / (1 + e^-x).
    Sigmoid = "sigmoid", 10, ulps 2.5, |s, x| sigmoid(s, x),
        plain |x| plain_sigmoid(f64::from(x)) as f32, of float64 plain_sigmoid(x), [.doubles::<LaneSigmoid, 1>().complex64(complex_functions::sigmoid)];
}

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn special_values() {
        let x = Tensor::of(&[4], &[0.0f32, -0.0, f32::NEG_INFINITY, f32::NAN]);
        let y =
            run_out("aten::rsqrt.out", &[x.clone().into()], DType::Float32, &[4]).unwrap().values::<f32>();
        assert_eq!(&y[..2], &[f32::INFINITY, f32::NEG_INFINITY]);
        assert!(y[2].is_nan() && y[3].is_nan());
        let y = run_out("aten::sigmoid.out", &[x.into()], DType::Float32, &[4]).unwrap().values::<f32>();
        assert_eq!(&y[..3], &[0.5, 0.5, 0.0]);
    }

    #[test]
    fn integers_and_bool_compute_in_float32() {
        let x = Tensor::of(&[2], &[0i64, 1]);
        let y = run_out("aten::exp.out", &[x.into()], DType::Float32, &[2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, std::f32::consts::E]);
        let x = Tensor::of(&[1], &[Bool8(7)]);
        assert_eq!(
            run_out("aten::cos.out", &[x.into()], DType::Float64, &[1]).unwrap().values::<f64>(),
            [1f32.cos() as f64]
        );
    }

    #[test]
    fn float_results_do_not_go_into_integers() {
        let x = Tensor::of(&[1], &[1f32]);
        let e = crate::testing::error_text(run_out("aten::exp.out", &[x.into()], DType::Int32, &[1]));
        assert!(e.contains("output's dtype") && e.contains("int32"), "{e}");
    }

    #[test]
    fn empty_and_scalar() {
        let x = Tensor::of::<f32>(&[0, 3], &[]);
        assert_eq!(run_out("aten::exp.out", &[x.into()], DType::Float32, &[0, 3]).unwrap().shape(), &[0, 3]);
        let x = Tensor::of(&[], &[0f64]);
        assert_eq!(
            run_out("aten::erf.out", &[x.into()], DType::Float64, &[]).unwrap().values::<f64>(),
            [0.0]
        );
    }
}
