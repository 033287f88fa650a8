//! What an elementwise float operator has to supply: a [`Pointwise`] function of `N` vectors. Everything else is
//! shared: whole tensors of every float dtype ([`super::floats`]), chains ([`super::chain`]).
//! Unsafe island (raw pointers, since outputs may be their inputs).

use crate::vector_math::{Simd, twice::Twice};
use pteron_core::{ArgSpec, Args, DType, Error, Result};

/// Where a function's numbers come from: the arguments of a bound call, or what load knows of them.
pub trait Scalars {
    /// The number at position `i`.
    fn double(&self, i: usize) -> Result<f64>;
    /// The number at position `i`, or `None`.
    fn optional_double(&self, i: usize) -> Result<Option<f64>>;
}

impl Scalars for Args<'_> {
    fn double(&self, i: usize) -> Result<f64> {
        Args::double(self, i)
    }
    fn optional_double(&self, i: usize) -> Result<Option<f64>> {
        Args::optional_double(self, i)
    }
}

impl Scalars for [ArgSpec<'_>] {
    fn double(&self, i: usize) -> Result<f64> {
        self.get(i).and_then(ArgSpec::number).ok_or_else(|| {
            Error::kernel(format!("argument {i} is not known at load"))
                .expected("a number that nothing writes")
        })
    }
    fn optional_double(&self, i: usize) -> Result<Option<f64>> {
        match self.get(i) {
            Some(ArgSpec::None) => Ok(None),
            _ => self.double(i).map(Some),
        }
    }
}

/// Cost of functions that are long chains of operations, worth running for several vectors at once.
pub(super) const LONG: usize = 10;

/// The numbers of a function.
pub type Parameters = [f32; 4];
/// Of a function that has none.
pub const NO_PARAMETERS: Parameters = [0.0; 4];

/// Defines functions of floats:
///
/// ```text
/// /// Documentation.
/// Name = "name in listings", nanoseconds for 16 elements, |s, [operands]| one vector;
/// ```
///
/// with, where a function needs them, constants of [`Pointwise`] that are true (`Name [TAKES_NUMBERS]`), numbers
/// (`Name { low, high }`) and where they come from (`from |args| [low, high]`), the largest error of a function of one operand
/// (`ulps 1.1`), and the calls that it is for (`if accepts`).
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $([$($flag:ident),*])? $({ $($field:ident),* })? = $op:literal, $cost:expr
        $(, ulps $ulps:expr)?, |$s:ident, [$($v:ident),*]| $body:expr
        $(, from |$args:ident| $make:expr)? $(, if $accepts:expr)?;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl $crate::elementwise::pointwise::Pointwise<{ [$(stringify!($v)),*].len() }> for $name {
            const NAME: &'static str = $op;
            const COST: usize = $cost;
            $(const MAX_ULPS: Option<f64> = Some($ulps);)?
            $($(const $flag: bool = true;)*)?
            $(fn accepts(args: &[pteron_core::ArgSpec<'_>]) -> bool {
                let accepts: fn(&[pteron_core::ArgSpec<'_>]) -> bool = $accepts;
                accepts(args)
            })?
            $(fn parameters<A: $crate::elementwise::pointwise::Scalars + ?Sized>(
                $args: &A,
            ) -> pteron_core::Result<$crate::elementwise::pointwise::Parameters> {
                let mut all = $crate::elementwise::pointwise::NO_PARAMETERS;
                for (slot, number) in all.iter_mut().zip($make) {
                    *slot = number;
                }
                Ok(all)
            })?
            #[inline(always)]
            fn apply<S: $crate::vector_math::Simd>(
                $s: S,
                parameters: $crate::elementwise::pointwise::Parameters,
                [$($v),*]: [S::F; [$(stringify!($v)),*].len()],
            ) -> S::F {
                let [$($($field,)*)? ..] = parameters;
                $body
            }
        }
    )* };
}
pub(crate) use functions;

/// The number at `i` in f32.
pub(crate) fn scalar<A: Scalars + ?Sized>(args: &A, i: usize) -> Result<f32> {
    Ok(args.double(i)? as f32)
}

/// Are the floats of the call all float32? Numbers beside sixteen-bit floats are rounded, too, before anything is
/// computed: the plain kernel's part.
pub(crate) fn is_single(args: &[ArgSpec<'_>]) -> bool {
    args.iter().filter_map(ArgSpec::tensor).all(|t| matches!(t.dtype, DType::Float32 | DType::Bool))
}

/// An elementwise function of `N` operands, which are arguments `0..N` of the operator, in f32. The output is the last
/// argument.
pub trait Pointwise<const N: usize>: Send + Sync + 'static {
    /// Name in listings.
    const NAME: &'static str;
    /// Rough cost of 16 elements in nanoseconds.
    const COST: usize;
    /// Largest error of a function of one operand in units in the last place, over all f32 inputs.
    const MAX_ULPS: Option<f64> = None;
    /// Is it worth code of its own for an operand that is one number along a row?
    const TAKES_NUMBERS: bool = false;
    /// Is the result 1 for true and 0 for false, and the output a bool tensor?
    const IS_PREDICATE: bool = false;
    /// Is operand 0 a bool tensor, read as 1 for true and 0 for false?
    const HAS_CONDITION: bool = false;

    /// Does the kernel do what the other arguments ask for? Asked once, at load.
    fn accepts(_args: &[ArgSpec<'_>]) -> bool {
        true
    }

    /// The function's numbers.
    ///
    /// Errors: a number is not known, or is no number.
    fn parameters<A: Scalars + ?Sized>(_args: &A) -> Result<Parameters> {
        Ok(NO_PARAMETERS)
    }

    /// Computes one vector.
    fn apply<S: Simd>(s: S, parameters: Parameters, v: [S::F; N]) -> S::F;
}

/// Do the tensors of a call have the dtypes of function `F` on floats of this dtype, its operands in front and the output
/// last, and is the call one that the function is for?
pub(super) fn fits<F: Pointwise<N>, const N: usize>(args: &[ArgSpec<'_>], float: DType) -> bool {
    let has =
        |arg: Option<&ArgSpec<'_>>, d: DType| arg.and_then(ArgSpec::tensor).is_some_and(|t| t.dtype == d);
    let of_operand = |i: usize| if F::HAS_CONDITION && i == 0 { DType::Bool } else { float };
    args.len() > N
        && (0..N).all(|i| has(args.get(i), of_operand(i)))
        && has(args.last(), if F::IS_PREDICATE { DType::Bool } else { float })
        && F::accepts(args)
}

/// Elements from `i` on in whole vectors, as long as they fit `n`. Returns where it stopped.
///
/// # Safety
/// Operands are valid for reads and `out` for writes of `n` elements.
#[inline(always)]
unsafe fn whole_vectors<S: Simd, P: Pointwise<N>, const N: usize>(
    s: S,
    parameters: Parameters,
    operands: [*const f32; N],
    out: *mut f32,
    mut i: usize,
    n: usize,
) -> usize {
    // Indexed loops: iterators over arrays by value are not unrolled, and cost more than the function.
    while i + S::LANES <= n {
        let mut v = [s.zero(); N];
        // SAFETY: i + LANES ≤ n.
        unsafe {
            for k in 0..N {
                v[k] = s.load(operands[k].add(i));
            }
            s.store(out.add(i), P::apply(s, parameters, v));
        }
        i += S::LANES;
    }
    i
}

/// # Safety
/// Operands are valid for reads and `out` for writes of `n` elements.
#[inline(always)]
pub(super) unsafe fn dense_run<S: Simd, P: Pointwise<N>, const N: usize>(
    s: S,
    parameters: Parameters,
    operands: [*const f32; N],
    out: *mut f32,
    n: usize,
) {
    let mut i = 0;
    // SAFETY: the caller promises `n` elements everywhere; whole vectors end at `i ≤ n`, and the tail touches n - i elements.
    unsafe {
        if P::COST >= LONG {
            i = match S::AT_ONCE {
                4 => whole_vectors::<_, P, N>(Twice(Twice(s)), parameters, operands, out, 0, n),
                2 => whole_vectors::<_, P, N>(Twice(s), parameters, operands, out, 0, n),
                _ => 0,
            };
        }
        i = whole_vectors::<_, P, N>(s, parameters, operands, out, i, n);
        if i < n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load_partial(operands[k].add(i), n - i);
            }
            s.store_partial(out.add(i), P::apply(s, parameters, v), n - i);
        }
    }
}

/// As [`dense_run`], of operands that are a single number where `is_number` says so.
///
/// # Safety
/// As for [`dense_run`]; of those operands one element is readable.
#[inline(always)]
pub(super) unsafe fn number_run<S: Simd, P: Pointwise<N>, const N: usize>(
    s: S,
    parameters: Parameters,
    mut operands: [*const f32; N],
    is_number: [bool; N],
    out: *mut f32,
    n: usize,
) {
    let mut numbers = [[0f32; crate::vector_math::simd::MAX_LANES]; N];
    let mut steps = [usize::MAX; N];
    for k in 0..N {
        if is_number[k] {
            // SAFETY: the caller promises one element of an operand that is a number.
            numbers[k] = [unsafe { *operands[k] }; crate::vector_math::simd::MAX_LANES];
            (operands[k], steps[k]) = (numbers[k].as_ptr(), 0);
        }
    }
    let mut i = 0;
    // SAFETY: i + LANES ≤ n in the loop, the tail touches n - i elements; a number has LANES copies.
    unsafe {
        while i + S::LANES <= n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load(operands[k].add(i & steps[k]));
            }
            s.store(out.add(i), P::apply(s, parameters, v));
            i += S::LANES;
        }
        if i < n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load_partial(operands[k].add(i & steps[k]), n - i);
            }
            s.store_partial(out.add(i), P::apply(s, parameters, v), n - i);
        }
    }
}
