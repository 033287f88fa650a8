//! Nested loops over several operands at once: for every run of positions, where each operand's elements lie.

use pteron_core::MAX_RANK;

/// Loops over the dimensions of a shape, outermost first, with the strides of `N` operands. Neighbouring
/// dimensions are merged where one stride covers both in every operand, extents of one are dropped.
#[derive(Debug, Clone, Copy)]
pub struct Loops<const N: usize> {
    rank: usize,
    numel: usize,
    extents: [usize; MAX_RANK],
    strides: [[isize; N]; MAX_RANK],
}

impl<const N: usize> Loops<N> {
    /// Loops over nothing.
    pub const EMPTY: Loops<N> =
        Loops { rank: 0, numel: 0, extents: [0; MAX_RANK], strides: [[0; N]; MAX_RANK] };

    /// Visits the dimensions in the order `order`, with extents and strides given per dimension.
    pub fn new(
        order: impl IntoIterator<Item = usize>,
        extents: &[usize],
        strides: [&[isize; MAX_RANK]; N],
    ) -> Self {
        let mut loops = Loops { numel: 1, ..Loops::EMPTY };
        for d in order {
            let extent = extents[d];
            loops.numel *= extent;
            if extent == 1 {
                continue;
            }
            let own = strides.map(|s| s[d]);
            let last = loops.rank.wrapping_sub(1);
            let covers = |k: usize| loops.strides[last][k] == own[k] * extent as isize;
            if loops.rank > 0 && (0..N).all(covers) {
                loops.extents[last] *= extent;
                loops.strides[last] = own;
            } else {
                loops.extents[loops.rank] = extent;
                loops.strides[loops.rank] = own;
                loops.rank += 1;
            }
        }
        loops
    }

    /// The same positions with the two innermost loops exchanged where the innermost is too short to be
    /// worth starting.
    pub fn with_long_inner(mut self) -> Self {
        if let Some(outer) = self.rank.checked_sub(2) {
            let inner = outer + 1;
            if self.extents[inner] < 8 && self.extents[outer] >= 2 * self.extents[inner] {
                self.extents.swap(outer, inner);
                self.strides.swap(outer, inner);
            }
        }
        self
    }

    /// Number of positions.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Distance of neighbours in a run, per operand.
    pub fn inner_strides(&self) -> [isize; N] {
        match self.rank {
            0 => [0; N],
            n => self.strides[n - 1],
        }
    }

    /// Calls `visit(position - start, offsets, length)` for the runs that make up the positions
    /// `start..start + count`.
    #[inline]
    pub fn runs<E>(
        &self,
        start: usize,
        count: usize,
        mut visit: impl FnMut(usize, [isize; N], usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if count == 0 {
            return Ok(());
        }
        if self.rank == 0 {
            return visit(0, [0; N], count);
        }
        let inner = self.rank - 1;
        let (extent, strides) = (self.extents[inner], self.strides[inner]);
        let mut index = [0usize; MAX_RANK];
        let mut base = [0isize; N];
        let mut rest = start;
        for d in (0..self.rank).rev() {
            index[d] = if d == 0 { rest } else { rest % self.extents[d] };
            rest /= self.extents[d];
            if d != inner {
                shift(&mut base, &self.strides[d], index[d] as isize);
            }
        }
        let mut done = 0;
        loop {
            let at = index[inner];
            let len = (extent - at).min(count - done);
            let mut offsets = base;
            shift(&mut offsets, &strides, at as isize);
            visit(done, offsets, len)?;
            done += len;
            if done == count {
                return Ok(());
            }
            index[inner] = 0;
            for d in (0..inner).rev() {
                index[d] += 1;
                shift(&mut base, &self.strides[d], 1);
                if index[d] < self.extents[d] {
                    break;
                }
                shift(&mut base, &self.strides[d], -(self.extents[d] as isize));
                index[d] = 0;
            }
        }
    }
}

#[inline(always)]
fn shift<const N: usize>(base: &mut [isize; N], strides: &[isize; N], by: isize) {
    for (b, s) in base.iter_mut().zip(strides) {
        *b += s * by;
    }
}

/// Dimensions by the size of their strides, largest first; the first `rank` entries count.
pub fn memory_order(rank: usize, strides: &[isize; MAX_RANK]) -> [usize; MAX_RANK] {
    let mut order: [usize; MAX_RANK] = std::array::from_fn(|d| d);
    // Insertion sort: at most 16 entries, and it does not allocate.
    for i in 1..rank {
        let mut j = i;
        while j > 0 && strides[order[j - 1]].unsigned_abs() < strides[order[j]].unsigned_abs() {
            order.swap(j - 1, j);
            j -= 1;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(strides: &[isize]) -> [isize; MAX_RANK] {
        let mut out = [0; MAX_RANK];
        out[..strides.len()].copy_from_slice(strides);
        out
    }

    fn visited<const N: usize>(loops: &Loops<N>, start: usize, count: usize) -> Vec<[isize; N]> {
        let (mut out, strides) = (Vec::new(), loops.inner_strides());
        loops
            .runs(start, count, |done, offsets, len| {
                assert_eq!(done, out.len());
                for i in 0..len as isize {
                    out.push(std::array::from_fn(|k| offsets[k] + i * strides[k]));
                }
                Ok::<(), ()>(())
            })
            .unwrap();
        out
    }

    #[test]
    fn operands_move_together_and_merge_only_together() {
        let (a, b) = (padded(&[12, 4, 1]), padded(&[1, 2, 6]));
        let loops = Loops::new(0..3, &[2, 3, 4], [&a, &b]);
        let all = visited(&loops, 0, 24);
        assert_eq!(all[5], [5, 2 + 6]);
        assert_eq!(all[23], [23, 1 + 4 + 18]);
        for start in 0..24 {
            assert_eq!(visited(&loops, start, 24 - start), all[start..]);
        }
        assert_eq!(Loops::new(0..3, &[2, 3, 4], [&a, &a]).rank, 1);
        assert_eq!(visited(&Loops::new(0..0, &[], [&a]), 0, 1), [[0]]);
    }

    #[test]
    fn a_short_inner_loop_changes_places() {
        let (a, b) = (padded(&[2, 1]), padded(&[1, 50]));
        let loops = Loops::new(0..2, &[50, 2], [&a, &b]).with_long_inner();
        assert_eq!(loops.inner_strides(), [2, 1]);
        let mut seen = visited(&loops, 0, 100);
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, [a, _])| *a == i as isize));
    }
}
