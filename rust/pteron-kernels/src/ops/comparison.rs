//! Comparisons: eq, ne, lt, le, gt, ge.
//!
//! Shape: broadcast. Dtype: operands are promoted, the result is bool and may be stored in any dtype
//! as 0 or 1. Edge cases: every comparison with NaN is false, except `ne`.

use crate::operator::{Operator, kernel};
use crate::elementwise::plain::{Dtypes, Positions, number};

macro_rules! comparisons {
    ($($name:literal $operator:tt),*) => {
        /// Comparisons with a tensor and with a number.
        pub static OPERATORS: &[Operator] = &[ $(
            kernel(
                concat!("aten::", $name, ".Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"),
                |ctx| {
                    let p = Positions::BINARY;
                    let dtypes = Dtypes::predicate(p.promoted(ctx)?);
                    number(
                        ctx, p, dtypes,
                        |a, b, _, _| (a $operator b) as u8 as f32,
                        |a, b, _, _| (a $operator b) as u8 as f64,
                        |a, b, _, _| Ok((a $operator b) as i64),
                    )
                },
            ),
            kernel(
                concat!("aten::", $name, ".Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)"),
                |ctx| {
                    let p = Positions::UNARY_SCALAR;
                    let dtypes = Dtypes::predicate(p.promoted(ctx)?);
                    number(
                        ctx, p, dtypes,
                        |a, _, _, s| (a $operator s.get(0)) as u8 as f32,
                        |a, _, _, s| (a $operator s.get(0)) as u8 as f64,
                        |a, _, _, s| Ok((a $operator s.get(0)) as i64),
                    )
                },
            ),
        )* ];
    };
}
comparisons!("eq" ==, "ne" !=, "lt" <, "le" <=, "gt" >, "ge" >=);

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn nan_equals_nothing() {
        let x = Tensor::of(&[2], &[f32::NAN, 1.0]);
        let eq = run_out("aten::eq.Tensor_out", &[x.clone().into(), x.clone().into()], DType::Bool, &[2]).unwrap();
        assert_eq!(eq.values::<Bool8>(), [Bool8(0), Bool8(1)]);
        let ne = run_out("aten::ne.Scalar_out", &[x.into(), Arg::Int(1)], DType::Bool, &[2]).unwrap();
        assert_eq!(ne.values::<Bool8>(), [Bool8(1), Bool8(0)]);
    }

    #[test]
    fn large_integers_compare_exactly() {
        let a = Tensor::of(&[1], &[(1i64 << 53) + 1]);
        let b = Tensor::of(&[1], &[1i64 << 53]);
        let y = run_out("aten::gt.Tensor_out", &[a.into(), b.into()], DType::UInt8, &[1]).unwrap();
        assert_eq!(y.values::<u8>(), [1]);
    }

    #[test]
    fn bool_operands_compare_as_truth_values() {
        let a = Tensor::of(&[1], &[Bool8(3)]);
        let b = Tensor::of(&[1], &[Bool8(1)]);
        let y = run_out("aten::eq.Tensor_out", &[a.into(), b.into()], DType::Bool, &[1]).unwrap();
        assert_eq!(y.values::<Bool8>(), [Bool8(1)]);
    }
}
