//! The product of two blocks of matrices, which sets a third or is added to it or subtracted from it.
//!
//! A strip of the right block is copied side by side, so that rows a power of two apart do not compete for the same
//! lines of the cache; tiles of registers ([`TileProduct`]) multiply it with rows of the left block where they lie. The
//! order of every sum follows from the extents alone.

use crate::ops::tile_product::{TALL, TileProduct};
use crate::vector_math::{Simd, SimdTask};

/// Columns of the left block that are multiplied at once.
const DEPTH: usize = 256;
/// Rows of the left block that stay in the cache for all strips.
const ROWS: usize = 128;
/// Columns of a strip, and of one for the last few columns.
const WIDE: usize = 32;
const NARROW: usize = 16;

/// Where a block lies in memory: its first number, and the steps to the next row and column.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Place {
    /// A block of a row-major matrix.
    pub(crate) fn rows(at: usize, row: usize) -> Place {
        Place { at, row, column: 1 }
    }
}

/// What becomes of the target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Set,
    Add,
    Subtract,
}

/// Target, left and right block of `extents` rows, columns and inner extent. An operand without memory lies in the
/// target's; it must not overlap the target. Target and right block are row-major.
pub(crate) struct Update<'a, T> {
    pub(crate) target: (&'a mut [T], Place),
    pub(crate) left: (Option<&'a [T]>, Place),
    pub(crate) right: (Option<&'a [T]>, Place),
    pub(crate) extents: [usize; 3],
    pub(crate) how: How,
    /// Memory of [`room`] numbers.
    pub(crate) room: &'a mut [T],
}

/// Numbers of memory for updates of which no extent but the number of columns is above `side`.
pub(crate) fn room(side: usize) -> usize {
    side.min(DEPTH) * (WIDE + side.min(ROWS).next_multiple_of(TALL))
}

/// A strip of columns, for some rows of the left block and some of its columns.
struct Strip<'a, T> {
    target: &'a mut [T],
    to: Place,
    left: Option<&'a [T]>,
    from: Place,
    /// The rows of the left block in groups, where they do not lie in memory as rows.
    packed: Option<&'a [T]>,
    right: Option<&'a [T]>,
    beside: Place,
    rows: usize,
    columns: usize,
    depth: usize,
    how: How,
    room: &'a mut [T],
}

impl<T: TileProduct> Strip<'_, T> {
    /// Multiplies a strip of at most `N` columns.
    #[inline(always)]
    fn multiply<S: Simd, const N: usize>(self, s: S) {
        let Strip { target, to, left, from, packed, right, beside, rows, columns, depth, how, room } = self;
        let block = &mut room.as_chunks_mut::<N>().0[..depth];
        let columns = columns.min(N);
        let right = right.unwrap_or(&*target);
        for (p, row) in block.iter_mut().enumerate() {
            let from = &right[beside.at + p * beside.row..];
            if let (true, Some(all)) = (columns == N, from.first_chunk::<N>()) {
                *row = *all;
            } else {
                row[..columns].copy_from_slice(&from[..columns]);
                row[columns..].fill(T::ZERO);
            }
        }
        let block = &*block;
        for i in (0..rows).step_by(TALL) {
            let sums = if let Some(packed) = packed {
                let groups = packed.as_chunks::<TALL>().0;
                let first = i / TALL * depth;
                T::tile(s, groups[first..first + depth].iter().copied(), block.iter())
            } else {
                let left = left.unwrap_or(&*target);
                // The last rows stand in for those that are missing; their sums are left out.
                let row = |r: usize| &left[from.at + (i + r).min(rows - 1) * from.row..][..depth];
                let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
                let weights = a.iter().zip(b).zip(c).zip(d).map(|(((a, b), c), d)| [*a, *b, *c, *d]);
                T::tile(s, weights, block.iter())
            };
            for (r, sums) in sums.iter().enumerate().take(rows - i) {
                let to = &mut target[to.at + (i + r) * to.row..];
                match (columns == N, to.first_chunk_mut::<N>()) {
                    (true, Some(to)) => combine(to, sums, how),
                    _ => combine(&mut to[..columns], &sums[..columns], how),
                }
            }
        }
    }
}

#[inline(always)]
fn combine<T: TileProduct>(to: &mut [T], sums: &[T], how: How) {
    match how {
        How::Set => to.copy_from_slice(sums),
        How::Add => to.iter_mut().zip(sums).for_each(|(x, v)| *x += *v),
        How::Subtract => to.iter_mut().zip(sums).for_each(|(x, v)| *x = *x - *v),
    }
}

/// Copies `rows` of a block whose columns lie side by side to groups of rows.
#[inline(always)]
fn pack<T: TileProduct>(from: &[T], place: Place, [rows, depth]: [usize; 2], to: &mut [T]) {
    let groups = to.as_chunks_mut::<TALL>().0;
    for p in 0..depth {
        let column = &from[place.at + p * place.column..];
        for i in (0..rows).step_by(TALL) {
            let group = &mut groups[i / TALL * depth + p];
            if let (true, 1, Some(all)) =
                (i + TALL <= rows, place.row, column.get(i..).and_then(|c| c.first_chunk::<TALL>()))
            {
                *group = *all;
            } else {
                for (r, v) in group.iter_mut().enumerate() {
                    *v = if i + r < rows { column[(i + r) * place.row] } else { T::ZERO };
                }
            }
        }
    }
}

impl<T: TileProduct> SimdTask for Update<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Update { target: (target, to), left: (left, from), right: (right, beside), .. } = self;
        let [m, n, k] = self.extents;
        let (strip, packed) = self.room.split_at_mut(k.min(DEPTH) * WIDE);
        for start in (0..k).step_by(DEPTH) {
            let depth = (k - start).min(DEPTH);
            let how = if start > 0 && self.how == How::Set { How::Add } else { self.how };
            for top in (0..m).step_by(ROWS) {
                let rows = (m - top).min(ROWS);
                let from = Place { at: from.at + top * from.row + start * from.column, ..from };
                let is_packed = from.column != 1;
                if is_packed {
                    pack(left.unwrap_or(&*target), from, [rows, depth], packed);
                }
                let mut first = 0;
                while first < n {
                    let columns = n - first;
                    let part = Strip {
                        target: &mut *target,
                        to: Place { at: to.at + top * to.row + first, ..to },
                        left,
                        from,
                        packed: is_packed.then_some(&*packed),
                        right,
                        beside: Place { at: beside.at + start * beside.row + first, ..beside },
                        rows,
                        columns,
                        depth,
                        how,
                        room: &mut *strip,
                    };
                    if columns > NARROW {
                        part.multiply::<S, WIDE>(s);
                        first += WIDE;
                    } else {
                        part.multiply::<S, NARROW>(s);
                        first += NARROW;
                    }
                }
            }
        }
    }
}
