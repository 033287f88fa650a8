//! Systems with triangular matrices.
//!
//! Shape: batches of both operands broadcast. Dtype: float32 and float64, computed in float64. Edge cases: a
//! zero on the diagonal divides as IEEE does; the other triangle is never read. Source: substitution, Golub &
//! Van Loan, Matrix Computations, 3.1.

use crate::operator::{Operator, kernel};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, common_batch, items, joined, largest, load, rooms, split, split_square, store,
    transpose,
};
use crate::routine::{Preparation, Routine};
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result};

/// Which triangle of a matrix is meant, and how it is used.
#[derive(Clone, Copy)]
pub(crate) struct Triangle {
    /// The stored triangle that is read.
    pub(crate) is_upper: bool,
    /// Is the diagonal taken as ones?
    pub(crate) is_unit: bool,
    /// Is it used transposed?
    pub(crate) is_transposed: bool,
}

/// Solves T·X = B for the triangle of the row-major `matrix` of order `n`; `b`, `n` rows of `width`, becomes X.
pub(crate) fn substitute(matrix: &[f64], n: usize, b: &mut [f64], width: usize, triangle: Triangle) {
    let at = |i: usize, j: usize| if triangle.is_transposed { matrix[j * n + i] } else { matrix[i * n + j] };
    let is_upper = triangle.is_upper != triangle.is_transposed;
    for step in 0..n {
        let i = if is_upper { n - 1 - step } else { step };
        let solved = if is_upper { i + 1..n } else { 0..i };
        for j in solved {
            let factor = at(i, j);
            let (low, high) = b.split_at_mut(i.max(j) * width);
            let (row, other) = if i > j {
                (&mut high[..width], &low[j * width..][..width])
            } else {
                (&mut low[i * width..][..width], &high[..width])
            };
            row.iter_mut().zip(other.iter()).for_each(|(x, y)| *x -= factor * y);
        }
        if !triangle.is_unit {
            let pivot = at(i, i);
            b[i * width..][..width].iter_mut().for_each(|x| *x /= pivot);
        }
    }
}

/// Batch and extents of B for matrices of order `n`, which B must fit from the left or from the right.
fn bind(args: &mut BindArgs<'_>, [a, b, out]: [usize; 3], is_left: bool) -> Result<(usize, usize)> {
    let view = args.args();
    let (batch, n) = split_square(view.tensor(a)?.shape(), "A")?;
    let (b_batch, extents) = split(view.tensor(b)?.shape(), "B")?;
    if extents[usize::from(!is_left)] != n {
        return Err(Error::kernel("the right side does not fit the matrix")
            .argument("B")
            .got(format!("{extents:?}")));
    }
    let batch = common_batch(&batch, &b_batch)?;
    args.resize(out, &joined(&batch, &extents)?)?;
    items(&batch, &[n, extents[0], extents[1]])
}

fn run_solve(args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let triangle =
        Triangle { is_upper: args.bool(2)?, is_unit: args.bool(4)?, is_transposed: !args.bool(3)? };
    let (_, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let (batch, extents) = split(args.tensor(5)?.shape(), "out")?;
    let [a, b, turned] = rooms(memory, [n * n, extents[0] * extents[1], extents[0] * extents[1]])?;
    load(args, (0, 2), &batch, item, a)?;
    load(args, (1, 2), &batch, item, b)?;
    if args.bool(3)? {
        substitute(a, n, b, extents[1], triangle);
    } else {
        // X·T = B is Tᵀ·Xᵀ = Bᵀ.
        transpose(b, extents, turned);
        substitute(a, n, turned, extents[0], triangle);
        transpose(turned, [extents[1], extents[0]], b);
    }
    store(args, (5, 2), &batch, item, b)
}

fn prepare_solve(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 5])?;
    let ([n, _], [rows, columns]) = (largest(ctx, 0), largest(ctx, 1));
    let bytes = bytes_for(&[&[n, n], &[2, rows, columns]])?;
    Routine::per_item(
        bytes,
        |args| {
            let is_left = args.args().bool(3)?;
            bind(args, [0, 1, 5], is_left)
        },
        |args, n, s| run_solve(args, n, s.worker),
    )
}

/// `triangular_solve`, which has its operands the other way round and gives the matrix back.
fn run_old_solve(args: &Args<'_>, memory: &mut [u8]) -> Result<()> {
    let triangle = Triangle { is_upper: args.bool(2)?, is_transposed: args.bool(3)?, is_unit: args.bool(4)? };
    let (_, n) = split_square(args.tensor(1)?.shape(), "A")?;
    let (batch, extents) = split(args.tensor(5)?.shape(), "X")?;
    let [a, b] = rooms(memory, [n * n, extents[0] * extents[1]])?;
    for item in 0..batch.numel()? {
        load(args, (1, 2), &batch, item, a)?;
        load(args, (0, 2), &batch, item, b)?;
        substitute(a, n, b, extents[1], triangle);
        store(args, (5, 2), &batch, item, b)?;
        store(args, (6, 2), &batch, item, a)?;
    }
    Ok(())
}

fn prepare_old_solve(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 5, 6])?;
    let ([n, _], [rows, columns]) = (largest(ctx, 1), largest(ctx, 0));
    let bytes = bytes_for(&[&[n, n], &[rows, columns]])?;
    Routine::prepare_with_scratch(
        bytes,
        |args| {
            bind(args, [1, 0, 5], true)?;
            let view = args.args();
            let (_, n) = split_square(view.tensor(1)?.shape(), "A")?;
            let (batch, _) = split(view.tensor(5)?.shape(), "X")?;
            args.resize(6, &joined(&batch, &[n, n])?)
        },
        |args, s| run_old_solve(args, s.worker),
    )
}

/// Triangular systems.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_solve_triangular.out(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False, Tensor(a!) out) -> Tensor(a!)",
        prepare_solve,
    ),
    kernel(
        "aten::triangular_solve.X(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False, *, Tensor(a!) X, Tensor(b!) M) -> (Tensor(a!) solution, Tensor(b!) cloned_coefficient)",
        prepare_old_solve,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_triangle_solves_its_product() {
        let matrix = [2.0, 3.0, 5.0, 4.0];
        for (is_upper, is_unit, is_transposed) in (0..8).map(|i| (i & 1 > 0, i & 2 > 0, i & 4 > 0)) {
            let part = |i: usize, j: usize| match (i == j, i < j) {
                (true, _) => {
                    if is_unit {
                        1.0
                    } else {
                        matrix[i * 2 + j]
                    }
                }
                (_, above) => {
                    if above == is_upper {
                        matrix[i * 2 + j]
                    } else {
                        0.0
                    }
                }
            };
            let t = |i: usize, j: usize| if is_transposed { part(j, i) } else { part(i, j) };
            let mut b = [t(0, 0) * 7.0 + t(0, 1) * 11.0, t(1, 0) * 7.0 + t(1, 1) * 11.0];
            substitute(&matrix, 2, &mut b, 1, Triangle { is_upper, is_unit, is_transposed });
            assert_eq!(b, [7.0, 11.0]);
        }
    }
}
