//! `mm` of one row and a matrix that is computed at run time, in f32. The matrix is read once, row by row, as memory
//! gives it fastest; every sum runs over k in order, whatever the number of chunks. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use crate::engine_kernel::{EngineKernel, engine_kernel};
use pteron_core::{BindArgs, DType, Dims, Error, PrepareContext, Result};
use pteron_kernels::frame::{Chunk, Split, UnitKernel, framed};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};

const OUT: usize = 2;
/// Columns of a chunk: their sums stay in the first-level cache, and of every row a page is read.
const COLUMNS: usize = 1024;
/// Rows of the matrix that are added at a time.
const ROWS: usize = 8;

struct VectorMatrix {
    level: SimdLevel,
}

#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    length: usize,
    columns: usize,
}

/// Is the product of these arguments of `mm` one of this file?
pub(super) fn takes(ctx: &PrepareContext<'_>) -> bool {
    let is_plain = |i: usize| {
        ctx.tensor(i)
            .is_some_and(|t| t.dtype == DType::Float32 && t.dim_order.is_contiguous() && t.shape.len() == 2)
    };
    let is_constant = ctx.args.get(1).is_some_and(|a| a.constant().is_some());
    let is_row = ctx.tensor(0).is_some_and(|t| t.shape.first() == Some(&1));
    !is_constant && is_row && [0, 1, OUT].into_iter().all(is_plain)
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    if !takes(ctx) {
        return ctx.decline("takes one dense float32 row and a matrix that is no constant");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("vector_matrix.f32.{}", level.isa().name());
    framed(name, VectorMatrix { level })
}

impl UnitKernel for VectorMatrix {
    type Problem = Shape;

    fn bind(&self, args: &mut BindArgs<'_>, shape: &mut Shape) -> Result<Split> {
        let (left, right) = (*args.args().tensor(0)?.shape(), *args.args().tensor(1)?.shape());
        let (&[rows, length], &[depth, columns]) = (&*left, &*right) else {
            return Err(mismatch(&left, &right));
        };
        if depth != length || rows > 1 {
            return Err(mismatch(&left, &right));
        }
        args.resize(OUT, &Dims::new(&[rows, columns])?)?;
        if rows * columns == 0 {
            return Ok(Split::NONE);
        }
        *shape = Shape { length, columns };
        Ok(Split::new(columns, COLUMNS, columns.min(COLUMNS).saturating_mul(length) / 8))
    }

    fn run(&self, shape: &Shape, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let columns = chunk.units.clone();
        self.level.dispatch(Columns {
            vector: chunk.input(0)?.as_ptr(),
            matrix: chunk.input::<f32>(1)?.as_ptr().wrapping_add(columns.start),
            out: chunk.output_units(OUT, 1)?.as_ptr(),
            length: shape.length,
            stride: shape.columns,
            n: columns.len(),
        });
        Ok(())
    }
}

#[cold]
fn mismatch(left: &Dims, right: &Dims) -> Error {
    Error::kernel("shapes do not fit for a matrix multiplication")
        .operator("aten::mm.out")
        .expected("one row, as long as the matrix has rows")
        .got(format!("{left} and {right}"))
}

/// `n` columns of a matrix of `length` rows that are `stride` apart.
struct Columns {
    vector: *const f32,
    matrix: *const f32,
    out: *mut f32,
    length: usize,
    stride: usize,
    n: usize,
}

impl SimdTask for Columns {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: rows below `length` and columns below `n` exist.
        unsafe {
            for i in 0..self.n {
                *self.out.add(i) = 0.0;
            }
            let mut row = 0;
            while row + ROWS <= self.length {
                self.add_rows::<S, ROWS>(s, row);
                row += ROWS;
            }
            while row < self.length {
                self.add_rows::<S, 1>(s, row);
                row += 1;
            }
        }
    }
}

impl Columns {
    /// # Safety
    /// Rows `row..row + R` exist.
    #[inline(always)]
    unsafe fn add_rows<S: Simd, const R: usize>(&self, s: S, row: usize) {
        // SAFETY: the caller's promise; i + m ≤ n.
        unsafe {
            let mut factors = [s.zero(); R];
            for (r, factor) in factors.iter_mut().enumerate() {
                *factor = s.splat(*self.vector.add(row + r));
            }
            let first = self.matrix.add(row * self.stride);
            let mut i = 0;
            while i < self.n {
                let m = S::LANES.min(self.n - i);
                let mut sum = s.load_up_to(self.out.add(i), m);
                for (r, factor) in factors.iter().enumerate() {
                    sum = s.fma(*factor, s.load_up_to(first.add(r * self.stride + i), m), sum);
                }
                s.store_up_to(self.out.add(i), sum, m);
                i += m;
            }
        }
    }
}

/// The kernels of this file.
pub static KERNELS: &[EngineKernel] = &[engine_kernel("aten::mm.out", "f32_row", prepare)];

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::Isa;
    use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_kernels::testing::numbers;

    #[test]
    fn rows_agree_with_f64() {
        for isa in Isa::ALL {
            let Some(cpu) = profile(isa) else { continue };
            for [k, n] in [[1, 1], [33, 7], [8, 64], [19, 2500], [0, 5], [3, 0]] {
                let (a, b) = (numbers(k, 3), numbers(k * n, 4));
                let args = vec![
                    CallArg::Tensor(HostTensor::new(&[1, k], &a).unwrap()),
                    CallArg::Tensor(HostTensor::new(&[k, n], &b).unwrap()),
                    CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, n]).unwrap()),
                ];
                let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                for (i, y) in call.output::<f32>(OUT).unwrap().iter().enumerate() {
                    let products = (0..k).map(|p| f64::from(a[p]) * f64::from(b[p * n + i]));
                    let (want, size) = products.fold((0.0, 0.0), |(t, u), v| (t + v, u + v.abs()));
                    assert!((f64::from(*y) - want).abs() <= 1e-6 * size, "{isa:?} {k} {n}: {y} {want}");
                }
            }
        }
    }

    #[test]
    fn misfits_are_refused() {
        let cpu = profile(Isa::Portable).unwrap();
        let args = vec![
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, 3]).unwrap()),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[4, 2]).unwrap()),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, 2]).unwrap()),
        ];
        let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
        assert!(call.call().unwrap_err().to_string().contains("[1, 3] and [4, 2]"));
    }
}
