//! Products of a matrix and a column (`mv`) and of two columns (`dot`) in float64, float16, bfloat16, int32 and int64, `dot`
//! in float32 too. Sixteen-bit floats are multiplied and added up in f32 and rounded once, integers wrap. Unsafe island.
//!
//! *Order.* The products of a row are added up in several sums by their place, which are added at the end; of a long `dot`,
//! those of [`PART`] elements each. That depends on the length and the instruction set alone.
#![allow(unsafe_code, reason = "rows are read in vectors, and chunks share the result")]

use super::matrix_vector::mismatch;
use super::other_dtypes::product::{Double, Long, Product, Single, Sixteen, Whole};
use crate::engine_kernel::{EngineKernel, engine_kernel};
use half::{bf16, f16};
use pteron_core::{BindArgs, DType, Dims, Element, Grid, PrepareContext, Result, Scratch};
use pteron_kernels::elementwise::operand::Half;
use pteron_kernels::frame::{Chunk, Split, UnitKernel, framed};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::marker::PhantomData;

const OUT: usize = 2;
/// Rows that share the loads of the column.
const ROWS: usize = 4;
/// Vectors of sums of a row: of `mv`, and of `dot`.
const SUMS: usize = 2;
const DOT_SUMS: usize = 4;
/// Elements of the matrix that a chunk reads at least.
const CHUNK: usize = 32 << 10;
/// Elements of each column that a chunk of `dot` reads.
const PART: usize = 64 << 10;

/// Elements that become vectors of numbers as they lie in memory.
trait Row: Product<Result = <Self as Product>::Memory, Number: bytemuck::Pod + Send + Sync> {
    /// # Safety
    /// A vector of elements is readable.
    unsafe fn vector<S: Simd>(s: S, p: *const Self::Memory) -> Self::Vector<S>;
}

macro_rules! row {
    ($([$($g:tt)*] $t:ty: |$s:ident, $p:ident| $load:expr;)*) => { $(
        impl $($g)* Row for $t {
            #[inline(always)]
            unsafe fn vector<S: Simd>($s: S, $p: *const Self::Memory) -> Self::Vector<S> {
                // SAFETY: the caller promises a whole vector at the address.
                unsafe { $load }
            }
        }
    )* };
}
row! {
    [] Single: |s, p| s.load(p);
    [] Double: |s, p| s.load_d(p);
    [<T: Half>] Sixteen<T>: |s, p| T::load(s, p);
    [] Whole<i32>: |s, p| s.to_bits(s.load(p.cast()));
    [] Long: |s, p| s.load_l(p);
}

/// Is argument `i` a dense tensor of `dtype` with `rank` dimensions?
fn is_plain(ctx: &PrepareContext<'_>, i: usize, dtype: DType, rank: usize) -> bool {
    ctx.tensor(i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous() && t.shape.len() == rank)
}

/// `R` rows of `length` elements, one behind the other, times a column, in `U` vectors of sums each.
///
/// # Safety
/// The rows and the column exist.
#[inline(always)]
unsafe fn dots<S: Simd, P: Row, const R: usize, const U: usize>(
    s: S,
    rows: *const P::Memory,
    column: *const P::Memory,
    length: usize,
) -> [P::Number; R] {
    let lanes = P::lanes::<S>();
    let mut sums = [[P::splat(s, P::Number::default()); R]; U];
    let mut i = 0;
    // SAFETY: whole vectors are read while there are as many elements left, then those that are left.
    unsafe {
        while i + U * lanes <= length {
            for (u, sums) in sums.iter_mut().enumerate() {
                let at = i + u * lanes;
                let v = P::vector(s, column.add(at));
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = P::fma(s, P::vector(s, rows.add(r * length + at)), v, *sum);
                }
            }
            i += U * lanes;
        }
        while i < length {
            let n = lanes.min(length - i);
            let v = P::vector(s, some::<P>(column.add(i), n).as_ptr());
            for (r, sum) in sums[0].iter_mut().enumerate() {
                *sum = P::fma(s, P::vector(s, some::<P>(rows.add(r * length + i), n).as_ptr()), v, *sum);
            }
            i += n;
        }
    }
    std::array::from_fn(|r| {
        let mut total = P::Number::default();
        for sums in &sums {
            total = P::sum(total, lane_sum::<S, P>(s, sums[r]));
        }
        total
    })
}

/// The first `n` elements at `p`, and zeros behind them.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn some<P: Row>(p: *const P::Memory, n: usize) -> [P::Memory; MAX_LANES] {
    let mut all = [<P::Memory as bytemuck::Zeroable>::zeroed(); MAX_LANES];
    for (i, slot) in all.iter_mut().enumerate().take(n) {
        // SAFETY: the caller promises `n` elements.
        *slot = unsafe { *p.add(i) };
    }
    all
}

#[inline(always)]
fn lane_sum<S: Simd, P: Row>(s: S, v: P::Vector<S>) -> P::Number {
    let mut lanes = [P::Number::default(); MAX_LANES];
    // SAFETY: the array has every lane.
    unsafe { P::store(s, lanes.as_mut_ptr(), v) };
    let mut n = P::lanes::<S>();
    while n > 1 {
        n /= 2;
        for i in 0..n {
            lanes[i] = P::sum(lanes[i], lanes[i + n]);
        }
    }
    lanes[0]
}

struct MatrixVector<P> {
    level: SimdLevel,
    product: PhantomData<fn() -> P>,
}

fn matrix_vector<P: Row>(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = <P::Memory as Element>::DTYPE;
    if !is_plain(ctx, 0, dtype, 2) || !is_plain(ctx, 1, dtype, 1) || !is_plain(ctx, OUT, dtype, 1) {
        return ctx.decline("takes a dense matrix and a column of one dtype");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("matrix_vector.{}.{}", dtype.name(), level.isa().name());
    framed(name, MatrixVector::<P> { level, product: PhantomData })
}

impl<P: Row> UnitKernel for MatrixVector<P> {
    /// Elements of a row.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, row: &mut usize) -> Result<Split> {
        let (left, right) = (*args.args().tensor(0)?.shape(), *args.args().tensor(1)?.shape());
        let (&[rows, length], &[have]) = (&*left, &*right) else { return Err(mismatch(&left, &right)) };
        if have != length {
            return Err(mismatch(&left, &right));
        }
        args.resize(OUT, &Dims::new(&[rows])?)?;
        if rows == 0 {
            return Ok(Split::NONE);
        }
        let per_chunk = CHUNK.div_ceil(length.max(1)).next_multiple_of(ROWS);
        *row = length;
        Ok(Split::new(rows, per_chunk, per_chunk.min(rows).saturating_mul(length) / 8))
    }

    fn run(&self, length: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.level.dispatch(RowProducts::<P> {
            matrix: chunk.input_units(0, *length)?.as_ptr(),
            column: chunk.input(1)?.as_ptr(),
            out: chunk.output_units(OUT, 1)?.as_ptr(),
            rows: chunk.units.len(),
            length: *length,
        });
        Ok(())
    }
}

struct RowProducts<P: Row> {
    matrix: *const P::Memory,
    column: *const P::Memory,
    out: *mut P::Memory,
    rows: usize,
    length: usize,
}

impl<P: Row> SimdTask for RowProducts<P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut row = 0;
        // SAFETY: `rows` rows of `length` elements lie behind the matrix, `length` behind the column.
        unsafe {
            while row + ROWS <= self.rows {
                let first = self.matrix.add(row * self.length);
                let sums = dots::<S, P, ROWS, SUMS>(s, first, self.column, self.length);
                for (r, sum) in sums.into_iter().enumerate() {
                    *self.out.add(row + r) = P::narrow(sum);
                }
                row += ROWS;
            }
            while row < self.rows {
                let first = self.matrix.add(row * self.length);
                let [sum] = dots::<S, P, 1, SUMS>(s, first, self.column, self.length);
                *self.out.add(row) = P::narrow(sum);
                row += 1;
            }
        }
    }
}

struct Dot<P> {
    level: SimdLevel,
    /// Parts at most.
    parts: usize,
    product: PhantomData<fn() -> P>,
}

fn dot<P: Row>(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = <P::Memory as Element>::DTYPE;
    let Some(length) = ctx.tensor(0).and_then(|t| t.shape.first().copied()) else {
        return ctx.decline("takes columns");
    };
    if !is_plain(ctx, 0, dtype, 1) || !is_plain(ctx, 1, dtype, 1) || !is_plain(ctx, OUT, dtype, 0) {
        return ctx.decline("takes two columns of one dtype");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("dot.{}.{}", dtype.name(), level.isa().name());
    prepared(name, Dot::<P> { level, parts: length.div_ceil(PART), product: PhantomData })
}

impl<P: Row> GridKernel for Dot<P> {
    /// Elements of a column.
    type Problem = usize;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 0, shared: self.parts.saturating_mul(size_of::<P::Number>()) }
    }

    fn new_problem(&self) -> usize {
        0
    }

    fn bind(&self, args: &mut BindArgs<'_>, length: &mut usize) -> Result<Grid> {
        let (left, right) = (*args.args().tensor(0)?.shape(), *args.args().tensor(1)?.shape());
        let (&[n], &[have]) = (&*left, &*right) else { return Err(mismatch(&left, &right)) };
        if have != n || n.div_ceil(PART) > self.parts {
            return Err(mismatch(&left, &right));
        }
        args.resize(OUT, &Dims::new(&[])?)?;
        *length = n;
        Ok(match n.div_ceil(PART) {
            0 | 1 => Grid::chunks(1, n / 8),
            parts => Grid::phases(&[parts, 1], PART / 8),
        })
    }

    fn run(&self, length: &usize, part: Part<'_>) -> Result<()> {
        let parts = length.div_ceil(PART);
        let sums: *mut P::Number = part.scratch.shared.cast();
        let total = if part.phase == 0 {
            let (first, args) = (part.chunk * PART, part.args);
            let sum = self.level.dispatch(DotOf::<P> {
                left: args.tensor(0)?.ptr::<P::Memory>()?.wrapping_add(first),
                right: args.tensor(1)?.ptr::<P::Memory>()?.wrapping_add(first),
                length: PART.min(length - first),
            });
            if parts > 1 {
                // SAFETY: shared scratch has a number for every part, and this one is the chunk's.
                unsafe { *sums.add(part.chunk) = sum };
                return Ok(());
            }
            sum
        } else {
            // SAFETY: the first phase has written a number for every part.
            (0..parts).fold(P::Number::default(), |total, i| P::sum(total, unsafe { *sums.add(i) }))
        };
        let out = part.args.output(OUT)?.ptr::<P::Memory>()?;
        // SAFETY: a tensor without dimensions has one element, which one chunk writes.
        unsafe { *out = P::narrow(total) };
        Ok(())
    }
}

struct DotOf<P: Row> {
    left: *const P::Memory,
    right: *const P::Memory,
    length: usize,
}

impl<P: Row> SimdTask for DotOf<P> {
    type Output = P::Number;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> P::Number {
        // SAFETY: `length` elements of both columns are there.
        let [sum] = unsafe { dots::<S, P, 1, DOT_SUMS>(s, self.left, self.right, self.length) };
        sum
    }
}

/// The preparation of argument 0's dtype.
macro_rules! by_dtype {
    ($ctx:expr, $function:ident, $float32:expr) => {
        match $ctx.tensor(0).map(|t| t.dtype) {
            Some(DType::Float32) => $float32,
            Some(DType::Float64) => $function::<Double>($ctx),
            Some(DType::Float16) => $function::<Sixteen<f16>>($ctx),
            Some(DType::BFloat16) => $function::<Sixteen<bf16>>($ctx),
            Some(DType::Int32) => $function::<Whole<i32>>($ctx),
            Some(DType::Int64) => $function::<Long>($ctx),
            _ => $ctx.decline("takes floats, int32 and int64"),
        }
    };
}

/// The kernels of this file.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::mv.out", "row_products", |ctx| {
        by_dtype!(ctx, matrix_vector, ctx.decline("has a kernel of its own for float32"))
    }),
    engine_kernel("aten::dot.out", "row_products", |ctx| by_dtype!(ctx, dot, dot::<Single>(ctx))),
];

#[cfg(test)]
#[path = "row_products/tests.rs"]
mod tests;
