//! Cholesky factorisation block by block, and the product that makes an inverse of an inverse factor.

use super::number::Dense;
use super::plain::Triangle;
use super::substitution::System;
use super::update::{How, Place, Update};
use crate::ops::matrix_batch::transpose_part;
use crate::vector_math::SimdLevel;
use std::ops::Range;

/// Order of a block that is factored loop by loop.
const LEAF: usize = 16;
/// Columns of the lower triangle that are updated at once: what lies above the diagonal is computed for nothing.
const STRIP: usize = 32;

struct Matrix<'a, T> {
    level: SimdLevel,
    a: &'a mut [T],
    n: usize,
    /// Rows below a block, transposed.
    turned: &'a mut [T],
    room: &'a mut [T],
}

/// See [`super::plain::cholesky`]. Where a block is not positive definite, what lies behind it is left as it is.
pub(super) fn factor<T: Dense>(
    level: SimdLevel,
    a: &mut [T],
    n: usize,
    turned: &mut [T],
    room: &mut [T],
) -> usize {
    let mut matrix = Matrix { level, a, n, turned, room };
    let info = matrix.part(0..n);
    (0..n).for_each(|i| a[i * n + i + 1..(i + 1) * n].fill(T::ZERO));
    info
}

impl<T: Dense> Matrix<'_, T> {
    fn part(&mut self, rows: Range<usize>) -> usize {
        if rows.len() <= LEAF {
            return self.leaf(rows);
        }
        let middle = rows.start + (rows.len() / 2).next_multiple_of(LEAF);
        let info = self.part(rows.start..middle);
        if info > 0 {
            return info;
        }
        let (n, known, rest) = (self.n, middle - rows.start, rows.end - middle);
        // X·Lᵀ = B is L·Xᵀ = Bᵀ.
        let below = middle * n + rows.start;
        transpose_part(&self.a[below..], n, [rest, known], &mut *self.turned, rest);
        let triangle = Triangle { is_upper: false, is_unit: false, is_transposed: false };
        let corner = rows.start * n + rows.start;
        let system = System { level: self.level, matrix: Some(&*self.a), corner, stride: n, triangle };
        system.solve(&mut *self.turned, Place::rows(0, rest), known, rest, &mut *self.room);
        transpose_part(&*self.turned, rest, [known, rest], &mut self.a[below..], n);
        for first in (0..rest).step_by(STRIP) {
            self.level.dispatch(Update {
                target: (&mut *self.a, Place::rows((middle + first) * n + middle + first, n)),
                left: (None, Place::rows(below + first * n, n)),
                right: (Some(&*self.turned), Place::rows(first, rest)),
                extents: [rest - first, (rest - first).min(STRIP), known],
                how: How::Subtract,
                room: &mut *self.room,
            });
        }
        self.part(middle..rows.end)
    }

    /// The order of the first leading minor of the whole matrix that is not positive, or 0.
    fn leaf(&mut self, rows: Range<usize>) -> usize {
        let n = self.n;
        for j in rows.clone() {
            let row = &self.a[j * n..][rows.start..j];
            let pivot = self.a[j * n + j] - dot(row, row);
            // NaN is not positive either.
            if pivot.is_nan() || pivot <= T::ZERO {
                self.a[j * n + j] = pivot;
                return j + 1;
            }
            let root = pivot.root();
            self.a[j * n + j] = root;
            for i in j + 1..rows.end {
                let (above, below) = self.a.split_at_mut(i * n);
                let product = dot(&below[rows.start..j], &above[j * n..][rows.start..j]);
                below[j] = (below[j] - product) / root;
            }
        }
        0
    }
}

fn dot<T: Dense>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).fold(T::ZERO, |sum, (x, y)| sum + *x * *y)
}

/// The product Wᵀ·W of a lower triangle.
pub(super) fn square<T: Dense>(level: SimdLevel, w: &[T], n: usize, out: &mut [T], room: &mut [T]) {
    for first in (0..n).step_by(STRIP) {
        let rows = (n - first).min(STRIP);
        level.dispatch(Update {
            target: (&mut *out, Place::rows(first * n, n)),
            left: (Some(w), Place { at: first * n + first, row: 1, column: n }),
            right: (Some(w), Place::rows(first * n, n)),
            extents: [rows, first + rows, n - first],
            how: How::Set,
            room: &mut *room,
        });
    }
    for i in 0..n {
        for j in 0..i {
            out[j * n + i] = out[i * n + j];
        }
    }
}
