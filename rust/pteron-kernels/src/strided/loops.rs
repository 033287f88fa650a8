//! The one strided walk: nested loops over any number of operands at once. For every run of positions along the
//! innermost loop it says where each operand's elements lie.

use pteron_core::{Dims, MAX_RANK, TensorMeta};

/// Loops over the dimensions of a shape, outermost first, with the strides of `N` operands. Neighbouring
/// dimensions are merged where one stride covers both in every operand, extents of one are dropped.
#[derive(Debug, Clone, Copy)]
pub struct Loops<const N: usize> {
    rank: usize,
    numel: usize,
    extents: [usize; MAX_RANK],
    strides: [[isize; N]; MAX_RANK],
}

/// Loops over one operand: from positions in some order of a tensor's elements to offsets in memory.
pub type Walk = Loops<1>;

/// Positions along the innermost loop.
#[derive(Debug, Clone, Copy)]
pub struct Run<const N: usize> {
    /// First position.
    pub at: usize,
    /// Where each operand's element of that position lies.
    pub offsets: [isize; N],
    /// Number of positions.
    pub n: usize,
}

impl<const N: usize> Loops<N> {
    /// Loops over nothing.
    pub const EMPTY: Loops<N> =
        Loops { rank: 0, numel: 0, extents: [0; MAX_RANK], strides: [[0; N]; MAX_RANK] };

    /// Visits the dimensions in the order `order`, with extents and strides given per dimension.
    pub fn over(order: impl IntoIterator<Item = usize>, extents: &[usize], strides: [&[isize]; N]) -> Self {
        Loops::from_fn(order, extents, |d| strides.map(|s| s[d]))
    }

    /// As [`Loops::over`], with the strides of all operands along dimension `d` as `strides(d)`.
    pub fn from_fn(
        order: impl IntoIterator<Item = usize>,
        extents: &[usize],
        strides: impl Fn(usize) -> [isize; N],
    ) -> Self {
        let mut loops = Loops { numel: 1, ..Loops::EMPTY };
        for d in order {
            let extent = extents[d];
            loops.numel *= extent;
            if extent == 1 {
                continue;
            }
            let own = strides(d);
            let last = loops.rank.wrapping_sub(1);
            let covers = |k: usize| loops.strides[last][k] == own[k].wrapping_mul(extent as isize);
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

    /// Visits `out` in its memory order; the operands are broadcast to its shape.
    pub fn broadcast(out: &TensorMeta, operands: [&TensorMeta; N]) -> Self {
        let strides = operands.map(|o| broadcast_strides(o.shape(), o.strides(), out.rank()));
        let order = out.dim_order().as_slice().iter().map(|d| usize::from(*d));
        Loops::from_fn(order, out.shape(), |d| strides.each_ref().map(|s| s[d]))
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

    /// Number of loops that are left.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Extent of loop `d` and its strides, outermost first.
    pub fn loop_at(&self, d: usize) -> (usize, [isize; N]) {
        (self.extents[d], self.strides[d])
    }

    /// Distance of neighbours in a run, per operand.
    #[inline(always)]
    pub fn inner_strides(&self) -> [isize; N] {
        match self.rank {
            0 => [0; N],
            n => self.strides[n - 1],
        }
    }

    /// Where the elements at `position`, which is below [`Loops::numel`], lie.
    #[inline]
    pub fn offsets(&self, position: usize) -> [isize; N] {
        let (mut rest, mut offsets) = (position, [0; N]);
        // What is left for the outermost loop is its index: a dense tensor takes no division at all.
        for d in (1..self.rank).rev() {
            let next = divide(rest, self.extents[d]);
            shift(&mut offsets, &self.strides[d], (rest - next * self.extents[d]) as isize);
            rest = next;
        }
        shift(&mut offsets, &self.strides[0], rest as isize);
        offsets
    }

    /// The runs that make up the positions `at..end`.
    ///
    /// An iterator rather than a callback: a closure that the compiler chooses not to inline would be
    /// compiled without the target features of the kernel around it.
    #[inline(always)]
    pub fn runs_between(&self, at: usize, end: usize) -> Runs<'_, N> {
        let mut index = [0usize; MAX_RANK];
        let mut base = [0isize; N];
        let mut rest = at;
        for d in (0..self.rank).rev() {
            // Of the outermost loop the index is what is left.
            index[d] = if d == 0 { rest } else { rest % self.extents[d].max(1) };
            rest /= self.extents[d].max(1);
            if d + 1 != self.rank {
                shift(&mut base, &self.strides[d], index[d] as isize);
            }
        }
        Runs { loops: self, at, end, index, base }
    }

    /// Calls `visit(position - start, offsets, length)` for the runs that make up the positions
    /// `start..start + count`.
    #[inline]
    pub fn each_run<E>(
        &self,
        start: usize,
        count: usize,
        mut visit: impl FnMut(usize, [isize; N], usize) -> Result<(), E>,
    ) -> Result<(), E> {
        for Run { at, offsets, n } in self.runs_between(start, start.saturating_add(count)) {
            visit(at - start, offsets, n)?;
        }
        Ok(())
    }
}

impl Walk {
    /// Visits the dimensions in the order `order` (outermost first) with `extents` and `strides`
    /// given per dimension.
    pub fn new(order: impl IntoIterator<Item = usize>, extents: &[usize], strides: &[isize]) -> Walk {
        Loops::over(order, extents, [strides])
    }

    /// Visits the dimensions in row-major order.
    pub fn row_major(extents: &[usize], strides: &[isize]) -> Walk {
        Walk::new(0..extents.len(), extents, strides)
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
        let [stride] = self.inner_strides();
        if self.rank == 1 && count > 0 {
            return visit(0, start as isize * stride, stride, count);
        }
        self.each_run(start, count, |done, [offset], len| visit(done, offset, stride, len))
    }

    /// Offset of the element at `position`, which is below [`Loops::numel`].
    #[inline]
    pub fn offset(&self, position: usize) -> isize {
        let [offset] = self.offsets(position);
        offset
    }
}

/// See [`Loops::runs_between`].
pub struct Runs<'a, const N: usize> {
    loops: &'a Loops<N>,
    at: usize,
    end: usize,
    index: [usize; MAX_RANK],
    /// Offsets of the outer loops together.
    base: [isize; N],
}

impl<const N: usize> Iterator for Runs<'_, N> {
    type Item = Run<N>;

    #[inline(always)]
    fn next(&mut self) -> Option<Run<N>> {
        let loops = self.loops;
        if self.at >= self.end {
            return None;
        }
        let Some(inner) = loops.rank.checked_sub(1) else {
            let run = Run { at: self.at, offsets: [0; N], n: self.end - self.at };
            self.at = self.end;
            return Some(run);
        };
        let mut offsets = self.base;
        shift(&mut offsets, &loops.strides[inner], self.index[inner] as isize);
        let n = (loops.extents[inner] - self.index[inner]).min(self.end - self.at);
        let run = Run { at: self.at, offsets, n };
        self.at += n;
        self.index[inner] = 0;
        for d in (0..inner).rev() {
            self.index[d] += 1;
            shift(&mut self.base, &loops.strides[d], 1);
            if self.index[d] < loops.extents[d] {
                break;
            }
            shift(&mut self.base, &loops.strides[d], -(loops.extents[d] as isize));
            self.index[d] = 0;
        }
        Some(run)
    }
}

#[inline(always)]
fn shift<const N: usize>(base: &mut [isize; N], strides: &[isize; N], by: isize) {
    for (b, s) in base.iter_mut().zip(strides) {
        *b += s * by;
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

    fn padded(strides: &[isize]) -> [isize; MAX_RANK] {
        let mut out = [0; MAX_RANK];
        out[..strides.len()].copy_from_slice(strides);
        out
    }

    fn visited<const N: usize>(loops: &Loops<N>, start: usize, count: usize) -> Vec<[isize; N]> {
        let (mut out, strides) = (Vec::new(), loops.inner_strides());
        loops
            .each_run(start, count, |done, offsets, len| {
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
        let loops = Loops::over(0..3, &[2, 3, 4], [&a, &b]);
        let all = visited(&loops, 0, 24);
        assert_eq!(all[5], [5, 2 + 6]);
        assert_eq!(all[23], [23, 1 + 4 + 18]);
        for start in 0..24 {
            assert_eq!(visited(&loops, start, 24 - start), all[start..]);
        }
        assert_eq!(Loops::over(0..3, &[2, 3, 4], [&a, &a]).rank, 1);
        assert_eq!(visited(&Loops::over(0..0, &[], [&a]), 0, 1), [[0]]);
    }

    #[test]
    fn a_short_inner_loop_changes_places() {
        let (a, b) = (padded(&[2, 1]), padded(&[1, 50]));
        let loops = Loops::over(0..2, &[50, 2], [&a, &b]).with_long_inner();
        assert_eq!(loops.inner_strides(), [2, 1]);
        let mut seen = visited(&loops, 0, 100);
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, [a, _])| *a == i as isize));
    }

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
