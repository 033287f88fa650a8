//! An elementwise f32 function as a value: what programs ([`super::program`]) are made of. It runs the
//! very code of the operator's own kernel, so it gives the same bytes.
//!
//! Truth values are the numbers 1 and 0 here. Unsafe island (raw pointers, since results may overwrite
//! operands).

use super::binary;
use super::choose::Choose;
use super::pointwise::{NO_PARAMETERS, Parameters, Pointwise, dense_run, number_run};
use super::unary::{self, GeluErf, GeluTanh};
use super::{activations, elementary, pairs};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, DType};
use std::fmt;

/// Most operands of a function.
pub const MAX_OPERANDS: usize = 3;

/// Rows of elements: what one application of a function reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// First element of each operand; only those of the function's arity are looked at.
    pub operands: [*const f32; MAX_OPERANDS],
    /// From row to row of each operand, in elements; 0 repeats a row.
    pub strides: [usize; MAX_OPERANDS],
    /// First element of the result. May be that of an operand with the same stride.
    pub out: *mut f32,
    /// From row to row of the result.
    pub out_stride: usize,
    /// Operands of which every row is one number, at its first element. For functions that
    /// [take numbers](Function::takes_numbers).
    pub is_number: [bool; MAX_OPERANDS],
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
}

type RunFn = unsafe fn(SimdLevel, Parameters, &Rows);

/// What a function is, apart from its numbers.
struct Kind {
    name: &'static str,
    arity: usize,
    cost: usize,
    takes_numbers: bool,
    run: RunFn,
}

/// The kind of the pointwise function `P`.
struct KindOf<P, const N: usize>(std::marker::PhantomData<P>);

impl<P: Pointwise<N>, const N: usize> KindOf<P, N> {
    const KIND: Kind =
        Kind { name: P::NAME, arity: N, cost: P::COST, takes_numbers: P::TAKES_NUMBERS, run: run::<P, N> };
}

/// An elementwise function with its numbers: `clamp(0, 6)`.
#[derive(Clone, Copy)]
pub struct Function {
    kind: &'static Kind,
    parameters: Parameters,
}

impl Function {
    pub(super) fn of<P: Pointwise<N>, const N: usize>(function: P) -> Self {
        Function { kind: &KindOf::<P, N>::KIND, parameters: function.parameters() }
    }

    /// GELU by the error function.
    pub fn gelu_erf() -> Self {
        Self::of(GeluErf::from_parameters(NO_PARAMETERS))
    }

    /// GELU by its tanh approximation.
    pub fn gelu_tanh() -> Self {
        Self::of(GeluTanh::from_parameters(NO_PARAMETERS))
    }

    /// Its name in listings.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Number of operands, at most [`MAX_OPERANDS`].
    pub fn arity(&self) -> usize {
        self.kind.arity
    }

    /// May an operand be one number along a row?
    pub fn takes_numbers(&self) -> bool {
        self.kind.takes_numbers
    }

    /// Its numbers.
    pub(super) fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Rough nanoseconds for 16 elements.
    pub fn cost(&self) -> usize {
        self.kind.cost
    }

    /// Applies it to every element of `rows`.
    ///
    /// # Safety
    /// Operands below the arity are readable and the result writable as [`Rows`] says; the result and
    /// an operand are the very same elements or disjoint.
    #[inline(always)]
    pub unsafe fn run(&self, level: SimdLevel, rows: &Rows) {
        // SAFETY: the caller's promise.
        unsafe { (self.kind.run)(level, self.parameters, rows) }
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        let bits = |f: &Function| f.parameters.map(f32::to_bits);
        self.kind.name == other.kind.name && self.kind.arity == other.kind.arity && bits(self) == bits(other)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{:?}", self.kind.name, self.kind.arity, self.parameters)
    }
}

unsafe fn run<P: Pointwise<N>, const N: usize>(level: SimdLevel, parameters: Parameters, rows: &Rows) {
    level.dispatch(RowsTask::<P, N> { function: P::from_parameters(parameters), rows });
}

struct RowsTask<'a, P, const N: usize> {
    function: P,
    rows: &'a Rows,
}

impl<P: Pointwise<N>, const N: usize> SimdTask for RowsTask<'_, P, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { operands, strides, is_number, out, out_stride, rows, columns } = *self.rows;
        let mut from = [std::ptr::null::<f32>(); N];
        from.copy_from_slice(&operands[..N]);
        for r in 0..rows {
            let mut row = from;
            for (k, p) in row.iter_mut().enumerate() {
                // Wrapping: an operand with stride 0 may be a single row.
                *p = p.wrapping_add(r * strides[k]);
            }
            let out = out.wrapping_add(r * out_stride);
            // SAFETY: the promise of `Function::run`, whose caller made this task.
            unsafe {
                if P::TAKES_NUMBERS && is_number != [false; MAX_OPERANDS] {
                    let mut numbers = [false; N];
                    numbers.copy_from_slice(&is_number[..N]);
                    number_run(s, self.function, row, numbers, out, columns);
                } else {
                    dense_run(s, self.function, row, out, columns);
                }
            }
        }
    }
}

/// A call of an operator, understood as an elementwise function.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementwiseCall {
    /// The function.
    pub function: Function,
    /// Position of the output among the arguments; operands are arguments `0..function.arity()`.
    pub out: usize,
    /// Is the result a bool tensor?
    pub is_predicate: bool,
    /// Is operand 0 a bool tensor?
    pub has_condition: bool,
}

/// What a call is as an elementwise function, if it is one.
pub type RecogniseFn = fn(&[ArgSpec<'_>]) -> Option<ElementwiseCall>;

fn has_dtype(args: &[ArgSpec<'_>], i: usize, dtype: DType) -> bool {
    args.get(i).and_then(ArgSpec::tensor).is_some_and(|t| t.dtype == dtype)
}

fn call<P: Pointwise<N>, const N: usize>(args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    let out = if P::IS_PREDICATE { DType::Bool } else { DType::Float32 };
    let fits = (0..N).all(|i| has_dtype(args, i, DType::Float32))
        && has_dtype(args, P::OUT, out)
        && P::accepts(args);
    let function = fits.then(|| P::from_scalars(args).ok()).flatten()?;
    Some(ElementwiseCall {
        function: Function::of(function),
        out: P::OUT,
        is_predicate: P::IS_PREDICATE,
        has_condition: false,
    })
}

fn choice(args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    let fits = has_dtype(args, 0, DType::Bool)
        && [1, 2, Choose::OUT].into_iter().all(|i| has_dtype(args, i, DType::Float32));
    fits.then(|| ElementwiseCall {
        function: Function::of(Choose),
        out: Choose::OUT,
        is_predicate: false,
        has_condition: true,
    })
}

macro_rules! table {
    ($($operator:literal => $recognise:expr;)*) => {
        /// Operators with the functions that they may be; the first that fits is taken.
        static TABLE: &[(&str, RecogniseFn)] = &[$(($operator, $recognise)),*];

        /// Operators that [`recognise`] knows, some of them more than once.
        pub const OPERATORS: &[&str] = &[$($operator),*];
    };
}

table! {
    "aten::relu.out" => call::<unary::Relu, 1>;
    "aten::sigmoid.out" => call::<unary::Sigmoid, 1>;
    "aten::tanh.out" => call::<unary::Tanh, 1>;
    "aten::exp.out" => call::<unary::Exp, 1>;
    "aten::log.out" => call::<unary::Log, 1>;
    "aten::erf.out" => call::<unary::Erf, 1>;
    "aten::sqrt.out" => call::<unary::Sqrt, 1>;
    "aten::rsqrt.out" => call::<unary::Rsqrt, 1>;
    "aten::reciprocal.out" => call::<unary::Reciprocal, 1>;
    "aten::neg.out" => call::<unary::Neg, 1>;
    "aten::abs.out" => call::<unary::Abs, 1>;
    "aten::round.out" => call::<unary::Round, 1>;
    "aten::floor.out" => call::<unary::Floor, 1>;
    "aten::ceil.out" => call::<unary::Ceil, 1>;
    "aten::trunc.out" => call::<unary::Trunc, 1>;
    "aten::silu.out" => call::<unary::Silu, 1>;
    "aten::clamp.out" => call::<unary::Clamp, 1>;
    "aten::hardtanh.out" => call::<unary::Hardtanh, 1>;
    "aten::leaky_relu.out" => call::<unary::LeakyRelu, 1>;
    "aten::add.Scalar_out" => call::<unary::AddScalar, 1>;
    "aten::sub.Scalar_out" => call::<unary::SubScalar, 1>;
    "aten::mul.Scalar_out" => call::<unary::MulScalar, 1>;
    "aten::div.Scalar_out" => call::<unary::DivScalar, 1>;
    "aten::pow.Tensor_Scalar_out" => call::<unary::Square, 1>;
    "aten::pow.Tensor_Scalar_out" => call::<unary::Cube, 1>;
    "aten::pow.Tensor_Scalar_out" => call::<unary::PowHalf, 1>;
    "aten::pow.Tensor_Scalar_out" => call::<unary::PowMinusHalf, 1>;
    "aten::pow.Tensor_Scalar_out" => call::<unary::PowMinusOne, 1>;
    "aten::gelu.out" => call::<unary::GeluErf, 1>;
    "aten::gelu.out" => call::<unary::GeluTanh, 1>;
    "aten::exp2.out" => call::<elementary::Exp2, 1>;
    "aten::expm1.out" => call::<elementary::Expm1, 1>;
    "aten::log2.out" => call::<elementary::Log2, 1>;
    "aten::log10.out" => call::<elementary::Log10, 1>;
    "aten::log1p.out" => call::<elementary::Log1p, 1>;
    "aten::sin.out" => call::<elementary::Sin, 1>;
    "aten::cos.out" => call::<elementary::Cos, 1>;
    "aten::tan.out" => call::<elementary::Tan, 1>;
    "aten::asin.out" => call::<elementary::Asin, 1>;
    "aten::acos.out" => call::<elementary::Acos, 1>;
    "aten::atan.out" => call::<elementary::Atan, 1>;
    "aten::sinh.out" => call::<elementary::Sinh, 1>;
    "aten::cosh.out" => call::<elementary::Cosh, 1>;
    "aten::asinh.out" => call::<elementary::Asinh, 1>;
    "aten::acosh.out" => call::<elementary::Acosh, 1>;
    "aten::atanh.out" => call::<elementary::Atanh, 1>;
    "aten::sign.out" => call::<elementary::Sign, 1>;
    "aten::square.out" => call::<elementary::Square, 1>;
    "aten::frac.out" => call::<elementary::Frac, 1>;
    "aten::elu.out" => call::<activations::Elu, 1>;
    "aten::softplus.out" => call::<activations::Softplus, 1>;
    "aten::mish.out" => call::<activations::Mish, 1>;
    "aten::logit.out" => call::<activations::Logit, 1>;
    "aten::hardswish.out" => call::<activations::Hardswish, 1>;
    "aten::hardsigmoid.out" => call::<activations::Hardsigmoid, 1>;
    "aten::pow.Tensor_Scalar_out" => call::<pairs::PowScalar, 1>;
    "aten::pow.Tensor_Tensor_out" => call::<pairs::Pow, 2>;
    "aten::atan2.out" => call::<pairs::Atan2, 2>;
    "aten::fmod.Tensor_out" => call::<pairs::Fmod, 2>;
    "aten::fmod.Scalar_out" => call::<pairs::FmodScalar, 1>;
    "aten::remainder.Tensor_out" => call::<pairs::Remainder, 2>;
    "aten::remainder.Scalar_out" => call::<pairs::RemainderScalar, 1>;
    "aten::div.out_mode" => call::<pairs::DivFloor, 2>;
    "aten::div.out_mode" => call::<pairs::DivTrunc, 2>;
    "aten::lerp.Scalar_out" => call::<pairs::Lerp, 2>;
    "aten::addcmul.out" => call::<pairs::Addcmul, 3>;
    "aten::addcdiv.out" => call::<pairs::Addcdiv, 3>;
    "aten::add.out" => call::<binary::Add, 2>;
    "aten::sub.out" => call::<binary::Sub, 2>;
    "aten::mul.out" => call::<binary::Mul, 2>;
    "aten::div.out" => call::<binary::Div, 2>;
    "aten::maximum.out" => call::<binary::Maximum, 2>;
    "aten::minimum.out" => call::<binary::Minimum, 2>;
    "aten::eq.Tensor_out" => call::<binary::Eq, 2>;
    "aten::ne.Tensor_out" => call::<binary::Ne, 2>;
    "aten::lt.Tensor_out" => call::<binary::Lt, 2>;
    "aten::le.Tensor_out" => call::<binary::Le, 2>;
    "aten::gt.Tensor_out" => call::<binary::Gt, 2>;
    "aten::ge.Tensor_out" => call::<binary::Ge, 2>;
    "aten::eq.Scalar_out" => call::<binary::EqScalar, 1>;
    "aten::ne.Scalar_out" => call::<binary::NeScalar, 1>;
    "aten::lt.Scalar_out" => call::<binary::LtScalar, 1>;
    "aten::le.Scalar_out" => call::<binary::LeScalar, 1>;
    "aten::gt.Scalar_out" => call::<binary::GtScalar, 1>;
    "aten::ge.Scalar_out" => call::<binary::GeScalar, 1>;
    "aten::where.self_out" => choice;
}

/// What `operator` computes with `args`, if that is an elementwise f32 function with a fast kernel: its
/// tensors are f32 (bool where a condition or an answer is meant) and its numbers are known at load.
pub fn recognise(operator: &str, args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    TABLE.iter().filter(|(name, _)| *name == operator).find_map(|(_, recognise)| recognise(args))
}
