//! Orthogonal factors as products of reflections: QR factorisation and what works with its reflectors.
//!
//! H = I − τ·v·vᵀ with v₁ = 1 turns a column into a multiple of the first unit vector; the vectors lie below
//! the diagonal of R. Signs are LAPACK's: the diagonal of R has the sign opposite to the column's first
//! element, and a column that is done already is left alone. Shape: batches of matrices. Dtype: float32 and
//! float64, computed in float64. Source: Golub & Van Loan, Matrix Computations, 5.1 and 5.2.

use crate::operator::{Operator, kernel};
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, check_items, items, joined, largest, load, rooms, split, store, transpose,
};
use crate::routine::{Preparation, Routine};
use pteron_core::{ArgSpec, Args, BindArgs, Dims, Error, PrepareContext, Result};

/// A row-major matrix whose columns hold reflectors below the diagonal.
struct Reflectors<'a> {
    vectors: &'a [f64],
    extents: [usize; 2],
}

impl Reflectors<'_> {
    /// Applies the reflection of column `k` to the columns from `from` on of `target`, `width` in all.
    fn apply(&self, (k, tau): (usize, f64), target: &mut [f64], width: usize, from: usize) {
        if tau == 0.0 {
            return;
        }
        let [rows, columns] = self.extents;
        let v = |i: usize| if i == k { 1.0 } else { self.vectors[i * columns + k] };
        for j in from..width {
            let dot: f64 = (k..rows).map(|i| v(i) * target[i * width + j]).sum();
            (k..rows).for_each(|i| target[i * width + j] -= tau * dot * v(i));
        }
    }
}

/// Factors `a` in place: R above, reflectors below; `taus` takes their factors. `copy` is as large as `a`.
pub(crate) fn factor(a: &mut [f64], [rows, columns]: [usize; 2], taus: &mut [f64], copy: &mut [f64]) {
    for (k, tau) in taus.iter_mut().enumerate().take(rows.min(columns)) {
        let head = a[k * columns + k];
        let tail = (k + 1..rows).fold(0.0f64, |n, i| n.hypot(a[i * columns + k]));
        *tau = 0.0;
        if tail == 0.0 {
            continue;
        }
        let beta = -head.hypot(tail).copysign(head);
        *tau = (beta - head) / beta;
        (k + 1..rows).for_each(|i| a[i * columns + k] /= head - beta);
        a[k * columns + k] = beta;
        (k..rows).for_each(|i| copy[i * columns + k] = a[i * columns + k]);
        let reflectors = Reflectors { vectors: copy, extents: [rows, columns] };
        reflectors.apply((k, *tau), a, columns, k + 1);
    }
}

/// The first `width` columns of the product of the reflections of `a`.
pub(crate) fn product(a: &[f64], extents: [usize; 2], taus: &[f64], q: &mut [f64], width: usize) {
    q.fill(0.0);
    (0..extents[0].min(width)).for_each(|i| q[i * width + i] = 1.0);
    for (k, tau) in taus.iter().enumerate().rev() {
        Reflectors { vectors: a, extents }.apply((k, *tau), q, width, 0);
    }
}

/// What `mode` of `linalg_qr` asks for: Q at all, and all of its columns.
fn mode(ctx: &PrepareContext<'_>) -> Result<(bool, bool)> {
    match ctx.args.get(1) {
        Some(ArgSpec::String("reduced")) => Ok((true, false)),
        Some(ArgSpec::String("complete")) => Ok((true, true)),
        Some(ArgSpec::String("r")) => Ok((false, false)),
        _ => Err(Error::kernel("unknown mode").argument("mode").expected("'reduced', 'complete' or 'r'")),
    }
}

/// Columns of Q, which are the rows of R.
fn inner([rows, columns]: [usize; 2], is_complete: bool) -> usize {
    if is_complete { rows } else { rows.min(columns) }
}

fn bind_qr<const HAS_Q: bool, const COMPLETE: bool>(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let (batch, extents) = split(args.args().tensor(0)?.shape(), "A")?;
    let inner = inner(extents, COMPLETE);
    let q = if HAS_Q { joined(&batch, &[extents[0], inner])? } else { Dims::new(&[0])? };
    args.resize(2, &q)?;
    args.resize(3, &joined(&batch, &[inner, extents[1]])?)?;
    items(&batch, &[2, extents[0], extents[1], inner])
}

fn run_qr<const HAS_Q: bool, const COMPLETE: bool>(
    args: &Args<'_>,
    item: usize,
    memory: &mut [u8],
) -> Result<()> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "A")?;
    let [rows, columns] = extents;
    let inner = inner(extents, COMPLETE);
    let [a, copy, taus, q] =
        rooms(memory, [rows * columns, rows * columns, rows.min(columns), rows * rows.max(columns)])?;
    load(args, (0, 2), &batch, item, a)?;
    factor(a, extents, taus, copy);
    if HAS_Q {
        let q = &mut q[..rows * inner];
        product(a, extents, taus, q, inner);
        store(args, (2, 2), &batch, item, q)?;
    }
    for i in 0..inner.min(rows) {
        let below = i.min(columns);
        a[i * columns..i * columns + below].fill(0.0);
    }
    store(args, (3, 2), &batch, item, &a[..inner * columns])
}

fn prepare_qr(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 2, 3])?;
    let [rows, columns] = largest(ctx, 0);
    let bytes = bytes_for(&[&[2, rows, columns], &[rows.min(columns)], &[rows, rows.max(columns)]])?;
    match mode(ctx)? {
        (true, false) => Routine::per_item(bytes, bind_qr::<true, false>, |args, n, s| {
            run_qr::<true, false>(args, n, s.worker)
        }),
        (true, true) => Routine::per_item(bytes, bind_qr::<true, true>, |args, n, s| {
            run_qr::<true, true>(args, n, s.worker)
        }),
        _ => Routine::per_item(bytes, bind_qr::<false, false>, |args, n, s| {
            run_qr::<false, false>(args, n, s.worker)
        }),
    }
}

fn prepare_geqrf(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 2])?;
    let [rows, columns] = largest(ctx, 0);
    Routine::per_item(
        bytes_for(&[&[2, rows, columns], &[rows.min(columns)]])?,
        |args| {
            let shape = *args.args().tensor(0)?.shape();
            let (batch, [rows, columns]) = split(&shape, "self")?;
            args.resize(1, &shape)?;
            args.resize(2, &joined(&batch, &[rows.min(columns)])?)?;
            items(&batch, &[2, rows, columns, rows.min(columns)])
        },
        |args, item, s| {
            let (batch, extents) = split(args.tensor(0)?.shape(), "self")?;
            let area = extents[0] * extents[1];
            let [a, copy, taus] = rooms(s.worker, [area, area, extents[0].min(extents[1])])?;
            load(args, (0, 2), &batch, item, a)?;
            factor(a, extents, taus, copy);
            store(args, (1, 2), &batch, item, a)?;
            store(args, (2, 1), &batch, item, taus)
        },
    )
}

/// Number of reflectors of argument 0, whose factors are argument 1.
fn reflectors(args: &Args<'_>) -> Result<(Dims, [usize; 2], usize)> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "input")?;
    let count = args.tensor(1)?.shape().last().copied().unwrap_or(0);
    check_items(args, 1, "tau", &batch, &[count])?;
    if count > extents[1] || extents[1] > extents[0] {
        return Err(Error::kernel("there must be at most as many reflectors as columns, and those as rows")
            .argument("input")
            .got(format!("{extents:?} with {count} factors")));
    }
    Ok((batch, extents, count))
}

fn prepare_product(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 2])?;
    let [rows, columns] = largest(ctx, 0);
    Routine::per_item(
        bytes_for(&[&[2, rows, columns], &[columns]])?,
        |args| {
            let view = args.args();
            let (batch, extents, count) = reflectors(&view)?;
            args.resize(2, &joined(&batch, &extents)?)?;
            items(&batch, &[2, extents[0], extents[1], count])
        },
        |args, item, s| {
            let (batch, extents, count) = reflectors(args)?;
            let area = extents[0] * extents[1];
            let [a, q, taus] = rooms(s.worker, [area, area, count])?;
            load(args, (0, 2), &batch, item, a)?;
            load(args, (1, 1), &batch, item, taus)?;
            product(a, extents, taus, q, extents[1]);
            store(args, (2, 2), &batch, item, q)
        },
    )
}

/// Product of the reflections (or its transposed) with a matrix, from the left or from the right.
fn bind_ormqr(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (batch, [rows, columns]) = split(view.tensor(0)?.shape(), "self")?;
    let count = view.tensor(1)?.shape().last().copied().unwrap_or(0);
    check_items(&view, 1, "input2", &batch, &[count])?;
    let shape = *view.tensor(2)?.shape();
    let (other, extents) = split(&shape, "input3")?;
    let is_left = view.bool(3)?;
    if other != batch || extents[usize::from(!is_left)] != rows || count > columns.min(rows) {
        return Err(Error::kernel("the reflectors do not fit the matrix")
            .argument("input3")
            .got(format!("{shape} for {count} reflectors of {rows} rows")));
    }
    args.resize(5, &shape)?;
    items(&batch, &[4, extents[0], extents[1], count])
}

fn run_ormqr(args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, [rows, columns]) = split(args.tensor(0)?.shape(), "self")?;
    let (_, extents) = split(args.tensor(2)?.shape(), "input3")?;
    let (is_left, is_transposed) = (args.bool(3)?, args.bool(4)?);
    let count = args.tensor(1)?.shape().last().copied().unwrap_or(0);
    let area = extents[0] * extents[1];
    let [a, taus, c, turned] = rooms(memory, [rows * columns, count, area, area])?;
    load(args, (0, 2), &batch, item, a)?;
    load(args, (1, 1), &batch, item, taus)?;
    load(args, (2, 2), &batch, item, c)?;
    // C·Q is (Qᵀ·Cᵀ)ᵀ, and Qᵀ applies the reflections in the other order.
    let is_forward = is_left == is_transposed;
    let width = extents[usize::from(is_left)];
    if !is_left {
        transpose(c, extents, turned);
        c.copy_from_slice(turned);
    }
    for step in 0..count {
        let k = if is_forward { step } else { count - 1 - step };
        Reflectors { vectors: a, extents: [rows, columns] }.apply((k, taus[k]), c, width, 0);
    }
    if !is_left {
        transpose(c, [rows, width], turned);
        c.copy_from_slice(turned);
    }
    store(args, (5, 2), &batch, item, c)
}

fn prepare_ormqr(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 1, 2, 5])?;
    let ([rows, columns], [a, b]) = (largest(ctx, 0), largest(ctx, 2));
    let bytes = bytes_for(&[&[rows, columns], &[columns], &[2, a, b]])?;
    Routine::per_item(bytes, bind_ormqr, |args, n, s| run_ormqr(args, n, s.worker))
}

/// QR and its reflectors.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::linalg_qr.out(Tensor A, str mode=\"reduced\", *, Tensor(a!) Q, Tensor(b!) R) -> (Tensor(a!) Q, Tensor(b!) R)",
        prepare_qr,
    ),
    kernel(
        "aten::geqrf.a(Tensor self, *, Tensor(a!) a, Tensor(b!) tau) -> (Tensor(a!) a, Tensor(b!) tau)",
        prepare_geqrf,
    ),
    kernel(
        "aten::linalg_householder_product.out(Tensor input, Tensor tau, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_product,
    ),
    kernel(
        "aten::ormqr.out(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_ormqr,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_multiply_to_the_matrix() {
        let extents = [4, 3];
        let a: Vec<f64> = (0..12).map(|i| f64::from(i * i % 7) - 3.0).collect();
        let (mut r, mut copy, mut taus, mut q) = (a.clone(), vec![0.0; 12], vec![0.0; 3], vec![0.0; 12]);
        factor(&mut r, extents, &mut taus, &mut copy);
        product(&r, extents, &taus, &mut q, 3);
        for i in 0..4 {
            for j in 0..3 {
                let sum: f64 = (0..=j).map(|k| q[i * 3 + k] * r[k * 3 + j]).sum();
                assert!((sum - a[i * 3 + j]).abs() < 1e-12);
            }
        }
    }
}
