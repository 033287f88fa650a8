//! Elementwise functions on f64, integers and their comparisons: plain loops that the compiler vectorises. Operands and output have one dtype (bool for
//! comparisons); calls that need promotion are left to the reference kernels. Integers wrap.
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, CHUNK, Run};
use super::pointwise::bind_broadcast;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    AliasRule, ArgSpec, Args, BindArgs, Bound, Element, Grid, Isa, PrepareContext, Prepared, Result, Scalar,
    WorkerScratch,
};
use std::marker::PhantomData;

/// A function of `N` elements of type `T`.
pub(super) trait Lanewise<T: Element, const N: usize>: Copy + Send + Sync + 'static {
    type Out: Element;
    const NAME: &'static str;
    const OUT: usize;
    /// Are the other arguments what this function means? Asked once, at load.
    fn accepts(_args: &[ArgSpec<'_>]) -> bool {
        true
    }
    /// Rough nanoseconds for 16 elements.
    const COST: usize = 4;
    /// Does arithmetic take so long that the widest vectors pay?
    const IS_WIDE: bool = false;
    fn from_args(args: &Args<'_>) -> Result<Self>;
    fn of<S: Simd>(self, s: S, v: [T; N]) -> Self::Out;
}

/// Arithmetic that both integers and f64 have.
pub(super) trait Number: Element + PartialOrd + std::fmt::Debug {
    const ZERO: Self;
    const LOWEST: Self;
    const HIGHEST: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn negated(self) -> Self;
    fn magnitude(self) -> Self;
    /// The number that a scalar argument stands for, if the type can hold it exactly.
    fn holds(arg: &ArgSpec<'_>) -> bool;
    fn of_scalar(scalar: Scalar) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Number for $t {
            const ZERO: Self = 0;
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn negated(self) -> Self { (0 as $t).wrapping_sub(self) }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn magnitude(self) -> Self { if self < 0 { self.negated() } else { self } }
            fn holds(arg: &ArgSpec<'_>) -> bool {
                matches!(arg, ArgSpec::Int(Some(v)) if <$t>::try_from(*v).is_ok())
            }
            fn of_scalar(scalar: Scalar) -> Self { scalar.to_i64() as $t }
        }
    )* };
}
integers!(u8, i8, i16, i32, i64);

impl Number for f64 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = f64::NEG_INFINITY;
    const HIGHEST: Self = f64::INFINITY;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    fn negated(self) -> Self {
        -self
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.abs()
    }
    fn holds(arg: &ArgSpec<'_>) -> bool {
        matches!(arg, ArgSpec::Int(_) | ArgSpec::Double(_))
    }
    fn of_scalar(scalar: Scalar) -> Self {
        scalar.to_f64()
    }
}

struct LanewiseKernel<F, T, const N: usize> {
    level: SimdLevel,
    name: String,
    types: PhantomData<(F, T)>,
}

/// Prepares `F` when all operands are of type `T` and the output of its result's.
pub(super) fn prepare<F: Lanewise<T, N>, T: Element, const N: usize>(
    ctx: &PrepareContext<'_>,
) -> Result<Option<Box<dyn Prepared>>> {
    let fits = (0..N).all(|i| ctx.tensor(i).is_some_and(|t| t.dtype == T::DTYPE))
        && ctx.tensor(F::OUT).is_some_and(|t| t.dtype == F::Out::DTYPE)
        && F::accepts(ctx.args);
    if !fits {
        return Ok(None);
    }
    let level = SimdLevel::at_most(if F::IS_WIDE { ctx.cpu.isa } else { ctx.cpu.isa.min(Isa::Avx2) });
    let name = format!("{}.{}.{}", F::NAME, T::DTYPE.name(), level.isa().name());
    Ok(Some(Box::new(LanewiseKernel::<F, T, N> { level, name, types: PhantomData })))
}

impl<F: Lanewise<T, N>, T: Element, const N: usize> Prepared for LanewiseKernel<F, T, N> {
    fn name(&self) -> &str {
        &self.name
    }

    fn alias(&self) -> AliasRule {
        if F::Out::DTYPE == T::DTYPE { AliasRule::InPlace } else { AliasRule::None }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(BroadcastPlan::<N>::EMPTY)
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        bind_broadcast::<N>(args, bound, F::OUT)?;
        let plan = bound.get::<BroadcastPlan<N>>()?;
        if plan.numel() == 0 {
            return Ok(Grid::EMPTY);
        }
        Ok(Grid::chunks(plan.chunk_count(), plan.numel().min(CHUNK) / 16 * F::COST))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let plan = bound.get::<BroadcastPlan<N>>()?;
        let mut operands = [std::ptr::null::<T>(); N];
        for (i, p) in operands.iter_mut().enumerate() {
            *p = args.tensor(i)?.ptr::<T>()?;
        }
        let out = args.output(F::OUT)?.ptr::<F::Out>()?;
        let function = F::from_args(args)?;
        let task = LanewiseTask { function, plan, chunk: chunk as usize, operands, out };
        if F::IS_WIDE {
            self.level.dispatch(task);
        } else {
            self.level.dispatch_narrow(task);
        }
        Ok(())
    }
}

struct LanewiseTask<'a, F: Lanewise<T, N>, T: Element, const N: usize> {
    function: F,
    plan: &'a BroadcastPlan<N>,
    chunk: usize,
    operands: [*const T; N],
    out: *mut F::Out,
}

impl<F: Lanewise<T, N>, T: Element, const N: usize> SimdTask for LanewiseTask<'_, F, T, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let strides = self.plan.inner_strides();
        for Run { at, offsets, n } in self.plan.runs(self.chunk) {
            let mut from = self.operands;
            // SAFETY: the plan yields offsets inside the operands, runs inside the output.
            unsafe {
                for k in 0..N {
                    from[k] = from[k].add(offsets[k]);
                }
                stretch(s, self.function, from, strides, self.out.add(at), n);
            }
        }
    }
}

/// # Safety
/// Operand `k` is readable at `i * strides[k]`, `out` writable at `i`, for `i < n`.
#[inline(always)]
unsafe fn stretch<S: Simd, F: Lanewise<T, N>, T: Element, const N: usize>(
    s: S,
    function: F,
    from: [*const T; N],
    strides: [usize; N],
    out: *mut F::Out,
    n: usize,
) {
    // One loop per common kind of strides: constants let the compiler vectorise.
    // SAFETY: the caller's promise.
    unsafe {
        if strides == [1; N] {
            stepped(s, function, from, [1; N], out, n);
        } else if N == 2 && strides[0] == 1 && strides[1] == 0 {
            let mut other = [1; N];
            other[1] = 0;
            stepped(s, function, from, other, out, n);
        } else {
            stepped(s, function, from, strides, out, n);
        }
    }
}

/// # Safety
/// As for [`stretch`].
#[inline(always)]
unsafe fn stepped<S: Simd, F: Lanewise<T, N>, T: Element, const N: usize>(
    s: S,
    function: F,
    from: [*const T; N],
    strides: [usize; N],
    out: *mut F::Out,
    n: usize,
) {
    for i in 0..n {
        // SAFETY: i < n.
        unsafe {
            let mut x = [*from[0]; N];
            for k in 0..N {
                x[k] = *from[k].add(i * strides[k]);
            }
            *out.add(i) = function.of(s, x);
        }
    }
}
