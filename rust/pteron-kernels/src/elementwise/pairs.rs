//! Costlier functions of two and three float tensors: powers, angles, rounded division, remainders, lerp, addcmul, addcdiv.

use super::floats::prepare;
use super::pointwise::{NO_PARAMETERS, Parameters, Pointwise, Scalars, always, functions, scalar};
use super::unary::floor;
use crate::vector_math::{
    Simd,
    inverse_trigonometric::atan2,
    power::pow,
    remainders::{floor_divide, fmod, remainder},
    tanh::with_sign_of,
};
use pteron_core::{ArgSpec, DType, StaticKernel};

/// Rough nanoseconds per 16 elements.
const CHEAP: usize = 4;
const COSTLY: usize = 25;

/// Sixteen-bit floats round the exponent, too, before they compute: the reference kernel's part.
fn is_single(args: &[ArgSpec<'_>]) -> bool {
    args.iter().filter_map(ArgSpec::tensor).all(|t| t.dtype == DType::Float32)
}

/// Roots have kernels of their own: as in PyTorch, (-0)^½ is -0 and (-inf)^½ is NaN, unlike IEEE 754's `pow`.
fn is_no_root(args: &[ArgSpec<'_>]) -> bool {
    is_single(args) && args.get(1).and_then(ArgSpec::number).is_none_or(|exponent| exponent.abs() != 0.5)
}

fn rounds_down(args: &[ArgSpec<'_>]) -> bool {
    matches!(args.get(2), Some(ArgSpec::String("floor")))
}

fn rounds_to_zero(args: &[ArgSpec<'_>]) -> bool {
    matches!(args.get(2), Some(ArgSpec::String("trunc")))
}

functions! {
    /// a^b.
    Pow<2> {}: "pow", 2, COSTLY, always, |_args| Pow {}, |_f, s, [a, b]| pow(s, a, b);
    /// a to a known power.
    PowScalar<1> { exponent }: "pow", 2, COSTLY, is_no_root, |args| PowScalar { exponent: scalar(args, 1)? },
        |f, s, [a]| pow(s, a, s.splat(f.exponent));
    /// The angle of the point (b, a).
    Atan2<2> {}: "atan2", 2, COSTLY, always, |_args| Atan2 {}, |_f, s, [a, b]| atan2(s, a, b);
    /// Remainder with the sign of a.
    Fmod<2> {}: "fmod", 2, COSTLY, always, |_args| Fmod {}, |_f, s, [a, b]| fmod(s, a, b);
    /// The same by a number.
    FmodScalar<1> { divisor }: "fmod", 2, COSTLY, is_single, |args| FmodScalar { divisor: scalar(args, 1)? },
        |f, s, [a]| fmod(s, a, s.splat(f.divisor));
    /// Remainder with the sign of b.
    Remainder<2> {}: "remainder", 2, COSTLY, always, |_args| Remainder {}, |_f, s, [a, b]| remainder(s, a, b);
    /// The same by a number.
    RemainderScalar<1> { divisor }: "remainder", 2, COSTLY, is_single,
        |args| RemainderScalar { divisor: scalar(args, 1)? }, |f, s, [a]| remainder(s, a, s.splat(f.divisor));
    /// a / b rounded down.
    DivFloor<2> {}: "div_floor", 3, COSTLY, rounds_down, |_args| DivFloor {}, |_f, s, [a, b]| floor_divide(s, a, b);
    /// a / b rounded to zero.
    DivTrunc<2> {}: "div_trunc", 3, CHEAP, rounds_to_zero, |_args| DivTrunc {}, |_f, s, [a, b]| {
        let q = s.div(a, b);
        with_sign_of(s, floor(s, s.abs(q)), q)
    };
    /// a + weight (b - a), in the form that meets the nearer end exactly.
    Lerp<2> { weight }: "lerp", 3, CHEAP, always, |args| Lerp { weight: scalar(args, 2)? },
        |f, s, [a, b]| {
            let way = s.sub(b, a);
            if f.weight.abs() < 0.5 {
                s.fma(s.splat(f.weight), way, a)
            } else {
                s.fnma(way, s.splat(1.0 - f.weight), b)
            }
        };
    /// a + value b c.
    Addcmul<3> { value }: "addcmul", 4, CHEAP, always, |args| Addcmul { value: scalar(args, 3)? },
        |f, s, [a, b, c]| s.add(a, s.mul(s.mul(s.splat(f.value), b), c));
    /// a + value b / c.
    Addcdiv<3> { value }: "addcdiv", 4, CHEAP, always, |args| Addcdiv { value: scalar(args, 3)? },
        |f, s, [a, b, c]| s.add(a, s.mul(s.splat(f.value), s.div(b, c)));
}

macro_rules! kernel {
    ($schema:literal, $p:ident, $n:literal) => {
        StaticKernel { schema: $schema, variant: "float", prepare: prepare::<$p, $n> }
    };
}
const DIV_MODE: &str =
    "aten::div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out) -> Tensor(a!)";

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    kernel!(
        "aten::pow.Tensor_Tensor_out(Tensor self, Tensor exponent, *, Tensor(a!) out) -> Tensor(a!)",
        Pow,
        2
    ),
    kernel!(
        "aten::pow.Tensor_Scalar_out(Tensor self, Scalar exponent, *, Tensor(a!) out) -> Tensor(a!)",
        PowScalar,
        1
    ),
    kernel!("aten::atan2.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Atan2, 2),
    kernel!("aten::fmod.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Fmod, 2),
    kernel!(
        "aten::fmod.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        FmodScalar,
        1
    ),
    kernel!(
        "aten::remainder.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        Remainder,
        2
    ),
    kernel!(
        "aten::remainder.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
        RemainderScalar,
        1
    ),
    StaticKernel { schema: DIV_MODE, variant: "float", prepare: prepare::<DivFloor, 2> },
    StaticKernel { schema: DIV_MODE, variant: "float", prepare: prepare::<DivTrunc, 2> },
    kernel!(
        "aten::lerp.Scalar_out(Tensor self, Tensor end, Scalar weight, *, Tensor(a!) out) -> Tensor(a!)",
        Lerp,
        2
    ),
    kernel!(
        "aten::addcmul.out(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1, Tensor(a!) out) -> Tensor(a!)",
        Addcmul,
        3
    ),
    kernel!(
        "aten::addcdiv.out(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1, Tensor(a!) out) -> Tensor(a!)",
        Addcdiv,
        3
    ),
];
