//! Functions of complex64 numbers beyond arithmetic: roots, exponentials, trigonometry, powers, truth, and
//! what fills or masks.
//!
//! Shape: operands broadcast. Dtype: complex64 where one operand is; bool for tests. Each value is computed
//! in float64 and rounded once. Edge cases: where a part is infinite or NaN, results are those of the
//! textbook formulas in float64, which libraries of C do not all share; branch cuts take the sign of a zero.

use crate::complex_number::{Number, number};
use crate::compute::Compute;
use crate::elementwise::plain::{Dtypes, Positions, Scalars, complex};
use crate::ops::complex_elementwise::{check, is_complex};
use crate::routine::Preparation;
use pteron_core::{DType, PrepareContext};

/// Prepares a function of the complex numbers at `positions`, or leaves the call to the kernels of real numbers.
fn prepare(
    ctx: &PrepareContext<'_>,
    positions: Positions,
    result: DType,
    f: fn(Number, Number, Number, &Scalars<Number>) -> Number,
) -> Preparation {
    if !is_complex(ctx, positions.inputs) {
        return ctx.decline("takes complex tensors");
    }
    check(ctx, positions.inputs, positions.out, result)?;
    complex(ctx, positions, Dtypes { common: DType::Complex64, result }, f)
}

const TERNARY: Positions = Positions { inputs: &[0, 1, 2], scalars: &[3], out: 4, shape_of: None };
const RSUB: Positions = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
const RSUB_SCALAR: Positions = Positions { inputs: &[0], scalars: &[1, 2], out: 3, shape_of: None };
const FROM_SCALAR: Positions = Positions { inputs: &[1], scalars: &[0], out: 2, shape_of: None };
const FILL: Positions = Positions { inputs: &[0, 1], scalars: &[2], out: 3, shape_of: None };
const FILL_TENSOR: Positions = Positions { inputs: &[0, 1, 2], scalars: &[], out: 3, shape_of: None };

fn truth(yes: bool) -> Number {
    Number::from_bool(yes)
}

/// Kernels: `name: positions, result dtype, function`.
macro_rules! kernels {
    ($($name:ident: $positions:expr, $dtype:ident, $function:expr;)*) => { $(
        pub(crate) fn $name(ctx: &PrepareContext<'_>) -> Preparation {
            prepare(ctx, $positions, DType::$dtype, $function)
        }
    )* };
}

/// Kernels of functions of one number.
macro_rules! functions {
    ($($name:ident: $function:expr;)*) => {
        kernels! { $($name: Positions::UNARY, Complex64, |z, _, _, _| $function(z);)* }
    };
}

functions! {
    sqrt: Number::sqrt;
    rsqrt: |z: Number| Number::ONE.over(z.sqrt());
    exp2: Number::exp2;
    expm1: Number::exp_m1;
    log2: Number::log2;
    log10: Number::log10;
    log1p: Number::ln_1p;
    sin: Number::sin;
    cos: Number::cos;
    tan: Number::tan;
    asin: Number::asin;
    acos: Number::acos;
    atan: Number::atan;
    sinh: Number::sinh;
    cosh: Number::cosh;
    tanh: Number::tanh;
    asinh: Number::asinh;
    acosh: Number::acosh;
    atanh: Number::atanh;
    sigmoid: Number::sigmoid;
    silu: |z: Number| z.times(z.sigmoid());
    sgn: |z: Number| if z.is_true() { number(z.re / z.magnitude(), z.im / z.magnitude()) } else { Number::ZERO };
}

kernels! {
    pow: Positions::BINARY, Complex64, |a, b, _, _| a.pow(b);
    pow_number: Positions::UNARY_SCALAR, Complex64, |a, _, _, s| a.pow(s.get(0));
    number_pow: FROM_SCALAR, Complex64, |a, _, _, s| s.get(0).pow(a);
    rsub: RSUB, Complex64, |a, b, _, s| b.minus(a.times(s.get(0)));
    rsub_number: RSUB_SCALAR, Complex64, |a, _, _, s| s.get(0).minus(a.times(s.get(1)));
    addcmul: TERNARY, Complex64, |x, a, b, s| x.plus(s.get(0).times(a).times(b));
    addcdiv: TERNARY, Complex64, |x, a, b, s| x.plus(s.get(0).times(a).over(b));
    lerp: FILL, Complex64, |a, b, _, s| a.plus(s.get(0).times(b.minus(a)));
    fill_number: FILL, Complex64, |a, mask, _, s| if mask.is_true() { s.get(0) } else { a };
    fill_tensor: FILL_TENSOR, Complex64, |a, mask, value, _| if mask.is_true() { value } else { a };
    eq_number: Positions::UNARY_SCALAR, Bool, |a, _, _, s| truth(a == s.get(0));
    ne_number: Positions::UNARY_SCALAR, Bool, |a, _, _, s| truth(a != s.get(0));
    logical_and: Positions::BINARY, Bool, |a, b, _, _| truth(a.is_true() && b.is_true());
    logical_or: Positions::BINARY, Bool, |a, b, _, _| truth(a.is_true() || b.is_true());
    logical_xor: Positions::BINARY, Bool, |a, b, _, _| truth(a.is_true() != b.is_true());
    logical_not: Positions::UNARY, Bool, |a, _, _, _| truth(!a.is_true());
    isinf: Positions::UNARY, Bool, |a, _, _, _| truth(a.re.is_infinite() || a.im.is_infinite());
}
