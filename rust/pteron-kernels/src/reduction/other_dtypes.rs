//! sum, mean, prod, amax and amin of float64 and of integers, and Euclidean norms, over neighbouring dimensions, in loops that
//! the compiler vectorises. Sums and products of integers are int64 and wrap; amax and amin keep the dtype, NaN wins.
//!
//! Long sums of floats are made of blocks, so that rounding grows with the square root of the length; every output
//! element has one order of summation. Unsafe island (raw pointers).

use super::fold::{Call, Fold, FoldTask, FoldUnits, Kind, Outputs, fold_kernel};
use super::log_sum_exp;
use super::moments::sum_of;
use super::shape::{DimsArg, Volumes};
use crate::elementwise::operand::{Sink, Source};
use crate::frame::Chunk;
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel};
use half::{bf16, f16};
use pteron_core::{Bool8, DType, Element, Isa, PrepareContext, Result};
use std::marker::PhantomData;

/// Accumulators of a row, and columns of floats that are folded together.
const LANES: usize = 16;
/// Columns of integers that are folded together.
const GROUP: usize = 64;
/// Elements that are folded before they join the rest of their row.
const BLOCK: usize = 4096;
/// Rows that are folded before they join the rest of their column.
const ROWS: usize = 256;

/// What is made of many elements of type `T`.
trait Combine<T: Element>: Send + Sync + 'static {
    /// While folding.
    type State: bytemuck::Pod + Send + Sync;
    type Out: Element;
    /// The state of no elements.
    const START: Self::State;
    /// Is there no result without elements?
    const NEEDS_ELEMENTS: bool;
    /// Is the result the same in any order? The compiler then takes the one it likes.
    const IS_EXACT: bool;
    fn step(state: Self::State, v: T) -> Self::State;
    fn join(a: Self::State, b: Self::State) -> Self::State;
    /// The result of `n` elements.
    fn finish(state: Self::State, n: usize) -> Self::Out;
    /// The state of `n` neighbours in a way that is quicker, where there is one that is as good.
    ///
    /// # Safety
    /// `n` elements behind `x`.
    #[inline(always)]
    unsafe fn quick<S: Simd>(_: S, _x: *const T, _n: usize) -> Option<Self::State> {
        None
    }
}

struct Sum;
struct Mean;
struct Product;
struct Norm;
struct Largest;
struct Smallest;

/// `combination(element) -> out, state from start, needs elements, is exact: step, join, finish`.
macro_rules! combine {
    ($($name:ident($t:ty) -> $out:ty, $state:ty = $start:expr, $needs:literal, $exact:literal:
        |$a:ident, $v:ident| $step:expr, |$b:ident, $c:ident| $join:expr, |$s:ident, $n:ident| $finish:expr $(, $quick:ident)?;)*) => { $(
        impl Combine<$t> for $name {
            type State = $state;
            type Out = $out;
            const START: $state = $start;
            const NEEDS_ELEMENTS: bool = $needs;
            const IS_EXACT: bool = $exact;
            #[inline(always)]
            fn step($a: $state, $v: $t) -> $state {
                $step
            }
            #[inline(always)]
            fn join($b: $state, $c: $state) -> $state {
                $join
            }
            #[inline(always)]
            fn finish($s: $state, $n: usize) -> $out {
                $finish
            }
            $(
                #[inline(always)]
                unsafe fn quick<S: Simd>(s: S, x: *const $t, n: usize) -> Option<$state> {
                    // SAFETY: as this function asks for.
                    unsafe { $quick(s, x, n) }
                }
            )?
        }
    )* };
}
combine! {
    Sum(f64) -> f64, f64 = 0.0, false, false: |a, v| a + v, |a, b| a + b, |s, _n| s;
    Mean(f64) -> f64, f64 = 0.0, false, false: |a, v| a + v, |a, b| a + b, |s, n| s / n as f64;
    Product(f64) -> f64, f64 = 1.0, false, false: |a, v| a * v, |a, b| a * b, |s, _n| s;
    // The squares are added up in f64.
    Norm(f32) -> f32, f64 = 0.0, false, false:
        |a, v| a + f64::from(v) * f64::from(v), |a, b| a + b, |s, _n| s.sqrt() as f32;
    Norm(f16) -> f16, f64 = 0.0, false, false:
        |a, v| a + f64::from(v.number()) * f64::from(v.number()), |a, b| a + b, |s, _n| f16::of_number(s.sqrt() as f32), squares;
    Norm(bf16) -> bf16, f64 = 0.0, false, false:
        |a, v| a + f64::from(v.number()) * f64::from(v.number()), |a, b| a + b, |s, _n| bf16::of_number(s.sqrt() as f32), squares;
    Norm(f64) -> f64, f64 = 0.0, false, false: |a, v| a + v * v, |a, b| a + b, |s, _n| s.sqrt();
    Largest(Bool8) -> Bool8, u8 = 0, true, true: |a, v| a | u8::from(v.get()), |a, b| a | b, |s, _n| Bool8(s);
    Smallest(Bool8) -> Bool8, u8 = 1, true, true: |a, v| a & u8::from(v.get()), |a, b| a & b, |s, _n| Bool8(s);
    Largest(f64) -> f64, f64 = f64::NEG_INFINITY, true, false:
        |a, v| if (v > a) | v.is_nan() { v } else { a }, |a, b| if b > a || b.is_nan() { b } else { a }, |s, _n| s;
    Smallest(f64) -> f64, f64 = f64::INFINITY, true, false:
        |a, v| if (v < a) | v.is_nan() { v } else { a }, |a, b| if b < a || b.is_nan() { b } else { a }, |s, _n| s;
}

macro_rules! totals {
    ($($t:ty, |$v:ident| $wide:expr;)*) => { $( combine! {
        Sum($t) -> i64, i64 = 0, false, true:
            |a, $v| a.wrapping_add($wide), |a, b| a.wrapping_add(b), |s, _n| s;
        Product($t) -> i64, i64 = 1, false, true:
            |a, $v| a.wrapping_mul($wide), |a, b| a.wrapping_mul(b), |s, _n| s;
    } )* };
}
totals! {
    i64, |v| v;
    i32, |v| v.into();
    i16, |v| v.into();
    i8, |v| v.into();
    u8, |v| v.into();
    Bool8, |v| v.get().into();
}

macro_rules! extremes {
    ($($t:ty),*) => { $( combine! {
        Largest($t) -> $t, $t = <$t>::MIN, true, true: |a, v| a.max(v), |a, b| a.max(b), |s, _n| s;
        Smallest($t) -> $t, $t = <$t>::MAX, true, true: |a, v| a.min(v), |a, b| a.min(b), |s, _n| s;
    } )* };
}
extremes!(i64, i32, i16, i8, u8);

/// A combination of elements of type `T`.
struct Loops<C, T> {
    level: SimdLevel,
    types: PhantomData<(C, T)>,
}

/// Prepares the combination `C` if input and output have its dtypes.
fn of_dtype<C: Combine<T>, T: Element>(
    ctx: &PrepareContext<'_>,
    operator: &str,
    out: usize,
    form: DimsArg,
) -> Preparation {
    let has = |i: usize, dtype: DType| ctx.tensor(i).is_some_and(|t| t.dtype == dtype);
    if !(has(0, T::DTYPE) && has(out, C::Out::DTYPE)) {
        return ctx.decline("takes other dtypes");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa.min(Isa::Avx2));
    let name = [operator, T::DTYPE.name(), level.isa().name()];
    let outputs = Outputs { first: out, second: None };
    fold_kernel(ctx, outputs, form, name, Loops::<C, T> { level, types: PhantomData })
}

/// The kernel for the dtypes of the call, if there is one that takes it.
pub fn prepare(ctx: &PrepareContext<'_>, kind: Kind, out: usize, form: DimsArg) -> Preparation {
    macro_rules! first {
        ($combination:ident: $($t:ty),*) => { {
            $( if let Some(prepared) = of_dtype::<$combination, $t>(ctx, kind.name(), out, form)? {
                return Ok(Some(prepared));
            } )*
            ctx.decline("takes other dtypes")
        } };
    }
    match kind {
        Kind::Sum => first!(Sum: f64, i64, i32, i16, i8, u8, Bool8),
        Kind::Mean => first!(Mean: f64),
        Kind::Product => first!(Product: f64, i64, i32, i16, i8, u8, Bool8),
        Kind::Max => first!(Largest: f64, i64, i32, i16, i8, u8, Bool8),
        Kind::Min => first!(Smallest: f64, i64, i32, i16, i8, u8, Bool8),
        Kind::LogSumExp => log_sum_exp::prepare(ctx, out, form),
    }
}

/// The kernel for Euclidean norms of floats, if it takes the call.
pub fn prepare_norm(ctx: &PrepareContext<'_>, out: usize, form: DimsArg) -> Preparation {
    if ctx.args.get(1).and_then(|order| order.number()) != Some(2.0) {
        return ctx.decline("takes the Euclidean norm");
    }
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Float64) => of_dtype::<Norm, f64>(ctx, "norm", out, form),
        Some(DType::Float16) => of_dtype::<Norm, f16>(ctx, "norm", out, form),
        Some(DType::BFloat16) => of_dtype::<Norm, bf16>(ctx, "norm", out, form),
        _ => of_dtype::<Norm, f32>(ctx, "norm", out, form),
    }
}

impl<C: Combine<T>, T: Element> Fold for Loops<C, T> {
    const NS_PER_ELEMENT: f64 = 0.25;

    fn needs_elements(&self) -> bool {
        C::NEEDS_ELEMENTS
    }

    fn state_size(&self) -> usize {
        size_of::<C::State>()
    }

    fn run(&self, call: Call, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let each = Loops::<C, T> { level: self.level, types: PhantomData };
        call.compute(each, chunk, |task: FoldTask<'_, '_, _, T, C::Out>| self.level.dispatch_narrow(task))
    }
}

impl<C: Combine<T>, T: Element> FoldUnits<T, C::Out> for Loops<C, T> {
    type State = C::State;

    #[inline(always)]
    unsafe fn part<S: Simd>(&self, s: S, x: *const T, n: usize) -> C::State {
        // SAFETY: `n` elements behind `x`, as this function asks for.
        unsafe { C::quick(s, x, n).unwrap_or_else(|| row::<C, T>(x, n)) }
    }

    #[inline(always)]
    fn join(&self, a: C::State, b: C::State) -> C::State {
        C::join(a, b)
    }

    #[inline(always)]
    fn finish(&self, state: C::State, n: usize) -> C::Out {
        C::finish(state, n)
    }

    #[inline(always)]
    unsafe fn columns<S: Simd>(
        &self,
        _: S,
        x: *const T,
        [y, _]: [*mut C::Out; 2],
        volumes: Volumes,
        n: usize,
    ) {
        for first in (0..n).step_by(GROUP) {
            let n = GROUP.min(n - first);
            // SAFETY: `n` columns behind `x` and `y`, as this function asks for; these are some of them.
            unsafe { group::<C, T>(x.add(first), y.add(first), volumes, n) };
        }
    }
}

/// Folds `n ≤ GROUP` neighbouring columns.
///
/// # Safety
/// `n` columns of all rows behind `x`, `n` elements behind `y`.
#[inline(always)]
unsafe fn group<C: Combine<T>, T: Element>(x: *const T, y: *mut C::Out, volumes: Volumes, n: usize) {
    // SAFETY: as this function asks for; blocks are some of the columns.
    unsafe {
        if C::IS_EXACT {
            // Loops over memory are vectorised for integers; of 64 bits, those of a constant length.
            return match n {
                GROUP if size_of::<T>() == 8 => columns::<C, T, GROUP>(x, y, volumes, GROUP),
                _ => columns::<C, T, GROUP>(x, y, volumes, n),
            };
        }
        for c in (0..n).step_by(LANES) {
            match n - c >= LANES {
                true => columns::<C, T, LANES>(x.add(c), y.add(c), volumes, LANES),
                false => columns::<C, T, LANES>(x.add(c), y.add(c), volumes, n - c),
            }
        }
    }
}

/// Σ x² in f32, block by block, unless squares may have left the range of f32: those of bfloat16 can.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn squares<S: Simd, T: Source>(s: S, x: *const T, n: usize) -> Option<f64> {
    /// What a square may lose where f32 has no smaller numbers is a ten-millionth of it.
    const LEAST: f64 = 1e-38;
    // SAFETY: as this function asks for.
    let sum = unsafe { sum_of(s, x, n, |v| s.mul(v, v)) };
    (sum.is_finite() && sum > LEAST * n as f64).then_some(sum)
}

/// Folds `n` neighbours.
///
/// # Safety
/// `n` elements behind `x`.
#[allow(clippy::needless_range_loop, reason = "indexed loops are vectorised")]
#[inline(always)]
unsafe fn row<C: Combine<T>, T: Element>(x: *const T, n: usize) -> C::State {
    let mut total = C::START;
    if C::IS_EXACT {
        for i in 0..n {
            // SAFETY: i < n.
            total = C::step(total, unsafe { *x.add(i) });
        }
        return total;
    }
    let mut start = 0;
    while start < n {
        let end = n.min(start + BLOCK);
        let mut lanes = [C::START; LANES];
        let mut i = start;
        // SAFETY: i stays below `end`.
        unsafe {
            while i + LANES <= end {
                for k in 0..LANES {
                    lanes[k] = C::step(lanes[k], *x.add(i + k));
                }
                i += LANES;
            }
            for k in 0..end - i {
                lanes[k] = C::step(lanes[k], *x.add(i + k));
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for k in 0..width {
                lanes[k] = C::join(lanes[k], lanes[k + width]);
            }
            width /= 2;
        }
        total = C::join(total, lanes[0]);
        start = end;
    }
    total
}

/// Folds `n ≤ WIDTH` neighbouring columns; a constant number lets the states of a few stay in registers.
///
/// # Safety
/// `n` columns of all rows behind `x`, `n` elements behind `y`.
#[inline(always)]
unsafe fn columns<C: Combine<T>, T: Element, const WIDTH: usize>(
    x: *const T,
    y: *mut C::Out,
    Volumes { reduced, inner, .. }: Volumes,
    n: usize,
) {
    let mut totals = [C::START; WIDTH];
    for start in (0..reduced).step_by(ROWS) {
        let mut states = [C::START; WIDTH];
        for r in start..reduced.min(start + ROWS) {
            // SAFETY: row `r` has `n` elements behind its first, and rows are `inner` apart.
            let row = unsafe { std::slice::from_raw_parts(x.add(r * inner), n) };
            for (state, v) in states.iter_mut().zip(row) {
                *state = C::step(*state, *v);
            }
        }
        for (total, state) in totals.iter_mut().zip(states) {
            *total = C::join(*total, state);
        }
    }
    for (k, total) in totals.iter().enumerate().take(n) {
        // SAFETY: k < n.
        unsafe { *y.add(k) = C::finish(*total, reduced) };
    }
}
