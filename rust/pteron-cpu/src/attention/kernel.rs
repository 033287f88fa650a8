//! The prepared attention step: checks shapes in `bind`, computes heads and groups of rows in `run`.
//! Unsafe island.
//!
//! A chunk walks the keys in blocks. Each block is packed once, then for a few rows at a time: scores,
//! weights, weighted sums into the output. Blocks depend on the shape alone and every row is computed by
//! itself, so results do not depend on chunks or threads. A block ends behind the last key that the mask shows to anybody:
//! what is left out would have weights of zero.
#![allow(
    unsafe_code,
    reason = "rows of queries, keys, values and scores are addressed by stride, and chunks share the output"
)]

use super::chunk_grid::MAX_CHUNK_ROWS;
use super::key_value_panels::ScaleQueries;
use super::problem::Problem;
use super::products::{DirectScores, DirectSums, MultiplyColumns, TiledProduct};
use super::scores::{Normalise, ScoreBlock};
use super::seen_keys::SeenKeys;
use super::spec::AttentionSpec;
use super::unit::{Buffers, Number, RowBlock, Stored, Unit, row_blocks};
use super::{KEY_BLOCK, ROW_BLOCK, SCORE_PADDING};
use crate::gemm::{TileSet, part};
use crate::packed::f32_nr32_v1::NR;
use pteron_core::{BindArgs, CpuProfile, Error, Grid, Result, Scratch};
use pteron_kernels::elementwise::operand::Convert;
use pteron_kernels::grid_kernel::{GridKernel, Part};
use pteron_kernels::vector_math::SimdLevel;
use pteron_kernels::vector_math::simd::MAX_LANES;
use std::marker::PhantomData;
use std::ops::Range;

pub(super) struct Attention<T, C = T> {
    spec: AttentionSpec,
    tiles: &'static TileSet,
    level: SimdLevel,
    scratch: ScratchPlan,
    element: PhantomData<(T, C)>,
}

/// Elements of each part of a worker's scratch, from upper bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScratchPlan {
    keys: usize,
    values: usize,
    queries: usize,
    scores: usize,
    /// A block of keys or values as f32, and the sums of a chunk's rows: for elements of other types.
    widened: usize,
    sums: usize,
}

impl ScratchPlan {
    /// For at most `keys` keys of `depth` elements and values of `width`; is the output f32, are keys and values? An error
    /// when that cannot be addressed.
    pub(super) fn new(
        keys: usize,
        depth: usize,
        width: usize,
        [is_f32, is_stored_f32]: [bool; 2],
    ) -> Result<ScratchPlan> {
        let block = keys.min(KEY_BLOCK).next_multiple_of(NR);
        let plan = || {
            Some(ScratchPlan {
                widened: if is_stored_f32 { 0 } else { block.checked_mul(depth.max(width))? },
                sums: if is_f32 { 0 } else { MAX_CHUNK_ROWS.checked_mul(width)? },
                keys: block.checked_mul(depth)?,
                values: block.checked_mul(width.checked_next_multiple_of(NR)?)?,
                queries: ROW_BLOCK.checked_mul(depth)?.checked_next_multiple_of(16)?,
                scores: ROW_BLOCK * (block + SCORE_PADDING),
            })
        };
        plan().filter(|p| p.elements().is_some()).ok_or_else(|| {
            Error::limit("a block of attention is too large to address")
                .got(format!("keys of {depth} elements, values of {width}"))
        })
    }

    fn elements(&self) -> Option<usize> {
        let all = self.keys.checked_add(self.values)?.checked_add(self.queries)?.checked_add(self.scores)?;
        let all = all.checked_add(2 * MAX_CHUNK_ROWS)?.checked_add(self.widened)?.checked_add(self.sums)?;
        all.checked_mul(size_of::<f32>()).filter(|bytes| isize::try_from(*bytes).is_ok())?;
        Some(all)
    }
}

impl<T: Number, C: Stored> Attention<T, C> {
    /// The kernel, and its name.
    pub(super) fn new(
        spec: AttentionSpec,
        cpu: &CpuProfile,
        scratch: ScratchPlan,
    ) -> (String, Attention<T, C>) {
        let (tiles, level) = (TileSet::for_isa(cpu.isa), SimdLevel::at_most(cpu.isa));
        let element = match spec.row_factors {
            Some(_) => C::DTYPE.name(),
            None if T::IS_F32 => "f32",
            None => T::DTYPE.name(),
        };
        let name = format!("attention.{element}.{}", tiles.isa.name());
        (name, Attention { spec, tiles, level, scratch, element: PhantomData })
    }

    pub(super) fn level(&self) -> SimdLevel {
        self.level
    }

    /// Of queries.
    pub(super) fn scale(&self) -> f32 {
        self.spec.scale
    }

    fn buffers(&self, scratch: &mut [f32]) -> Buffers {
        let keys = scratch.as_mut_ptr();
        let values = keys.wrapping_add(self.scratch.keys);
        let queries = values.wrapping_add(self.scratch.values);
        let scores = queries.wrapping_add(self.scratch.queries);
        let largest = scores.wrapping_add(self.scratch.scores);
        let sum = largest.wrapping_add(MAX_CHUNK_ROWS);
        let widened = sum.wrapping_add(MAX_CHUNK_ROWS);
        let sums = widened.wrapping_add(self.scratch.widened);
        Buffers { keys, values, queries, scores, largest, sum, widened, sums }
    }

    /// Computes `rows` of the unit's rows.
    ///
    /// # Safety
    /// The unit's pointers are those of a call whose shapes are in its problem.
    unsafe fn run_unit(&self, unit: &Unit<'_, T, C>, rows: Range<usize>) {
        let p = unit.problem;
        let blocks = p.keys.div_ceil(KEY_BLOCK);
        let mut is_first = true;
        for i in 0..blocks {
            let keys = part(p.keys, blocks, i);
            // SAFETY: the unit's pointers are those of a call whose shapes are in its problem, as the caller promises.
            if let Some(seen) = unsafe { self.scattered(unit, &rows, &keys) } {
                if seen.is_nothing() {
                    continue;
                }
                // SAFETY: likewise; the keys are inside the tensors.
                unsafe {
                    if is_first {
                        row_blocks(p.rows, &rows, self.rows_together()).for_each(|block| unit.begin(&block));
                    }
                    self.run_scattered(unit, &rows, &keys, seen);
                }
                is_first = false;
                continue;
            }
            let parts = row_blocks(p.rows, &rows, self.rows_together());
            // SAFETY: the unit's pointers are those of a call whose shapes are in its problem, as the caller promises.
            let seen = parts.fold(0, |seen, block| unsafe { self.seen(unit, &keys, &block, seen) });
            if seen == 0 {
                continue;
            }
            let keys = keys.start..keys.start + seen;
            // SAFETY: the block is inside the keys; the scratch was sized for it.
            unsafe {
                if !unit.is_direct {
                    unit.pack(self.level, &keys);
                }
                for block in row_blocks(p.rows, &rows, self.rows_together()) {
                    self.run_block(unit, &keys, &block, is_first);
                }
            }
            is_first = false;
        }
        for block in row_blocks(p.rows, &rows, self.rows_together()) {
            // SAFETY: the rows are inside the output; they were computed above, or nothing was seen.
            unsafe {
                if is_first {
                    unit.begin(&block);
                }
                self.finish(unit, &block, blocks == 0);
            }
        }
    }

    /// Keys of `keys`, from the first on, behind which the mask hides the others from all rows of `block`; `at_least`, if that
    /// is more.
    ///
    /// # Safety
    /// As [`Attention::run_unit`].
    unsafe fn seen(
        &self,
        unit: &Unit<'_, T, C>,
        keys: &Range<usize>,
        block: &RowBlock,
        at_least: usize,
    ) -> usize {
        self.level.dispatch(SeenKeys {
            mask: unit.mask_at(block.head, block.rows.start, keys.start),
            rows: block.rows.len(),
            keys: keys.len(),
            at_least,
        })
    }

    /// A multiple of the tallest tile.
    fn rows_together(&self) -> usize {
        ROW_BLOCK - ROW_BLOCK % self.tiles.max_rows()
    }

    /// One block of keys for one block of rows.
    ///
    /// # Safety
    /// As [`Attention::run_unit`]; `keys` are packed unless the unit is direct.
    unsafe fn run_block(&self, unit: &Unit<'_, T, C>, keys: &Range<usize>, block: &RowBlock, is_first: bool) {
        let (p, b) = (unit.problem, unit.buffers);
        let rows = block.rows.len();
        let visible = p.visible(block.rows.end - 1).saturating_sub(keys.start);
        // SAFETY: as this function asks for.
        let seen = unsafe { self.seen(unit, keys, block, 0) }.min(visible);
        if seen == 0 {
            if is_first {
                // SAFETY: the rows are inside the output, as the caller promises.
                unsafe { unit.begin(block) };
            }
            return;
        }
        let stride = keys.len().next_multiple_of(NR) + SCORE_PADDING;
        // SAFETY: rows and keys are inside the tensors; the buffers have room for the largest block.
        unsafe {
            self.level.dispatch(ScaleQueries {
                from: unit.query_at(block.head, block.rows.start),
                row: p.query.row,
                element: p.query.element,
                rows,
                depth: p.depth,
                factor: self.spec.scale,
                to: b.queries,
            });
            self.scores(unit, keys.start, seen, rows, stride);
            self.multiply(unit, 0, keys.start, b.scores, [seen, rows, stride]);
            let (out, out_stride) = unit.sums_at(block);
            self.level.dispatch(ScoreBlock {
                scores: b.scores,
                stride,
                rows,
                keys: seen,
                mask: unit.mask_at(block.head, block.rows.start, keys.start),
                limit: p.first_limit.map(|l| (l + block.rows.start).saturating_sub(keys.start)),
                is_first,
                largest: b.largest.add(block.slot),
                sum: b.sum.add(block.slot),
                slot_step: 1,
                out,
                out_stride,
                width: p.width,
            });
            // Behind the sum of the weights, which knows no values.
            self.multiply(unit, 1, keys.start, b.scores, [seen, rows, stride]);
            self.sums(unit, keys, [seen, rows, stride], (out, out_stride), is_first);
        }
    }

    /// # Safety
    /// As [`Attention::run_block`]; the queries are in their buffer.
    unsafe fn scores(&self, unit: &Unit<'_, T, C>, first: usize, seen: usize, rows: usize, stride: usize) {
        let (p, b) = (unit.problem, unit.buffers);
        if unit.is_direct {
            return self.level.dispatch(DirectScores {
                queries: b.queries,
                rows,
                keys: unit.key_at(first),
                key_stride: p.key.row,
                count: seen,
                depth: p.depth,
                scores: b.scores,
                stride,
                values: unit.value_at(first),
                value_stride: p.value.row,
                width: p.width,
            });
        }
        let product = TiledProduct {
            a: b.queries,
            a_stride: p.depth,
            rows,
            k: p.depth,
            b: b.keys,
            panel_stride: p.depth * NR,
            c: b.scores,
            c_stride: stride,
            columns: seen.next_multiple_of(MAX_LANES),
            is_first: true,
        };
        // SAFETY: queries, packed keys and scores have the rows, depth and stride stated, as the caller
        // promises of the block and its buffers.
        unsafe { product.run(self.tiles) }
    }

    /// Multiplies scores or weights by the factors of keys (0) or values (1) from `first` on, where they have some.
    ///
    /// # Safety
    /// As [`Attention::run_block`]; there are rows of scores of these keys.
    pub(super) unsafe fn multiply(
        &self,
        unit: &Unit<'_, T, C>,
        which: usize,
        first: usize,
        scores: *mut f32,
        [keys, rows, stride]: [usize; 3],
    ) {
        if let Some((factors, factor_stride)) = unit.factors_at(which, first) {
            self.level.dispatch(MultiplyColumns { scores, stride, rows, keys, factors, factor_stride });
        }
    }

    /// # Safety
    /// As [`Attention::run_block`]; the weights are in the buffer of the scores.
    unsafe fn sums(
        &self,
        unit: &Unit<'_, T, C>,
        keys: &Range<usize>,
        [seen, rows, stride]: [usize; 3],
        (out, out_stride): (*mut f32, usize),
        is_first: bool,
    ) {
        let (p, b) = (unit.problem, unit.buffers);
        if unit.is_direct {
            return self.level.dispatch(DirectSums {
                weights: b.scores,
                stride,
                rows,
                values: unit.value_at(keys.start),
                value_stride: p.value.row,
                count: seen,
                width: p.width,
                out,
                out_stride,
                is_first,
            });
        }
        let product = TiledProduct {
            a: b.scores,
            a_stride: stride,
            rows,
            k: seen,
            b: b.values,
            panel_stride: keys.len() * NR,
            c: out,
            c_stride: out_stride,
            columns: p.width,
            is_first,
        };
        // SAFETY: weights, packed values and output have the rows, keys and width stated, as the caller
        // promises of the block and its buffers.
        unsafe { product.run(self.tiles) }
    }

    /// # Safety
    /// As [`Attention::run_unit`].
    unsafe fn finish(&self, unit: &Unit<'_, T, C>, block: &RowBlock, has_no_keys: bool) {
        let p = unit.problem;
        // SAFETY: the rows are inside the output, and their sums in the scratch that 16 bits have.
        unsafe {
            let (sums, stride) = unit.sums_at(block);
            if !has_no_keys {
                self.level.dispatch(Normalise {
                    out: sums,
                    out_stride: stride,
                    width: p.width,
                    rows: block.rows.len(),
                    sum: unit.buffers.sum.add(block.slot),
                    keep_zero: self.spec.empty_row == super::EmptyRow::Zero,
                });
            }
            if T::IS_F32 {
                return;
            }
            for row in 0..block.rows.len() {
                let to = unit.out_at(block.head, block.rows.start + row);
                self.level.dispatch(Convert { from: sums.add(row * stride).cast_const(), to, n: p.width });
            }
        }
    }
}

impl<T: Number, C: Stored> GridKernel for Attention<T, C> {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        let elements = self.scratch.elements().unwrap_or(0);
        Scratch { per_worker: elements * size_of::<f32>(), shared: 0 }
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Grid> {
        let (mut found, out) = Problem::of(&self.spec, &args.args())?;
        let needed = ScratchPlan::new(found.keys, found.depth, found.width, [T::IS_F32, C::IS_F32])?;
        if needed.elements() > self.scratch.elements() {
            return Err(Error::kernel("attention is larger than it was prepared for")
                .expected(format!("{:?}", self.scratch))
                .got(format!("{needed:?}")));
        }
        args.resize(self.spec.out.argument, &out)?;
        found.set_out(&self.spec, &args.args())?;
        *problem = found;
        Ok(if problem.width == 0 { Grid::EMPTY } else { problem.grid.grid(self.tiles.isa) })
    }

    fn run(&self, problem: &Problem, mut part: Part<'_>) -> Result<()> {
        let buffers = self.buffers(part.take_scratch(self.scratch.elements().unwrap_or(usize::MAX))?);
        let args = part.args;
        let mask = match self.spec.mask.map(|at| args.optional_tensor(at)).transpose()?.flatten() {
            Some(mask) => mask.as_ptr(),
            None => std::ptr::null(),
        };
        let mut factors = [std::ptr::null(); 2];
        if let Some(operands) = &self.spec.row_factors {
            for (factor, operand) in factors.iter_mut().zip(operands) {
                *factor = args.tensor(operand.argument)?.ptr::<f32>()?;
            }
        }
        let (units, rows) = problem.grid.chunk(part.chunk);
        for unit in units {
            let unit = Unit {
                problem,
                query: args.tensor(self.spec.query.argument)?.ptr::<T>()?,
                key: args.tensor(self.spec.key.argument)?.ptr::<C>()?,
                value: args.tensor(self.spec.value.argument)?.ptr::<C>()?,
                factors,
                out: args.output(self.spec.out.argument)?.ptr::<T>()?,
                mask,
                batch: unit / problem.key_heads,
                key_head: unit % problem.key_heads,
                is_direct: problem.is_direct(),
                buffers: &buffers,
            };
            // SAFETY: `bind` checked that shapes belong together; tensors point to memory for their shapes
            // and the output overlaps no input (alias rule `None`); instruction sets come from the
            // profile of this processor.
            unsafe { self.run_unit(&unit, rows.clone()) };
        }
        Ok(())
    }
}
