//! A choice per element by a mask: where, masked_fill.
//!
//! Shape: broadcast of all operands. Dtype: `where` promotes the two values, `masked_fill` keeps that
//! of `self`. Edge cases: the mask must be bool (`where` takes uint8 too); a number that the dtype
//! cannot hold is refused.

use crate::elementwise::plain::{Dtypes, Positions, both_floats};
use crate::elementwise::pointwise::{functions, is_single};
use crate::operator::{Operator, kernel};
use crate::ops::{complex_elementwise, complex_functions};
use crate::promotion::Promotion;
use crate::routine::{Preparation, dtype_of};
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

functions! {
    /// c ? a : b.
    Choose [HAS_CONDITION, TAKES_NUMBERS] = "where", 4, |s, [c, a, b]| s.select(s.eq(c, s.zero()), b, a), if is_single;
}

fn check_mask(ctx: &PrepareContext<'_>, position: usize, name: &str, allow_byte: bool) -> Result<()> {
    match dtype_of(ctx, position)? {
        DType::Bool => Ok(()),
        DType::UInt8 if allow_byte => Ok(()),
        other => {
            Err(Error::kernel("the mask must be bool").argument(name).expected("bool").got(other.name()))
        }
    }
}

/// An error when `value` is known and no integer of `dtype` is near it.
pub(crate) fn check_representable(value: Option<&ArgSpec<'_>>, dtype: DType) -> Result<()> {
    // Unsigned dtypes take negative numbers of their own width, as C does.
    let (low, high) = match dtype {
        DType::UInt8 => (-255.0, 255.0),
        DType::Int8 => (-128.0, 127.0),
        DType::UInt16 => (-65535.0, 65535.0),
        DType::Int16 => (-32768.0, 32767.0),
        DType::UInt32 => (-4294967295.0, 4294967295.0),
        DType::Int32 => (-2147483648.0, 2147483647.0),
        DType::Int64 => (-9223372036854775808.0, 9223372036854775807.0),
        _ => return Ok(()),
    };
    match value.and_then(ArgSpec::number) {
        Some(v) if v.trunc() < low || v.trunc() > high || v.is_nan() => {
            Err(Error::kernel("the number does not fit the dtype").expected(dtype.name()).got(v.to_string()))
        }
        _ => Ok(()),
    }
}

fn choose(ctx: &PrepareContext<'_>) -> Preparation {
    check_mask(ctx, 0, "condition", true)?;
    let mut promotion = Promotion::default();
    promotion.argument(ctx, 1)?;
    promotion.argument(ctx, 2)?;
    let p = Positions { inputs: &[0, 1, 2], scalars: &[], out: 3, shape_of: None };
    let dtypes = Dtypes::same(promotion.result()?);
    both_floats!(ctx, p, dtypes, |c, a, b, _| if c != 0.0 { a } else { b }, int if c != 0 { a } else { b })
}

fn fill_number(ctx: &PrepareContext<'_>) -> Preparation {
    check_mask(ctx, 1, "mask", false)?;
    let dtype = dtype_of(ctx, 0)?;
    check_representable(ctx.args.get(2), dtype)?;
    let p = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
    both_floats!(ctx, p, Dtypes::same(dtype), |a, m, _, s| if m != 0.0 { s.get(0) } else { a },
        int if m != 0 { s.get(0) } else { a })
}

fn fill_tensor(ctx: &PrepareContext<'_>) -> Preparation {
    check_mask(ctx, 1, "mask", false)?;
    if ctx.tensor(2).is_some_and(|t| !t.shape.is_empty()) {
        return Err(Error::kernel("the value must have no dimensions").argument("value"));
    }
    let p = Positions { inputs: &[0, 1, 2], scalars: &[], out: 3, shape_of: None };
    let dtypes = Dtypes::same(dtype_of(ctx, 0)?);
    both_floats!(ctx, p, dtypes, |a, m, v, _| if m != 0.0 { v } else { a }, int if m != 0 { v } else { a })
}

/// where, masked_fill.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        choose,
    )
    .float::<Choose, 3>()
    .complex64(complex_elementwise::choose),
    kernel(
        "aten::masked_fill.Scalar_out(Tensor self, Tensor mask, Scalar value, *, Tensor(a!) out) -> Tensor(a!)",
        fill_number,
    )
    .complex64(complex_functions::fill_number),
    kernel(
        "aten::masked_fill.Tensor_out(Tensor self, Tensor mask, Tensor value, *, Tensor(a!) out) -> Tensor(a!)",
        fill_tensor,
    )
    .complex64(complex_functions::fill_tensor),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn where_promotes_and_ignores_what_is_not_chosen() {
        let c = Tensor::of(&[2], &[Bool8(1), Bool8(0)]);
        let a = Tensor::of(&[2], &[1i64, 2]);
        let b = Tensor::of(&[1], &[f32::NAN]);
        let args = [c.into(), a.into(), b.into()];
        let y = run_out("aten::where.self_out", &args, DType::Float32, &[2]).unwrap().values::<f32>();
        assert!(y[0] == 1.0 && y[1].is_nan());
    }

    #[test]
    fn the_mask_must_be_bool_and_the_value_must_fit() {
        let x = Tensor::of(&[2], &[1i8, 2]);
        let mask = Tensor::of(&[2], &[Bool8(1), Bool8(0)]);
        let fill = |m: &Tensor, v: Arg| {
            run_out(
                "aten::masked_fill.Scalar_out",
                &[x.clone().into(), m.clone().into(), v],
                DType::Int8,
                &[2],
            )
        };
        assert_eq!(fill(&mask, Arg::Double(2.5)).unwrap().values::<i8>(), [2, 2]);
        assert!(error_text(fill(&mask, Arg::Int(2000))).contains("does not fit"));
        assert!(error_text(fill(&x, Arg::Int(0))).contains("must be bool"));
    }
}
