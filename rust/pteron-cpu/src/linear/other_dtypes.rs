//! `mm`, `bmm`, `addmm`, `baddbmm` and `linear` of float64, float16, bfloat16 and integers, and `_int_mm`: a register tile
//! over packed panels of the right-hand matrix. Sixteen-bit floats are multiplied and added up in f32 and rounded once,
//! integers wrap. Sums run over k in order, whatever the number of chunks. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use super::signature::{ADDMM, BADDBMM, BMM, INT_MM, LINEAR, MM, Signature};
use crate::engine_kernel::{EngineKernel, engine_kernel};
use half::{bf16, f16};
use product::{Byte, Double, Long, Product, Sixteen, Whole};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, Scratch, TensorView};
use pteron_kernels::frame::{Chunk, Split, UnitKernel, framed};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::ops::grouped_matrix::{FALLBACK_OUT, GROUPED_OUT};
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};

/// Columns of a panel.
const PANEL: usize = 32;
/// Rows of a tile.
const ROWS: usize = 6;
/// Rows of a chunk: what a packed panel is read for.
const CHUNK_ROWS: usize = 192;
/// Length of sums that a packed panel holds at most; longer ones take several panels.
const DEPTH: usize = 512;

struct Multiplication {
    level: SimdLevel,
    dtype: DType,
    signature: Signature,
    addend: Option<usize>,
    alpha: f64,
    beta: f64,
}

/// Shapes and strides in elements: of batch, row, column.
#[derive(Debug, Clone, Copy, Default)]
struct Problem {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    left: [usize; 3],
    right: [usize; 3],
    addend: [usize; 3],
}

impl Problem {
    fn row_blocks(&self) -> usize {
        self.m.div_ceil(CHUNK_ROWS)
    }
    fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }
}

fn prepare(ctx: &PrepareContext<'_>, signature: Signature) -> Preparation {
    let (Some(left), Some(right), Some(out)) =
        (ctx.tensor(signature.left), ctx.tensor(signature.right), ctx.tensor(signature.out))
    else {
        return ctx.decline("an argument is no tensor");
    };
    let dtype = left.dtype;
    let addend = signature.addend.filter(|i| ctx.tensor(*i).is_some());
    let others = [Some(right), addend.and_then(|i| ctx.tensor(i))];
    let is_widened = signature.operator == INT_MM.operator;
    let result = if is_widened { DType::Int32 } else { dtype };
    let ranks_fit = match signature.rank {
        Some(rank) => [left, right, out].into_iter().all(|t| t.shape.len() == rank),
        None => right.shape.len() == 2 && !left.shape.is_empty() && out.shape.len() == left.shape.len(),
    };
    let is_leading_plain = signature.rank.is_some() || left.dim_order.is_contiguous();
    use DType::{BFloat16, Float16, Float64, Int8, Int16, Int32, Int64, UInt8};
    let fits = matches!(dtype, Float64 | Float16 | BFloat16 | Int64 | Int32 | Int16 | Int8 | UInt8)
        && (!is_widened || dtype == Int8)
        && out.dtype == result
        && others.into_iter().flatten().all(|t| t.dtype == dtype)
        && out.dim_order.is_contiguous()
        && is_leading_plain
        && ranks_fit;
    // Integers take whole factors that f64 holds.
    let is_factor = |v: &f64| dtype.is_float() || (v.fract() == 0.0 && v.abs() <= 1e15);
    let factor = |i: usize| ctx.args.get(i).and_then(|a| a.number()).filter(is_factor);
    let factors = match signature.factors {
        Some((beta, alpha)) => factor(beta).zip(factor(alpha)),
        None => Some((1.0, 1.0)),
    };
    let Some((beta, alpha)) = factors.filter(|_| fits) else {
        return ctx.decline("takes dense tensors of one dtype but float32, whose factors are known at load");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = match is_widened {
        true => format!("gemm.{}_{}.{}", dtype.name(), result.name(), level.isa().name()),
        false => format!("gemm.{}.{}", dtype.name(), level.isa().name()),
    };
    // With a factor of zero the added tensor does not count, NaN and all.
    let addend = addend.filter(|_| beta != 0.0);
    framed(name, Multiplication { level, dtype, signature, addend, alpha, beta })
}

impl Multiplication {
    fn problem(&self, args: &Args<'_>) -> Result<(Problem, Dims)> {
        let s = &self.signature;
        let (left, right) = (args.tensor(s.left)?, args.tensor(s.right)?);
        let (ls, rs) = (*left.shape(), *right.shape());
        let rank = ls.len();
        let is_batched = s.rank == Some(3);
        let (Some(&k), true) = (ls.last(), rs.len() == 2 + usize::from(is_batched)) else {
            return Err(self.mismatch(&left, &right));
        };
        let r = rs.len();
        let (row, column) = if s.is_right_transposed { (r - 1, r - 2) } else { (r - 2, r - 1) };
        let batch = if is_batched { ls[0] } else { 1 };
        if rs[row] != k || (is_batched && rs[0] != batch) {
            return Err(self.mismatch(&left, &right));
        }
        let (lstr, rstr) = (left.strides(), right.strides());
        let m = ls[usize::from(is_batched)..rank - 1].iter().product();
        let n = rs[column];
        let mut out = ls;
        out[rank - 1] = n;
        let left_rows = if s.rank.is_none() { k } else { lstr[rank - 2] };
        let lead = |strides: &Dims| if is_batched { strides[0] } else { 0 };
        let mut p = Problem {
            batch,
            m,
            n,
            k,
            left: [lead(lstr), left_rows, lstr[rank - 1]],
            right: [lead(rstr), rstr[row], rstr[column]],
            addend: [0; 3],
        };
        if let Some(i) = self.addend {
            p.addend = s.addend_strides(&args.tensor(i)?, &out)?;
        } else {
            s.check_uncounted_addend(args, &out)?;
        }
        Ok((p, out))
    }

    #[cold]
    fn mismatch(&self, left: &TensorView<'_>, right: &TensorView<'_>) -> Error {
        Error::kernel("shapes do not fit for a matrix multiplication")
            .operator(self.signature.operator)
            .expected("columns of the first equal to rows of the second, equal batches")
            .got(format!("{left:?} and {right:?}"))
    }

    /// Computes a unit: the rows of a block times one panel.
    fn block<P: Product>(&self, p: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()>
    where
        P::Number: bytemuck::Pod,
    {
        let unit = chunk.units.start;
        let per_batch = p.panels() * p.row_blocks();
        let (batch, rest) = (unit / per_batch, unit % per_batch);
        let (panel, block) = (rest / p.row_blocks(), rest % p.row_blocks());
        let (row, column) = (block * CHUNK_ROWS, panel * PANEL);
        let addend = match self.addend {
            Some(i) => chunk
                .input::<P::Memory>(i)?
                .as_ptr()
                .wrapping_add(batch * p.addend[0] + row * p.addend[1] + column * p.addend[2]),
            None => std::ptr::null(),
        };
        let left = chunk.input::<P::Memory>(self.signature.left)?.as_ptr();
        let right = chunk.input::<P::Memory>(self.signature.right)?.as_ptr();
        let out = chunk.output_shared::<P::Result>(self.signature.out)?.as_ptr();
        self.level.dispatch(Block::<P> {
            problem: p,
            left: left.wrapping_add(batch * p.left[0] + row * p.left[1]),
            right: right.wrapping_add(batch * p.right[0] + column * p.right[2]),
            out: out.wrapping_add((batch * p.m + row) * p.n + column),
            addend,
            alpha: self.alpha,
            beta: self.beta,
            rows: CHUNK_ROWS.min(p.m - row),
            columns: PANEL.min(p.n - column),
            numbers: chunk.take_scratch(SCRATCH)?,
        });
        Ok(())
    }
}

/// Numbers of scratch: a panel, the rows of a tile, the sums of a chunk.
const SCRATCH: usize = DEPTH * PANEL + ROWS * DEPTH + CHUNK_ROWS * PANEL;

impl UnitKernel for Multiplication {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: SCRATCH * size_of::<f64>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, p: &mut Problem) -> Result<Split> {
        let (found, out) = self.problem(&args.args())?;
        args.resize(self.signature.out, &out)?;
        *p = found;
        if p.batch * p.m * p.n == 0 {
            return Ok(Split::NONE);
        }
        let units = p.batch.saturating_mul(p.panels()).saturating_mul(p.row_blocks());
        Ok(Split::new(units, 1, p.m.min(CHUNK_ROWS).saturating_mul(PANEL).saturating_mul(p.k) / 8))
    }

    fn run(&self, p: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match self.dtype {
            DType::Float16 => self.block::<Sixteen<f16>>(p, chunk),
            DType::BFloat16 => self.block::<Sixteen<bf16>>(p, chunk),
            DType::Int64 => self.block::<Long>(p, chunk),
            DType::Int32 => self.block::<Whole<i32>>(p, chunk),
            DType::Int16 => self.block::<Whole<i16>>(p, chunk),
            DType::Int8 if self.signature.operator == INT_MM.operator => self.block::<Byte>(p, chunk),
            DType::Int8 => self.block::<Whole<i8>>(p, chunk),
            DType::UInt8 => self.block::<Whole<u8>>(p, chunk),
            _ => self.block::<Double>(p, chunk),
        }
    }
}

/// The rows of a chunk times one panel of columns.
struct Block<'a, P: Product> {
    problem: &'a Problem,
    left: *const P::Memory,
    right: *const P::Memory,
    out: *mut P::Result,
    /// Null for none.
    addend: *const P::Memory,
    alpha: f64,
    beta: f64,
    rows: usize,
    columns: usize,
    numbers: &'a mut [P::Number],
}

impl<P: Product> SimdTask for Block<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let numbers = self.numbers.as_mut_ptr();
        let (panel, rest) = (numbers, numbers.wrapping_add(DEPTH * PANEL));
        let (packed, sums) = (rest, rest.wrapping_add(ROWS * DEPTH));
        let k = self.problem.k;
        // SAFETY: the three parts have the sizes that the callees ask for; rows, columns and depth lie inside the matrices.
        unsafe {
            for i in 0..self.rows * PANEL {
                *sums.add(i) = P::Number::default();
            }
            for start in (0..k).step_by(DEPTH) {
                let depth = DEPTH.min(k - start);
                self.pack_panel(panel, start, depth);
                for row in (0..self.rows).step_by(ROWS) {
                    let tile = if P::IS_NUMBER && row + ROWS <= self.rows {
                        let [_, row_step, column_step] = self.problem.left;
                        let first = self.left.add(row * row_step + start * column_step);
                        Tile { first: first.cast(), row_step, column_step }
                    } else {
                        self.pack_rows(packed, row, start, depth);
                        Tile { first: packed.cast_const(), row_step: 1, column_step: ROWS }
                    };
                    // As many vectors of sums as an instruction set has registers for.
                    if S::LANES == 16 {
                        multiply::<S, P, 4>(s, tile, panel, depth, sums.add(row * PANEL));
                    } else {
                        multiply::<S, P, 2>(s, tile, panel, depth, sums.add(row * PANEL));
                    }
                }
            }
            self.finish(sums);
        }
    }
}

impl<P: Product> Block<'_, P> {
    /// # Safety
    /// `panel` holds `depth · PANEL` numbers; rows `start..start + depth` of B exist.
    #[inline(always)]
    unsafe fn pack_panel(&mut self, panel: *mut P::Number, start: usize, depth: usize) {
        let [_, row_step, column_step] = self.problem.right;
        for p in 0..depth {
            // SAFETY: row `start + p` and column `j` of B exist, and the panel has room for them, as the
            // caller promises.
            unsafe {
                let from = self.right.add((start + p) * row_step);
                let to = panel.add(p * PANEL);
                for j in 0..self.columns {
                    *to.add(j) = P::widen(*from.add(j * column_step));
                }
                for j in self.columns..PANEL {
                    *to.add(j) = P::Number::default();
                }
            }
        }
    }

    /// Rows that do not exist become zeros.
    ///
    /// # Safety
    /// `tile` holds `ROWS · depth` numbers; columns `start..start + depth` of A exist.
    #[inline(always)]
    unsafe fn pack_rows(&mut self, tile: *mut P::Number, row: usize, start: usize, depth: usize) {
        let [_, row_step, column_step] = self.problem.left;
        for r in 0..ROWS {
            for p in 0..depth {
                // SAFETY: row `row + r` is read only where it is below `rows`; the tile has room for all
                // ROWS, as the caller promises.
                unsafe {
                    *tile.add(p * ROWS + r) = match row + r < self.rows {
                        true => P::widen(*self.left.add((row + r) * row_step + (start + p) * column_step)),
                        false => P::Number::default(),
                    };
                }
            }
        }
    }

    /// Scales, adds what is to be added, rounds and writes.
    ///
    /// # Safety
    /// `sums` holds `rows · PANEL` numbers; the result and what is added have the chunk's elements.
    #[inline(always)]
    unsafe fn finish(&mut self, sums: *const P::Number) {
        let [_, row_step, column_step] = self.problem.addend;
        for row in 0..self.rows {
            for j in 0..self.columns {
                // SAFETY: `row` and `j` are inside the chunk, whose result and addend the caller promises.
                unsafe {
                    let mut v = *sums.add(row * PANEL + j);
                    if self.alpha != 1.0 {
                        v = P::scaled(v, self.alpha);
                    }
                    if !self.addend.is_null() {
                        let more = P::widen(*self.addend.add(row * row_step + j * column_step));
                        v = P::sum(v, P::scaled(more, self.beta));
                    }
                    *self.out.add(row * self.problem.n + j) = P::narrow(v);
                }
            }
        }
    }
}

/// Rows of the left-hand matrix: number `p` of row `r` is `first[r · row_step + p · column_step]`.
#[derive(Clone, Copy)]
struct Tile<N> {
    first: *const N,
    row_step: usize,
    column_step: usize,
}

/// Adds the products of [`ROWS`] rows and a panel to `sums`, `W` vectors of columns at a time.
///
/// # Safety
/// `tile` has [`ROWS`] rows of `depth` numbers, `panel` holds `depth · PANEL`, `sums` `ROWS · PANEL`.
#[inline(always)]
unsafe fn multiply<S: Simd, P: Product, const W: usize>(
    s: S,
    tile: Tile<P::Number>,
    panel: *const P::Number,
    depth: usize,
    sums: *mut P::Number,
) {
    let lanes = P::lanes::<S>();
    // A panel of f32 has half as many vectors as one of f64.
    let vectors = W.min(PANEL / lanes);
    for column in (0..PANEL).step_by(vectors * lanes) {
        // SAFETY: `vectors · lanes` columns from `column` on are inside the panel.
        unsafe {
            if vectors == W {
                columns::<S, P, W>(s, tile, panel.add(column), depth, sums.add(column));
            } else {
                columns::<S, P, 2>(s, tile, panel.add(column), depth, sums.add(column));
            }
        }
    }
}

/// # Safety
/// As for [`multiply`], for the `W` vectors of columns from the pointers on.
#[inline(always)]
unsafe fn columns<S: Simd, P: Product, const W: usize>(
    s: S,
    tile: Tile<P::Number>,
    panel: *const P::Number,
    depth: usize,
    sums: *mut P::Number,
) {
    let lanes = P::lanes::<S>();
    let Tile { first, row_step, column_step } = tile;
    // SAFETY: the tile has `depth` columns of ROWS numbers, the panel `depth` rows, and `sums` ROWS rows of
    // PANEL, as the caller promises.
    unsafe {
        let mut acc = [[P::splat(s, P::Number::default()); W]; ROWS];
        for (r, row) in acc.iter_mut().enumerate() {
            for (w, v) in row.iter_mut().enumerate() {
                *v = P::load(s, sums.add(r * PANEL + w * lanes));
            }
        }
        for p in 0..depth {
            let mut b = [P::splat(s, P::Number::default()); W];
            for (w, v) in b.iter_mut().enumerate() {
                *v = P::load(s, panel.add(p * PANEL + w * lanes));
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let a = P::splat(s, *first.add(p * column_step + r * row_step));
                for w in 0..W {
                    row[w] = P::fma(s, a, b[w], row[w]);
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (w, v) in row.iter().enumerate() {
                P::store(s, sums.add(r * PANEL + w * lanes), *v);
            }
        }
    }
}

/// The kernels of this file.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::mm.out", "panels", |ctx| prepare(ctx, MM)),
    engine_kernel("aten::bmm.out", "panels", |ctx| prepare(ctx, BMM)),
    engine_kernel("aten::addmm.out", "panels", |ctx| prepare(ctx, ADDMM)),
    engine_kernel("aten::baddbmm.out", "panels", |ctx| prepare(ctx, BADDBMM)),
    engine_kernel("aten::linear.out", "panels", |ctx| prepare(ctx, LINEAR)),
    engine_kernel("aten::_int_mm.out", "panels", |ctx| prepare(ctx, INT_MM)),
    engine_kernel("aten::_grouped_mm.out", "panels", |ctx| grouped::prepare(ctx, GROUPED_OUT)),
    engine_kernel("transformers::grouped_mm_fallback.out", "panels", |ctx| {
        grouped::prepare(ctx, FALLBACK_OUT)
    }),
];

mod grouped;
pub(crate) mod product;
#[cfg(test)]
mod tests;
