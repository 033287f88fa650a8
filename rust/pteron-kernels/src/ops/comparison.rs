//! Comparisons: eq, ne, lt, le, gt, ge.
//!
//! Shape: broadcast. Dtype: operands are promoted, the result is bool and may be stored in any dtype
//! as 0 or 1. Edge cases: every comparison with NaN is false, except `ne`.

use crate::elementwise::lanewise::{Number, holds_number, lanes, number_argument};
use crate::elementwise::plain::{Dtypes, Positions, number};
use crate::elementwise::pointwise::{functions, scalar};
use crate::operator::{Operator, kernel};
use crate::ops::{complex_elementwise, complex_functions};
use pteron_core::Bool8;

/// Rows of comparisons with a tensor and with a number. Each entry names the functions of floats, of other elements and of
/// bool, and states the comparison of two vectors and of two elements, and other kernels of the two rows.
macro_rules! comparisons {
    ($($name:literal: $tensor:ident, $scalar:ident, $lane:ident, $lane_scalar:ident, $bools:ident, |$s:ident, $a:ident, $b:ident| $mask:expr,
        $operator:tt, [$($more:tt)*], [$($more_scalar:tt)*];)*) => {
        functions! { $(
            $tensor [IS_PREDICATE] = $name, 4, |$s, [$a, $b]| $s.select($mask, $s.splat(1.0), $s.zero());
            $scalar [IS_PREDICATE] { $b } = $name, 4,
                |$s, [$a]| {
                    let $b = $s.splat($b);
                    $s.select($mask, $s.splat(1.0), $s.zero())
                },
                from |args| [scalar(args, 1)?];
        )* }

        lanes! { $(
            $lane: [T: Number] T => Bool8 = $name, 4, |_s, [a, b]| Bool8::from(a $operator b);
            $lane_scalar { b }: [T: Number] T => Bool8 = $name, 4, |_s, [a]| Bool8::from(a $operator b),
                from |args| [number_argument(args)?], if holds_number::<T>;
            $bools: [] Bool8 => Bool8 = $name, 1,
                |_s, [a, b]| Bool8::from(u8::from(a.get()) $operator u8::from(b.get()));
        )* }

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
            )
            .float::<$tensor, 2>()
            .numbers::<$lane, 2>()
            .bools::<$bools, 2>()
            $($more)*,
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
            )
            .float::<$scalar, 1>()
            .numbers::<$lane_scalar, 1>()
            $($more_scalar)*,
        )* ];
    };
}

comparisons! {
    "eq": Eq, EqScalar, LaneEq, LaneEqScalar, BoolEq, |s, a, b| s.eq(a, b), ==,
        [.complex64(complex_elementwise::eq)], [.complex64(complex_functions::eq_number)];
    "ne": Ne, NeScalar, LaneNe, LaneNeScalar, BoolNe, |s, a, b| s.not(s.eq(a, b)), !=,
        [.complex64(complex_elementwise::ne)], [.complex64(complex_functions::ne_number)];
    "lt": Lt, LtScalar, LaneLt, LaneLtScalar, BoolLt, |s, a, b| s.lt(a, b), <, [], [];
    "le": Le, LeScalar, LaneLe, LaneLeScalar, BoolLe, |s, a, b| s.le(a, b), <=, [], [];
    "gt": Gt, GtScalar, LaneGt, LaneGtScalar, BoolGt, |s, a, b| s.gt(a, b), >, [], [];
    "ge": Ge, GeScalar, LaneGe, LaneGeScalar, BoolGe, |s, a, b| s.ge(a, b), >=, [], [];
}

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn nan_equals_nothing() {
        let x = Tensor::of(&[2], &[f32::NAN, 1.0]);
        let eq =
            run_out("aten::eq.Tensor_out", &[x.clone().into(), x.clone().into()], DType::Bool, &[2]).unwrap();
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
