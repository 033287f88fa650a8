//! Factorisations and substitution loop by loop, in float64.
//!
//! Source: Golub & Van Loan, Matrix Computations, 3.1, 3.4, 4.2, 5.1 and 5.2.

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

/// Factors the row-major matrix `a` in place; row `k` was exchanged with `pivots[k]`. Gives the number of the
/// first zero pivot from 1, or 0.
pub(crate) fn factor(a: &mut [f64], [rows, columns]: [usize; 2], pivots: &mut [f64]) -> i64 {
    let mut info = 0;
    for k in 0..rows.min(columns) {
        let mut best = k;
        for i in k + 1..rows {
            if a[i * columns + k].abs() > a[best * columns + k].abs() {
                best = i;
            }
        }
        pivots[k] = best as f64;
        if best != k {
            for j in 0..columns {
                a.swap(k * columns + j, best * columns + j);
            }
        }
        let pivot = a[k * columns + k];
        if pivot == 0.0 {
            info = if info == 0 { k as i64 + 1 } else { info };
            continue;
        }
        for i in k + 1..rows {
            let (above, below) = a.split_at_mut(i * columns);
            let factor = below[k] / pivot;
            below[k] = factor;
            for (x, u) in below[k + 1..columns].iter_mut().zip(&above[k * columns + k + 1..(k + 1) * columns])
            {
                *x -= factor * u;
            }
        }
    }
    info
}

/// Exchanges rows of `b` as the factorisation did, or back.
pub(crate) fn exchange<T>(pivots: &[f64], b: &mut [T], width: usize, is_back: bool) {
    let mut swap = |k: usize| {
        let other = pivots[k] as usize;
        if other != k {
            (0..width).for_each(|j| b.swap(k * width + j, other * width + j));
        }
    };
    if is_back { (0..pivots.len()).rev().for_each(&mut swap) } else { (0..pivots.len()).for_each(&mut swap) }
}

/// Replaces the lower triangle of `a` by L and clears the other; the order of the first leading minor that is
/// not positive, or 0.
pub(crate) fn cholesky(a: &mut [f64], n: usize) -> usize {
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

/// A row-major matrix whose columns hold reflectors below the diagonal.
pub(crate) struct Reflectors<'a> {
    pub(crate) vectors: &'a [f64],
    pub(crate) extents: [usize; 2],
}

impl Reflectors<'_> {
    /// Applies the reflection of column `k` to the columns from `from` on of `target`, `width` in all.
    pub(crate) fn apply(&self, (k, tau): (usize, f64), target: &mut [f64], width: usize, from: usize) {
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
pub(crate) fn reflect(a: &mut [f64], [rows, columns]: [usize; 2], taus: &mut [f64], copy: &mut [f64]) {
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
pub(crate) fn reflections(a: &[f64], extents: [usize; 2], taus: &[f64], q: &mut [f64], width: usize) {
    q.fill(0.0);
    (0..extents[0].min(width)).for_each(|i| q[i * width + i] = 1.0);
    for (k, tau) in taus.iter().enumerate().rev() {
        Reflectors { vectors: a, extents }.apply((k, *tau), q, width, 0);
    }
}
