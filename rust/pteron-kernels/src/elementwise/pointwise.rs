//! What an elementwise float operator has to supply: a [`Pointwise`] function of `N` vectors. Everything else is
//! shared: whole tensors of every float dtype ([`super::floats`]), programs ([`super::program`]).
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, broadcast_shape};
use crate::vector_math::{Simd, twice::Twice};
use pteron_core::{ArgSpec, Args, BindArgs, Bound, Dims, Error, Result, TensorMeta};

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
pub type Parameters = [f32; 3];
/// Of a function that has none.
pub const NO_PARAMETERS: Parameters = [0.0; 3];

/// Defines functions with their numbers as fields: `Name<operands> { fields }: "operator", position of the output, cost,
/// accepts, |args| value, |self, s, [operands]| expression`.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident<$n:literal> { $($field:ident),* }: $op:literal, $out:literal, $cost:expr, $accepts:expr,
        |$args:ident| $make:expr, |$this:ident, $s:ident, $v:pat_param| $body:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name { $($field: f32),* }
        impl Pointwise<$n> for $name {
            const NAME: &'static str = $op;
            const OUT: usize = $out;
            const COST: usize = $cost;
            fn accepts(args: &[pteron_core::ArgSpec<'_>]) -> bool {
                let accepts: fn(&[pteron_core::ArgSpec<'_>]) -> bool = $accepts;
                accepts(args)
            }
            fn from_scalars<A: Scalars + ?Sized>($args: &A) -> pteron_core::Result<Self> {
                Ok($make)
            }
            fn parameters(self) -> Parameters {
                let mut all = NO_PARAMETERS;
                let own: &[f32] = &[$(self.$field),*];
                for (slot, v) in all.iter_mut().zip(own) {
                    *slot = *v;
                }
                all
            }
            #[inline(always)]
            fn from_parameters(parameters: Parameters) -> Self {
                #[allow(unused_mut, unused_variables)]
                let mut next = parameters.into_iter();
                $name { $($field: next.next().unwrap_or(0.0)),* }
            }
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, $v: [S::F; $n]) -> S::F {
                let $this = self;
                $body
            }
        }
    )* };
}
pub(super) use functions;

/// Accepts every call.
pub(super) fn always(_: &[ArgSpec<'_>]) -> bool {
    true
}

/// The number at `i` in f32.
pub(super) fn scalar<A: Scalars + ?Sized>(args: &A, i: usize) -> Result<f32> {
    Ok(args.double(i)? as f32)
}

/// An elementwise function of `N` operands, which are arguments `0..N` of the operator, in f32.
pub trait Pointwise<const N: usize>: Copy + Send + Sync + 'static {
    /// Name of the operator.
    const NAME: &'static str;
    /// Position of the output among the arguments.
    const OUT: usize;
    /// Rough cost of 16 elements in nanoseconds.
    const COST: usize;
    /// Is it worth code of its own for an operand that is one number along a row?
    const TAKES_NUMBERS: bool = false;
    /// Is the result a truth value, 1 or 0, and the output a bool tensor?
    const IS_PREDICATE: bool = false;

    /// Does the kernel do what the other arguments ask for? Asked once, at load.
    fn accepts(_args: &[ArgSpec<'_>]) -> bool {
        true
    }

    /// The function with its scalar arguments.
    fn from_scalars<A: Scalars + ?Sized>(args: &A) -> Result<Self>;

    /// Its numbers, in an order that [`Pointwise::from_parameters`] knows.
    fn parameters(self) -> Parameters {
        NO_PARAMETERS
    }

    /// The function with its numbers.
    fn from_parameters(parameters: Parameters) -> Self;

    /// Computes one vector.
    fn apply<S: Simd>(self, s: S, v: [S::F; N]) -> S::F;
}

/// Takes the shapes of operands `0..N`, resizes output `out` to their broadcast shape and plans the
/// walk.
pub fn bind_broadcast<const N: usize>(args: &mut BindArgs<'_>, bound: &mut Bound, out: usize) -> Result<()> {
    let mut shapes = [Dims::EMPTY; N];
    for (i, shape) in shapes.iter_mut().enumerate() {
        *shape = *args.args().tensor(i)?.shape();
    }
    let shape = if shapes.iter().all(|s| *s == shapes[0]) {
        shapes[0]
    } else {
        let mut refs = [&shapes[0]; N];
        for (r, s) in refs.iter_mut().zip(&shapes) {
            *r = s;
        }
        broadcast_shape(&refs)?
    };
    args.resize(out, &shape)?;
    let args = args.args();
    let target = args.output(out)?;
    let mut metas: [&TensorMeta; N] = [target.meta(); N];
    for (i, meta) in metas.iter_mut().enumerate() {
        *meta = args.tensor(i)?.meta();
    }
    *bound.get_mut::<BroadcastPlan<N>>()? = BroadcastPlan::new(target.meta(), metas);
    Ok(())
}

/// Elements from `i` on in whole vectors, as long as they fit `n`. Returns where it stopped.
///
/// # Safety
/// Operands are valid for reads and `out` for writes of `n` elements.
#[inline(always)]
unsafe fn whole_vectors<S: Simd, P: Pointwise<N>, const N: usize>(
    s: S,
    function: P,
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
            s.store(out.add(i), function.apply(s, v));
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
    function: P,
    operands: [*const f32; N],
    out: *mut f32,
    n: usize,
) {
    let mut i = 0;
    // SAFETY: the caller's promise; the tail touches n - i elements.
    unsafe {
        if P::COST >= LONG {
            i = match S::AT_ONCE {
                4 => whole_vectors(Twice(Twice(s)), function, operands, out, 0, n),
                2 => whole_vectors(Twice(s), function, operands, out, 0, n),
                _ => 0,
            };
        }
        i = whole_vectors(s, function, operands, out, i, n);
        if i < n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load_partial(operands[k].add(i), n - i);
            }
            s.store_partial(out.add(i), function.apply(s, v), n - i);
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
    function: P,
    mut operands: [*const f32; N],
    is_number: [bool; N],
    out: *mut f32,
    n: usize,
) {
    let mut numbers = [[0f32; crate::vector_math::simd::MAX_LANES]; N];
    let mut steps = [usize::MAX; N];
    for k in 0..N {
        if is_number[k] {
            // SAFETY: the caller's promise.
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
            s.store(out.add(i), function.apply(s, v));
            i += S::LANES;
        }
        if i < n {
            let mut v = [s.zero(); N];
            for k in 0..N {
                v[k] = s.load_partial(operands[k].add(i & steps[k]), n - i);
            }
            s.store_partial(out.add(i), function.apply(s, v), n - i);
        }
    }
}
