//! Mantissa and exponent of floats (frexp).
//!
//! x = mantissa · 2^exponent with 0.5 ≤ |mantissa| < 1. Shape: that of `self`. Dtype: floats; the exponent is
//! int32. Edge cases: zeros, infinities and NaN are their own mantissa, with exponent 0.

use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

const MANTISSA_BITS: u64 = (1 << 52) - 1;

fn split(x: f64) -> (f64, i64) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    // A subnormal number becomes a normal one.
    let (x, shift) = if x.abs() < f64::MIN_POSITIVE { (x * 2f64.powi(64), 64) } else { (x, 0) };
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1022;
    (f64::from_bits(bits & (1 << 63 | MANTISSA_BITS) | 1022 << 52), exponent - shift)
}

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    args.resize(1, &shape)?;
    args.resize(2, &shape)
}

fn run(args: &Args<'_>) -> Result<()> {
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let (mut mantissas, mut exponents) =
        (Writer::<f64>::new(args.output(1)?)?, Writer::<i64>::new(args.output(2)?)?);
    let (to_mantissas, to_exponents) = (row_major(mantissas.meta()), row_major(exponents.meta()));
    let (mut buffer, mut mantissa, mut exponent) = ([0.0; BLOCK], [0.0; BLOCK], [0; BLOCK]);
    x.blocks(&row_major(x.meta()), 0, &mut buffer, |at, block| {
        for (i, v) in block.iter().enumerate() {
            (mantissa[i], exponent[i]) = split(*v);
        }
        mantissas.scatter(&to_mantissas, 0, at, &mantissa[..block.len()])?;
        exponents.scatter(&to_exponents, 0, at, &exponent[..block.len()])
    })
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check_float(ctx, 1)?;
    same_dtype(ctx, 0, 1)?;
    if dtype_of(ctx, 2)? != DType::Int32 {
        return Err(Error::kernel("exponents are int32").argument("exponent").got(dtype_of(ctx, 2)?.name()));
    }
    Routine::prepare(bind, |args, _| run(args))
}

/// frexp.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::frexp.Tensor_out(Tensor self, *, Tensor(a!) mantissa, Tensor(b!) exponent) -> (Tensor(a!) mantissa, Tensor(b!) exponent)",
    prepare,
)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_multiply_to_the_number() {
        for x in [1.0, -0.75, 5e-324, -1e-310, f64::MAX, 3.0e10] {
            let (m, e) = split(x);
            assert!((0.5..1.0).contains(&m.abs()));
            assert_eq!(m * 2f64.powi((e / 2) as i32) * 2f64.powi((e - e / 2) as i32), x);
        }
        assert!(split(-0.0).0.is_sign_negative() && split(f64::NAN).0.is_nan());
    }
}
