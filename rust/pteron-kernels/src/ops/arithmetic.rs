//! Sums and products of two operands: add, sub, rsub, mul, addcmul, lerp, atan2.
//!
//! Shape: broadcast. Dtype: promoted. Edge cases: integers wrap, bool adds as "or", bool does not
//! subtract, `alpha` must be an integer when the operands are.

use crate::operator::{Operator, kernel};
use crate::elementwise::plain::{Dtypes, Positions, float, number};
use crate::promotion::Promotion;
use crate::routine::Preparation;
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

const TENSOR_ALPHA: Positions = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
const SCALAR_ALPHA: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };

/// The promoted dtype of arguments 0 and 1; checks `alpha`, argument 2.
fn with_alpha(ctx: &PrepareContext<'_>, is_subtraction: bool) -> Result<Dtypes> {
    let mut promotion = Promotion::default();
    promotion.argument(ctx, 0)?;
    promotion.argument(ctx, 1)?;
    let common = promotion.result()?;
    if !common.is_float() && matches!(ctx.args.get(2), Some(ArgSpec::Double(_))) {
        return Err(Error::kernel("alpha must be an integer when the operands are integers")
            .argument("alpha")
            .got("a float"));
    }
    let is_bool = |i: usize| match ctx.args.get(i) {
        Some(ArgSpec::Tensor(spec, _)) => spec.dtype == DType::Bool,
        other => matches!(other, Some(ArgSpec::Bool(_))),
    };
    if is_subtraction && (is_bool(0) || is_bool(1)) {
        return Err(Error::kernel("bool does not subtract").hint("use logical_xor"));
    }
    Ok(Dtypes::same(common))
}

macro_rules! linear {
    ($schema:literal, $positions:expr, $is_subtraction:expr, |$a:ident, $b:ident, $s:ident| float $f:expr, int $i:expr) => {
        kernel($schema, |ctx| {
            let dtypes = with_alpha(ctx, $is_subtraction)?;
            number(
                ctx,
                $positions,
                dtypes,
                |$a, $b, _, $s| $f,
                |$a, $b, _, $s| $f,
                |$a: i64, $b: i64, _, $s| Ok($i),
            )
        })
    };
}

fn product(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions::BINARY;
    let dtypes = Dtypes::same(p.promoted(ctx)?);
    number(ctx, p, dtypes, |a, b, _, _| a * b, |a, b, _, _| a * b, |a, b, _, _| Ok(a.wrapping_mul(b)))
}

fn scalar_product(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions::UNARY_SCALAR;
    let dtypes = Dtypes::same(p.promoted(ctx)?);
    number(
        ctx,
        p,
        dtypes,
        |a, _, _, s| a * s.get(0),
        |a, _, _, s| a * s.get(0),
        |a, _, _, s| Ok(a.wrapping_mul(s.get(0))),
    )
}

fn addcmul(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0, 1, 2], scalars: &[3], out: 4, shape_of: None };
    let common = Positions { scalars: &[], ..p }.promoted(ctx)?;
    number(
        ctx,
        p,
        Dtypes::same(common),
        |a, b, c, s| a + s.get(0) * b * c,
        |a, b, c, s| a + s.get(0) * b * c,
        |a, b, c, s| Ok(a.wrapping_add(s.get(0).wrapping_mul(b).wrapping_mul(c))),
    )
}

fn addcdiv(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0, 1, 2], scalars: &[3], out: 4, shape_of: None };
    let common = Positions { scalars: &[], ..p }.promoted(ctx)?;
    float(ctx, p, Dtypes::same(common), |a, b, c, s| a + s.get(0) * (b / c), |a, b, c, s| a + s.get(0) * (b / c))
}

fn lerp(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
    let common = Positions::BINARY.promoted(ctx)?;
    // The two forms meet the end points exactly.
    macro_rules! body {
        () => {
            |a, b, _, s| {
                let w = s.get(0);
                if w.abs() < 0.5 { a + w * (b - a) } else { b - (b - a) * (1.0 - w) }
            }
        };
    }
    float(ctx, p, Dtypes::same(common), body!(), body!())
}

macro_rules! float_pair {
    ($name:literal, |$a:ident, $b:ident| $e:expr) => {
        kernel(
            concat!("aten::", $name, ".out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"),
            |ctx| {
                let dtypes = Dtypes::same(Positions::BINARY.promoted_to_float(ctx)?);
                float(ctx, Positions::BINARY, dtypes, |$a, $b, _, _| $e, |$a, $b, _, _| $e)
            },
        )
    };
}

/// add and its kin.
pub static OPERATORS: &[Operator] = &[
    linear!(
        "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        TENSOR_ALPHA, false, |a, b, s| float a + s.get(0) * b, int a.wrapping_add(s.get(0).wrapping_mul(b))
    ),
    linear!(
        "aten::add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SCALAR_ALPHA, false,
        |a, _b, s| float a + s.get(1) * s.get(0), int a.wrapping_add(s.get(1).wrapping_mul(s.get(0)))
    ),
    linear!(
        "aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        TENSOR_ALPHA, true, |a, b, s| float a - s.get(0) * b, int a.wrapping_sub(s.get(0).wrapping_mul(b))
    ),
    linear!(
        "aten::sub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SCALAR_ALPHA, true,
        |a, _b, s| float a - s.get(1) * s.get(0), int a.wrapping_sub(s.get(1).wrapping_mul(s.get(0)))
    ),
    linear!(
        "aten::rsub.Tensor_out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        TENSOR_ALPHA, true, |a, b, s| float b - s.get(0) * a, int b.wrapping_sub(s.get(0).wrapping_mul(a))
    ),
    linear!(
        "aten::rsub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SCALAR_ALPHA, true,
        |a, _b, s| float s.get(0) - s.get(1) * a, int s.get(0).wrapping_sub(s.get(1).wrapping_mul(a))
    ),
    kernel("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", product),
    kernel("aten::mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", scalar_product),
    kernel(
        "aten::addcmul.out(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1, Tensor(a!) out) -> Tensor(a!)",
        addcmul,
    ),
    kernel(
        "aten::addcdiv.out(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1, Tensor(a!) out) -> Tensor(a!)",
        addcdiv,
    ),
    kernel("aten::lerp.Scalar_out(Tensor self, Tensor end, Scalar weight, *, Tensor(a!) out) -> Tensor(a!)", lerp),
    float_pair!("atan2", |a, b| a.atan2(b)),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use half::f16;
    use pteron_core::{Bool8, DType};

    #[test]
    fn add_broadcasts_and_scales() {
        let a = Tensor::of(&[2, 1], &[1f32, 2.0]);
        let b = Tensor::of(&[3], &[10f32, 20.0, 30.0]);
        let y = run_out("aten::add.out", &[a.into(), b.into(), Arg::Int(2)], DType::Float32, &[2, 3]).unwrap();
        assert_eq!(y.shape(), &[2, 3]);
        assert_eq!(y.values::<f32>(), [21.0, 41.0, 61.0, 22.0, 42.0, 62.0]);
    }

    #[test]
    fn narrow_integers_wrap_before_they_are_widened() {
        let a = Tensor::of(&[1], &[100i8]);
        let y = run_out("aten::add.out", &[a.clone().into(), a.into(), Arg::Int(1)], DType::Int64, &[1]).unwrap();
        assert_eq!(y.values::<i64>(), [-56]);
    }

    #[test]
    fn half_is_rounded_before_it_is_widened() {
        let a = Tensor::of(&[1], &[f16::from_f32(2048.0)]);
        let one = Tensor::of(&[1], &[f16::from_f32(1.0)]);
        let y = run_out("aten::add.out", &[a.into(), one.into(), Arg::Int(1)], DType::Float32, &[1]).unwrap();
        assert_eq!(y.values::<f32>(), [2048.0]);
    }

    #[test]
    fn bool_adds_as_or_and_does_not_subtract() {
        let t = Tensor::of(&[1], &[Bool8(1)]);
        let y = run_out("aten::add.out", &[t.clone().into(), t.clone().into(), Arg::Int(1)], DType::Bool, &[1]);
        assert_eq!(y.unwrap().values::<Bool8>(), [Bool8(1)]);
        let e = error_text(run_out("aten::sub.out", &[t.clone().into(), t.into(), Arg::Int(1)], DType::Bool, &[1]));
        assert!(e.contains("logical_xor"), "{e}");
    }

    #[test]
    fn float_alpha_needs_float_operands() {
        let t = Tensor::of(&[1], &[1i64]);
        let args = [t.clone().into(), t.into(), Arg::Double(2.5)];
        assert!(error_text(run_out("aten::add.out", &args, DType::Int64, &[1])).contains("alpha"));
    }

    #[test]
    fn shapes_that_do_not_broadcast_are_refused() {
        let a = Tensor::of(&[2], &[1f32, 2.0]);
        let b = Tensor::of(&[3], &[1f32, 2.0, 3.0]);
        let e = error_text(run_out("aten::mul.out", &[a.into(), b.into()], DType::Float32, &[3]));
        assert!(e.contains("[2] and [3]"), "{e}");
    }

    #[test]
    fn many_chunks_and_mixed_orders_agree_with_plain_loops() {
        let (c, n) = (3usize, 100usize);
        let a: Vec<f32> = (0..c * n * n).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..c).map(|i| 1000.0 * i as f32).collect();
        let x = Tensor::of(&[1, c, n, n], &a).in_order(&[0, 2, 3, 1]);
        let y = Tensor::of(&[c, 1, 1], &b);
        let z = run_out("aten::add.out", &[x.into(), y.into(), Arg::Int(1)], DType::Float32, &[1, c, n, n]).unwrap();
        let z = z.values::<f32>();
        for ch in 0..c {
            for p in 0..n * n {
                assert_eq!(z[ch * n * n + p], a[p * c + ch] + b[ch]);
            }
        }
    }
}
