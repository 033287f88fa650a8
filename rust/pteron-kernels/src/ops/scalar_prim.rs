//! Arithmetic on the numbers of a program: what symbolic shapes compute with.
//!
//! Results are values, written while binding. Integers stay integers; a float operand makes the result
//! a float; `floordiv` and `mod` round down as Python does. Edge cases: integer overflow and
//! division by zero are errors.

use crate::operator::{Operator, kernel};
use crate::ops::division::{int_floor, int_remainder};
use crate::routine::Routine;
use pteron_core::{BindArgs, Error, Result, Scalar};

#[cold]
fn overflow() -> Error {
    Error::kernel("an integer of the program overflows").expected("a value within 64 bits")
}

fn is_float(a: Scalar, b: Scalar) -> bool {
    matches!(a, Scalar::Double(_)) || matches!(b, Scalar::Double(_))
}

/// Applies an integer or a float function to arguments 0 and 1 and writes argument 2.
fn two(
    args: &mut BindArgs<'_>,
    int: impl Fn(i64, i64) -> Result<i64>,
    float: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let (a, b) = (args.args().scalar(0)?, args.args().scalar(1)?);
    let result = if is_float(a, b) {
        Scalar::Double(float(a.to_f64(), b.to_f64()))
    } else {
        Scalar::Int(int(a.to_i64(), b.to_i64())?)
    };
    args.set(2, result)
}

fn one(args: &mut BindArgs<'_>, f: impl Fn(Scalar) -> Result<Scalar>) -> Result<()> {
    let a = args.args().scalar(0)?;
    args.set(1, f(a)?)
}

fn compare(
    args: &mut BindArgs<'_>,
    int: fn(&i64, &i64) -> bool,
    float: fn(&f64, &f64) -> bool,
) -> Result<()> {
    let (a, b) = (args.args().scalar(0)?, args.args().scalar(1)?);
    let result = if is_float(a, b) { float(&a.to_f64(), &b.to_f64()) } else { int(&a.to_i64(), &b.to_i64()) };
    args.set(2, Scalar::Bool(result))
}

/// A float as an integer; an error outside 64 bits.
fn to_int(value: f64) -> Result<Scalar> {
    // 2^63 itself does not fit.
    if (-9223372036854775808.0..9223372036854775808.0).contains(&value) {
        Ok(Scalar::Int(value as i64))
    } else {
        Err(overflow().got(value.to_string()))
    }
}

fn rounded(args: &mut BindArgs<'_>, round: fn(f64) -> f64) -> Result<()> {
    one(args, |a| match a {
        Scalar::Double(d) => to_int(round(d)),
        other => Ok(Scalar::Int(other.to_i64())),
    })
}

fn truediv(args: &mut BindArgs<'_>) -> Result<()> {
    let (a, b) = (args.args().scalar(0)?.to_f64(), args.args().scalar(1)?.to_f64());
    if b == 0.0 {
        return Err(Error::kernel("division by zero"));
    }
    args.set(2, Scalar::Double(a / b))
}

fn checked_floordiv(a: i64, b: i64) -> Result<i64> {
    if (a, b) == (i64::MIN, -1) { Err(overflow()) } else { int_floor(a, b) }
}

fn floordiv(args: &mut BindArgs<'_>) -> Result<()> {
    two(args, checked_floordiv, |a, b| (a / b).floor())
}

fn modulo(args: &mut BindArgs<'_>) -> Result<()> {
    two(args, int_remainder, |a, b| a - b * (a / b).floor())
}

fn if_then_else(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let chosen = if view.scalar(0)?.to_bool() { view.scalar(1)? } else { view.scalar(2)? };
    args.set(3, chosen)
}

macro_rules! prim {
    ($schema:literal, $bind:expr) => {
        kernel(concat!("executorch_prim::", $schema), |_| Routine::scalar($bind))
    };
}

/// Number arithmetic.
pub static OPERATORS: &[Operator] = &[
    prim!("add.Scalar(Scalar a, Scalar b) -> Scalar", |a| {
        two(a, |x, y| x.checked_add(y).ok_or_else(overflow), |x, y| x + y)
    }),
    prim!("sub.Scalar(Scalar a, Scalar b) -> Scalar", |a| {
        two(a, |x, y| x.checked_sub(y).ok_or_else(overflow), |x, y| x - y)
    }),
    prim!("mul.Scalar(Scalar a, Scalar b) -> Scalar", |a| {
        two(a, |x, y| x.checked_mul(y).ok_or_else(overflow), |x, y| x * y)
    }),
    prim!("floordiv.Scalar(Scalar a, Scalar b) -> Scalar", floordiv),
    prim!("floordiv.int(SymInt a, SymInt b) -> SymInt", floordiv),
    prim!("truediv.Scalar(Scalar a, Scalar b) -> Scalar", truediv),
    prim!("mod.Scalar(SymInt a, SymInt b) -> SymInt", modulo),
    prim!("mod.int(SymInt a, SymInt b) -> SymInt", modulo),
    prim!("sym_max.Scalar(Scalar a, Scalar b) -> Scalar", |a| two(a, |x, y| Ok(x.max(y)), f64::max)),
    prim!("sym_min.Scalar(Scalar a, Scalar b) -> Scalar", |a| two(a, |x, y| Ok(x.min(y)), f64::min)),
    prim!("eq.Scalar(Scalar a, Scalar b) -> bool", |a| compare(a, i64::eq, f64::eq)),
    prim!("gt.Scalar(Scalar a, Scalar b) -> bool", |a| compare(a, i64::gt, f64::gt)),
    prim!("lt.Scalar(Scalar a, Scalar b) -> bool", |a| compare(a, i64::lt, f64::lt)),
    prim!("ge.Scalar(Scalar a, Scalar b) -> bool", |a| compare(a, i64::ge, f64::ge)),
    prim!("le.Scalar(Scalar a, Scalar b) -> bool", |a| compare(a, i64::le, f64::le)),
    prim!("sym_float.Scalar(Scalar a) -> Scalar", |a| one(a, |x| Ok(Scalar::Double(x.to_f64())))),
    prim!("sym_int.Scalar(Scalar a) -> Scalar", |a| rounded(a, f64::trunc)),
    prim!("sym_not.Scalar(Scalar a) -> bool", |a| one(a, |x| Ok(Scalar::Bool(!x.to_bool())))),
    prim!("neg.Scalar(Scalar a) -> Scalar", |a| one(a, |x| match x {
        Scalar::Double(d) => Ok(Scalar::Double(-d)),
        other => other.to_i64().checked_neg().map(Scalar::Int).ok_or_else(overflow),
    })),
    prim!("ceil.Scalar(Scalar a) -> Scalar", |a| rounded(a, f64::ceil)),
    prim!("round.Scalar(Scalar a) -> Scalar", |a| rounded(a, f64::round_ties_even)),
    prim!("trunc.Scalar(Scalar a) -> Scalar", |a| rounded(a, f64::trunc)),
    prim!("sym_ite.Scalar(Scalar b, Scalar t, Scalar f) -> Scalar", if_then_else),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, call, error_text};
    use pteron_core::Result;

    fn result(name: &str, args: &[Arg]) -> Result<Arg> {
        Ok(call(&format!("executorch_prim::{name}"), args)?.pop().unwrap())
    }

    #[test]
    fn integers_round_down() {
        for (name, a, b, want) in [
            ("floordiv.Scalar", -7, 2, -4),
            ("mod.int", -7, 2, 1),
            ("mod.Scalar", 7, -2, -1),
            ("sub.Scalar", 3, 5, -2),
        ] {
            let got = result(name, &[Arg::Int(a), Arg::Int(b)]).unwrap();
            assert!(matches!(got, Arg::Int(v) if v == want), "{name} {got:?}");
        }
    }

    #[test]
    fn floats_and_truth_values() {
        assert!(matches!(result("truediv.Scalar", &[Arg::Int(1), Arg::Int(4)]), Ok(Arg::Double(0.25))));
        assert!(matches!(result("add.Scalar", &[Arg::Int(1), Arg::Double(0.5)]), Ok(Arg::Double(1.5))));
        assert!(matches!(result("ge.Scalar", &[Arg::Int(1), Arg::Int(1)]), Ok(Arg::Bool(true))));
        assert!(matches!(result("sym_not.Scalar", &[Arg::Bool(true)]), Ok(Arg::Bool(false))));
        assert!(matches!(result("round.Scalar", &[Arg::Double(2.5)]), Ok(Arg::Int(2))));
        assert!(matches!(result("ceil.Scalar", &[Arg::Double(2.1)]), Ok(Arg::Int(3))));
        assert!(matches!(
            result("sym_ite.Scalar", &[Arg::Bool(false), Arg::Int(1), Arg::Int(2)]),
            Ok(Arg::Int(2))
        ));
    }

    #[test]
    fn overflow_and_zero_are_errors() {
        let max = Arg::Int(i64::MAX);
        assert!(error_text(result("add.Scalar", &[max.clone(), Arg::Int(1)])).contains("overflows"));
        assert!(error_text(result("mul.Scalar", &[max, Arg::Int(2)])).contains("overflows"));
        assert!(
            error_text(result("floordiv.int", &[Arg::Int(i64::MIN), Arg::Int(-1)])).contains("overflows")
        );
        for name in ["floordiv.Scalar", "mod.Scalar", "truediv.Scalar"] {
            assert!(error_text(result(name, &[Arg::Int(1), Arg::Int(0)])).contains("by zero"), "{name}");
        }
        assert!(error_text(result("sym_int.Scalar", &[Arg::Double(1e300)])).contains("overflows"));
    }
}
