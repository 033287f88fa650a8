//! Products of rows in groups, each by a matrix of its own, in f32: experts of a mixture. A constant matrix of a group is
//! packed at load as the weight of a `linear` is. Which rows a group has is data, so that chunks are groups times
//! panels of columns, and one for the rows behind the last group, which become zero. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use crate::engine_kernel::{EngineKernel, engine_kernel};
use crate::gemm::{Gemm, Lhs, Rhs, TileSet, part, scratch_elements};
use crate::packed::f32_nr32_v1::{FORMAT, NR, get_or_pack, panel_count};
use pteron_core::{
    Args, BindArgs, ConstantView, DType, Dims, Error, Grid, PackedBytes, PrepareContext, Result, Scratch,
};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_kernels::ops::grouped_matrix::{FALLBACK_OUT, GROUPED_OUT, Groups, Layout, check_grouped, layout};
use std::sync::Arc;

/// Nanoseconds of a chunk, about: those of a group with its share of the rows, and those of a group with all of them.
const CHUNK_NS: [usize; 2] = [100_000, 2_000_000];
/// Floating-point operations per nanosecond that chunks are laid out for.
const FLOPS_PER_NS: usize = 100;

struct GroupedProduct {
    out: usize,
    /// The packed matrix of each group, if they are constants; else they are read as they lie.
    packed: Option<Vec<Arc<PackedBytes>>>,
    /// K and N of packed matrices.
    matrix: [usize; 2],
    tiles: &'static TileSet,
    /// K at most.
    k_bound: usize,
}

#[derive(Default)]
pub(super) struct Problem {
    pub rows: usize,
    pub k: usize,
    pub n: usize,
    pub groups: usize,
    /// Strides of the matrices in elements: group, row, column.
    pub right: [usize; 3],
    panel_parts: usize,
}

/// Does the frame of this file take the call? Rows in groups, dense where they must be.
pub(super) fn takes(ctx: &PrepareContext<'_>, out: usize) -> Result<bool> {
    if out == GROUPED_OUT {
        check_grouped(ctx)?;
    }
    let (Some(left), Some(right), Some(offsets), Some(result)) =
        (ctx.tensor(0), ctx.tensor(1), ctx.tensor(2), ctx.tensor(out))
    else {
        return Ok(false);
    };
    let is_plain = left.shape.len() == 2
        && right.shape.len() == 3
        && result.shape.len() == 2
        && left.dim_order.is_contiguous()
        && result.dim_order.is_contiguous();
    let is_number = matches!(offsets.dtype, DType::Int32 | DType::Int64);
    Ok(is_plain && is_number && left.dtype == right.dtype && left.dtype == result.dtype)
}

fn prepare(ctx: &PrepareContext<'_>, out: usize) -> Preparation {
    let is_single = ctx.tensor(0).is_some_and(|t| t.dtype == DType::Float32);
    if !is_single || !takes(ctx, out)? {
        return ctx.decline("takes dense float32");
    }
    let tiles = TileSet::for_isa(ctx.cpu.isa);
    let constant = ctx.args.get(1).and_then(|a| a.constant());
    let packed = constant.map(|weight| pack_each(ctx, weight)).transpose()?;
    let k_bound = ctx.tensor(0).map_or(0, |t| t.shape[1]);
    let matrix = constant.map_or([0; 2], |weight| [weight.shape[1], weight.shape[2]]);
    let format = if packed.is_some() { FORMAT } else { "f32" };
    let name = format!("gemm_groups.{format}.{}", tiles.isa.name());
    prepared(name, GroupedProduct { out, packed, matrix, tiles, k_bound })
}

/// The packed matrix of each group.
fn pack_each(ctx: &PrepareContext<'_>, weight: &ConstantView<'_>) -> Result<Vec<Arc<PackedBytes>>> {
    let (&[groups, k, n], &[step, row, column]) = (&*weight.shape, &*weight.strides) else {
        return Err(
            Error::internal("a constant has another rank than its spec").got(weight.shape.to_string())
        );
    };
    (0..groups)
        .map(|g| {
            let offset = g.checked_mul(step).and_then(|at| at.checked_add(weight.offset));
            let offset = offset.ok_or_else(|| Error::program("a constant's view leaves its storage"))?;
            let (shape, strides) = (Dims::new(&[k, n])?, Dims::new(&[row, column])?);
            get_or_pack(ctx.packs, ctx.cpu, &ConstantView { offset, shape, strides, ..*weight })
        })
        .collect()
}

impl GroupedProduct {
    fn worker_floats(&self) -> usize {
        match self.packed {
            Some(_) => scratch_elements(self.matrix[0], false, true, None),
            None => scratch_elements(self.k_bound, true, false, None),
        }
    }

    /// Columns of the matrices of `panels`.
    fn columns(p: &Problem, panels: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        panels.start * NR..(panels.end * NR).min(p.n)
    }

    /// Zeros in the columns of `panels` of the rows `rows`.
    fn clear(
        &self,
        args: &Args<'_>,
        p: &Problem,
        rows: std::ops::Range<usize>,
        panels: &std::ops::Range<usize>,
    ) -> Result<()> {
        let out = args.output(self.out)?.ptr::<f32>()?;
        let columns = Self::columns(p, panels);
        for row in rows {
            // SAFETY: row and columns lie inside the result, whose shape `bind` set; no other chunk has them.
            unsafe { out.add(row * p.n + columns.start).write_bytes(0, columns.len()) };
        }
        Ok(())
    }
}

/// Shapes of the call, which `bind` of this file and of the other dtypes begin with.
pub(super) fn problem(args: &mut BindArgs<'_>, out: usize) -> Result<Problem> {
    let view = args.args();
    let (found, shape) = layout(&view)?;
    if found != Layout::Rows {
        return Err(Error::internal("a product in groups has another layout than at load"));
    }
    let right = view.tensor(1)?;
    let (extents, strides) = (right.shape(), right.strides());
    let p = Problem {
        rows: shape[0],
        k: extents[1],
        n: extents[2],
        groups: extents[0],
        right: [strides[0], strides[1], strides[2]],
        panel_parts: 1,
    };
    args.resize(out, &shape)?;
    Ok(p)
}

impl GridKernel for GroupedProduct {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.worker_floats() * size_of::<f32>(), shared: 0 }
    }

    /// Packed matrices are read from their packs; their shape was known at load.
    fn needs(&self, index: usize) -> bool {
        !(self.packed.is_some() && index == 1)
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, p: &mut Problem) -> Result<Grid> {
        *p = problem(args, self.out)?;
        if let Some(packed) = &self.packed
            && (packed.len() != p.groups || self.matrix != [p.k, p.n])
        {
            return Err(Error::internal("a constant has another shape than at load"));
        }
        if p.rows == 0 || p.n == 0 {
            return Ok(Grid::EMPTY);
        }
        let flops = 2usize.saturating_mul(p.k).saturating_mul(p.n);
        let nanoseconds = |rows: usize| rows.saturating_mul(flops) / FLOPS_PER_NS;
        let shared = p.rows.div_ceil(p.groups.max(1));
        let parts = (nanoseconds(shared) / CHUNK_NS[0]).max(nanoseconds(p.rows) / CHUNK_NS[1]);
        p.panel_parts = parts.clamp(1, panel_count(p.n));
        Ok(Grid::chunks((p.groups + 1) * p.panel_parts, nanoseconds(shared) / p.panel_parts))
    }

    fn run(&self, p: &Problem, mut chunk: Part<'_>) -> Result<()> {
        let (group, number) = (chunk.chunk / p.panel_parts, chunk.chunk % p.panel_parts);
        let panels = part(panel_count(p.n), p.panel_parts, number);
        let args = chunk.args;
        let mut groups = Groups::of(args, Layout::Rows)?;
        for _ in 0..group {
            groups.advance()?;
        }
        let rows = groups.advance()?;
        if group == p.groups || p.k == 0 {
            return self.clear(args, p, rows, &panels);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let left = args.tensor(0)?.ptr::<f32>()?;
        let b = match &self.packed {
            Some(packed) => {
                let pack =
                    packed.get(group).ok_or_else(|| Error::internal("a group has no packed matrix"))?;
                Rhs::Packed(pack.as_ptr().cast())
            }
            None => {
                let right = args.tensor(1)?.ptr::<f32>()?;
                Rhs::Strided(right.wrapping_add(group * p.right[0]), p.right[1], p.right[2])
            }
        };
        let out = args.output(self.out)?.ptr::<f32>()?;
        let gemm = Gemm {
            m: rows.len(),
            n: p.n,
            k: p.k,
            a: Lhs::Rows(left.wrapping_add(rows.start * p.k), p.k),
            b,
            c: out.wrapping_add(rows.start * p.n),
            c_stride: p.n,
            bias: std::ptr::null(),
            residual: std::ptr::null(),
            residual_stride: p.n,
            clamp: None,
            post: None,
        };
        let scratch = chunk.take_scratch(self.worker_floats())?;
        // SAFETY: `Groups` gives rows that lie inside both operands, whose shapes `bind` checked; rows of A and C are dense
        // (checked in `prepare`), the output overlaps no input (alias rule `None`), packs have the size for K and N
        // (`bind`), and the tiles come from the profile of this processor.
        unsafe { gemm.run(self.tiles, 0..self.tiles.row_tiles(rows.len()), panels, scratch) };
        Ok(())
    }
}

/// The kernels of this file.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::_grouped_mm.out", "f32_nr32", |ctx| prepare(ctx, GROUPED_OUT)),
    engine_kernel("transformers::grouped_mm_fallback.out", "f32_nr32", |ctx| prepare(ctx, FALLBACK_OUT)),
];

#[cfg(test)]
mod tests;
