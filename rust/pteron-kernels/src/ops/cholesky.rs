//! Cholesky factorisation of positive definite matrices, and solutions and inverses with it.
//!
//! A = L·Lᵀ, or Uᵀ·U. Shape: batches of square matrices. Dtype: float32 and float64, computed in float64 or,
//! block by block, in their own dtype. Edge cases: only one triangle of A is read; a matrix that is not
//! positive definite is reported in `info` (the order of the leading minor that is not), and is an error
//! where PyTorch raises, as a singular factor is. Source: Golub & Van Loan, Matrix Computations, 4.2.

use crate::operator::{Operator, kernel};
use crate::ops::dense::{Method, Plain, blocked, of_blocks, tenth};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, check_exactly, common_batch, items, joined, largest, load, rooms, split,
    split_square, store, transpose,
};
use crate::routine::{BindItemsFn, Preparation, Routine};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

fn not_positive(info: usize) -> Error {
    Error::kernel("the matrix is not positive definite")
        .argument("self")
        .got(format!("the leading minor of order {info}"))
}

/// Factors item `item` of argument 0; the factor that is asked for, and the info.
fn factored<'m, M: Method>(
    method: M,
    args: &Args<'_>,
    item: usize,
    is_upper: bool,
    memory: &'m mut [u8],
) -> Result<(&'m [M::Number], usize)> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let [room, a, turned] = rooms(memory, [M::room(n), n * n, n * n])?;
    load(args, (0, 2), &batch, item, a)?;
    if !is_upper {
        let info = method.cholesky(a, n, turned, room);
        return Ok((a, info));
    }
    transpose(a, [n, n], turned);
    let info = method.cholesky(turned, n, a, room);
    transpose(turned, [n, n], a);
    Ok((a, info))
}

fn bind_same<const OUT: usize, const HAS_INFO: bool>(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let shape = *args.args().tensor(0)?.shape();
    let (batch, n) = split_square(&shape, "self")?;
    args.resize(OUT, &shape)?;
    if HAS_INFO {
        args.resize(OUT + 1, &batch)?;
    }
    items(&batch, &[n, n, n])
}

fn bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    let [n, _] = largest(ctx, 0);
    bytes_for(&[&[2, n, n]])
}

fn run_ex<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, _) = split_square(args.tensor(0)?.shape(), "self")?;
    let (factor, info) = factored(method, args, item, args.bool(1)?, memory)?;
    if info > 0 && args.bool(2)? {
        return Err(not_positive(info));
    }
    store(args, (3, 2), &batch, item, factor)?;
    store(args, (4, 0), &batch, item, &[info as f64])
}

fn check_ex(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 3])?;
    check_exactly(ctx, &[4], DType::Int32)?;
    bytes(ctx)
}

fn prepare_ex(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(check_ex(ctx)?, bind_same::<3, true>, |args, n, s| run_ex(Plain, args, n, s.worker))
}

fn blocks_ex(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, check_ex(ctx), |args| bind_same::<3, true>(args).map(tenth), blocked!(run_ex, 0))
}

fn run_plain<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, _) = split_square(args.tensor(0)?.shape(), "self")?;
    match factored(method, args, item, args.bool(1)?, memory)? {
        (factor, 0) => store(args, (2, 2), &batch, item, factor),
        (_, info) => Err(not_positive(info)),
    }
}

fn check_same(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 2])?;
    bytes(ctx)
}

fn prepare_plain(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(check_same(ctx)?, bind_same::<2, false>, |args, n, s| {
        run_plain(Plain, args, n, s.worker)
    })
}

fn blocks_plain(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 0, check_same(ctx), |args| bind_same::<2, false>(args).map(tenth), blocked!(run_plain, 0))
}

fn bind_solve(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (b_batch, extents) = split(view.tensor(0)?.shape(), "self")?;
    let (batch, n) = split_square(view.tensor(1)?.shape(), "input2")?;
    if extents[0] != n {
        return Err(Error::kernel("the right side does not fit the factor")
            .argument("self")
            .got(format!("{extents:?}")));
    }
    let batch = common_batch(&batch, &b_batch)?;
    args.resize(3, &joined(&batch, &extents)?)?;
    items(&batch, &[n, extents[0], extents[1]])
}

fn run_solve<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, [n, width]) = split(args.tensor(3)?.shape(), "out")?;
    let [room, factor, b] = rooms(memory, [M::room(n), n * n, n * width])?;
    load(args, (1, 2), &batch, item, factor)?;
    load(args, (0, 2), &batch, item, b)?;
    method.solve_definite(factor, n, (&mut *b, width), args.bool(2)?, room);
    store(args, (3, 2), &batch, item, b)
}

fn solve_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 1, 3])?;
    let ([rows, columns], [n, _]) = (largest(ctx, 0), largest(ctx, 1));
    bytes_for(&[&[n, n], &[rows, columns]])
}

fn prepare_solve(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(solve_bytes(ctx)?, bind_solve, |args, n, s| run_solve(Plain, args, n, s.worker))
}

fn blocks_solve(ctx: &PrepareContext<'_>) -> Preparation {
    of_blocks(ctx, 1, solve_bytes(ctx), |args| bind_solve(args).map(tenth), blocked!(run_solve, 1))
}

fn run_inverse<M: Method>(method: M, args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let [room, factor, x, copy] = rooms(memory, [M::room(n), n * n, n * n, n * n])?;
    load::<M::Number>(args, (0, 2), &batch, item, factor)?;
    if let Some(i) = factor.iter().step_by(n + 1).position(|v| *v == M::Number::default()) {
        return Err(Error::kernel("a factor with a zero on its diagonal has no inverse")
            .argument("self")
            .got(format!("element {i} of the diagonal of matrix {item} is zero")));
    }
    method.invert_definite(factor, n, args.bool(1)?, [&mut *x, copy], room);
    store(args, (2, 2), &batch, item, x)
}

fn inverse_bytes(ctx: &PrepareContext<'_>) -> Result<usize> {
    check_dtypes(ctx, &[0, 2])?;
    let [n, _] = largest(ctx, 0);
    bytes_for(&[&[3, n, n]])
}

fn prepare_inverse(ctx: &PrepareContext<'_>) -> Preparation {
    Routine::per_item(inverse_bytes(ctx)?, bind_same::<2, false>, |args, n, s| {
        run_inverse(Plain, args, n, s.worker)
    })
}

fn blocks_inverse(ctx: &PrepareContext<'_>) -> Preparation {
    let bind: BindItemsFn = |args| bind_same::<2, false>(args).map(tenth);
    of_blocks(ctx, 0, inverse_bytes(ctx), bind, blocked!(run_inverse, 0))
}

/// Cholesky.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_cholesky_ex.L(Tensor self, *, bool upper=False, bool check_errors=False, Tensor(a!) L, Tensor(b!) info) -> (Tensor(a!) L, Tensor(b!) info)",
        prepare_ex,
    )
    .fast("blocks", blocks_ex),
    kernel(
        "aten::cholesky.out(Tensor self, bool upper=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_plain,
    )
    .fast("blocks", blocks_plain),
    kernel(
        "aten::cholesky_solve.out(Tensor self, Tensor input2, bool upper=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_solve,
    )
    .fast("blocks", blocks_solve),
    kernel(
        "aten::cholesky_inverse.out(Tensor self, bool upper=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_inverse,
    )
    .fast("blocks", blocks_inverse),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn one_triangle_is_read_and_indefinite_matrices_are_refused() {
        let run = |a: [f64; 4], is_upper: bool| {
            run_out(
                "aten::cholesky.out",
                &[Tensor::of(&[2, 2], &a).into(), is_upper.into()],
                DType::Float64,
                &[2, 2],
            )
        };
        assert_eq!(run([4.0, 99.0, 2.0, 5.0], false).unwrap().values::<f64>(), [2.0, 0.0, 1.0, 2.0]);
        assert_eq!(run([4.0, 2.0, 99.0, 5.0], true).unwrap().values::<f64>(), [2.0, 1.0, 0.0, 2.0]);
        assert!(error_text(run([1.0, 2.0, 2.0, 1.0], false)).contains("order 2"));
    }

    #[test]
    fn singular_factors_are_refused() {
        let run = |a: [f64; 8]| {
            let args = [Tensor::of(&[2, 2, 2], &a).into(), false.into()];
            run_out("aten::cholesky_inverse.out", &args, DType::Float64, &[2, 2, 2])
        };
        let inverse = run([1.0, 9.0, 0.0, 2.0, 2.0, 0.0, 0.0, 1.0]).unwrap();
        assert_eq!(inverse.values::<f64>(), [1.0, 0.0, 0.0, 0.25, 0.25, 0.0, 0.0, 1.0]);
        assert!(
            error_text(run([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 3.0, 0.0]))
                .contains("element 1 of the diagonal of matrix 1")
        );
    }
}
