//! The table of elementwise kernels on f64, int8 to int64 and uint8: arithmetic, bits, comparisons.
//!
//! Edge cases: integers wrap, the smallest integer is its own negative and magnitude; maximum and minimum
//! hand NaN on; comparisons with NaN are false but for `ne`; a number that the tensor's dtype cannot hold, and a
//! fractional number beside an integer tensor, are left to the reference kernels.

use super::lanewise::{Lanewise, Number, prepare};
use crate::vector_math::{Simd, double};
use pteron_core::{ArgSpec, Args, Bool8, Element, Result, StaticKernel};
use std::ops::{BitAnd, BitOr, BitXor, Not};

fn is_one(arg: Option<&ArgSpec<'_>>) -> bool {
    arg.and_then(ArgSpec::number) == Some(1.0)
}

/// Functions of tensors: `Name, operands: "operator", bound, accepts, |v| expression`.
macro_rules! of_tensors {
    ($($name:ident, $n:literal: $op:literal, $out:literal, [$($bound:tt)*], $accepts:expr, |$v:pat_param| $body:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $name;
        impl<T: $($bound)*> Lanewise<T, $n> for $name {
            type Out = T;
            const NAME: &'static str = $op;
            const OUT: usize = $out;
            fn accepts(args: &[ArgSpec<'_>]) -> bool {
                let accepts: fn(&[ArgSpec<'_>]) -> bool = $accepts;
                accepts(args)
            }
            fn from_args(_: &Args<'_>) -> Result<Self> {
                Ok($name)
            }
            #[inline(always)]
            fn of<S: Simd>(self, _: S, $v: [T; $n]) -> T {
                $body
            }
        }
    )* };
}

/// Is `alpha` 1, and not a float between integers, which the operator refuses?
fn has_no_factor<T: Number>(args: &[ArgSpec<'_>]) -> bool {
    is_one(args.get(2)) && args.get(2).is_some_and(T::holds)
}

/// The only number that is not equal to itself.
#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<T: PartialOrd + Copy>(v: T) -> bool {
    v != v
}

of_tensors! {
    Add, 2: "add", 3, [Number], has_no_factor::<T>, |[a, b]| a.plus(b);
    Sub, 2: "sub", 3, [Number], has_no_factor::<T>, |[a, b]| a.minus(b);
    Mul, 2: "mul", 2, [Number], |_| true, |[a, b]| a.times(b);
    Maximum, 2: "maximum", 2, [Number], |_| true, |[a, b]| if is_nan(a) || a > b { a } else { b };
    Minimum, 2: "minimum", 2, [Number], |_| true, |[a, b]| if is_nan(a) || a < b { a } else { b };
    Neg, 1: "neg", 1, [Number], |_| true, |[a]| a.negated();
    Abs, 1: "abs", 1, [Number], |_| true, |[a]| a.magnitude();
    Relu, 1: "relu", 1, [Number], |_| true, |[a]| if T::ZERO > a { T::ZERO } else { a };
    PowTwo, 1: "pow_2", 2, [Number], |args| args.get(1).and_then(ArgSpec::number) == Some(2.0), |[a]| a.times(a);
    And, 2: "bitwise_and", 2, [Element + BitAnd<Output = T>], |_| true, |[a, b]| a & b;
    Or, 2: "bitwise_or", 2, [Element + BitOr<Output = T>], |_| true, |[a, b]| a | b;
    Xor, 2: "bitwise_xor", 2, [Element + BitXor<Output = T>], |_| true, |[a, b]| a ^ b;
    Complement, 1: "bitwise_not", 1, [Element + Not<Output = T>], |_| true, |[a]| !a;
}

/// Functions of f64 alone: `Name, operands: "operator", cost, bound, |s, v| expression`.
macro_rules! of_doubles {
    ($($name:ident, $n:literal: $op:literal, $cost:literal, $out:literal, |$s:ident, $v:pat_param| $body:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $name;
        impl Lanewise<f64, $n> for $name {
            type Out = f64;
            const NAME: &'static str = $op;
            const OUT: usize = $out;
            const COST: usize = $cost;
            // Roots and quotients take as long per element in the widest vectors as in narrow ones.
            const IS_WIDE: bool = $cost > 8;
            fn from_args(_: &Args<'_>) -> Result<Self> {
                Ok($name)
            }
            #[inline(always)]
            fn of<S: Simd>(self, $s: S, $v: [f64; $n]) -> f64 {
                $body
            }
        }
    )* };
}

of_doubles! {
    Div, 2: "div", 4, 2, |_s, [a, b]| a / b;
    Sqrt, 1: "sqrt", 8, 1, |_s, [a]| a.sqrt();
    Rsqrt, 1: "rsqrt", 8, 1, |_s, [a]| 1.0 / a.sqrt();
    Reciprocal, 1: "reciprocal", 4, 1, |_s, [a]| 1.0 / a;
    Floor, 1: "floor", 4, 1, |_s, [a]| a.floor();
    Ceil, 1: "ceil", 4, 1, |_s, [a]| a.ceil();
    Trunc, 1: "trunc", 4, 1, |_s, [a]| a.trunc();
    Round, 1: "round", 4, 1, |_s, [a]| a.round_ties_even();
    Exp, 1: "exp", 16, 1, |s, [a]| double::exp(s, a);
    Log, 1: "log", 20, 1, |s, [a]| double::log(s, a);
    Tanh, 1: "tanh", 20, 1, |s, [a]| double::tanh(s, a);
    Sigmoid, 1: "sigmoid", 20, 1, |s, [a]| double::sigmoid(s, a);
    Silu, 1: "silu", 20, 1, |s, [a]| a * double::sigmoid(s, a);
}

/// Functions of a tensor and a number.
macro_rules! with_number {
    ($($name:ident: $op:literal, $out:literal, $accepts:expr, |$a:ident, $b:ident| $body:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $name<T>(T);
        impl<T: Number> Lanewise<T, 1> for $name<T> {
            type Out = T;
            const NAME: &'static str = $op;
            const OUT: usize = $out;
            fn accepts(args: &[ArgSpec<'_>]) -> bool {
                let accepts: fn(&[ArgSpec<'_>]) -> bool = $accepts;
                args.get(1).is_some_and(T::holds) && accepts(args)
            }
            fn from_args(args: &Args<'_>) -> Result<Self> {
                Ok($name(T::of_scalar(args.scalar(1)?)))
            }
            #[inline(always)]
            fn of<S: Simd>(self, _: S, [$a]: [T; 1]) -> T {
                let $b = self.0;
                $body
            }
        }
    )* };
}

with_number! {
    AddNumber: "add", 3, has_no_factor::<T>, |a, b| a.plus(b);
    SubNumber: "sub", 3, |args| !matches!(args.get(1), Some(ArgSpec::Bool(_))) && has_no_factor::<T>(args), |a, b| a.minus(b);
    MulNumber: "mul", 2, |_| true, |a, b| a.times(b);
}

/// Bounds at 1 and 2, each optional; NaN stays NaN.
#[derive(Clone, Copy)]
struct Clamp<T> {
    low: T,
    high: T,
}

impl<T: Number> Lanewise<T, 1> for Clamp<T> {
    type Out = T;
    const NAME: &'static str = "clamp";
    const OUT: usize = 3;
    /// A NaN bound has a meaning of its own.
    fn accepts(args: &[ArgSpec<'_>]) -> bool {
        let is_plain = |bound: &ArgSpec<'_>| T::holds(bound) && bound.number().is_some_and(|v| !v.is_nan());
        let is_absent = |bound: &ArgSpec<'_>| matches!(bound, ArgSpec::None);
        // The reference kernel refuses a call without any.
        [1, 2].into_iter().any(|i| args.get(i).is_some_and(is_plain))
            && [1, 2].into_iter().all(|i| args.get(i).is_some_and(|a| is_absent(a) || is_plain(a)))
    }
    fn from_args(args: &Args<'_>) -> Result<Self> {
        Ok(Clamp {
            low: args.optional_scalar(1)?.map_or(T::LOWEST, T::of_scalar),
            high: args.optional_scalar(2)?.map_or(T::HIGHEST, T::of_scalar),
        })
    }
    #[inline(always)]
    fn of<S: Simd>(self, _: S, [a]: [T; 1]) -> T {
        let raised = if a < self.low { self.low } else { a };
        if raised > self.high { self.high } else { raised }
    }
}

macro_rules! comparisons {
    ($($tensor:ident, $number:ident: $op:literal, |$a:ident, $b:ident| $body:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $tensor;
        impl<T: Number> Lanewise<T, 2> for $tensor {
            type Out = Bool8;
            const NAME: &'static str = $op;
            const OUT: usize = 2;
            fn from_args(_: &Args<'_>) -> Result<Self> {
                Ok($tensor)
            }
            #[inline(always)]
            fn of<S: Simd>(self, _: S, [$a, $b]: [T; 2]) -> Bool8 {
                Bool8::from($body)
            }
        }
        #[derive(Clone, Copy)]
        struct $number<T>(T);
        impl<T: Number> Lanewise<T, 1> for $number<T> {
            type Out = Bool8;
            const NAME: &'static str = $op;
            const OUT: usize = 2;
            fn accepts(args: &[ArgSpec<'_>]) -> bool {
                args.get(1).is_some_and(T::holds)
            }
            fn from_args(args: &Args<'_>) -> Result<Self> {
                Ok($number(T::of_scalar(args.scalar(1)?)))
            }
            #[inline(always)]
            fn of<S: Simd>(self, _: S, [$a]: [T; 1]) -> Bool8 {
                let $b = self.0;
                Bool8::from($body)
            }
        }
    )* };
}

comparisons! {
    Eq, EqNumber: "eq", |a, b| a == b;
    Ne, NeNumber: "ne", |a, b| a != b;
    Lt, LtNumber: "lt", |a, b| a < b;
    Le, LeNumber: "le", |a, b| a <= b;
    Gt, GtNumber: "gt", |a, b| a > b;
    Ge, GeNumber: "ge", |a, b| a >= b;
}

/// A table entry that takes the first of the dtypes that fits: `numbers` has integers and f64, `integers`
/// leaves f64 out, `doubles` has nothing else. A trailing `of` names functions that hold a number.
macro_rules! entry {
    (numbers $schema:expr, $n:literal, $f:ident) => { entry!(@list $schema, $n, $f: i64, i32, u8, i8, i16, f64) };
    (integers $schema:expr, $n:literal, $f:ident) => { entry!(@list $schema, $n, $f: i64, i32, u8, i8, i16) };
    (doubles $schema:expr, $n:literal, $f:ident) => { entry!(@list $schema, $n, $f: f64) };
    (scalars $schema:expr, $f:ident) => {
        StaticKernel {
            schema: $schema,
            variant: "vectorised",
            prepare: |ctx| {
                entry!(@try ctx, 1, $f<i64>, i64; $f<i32>, i32; $f<u8>, u8; $f<i8>, i8; $f<i16>, i16; $f<f64>, f64);
                Ok(None)
            },
        }
    };
    (@list $schema:expr, $n:literal, $f:ident: $($t:ty),*) => {
        StaticKernel {
            schema: $schema,
            variant: "vectorised",
            prepare: |ctx| {
                entry!(@try ctx, $n, $($f, $t);*);
                Ok(None)
            },
        }
    };
    (@try $ctx:ident, $n:literal, $($f:ty, $t:ty);*) => {
        $( if let Some(prepared) = prepare::<$f, $t, $n>($ctx)? {
            return Ok(Some(prepared));
        } )*
    };
}

macro_rules! unary {
    ($op:literal) => {
        concat!("aten::", $op, ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
    };
}
macro_rules! binary {
    ($op:literal) => {
        concat!("aten::", $op, "(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)")
    };
}
macro_rules! scalar {
    ($op:literal) => {
        concat!("aten::", $op, "(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)")
    };
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    entry!(numbers "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", 2, Add),
    entry!(numbers "aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", 2, Sub),
    entry!(scalars "aten::add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)", AddNumber),
    entry!(scalars "aten::sub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)", SubNumber),
    entry!(numbers binary!("mul.out"), 2, Mul),
    entry!(scalars scalar!("mul.Scalar_out"), MulNumber),
    entry!(numbers binary!("maximum.out"), 2, Maximum),
    entry!(numbers binary!("minimum.out"), 2, Minimum),
    entry!(numbers unary!("neg"), 1, Neg),
    entry!(numbers unary!("abs"), 1, Abs),
    entry!(numbers unary!("relu"), 1, Relu),
    entry!(integers binary!("bitwise_and.Tensor_out"), 2, And),
    entry!(integers binary!("bitwise_or.Tensor_out"), 2, Or),
    entry!(integers binary!("bitwise_xor.Tensor_out"), 2, Xor),
    entry!(integers unary!("bitwise_not"), 1, Complement),
    entry!(doubles binary!("div.out"), 2, Div),
    entry!(doubles unary!("sqrt"), 1, Sqrt),
    entry!(doubles unary!("rsqrt"), 1, Rsqrt),
    entry!(doubles unary!("reciprocal"), 1, Reciprocal),
    entry!(doubles unary!("floor"), 1, Floor),
    entry!(doubles unary!("ceil"), 1, Ceil),
    entry!(doubles unary!("trunc"), 1, Trunc),
    entry!(doubles unary!("round"), 1, Round),
    entry!(doubles unary!("exp"), 1, Exp),
    entry!(doubles unary!("log"), 1, Log),
    entry!(doubles unary!("tanh"), 1, Tanh),
    entry!(doubles unary!("sigmoid"), 1, Sigmoid),
    entry!(numbers "aten::pow.Tensor_Scalar_out(Tensor self, Scalar exponent, *, Tensor(a!) out) -> Tensor(a!)", 1, PowTwo),
    entry!(scalars "aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out) -> Tensor(a!)", Clamp),
    entry!(doubles unary!("silu"), 1, Silu),
    entry!(numbers binary!("eq.Tensor_out"), 2, Eq),
    entry!(numbers binary!("ne.Tensor_out"), 2, Ne),
    entry!(numbers binary!("lt.Tensor_out"), 2, Lt),
    entry!(numbers binary!("le.Tensor_out"), 2, Le),
    entry!(numbers binary!("gt.Tensor_out"), 2, Gt),
    entry!(numbers binary!("ge.Tensor_out"), 2, Ge),
    entry!(scalars scalar!("eq.Scalar_out"), EqNumber),
    entry!(scalars scalar!("ne.Scalar_out"), NeNumber),
    entry!(scalars scalar!("lt.Scalar_out"), LtNumber),
    entry!(scalars scalar!("le.Scalar_out"), LeNumber),
    entry!(scalars scalar!("gt.Scalar_out"), GtNumber),
    entry!(scalars scalar!("ge.Scalar_out"), GeNumber),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::{DType, Isa};

    fn prepare_of(schema_start: &str) -> pteron_core::kernel::PrepareFn {
        KERNELS.iter().find(|k| k.schema.starts_with(schema_start)).expect("a kernel").prepare
    }

    /// The result of `op` on `a` (40 rows of 7) and `b` (the same, a row, or a single number).
    fn call<T: Element, U: Element>(
        op: &str,
        isa: Isa,
        a: &[T],
        b: Option<&[T]>,
        extra: Vec<CallArg>,
    ) -> Option<Vec<U>> {
        let shape = |n: usize| match n {
            1 => vec![],
            7 => vec![7],
            _ => vec![40, 7],
        };
        let mut args = vec![CallArg::Tensor(HostTensor::new(&[40, 7], a).unwrap())];
        if let Some(b) = b {
            args.push(CallArg::Tensor(HostTensor::new(&shape(b.len()), b).unwrap()));
        }
        args.extend(extra);
        args.push(CallArg::Tensor(HostTensor::zeros(U::DTYPE, &[40, 7]).unwrap()));
        let out = args.len() - 1;
        let mut call = SingleCall::new(prepare_of(op), &profile(isa)?, args).unwrap().expect("taken");
        call.call().unwrap();
        Some(call.output::<U>(out).unwrap())
    }

    const ISAS: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    #[test]
    fn integers_wrap_and_broadcast() {
        let a: Vec<i8> = (0..280).map(|i| (i * 37 % 256) as u8 as i8).collect();
        for isa in ISAS {
            for n in [280, 7, 1] {
                let b: Vec<i8> = (0..n).map(|i| (i * 91 % 256) as u8 as i8).collect();
                let Some(sum) = call::<i8, i8>("aten::add.out", isa, &a, Some(&b), vec![CallArg::int(1)])
                else {
                    continue;
                };
                let less = call::<i8, Bool8>("aten::lt.Tensor_out", isa, &a, Some(&b), vec![]).unwrap();
                for i in 0..280 {
                    assert_eq!(sum[i], a[i].wrapping_add(b[i % n]), "{isa:?} {n}");
                    assert_eq!(less[i].get(), a[i] < b[i % n]);
                }
            }
            let Some(magnitude) = call::<i8, i8>("aten::abs.out", isa, &a, None, vec![]) else { continue };
            let complement = call::<i8, i8>("aten::bitwise_not.out", isa, &a, None, vec![]).unwrap();
            for i in 0..280 {
                assert_eq!((magnitude[i], complement[i]), (a[i].wrapping_abs(), !a[i]));
            }
        }
    }

    #[test]
    fn doubles_hand_nan_on_and_round_to_even() {
        let edges = [f64::NAN, -0.0, 0.5, 1.5, -2.5, f64::INFINITY, 1e300];
        let a: Vec<f64> = (0..280).map(|i| edges[i % 7]).collect();
        let b: Vec<f64> = (0..280).map(|i| edges[(i / 7) % 7]).collect();
        for isa in ISAS {
            let Some(max) = call::<f64, f64>("aten::maximum.out", isa, &a, Some(&b), vec![]) else {
                continue;
            };
            let round = call::<f64, f64>("aten::round.out", isa, &a, None, vec![]).unwrap();
            let equal = call::<f64, Bool8>("aten::eq.Tensor_out", isa, &a, Some(&b), vec![]).unwrap();
            for i in 0..280 {
                let is_nan = a[i].is_nan() || b[i].is_nan();
                assert!(if is_nan { max[i].is_nan() } else { max[i] == a[i].max(b[i]) }, "{} {}", a[i], b[i]);
                assert!(round[i].is_nan() == a[i].is_nan() && equal[i].get() == (a[i] == b[i]));
                if !a[i].is_nan() {
                    assert_eq!(round[i].to_bits(), a[i].round_ties_even().to_bits());
                }
            }
        }
    }

    #[test]
    fn clamped_between_either_bound() {
        let a: Vec<f64> =
            (0..280).map(|i| if i % 9 == 0 { f64::NAN } else { f64::from(i) - 140.0 }).collect();
        let whole: Vec<i16> = (0..280).map(|i| i - 140).collect();
        for isa in ISAS {
            let bounds = || vec![CallArg::double(-3.5), CallArg::int(60)];
            let Some(y) = call::<f64, f64>("aten::clamp.out", isa, &a, None, bounds()) else { continue };
            for (x, y) in a.iter().zip(&y) {
                assert!(if x.is_nan() { y.is_nan() } else { *y == x.clamp(-3.5, 60.0) }, "{x} {y}");
            }
            let y =
                call::<i16, i16>("aten::clamp.out", isa, &whole, None, vec![CallArg::None, CallArg::int(7)]);
            assert!(y.unwrap().iter().zip(&whole).all(|(y, x)| *y == (*x).min(7)));
            let y = call::<i16, i16>("aten::pow.Tensor_Scalar_out", isa, &whole, None, vec![CallArg::int(2)]);
            assert!(y.unwrap().iter().zip(&whole).all(|(y, x)| *y == x.wrapping_mul(*x)));
        }
    }

    #[test]
    fn numbers_that_the_dtype_cannot_hold_are_left_to_others() {
        let cpu = profile(Isa::Portable).unwrap();
        let taken = |number: CallArg| {
            let tensor = |d| CallArg::Tensor(HostTensor::zeros(d, &[3]).unwrap());
            let args = vec![tensor(DType::UInt8), number, tensor(DType::Bool)];
            SingleCall::new(prepare_of("aten::lt.Scalar_out"), &cpu, args).unwrap().is_some()
        };
        assert!(taken(CallArg::int(255)));
        assert!(!taken(CallArg::int(256)));
        assert!(!taken(CallArg::int(-1)));
        assert!(!taken(CallArg::double(1.0)));
    }
}
