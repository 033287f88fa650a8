//! Sums and products of two operands: add, sub, rsub, mul, addcmul, lerp, atan2.
//!
//! Shape: broadcast. Dtype: promoted. Edge cases: integers wrap, bool adds as "or", bool does not
//! subtract, `alpha` must be an integer when the operands are.

use crate::elementwise::lanewise::{Number, has_no_factor, holds_number, lanes, number_argument, number_at};
use crate::elementwise::plain::{Dtypes, Positions, both_floats, float};
use crate::elementwise::pointwise::{functions, scalar};
use crate::operator::{Operator, kernel};
use crate::ops::complex_lanes::{ComplexAdd, ComplexMul, ComplexSub};
use crate::ops::{complex_elementwise, complex_functions};
use crate::promotion::Promotion;
use crate::routine::Preparation;
use crate::vector_math::{double::arcs, inverse_trigonometric::atan2};
use pteron_core::{ArgSpec, DType, Error, PrepareContext, Result};

const TENSOR_ALPHA: Positions = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
const SCALAR_ALPHA: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };

functions! {
    /// a + alpha b, the product rounded first as eager does on x86.
    Add [TAKES_NUMBERS] { alpha } = "add", 4,
        |s, [a, b]| if alpha == 1.0 { s.add(a, b) } else { s.fma(b, s.splat(alpha), a) }, from |args| [scalar(args, 2)?];
    /// a - alpha b.
    Sub [TAKES_NUMBERS] { alpha } = "sub", 4,
        |s, [a, b]| if alpha == 1.0 { s.sub(a, b) } else { s.fma(b, s.splat(-alpha), a) }, from |args| [scalar(args, 2)?];
    /// a b.
    Mul [TAKES_NUMBERS] = "mul", 4, |s, [a, b]| s.mul(a, b);
    /// x + alpha * other.
    AddScalar { addend } = "add", 3, |s, [x]| s.add(x, s.splat(addend)),
        from |args| [(args.double(1)? * args.double(2)?) as f32];
    /// x - alpha * other.
    SubScalar { subtrahend } = "sub", 3, |s, [x]| s.sub(x, s.splat(subtrahend)),
        from |args| [(args.double(1)? * args.double(2)?) as f32], if subtracts_a_number;
    /// b - alpha a.
    Rsub { alpha } = "rsub", 4,
        |s, [a, b]| if alpha == 1.0 { s.sub(b, a) } else { s.fma(a, s.splat(-alpha), b) }, from |args| [scalar(args, 2)?];
    /// other - alpha * x.
    RsubScalar { minuend, factor } = "rsub", 3, ulps 0.5,
        |s, [x]| s.sub(s.splat(minuend), s.mul(x, s.splat(factor))),
        from |args| [scalar(args, 1)?, scalar(args, 2)?], if subtracts_a_number;
    /// x * other.
    MulScalar { factor } = "mul", 3, |s, [x]| s.mul(x, s.splat(factor)), from |args| [scalar(args, 1)?];
    /// a + weight (b - a), in the form that meets the nearer end exactly.
    Lerp { weight } = "lerp", 4,
        |s, [a, b]| {
            let way = s.sub(b, a);
            if weight.abs() < 0.5 { s.fma(s.splat(weight), way, a) } else { s.fnma(way, s.splat(1.0 - weight), b) }
        },
        from |args| [scalar(args, 2)?];
    /// a + value b c.
    Addcmul { value } = "addcmul", 4, |s, [a, b, c]| s.add(a, s.mul(s.mul(s.splat(value), b), c)),
        from |args| [scalar(args, 3)?];
    /// a + value b / c.
    Addcdiv { value } = "addcdiv", 4, |s, [a, b, c]| s.add(a, s.mul(s.splat(value), s.div(b, c))),
        from |args| [scalar(args, 3)?];
    /// The angle of the point (b, a).
    Atan2 = "atan2", 25, |s, [a, b]| atan2(s, a, b);
}

lanes! {
    LaneAdd: [T: Number] T => T = "add", 4, |_s, [a, b]| a.plus(b), if has_no_factor::<T>;
    LaneSub: [T: Number] T => T = "sub", 4, |_s, [a, b]| a.minus(b), if has_no_factor::<T>;
    LaneRsub: [T: Number] T => T = "rsub", 4, |_s, [a, b]| b.minus(a), if has_no_factor::<T>;
    LaneMul: [T: Number] T => T = "mul", 4, |_s, [a, b]| a.times(b);
    LaneAddScalar { b }: [T: Number] T => T = "add", 4, |_s, [a]| a.plus(b),
        from |args| [number_argument(args)?], if |args| holds_number::<T>(args) && has_no_factor::<T>(args);
    LaneSubScalar { b }: [T: Number] T => T = "sub", 4, |_s, [a]| a.minus(b),
        from |args| [number_argument(args)?],
        if |args| holds_number::<T>(args) && subtracts_a_number(args) && has_no_factor::<T>(args);
    LaneRsubScalar { b }: [T: Number] T => T = "rsub", 4, |_s, [a]| b.minus(a),
        from |args| [number_argument(args)?],
        if |args| holds_number::<T>(args) && subtracts_a_number(args) && has_no_factor::<T>(args);
    LaneMulScalar { b }: [T: Number] T => T = "mul", 4, |_s, [a]| a.times(b),
        from |args| [number_argument(args)?], if holds_number::<T>;
    LaneAddcmul { value }: [T: Number] T => T = "addcmul", 4, |_s, [a, b, c]| a.plus(value.times(b).times(c)),
        from |args| [number_at(args, 3)?], if |args| args.get(3).is_some_and(T::holds);
    LaneAddcdiv { value }: [] f64 => f64 = "addcdiv", 8, |_s, [a, b, c]| a + value * (b / c),
        from |args| [number_at(args, 3)?];
    LaneLerp { weight }: [] f64 => f64 = "lerp", 4,
        |_s, [a, b]| if weight.abs() < 0.5 { a + weight * (b - a) } else { b - (b - a) * (1.0 - weight) },
        from |args| [number_at(args, 2)?];
    LaneAtan2: [] f64 => f64 = "atan2", 50, |s, [a, b]| arcs::atan2(s, a, b);
}

/// The plain kernel refuses to subtract a bool.
fn subtracts_a_number(args: &[ArgSpec<'_>]) -> bool {
    !matches!(args.get(1), Some(ArgSpec::Bool(_)))
}

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
            both_floats!(ctx, $positions, dtypes, |$a, $b, _, $s| $f, int $i)
        })
    };
}

fn product(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions::BINARY;
    let dtypes = Dtypes::same(p.promoted(ctx)?);
    both_floats!(ctx, p, dtypes, |a, b, _, _| a * b, int a.wrapping_mul(b))
}

fn scalar_product(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions::UNARY_SCALAR;
    let dtypes = Dtypes::same(p.promoted(ctx)?);
    both_floats!(ctx, p, dtypes, |a, _, _, s| a * s.get(0), int a.wrapping_mul(s.get(0)))
}

fn addcmul(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0, 1, 2], scalars: &[3], out: 4, shape_of: None };
    let common = Positions { scalars: &[], ..p }.promoted(ctx)?;
    both_floats!(ctx, p, Dtypes::same(common), |a, b, c, s| a + s.get(0) * b * c,
        int a.wrapping_add(s.get(0).wrapping_mul(b).wrapping_mul(c)))
}

fn addcdiv(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0, 1, 2], scalars: &[3], out: 4, shape_of: None };
    let common = Positions { scalars: &[], ..p }.promoted(ctx)?;
    both_floats!(ctx, p, Dtypes::same(common), |a, b, c, s| a + s.get(0) * (b / c))
}

fn lerp(ctx: &PrepareContext<'_>) -> Preparation {
    let p = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
    let common = Positions::BINARY.promoted(ctx)?;
    // The two forms meet the end points exactly.
    both_floats!(ctx, p, Dtypes::same(common), |a, b, _, s| {
        let w = s.get(0);
        if w.abs() < 0.5 { a + w * (b - a) } else { b - (b - a) * (1.0 - w) }
    })
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
    )
    .float::<Add, 2>()
    .numbers::<LaneAdd, 2>()
    .complexes::<ComplexAdd, 2>()
    .complex64(complex_elementwise::add),
    linear!(
        "aten::add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SCALAR_ALPHA, false,
        |a, _b, s| float a + s.get(1) * s.get(0), int a.wrapping_add(s.get(1).wrapping_mul(s.get(0)))
    )
    .float::<AddScalar, 1>()
    .numbers::<LaneAddScalar, 1>()
    .complex64(complex_elementwise::add_number),
    linear!(
        "aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        TENSOR_ALPHA, true, |a, b, s| float a - s.get(0) * b, int a.wrapping_sub(s.get(0).wrapping_mul(b))
    )
    .float::<Sub, 2>()
    .numbers::<LaneSub, 2>()
    .complexes::<ComplexSub, 2>()
    .complex64(complex_elementwise::sub),
    linear!(
        "aten::sub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SCALAR_ALPHA, true,
        |a, _b, s| float a - s.get(1) * s.get(0), int a.wrapping_sub(s.get(1).wrapping_mul(s.get(0)))
    )
    .float::<SubScalar, 1>()
    .numbers::<LaneSubScalar, 1>()
    .complex64(complex_elementwise::sub_number),
    linear!(
        "aten::rsub.Tensor_out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        TENSOR_ALPHA, true, |a, b, s| float b - s.get(0) * a, int b.wrapping_sub(s.get(0).wrapping_mul(a))
    )
    .float::<Rsub, 2>()
    .numbers::<LaneRsub, 2>()
    .complex64(complex_functions::rsub),
    linear!(
        "aten::rsub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)",
        SCALAR_ALPHA, true,
        |a, _b, s| float s.get(0) - s.get(1) * a, int s.get(0).wrapping_sub(s.get(1).wrapping_mul(a))
    )
    .float::<RsubScalar, 1>()
    .numbers::<LaneRsubScalar, 1>()
    .complex64(complex_functions::rsub_number),
    kernel("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", product)
    .float::<Mul, 2>()
    .numbers::<LaneMul, 2>()
    .complexes::<ComplexMul, 2>()
    .complex64(complex_elementwise::mul),
    kernel("aten::mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", scalar_product)
    .float::<MulScalar, 1>()
    .numbers::<LaneMulScalar, 1>()
    .complex64(complex_elementwise::mul_number),
    kernel(
        "aten::addcmul.out(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1, Tensor(a!) out) -> Tensor(a!)",
        addcmul,
    )
    .float::<Addcmul, 3>()
    .numbers::<LaneAddcmul, 3>()
    .complex64(complex_functions::addcmul),
    kernel(
        "aten::addcdiv.out(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1, Tensor(a!) out) -> Tensor(a!)",
        addcdiv,
    )
    .float::<Addcdiv, 3>()
    .doubles::<LaneAddcdiv, 3>()
    .complex64(complex_functions::addcdiv),
    kernel("aten::lerp.Scalar_out(Tensor self, Tensor end, Scalar weight, *, Tensor(a!) out) -> Tensor(a!)", lerp)
    .float::<Lerp, 2>()
    .doubles::<LaneLerp, 2>()
    .complex64(complex_functions::lerp),
    float_pair!("atan2", |a, b| a.atan2(b))
    .float::<Atan2, 2>()
    .doubles::<LaneAtan2, 2>(),
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
        let y =
            run_out("aten::add.out", &[a.into(), b.into(), Arg::Int(2)], DType::Float32, &[2, 3]).unwrap();
        assert_eq!(y.shape(), &[2, 3]);
        assert_eq!(y.values::<f32>(), [21.0, 41.0, 61.0, 22.0, 42.0, 62.0]);
    }

    #[test]
    fn narrow_integers_wrap_before_they_are_widened() {
        let a = Tensor::of(&[1], &[100i8]);
        let y =
            run_out("aten::add.out", &[a.clone().into(), a.into(), Arg::Int(1)], DType::Int64, &[1]).unwrap();
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
        let y =
            run_out("aten::add.out", &[t.clone().into(), t.clone().into(), Arg::Int(1)], DType::Bool, &[1]);
        assert_eq!(y.unwrap().values::<Bool8>(), [Bool8(1)]);
        let e = error_text(run_out(
            "aten::sub.out",
            &[t.clone().into(), t.into(), Arg::Int(1)],
            DType::Bool,
            &[1],
        ));
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
        let z = run_out("aten::add.out", &[x.into(), y.into(), Arg::Int(1)], DType::Float32, &[1, c, n, n])
            .unwrap();
        let z = z.values::<f32>();
        for ch in 0..c {
            for p in 0..n * n {
                assert_eq!(z[ch * n * n + p], a[p * c + ch] + b[ch]);
            }
        }
    }
}
