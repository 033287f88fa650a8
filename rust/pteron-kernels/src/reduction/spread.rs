//! var, std and var_mean of floats over neighbouring dimensions, computed in f64. Unsafe island (vector loads).
//!
//! Two passes over blocks that stay in cache: the mean of the block, then the squares of the distances from it. Blocks
//! are joined by the formula of Chan, Golub and LeVeque (Updating formulae and a pairwise algorithm for computing sample
//! variances, 1979), with sums instead of means, so that infinite means stay infinite. Every result has one order of summation.

use super::fold::{COLUMNS, Call, Fold, FoldTask, FoldUnits, Outputs, fold_kernel};
use super::shape::{DimsArg, Volumes};
use crate::elementwise::operand::{Sink, load_up_to};
use crate::frame::Chunk;
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel};
use half::{bf16, f16};
use pteron_core::{Args, DType, Element, Isa, PrepareContext, Result};
use std::marker::PhantomData;

/// Elements of a row whose mean is taken first.
const BLOCK: usize = 4096;
/// Rows whose means are taken first, column by column.
const ROWS: usize = 32;
/// Sums of a row that need not wait for each other.
const LANES: usize = 16;

/// Reads what is subtracted from the number of elements.
pub type Correction = fn(&Args<'_>) -> Result<f64>;

/// Elements that are read as numbers that f64 has all of.
trait Numbers: Element {
    type Number: Copy + Into<f64>;

    /// `n ≤ COLUMNS` numbers, where they lie or in the buffer.
    ///
    /// # Safety
    /// `n` elements behind `x`, for as long as the buffer is borrowed.
    unsafe fn numbers<S: Simd>(
        s: S,
        x: *const Self,
        n: usize,
        buffer: &mut [f32; COLUMNS],
    ) -> &[Self::Number];

    /// The nearest element.
    fn rounded(v: f64) -> Self;
}

macro_rules! in_place {
    ($($t:ty),*) => { $(
        impl Numbers for $t {
            type Number = $t;
            #[inline(always)]
            unsafe fn numbers<S: Simd>(_: S, x: *const $t, n: usize, _: &mut [f32; COLUMNS]) -> &[$t] {
                // SAFETY: as this function asks for.
                unsafe { std::slice::from_raw_parts(x, n) }
            }
            #[inline(always)]
            fn rounded(v: f64) -> $t {
                v as $t
            }
        }
    )* };
}
in_place!(f32, f64);

macro_rules! widened {
    ($($t:ty),*) => { $(
        impl Numbers for $t {
            type Number = f32;
            #[inline(always)]
            unsafe fn numbers<S: Simd>(s: S, x: *const $t, n: usize, buffer: &mut [f32; COLUMNS]) -> &[f32] {
                let n = n.min(COLUMNS);
                for i in (0..n).step_by(S::LANES) {
                    // SAFETY: i < n, and no more than `n` elements are read; the buffer has whole vectors.
                    unsafe { s.store(buffer.as_mut_ptr().add(i), load_up_to(s, x.add(i), S::LANES.min(n - i))) };
                }
                &buffer[..n]
            }
            #[inline(always)]
            fn rounded(v: f64) -> $t {
                <$t>::of_number(v as f32)
            }
        }
    )* };
}
widened!(f16, bf16);

struct Spread<T> {
    level: SimdLevel,
    correction: Correction,
    is_root: bool,
    element: PhantomData<T>,
}

/// The kernel for input and outputs of one float dtype, if it takes the call: variances or, if `is_root`, their roots to the
/// first output, means to the second.
pub fn prepare(
    ctx: &PrepareContext<'_>,
    outputs: Outputs,
    form: DimsArg,
    correction: Correction,
    is_root: bool,
) -> Preparation {
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else { return ctx.decline("an argument is no tensor") };
    let has_dtype = |out: usize| ctx.tensor(out).is_some_and(|t| t.dtype == dtype);
    if !has_dtype(outputs.first) || outputs.second.is_some_and(|out| !has_dtype(out)) {
        return ctx.decline("takes input and output of one dtype");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa.min(Isa::Avx2));
    let operator = match (is_root, outputs.second) {
        (true, _) => "std",
        (false, None) => "var",
        (false, Some(_)) => "var_mean",
    };
    let name = [operator, dtype.name(), level.isa().name()];
    macro_rules! of {
        ($t:ty) => {
            fold_kernel(
                ctx,
                outputs,
                form,
                name,
                Spread::<$t> { level, correction, is_root, element: PhantomData },
            )
        };
    }
    match dtype {
        DType::Float64 => of!(f64),
        DType::Float32 => of!(f32),
        DType::Float16 => of!(f16),
        DType::BFloat16 => of!(bf16),
        _ => ctx.decline("takes floats of at least 16 bits"),
    }
}

impl<T: Numbers> Fold for Spread<T> {
    const NS_PER_ELEMENT: f64 = 0.5;

    fn needs_elements(&self) -> bool {
        false
    }

    fn state_size(&self) -> usize {
        size_of::<Moments>()
    }

    fn run(&self, call: Call, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let distances = Distances { correction: (self.correction)(chunk.args())?, is_root: self.is_root };
        call.compute(distances, chunk, |task: FoldTask<'_, '_, _, T, T>| self.level.dispatch_narrow(task))
    }
}

/// Number of elements, their sum, and the sum of the squares of their distances from the mean.
type Moments = [f64; 3];

#[inline(always)]
fn joined([n, sum, squares]: Moments, [m, other_sum, other_squares]: Moments) -> Moments {
    let distance = other_sum / m - sum / n;
    [n + m, sum + other_sum, squares + other_squares + distance * distance * (n * m / (n + m))]
}

struct Distances {
    correction: f64,
    is_root: bool,
}

impl Distances {
    #[inline(always)]
    fn result(&self, squares: f64, n: usize) -> f64 {
        let variance = squares / (n as f64 - self.correction).max(0.0);
        if self.is_root { variance.sqrt() } else { variance }
    }
}

impl<T: Numbers> FoldUnits<T, T> for Distances {
    type State = Moments;

    #[inline(always)]
    unsafe fn part<S: Simd>(&self, s: S, x: *const T, n: usize) -> Moments {
        let mut moments = [0.0; 3];
        for start in (0..n).step_by(BLOCK) {
            let length = BLOCK.min(n - start);
            // SAFETY: the block ends at `n` or before.
            let block = unsafe {
                let x = x.add(start);
                let sum = sum_of(s, x, length, |v| v);
                let mean = sum / length as f64;
                [length as f64, sum, sum_of(s, x, length, |v| (v - mean) * (v - mean))]
            };
            moments = if start == 0 { block } else { joined(moments, block) };
        }
        moments
    }

    #[inline(always)]
    fn join(&self, a: Moments, b: Moments) -> Moments {
        joined(a, b)
    }

    #[inline(always)]
    fn finish(&self, [_, _, squares]: Moments, n: usize) -> T {
        T::rounded(self.result(squares, n))
    }

    #[inline(always)]
    fn second(&self, [n, sum, _]: Moments) -> Option<T> {
        Some(T::rounded(sum / n))
    }

    #[inline(always)]
    unsafe fn columns<S: Simd>(
        &self,
        s: S,
        x: *const T,
        [y, means]: [*mut T; 2],
        Volumes { reduced, inner, .. }: Volumes,
        n: usize,
    ) {
        let mut buffer = [0f32; COLUMNS];
        let (mut all_sums, mut all_squares) = ([0f64; COLUMNS], [0f64; COLUMNS]);
        let (all_sums, all_squares) = (&mut all_sums[..n], &mut all_squares[..n]);
        for start in (0..reduced).step_by(ROWS) {
            let rows = start..reduced.min(start + ROWS);
            let count = rows.len() as f64;
            let mut means = [0f64; COLUMNS];
            let mut squares = [0f64; COLUMNS];
            let (means, squares) = (&mut means[..n], &mut squares[..n]);
            for row in rows.clone() {
                // SAFETY: every row has `n` elements behind its first, and rows are `inner` apart.
                let numbers = unsafe { T::numbers(s, x.add(row * inner), n, &mut buffer) };
                means.iter_mut().zip(numbers).for_each(|(sum, v)| *sum += (*v).into());
            }
            means.iter_mut().for_each(|sum| *sum /= count);
            for row in rows {
                // SAFETY: every row has `n` elements behind its first, and rows are `inner` apart.
                let numbers = unsafe { T::numbers(s, x.add(row * inner), n, &mut buffer) };
                for ((squares, mean), v) in squares.iter_mut().zip(&*means).zip(numbers) {
                    let distance = (*v).into() - mean;
                    *squares += distance * distance;
                }
            }
            let totals = all_sums.iter_mut().zip(&mut *all_squares);
            let before = start as f64;
            for ((sum, all), (mean, squares)) in totals.zip(means.iter().zip(&*squares)) {
                let block = [count, mean * count, *squares];
                [_, *sum, *all] = if start == 0 { block } else { joined([before, *sum, *all], block) };
            }
        }
        for (c, (sum, squares)) in all_sums.iter().zip(&*all_squares).enumerate() {
            // SAFETY: c < n, and both pointers have room for `n` results unless they are null.
            unsafe {
                *y.add(c) = T::rounded(self.result(*squares, reduced));
                if !means.is_null() {
                    *means.add(c) = T::rounded(sum / reduced as f64);
                }
            }
        }
    }
}

/// Σ f(x) of at most [`BLOCK`] neighbours.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn sum_of<S: Simd, T: Numbers>(s: S, x: *const T, n: usize, f: impl Fn(f64) -> f64) -> f64 {
    let mut buffer = [0f32; COLUMNS];
    let mut lanes = [0f64; LANES];
    for start in (0..n).step_by(COLUMNS) {
        // SAFETY: the numbers end at `n` or before.
        let numbers = unsafe { T::numbers(s, x.add(start), COLUMNS.min(n - start), &mut buffer) };
        let (groups, rest) = numbers.as_chunks::<LANES>();
        for group in groups {
            for (lane, v) in lanes.iter_mut().zip(group) {
                *lane += f((*v).into());
            }
        }
        for (lane, v) in lanes.iter_mut().zip(rest) {
            *lane += f((*v).into());
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for k in 0..width {
            lanes[k] += lanes[k + width];
        }
        width /= 2;
    }
    lanes[0]
}
