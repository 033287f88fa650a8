//! Eigenvalues and eigenvectors of symmetric matrices.
//!
//! In the plain kernel rotations make the off-diagonal elements smaller until they vanish (cyclic Jacobi), which gives small
//! eigenvalues with high relative accuracy; the fast one ([`tridiagonal`]) is as accurate as LAPACK. Shape: eigenvalues `[*, n]` in ascending order, eigenvectors
//! `[*, n, n]` in columns; these are unique up to their sign, and within equal eigenvalues up to a rotation.
//! Dtype: float32 and float64, computed in float64. Edge cases: one triangle is read; what is not finite
//! gives NaN up to order two and is an error from three on, as in PyTorch. Source: Golub & Van Loan, Matrix Computations, 8.5.

use crate::operator::{Operator, kernel};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, items, joined, largest, load, rooms, split_square, store,
};
use crate::routine::{Preparation, Routine};
use pteron_core::{ArgSpec, Args, BindArgs, Dims, Error, PrepareContext, Result};

mod fast;
pub(crate) mod tridiagonal;

/// Quadratic convergence ends far earlier.
const MOST_SWEEPS: usize = 60;

/// Cosine and sine of the rotation that makes the off-diagonal element `apq` zero.
pub(crate) fn rotation(app: f64, aqq: f64, apq: f64) -> (f64, f64) {
    let tau = (aqq - app) / (2.0 * apq);
    let t = tau.signum() / (tau.abs() + 1f64.hypot(tau));
    let c = 1.0 / 1f64.hypot(t);
    (c, t * c)
}

/// Turns `a` diagonal; `vectors` becomes the product of the rotations.
fn diagonalize(a: &mut [f64], n: usize, vectors: &mut [f64]) -> Result<()> {
    vectors.fill(0.0);
    vectors.iter_mut().step_by(n + 1).for_each(|v| *v = 1.0);
    for _ in 0..MOST_SWEEPS {
        let mut has_changed = false;
        for p in 0..n {
            for q in p + 1..n {
                let apq = a[p * n + q];
                // Too small to change either diagonal element.
                if apq.abs() <= f64::EPSILON * 1e-3 * (a[p * n + p].abs() * a[q * n + q].abs()).sqrt()
                    || apq.abs() < f64::MIN_POSITIVE
                {
                    continue;
                }
                has_changed = true;
                let (c, s) = rotation(a[p * n + p], a[q * n + q], apq);
                for k in 0..n {
                    let (x, y) = (a[k * n + p], a[k * n + q]);
                    (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (vectors[k * n + p], vectors[k * n + q]);
                    (vectors[k * n + p], vectors[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[p * n + k], a[q * n + k]);
                    (a[p * n + k], a[q * n + k]) = (c * x - s * y, s * x + c * y);
                }
                (a[p * n + q], a[q * n + p]) = (0.0, 0.0);
            }
        }
        if !has_changed {
            return Ok(());
        }
    }
    Err(Error::kernel("the eigenvalues did not converge").argument("A"))
}

/// Loads one triangle into both, scaled so that nothing overflows; the factor that undoes it.
fn load_symmetric(
    args: &Args<'_>,
    batch: &Dims,
    item: usize,
    n: usize,
    is_lower: bool,
    a: &mut [f64],
) -> Result<f64> {
    load(args, (0, 2), batch, item, a)?;
    for i in 0..n {
        for j in 0..i {
            let v = if is_lower { a[i * n + j] } else { a[j * n + i] };
            (a[i * n + j], a[j * n + i]) = (v, v);
        }
    }
    let largest = a.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if a.iter().any(|v| !v.is_finite()) {
        if n <= 2 {
            return Ok(f64::NAN);
        }
        return Err(Error::kernel("the matrix has elements that are not finite").argument("A"));
    }
    let scale = if largest > 0.0 { largest } else { 1.0 };
    a.iter_mut().for_each(|v| *v /= scale);
    Ok(scale)
}

fn is_lower(uplo: Option<&str>) -> Result<bool> {
    match uplo {
        Some("L" | "l") => Ok(true),
        Some("U" | "u") => Ok(false),
        _ => Err(Error::kernel("unknown triangle").argument("UPLO").expected("'L' or 'U'")),
    }
}

fn bind(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    let (batch, n) = split_square(&shape, "A")?;
    let vectors = if view.bool(2)? { shape } else { Dims::new(&[0])? };
    args.resize(3, &joined(&batch, &[n])?)?;
    args.resize(4, &vectors)?;
    items(&batch, &[10, n, n, n])
}

fn run(args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "A")?;
    let [a, vectors, values, sorted, order] = rooms(memory, [n * n, n * n, n, n * n, n])?;
    let scale = load_symmetric(args, &batch, item, n, is_lower(args.optional_string(1)?)?, a)?;
    if scale.is_nan() {
        return store_not_finite(args, &batch, item, a, values, sorted);
    }
    diagonalize(a, n, vectors)?;
    order.iter_mut().enumerate().for_each(|(i, o)| *o = i as f64);
    order.sort_unstable_by(|i, j| a[*i as usize * (n + 1)].total_cmp(&a[*j as usize * (n + 1)]));
    for (to, from) in order.iter().enumerate() {
        let from = *from as usize;
        values[to] = a[from * (n + 1)] * scale;
        (0..n).for_each(|k| sorted[k * n + to] = vectors[k * n + from]);
    }
    store_results(args, &batch, item, values, sorted)
}

/// Stores what comes of a matrix of order one or two that is not finite.
fn store_not_finite(
    args: &Args<'_>,
    batch: &Dims,
    item: usize,
    a: &[f64],
    values: &mut [f64],
    vectors: &mut [f64],
) -> Result<()> {
    let (value, vector) = if a.len() == 1 { (a[0], 1.0) } else { (f64::NAN, f64::NAN) };
    values.fill(value);
    vectors.fill(vector);
    store_results(args, batch, item, values, vectors)
}

fn store_results(args: &Args<'_>, batch: &Dims, item: usize, values: &[f64], vectors: &[f64]) -> Result<()> {
    store(args, (3, 1), batch, item, values)?;
    if args.bool(2)? { store(args, (4, 2), batch, item, vectors) } else { Ok(()) }
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 3, 4])?;
    if let Some(ArgSpec::String(uplo)) = ctx.args.get(1) {
        is_lower(Some(uplo))?;
    }
    let [n, _] = largest(ctx, 0);
    Routine::per_item(bytes_for(&[&[3, n, n], &[2, n]])?, bind, |args, n, s| run(args, n, s.worker))
}

/// _linalg_eigh.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::_linalg_eigh.eigenvalues(Tensor A, str UPLO=\"L\", bool compute_v=True, *, Tensor(a!) eigenvalues, Tensor(b!) eigenvectors) -> (Tensor(a!) eigenvalues, Tensor(b!) eigenvectors)",
    prepare,
)
.fast("tridiagonal", fast::prepare)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_values_rebuild_the_matrix() {
        let n = 5;
        let a: Vec<f64> = (0..25)
            .map(|i| f64::from((i / 5 + 1) * (i % 5 + 1) % 7) + f64::from(u8::from(i % 6 == 0)) * 1e-8)
            .collect();
        let (mut d, mut v) = (a.clone(), vec![0.0; 25]);
        diagonalize(&mut d, n, &mut v).unwrap();
        for i in 0..n {
            for j in 0..n {
                let sum: f64 = (0..n).map(|k| v[i * n + k] * d[k * n + k] * v[j * n + k]).sum();
                assert!((sum - a[i * n + j]).abs() < 1e-13);
            }
        }
    }
}
