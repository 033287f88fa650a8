//! logsumexp of columns, for all floats, and of float64: ln Σ e^(x - max) + max. Infinite maxima are their own result;
//! NaN wins. Every result has one order of summation. Unsafe island (vector loads).

use super::fold::{Call, Fold, FoldTask, FoldUnits, Kind, Outputs, fold_kernel};
use super::shape::{DimsArg, Volumes};
use crate::elementwise::columns::{Columns, Number};
use crate::frame::Chunk;
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, double};
use pteron_core::{DType, PrepareContext, Result};

/// Rows that are added up before their sum joins the total.
const ROWS: usize = 128;
/// Numbers of a row that are computed at once: some vectors of every instruction set.
pub(crate) const GROUP: usize = 16;
/// Elements of a row that are added up before their sum joins the total.
const BLOCK: usize = 4096;

/// Reduces `n` neighbouring columns.
///
/// # Safety
/// As for [`FoldUnits::columns`].
#[inline(always)]
pub(super) unsafe fn columns<S: Simd, T: Columns>(s: S, x: *const T, y: *mut T, volumes: Volumes, n: usize) {
    let width = T::Number::width::<S>();
    for c in (0..n).step_by(width) {
        // SAFETY: `n` columns behind both pointers, as this function asks for; these are some of them.
        unsafe {
            match n - c >= width {
                // A constant number: no partial loads.
                true => block(s, x.add(c), y.add(c), volumes, width),
                false => block(s, x.add(c), y.add(c), volumes, n - c),
            }
        }
    }
}

/// # Safety
/// `n` columns, at most those of a block, of all rows behind `x`, and room for as many results behind `y`.
#[inline(always)]
unsafe fn block<S: Simd, T: Columns>(
    s: S,
    x: *const T,
    y: *mut T,
    Volumes { reduced, inner, .. }: Volumes,
    n: usize,
) {
    // SAFETY: rows are `inner` apart and have `n` elements.
    unsafe {
        let mut top = T::Number::splat(s, T::Number::LEAST);
        for row in 0..reduced {
            top = T::Number::max_nan(s, top, T::load_block(s, x.add(row * inner), n));
        }
        // Subtracting an infinite maximum would give NaN.
        let shift = T::Number::finite(s, top);
        let mut total = T::Number::splat(s, T::Number::ZERO);
        for start in (0..reduced).step_by(ROWS) {
            let mut sum = T::Number::splat(s, T::Number::ZERO);
            for row in start..reduced.min(start + ROWS) {
                let v = T::load_block(s, x.add(row * inner), n);
                sum = T::Number::add(s, sum, T::Number::exp(s, T::Number::sub(s, v, shift)));
            }
            total = T::Number::add(s, total, sum);
        }
        T::store_block(s, y, T::Number::log_plus(s, total, shift), n);
    }
}

struct Doubles {
    level: SimdLevel,
}

/// The kernel for float64, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>, out: usize, form: DimsArg) -> Preparation {
    let is_double = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Float64);
    if !is_double(0) || !is_double(out) {
        return ctx.decline("takes input and output of float64");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = [Kind::LogSumExp.name(), "float64", level.isa().name()];
    fold_kernel(ctx, Outputs { first: out, second: None }, form, name, Doubles { level })
}

impl Fold for Doubles {
    const NS_PER_ELEMENT: f64 = 1.5;

    fn needs_elements(&self) -> bool {
        false
    }

    fn state_size(&self) -> usize {
        size_of::<f64>()
    }

    fn run(&self, call: Call, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        call.compute(Powers, chunk, |task: FoldTask<'_, '_, _, f64, f64>| self.level.dispatch(task))
    }
}

/// ln(e^a + e^b) of two results.
#[inline(always)]
pub(super) fn joined(a: f64, b: f64) -> f64 {
    let (top, least) = if b > a { (b, a) } else { (a, b) };
    match top.is_infinite() && !least.is_nan() {
        // Their difference may be NaN.
        true => top,
        false => top + (least - top).exp().ln_1p(),
    }
}

struct Powers;

impl FoldUnits<f64, f64> for Powers {
    type State = f64;

    #[inline(always)]
    unsafe fn part<S: Simd>(&self, s: S, x: *const f64, n: usize) -> f64 {
        if n == 0 {
            return f64::NEG_INFINITY;
        }
        // SAFETY: `n` elements behind `x`, as this function asks for.
        let x = unsafe { std::slice::from_raw_parts(x, n) };
        let top = largest(x);
        let shift = if top.is_infinite() { 0.0 } else { top };
        // NaN is in the sum, whatever the largest of the others is.
        sum_of_powers(s, x, shift).ln() + shift
    }

    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        joined(a, b)
    }

    #[inline(always)]
    fn finish(&self, state: f64, _: usize) -> f64 {
        state
    }

    #[inline(always)]
    unsafe fn columns<S: Simd>(
        &self,
        s: S,
        x: *const f64,
        [y, _]: [*mut f64; 2],
        volumes: Volumes,
        n: usize,
    ) {
        // SAFETY: as this function asks for.
        unsafe { columns(s, x, y, volumes, n) };
    }
}

/// The elements of a group, followed by what is neutral for largest elements and sums of exponentials.
#[inline(always)]
pub(crate) fn padded(x: &[f64]) -> [f64; GROUP] {
    let mut group = [f64::NEG_INFINITY; GROUP];
    group.iter_mut().zip(x).for_each(|(slot, v)| *slot = *v);
    group
}

/// The largest element; NaN is left to the sum.
#[inline(always)]
pub(crate) fn largest(x: &[f64]) -> f64 {
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    let mut most = [f64::NEG_INFINITY; GROUP];
    let groups = x.chunks_exact(GROUP);
    let rest = padded(groups.remainder());
    for group in groups {
        most.iter_mut().zip(group).for_each(|(most, v)| *most = larger(*most, *v));
    }
    most.iter_mut().zip(rest).for_each(|(most, v)| *most = larger(*most, v));
    most.into_iter().fold(f64::NEG_INFINITY, larger)
}

/// Σ e^(x - shift).
#[inline(always)]
fn sum_of_powers<S: Simd>(s: S, x: &[f64], shift: f64) -> f64 {
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        let mut sums = [0.0; GROUP];
        let groups = block.chunks_exact(GROUP);
        let rest = groups.remainder();
        for group in groups {
            for (sum, x) in sums.iter_mut().zip(group) {
                *sum += double::exp(s, x - shift);
            }
        }
        if !rest.is_empty() {
            for (sum, x) in sums.iter_mut().zip(padded(rest)) {
                *sum += double::exp(s, x - shift);
            }
        }
        total += sums.iter().sum::<f64>();
    }
    total
}
