//! One-sided rotations as in the plain kernel, on rows that hold a column of the matrix and its column of V side by side, in
//! loops that the compiler vectorises. They start near the end: from the eigenvectors of the products of all columns, which
//! leave what rounding has made of small singular values to them. Squared lengths are kept from pair to pair and taken anew
//! in every sweep.

use crate::ops::row_arithmetic::{combine, dot};
use crate::ops::symmetric_eigen::tridiagonal::{Rooms, eigen};

/// Quadratic convergence ends far earlier.
const MOST_SWEEPS: usize = 60;

/// Memory of a call: the rows, products and eigenvectors, `count` by `count` each, and one number for each row.
pub(super) struct Memory<'a> {
    /// `count` rows of `length + count`, for results.
    pub rows: &'a mut [f64],
    pub products: &'a mut [f64],
    pub vectors: &'a mut [f64],
    pub squares: &'a mut [f64],
    /// As many times `count` as [`Rooms`] takes.
    pub rooms: &'a mut [f64],
}

/// Turns the columns of a matrix, which are `count` rows of `length` in `a`, orthogonal: rows of `memory` hold them and,
/// behind each, the column of V. False where that does not converge.
#[inline(always)]
pub(super) fn decompose(a: &[f64], [count, length]: [usize; 2], memory: &mut Memory<'_>) -> bool {
    let Memory { rows, products, vectors, squares, rooms } = memory;
    let width = length + count;
    let row = |i: usize| &a[i * length..][..length];
    for i in 0..count {
        for j in 0..=i {
            let product = dot(row(i), row(j));
            (products[i * count + j], products[j * count + i]) = (product, product);
        }
    }
    if !eigen(products, count, squares, Some(vectors), Rooms::of(rooms, count)) {
        vectors.fill(0.0);
        vectors.iter_mut().step_by(count + 1).for_each(|x| *x = 1.0);
    }
    for (row, v) in rows.chunks_exact_mut(width).zip(vectors.chunks_exact(count)) {
        let (turned, beside) = row.split_at_mut(length);
        combine(a, [length, 0], v, turned);
        beside.copy_from_slice(v);
    }
    orthogonalize(rows, [count, length, width], squares)
}

/// Makes the first `length` numbers of the rows of `a`, `count` of `width`, orthogonal to each other; what is behind them is
/// rotated along. `squares` takes the squared lengths. Rows that are nothing but what rounding leaves of the longest become
/// zero: they have no direction, and would never be orthogonal. False where that does not converge.
#[inline(always)]
fn orthogonalize(a: &mut [f64], [count, length, width]: [usize; 3], squares: &mut [f64]) -> bool {
    // What rounding leaves of the product of orthogonal rows grows with their length.
    let least = f64::EPSILON * (length as f64).sqrt();
    for _ in 0..MOST_SWEEPS {
        for (square, row) in squares.iter_mut().zip(a.chunks_exact(width)) {
            *square = dot(&row[..length], &row[..length]);
        }
        let longest = squares.iter().fold(0.0, |top: f64, square| top.max(*square));
        let nothing = longest * (f64::EPSILON * length as f64).powi(2);
        for (square, row) in squares.iter_mut().zip(a.chunks_exact_mut(width)) {
            if *square <= nothing {
                *square = 0.0;
                row[..length].fill(0.0);
            }
        }
        let mut has_changed = false;
        for p in 0..count {
            for q in p + 1..count {
                let (above, below) = a.split_at_mut(q * width);
                let (x, y) = (&mut above[p * width..][..width], &mut below[..width]);
                let product = dot(&x[..length], &y[..length]);
                let bound = least * (squares[p] * squares[q]).max(0.0).sqrt();
                if product.abs() <= bound || product.abs() < f64::MIN_POSITIVE {
                    continue;
                }
                has_changed = true;
                let tau = (squares[q] - squares[p]) / (2.0 * product);
                // The square of a large number may be infinite: the angle is zero then, to all digits.
                let t = tau.signum() / (tau.abs() + (1.0 + tau * tau).sqrt());
                let c = 1.0 / (1.0 + t * t).sqrt();
                let s = t * c;
                squares[p] -= t * product;
                squares[q] += t * product;
                for (x, y) in x.iter_mut().zip(y) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
            }
        }
        if !has_changed {
            return true;
        }
    }
    false
}
