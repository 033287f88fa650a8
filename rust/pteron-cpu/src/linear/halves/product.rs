//! The kernel: a block of rows in the form that the tiles read, sums of a few panels in f32, factors and the added tensor,
//! one rounding. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use super::super::signature::Signature;
use super::in_registers;
use super::panels::{Form, Panels};
use crate::gemm::{FEW_ROWS, FewRows, Gemm, Lhs, PanelSource, Rhs, TileSet, Tiling, longest_k_block, part};
use crate::packed::f32_nr32_v1::NR;
use half::{bf16, f16};
use pteron_core::{Args, BindArgs, Dims, Grid, PrepareContext, Result, Scratch, TensorView};
use pteron_kernels::elementwise::operand::{Half, convert, load_up_to, store_up_to};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

/// Rows of a block at most, in rows of the tallest tiles: what a panel is read for while it is in the caches.
const ROWS: usize = 224;
/// Elements of a block of rows at most, as the tiles read them: 2 MiB.
const BLOCK: usize = 512 << 10;
/// Panels whose sums are held at a time.
const PANELS: usize = 4;
/// Rows so far apart push each other out of the first-level cache.
const BAD_STRIDE: usize = 1024;

struct HalfProduct {
    signature: Signature,
    /// Position of what is added.
    addend: Option<usize>,
    alpha: f32,
    beta: f32,
    right: Panels,
    /// Are pairs of bfloat16 multiplied, and not numbers widened to f32?
    is_paired: bool,
    /// Are they multiplied in tile registers?
    has_registers: bool,
    tiles: &'static TileSet,
    level: SimdLevel,
    /// Tiles of rows in a block.
    block_tiles: usize,
}

#[derive(Default)]
pub(super) struct Problem {
    m: usize,
    /// Strides of what is added in elements: batch, row, column.
    addend: [usize; 3],
    tiling: Tiling,
}

/// The kernel for a dense left-hand matrix and a constant right-hand one of one 16-bit type.
pub(super) fn prepare(ctx: &PrepareContext<'_>, signature: Signature) -> Preparation {
    let (Some(left), Some(out)) = (ctx.tensor(signature.left), ctx.tensor(signature.out)) else {
        return ctx.decline("an argument is no tensor");
    };
    let Some(constant) = ctx.args.get(signature.right).and_then(|a| a.constant()) else {
        return ctx.decline("the weight is no constant");
    };
    let dtype = left.dtype;
    let Some(form) = Form::of(dtype) else { return ctx.decline("takes bfloat16 or float16") };
    let addend = signature.addend.filter(|i| ctx.tensor(*i).is_some());
    let is_plain = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous());
    let rank_fits = signature.rank.map_or(!left.shape.is_empty(), |rank| left.shape.len() == rank);
    let fits = is_plain(signature.left)
        && is_plain(signature.out)
        && rank_fits
        && constant.dtype == dtype
        && (constant.shape.len(), constant.strides.len()) == (2, 2)
        && out.shape.len() == left.shape.len()
        && addend.is_none_or(is_plain);
    let factor = |i: usize| ctx.args.get(i).and_then(|a| a.number());
    let factors = match signature.factors {
        Some((beta, alpha)) => factor(beta).zip(factor(alpha)),
        None => Some((1.0, 1.0)),
    };
    let Some((beta, alpha)) = factors.filter(|_| fits) else {
        return ctx.decline("takes dense tensors of one 16-bit float whose factors are known at load");
    };
    let mut view = *constant;
    if signature.is_right_transposed {
        view.shape.reverse();
        view.strides.reverse();
    }
    let right = Panels::get_or_pack(ctx.packs, ctx.cpu, &view, form)?;
    let paired = TileSet::of_pairs(ctx.cpu.isa).filter(|_| form == Form::Brain);
    let tiles = paired.unwrap_or_else(|| TileSet::for_isa(ctx.cpu.isa));
    let has_registers = paired.is_some() && in_registers::is_available();
    let units = match (has_registers, paired.is_some()) {
        (true, _) => "amx_bf16".to_string(),
        (_, true) => format!("{}_bf16", tiles.isa.name()),
        _ => tiles.isa.name().to_string(),
    };
    let name = format!("gemm.{}.{units}", right.format());
    let mut kernel = HalfProduct {
        signature,
        // With a factor of zero the added tensor does not count, NaN and all.
        addend: addend.filter(|_| beta != 0.0),
        alpha: alpha as f32,
        beta: beta as f32,
        right,
        is_paired: paired.is_some(),
        has_registers,
        tiles,
        level: SimdLevel::at_most(ctx.cpu.isa),
        block_tiles: 1,
    };
    let tile = tiles.max_rows();
    kernel.block_tiles = (BLOCK / kernel.row_stride(kernel.is_paired).max(1)).min(ROWS).max(tile) / tile;
    prepared(name, kernel)
}

impl HalfProduct {
    /// Length of the sums of the tiles: pairs or numbers.
    fn depth(&self, is_paired: bool) -> usize {
        if is_paired { self.right.k.div_ceil(2) } else { self.right.k }
    }

    /// From a row of a block to the next, in elements of the tiles.
    fn row_stride(&self, is_paired: bool) -> usize {
        let stride = self.depth(is_paired).next_multiple_of(16);
        stride + if stride.is_multiple_of(BAD_STRIDE) { 16 } else { 0 }
    }

    fn block_rows(&self) -> usize {
        self.block_tiles * self.tiles.max_rows()
    }

    /// Elements of a worker's scratch: rows of a block, its sums, an unpacked panel.
    fn scratch_parts(&self) -> [usize; 3] {
        let rows = self.block_rows();
        let few = FEW_ROWS.max(rows) * PANELS * NR;
        let a = (rows * self.row_stride(self.is_paired)).max(FEW_ROWS * self.row_stride(false));
        let panel = if self.is_paired { 0 } else { longest_k_block(self.right.k) * NR };
        [a, few, panel]
    }

    fn problem(&self, args: &Args<'_>) -> Result<(Problem, Dims)> {
        let s = &self.signature;
        let left = args.tensor(s.left)?;
        let mut out = *left.shape();
        let Some((last, rows)) = out.split_last_mut().filter(|(k, _)| **k == self.right.k) else {
            return Err(s.mismatch(&format!("{} columns on the left-hand side", self.right.k), &left));
        };
        let m = rows.iter().product();
        *last = self.right.n;
        let addend = match self.addend {
            Some(i) => s.addend_strides(&args.tensor(i)?, &out)?,
            None => {
                s.check_uncounted_addend(args, &out)?;
                [0; 3]
            }
        };
        let depth = self.depth(self.is_paired || m <= FEW_ROWS);
        let tiling = Tiling::new(self.tiles, 1, m, self.right.n, depth);
        Ok((Problem { m, addend, tiling }, out))
    }

    /// A chunk of the grid.
    fn chunk<T: Half>(&self, p: &Problem, mut part_of: Part<'_>) -> Result<()> {
        let [a, sums, panel] = self.scratch_parts();
        let a = part_of.take_scratch::<f32>(a)?;
        let sums = part_of.take_scratch::<f32>(sums)?;
        let panel = part_of.take_scratch::<f32>(panel)?;
        let range = p.tiling.chunk(part_of.chunk);
        let left = part_of.args.tensor(self.signature.left)?;
        let all = self.tiles.row_tiles(p.m);
        let blocks = range.row_tiles.len().div_ceil(self.block_tiles);
        for block in 0..blocks {
            let block = part(range.row_tiles.len(), blocks, block);
            let (first, last) = (range.row_tiles.start + block.start, range.row_tiles.start + block.end);
            let rows = part(p.m, all, first).start..part(p.m, all, last - 1).end;
            let is_few = p.m <= FEW_ROWS;
            let stride = self.row_stride(self.is_paired && !is_few);
            self.take_rows::<T>(&left, rows.clone(), is_few, stride, a)?;
            for start in range.panels.clone().step_by(PANELS) {
                let panels = start..range.panels.end.min(start + PANELS);
                if is_few {
                    let first = sums.as_mut_ptr().wrapping_sub(panels.start * NR);
                    let rows = FewRows {
                        m: rows.len(),
                        a: a.as_ptr(),
                        a_stride: stride,
                        c: first,
                        c_stride: PANELS * NR,
                    };
                    // SAFETY: the panels are the tiling's; rows of K elements were just put into `a`, and `sums` has room
                    // for those rows of these panels.
                    unsafe { self.right.multiply_few(self.level, &rows, panels.clone()) };
                } else {
                    let tiles = first..last;
                    self.multiply(p, &rows, tiles, &panels, (a.as_ptr(), stride), (&mut *sums, &mut *panel));
                }
                self.finish::<T>(p, part_of.args, &rows, &panels, sums)?;
            }
        }
        Ok(())
    }

    /// Puts rows of A into `to`, as f32 or, for the tiles of pairs, as they are; an odd last number gets a zero beside it.
    fn take_rows<T: Half>(
        &self,
        left: &TensorView<'_>,
        rows: Range<usize>,
        is_few: bool,
        stride: usize,
        to: &mut [f32],
    ) -> Result<()> {
        let k = self.right.k;
        if k == 0 {
            return Ok(());
        }
        let first = left.ptr::<T>()?;
        for (row, to) in rows.zip(to.chunks_exact_mut(stride.max(1))) {
            // SAFETY: A is dense (checked in `prepare`) and has rows of K elements, more than `row` of them (`bind` counted
            // them); nothing writes them meanwhile (alias rule `None`).
            let from = unsafe { std::slice::from_raw_parts(first.add(row * k), k) };
            if self.is_paired && !is_few {
                let to: &mut [T] = bytemuck::cast_slice_mut(to);
                to[..k].copy_from_slice(from);
                if k % 2 == 1 {
                    to[k] = T::of_number(0.0);
                }
            } else {
                convert(self.level, from, &mut to[..k]);
            }
        }
        Ok(())
    }

    /// The sums of a block of rows over some panels.
    fn multiply(
        &self,
        p: &Problem,
        rows: &Range<usize>,
        row_tiles: Range<usize>,
        panels: &Range<usize>,
        (a, stride): (*const f32, usize),
        (sums, panel): (&mut [f32], &mut [f32]),
    ) {
        const STRIDE: usize = PANELS * NR;
        if self.has_registers {
            let block = in_registers::Block {
                rows: a,
                stride,
                count: rows.len(),
                pairs: self.depth(true),
                sums: sums.as_mut_ptr(),
                sums_stride: STRIDE,
            };
            // SAFETY: tile registers are available (`prepare` asked); `a` holds whole pairs of these rows, the panels are the
            // tiling's, and `sums` has room for these rows of `PANELS` panels and belongs to this worker.
            return unsafe { in_registers::multiply(&block, panels.clone().map(|p| self.right.panel(p))) };
        }
        let gemm = Gemm {
            m: p.m,
            n: self.right.n,
            k: self.depth(self.is_paired),
            // Where the first row of all would be, and its first sum.
            a: Lhs::Rows(a.wrapping_sub(rows.start * stride), stride),
            b: match self.is_paired {
                true => Rhs::Packed(self.right.panel(0).cast()),
                false => Rhs::Source(&self.right),
            },
            c: sums.as_mut_ptr().wrapping_sub(rows.start * STRIDE + panels.start * NR),
            c_stride: STRIDE,
            bias: std::ptr::null(),
            residual: std::ptr::null(),
            residual_stride: STRIDE,
            clamp: None,
            post: None,
        };
        // SAFETY: rows and panels are the tiling's; `a` holds the rows of this block in the form that the tiles read, whole
        // pairs of them; `sums` has room for these rows of `PANELS` panels and belongs to this worker; `panel` holds the
        // longest K-block where panels are unpacked; the tiles are for this processor, and A is not packed.
        unsafe { gemm.run(self.tiles, row_tiles, panels.clone(), panel) };
    }

    /// Factors, what is added, and the one rounding of a block.
    fn finish<T: Half>(
        &self,
        p: &Problem,
        args: &Args<'_>,
        rows: &Range<usize>,
        panels: &Range<usize>,
        sums: &[f32],
    ) -> Result<()> {
        let first = panels.start * NR;
        let columns = (panels.end * NR).min(self.right.n) - first;
        let addend = match self.addend {
            Some(i) => {
                let [_, row, column] = p.addend;
                args.tensor(i)?.ptr::<T>()?.wrapping_add(rows.start * row + first * column)
            }
            None => std::ptr::null(),
        };
        let out = args.output(self.signature.out)?.ptr::<T>()?;
        self.level.dispatch(Finish::<T> {
            sums,
            out: out.wrapping_add(rows.start * self.right.n + first),
            out_stride: self.right.n,
            addend,
            addend_strides: [p.addend[1], p.addend[2]],
            factors: [self.alpha, self.beta],
            extents: [rows.len(), columns],
        });
        Ok(())
    }
}

impl GridKernel for HalfProduct {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        let elements = self.scratch_parts().into_iter().fold(0usize, usize::saturating_add);
        Scratch { per_worker: elements.saturating_mul(size_of::<f32>()), shared: 0 }
    }

    /// The weight is read from its pack, never from its own bytes.
    fn needs(&self, index: usize) -> bool {
        let is_ignored = self.signature.addend == Some(index) && self.addend.is_none();
        !(index == self.signature.right || is_ignored)
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Grid> {
        let (found, out) = self.problem(&args.args())?;
        args.resize(self.signature.out, &out)?;
        *problem = found;
        Ok(problem.tiling.grid(self.tiles.isa))
    }

    fn run(&self, problem: &Problem, part: Part<'_>) -> Result<()> {
        match self.right.form {
            Form::Brain => self.chunk::<bf16>(problem, part),
            Form::Binary => self.chunk::<f16>(problem, part),
        }
    }
}

/// `out = round(alpha * sums + beta * addend)`, rows of sums [`PANELS`] panels apart.
struct Finish<'a, T> {
    sums: &'a [f32],
    out: *mut T,
    out_stride: usize,
    /// Null for none.
    addend: *const T,
    /// From row to row and from column to column (0 or 1).
    addend_strides: [usize; 2],
    /// Alpha and beta.
    factors: [f32; 2],
    /// Rows and columns.
    extents: [usize; 2],
}

impl<T: Half> SimdTask for Finish<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [alpha, beta] = self.factors.map(|v| s.splat(v));
        let [rows, columns] = self.extents;
        let [row_stride, column_stride] = self.addend_strides;
        for (row, sums) in self.sums.chunks_exact(PANELS * NR).enumerate().take(rows) {
            for column in (0..columns).step_by(S::LANES) {
                let n = S::LANES.min(columns - column);
                // SAFETY: `n` columns from here on exist in the result and, as far as its strides are not 0, in what is
                // added (`bind` checked the shapes), and lie inside `sums`, whose rows have whole vectors.
                unsafe {
                    let mut x = s.load(sums.as_ptr().add(column));
                    if self.factors[0] != 1.0 {
                        x = s.mul(alpha, x);
                    }
                    if !self.addend.is_null() {
                        let from = self.addend.add(row * row_stride + column * column_stride);
                        let more = match column_stride {
                            0 => s.splat((*from).number()),
                            _ => load_up_to(s, from, n),
                        };
                        x = s.add(x, s.mul(beta, more));
                    }
                    store_up_to(s, self.out.add(row * self.out_stride + column), x, n);
                }
            }
        }
    }
}
