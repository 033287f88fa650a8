//! sum, mean, prod, amax, amin and logsumexp of floats over neighbouring dimensions, computed in f32. Unsafe island
//! (vector loads).
//!
//! Long sums are made of blocks, so that rounding grows with the square root of the length rather than with
//! the length; every output element has one order of summation. amax and amin answer NaN when there is one.

use super::fold::{Fold, FoldTask, FoldUnits, Kind, fold_kernel};
use super::log_sum_exp;
use super::moments::sum_of;
use super::shape::{DimsArg, Volumes};
use crate::elementwise::columns::Columns;
use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::frame::Chunk;
use crate::routine::Preparation;
use crate::vector_math::exp::exp;
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
    fold_kernel(ctx, out, form, [kind.name(), text, level.isa().name()], FloatFold { kind, level, dtype })
}

impl Fold for FloatFold {
    const NS_PER_ELEMENT: f64 = 0.125;

    fn needs_elements(&self) -> bool {
        matches!(self.kind, Kind::Max | Kind::Min)
    }

    fn run(&self, volumes: Volumes, out: usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match self.dtype {
            DType::Float16 => self.units::<f16>(volumes, out, chunk),
            DType::BFloat16 => self.units::<bf16>(volumes, out, chunk),
            _ => self.units::<f32>(volumes, out, chunk),
        }
    }
}

impl FloatFold {
    fn units<T: Source + Sink + Columns>(
        &self,
        volumes: Volumes,
        out: usize,
        chunk: &mut Chunk<'_, '_>,
    ) -> Result<()> {
        let task: FoldTask<'_, _, T, T> = FoldTask::new(Floats { kind: self.kind }, volumes, out, chunk)?;
        self.level.dispatch(task);
        Ok(())
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
                let mut lanes = [0f32; crate::vector_math::simd::MAX_LANES];
                s.store(lanes.as_mut_ptr(), exp(s, s.sub(load_up_to(s, x.add(i), end - i), center)));
                total += f64::from(lanes[..end - i].iter().sum::<f32>());
            }
        }
        start = end;
    }
    total
}

impl<T: Source + Sink + Columns> FoldUnits<T, T> for Floats {
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, x: *const T, n: usize) -> T {
        // SAFETY: `n` elements behind `x`, as this function asks for; those that begin with the first have one.
        let number = unsafe {
            match self.kind {
                Kind::Sum => sum_of(s, x, n, |v| v) as f32,
                Kind::Mean => (sum_of(s, x, n, |v| v) / n as f64) as f32,
                Kind::Product => self.folded(s, x, n, 1.0),
                Kind::LogSumExp if n == 0 => f32::NEG_INFINITY,
                Kind::LogSumExp => {
                    let top = self.folded(s, x, n, (*x).number());
                    // Infinite maxima are their own result; subtracting them would give NaN.
                    let shift = if top.is_infinite() { 0.0 } else { top };
                    (sum_of_powers(s, x, n, shift).ln() + f64::from(shift)) as f32
                }
                // Starting from the first element needs no neutral one.
                Kind::Max | Kind::Min => self.folded(s, x, n, (*x).number()),
            }
        };
        T::of_number(number)
    }

    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, x: *const T, y: *mut T, volumes: Volumes, n: usize) {
        if self.kind == Kind::LogSumExp {
            // SAFETY: as this function asks for.
            return unsafe { log_sum_exp::columns(s, x, y, volumes, n) };
        }
        for c in (0..n).step_by(2 * S::LANES) {
            // SAFETY: `n` columns behind `x` and `y`, as this function asks for; these are some of them.
            unsafe { self.two_vectors(s, x.add(c), y.add(c), volumes, (2 * S::LANES).min(n - c)) };
        }
    }
}

impl Floats {
    /// Combines all elements with `start` in four accumulators, so that they need not wait for each other.
    ///
    /// # Safety
    /// `n` elements behind `x`.
    #[inline(always)]
    unsafe fn folded<S: Simd, T: Source>(&self, s: S, x: *const T, n: usize, start: f32) -> f32 {
        let mut all = [s.splat(start); 4];
        let mut i = 0;
        // SAFETY: i + 4 LANES ≤ n, then i + LANES ≤ n; what is left is read by element.
        unsafe {
            while i + 4 * S::LANES <= n {
                for (k, each) in all.iter_mut().enumerate() {
                    *each = self.combined(s, *each, T::load(s, x.add(i + k * S::LANES)));
                }
                i += 4 * S::LANES;
            }
            while i + S::LANES <= n {
                all[0] = self.combined(s, all[0], T::load(s, x.add(i)));
                i += S::LANES;
            }
            let mut lanes = [0f32; 4 * crate::vector_math::simd::MAX_LANES];
            if self.kind == Kind::Product {
                for (k, each) in all.iter().enumerate() {
                    s.store(lanes.as_mut_ptr().add(k * S::LANES), *each);
                }
                // In f64, whose range is larger: products of many numbers soon are subnormal in f32, which is slow.
                let mut parts = [1.0; 8];
                for group in lanes[..4 * S::LANES].chunks_exact(8) {
                    for (part, v) in parts.iter_mut().zip(group) {
                        *part *= f64::from(*v);
                    }
                }
                let mut result = parts.iter().fold(f64::from(start), |all, part| all * part);
                while i < n {
                    result *= f64::from((*x.add(i)).number());
                    i += 1;
                }
                return result as f32;
            }
            let pairs = [self.better(s, all[0], all[1]), self.better(s, all[2], all[3])];
            s.store(lanes.as_mut_ptr(), self.better(s, pairs[0], pairs[1]));
            let mut result = start;
            for v in &lanes[..S::LANES] {
                result = self.better_of(result, *v);
            }
            while i < n {
                result = self.better_of(result, (*x.add(i)).number());
                i += 1;
            }
            result
        }
    }

    #[inline(always)]
    fn combined<S: Simd>(&self, s: S, a: S::F, b: S::F) -> S::F {
        if self.kind == Kind::Product { s.mul(a, b) } else { self.better(s, a, b) }
    }

    #[inline(always)]
    fn better<S: Simd>(&self, s: S, a: S::F, b: S::F) -> S::F {
        if self.kind == Kind::Min { s.min_nan(a, b) } else { s.max_nan(a, b) }
    }

    #[inline(always)]
    fn better_of(&self, a: f32, b: f32) -> f32 {
        let is_first = if self.kind == Kind::Min { a < b } else { a > b };
        if is_first || a.is_nan() { a } else { b }
    }

    /// Reduces up to two vectors of neighbouring columns.
    ///
    /// # Safety
    /// `n ≤ 2 LANES` columns of all rows behind `x`, `n` elements behind `y`.
    #[inline(always)]
    unsafe fn two_vectors<S: Simd, T: Source + Sink>(
        &self,
        s: S,
        x: *const T,
        y: *mut T,
        Volumes { reduced, inner, .. }: Volumes,
        n: usize,
    ) {
        let (n0, n1) = (n.min(S::LANES), n.saturating_sub(S::LANES));
        // SAFETY: rows are `inner` apart; partial loads and stores touch n0 and n1 elements.
        unsafe {
            let (mut a, mut b) = (s.zero(), s.zero());
            if matches!(self.kind, Kind::Max | Kind::Min) {
                (a, b) = load_two(s, x, n0, n1);
                for row in 1..reduced {
                    let (v, w) = load_two(s, x.add(row * inner), n0, n1);
                    (a, b) = (self.better(s, a, v), self.better(s, b, w));
                }
            } else if self.kind == Kind::Product {
                (a, b) = (s.splat(1.0), s.splat(1.0));
                for row in 0..reduced {
                    let (v, w) = load_two(s, x.add(row * inner), n0, n1);
                    (a, b) = (s.mul(a, v), s.mul(b, w));
                }
            } else {
                for start in (0..reduced).step_by(ROWS) {
                    let (mut p, mut q) = (s.zero(), s.zero());
                    for row in start..reduced.min(start + ROWS) {
                        let (v, w) = load_two(s, x.add(row * inner), n0, n1);
                        (p, q) = (s.add(p, v), s.add(q, w));
                    }
                    (a, b) = (s.add(a, p), s.add(b, q));
                }
                if self.kind == Kind::Mean {
                    let count = s.splat(reduced as f32);
                    (a, b) = (s.div(a, count), s.div(b, count));
                }
            }
            store_up_to(s, y, a, n0);
            if n1 > 0 {
                store_up_to(s, y.add(S::LANES), b, n1);
            }
        }
    }
}
