//! Logical and, or, xor of truth values.
//!
//! Shape: broadcast. Dtype: any; the result is bool and may be stored in any dtype as 0 or 1. Edge
//! cases: NaN is true.

use crate::elementwise::lanewise::{Number, lanes};
use crate::elementwise::plain::{Dtypes, Positions, number};
use crate::operator::{Operator, kernel};
use crate::ops::complex_functions;
use pteron_core::Bool8;

lanes! {
    /// Any byte but zero is true, here and below.
    LaneAnd: [] Bool8 => Bool8 = "logical_and", 1, |_s, [a, b]| Bool8(u8::from(a.0 != 0) & u8::from(b.0 != 0));
    LaneOr: [] Bool8 => Bool8 = "logical_or", 1, |_s, [a, b]| Bool8::from(a.0 | b.0 != 0);
    LaneXor: [] Bool8 => Bool8 = "logical_xor", 1, |_s, [a, b]| Bool8::from((a.0 != 0) != (b.0 != 0));
    /// Of other elements, NaN among them, without branches.
    NumberAnd: [T: Number] T => Bool8 = "logical_and", 4,
        |_s, [a, b]| Bool8::from((a != T::ZERO) & (b != T::ZERO));
    NumberOr: [T: Number] T => Bool8 = "logical_or", 4, |_s, [a, b]| Bool8::from((a != T::ZERO) | (b != T::ZERO));
    NumberXor: [T: Number] T => Bool8 = "logical_xor", 4,
        |_s, [a, b]| Bool8::from((a != T::ZERO) ^ (b != T::ZERO));
}

macro_rules! logical {
    ($($name:literal $operator:tt $lane:ident $numbers:ident $complex:ident),*) => {
        /// Operators on two tensors.
        pub static OPERATORS: &[Operator] = &[ $(
            kernel(
                concat!("aten::", $name, ".out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"),
                |ctx| {
                    let p = Positions::BINARY;
                    let dtypes = Dtypes::predicate(p.promoted(ctx)?);
                    number(
                        ctx, p, dtypes,
                        |a, b, _, _| ((a != 0.0) $operator (b != 0.0)) as u8 as f32,
                        |a, b, _, _| ((a != 0.0) $operator (b != 0.0)) as u8 as f64,
                        |a, b, _, _| Ok(((a != 0) $operator (b != 0)) as i64),
                    )
                },
            )
            .bools::<$lane, 2>()
            .numbers::<$numbers, 2>()
            .complex64(complex_functions::$complex),
        )* ];
    };
}
logical!(
    "logical_and" & LaneAnd NumberAnd logical_and,
    "logical_or" | LaneOr NumberOr logical_or,
    "logical_xor" ^ LaneXor NumberXor logical_xor
);

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn nan_is_true() {
        let a = Tensor::of(&[2], &[f32::NAN, 0.0]);
        let b = Tensor::of(&[2], &[1i64, 1]);
        let y = run_out("aten::logical_and.out", &[a.into(), b.into()], DType::Bool, &[2]).unwrap();
        assert_eq!(y.values::<Bool8>(), [Bool8(1), Bool8(0)]);
    }
}
