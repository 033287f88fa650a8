//! Systems with triangular matrices.
//!
//! Shape: batches of both operands broadcast. Dtype: float32 and float64, computed in float64 or, block by
//! block, in their own dtype. Edge cases: a zero on the diagonal divides as IEEE does; the other triangle is
//! never read. Source: substitution, Golub & Van Loan, Matrix Computations, 3.1.

use crate::operator::{Operator, kernel};
use crate::ops::dense::plain::Triangle;
use crate::ops::dense::{Method, Plain, blocked, of_blocks, tenth};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, common_batch, items, joined, largest, load, rooms, split, split_square, store,
    transpose,
};
use crate::routine::{BindItemsFn, Preparation, Routine};
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result};

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

fn run_solve<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let triangle =
        Triangle { is_upper: args.bool(2)?, is_unit: args.bool(4)?, is_transposed: !args.bool(3)? };
    let (_, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let (batch, extents) = split(args.tensor(5)?.shape(), "out")?;
    let area = extents[0] * extents[1];
    let [room, a, b, turned] = rooms(memory, [M::room(n), n * n, area, area])?;
    load::<M::Number>(args, (0, 2), &batch, item, a)?;
    load(args, (1, 2), &batch, item, b)?;
    if args.bool(3)? {
        method.substitute(a, n, (&mut *b, extents[1]), triangle, room);
    } else {
        // X·T = B is Tᵀ·Xᵀ = Bᵀ.
        transpose(b, extents, turned);
        method.substitute(a, n, (&mut *turned, extents[0]), triangle, room);
        transpose(turned, [extents[1], extents[0]], b);
    }
    store(args, (5, 2), &batch, item, b)
}

fn solve_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, 5])?;
    let ([n, _], [rows, columns]) = (largest(ctx, 0), largest(ctx, 1));
    bytes_for(&[&[n, n], &[2, rows, columns]])
}

fn bind_solve(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let is_left = args.args().bool(3)?;
    bind(args, [0, 1, 5], is_left)
}

fn prepare_solve(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(solve_bytes(ctx)?, bind_solve, |args, n, s| run_solve(Plain, args, n, s.worker))
}

fn blocks_solve(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, solve_bytes(ctx), |args| bind_solve(args).map(tenth), blocked!(run_solve, 0))
}

/// `triangular_solve`, which has its operands the other way round and gives the matrix back.
fn run_old_solve<M: Method>(method: M, args: &Args<'_>, _: usize, memory: &mut [u8]) -> Result<()> {
    let triangle = Triangle { is_upper: args.bool(2)?, is_transposed: args.bool(3)?, is_unit: args.bool(4)? };
    let (_, n) = split_square(args.tensor(1)?.shape(), "A")?;
    let (batch, extents) = split(args.tensor(5)?.shape(), "X")?;
    let [room, a, b] = rooms(memory, [M::room(n), n * n, extents[0] * extents[1]])?;
    for item in 0..batch.numel()? {
        load::<M::Number>(args, (1, 2), &batch, item, a)?;
        load(args, (0, 2), &batch, item, b)?;
        method.substitute(a, n, (&mut *b, extents[1]), triangle, room);
        store(args, (5, 2), &batch, item, b)?;
        store(args, (6, 2), &batch, item, a)?;
    }
    Ok(())
}

fn bind_old_solve(args: &mut BindArgs<'_>) -> Result<()> {
    bind(args, [1, 0, 5], true)?;
    let view = args.args();
    let (_, n) = split_square(view.tensor(1)?.shape(), "A")?;
    let (batch, _) = split(view.tensor(5)?.shape(), "X")?;
    args.resize(6, &joined(&batch, &[n, n])?)
}

fn old_solve_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, 5, 6])?;
    let ([n, _], [rows, columns]) = (largest(ctx, 1), largest(ctx, 0));
    bytes_for(&[&[n, n], &[rows, columns]])
}

fn prepare_old_solve(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::prepare_with_scratch(old_solve_bytes(ctx)?, bind_old_solve, |args, s| {
        run_old_solve(Plain, args, 0, s.worker)
    })
}

fn blocks_old_solve(ctx: &PrepareContext<'_>) -> Preparation {
    let bind: BindItemsFn = |args| bind_old_solve(args).map(|()| (1, 0));
    of_blocks(ctx, 1, old_solve_bytes(ctx), bind, blocked!(run_old_solve, 1))
}

/// Triangular systems.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_solve_triangular.out(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False, Tensor(a!) out) -> Tensor(a!)",
        prepare_solve,
    )
    .fast("blocks", blocks_solve),
    kernel(
        "aten::triangular_solve.X(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False, *, Tensor(a!) X, Tensor(b!) M) -> (Tensor(a!) solution, Tensor(b!) cloned_coefficient)",
        prepare_old_solve,
    )
    .fast("blocks", blocks_old_solve),
];

#[cfg(test)]
mod tests {
    use crate::ops::dense::plain::{Triangle, substitute};

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
