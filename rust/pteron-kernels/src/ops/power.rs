//! Powers: tensor to tensor, tensor to number, number to tensor.
//!
//! Shape: broadcast. Dtype: promoted; bool is refused. Edge cases: integer powers wrap; a negative
//! integer exponent is refused as a number and gives 0, 1 or -1 as a tensor.

use crate::elementwise::lanewise::{Number, lanes};
use crate::elementwise::plain::{Dtypes, Positions, both_floats, number};
use crate::elementwise::pointwise::{functions, is_single, scalar};
use crate::operator::{Operator, kernel};
use crate::ops::complex_functions;
use crate::routine::Preparation;
use crate::vector_math::power::pow;
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

functions! {
    /// x².
    Square = "pow_2", 3, ulps 0.5, |s, [x]| s.mul(x, x), if |args| exponent_is(args, 2.0);
    /// x³.
    Cube = "pow_3", 3, ulps 1.5, |s, [x]| s.mul(s.mul(x, x), x), if |args| exponent_is(args, 3.0);
    /// x^½, as the square root.
    PowHalf = "pow_half", 3, ulps 0.5, |s, [x]| s.sqrt(x), if |args| exponent_is(args, 0.5);
    /// x^-½.
    PowMinusHalf = "pow_minus_half", 3, ulps 1.5, |s, [x]| s.div(s.splat(1.0), s.sqrt(x)),
        if |args| exponent_is(args, -0.5);
    /// x^-1.
    PowMinusOne = "pow_minus_one", 3, ulps 1.0, |s, [x]| s.div(s.splat(1.0), x), if |args| exponent_is(args, -1.0);
    /// a to a known power.
    PowScalar { exponent } = "pow", 25, ulps 4.0, |s, [a]| pow(s, a, s.splat(exponent)),
        from |args| [scalar(args, 1)?], if is_no_root;
    /// a^b.
    Pow = "pow", 25, |s, [a, b]| pow(s, a, b);
}

lanes! {
    LaneSquare: [T: Number] T => T = "pow_2", 4, |_s, [x]| x.times(x), if |args| exponent_is(args, 2.0);
    LaneCube: [T: Number] T => T = "pow_3", 4, |_s, [x]| x.times(x).times(x), if |args| exponent_is(args, 3.0);
}

fn exponent_is(args: &[ArgSpec<'_>], exponent: f64) -> bool {
    args.get(1).and_then(ArgSpec::number) == Some(exponent)
}

/// Roots have kernels of their own: as in PyTorch, (-0)^½ is -0 and (-inf)^½ is NaN, unlike IEEE 754's `pow`.
fn is_no_root(args: &[ArgSpec<'_>]) -> bool {
    is_single(args) && args.get(1).and_then(ArgSpec::number).is_none_or(|exponent| exponent.abs() != 0.5)
}

fn int_power(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => {
                if exponent % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

fn dtypes(ctx: &PrepareContext<'_>, positions: Positions) -> Result<Dtypes> {
    match positions.promoted(ctx)? {
        DType::Bool => Err(Error::kernel("bool tensors have no powers")),
        dtype => Ok(Dtypes::same(dtype)),
    }
}

fn tensor_tensor(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions::BINARY;
    number(
        ctx,
        p,
        dtypes(ctx, p)?,
        |a, b, _, _| a.powf(b),
        |a, b, _, _| a.powf(b),
        |a, b, _, _| Ok(int_power(a, b)),
    )
}

#[cold]
fn negative_power() -> Error {
    Error::kernel("integers have no negative integer powers").argument("exponent")
}

fn tensor_scalar(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions::UNARY_SCALAR;
    let exponent = ctx.args.get(1).and_then(ArgSpec::number);
    let common = p.promoted(ctx)?;
    // The first power is a copy, of bool too.
    let dtypes = if exponent == Some(1.0) { Dtypes::same(common) } else { dtypes(ctx, p)? };
    if !common.is_float() && exponent.is_some_and(|e| e < 0.0) {
        return Err(negative_power());
    }
    // Exponents that have a function of their own, which is both exact and fast.
    macro_rules! special {
        (|$x:ident| $e:expr) => {
            number(
                ctx,
                p,
                dtypes,
                |$x, _, _, _| $e,
                |$x, _, _, _| $e,
                |x, _, _, s| Ok(int_power(x, s.get(0))),
            )
        };
    }
    match exponent {
        Some(0.5) => special!(|x| x.sqrt()),
        Some(-0.5) => special!(|x| 1.0 / x.sqrt()),
        Some(1.0) => special!(|x| x),
        Some(2.0) => special!(|x| x * x),
        Some(3.0) => special!(|x| x * x * x),
        _ => number(
            ctx,
            p,
            dtypes,
            |a, _, _, s| a.powf(s.get(0)),
            |a, _, _, s| a.powf(s.get(0)),
            |a, _, _, s| {
                if s.get(0) < 0 {
                    return Err(negative_power());
                }
                Ok(int_power(a, s.get(0)))
            },
        ),
    }
}

fn scalar_tensor(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[1], scalars: &[0], out: 2, shape_of: None };
    both_floats!(ctx, p, dtypes(ctx, p)?, |b, _, _, s| s.get(0).powf(b), int int_power(s.get(0), b))
}

/// pow.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::pow.Tensor_Tensor_out(Tensor self, Tensor exponent, *, Tensor(a!) out) -> Tensor(a!)",
        tensor_tensor,
    )
    .float::<Pow, 2>()
    .complex64(complex_functions::pow),
    kernel(
        "aten::pow.Tensor_Scalar_out(Tensor self, Scalar exponent, *, Tensor(a!) out) -> Tensor(a!)",
        tensor_scalar,
    )
    .float::<Square, 1>()
    .float::<Cube, 1>()
    .float::<PowHalf, 1>()
    .float::<PowMinusHalf, 1>()
    .float::<PowMinusOne, 1>()
    .float::<PowScalar, 1>()
    .numbers::<LaneSquare, 1>()
    .numbers::<LaneCube, 1>()
    .complex64(complex_functions::pow_number),
    kernel(
        "aten::pow.Scalar_out(Scalar self, Tensor exponent, *, Tensor(a!) out) -> Tensor(a!)",
        scalar_tensor,
    )
    .complex64(complex_functions::number_pow),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn integer_powers() {
        let base = Tensor::of(&[4], &[2i64, 1, -1, 0]);
        let exponent = Tensor::of(&[4], &[-1i64, -1, -3, -1]);
        let y = run_out(
            "aten::pow.Tensor_Tensor_out",
            &[base.clone().into(), exponent.into()],
            DType::Int64,
            &[4],
        );
        assert_eq!(y.unwrap().values::<i64>(), [0, 1, -1, 0]);
        let e = run_out("aten::pow.Tensor_Scalar_out", &[base.into(), Arg::Int(-1)], DType::Int64, &[4]);
        assert!(error_text(e).contains("negative"));
    }

    #[test]
    fn roots_and_squares() {
        let x = Tensor::of(&[2], &[f32::NEG_INFINITY, 4.0]);
        let y = run_out("aten::pow.Tensor_Scalar_out", &[x.into(), Arg::Double(0.5)], DType::Float32, &[2])
            .unwrap();
        let y = y.values::<f32>();
        assert!(y[0].is_nan() && y[1] == 2.0);
        let x = Tensor::of(&[1], &[3i32]);
        let y = run_out("aten::pow.Scalar_out", &[Arg::Double(2.0), x.into()], DType::Float32, &[1]).unwrap();
        assert_eq!(y.values::<f32>(), [8.0]);
    }
}
