//! Systems with triangles, block by block.

use super::number::Dense;
use super::plain::Triangle;
use super::update::{How, Place, Update};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

/// Rows of a triangle that are solved loop by loop.
const LEAF: usize = 16;
/// Right sides that are solved for at once.
const LANES: usize = 16;

/// A triangle of a matrix that begins at `corner` and has rows `stride` apart. Without a matrix it lies in the memory of
/// the right sides.
#[derive(Clone, Copy)]
pub(super) struct System<'a, T> {
    pub(super) level: SimdLevel,
    pub(super) matrix: Option<&'a [T]>,
    pub(super) corner: usize,
    pub(super) stride: usize,
    pub(super) triangle: Triangle,
}

/// The right sides: their memory, where they begin, and the length of rows.
struct Sides<'a, T> {
    memory: &'a mut [T],
    place: Place,
    width: usize,
    /// Are the right sides the identity? The solution of the first rows has no more columns than rows then.
    is_identity: bool,
}

impl<T> Sides<'_, T> {
    /// Columns of the rows up to `end` that may have other numbers than zeros.
    fn width(&self, end: usize) -> usize {
        if self.is_identity { end } else { self.width }
    }
}

impl<T: Dense> System<'_, T> {
    /// Solves for the rows of `memory` at `place`, of which there are `n`.
    pub(super) fn solve(&self, memory: &mut [T], place: Place, n: usize, width: usize, room: &mut [T]) {
        self.part(0..n, &mut Sides { memory, place, width, is_identity: false }, room);
    }

    /// The inverse of a triangle that is a lower one as it is used; `x` is the identity.
    pub(super) fn invert(&self, x: &mut [T], n: usize, room: &mut [T]) {
        self.part(
            0..n,
            &mut Sides { memory: x, place: Place::rows(0, n), width: n, is_identity: true },
            room,
        );
    }

    /// Where element (i, j) of the triangle as it is used lies.
    fn place(&self, i: usize, j: usize) -> Place {
        if self.triangle.is_transposed {
            Place { at: self.corner + j * self.stride + i, row: 1, column: self.stride }
        } else {
            Place { at: self.corner + i * self.stride + j, row: self.stride, column: 1 }
        }
    }

    fn is_upper(&self) -> bool {
        self.triangle.is_upper != self.triangle.is_transposed
    }

    fn part(&self, rows: Range<usize>, sides: &mut Sides<'_, T>, room: &mut [T]) {
        let n = rows.len();
        if n <= LEAF {
            if n > 0 {
                self.leaf(rows, sides);
            }
            return;
        }
        let middle = rows.start + (n / 2).next_multiple_of(LEAF);
        let (first, second) = match self.is_upper() {
            true => (middle..rows.end, rows.start..middle),
            false => (rows.start..middle, middle..rows.end),
        };
        self.part(first.clone(), sides, room);
        let row = |i: usize| Place { at: sides.place.at + i * sides.place.row, ..sides.place };
        let (to, from, width) = (row(second.start), row(first.start), sides.width(first.end));
        self.level.dispatch(Update {
            target: (&mut *sides.memory, to),
            left: (self.matrix, self.place(second.start, first.start)),
            right: (None, from),
            extents: [second.len(), width, first.len()],
            how: How::Subtract,
            room: &mut *room,
        });
        self.part(second, sides, room);
    }

    /// Copies the triangle of some rows, and solves for these.
    fn leaf(&self, rows: Range<usize>, sides: &mut Sides<'_, T>) {
        let mut triangle = [[T::ZERO; LEAF]; LEAF];
        let is_upper = self.is_upper();
        let matrix = self.matrix.unwrap_or(&*sides.memory);
        for (i, to) in triangle.iter_mut().enumerate().take(rows.len()) {
            let wanted = match (is_upper, self.triangle.is_unit) {
                (true, true) => i + 1..rows.len(),
                (true, false) => i..rows.len(),
                (false, true) => 0..i,
                (false, false) => 0..i + 1,
            };
            for j in wanted {
                to[j] = matrix[self.place(rows.start + i, rows.start + j).at];
            }
        }
        let width = sides.width(rows.end);
        self.level.dispatch(Leaf {
            triangle: &triangle,
            order: rows.len(),
            is_upper,
            is_unit: self.triangle.is_unit,
            at: sides.place.at + rows.start * sides.place.row,
            row: sides.place.row,
            width,
            memory: &mut *sides.memory,
        });
    }
}

struct Leaf<'a, T> {
    triangle: &'a [[T; LEAF]; LEAF],
    order: usize,
    is_upper: bool,
    is_unit: bool,
    at: usize,
    row: usize,
    width: usize,
    memory: &'a mut [T],
}

impl<T: Dense> SimdTask for Leaf<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let n = self.order.min(LEAF);
        for first in (0..self.width).step_by(LANES) {
            let columns = (self.width - first).min(LANES);
            let mut x = [[T::ZERO; LANES]; LEAF];
            for (i, x) in x.iter_mut().enumerate().take(n) {
                let from = &self.memory[self.at + i * self.row + first..];
                match (columns == LANES, from.first_chunk::<LANES>()) {
                    (true, Some(from)) => *x = *from,
                    _ => x[..columns].copy_from_slice(&from[..columns]),
                }
            }
            for step in 0..n {
                let i = if self.is_upper { n - 1 - step } else { step };
                let mut row = x[i];
                let solved = if self.is_upper { i + 1..n } else { 0..i };
                for (factor, other) in self.triangle[i][solved.clone()].iter().zip(&x[solved]) {
                    row.iter_mut().zip(other).for_each(|(x, y)| *x = *x - *factor * *y);
                }
                if !self.is_unit {
                    let pivot = self.triangle[i][i];
                    row.iter_mut().for_each(|x| *x = *x / pivot);
                }
                x[i] = row;
            }
            for (i, x) in x.iter().enumerate().take(n) {
                let to = &mut self.memory[self.at + i * self.row + first..];
                match (columns == LANES, to.first_chunk_mut::<LANES>()) {
                    (true, Some(to)) => *to = *x,
                    _ => to[..columns].copy_from_slice(&x[..columns]),
                }
            }
        }
    }
}
