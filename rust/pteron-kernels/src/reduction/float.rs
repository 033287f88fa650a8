//! sum, mean, prod, amax, amin and logsumexp of floats over neighbouring dimensions, computed in f32. Unsafe island
//! (vector loads).
//!
//! Long sums are made of blocks, so that rounding grows with the square root of the length rather than with
//! the length; every output element has one order of summation. amax and amin answer NaN when there is one.

use super::float_steps::{Add, Larger, Smaller, Step, Times};
use super::fold::{COLUMNS, Call, Fold, FoldTask, FoldUnits, Kind, Outputs, fold_kernel};
use super::log_sum_exp;
use super::moments::sum_of;
use super::shape::{DimsArg, Volumes};
use crate::elementwise::columns::Columns;
use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::frame::Chunk;
use crate::routine::Preparation;
use crate::vector_math::exp::exp;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel};
use half::{bf16, f16};
use pteron_core::{DType, PrepareContext, Result};

/// Rows added up before their sum is added to the total.
const ROWS: usize = 128;

struct FloatFold {
    kind: Kind,
    level: SimdLevel,
    dtype: DType,
}

/// The kernel for input and output of one float dtype, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, kind: Kind, out: usize, form: DimsArg) -> Preparation {
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else { return ctx.decline("an argument is no tensor") };
    let is_float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
    if !is_float || ctx.tensor(out).is_none_or(|t| t.dtype != dtype) {
        return ctx.decline("takes input and output of float32 or of one 16-bit float");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let text = if dtype == DType::Float32 { "f32" } else { dtype.name() };
    let outputs = Outputs { first: out, second: None };
    fold_kernel(ctx, outputs, form, [kind.name(), text, level.isa().name()], FloatFold { kind, level, dtype })
}

impl Fold for FloatFold {
    const NS_PER_ELEMENT: f64 = 0.125;

    fn needs_elements(&self) -> bool {
        matches!(self.kind, Kind::Max | Kind::Min)
    }

    fn state_size(&self) -> usize {
        size_of::<f64>()
    }

    fn run(&self, call: Call, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match self.dtype {
            DType::Float16 => self.units::<f16>(call, chunk),
            DType::BFloat16 => self.units::<bf16>(call, chunk),
            _ => self.units::<f32>(call, chunk),
        }
    }
}

impl FloatFold {
    fn units<T: Source + Sink + Columns>(&self, call: Call, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let dispatch = |task: FoldTask<'_, '_, _, T, T>| self.level.dispatch(task);
        call.compute(Floats { kind: self.kind }, chunk, dispatch)
    }
}

/// A vector and a second one behind it, of `n0` and `n1` elements. No closure, as for [`sum_of_powers`].
///
/// # Safety
/// They are readable at `p`; `n0` is all lanes unless `n1` is zero.
#[inline(always)]
unsafe fn load_two<S: Simd, T: Source>(s: S, p: *const T, n0: usize, n1: usize) -> (S::F, S::F) {
    // SAFETY: as this function asks for.
    unsafe {
        let second = if n1 > 0 { load_up_to(s, p.add(S::LANES), n1) } else { s.zero() };
        (load_up_to(s, p, n0), second)
    }
}

/// How the elements of a unit are combined.
struct Floats {
    kind: Kind,
}

/// Σ e^(x - shift). No closure for [`sum_of`]: one of this size is not inlined, and has no vector instructions then.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn sum_of_powers<S: Simd, T: Source>(s: S, x: *const T, n: usize, shift: f32) -> f64 {
    /// Elements that are summed in f32 before they are added to an f64 total.
    const BLOCK: usize = 4096;
    let center = s.splat(shift);
    let mut total = 0.0;
    let mut start = 0;
    while start < n {
        let end = n.min(start + BLOCK);
        let mut sum = s.zero();
        let mut i = start;
        // SAFETY: i stays below `end`.
        unsafe {
            while i + S::LANES <= end {
                sum = s.add(sum, exp(s, s.sub(T::load(s, x.add(i)), center)));
                i += S::LANES;
            }
            total += f64::from(s.reduce_add(sum));
            if i < end {
                let mut lanes = [0f32; MAX_LANES];
                s.store(lanes.as_mut_ptr(), exp(s, s.sub(load_up_to(s, x.add(i), end - i), center)));
                total += f64::from(lanes[..end - i].iter().sum::<f32>());
            }
        }
        start = end;
    }
    total
}

impl<T: Source + Sink + Columns> FoldUnits<T, T> for Floats {
    /// The sum, the product, the extreme or the result.
    type State = f64;

    #[inline(always)]
    unsafe fn part<S: Simd>(&self, s: S, x: *const T, n: usize) -> f64 {
        // SAFETY: `n` elements behind `x`, as this function asks for.
        unsafe {
            match self.kind {
                Kind::Sum | Kind::Mean => sum_of(s, x, n, |v| v),
                Kind::Product => folded::<Times, S, T>(s, x, n),
                Kind::LogSumExp if n == 0 => f64::NEG_INFINITY,
                Kind::LogSumExp => {
                    let top = folded::<Larger, S, T>(s, x, n) as f32;
                    // Infinite maxima are their own result; subtracting them would give NaN.
                    let shift = if top.is_infinite() { 0.0 } else { top };
                    sum_of_powers(s, x, n, shift).ln() + f64::from(shift)
                }
                Kind::Max => folded::<Larger, S, T>(s, x, n),
                Kind::Min => folded::<Smaller, S, T>(s, x, n),
            }
        }
    }

    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        match self.kind {
            Kind::Sum | Kind::Mean => a + b,
            Kind::Product => a * b,
            Kind::LogSumExp => log_sum_exp::joined(a, b),
            Kind::Max => Larger::join(a, b),
            Kind::Min => Smaller::join(a, b),
        }
    }

    #[inline(always)]
    fn finish(&self, state: f64, n: usize) -> T {
        T::of_number(if self.kind == Kind::Mean { state / n as f64 } else { state } as f32)
    }

    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, x: *const T, [y, _]: [*mut T; 2], volumes: Volumes, n: usize) {
        // SAFETY: as this function asks for.
        unsafe {
            match self.kind {
                Kind::Sum => columns::<Add, S, T>(s, x, y, volumes, n, 1.0),
                Kind::Mean => columns::<Add, S, T>(s, x, y, volumes, n, volumes.reduced as f32),
                Kind::Product => columns::<Times, S, T>(s, x, y, volumes, n, 1.0),
                Kind::Max => columns::<Larger, S, T>(s, x, y, volumes, n, 1.0),
                Kind::Min => columns::<Smaller, S, T>(s, x, y, volumes, n, 1.0),
                Kind::LogSumExp => log_sum_exp::columns(s, x, y, volumes, n),
            }
        }
    }
}

/// Combines all elements in four accumulators, so that they need not wait for each other.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn folded<C: Step, S: Simd, T: Source>(s: S, x: *const T, n: usize) -> f64 {
    let mut all = [s.splat(C::START); 4];
    let mut i = 0;
    // SAFETY: i + 4 LANES ≤ n, then i + LANES ≤ n; what is left is read by element.
    unsafe {
        while i + 4 * S::LANES <= n {
            for (k, each) in all.iter_mut().enumerate() {
                *each = C::step(s, *each, T::load(s, x.add(i + k * S::LANES)));
            }
            i += 4 * S::LANES;
        }
        while i + S::LANES <= n {
            all[0] = C::step(s, all[0], T::load(s, x.add(i)));
            i += S::LANES;
        }
        let mut result = C::total(s, all);
        while i < n {
            result = C::join(result, f64::from((*x.add(i)).number()));
            i += 1;
        }
        result
    }
}

/// Reduces neighbouring columns; the results are divided by `divisor`.
///
/// # Safety
/// `n ≤ COLUMNS` columns of all rows behind `x`, `n` elements behind `y`.
#[inline(always)]
unsafe fn columns<C: Step, S: Simd, T: Source + Sink>(
    s: S,
    x: *const T,
    y: *mut T,
    volumes: Volumes,
    n: usize,
    divisor: f32,
) {
    // SAFETY: as this function asks for.
    unsafe {
        match n <= 2 * S::LANES {
            true => two_vectors::<C, S, T>(s, x, y, volumes, n, divisor),
            false => strip::<C, S, T>(s, x, y, volumes, n, divisor),
        }
    }
}

/// The results of a vector of columns; a division by one changes nothing and is left out.
#[inline(always)]
fn divided<S: Simd>(s: S, v: S::F, divisor: f32) -> S::F {
    if divisor == 1.0 { v } else { s.div(v, s.splat(divisor)) }
}

/// Reduces up to two vectors of neighbouring columns.
///
/// # Safety
/// `n ≤ 2 LANES` columns of all rows behind `x`, `n` elements behind `y`.
#[inline(always)]
unsafe fn two_vectors<C: Step, S: Simd, T: Source + Sink>(
    s: S,
    x: *const T,
    y: *mut T,
    Volumes { reduced, inner, .. }: Volumes,
    n: usize,
    divisor: f32,
) {
    let (n0, n1) = (n.min(S::LANES), n.saturating_sub(S::LANES));
    // SAFETY: rows are `inner` apart; partial loads and stores touch n0 and n1 elements.
    unsafe {
        let (mut a, mut b) = (s.splat(C::START), s.splat(C::START));
        for start in (0..reduced).step_by(ROWS) {
            let (mut p, mut q) = (s.splat(C::START), s.splat(C::START));
            for row in start..reduced.min(start + ROWS) {
                let (v, w) = load_two(s, x.add(row * inner), n0, n1);
                (p, q) = (C::step(s, p, v), C::step(s, q, w));
            }
            (a, b) = (C::step(s, a, p), C::step(s, b, q));
        }
        store_up_to(s, y, divided(s, a, divisor), n0);
        if n1 > 0 {
            store_up_to(s, y.add(S::LANES), divided(s, b, divisor), n1);
        }
    }
}

/// As [`two_vectors`], of many columns, row by row: what neighbours in memory is read together, as each row may
/// lie on a page of its own. The states lie in memory.
///
/// # Safety
/// `n ≤ COLUMNS` columns of all rows behind `x`, `n` elements behind `y`.
#[inline(always)]
unsafe fn strip<C: Step, S: Simd, T: Source + Sink>(
    s: S,
    x: *const T,
    y: *mut T,
    Volumes { reduced, inner, .. }: Volumes,
    n: usize,
    divisor: f32,
) {
    let mut totals = [C::START; COLUMNS];
    const { assert!(COLUMNS.is_multiple_of(MAX_LANES)) };
    for start in (0..reduced).step_by(ROWS) {
        let mut sums = [C::START; COLUMNS];
        let end = reduced.min(start + ROWS);
        let mut row = start;
        // SAFETY: rows are `inner` apart and have `n` elements, of which no more are read; `COLUMNS`, of which `n` are
        // used, are whole vectors.
        unsafe {
            while row < end {
                let x = x.add(row * inner);
                if end - row >= 4 {
                    rows::<C, S, T, 4>(s, x, inner, &mut sums, n);
                    row += 4;
                } else {
                    rows::<C, S, T, 1>(s, x, inner, &mut sums, n);
                    row += 1;
                }
            }
            for c in (0..n).step_by(S::LANES) {
                let total = totals.as_mut_ptr().add(c);
                s.store(total, C::step(s, s.load(total), s.load(sums.as_ptr().add(c))));
            }
        }
    }
    for c in (0..n).step_by(S::LANES) {
        // SAFETY: c < n, and no more than `n` elements are stored.
        unsafe {
            let total = divided(s, s.load(totals.as_ptr().add(c)), divisor);
            store_up_to(s, y.add(c), total, S::LANES.min(n - c));
        }
    }
}

/// Takes `N` rows into the states of their columns.
///
/// # Safety
/// `n ≤ COLUMNS` elements of `N` rows, `inner` apart, behind `x`.
#[inline(always)]
unsafe fn rows<C: Step, S: Simd, T: Source, const N: usize>(
    s: S,
    x: *const T,
    inner: usize,
    states: &mut [f32; COLUMNS],
    n: usize,
) {
    let states = states.as_mut_ptr();
    let mut c = 0;
    // SAFETY: whole vectors are read where as many elements are left, else those that are; the states, `COLUMNS` of them,
    // are whole vectors.
    unsafe {
        while c + S::LANES <= n {
            let mut state = s.load(states.add(c));
            for row in 0..N {
                state = C::step(s, state, T::load(s, x.add(row * inner + c)));
            }
            s.store(states.add(c), state);
            c += S::LANES;
        }
        if c < n {
            let mut state = s.load(states.add(c));
            for row in 0..N {
                state = C::step(s, state, load_up_to(s, x.add(row * inner + c), n - c));
            }
            s.store(states.add(c), state);
        }
    }
}
