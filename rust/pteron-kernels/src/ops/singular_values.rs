//! Singular value decomposition.
//!
//! Rotations of pairs of columns make them orthogonal (one-sided Jacobi): their lengths are the singular
//! values, which come out with high relative accuracy. A matrix wider than high is decomposed transposed.
//! Shape: U `[*, m, k]`, S `[*, k]` descending, Vh `[*, k, n]`, k = min(m, n) or, with full matrices, m and n.
//! Vectors are unique up to a common sign of a pair. Dtype: float32 and float64, computed in float64. Edge
//! cases: what is not finite is an error; vectors of zero singular values complete an orthonormal basis.
//! Source: Golub & Van Loan, Matrix Computations, 8.6.3.

use crate::operator::{Operator, kernel};
use crate::ops::dense::plain;
use crate::ops::matrix_batch::{
    bytes_for, check_dtypes, items, joined, largest, load, rooms, split, store, transpose,
};
use crate::ops::symmetric_eigen::rotation;
use crate::routine::{Preparation, Routine};
use pteron_core::{Args, BindArgs, Dims, Error, PrepareContext, Result};

mod fast;
mod rows;

/// Quadratic convergence ends far earlier.
const MOST_SWEEPS: usize = 60;

/// Makes the rows of `a` (`count` of `length`) orthogonal by rotations, which `v` collects.
fn orthogonalize(a: &mut [f64], count: usize, length: usize, v: &mut [f64]) -> Result<()> {
    v.fill(0.0);
    v.iter_mut().step_by(count + 1).for_each(|x| *x = 1.0);
    let turn = |rows: &mut [f64], p: usize, q: usize, length: usize, (c, s): (f64, f64)| {
        let (low, high) = rows.split_at_mut(q * length);
        for (x, y) in low[p * length..][..length].iter_mut().zip(&mut high[..length]) {
            (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
        }
    };
    for _ in 0..MOST_SWEEPS {
        let mut has_changed = false;
        for p in 0..count {
            for q in p + 1..count {
                let (x, y) = (&a[p * length..][..length], &a[q * length..][..length]);
                let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                let (pp, qq, pq) = (dot(x, x), dot(y, y), dot(x, y));
                if pq.abs() <= f64::EPSILON * (pp * qq).sqrt() || pq.abs() < f64::MIN_POSITIVE {
                    continue;
                }
                has_changed = true;
                let by = rotation(pp, qq, pq);
                turn(a, p, q, length, by);
                turn(v, p, q, count, by);
            }
        }
        if !has_changed {
            return Ok(());
        }
    }
    Err(not_converged())
}

#[cold]
fn not_converged() -> Error {
    Error::kernel("the singular values did not converge").argument("A")
}

/// Makes `basis`, `total` rows of `length`, orthonormal: the first `known` already are, the rest is new.
fn complete(basis: &mut [f64], known: usize, total: usize, length: usize, [a, copy, taus]: [&mut [f64]; 3]) {
    if known == total {
        return;
    }
    // The known rows as columns of a matrix: its Q begins with them (up to the sign) and goes on orthonormal.
    transpose(&basis[..known * length], [known, length], a);
    plain::reflect(&mut a[..length * known], [length, known], &mut taus[..known], copy);
    plain::reflections(
        &a[..length * known],
        [length, known],
        &taus[..known],
        &mut copy[..length * total],
        total,
    );
    for row in known..total {
        (0..length).for_each(|i| basis[row * length + i] = copy[i * total + row]);
    }
}

/// The products whose sum is how many numbers [`sizes`] has.
fn own_sizes([high, wide]: [usize; 2]) -> [[usize; 3]; 4] {
    [[2, high, wide], [1, wide, wide], [3, wide, 1], [2, high, high]]
}

/// Extents of the matrix as it is decomposed (at least as high as wide), and whether that is transposed.
fn tall([rows, columns]: [usize; 2]) -> ([usize; 2], bool) {
    if rows < columns { ([columns, rows], true) } else { ([rows, columns], false) }
}

fn bind(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let view = args.args();
    let (batch, [rows, columns]) = split(view.tensor(0)?.shape(), "A")?;
    let inner = rows.min(columns);
    let (is_full, has_vectors) = (view.bool(1)?, view.bool(2)?);
    let side = |extent: usize| if is_full { extent } else { inner };
    let none = Dims::new(&[0])?;
    let left = if has_vectors { joined(&batch, &[rows, side(rows)])? } else { none };
    let right = if has_vectors { joined(&batch, &[side(columns), columns])? } else { none };
    args.resize(4, &left)?;
    args.resize(5, &joined(&batch, &[inner])?)?;
    args.resize(6, &right)?;
    items(&batch, &[10, rows, columns, inner])
}

/// Rooms of a call: the matrix by columns, V by columns, values, order, left basis, and what `complete` needs.
fn sizes([high, wide]: [usize; 2]) -> [usize; 8] {
    [high * wide, wide * wide, wide, wide, high * high, high * wide, high * high, wide]
}

/// Decomposes item `item`; `turn` makes the rows of the matrix orthogonal, as [`orthogonalize`] does, with the memory that is
/// left.
fn run(
    args: &Args<'_>,
    item: usize,
    memory: &mut [u8],
    turn: impl FnOnce(&mut [f64], [usize; 2], &mut [f64], &mut [u8]) -> Result<()>,
) -> Result<()> {
    let (batch, extents) = split(args.tensor(0)?.shape(), "A")?;
    let ([high, wide], is_transposed) = tall(extents);
    let sizes = sizes([high, wide]);
    let own = sizes.iter().sum::<usize>() * size_of::<f64>();
    let (memory, rest) =
        memory.split_at_mut_checked(own).ok_or_else(|| Error::internal("scratch is too small"))?;
    let [a, v, values, order, left, extra, copy, taus] = rooms::<f64, 8>(memory, sizes)?;
    // `a` holds the columns of the tall matrix as rows.
    if is_transposed {
        load(args, (0, 2), &batch, item, a)?;
    } else {
        load(args, (0, 2), &batch, item, extra)?;
        transpose(extra, extents, a);
    }
    if a.iter().any(|x| !x.is_finite()) {
        return Err(Error::kernel("the matrix has elements that are not finite").argument("A"));
    }
    let scale = a.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let scale = if scale > 0.0 { scale } else { 1.0 };
    a.iter_mut().for_each(|x| *x /= scale);
    turn(a, [wide, high], v, rest)?;
    for (i, value) in values.iter_mut().enumerate() {
        *value = a[i * high..][..high].iter().map(|x| x * x).sum::<f64>().sqrt();
        order[i] = i as f64;
    }
    order.sort_unstable_by(|i, j| values[*j as usize].total_cmp(&values[*i as usize]));
    let rank = order.iter().take_while(|i| values[**i as usize] > 0.0).count();
    for (to, from) in order.iter().enumerate().take(rank) {
        let from = *from as usize;
        (0..high).for_each(|k| left[to * high + k] = a[from * high + k] / values[from]);
    }
    // Values in order, in memory that is not needed any more.
    order.iter().enumerate().for_each(|(to, from)| taus[to] = values[*from as usize] * scale);
    store(args, (5, 1), &batch, item, taus)?;
    if !args.bool(2)? {
        return Ok(());
    }
    let total = if args.bool(1)? { high } else { wide };
    complete(left, rank, total, high, [extra, copy, taus]);
    // Right vectors in order, as rows.
    order.iter().enumerate().for_each(|(to, from)| {
        let from = *from as usize;
        (0..wide).for_each(|k| a[to * wide + k] = v[from * wide + k]);
    });
    let (tall_at, wide_at) = if is_transposed { (6, 4) } else { (4, 6) };
    if is_transposed {
        store(args, (tall_at, 2), &batch, item, &left[..total * high])?;
        transpose(&a[..wide * wide], [wide, wide], v);
        store(args, (wide_at, 2), &batch, item, v)
    } else {
        transpose(&left[..total * high], [total, high], copy);
        store(args, (tall_at, 2), &batch, item, &copy[..high * total])?;
        store(args, (wide_at, 2), &batch, item, &a[..wide * wide])
    }
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check_dtypes(ctx, &[0, 4, 5, 6])?;
    let (extents, _) = tall(largest(ctx, 0));
    let bytes = bytes_for(&own_sizes(extents).each_ref().map(|s| &s[..]))?;
    Routine::per_item(bytes, bind, |args, n, s| {
        run(args, n, s.worker, |a, [wide, high], v, _| orthogonalize(a, wide, high, v))
    })
}

/// _linalg_svd.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::_linalg_svd.U(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None, Tensor(a!) U, Tensor(b!) S, Tensor(c!) Vh) -> (Tensor(a!) U, Tensor(b!) S, Tensor(c!) Vh)",
    prepare,
)
.fast("rows", fast::prepare)];
