//! Products of a matrix and one column in f32: `mv`, and `mm` of one column. Each result is a dot product of a row, in an
//! order that its length and the instruction set fix. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use crate::engine_kernel::{EngineKernel, engine_kernel};
use pteron_core::{BindArgs, DType, Dims, Error, PrepareContext, Result};
use pteron_kernels::frame::{Chunk, Split, UnitKernel, framed};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};

const OUT: usize = 2;
/// Rows that share the loads of the column.
const ROWS: usize = 4;
/// Elements of the matrix that a chunk reads at least.
const CHUNK: usize = 32 << 10;

struct MatrixVector {
    level: SimdLevel,
    /// Has the column a second dimension, of one?
    is_matrix: bool,
}

/// Is the product of these arguments, `mm` or `mv`, one of this file?
pub(super) fn takes(ctx: &PrepareContext<'_>, is_matrix: bool) -> bool {
    let rank = 1 + usize::from(is_matrix);
    let is_plain = |i: usize, rank: usize| {
        ctx.tensor(i).is_some_and(|t| {
            t.dtype == DType::Float32 && t.dim_order.is_contiguous() && t.shape.len() == rank
        })
    };
    let is_column = !is_matrix || ctx.tensor(1).is_some_and(|t| t.shape.get(1) == Some(&1));
    is_plain(0, 2) && is_plain(1, rank) && is_plain(OUT, rank) && is_column
}

fn prepare(ctx: &PrepareContext<'_>, is_matrix: bool) -> Preparation {
    if !takes(ctx, is_matrix) {
        return ctx.decline("takes a dense float32 matrix and one column");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("matrix_vector.f32.{}", level.isa().name());
    framed(name, MatrixVector { level, is_matrix })
}

impl UnitKernel for MatrixVector {
    /// Elements of a row.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, row: &mut usize) -> Result<Split> {
        let (left, right) = (*args.args().tensor(0)?.shape(), *args.args().tensor(1)?.shape());
        let columns = if self.is_matrix { right.get(1).copied() } else { Some(1) };
        let (&[rows, length], Some(columns)) = (&*left, columns) else {
            return Err(mismatch(&left, &right));
        };
        if right.first() != Some(&length) {
            return Err(mismatch(&left, &right));
        }
        let out = if self.is_matrix { Dims::new(&[rows, columns])? } else { Dims::new(&[rows])? };
        args.resize(OUT, &out)?;
        if rows * columns == 0 {
            return Ok(Split::NONE);
        }
        let per_chunk = CHUNK.div_ceil(length.max(1)).next_multiple_of(ROWS);
        *row = length;
        Ok(Split::new(rows, per_chunk, per_chunk.min(rows) * length / 8))
    }

    fn run(&self, length: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.level.dispatch(RowProducts {
            matrix: chunk.input_units(0, *length)?.as_ptr(),
            column: chunk.input(1)?.as_ptr(),
            out: chunk.output_units(OUT, 1)?.as_ptr(),
            rows: chunk.units.len(),
            length: *length,
        });
        Ok(())
    }
}

/// The error of a matrix and a column that do not fit, and of two columns.
#[cold]
pub(super) fn mismatch(left: &Dims, right: &Dims) -> Error {
    Error::kernel("shapes do not fit for a matrix multiplication")
        .expected("as many columns on the left-hand side as elements of the column")
        .got(format!("{left} and {right}"))
}

struct RowProducts {
    matrix: *const f32,
    column: *const f32,
    out: *mut f32,
    rows: usize,
    length: usize,
}

impl SimdTask for RowProducts {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut row = 0;
        // SAFETY: `rows` rows of `length` elements lie behind the matrix, `length` behind the column.
        unsafe {
            while row + ROWS <= self.rows {
                self.dots::<S, ROWS>(s, row);
                row += ROWS;
            }
            while row < self.rows {
                self.dots::<S, 1>(s, row);
                row += 1;
            }
        }
    }
}

impl RowProducts {
    /// # Safety
    /// Rows `row..row + R` exist.
    #[inline(always)]
    unsafe fn dots<S: Simd, const R: usize>(&self, s: S, row: usize) {
        let n = self.length;
        let mut even = [s.zero(); R];
        let mut odd = [s.zero(); R];
        let mut i = 0;
        // SAFETY: the caller's promise; partial loads read n - i elements.
        unsafe {
            let first = self.matrix.add(row * n);
            while i + 2 * S::LANES <= n {
                let v = s.load(self.column.add(i));
                let w = s.load(self.column.add(i + S::LANES));
                for (r, (a, b)) in even.iter_mut().zip(&mut odd).enumerate() {
                    let p = first.add(r * n + i);
                    *a = s.fma(s.load(p), v, *a);
                    *b = s.fma(s.load(p.add(S::LANES)), w, *b);
                }
                i += 2 * S::LANES;
            }
            while i < n {
                let m = S::LANES.min(n - i);
                let v = s.load_up_to(self.column.add(i), m);
                for (r, a) in even.iter_mut().enumerate() {
                    *a = s.fma(s.load_up_to(first.add(r * n + i), m), v, *a);
                }
                i += m;
            }
            for r in 0..R {
                *self.out.add(row + r) = s.reduce_add(s.add(even[r], odd[r]));
            }
        }
    }
}

/// The kernels of this file.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::mm.out", "f32_column", |ctx| prepare(ctx, true)),
    engine_kernel("aten::mv.out", "f32_column", |ctx| prepare(ctx, false)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::Isa;
    use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_kernels::testing::numbers;

    #[test]
    fn columns_agree_with_f64() {
        for isa in Isa::ALL {
            let Some(cpu) = profile(isa) else { continue };
            for [m, k] in [[1, 1], [7, 33], [4, 64], [300, 257], [5, 0], [0, 3]] {
                let (a, b) = (numbers(m * k, 3), numbers(k, 4));
                for (kernel, right, out) in [(0, vec![k, 1], vec![m, 1]), (1, vec![k], vec![m])] {
                    let args = vec![
                        CallArg::Tensor(HostTensor::new(&[m, k], &a).unwrap()),
                        CallArg::Tensor(HostTensor::new(&right, &b).unwrap()),
                        CallArg::Tensor(HostTensor::zeros(DType::Float32, &out).unwrap()),
                    ];
                    let mut call = SingleCall::new(KERNELS[kernel].prepare, &cpu, args).unwrap().unwrap();
                    call.call().unwrap();
                    for (i, y) in call.output::<f32>(OUT).unwrap().iter().enumerate() {
                        let products = (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p]));
                        let (want, size) = products.fold((0.0, 0.0), |(t, u), v| (t + v, u + v.abs()));
                        assert!((f64::from(*y) - want).abs() <= 1e-6 * size, "{isa:?} {m} {k}: {y} {want}");
                    }
                }
            }
        }
    }
}
