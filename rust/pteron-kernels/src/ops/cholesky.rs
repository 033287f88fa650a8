//! Cholesky factorisation of positive definite matrices, and solutions and inverses with it.
//!
//! A = L·Lᵀ, or Uᵀ·U. Shape: batches of square matrices. Dtype: float32 and float64, computed in float64. Edge
//! cases: only one triangle of A is read; a matrix that is not positive definite is reported in `info` (the
//! order of the leading minor that is not), and is an error where PyTorch raises, as a singular factor is.
//! Source: Golub & Van Loan, Matrix Computations, 4.2.

use crate::operator::{Operator, kernel};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, check_exactly, common_batch, items, joined, largest, load, rooms, split,
    split_square, store, transpose,
};
use crate::ops::triangular::{Triangle, substitute};
use crate::routine::{Preparation, Routine};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

/// Replaces the lower triangle of `a` by L and clears the other; the order of the first leading minor that is
/// not positive, or 0.
fn factor(a: &mut [f64], n: usize) -> usize {
    let mut info = 0;
    for j in 0..n {
        let row = &a[j * n..j * n + j];
        let pivot = a[j * n + j] - row.iter().map(|v| v * v).sum::<f64>();
        // NaN is not positive either.
        if pivot.is_nan() || pivot <= 0.0 {
            // As LAPACK leaves it: what would have to be positive is in its place.
            a[j * n + j] = pivot;
            info = j + 1;
            break;
        }
        let root = pivot.sqrt();
        a[j * n + j] = root;
        for i in j + 1..n {
            let (above, below) = a.split_at_mut(i * n);
            let product: f64 = below[..j].iter().zip(&above[j * n..j * n + j]).map(|(x, y)| x * y).sum();
            below[j] = (below[j] - product) / root;
        }
    }
    (0..n).for_each(|i| a[i * n + i + 1..(i + 1) * n].fill(0.0));
    info
}

fn not_positive(info: usize) -> Error {
    Error::kernel("the matrix is not positive definite")
        .argument("self")
        .got(format!("the leading minor of order {info}"))
}

/// Factors item `item` of argument 0 into `room`; the factor that is asked for, and the info.
fn factored(args: &Args<'_>, item: usize, is_upper: bool, room: [&mut [f64]; 2]) -> Result<usize> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let [a, turned] = room;
    load(args, (0, 2), &batch, item, a)?;
    if is_upper {
        transpose(a, [n, n], turned);
        a.copy_from_slice(turned);
    }
    let info = factor(a, n);
    if is_upper {
        transpose(a, [n, n], turned);
        a.copy_from_slice(turned);
    }
    Ok(info)
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

fn prepare_ex(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 3])?;
    check_exactly(ctx, &[4], DType::Int32)?;
    Routine::per_item(bytes(ctx)?, bind_same::<3, true>, |args, item, s| {
        let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
        let [a, turned] = rooms(s.worker, [n * n, n * n])?;
        let info = factored(args, item, args.bool(1)?, [&mut *a, turned])?;
        if info > 0 && args.bool(2)? {
            return Err(not_positive(info));
        }
        store(args, (3, 2), &batch, item, a)?;
        store(args, (4, 0), &batch, item, &[info as f64])
    })
}

fn prepare_plain(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 2])?;
    Routine::per_item(bytes(ctx)?, bind_same::<2, false>, |args, item, s| {
        let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
        let [a, turned] = rooms(s.worker, [n * n, n * n])?;
        match factored(args, item, args.bool(1)?, [&mut *a, turned])? {
            0 => store(args, (2, 2), &batch, item, a),
            info => Err(not_positive(info)),
        }
    })
}

/// Solves A·X = B with the factor of A.
fn solve(factor: &[f64], n: usize, b: &mut [f64], width: usize, is_upper: bool) {
    for is_transposed in [is_upper, !is_upper] {
        substitute(factor, n, b, width, Triangle { is_upper, is_unit: false, is_transposed });
    }
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

fn prepare_solve(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 3])?;
    let ([rows, columns], [n, _]) = (largest(ctx, 0), largest(ctx, 1));
    Routine::per_item(bytes_for(&[&[n, n], &[rows, columns]])?, bind_solve, |args, item, s| {
        let (batch, [n, width]) = split(args.tensor(3)?.shape(), "out")?;
        let [factor, b] = rooms(s.worker, [n * n, n * width])?;
        load(args, (1, 2), &batch, item, factor)?;
        load(args, (0, 2), &batch, item, b)?;
        solve(factor, n, b, width, args.bool(2)?);
        store(args, (3, 2), &batch, item, b)
    })
}

fn prepare_inverse(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 2])?;
    Routine::per_item(bytes(ctx)?, bind_same::<2, false>, |args, item, s| {
        let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
        let [factor, x] = rooms(s.worker, [n * n, n * n])?;
        load(args, (0, 2), &batch, item, factor)?;
        if let Some(i) = factor.iter().step_by(n + 1).position(|v| *v == 0.0) {
            return Err(Error::kernel("a factor with a zero on its diagonal has no inverse")
                .argument("self")
                .got(format!("element {i} of the diagonal of matrix {item} is zero")));
        }
        x.fill(0.0);
        x.iter_mut().step_by(n + 1).for_each(|v| *v = 1.0);
        solve(factor, n, x, n, args.bool(1)?);
        store(args, (2, 2), &batch, item, x)
    })
}

/// Cholesky.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_cholesky_ex.L(Tensor self, *, bool upper=False, bool check_errors=False, Tensor(a!) L, Tensor(b!) info) -> (Tensor(a!) L, Tensor(b!) info)",
        prepare_ex,
    ),
    kernel(
        "aten::cholesky.out(Tensor self, bool upper=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_plain,
    ),
    kernel(
        "aten::cholesky_solve.out(Tensor self, Tensor input2, bool upper=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_solve,
    ),
    kernel(
        "aten::cholesky_inverse.out(Tensor self, bool upper=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_inverse,
    ),
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
