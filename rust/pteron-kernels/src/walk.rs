//! The one strided iterator: from positions in some order of a tensor's elements to offsets in memory.

use pteron_core::{Dims, MAX_RANK};

/// Where the elements of an operand lie when they are visited in a given order of dimensions.
/// Neighbouring dimensions that a single stride covers are merged, extents of one are dropped.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    rank: usize,
    numel: usize,
    extents: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl Walk {
    /// A walk over nothing.
    pub const EMPTY: Walk = Walk { rank: 0, numel: 0, extents: [0; MAX_RANK], strides: [0; MAX_RANK] };

    /// Visits the dimensions in the order `order` (outermost first) with `extents` and `strides`
    /// given per dimension.
    pub fn new(order: impl IntoIterator<Item = usize>, extents: &[usize], strides: &[isize]) -> Walk {
        let mut walk = Walk { rank: 0, numel: 1, ..Walk::EMPTY };
        for d in order {
            let (extent, stride) = (extents[d], strides[d]);
            walk.numel *= extent;
            if extent == 1 {
                continue;
            }
            if walk.rank > 0 && walk.strides[walk.rank - 1] == stride * extent as isize {
                walk.extents[walk.rank - 1] *= extent;
                walk.strides[walk.rank - 1] = stride;
            } else {
                walk.extents[walk.rank] = extent;
                walk.strides[walk.rank] = stride;
                walk.rank += 1;
            }
        }
        walk
    }

    /// Visits the dimensions in row-major order.
    pub fn row_major(extents: &[usize], strides: &[isize]) -> Walk {
        Walk::new(0..extents.len(), extents, strides)
    }

    /// Number of positions.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Calls `visit(position - start, offset, stride, length)` for the runs that make up the
    /// positions `start..start + count`.
    #[inline]
    pub fn runs<E>(
        &self,
        start: usize,
        count: usize,
        mut visit: impl FnMut(usize, isize, isize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if count == 0 {
            return Ok(());
        }
        if self.rank == 0 {
            return visit(0, 0, 0, count);
        }
        let inner = self.rank - 1;
        let (extent, stride) = (self.extents[inner], self.strides[inner]);
        if inner == 0 {
            return visit(0, start as isize * stride, stride, count);
        }
        let mut index = [0usize; MAX_RANK];
        let mut rest = start;
        let mut base = 0isize;
        for d in (0..self.rank).rev() {
            index[d] = rest % self.extents[d];
            rest /= self.extents[d];
            if d != inner {
                base += index[d] as isize * self.strides[d];
            }
        }
        let mut done = 0;
        loop {
            let at = index[inner];
            let len = (extent - at).min(count - done);
            visit(done, base + at as isize * stride, stride, len)?;
            done += len;
            if done == count {
                return Ok(());
            }
            index[inner] = 0;
            for d in (0..inner).rev() {
                index[d] += 1;
                base += self.strides[d];
                if index[d] < self.extents[d] {
                    break;
                }
                base -= self.strides[d] * self.extents[d] as isize;
                index[d] = 0;
            }
        }
    }

    /// Offset of the element at `position`, which is below [`Walk::numel`].
    #[inline]
    pub fn offset(&self, position: usize) -> isize {
        let mut rest = position;
        let mut offset = 0;
        // What is left for the outermost dimension is its index: a dense tensor takes no division at all.
        for d in (1..self.rank).rev() {
            let extent = self.extents[d];
            let next = divide(rest, extent);
            offset += (rest - next * extent) as isize * self.strides[d];
            rest = next;
        }
        offset + rest as isize * self.strides[0]
    }
}

/// `a / b`, with the short division of the processor where it does: it takes a third of the time.
#[inline(always)]
fn divide(a: usize, b: usize) -> usize {
    match (u32::try_from(a), u32::try_from(b)) {
        (Ok(a), Ok(b)) => (a / b) as usize,
        _ => a / b,
    }
}

/// Strides as signed numbers, `MAX_RANK` of them at most.
pub fn signed(strides: &[usize]) -> [isize; MAX_RANK] {
    let mut out = [0isize; MAX_RANK];
    for (o, s) in out.iter_mut().zip(strides) {
        *o = *s as isize;
    }
    out
}

/// Strides that broadcast a tensor of `shape` and `strides` to a shape of rank `rank`, aligned at
/// the last dimension: zero where the extent is one or missing.
pub fn broadcast_strides(shape: &Dims, strides: &Dims, rank: usize) -> [isize; MAX_RANK] {
    let mut out = [0isize; MAX_RANK];
    let lead = rank - shape.len().min(rank);
    for (d, (extent, stride)) in shape.iter().zip(strides.iter()).enumerate() {
        if *extent != 1 && lead + d < MAX_RANK {
            out[lead + d] = *stride as isize;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(walk: &Walk, start: usize, count: usize) -> Vec<isize> {
        let mut out = Vec::new();
        walk.runs(start, count, |_, offset, stride, len| {
            out.extend((0..len as isize).map(|i| offset + i * stride));
            Ok::<(), ()>(())
        })
        .unwrap();
        out
    }

    #[test]
    fn dense_tensors_are_one_run() {
        let walk = Walk::row_major(&[2, 3, 4], &[12, 4, 1]);
        assert_eq!(walk.rank, 1);
        assert_eq!(offsets(&walk, 5, 4), [5, 6, 7, 8]);
    }

    #[test]
    fn any_start_gives_the_tail_of_the_whole_walk() {
        let walk = Walk::row_major(&[3, 2, 4], &[1, 30, 7]);
        let all = offsets(&walk, 0, 24);
        for start in 0..24 {
            assert_eq!(offsets(&walk, start, 24 - start), all[start..]);
            assert_eq!(walk.offset(start), all[start]);
        }
    }

    #[test]
    fn broadcast_has_zero_strides() {
        let shape = Dims::new(&[3, 1]).unwrap();
        let strides = Dims::new(&[1, 1]).unwrap();
        assert_eq!(broadcast_strides(&shape, &strides, 3)[..3], [0, 1, 0]);
    }

    #[test]
    fn scalars_are_visited_once() {
        assert_eq!(offsets(&Walk::row_major(&[], &[]), 0, 1), [0]);
    }
}
