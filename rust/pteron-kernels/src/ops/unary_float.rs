//! Functions of one float: exp, log, trigonometry, roots, error function.
//!
//! Shape: that of `self`. Dtype: integers and bool compute in float32; float16 and bfloat16 in
//! float32. Edge cases: those of IEEE arithmetic, NaN stays NaN.

use crate::operator::{Operator, kernel};
use crate::elementwise::plain::{Dtypes, Positions, float};
use pteron_core::{PrepareContext};

fn dtypes(ctx: &PrepareContext<'_>) -> pteron_core::Result<Dtypes> {
    Ok(Dtypes::same(Positions::UNARY.promoted_to_float(ctx)?))
}

// The standard library's inverse hyperbolic functions lose digits, and overflow before their results do.

/// NaN below one, where the library answers with numbers for some arguments.
fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// For float32 in float64: its exponential overflows where the result is still a number.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

macro_rules! float_function {
    ($name:literal, |$x:ident| $single:expr, $double:expr) => {
        kernel(
            concat!("aten::", $name, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"),
            |ctx| float(ctx, Positions::UNARY, dtypes(ctx)?, |$x, _, _, _| $single, |$x, _, _, _| $double),
        )
    };
    ($name:literal, |$x:ident| $both:expr) => {
        float_function!($name, |$x| $both, $both)
    };
}

/// exp and its kin.
pub static OPERATORS: &[Operator] = &[
    float_function!("exp", |x| x.exp()),
    float_function!("exp2", |x| x.exp2()),
    float_function!("expm1", |x| x.exp_m1()),
    float_function!("log", |x| x.ln()),
    float_function!("log2", |x| x.log2()),
    float_function!("log10", |x| x.log10()),
    float_function!("log1p", |x| x.ln_1p()),
    float_function!("sqrt", |x| x.sqrt()),
    float_function!("rsqrt", |x| 1.0 / x.sqrt()),
    float_function!("reciprocal", |x| 1.0 / x),
    float_function!("sin", |x| x.sin()),
    float_function!("cos", |x| x.cos()),
    float_function!("tan", |x| x.tan()),
    float_function!("asin", |x| x.asin()),
    float_function!("acos", |x| x.acos()),
    float_function!("atan", |x| x.atan()),
    float_function!("sinh", |x| x.sinh()),
    float_function!("cosh", |x| x.cosh()),
    float_function!("tanh", |x| x.tanh()),
    float_function!("asinh", |x| libm::asinh(f64::from(x)) as f32, libm::asinh(x)),
    float_function!("acosh", |x| acosh(f64::from(x)) as f32, acosh(x)),
    float_function!("atanh", |x| libm::atanh(f64::from(x)) as f32, libm::atanh(x)),
    float_function!("erf", |x| libm::erff(x), libm::erf(x)),
    float_function!("sigmoid", |x| sigmoid(f64::from(x)) as f32, sigmoid(x)),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn special_values() {
        let x = Tensor::of(&[4], &[0.0f32, -0.0, f32::NEG_INFINITY, f32::NAN]);
        let y = run_out("aten::rsqrt.out", &[x.clone().into()], DType::Float32, &[4]).unwrap().values::<f32>();
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
        assert_eq!(run_out("aten::cos.out", &[x.into()], DType::Float64, &[1]).unwrap().values::<f64>(), [
            1f32.cos() as f64
        ]);
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
        assert_eq!(run_out("aten::erf.out", &[x.into()], DType::Float64, &[]).unwrap().values::<f64>(), [0.0]);
    }
}
