//! QR factorisation and products of reflections, block by block.
//!
//! The product of some reflections is I − V·T·Vᵀ with a small upper triangle T. Source: R. Schreiber and C. Van Loan, A
//! Storage-Efficient WY Representation for Products of Householder Transformations, 1989.

use super::number::Dense;
use super::update::{self, How, Place, Update};
use crate::vector_math::{Simd, SimdLevel, SimdTask};

/// Reflections of a block.
const WIDTH: usize = 16;

/// Numbers of memory for matrices of which no extent is above `side`.
pub(super) fn room(side: usize) -> usize {
    update::room(side.max(WIDTH))
        .saturating_add(side.saturating_mul(3 * WIDTH))
        .saturating_add(2 * WIDTH * WIDTH)
}

/// A block of reflections, and memory for its products.
struct Block<'a, T> {
    level: SimdLevel,
    /// A row for each of those that the reflections turn, with a column for each reflection.
    vectors: &'a mut [T],
    /// T, and Vᵀ·V.
    small: &'a mut [T],
    gram: &'a mut [T],
    /// Vᵀ·C, and that with T.
    first: &'a mut [T],
    second: &'a mut [T],
    room: &'a mut [T],
}

impl<'a, T: Dense> Block<'a, T> {
    fn of(level: SimdLevel, side: usize, room: &'a mut [T]) -> Self {
        let (vectors, room) = room.split_at_mut(side * WIDTH);
        let (first, room) = room.split_at_mut(side * WIDTH);
        let (second, room) = room.split_at_mut(side * WIDTH);
        let (small, room) = room.split_at_mut(WIDTH * WIDTH);
        let (gram, room) = room.split_at_mut(WIDTH * WIDTH);
        Block { level, vectors, small, gram, first, second, room }
    }

    /// Copies columns from `k` on of the rows from `k` on of `a`, `count` of them.
    fn load(&mut self, a: &[T], [rows, columns]: [usize; 2], k: usize, count: usize) {
        let panel = self.vectors.as_chunks_mut::<WIDTH>().0;
        for (to, row) in panel.iter_mut().zip(a[k * columns..].chunks_exact(columns)).take(rows - k) {
            to[..count].copy_from_slice(&row[k..k + count]);
            to[count..].fill(T::ZERO);
        }
    }

    /// Makes vectors of what is below the diagonal, and T.
    fn complete(&mut self, rows: usize, taus: &[T]) {
        let panel = self.vectors.as_chunks_mut::<WIDTH>().0;
        for (i, row) in panel.iter_mut().enumerate().take(WIDTH.min(rows)) {
            row[i] = if i < taus.len() { T::ONE } else { T::ZERO };
            row[i + 1..].fill(T::ZERO);
        }
        self.level.dispatch(Update {
            target: (&mut *self.gram, Place::rows(0, WIDTH)),
            left: (Some(&*self.vectors), Place { at: 0, row: 1, column: WIDTH }),
            right: (Some(&*self.vectors), Place::rows(0, WIDTH)),
            extents: [WIDTH, WIDTH, rows],
            how: How::Set,
            room: &mut *self.room,
        });
        let gram = self.gram.as_chunks::<WIDTH>().0;
        let small = self.small.as_chunks_mut::<WIDTH>().0;
        small.iter_mut().for_each(|row| row.fill(T::ZERO));
        for (j, tau) in taus.iter().enumerate() {
            for (i, row) in small.iter_mut().enumerate().take(j) {
                let products = row[i..j].iter().zip(&gram[i..j]);
                let sum = products.fold(T::ZERO, |sum, (x, gram)| sum + *x * gram[j]);
                row[j] = T::ZERO - *tau * sum;
            }
            small[j][j] = *tau;
        }
    }

    /// Applies the block, or its transposed, to rows of `columns`.
    fn apply(&mut self, target: &mut [T], to: Place, [rows, columns]: [usize; 2], is_transposed: bool) {
        if columns == 0 {
            return;
        }
        let (wide, narrow) = (Place::rows(0, columns), Place::rows(0, WIDTH));
        let turned = Place { at: 0, row: 1, column: WIDTH };
        self.level.dispatch(Update {
            target: (&mut *self.first, wide),
            left: (Some(&*self.vectors), turned),
            right: (Some(&*target), to),
            extents: [WIDTH, columns, rows],
            how: How::Set,
            room: &mut *self.room,
        });
        self.level.dispatch(Update {
            target: (&mut *self.second, wide),
            left: (Some(&*self.small), if is_transposed { turned } else { narrow }),
            right: (Some(&*self.first), wide),
            extents: [WIDTH, columns, WIDTH],
            how: How::Set,
            room: &mut *self.room,
        });
        self.level.dispatch(Update {
            target: (target, to),
            left: (Some(&*self.vectors), narrow),
            right: (Some(&*self.second), wide),
            extents: [rows, columns, WIDTH],
            how: How::Subtract,
            room: &mut *self.room,
        });
    }
}

/// See [`super::plain::reflect`].
pub(super) fn factor<T: Dense>(
    level: SimdLevel,
    a: &mut [T],
    [rows, columns]: [usize; 2],
    taus: &mut [T],
    room: &mut [T],
) {
    let mut block = Block::of(level, rows.max(columns), room);
    let inner = rows.min(columns);
    for k in (0..inner).step_by(WIDTH) {
        let (count, height) = ((inner - k).min(WIDTH), rows - k);
        block.load(a, [rows, columns], k, count);
        let panel = &mut block.vectors.as_chunks_mut::<WIDTH>().0[..height];
        for j in 0..count {
            taus[k + j] = level.dispatch(Reflect { panel: &mut *panel, k: j });
        }
        for (from, row) in panel.iter().zip(a[k * columns..].chunks_exact_mut(columns)) {
            row[k..k + count].copy_from_slice(&from[..count]);
        }
        let next = k + count;
        if next < columns {
            block.complete(height, &taus[k..next]);
            block.apply(a, Place::rows(k * columns + next, columns), [height, columns - next], true);
        }
    }
}

/// See [`super::plain::reflections`].
pub(super) fn product<T: Dense>(
    level: SimdLevel,
    a: &[T],
    [rows, columns]: [usize; 2],
    taus: &[T],
    (q, width): (&mut [T], usize),
    room: &mut [T],
) {
    q.fill(T::ZERO);
    (0..rows.min(width)).for_each(|i| q[i * width + i] = T::ONE);
    let mut block = Block::of(level, rows.max(columns).max(width), room);
    for k in (0..taus.len()).step_by(WIDTH).rev() {
        let count = (taus.len() - k).min(WIDTH);
        block.load(a, [rows, columns], k, count);
        block.complete(rows - k, &taus[k..k + count]);
        // Columns before these are still those of the identity, which are zero in these rows.
        block.apply(q, Place::rows(k * width + k, width), [rows - k, width.saturating_sub(k)], false);
    }
}

/// Makes a reflection of column `k` of a panel, and applies it to the columns behind it; its factor.
struct Reflect<'a, T> {
    panel: &'a mut [[T; WIDTH]],
    k: usize,
}

impl<T: Dense> SimdTask for Reflect<'_, T> {
    type Output = T;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> T {
        let Reflect { panel, k } = self;
        let (above, below) = panel.split_at_mut(k + 1);
        let top = &mut above[k];
        let largest = below.iter().fold(0.0f64, |m, row| m.max(row[k].to_f64().abs()));
        let tail = if largest.is_infinite() {
            largest
        } else {
            // Squares of what is divided by the largest neither overflow nor vanish all.
            let divisor = if largest > 0.0 { largest } else { 1.0 };
            let squares = below.iter().fold(0.0f64, |sum, row| {
                let v = row[k].to_f64() / divisor;
                sum + v * v
            });
            squares.sqrt() * divisor
        };
        if tail == 0.0 {
            return T::ZERO;
        }
        let head = top[k].to_f64();
        let beta = -head.hypot(tail).copysign(head);
        let tau = T::from_f64((beta - head) / beta);
        for row in &mut *below {
            row[k] = T::from_f64(row[k].to_f64() / (head - beta));
        }
        top[k] = T::from_f64(beta);
        let mut sums = *top;
        for row in &*below {
            let v = row[k];
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += v * *x);
        }
        sums.iter_mut().for_each(|sum| *sum = tau * *sum);
        let take = |row: &mut [T; WIDTH], v: T| {
            for (j, (x, sum)) in row.iter_mut().zip(&sums).enumerate() {
                *x = if j > k { *x - v * *sum } else { *x };
            }
        };
        take(top, T::ONE);
        for row in below {
            let v = row[k];
            take(row, v);
        }
        tau
    }
}
