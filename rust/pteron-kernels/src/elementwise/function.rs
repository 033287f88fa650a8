//! An elementwise f32 function as a value: what chains ([`super::chain`]) are made of. It runs the very code of the
//! operator's own kernel, so it gives the same bytes. Which operator is which function the rows of the operator table say.
//!
//! Comparisons return 1.0 or 0.0. Unsafe island (raw pointers, since results may overwrite operands).

use super::pointwise::{Parameters, Pointwise, dense_run, fits, number_run};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, DType};
use std::fmt;
use std::marker::PhantomData;

/// Most operands of a function.
pub const MAX_OPERANDS: usize = 3;

/// RowBlock of elements: what one application of a function reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct RowBlock {
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

type RunFn = unsafe fn(SimdLevel, Parameters, &RowBlock);

/// What a function is, apart from its numbers.
struct Kind {
    name: &'static str,
    arity: usize,
    cost: usize,
    takes_numbers: bool,
    run: RunFn,
}

/// The kind of the pointwise function `P`.
struct KindOf<P, const N: usize>(PhantomData<P>);

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
    pub(crate) fn of<P: Pointwise<N>, const N: usize>(parameters: Parameters) -> Self {
        Function { kind: &KindOf::<P, N>::KIND, parameters }
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
    /// Operands below the arity are readable and the result writable as [`RowBlock`] says; the result and
    /// an operand are the very same elements or disjoint.
    #[inline(always)]
    pub unsafe fn run(&self, level: SimdLevel, rows: &RowBlock) {
        // SAFETY: the caller of `run` promises this function's operands and result, which is all that its code touches.
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

/// # Safety
/// As [`Function::run`].
unsafe fn run<P: Pointwise<N>, const N: usize>(level: SimdLevel, parameters: Parameters, rows: &RowBlock) {
    level.dispatch(RowBlockTask::<P, N> { parameters, rows, function: PhantomData });
}

struct RowBlockTask<'a, P, const N: usize> {
    parameters: Parameters,
    rows: &'a RowBlock,
    function: PhantomData<P>,
}

impl<P: Pointwise<N>, const N: usize> SimdTask for RowBlockTask<'_, P, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RowBlock { operands, strides, is_number, out, out_stride, rows, columns } = *self.rows;
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
                    number_run::<_, P, N>(s, self.parameters, row, numbers, out, columns);
                } else {
                    dense_run::<_, P, N>(s, self.parameters, row, out, columns);
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

/// What a call of function `F`'s operator computes, if its floats are f32 and its numbers known at load.
pub fn recognise_as<F: Pointwise<N>, const N: usize>(args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    if !fits::<F, N>(args, DType::Float32) {
        return None;
    }
    Some(ElementwiseCall {
        function: Function::of::<F, N>(F::parameters(args).ok()?),
        out: args.len() - 1,
        is_predicate: F::IS_PREDICATE,
        has_condition: F::HAS_CONDITION,
    })
}
