//! Few rows whose masks show little of a block of keys: a cache that several texts share, a window. Each row meets the groups of keys
//! that it sees, as they lie. Unsafe island.
#![allow(
    unsafe_code,
    reason = "rows of queries, keys, values and scores are addressed by stride, and chunks share the output"
)]

use super::kernel::Attention;
use super::key_value_panels::ScaleQueries;
use super::products::{DirectScores, DirectSums};
use super::scores::{AddMask, BlockMask, ScoreBlock};
use super::seen_keys::{GROUP, SeenGroups};
use super::unit::{Number, RowBlock, Stored, Unit, row_blocks};
use super::{KEY_BLOCK, ROW_BLOCK, SCATTERED_ROWS, SCORE_PADDING};
use std::ops::Range;

const _: () = assert!(KEY_BLOCK <= GROUP * u32::BITS as usize, "a bit for each group");

/// The groups of a block of keys that each row of a chunk sees, a bit for each.
pub(super) struct Seen {
    groups: [u32; SCATTERED_ROWS],
}

impl Seen {
    /// Does no row see anything?
    pub(super) fn is_nothing(&self) -> bool {
        self.groups.iter().all(|groups| *groups == 0)
    }
}

/// Rows of one head, equally far apart, that see the same groups.
struct RowSet {
    head: usize,
    first: usize,
    step: usize,
    count: usize,
    /// Of the first row among those of the chunk.
    slot: usize,
    groups: u32,
}

impl RowSet {
    /// Row `at` of `block` and those that belong to it, of which `left` has the groups; theirs become none. `None` where it has none.
    fn take(block: &RowBlock, left: &mut [u32], at: usize) -> Option<RowSet> {
        let groups = left.get(at).copied().filter(|groups| *groups != 0)?;
        let (mut step, mut count, mut last) = (1, 1, at);
        for (i, other) in left.iter().enumerate().skip(at + 1) {
            if *other != groups || count == ROW_BLOCK {
                continue;
            }
            if count == 1 {
                step = i - at;
            }
            if i == last + step {
                (count, last) = (count + 1, i);
            }
        }
        left.iter_mut().skip(at).step_by(step).take(count).for_each(|groups| *groups = 0);
        let (first, slot) = (block.rows.start + at, block.slot + at);
        Some(RowSet { head: block.head, first, step, count, slot, groups })
    }
}

/// Neighbouring groups as keys of a block of `keys`.
fn runs(mut groups: u32, keys: usize) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        if groups == 0 {
            return None;
        }
        let first = groups.trailing_zeros();
        let count = (groups >> first).trailing_ones();
        groups &= !((u32::MAX >> (u32::BITS - count)) << first);
        let begin = first as usize * GROUP;
        Some(begin..keys.min(begin + count as usize * GROUP))
    })
}

impl<T: Number, C: Stored> Attention<T, C> {
    /// What rows of the unit see of `keys`, where they are few and see so little of what lies in front of the last key seen that
    /// they meet it one by one.
    ///
    /// # Safety
    /// As [`Attention::run_unit`].
    pub(super) unsafe fn scattered(
        &self,
        unit: &Unit<'_, T, C>,
        rows: &Range<usize>,
        keys: &Range<usize>,
    ) -> Option<Seen> {
        let p = unit.problem;
        if !p.may_be_scattered(rows.len()) {
            return None;
        }
        let mut seen = Seen { groups: [0; SCATTERED_ROWS] };
        let (mut all, mut count) = (0, 0);
        for block in row_blocks(p.rows, rows, SCATTERED_ROWS) {
            for (row, groups) in block.rows.clone().zip(seen.groups.get_mut(block.slot..)?) {
                let mask = unit.mask_at(block.head, row, keys.start);
                *groups = self.level().dispatch(SeenGroups { mask, keys: keys.len() });
                all |= *groups;
                count += groups.count_ones() as usize;
            }
        }
        let to_last = (u32::BITS - all.leading_zeros()) as usize * rows.len();
        (2 * count <= to_last).then_some(seen)
    }

    /// All rows of the unit with the keys that they see of `keys`, behind other keys or `begin`.
    ///
    /// # Safety
    /// As [`Attention::run_unit`]; `seen` is of these rows and keys.
    pub(super) unsafe fn run_scattered(
        &self,
        unit: &Unit<'_, T, C>,
        rows: &Range<usize>,
        keys: &Range<usize>,
        mut seen: Seen,
    ) {
        for block in row_blocks(unit.problem.rows, rows, SCATTERED_ROWS) {
            let end = block.slot + block.rows.len();
            let Some(left) = seen.groups.get_mut(block.slot..end) else { continue };
            for at in 0..left.len() {
                if let Some(set) = RowSet::take(&block, left, at) {
                    // SAFETY: the rows of the set are those of the block, which are the unit's; it and the keys are as the
                    // caller promises.
                    unsafe { self.run_set(unit, keys, &set) };
                }
            }
        }
    }

    /// # Safety
    /// As [`Attention::run_scattered`].
    unsafe fn run_set(&self, unit: &Unit<'_, T, C>, keys: &Range<usize>, set: &RowSet) {
        let (p, b, rows) = (unit.problem, unit.buffers, set.count);
        let stride = keys.len().next_multiple_of(GROUP) + SCORE_PADDING;
        let first = RowBlock { head: set.head, rows: set.first..set.first + 1, slot: set.slot };
        let (out, out_stride) = unit.sums_at(&first);
        let out_stride = out_stride * set.step;
        // SAFETY: rows and keys are inside the tensors, as the caller promises; scores have room for the groups of a block, and
        // queries for the rows of a set.
        unsafe {
            self.level().dispatch(ScaleQueries {
                from: unit.query_at(set.head, set.first),
                row: p.query.row * set.step,
                element: p.query.element,
                rows,
                depth: p.depth,
                factor: self.scale(),
                to: b.queries,
            });
            let mut count = 0;
            for run in runs(set.groups, keys.len()) {
                let (begin, scores) = (keys.start + run.start, b.scores.add(count));
                self.level().dispatch(DirectScores {
                    queries: b.queries,
                    rows,
                    keys: unit.key_at(begin),
                    key_stride: p.key.row,
                    count: run.len(),
                    depth: p.depth,
                    scores,
                    stride,
                    values: unit.value_at(begin),
                    value_stride: p.value.row,
                    width: p.width,
                });
                self.multiply(unit, 0, begin, scores, [run.len(), rows, stride]);
                let mask = unit.mask_at(set.head, set.first, begin).with_rows_apart(set.step);
                self.level().dispatch(AddMask { scores, stride, rows, keys: run.len(), mask });
                count += run.len();
            }
            self.level().dispatch(ScoreBlock {
                scores: b.scores,
                stride,
                rows,
                keys: count,
                mask: BlockMask::None,
                limit: None,
                is_first: false,
                largest: b.largest.add(set.slot),
                sum: b.sum.add(set.slot),
                slot_step: set.step,
                out,
                out_stride,
                width: p.width,
            });
            count = 0;
            for run in runs(set.groups, keys.len()) {
                let (begin, weights) = (keys.start + run.start, b.scores.add(count));
                self.multiply(unit, 1, begin, weights, [run.len(), rows, stride]);
                self.level().dispatch(DirectSums {
                    weights,
                    stride,
                    rows,
                    values: unit.value_at(begin),
                    value_stride: p.value.row,
                    count: run.len(),
                    width: p.width,
                    out,
                    out_stride,
                    is_first: false,
                });
                count += run.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_neighbouring_groups() {
        let of = |groups, keys| runs(groups, keys).map(|run| (run.start, run.end)).collect::<Vec<_>>();
        assert_eq!(of(0, 512), []);
        assert_eq!(of(0b1, 7), [(0, 7)]);
        assert_eq!(of(0b1011, 500), [(0, 32), (48, 64)]);
        assert_eq!(of(u32::MAX, 512), [(0, 512)]);
        assert_eq!(of(1 << 31, 505), [(496, 505)]);
    }

    #[test]
    fn sets_are_rows_equally_far_apart() {
        let block = RowBlock { head: 3, rows: 10..18, slot: 4 };
        let mut left = [1, 2, 1, 2, 1, 5, 1, 1];
        let mut found = Vec::new();
        for at in 0..left.len() {
            if let Some(set) = RowSet::take(&block, &mut left, at) {
                found.push((set.first, set.step, set.count, set.slot, set.groups));
            }
        }
        // Row 17 sees what row 16 does, but is not as far from it as that is from row 14.
        let want = [(10, 2, 4, 4, 1), (11, 2, 2, 5, 2), (15, 1, 1, 9, 5), (17, 1, 1, 11, 1)];
        assert_eq!(found, want);
        assert_eq!(left, [0; 8]);
    }
}
