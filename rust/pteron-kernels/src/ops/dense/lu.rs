//! LU factorisation with row exchanges, block by block: the left half of the columns, then the right.

use super::number::Dense;
use super::plain::Triangle;
use super::substitution::System;
use super::update::{How, Place, Update};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

/// Columns that are factored loop by loop.
pub(super) const LEAF: usize = 8;

struct Matrix<'a, T> {
    level: SimdLevel,
    a: &'a mut [T],
    rows: usize,
    columns: usize,
    pivots: &'a mut [f64],
    room: &'a mut [T],
    /// A copy of the columns that are factored loop by loop.
    panel: &'a mut [[T; LEAF]],
    info: i64,
}

/// See [`super::plain::factor`].
pub(super) fn factor<T: Dense>(
    level: SimdLevel,
    a: &mut [T],
    [rows, columns]: [usize; 2],
    pivots: &mut [f64],
    room: &mut [T],
) -> i64 {
    let (panel, room) = room.split_at_mut(rows * LEAF);
    let panel = panel.as_chunks_mut().0;
    let inner = rows.min(columns);
    let mut matrix = Matrix { level, a, rows, columns, pivots, room, panel, info: 0 };
    matrix.part(0..inner);
    matrix.update(0..inner, inner..columns);
    matrix.info
}

impl<T: Dense> Matrix<'_, T> {
    /// Factors columns, of which the rows before the first column's number are done.
    fn part(&mut self, columns: Range<usize>) {
        let n = columns.len();
        if n <= LEAF {
            self.leaf(columns);
            return;
        }
        let middle = columns.start + (n / 2).next_multiple_of(LEAF);
        self.part(columns.start..middle);
        self.update(columns.start..middle, middle..columns.end);
        self.part(middle..columns.end);
    }

    /// Takes the factored columns out of those behind them.
    fn update(&mut self, done: Range<usize>, others: Range<usize>) {
        if done.is_empty() || others.is_empty() {
            return;
        }
        let stride = self.columns;
        let place = |i: usize, j: usize| Place::rows(i * stride + j, stride);
        let lower = Triangle { is_upper: false, is_unit: true, is_transposed: false };
        let corner = done.start * stride + done.start;
        let system = System { level: self.level, matrix: None, corner, stride, triangle: lower };
        let right = place(done.start, others.start);
        system.solve(&mut *self.a, right, done.len(), others.len(), &mut *self.room);
        self.level.dispatch(Update {
            target: (&mut *self.a, place(done.end, others.start)),
            left: (None, place(done.end, done.start)),
            right: (None, right),
            extents: [self.rows - done.end, others.len(), done.len()],
            how: How::Subtract,
            room: &mut *self.room,
        });
    }

    fn leaf(&mut self, columns: Range<usize>) {
        let (first, n) = (columns.start, columns.len());
        let rows = self.a[first * self.columns..].chunks_exact(self.columns.max(1));
        let panel = &mut self.panel[..self.rows - first];
        for (to, row) in panel.iter_mut().zip(rows) {
            to[..n].copy_from_slice(&row[columns.clone()]);
        }
        for k in 0..n {
            let best = self.level.dispatch(Eliminate { panel: &mut *panel, k });
            self.pivots[first + k] = (first + best) as f64;
            if best != k {
                let (above, below) = self.a.split_at_mut((first + best) * self.columns);
                above[(first + k) * self.columns..][..self.columns]
                    .swap_with_slice(&mut below[..self.columns]);
            }
            if panel[k][k] == T::ZERO && self.info == 0 {
                self.info = (first + k) as i64 + 1;
            }
        }
        let rows = self.a[first * self.columns..].chunks_exact_mut(self.columns.max(1));
        for (from, row) in panel.iter().zip(rows) {
            row[columns.clone()].copy_from_slice(&from[..n]);
        }
    }
}

/// One step of the factorisation of a panel: the row that is exchanged with row `k`.
struct Eliminate<'a, T> {
    panel: &'a mut [[T; LEAF]],
    k: usize,
}

impl<T: Dense> SimdTask for Eliminate<'_, T> {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        let Eliminate { panel, k } = self;
        let (mut best, mut largest) = (k, panel[k][k].size());
        for (i, row) in panel.iter().enumerate().skip(k + 1) {
            if row[k].size() > largest {
                (best, largest) = (i, row[k].size());
            }
        }
        panel.swap(k, best);
        let above = panel[k];
        let pivot = above[k];
        if pivot == T::ZERO {
            return best;
        }
        for row in &mut panel[k + 1..] {
            let factor = row[k] / pivot;
            for (j, (x, u)) in row.iter_mut().zip(&above).enumerate() {
                *x = if j > k { *x - factor * *u } else { *x };
            }
            row[k] = factor;
        }
        best
    }
}
