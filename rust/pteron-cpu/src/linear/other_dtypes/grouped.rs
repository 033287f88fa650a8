//! Products of rows in groups, in 16-bit floats and the other dtypes of this folder: a unit is a panel of columns of a
//! group, or of the rows behind the last one, which become zero.

use super::super::grouped::{self, takes};
use super::product::{Double, Long, Product, Sixteen, Whole};
use super::{Block, CHUNK_ROWS, PANEL, SCRATCH};
use half::{bf16, f16};
use pteron_core::{BindArgs, DType, PrepareContext, Result, Scratch};
use pteron_kernels::frame::{Chunk, Split, UnitKernel, framed};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::ops::grouped_matrix::{Groups, Layout};
use pteron_kernels::vector_math::SimdLevel;

struct GroupedProduct {
    level: SimdLevel,
    dtype: DType,
    out: usize,
}

/// The kernel with its result at `out`, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>, out: usize) -> Preparation {
    use DType::{BFloat16, Float16, Float64, Int8, Int16, Int32, Int64, UInt8};
    let dtype = ctx.tensor(0).map(|t| t.dtype);
    let Some(dtype @ (Float64 | Float16 | BFloat16 | Int64 | Int32 | Int16 | Int8 | UInt8)) = dtype else {
        return ctx.decline("takes float64, 16-bit floats and integers");
    };
    if !takes(ctx, out)? {
        return ctx.decline("takes dense tensors of one dtype");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("gemm_groups.{}.{}", dtype.name(), level.isa().name());
    framed(name, GroupedProduct { level, dtype, out })
}

impl GroupedProduct {
    /// A panel of the matrix of a group times the group's rows.
    fn block<P: Product>(&self, p: &super::Problem, chunk: &mut Chunk<'_, '_>) -> Result<()>
    where
        P::Number: bytemuck::Pod,
    {
        let (group, panel) = (chunk.units.start / p.panels(), chunk.units.start % p.panels());
        let mut groups = Groups::of(chunk.args(), Layout::Rows)?;
        for _ in 0..group {
            groups.advance()?;
        }
        let rows = groups.advance()?;
        // A sum over nothing is zero.
        let p = &super::Problem { k: if group == p.batch { 0 } else { p.k }, ..*p };
        let column = panel * PANEL;
        let left = chunk.input::<P::Memory>(0)?.as_ptr();
        let right = chunk.input::<P::Memory>(1)?.as_ptr();
        let out = chunk.output_shared::<P::Result>(self.out)?.as_ptr();
        let numbers = chunk.take_scratch(SCRATCH)?;
        for row in rows.clone().step_by(CHUNK_ROWS) {
            self.level.dispatch(Block::<P> {
                problem: p,
                left: left.wrapping_add(row * p.left[1]),
                right: right.wrapping_add(group * p.right[0] + column * p.right[2]),
                out: out.wrapping_add(row * p.n + column),
                addend: std::ptr::null(),
                alpha: 1.0,
                beta: 1.0,
                rows: CHUNK_ROWS.min(rows.end - row),
                columns: PANEL.min(p.n - column),
                numbers: &mut *numbers,
            });
        }
        Ok(())
    }
}

impl UnitKernel for GroupedProduct {
    type Problem = super::Problem;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: SCRATCH * size_of::<f64>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, p: &mut super::Problem) -> Result<Split> {
        let found = grouped::problem(args, self.out)?;
        *p = super::Problem {
            batch: found.groups,
            m: found.rows,
            n: found.n,
            k: found.k,
            left: [0, found.k, 1],
            right: found.right,
            addend: [0; 3],
        };
        if p.m * p.n == 0 {
            return Ok(Split::NONE);
        }
        let units = (p.batch + 1).saturating_mul(p.panels());
        let rows = p.m.div_ceil(p.batch.max(1));
        Ok(Split::new(units, 1, rows.saturating_mul(PANEL).saturating_mul(p.k) / 8))
    }

    fn run(&self, p: &super::Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match self.dtype {
            DType::Float16 => self.block::<Sixteen<f16>>(p, chunk),
            DType::BFloat16 => self.block::<Sixteen<bf16>>(p, chunk),
            DType::Int64 => self.block::<Long>(p, chunk),
            DType::Int32 => self.block::<Whole<i32>>(p, chunk),
            DType::Int16 => self.block::<Whole<i16>>(p, chunk),
            DType::Int8 => self.block::<Whole<i8>>(p, chunk),
            DType::UInt8 => self.block::<Whole<u8>>(p, chunk),
            _ => self.block::<Double>(p, chunk),
        }
    }
}
