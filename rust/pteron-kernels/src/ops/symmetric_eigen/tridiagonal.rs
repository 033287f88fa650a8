//! Eigenvalues by reflections to a tridiagonal matrix, whose off-diagonal elements implicit QL steps with Wilkinson's shift
//! make vanish. All loops run along rows: vectors are rows until the end, and the rotations of a step are applied together,
//! a strip of columns at a time, so that every row is read once.
//!
//! Errors are of the size of rounding relative to the largest eigenvalue, as LAPACK's are; rotations of the whole matrix (the
//! plain kernel) are as accurate relative to small eigenvalues too. Source: Golub & Van Loan, Matrix Computations, 8.3.

use crate::ops::row_arithmetic::{add_scaled, combine, dot};

/// Steps per eigenvalue; two are usual.
const MOST_STEPS: usize = 60;

/// Columns that rotations are applied to at once.
const STRIP: usize = 16;

/// Rooms of a call.
pub(crate) const ROOMS: usize = 5;

/// Memory of a call beside the matrix and the vectors: `n` numbers each.
pub(crate) struct Rooms<'a> {
    /// The off-diagonal elements; factors of reflections meanwhile.
    beside: &'a mut [f64],
    taus: &'a mut [f64],
    product: &'a mut [f64],
    /// Cosines and sines of a step.
    cosines: &'a mut [f64],
    sines: &'a mut [f64],
}

impl<'a> Rooms<'a> {
    /// The rooms in one memory of [`ROOMS`] times `n` numbers.
    #[inline(always)]
    pub(crate) fn of(memory: &'a mut [f64], n: usize) -> Self {
        let (beside, rest) = memory.split_at_mut(n);
        let (taus, rest) = rest.split_at_mut(n);
        let (product, rest) = rest.split_at_mut(n);
        let (cosines, sines) = rest.split_at_mut(n);
        Rooms { beside, taus, product, cosines, sines }
    }
}

/// The eigenvalues of `a` (symmetric, no element above one), which is destroyed, in no order, and the eigenvectors as rows
/// of `vectors`, if wanted. False where they do not converge.
#[inline(always)]
pub(crate) fn eigen(
    a: &mut [f64],
    n: usize,
    values: &mut [f64],
    mut vectors: Option<&mut [f64]>,
    mut rooms: Rooms<'_>,
) -> bool {
    reduce(a, n, values, &mut rooms);
    if let Some(vectors) = vectors.as_deref_mut() {
        collect(a, n, rooms.taus, vectors);
    }
    diagonalize(n, values, vectors, &mut rooms)
}

/// Reflects `a` to a tridiagonal matrix: its diagonal goes to `values`, what is beside it to the rooms. Row `k` keeps the
/// vector of reflection `k` right of the diagonal.
#[inline(always)]
fn reduce(a: &mut [f64], n: usize, values: &mut [f64], rooms: &mut Rooms<'_>) {
    for k in 0..n {
        let (upper, below) = a.split_at_mut((k + 1) * n);
        values[k] = upper[k * n + k];
        (rooms.taus[k], rooms.beside[k]) = (0.0, 0.0);
        let v = &mut upper[k * n + k + 1..];
        let Some((head, tail)) = v.split_first_mut() else { break };
        rooms.beside[k] = *head;
        let square = dot(tail, tail);
        if square == 0.0 {
            continue;
        }
        let beta = -(*head * *head + square).sqrt().copysign(*head);
        let tau = (beta - *head) / beta;
        let scale = 1.0 / (*head - beta);
        tail.iter_mut().for_each(|x| *x *= scale);
        *head = 1.0;
        (rooms.taus[k], rooms.beside[k]) = (tau, beta);
        let v = &*v;
        let w = &mut rooms.product[..v.len()];
        // The rows are symmetric, so that sums of rows are the products with `v`.
        combine(below, [n, k + 1], v, w);
        w.iter_mut().for_each(|x| *x *= tau);
        let share = -0.5 * tau * dot(w, v);
        add_scaled(w, share, v);
        for (i, row) in below.chunks_exact_mut(n).enumerate() {
            let (p, q) = (v[i], w[i]);
            for ((x, v), w) in row[k + 1..].iter_mut().zip(v).zip(&*w) {
                *x -= p * w + q * v;
            }
        }
    }
}

/// The product of the reflections that `reduce` left in `a`, transposed.
#[inline(always)]
fn collect(a: &[f64], n: usize, taus: &[f64], vectors: &mut [f64]) {
    vectors.fill(0.0);
    vectors.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
    for k in (0..n).rev() {
        if taus[k] == 0.0 {
            continue;
        }
        let v = &a[k * n + k + 1..(k + 1) * n];
        for row in vectors[(k + 1) * n..].chunks_exact_mut(n) {
            let row = &mut row[k + 1..];
            let share = -taus[k] * dot(row, v);
            add_scaled(row, share, v);
        }
    }
}

/// Makes the elements beside the diagonal vanish. False where they do not.
#[inline(always)]
fn diagonalize(n: usize, d: &mut [f64], mut vectors: Option<&mut [f64]>, rooms: &mut Rooms<'_>) -> bool {
    let e = &mut *rooms.beside;
    for first in 0..n {
        let mut steps = 0;
        loop {
            let is_small = |k: usize| e[k].abs() <= f64::EPSILON * (d[k].abs() + d[k + 1].abs());
            let last = (first..n - 1).find(|k| is_small(*k)).unwrap_or(n - 1);
            if last == first {
                break;
            }
            if steps == MOST_STEPS {
                return false;
            }
            steps += 1;
            let stop = step(first, last, d, e, (&mut *rooms.cosines, &mut *rooms.sines));
            if let Some(vectors) = vectors.as_deref_mut() {
                rotate(vectors, n, stop, last, rooms.cosines, rooms.sines);
            }
        }
    }
    true
}

/// One step on elements `first..=last`: rotation `i` is of rows `i` and `i + 1`, from the last down to the one returned.
#[inline(always)]
fn step(
    first: usize,
    last: usize,
    d: &mut [f64],
    e: &mut [f64],
    (cosines, sines): (&mut [f64], &mut [f64]),
) -> usize {
    // The eigenvalue of the upper two by two block that is nearer to its first element.
    let half = (d[first + 1] - d[first]) / (2.0 * e[first]);
    let shift = d[first] - e[first] / (half + 1f64.hypot(half).copysign(half));
    let (mut s, mut c, mut moved) = (1.0, 1.0, 0.0);
    let mut g = d[last] - shift;
    for i in (first..last).rev() {
        let (f, b) = (s * e[i], c * e[i]);
        let r = (f * f + g * g).sqrt();
        if r == 0.0 {
            // Nothing is left to rotate: the matrix falls apart here.
            e[i + 1] = 0.0;
            d[i + 1] -= moved;
            e[last] = 0.0;
            return i + 1;
        }
        if i + 1 < last {
            e[i + 1] = r;
        }
        (s, c) = (f / r, g / r);
        let lowered = d[i + 1] - moved;
        let t = (d[i] - lowered) * s + 2.0 * c * b;
        moved = s * t;
        d[i + 1] = lowered + moved;
        g = c * t - b;
        (cosines[i], sines[i]) = (c, s);
    }
    d[first] -= moved;
    e[first] = g;
    first
}

/// Rotates rows `i` and `i + 1` for every `i` from `last - 1` down to `first`.
#[inline(always)]
fn rotate(vectors: &mut [f64], n: usize, first: usize, last: usize, cosines: &[f64], sines: &[f64]) {
    let mut at = 0;
    while at + STRIP <= n {
        let mut lower: [f64; STRIP] = [0.0; STRIP];
        lower.copy_from_slice(&vectors[last * n + at..][..STRIP]);
        for i in (first..last).rev() {
            let (c, s) = (cosines[i], sines[i]);
            let (above, below) = vectors.split_at_mut((i + 1) * n);
            let (above, below) = (&above[i * n + at..][..STRIP], &mut below[at..][..STRIP]);
            for ((below, above), lower) in below.iter_mut().zip(above).zip(&mut lower) {
                (*below, *lower) = (s * above + c * *lower, c * above - s * *lower);
            }
        }
        vectors[first * n + at..][..STRIP].copy_from_slice(&lower);
        at += STRIP;
    }
    for i in (first..last).rev() {
        let (c, s) = (cosines[i], sines[i]);
        let (above, below) = vectors.split_at_mut((i + 1) * n);
        for (above, below) in above[i * n + at..].iter_mut().zip(&mut below[at..n]) {
            (*below, *above) = (s * *above + c * *below, c * *above - s * *below);
        }
    }
}
