//! Operations on bits: and, or, xor, not, shifts.
//!
//! Shape: broadcast. Dtype: integers and bool, promoted; shifts refuse bool. Edge cases: a shift by
//! a negative amount or by at least the width gives 0 to the left and the sign to the right.

use crate::elementwise::lanewise::{Bits, lanes};
use crate::elementwise::plain::{Dtypes, Positions, integer};
use crate::operator::{Operator, kernel};
use crate::ops::logical::{LaneAnd as LogicalAnd, LaneOr as LogicalOr, LaneXor as LogicalXor};
use crate::ops::unary_number::LaneNot as LogicalNot;
use crate::routine::{Preparation, dtype_of};
use pteron_core::{DType, Error, PrepareContext, Result};

const SCALAR_FIRST: Positions = Positions { inputs: &[1], scalars: &[0], out: 2, shape_of: None };

fn not(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = dtype_of(ctx, 0)?;
    if dtype == DType::Bool {
        return integer(ctx, Positions::UNARY, Dtypes::same(dtype), |a, _, _, _| Ok((a == 0) as i64));
    }
    integer(ctx, Positions::UNARY, Dtypes::same(dtype), |a, _, _, _| Ok(!a))
}

/// The common dtype of a shift and its number of bits, less one for the sign.
fn shift_dtypes(ctx: &PrepareContext<'_>, positions: Positions) -> Result<(Dtypes, i64)> {
    let dtype = positions.promoted(ctx)?;
    if dtype == DType::Bool {
        return Err(Error::kernel("bool tensors do not shift"));
    }
    let is_signed = matches!(dtype, DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64);
    Ok((Dtypes::same(dtype), dtype.size() as i64 * 8 - i64::from(is_signed)))
}

fn shift_left(a: i64, by: i64, most: i64) -> i64 {
    // One more than the value bits still moves a bit into the sign.
    if by < 0 || by > most.min(63) { 0 } else { a << by }
}

fn shift_right(a: i64, by: i64, most: i64) -> i64 {
    a >> if by < 0 || by > most { most.min(63) } else { by.min(63) }
}

fn shift(ctx: &PrepareContext<'_>, apply: fn(i64, i64, i64) -> i64) -> Preparation {
    if ctx.tensor(1).is_some() {
        let (dtypes, most) = shift_dtypes(ctx, Positions::BINARY)?;
        integer(ctx, Positions::BINARY, dtypes, move |a, b, _, _| Ok(apply(a, b, most)))
    } else {
        let (dtypes, most) = shift_dtypes(ctx, Positions::UNARY_SCALAR)?;
        integer(ctx, Positions::UNARY_SCALAR, dtypes, move |a, _, _, s| Ok(apply(a, s.get(0), most)))
    }
}

/// Rows of and, or and xor, whose fast kernels are those of the logical operators on bool, and of what else is there.
macro_rules! bit_operators {
    ($($name:literal $operator:tt $lane:ident $logical:ident),*; $($row:expr),* $(,)?) => {
        lanes! { $( $lane: [T: Bits] T => T = $name, 4, |_s, [a, b]| a $operator b; )* }

        /// Operators on bits.
        pub static OPERATORS: &[Operator] = &[ $(
            kernel(
                concat!("aten::", $name, ".Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"),
                |ctx| {
                    let dtypes = Dtypes::same(Positions::BINARY.promoted(ctx)?);
                    integer(ctx, Positions::BINARY, dtypes, |a, b, _, _| Ok(a $operator b))
                },
            )
            .bools::<$logical, 2>()
            .integers::<$lane, 2>(),
            kernel(
                concat!("aten::", $name, ".Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)"),
                |ctx| {
                    let dtypes = Dtypes::same(Positions::UNARY_SCALAR.promoted(ctx)?);
                    integer(ctx, Positions::UNARY_SCALAR, dtypes, |a, _, _, s| Ok(a $operator s.get(0)))
                },
            ),
            kernel(
                concat!("aten::", $name, ".Scalar_Tensor_out(Scalar self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"),
                |ctx| {
                    let dtypes = Dtypes::same(SCALAR_FIRST.promoted(ctx)?);
                    integer(ctx, SCALAR_FIRST, dtypes, |a, _, _, s| Ok(s.get(0) $operator a))
                },
            ),
        )* $($row),* ];
    };
}

lanes! {
    LaneNot: [T: Bits] T => T = "bitwise_not", 4, |_s, [x]| !x;
    LaneShiftLeft: [T: Bits] T => T = "bitwise_left_shift", 4, |_s, [a, by]| a.shifted_left(by);
    LaneShiftRight: [T: Bits] T => T = "bitwise_right_shift", 4, |_s, [a, by]| a.shifted_right(by);
}

bit_operators! {
    "bitwise_and" & LaneAnd LogicalAnd, "bitwise_or" | LaneOr LogicalOr, "bitwise_xor" ^ LaneXor LogicalXor;
    kernel("aten::bitwise_not.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", not)
        .bools::<LogicalNot, 1>()
        .integers::<LaneNot, 1>(),
    kernel(
        "aten::bitwise_left_shift.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| shift(ctx, shift_left),
    )
    .integers::<LaneShiftLeft, 2>(),
    kernel(
        "aten::bitwise_left_shift.Tensor_Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| shift(ctx, shift_left),
    ),
    kernel(
        "aten::bitwise_right_shift.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| shift(ctx, shift_right),
    )
    .integers::<LaneShiftRight, 2>(),
    kernel(
        "aten::bitwise_right_shift.Tensor_Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| shift(ctx, shift_right),
    ),
}

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn shifts_beyond_the_width() {
        let x = Tensor::of(&[3], &[-7i8, 7, -128]);
        let shift = |op: &str, by: i64| {
            run_out(op, &[x.clone().into(), Arg::Int(by)], DType::Int8, &[3]).unwrap().values::<i8>()
        };
        let (left, right) =
            ("aten::bitwise_left_shift.Tensor_Scalar_out", "aten::bitwise_right_shift.Tensor_Scalar_out");
        assert_eq!(shift(right, 1), [-4, 3, -64]);
        assert_eq!(shift(right, 9), [-1, 0, -1]);
        assert_eq!(shift(right, -1), [-1, 0, -1]);
        assert_eq!(shift(left, 9), [0, 0, 0]);
        assert_eq!(shift(left, -1), [0, 0, 0]);
        assert_eq!(shift(left, 1), [-14, 14, 0]);
    }

    #[test]
    fn not_of_bool_is_logical_and_floats_are_refused() {
        let x = Tensor::of(&[2], &[Bool8(1), Bool8(0)]);
        let y = run_out("aten::bitwise_not.out", &[x.into()], DType::Bool, &[2]).unwrap();
        assert_eq!(y.values::<Bool8>(), [Bool8(0), Bool8(1)]);
        let x = Tensor::of(&[1], &[1f32]);
        let e = run_out("aten::bitwise_and.Scalar_out", &[x.into(), Arg::Int(1)], DType::Float32, &[1]);
        assert!(error_text(e).contains("integer"));
    }
}
