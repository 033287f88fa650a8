//! Ranges of bytes with lifetimes, fitted into as little memory as a few greedy orders find.

use smallvec::SmallVec;

/// Every offset is a multiple of this.
pub(crate) const ALIGNMENT: usize = 64;

/// First and last steps, apart from each other and in order.
pub(crate) type Spans = SmallVec<[(usize, usize); 2]>;

/// A range of bytes with the steps that need it.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    /// Bytes.
    pub nbytes: usize,
    /// When they are in use.
    pub spans: Spans,
}

impl Demand {
    fn from(&self) -> usize {
        self.spans.first().map_or(0, |s| s.0)
    }

    /// Number of steps.
    fn steps(&self) -> usize {
        self.spans
            .iter()
            .fold(0, |n, (from, to)| n.saturating_add(to.saturating_sub(*from).saturating_add(1)))
    }
}

/// Is there a step in both?
fn overlap_in_time(a: &Spans, b: &Spans) -> bool {
    a.iter().any(|(from, to)| b.iter().any(|(f, t)| from <= t && f <= to))
}

/// The same steps in spans that are apart.
pub(crate) fn joined(mut spans: Spans) -> Spans {
    spans.sort_unstable();
    let mut out = Spans::new();
    for (from, to) in spans {
        match out.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

/// The smallest of several greedy placements: an offset for each range, and the bytes of all together. `None` where that exceeds
/// the address space.
pub(crate) fn best_placement(ranges: &[Demand]) -> Option<(Vec<usize>, usize)> {
    let by_size = |r: &Demand| (usize::MAX.saturating_sub(r.nbytes), r.from());
    let by_area = |r: &Demand| (usize::MAX.saturating_sub(r.nbytes.saturating_mul(r.steps())), r.from());
    let by_span = |r: &Demand| (usize::MAX.saturating_sub(r.steps()), usize::MAX.saturating_sub(r.nbytes));
    let floor = lower_bound(ranges);
    let mut best: Option<(Vec<usize>, usize)> = None;
    for key in [&by_size as &dyn Fn(&Demand) -> (usize, usize), &by_area, &by_span] {
        let found = placement(ranges, key)?;
        if best.as_ref().is_none_or(|(_, total)| found.1 < *total) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|(_, total)| *total <= floor) {
            break;
        }
    }
    best
}

/// Most bytes in use at one step: no plan needs fewer.
fn lower_bound(ranges: &[Demand]) -> usize {
    let mut changes: Vec<(usize, bool, usize)> = Vec::with_capacity(ranges.len().saturating_mul(2));
    for r in ranges {
        let size = r.nbytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        for (from, to) in &r.spans {
            changes.push((*from, true, size));
            changes.push((to.saturating_add(1), false, size));
        }
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0usize, 0usize);
    for (_, is_begin, size) in changes {
        now = if is_begin { now.saturating_add(size) } else { now.saturating_sub(size) };
        most = most.max(now);
    }
    most
}

fn placement(ranges: &[Demand], key: &dyn Fn(&Demand) -> (usize, usize)) -> Option<(Vec<usize>, usize)> {
    let mut order: Vec<(usize, &Demand)> = ranges.iter().enumerate().collect();
    order.sort_by_key(|(_, r)| key(r));
    let mut offsets = vec![0usize; ranges.len()];
    // Sorted by offset: start, end, range.
    let mut placed: Vec<(usize, usize, &Demand)> = Vec::with_capacity(ranges.len());
    let mut total = 0usize;
    for (index, range) in order {
        let size = range.nbytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut at = 0usize;
        for (start, end, other) in &placed {
            if !overlap_in_time(&other.spans, &range.spans) {
                continue;
            }
            if at.checked_add(size)? <= *start {
                break;
            }
            at = at.max(*end);
        }
        let end = at.checked_add(size)?;
        let slot = placed.partition_point(|p| p.0 <= at);
        placed.insert(slot, (at, end, range));
        *offsets.get_mut(index)? = at;
        total = total.max(end);
    }
    Some((offsets, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(nbytes: usize, from: usize, to: usize) -> Demand {
        Demand { nbytes, spans: SmallVec::from_slice(&[(from, to)]) }
    }

    #[test]
    fn ranges_share_bytes_only_when_their_lifetimes_are_apart() {
        let ranges = [range(256, 0, 2), range(128, 1, 3), range(256, 3, 5), range(64, 0, 5)];
        let (offsets, total) = best_placement(&ranges).unwrap();
        for (i, a) in ranges.iter().enumerate() {
            for (j, b) in ranges.iter().enumerate().skip(i + 1) {
                let is_at_once = overlap_in_time(&a.spans, &b.spans);
                let is_apart = offsets[i] + a.nbytes <= offsets[j] || offsets[j] + b.nbytes <= offsets[i];
                assert!(!is_at_once || is_apart, "{i} and {j}");
            }
        }
        assert_eq!(total, lower_bound(&ranges));
    }

    #[test]
    fn an_output_over_an_input_leaves_room_between_them() {
        let both = Demand { nbytes: 128, spans: joined(SmallVec::from_slice(&[(8, 9), (0, 1), (1, 2)])) };
        assert_eq!(both.spans.as_slice(), [(0, 2), (8, 9)]);
        let (offsets, total) = best_placement(&[both, range(128, 3, 7), range(64, 2, 3)]).unwrap();
        assert_eq!((offsets[0], offsets[1], total), (0, 0, 192));
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        assert!(best_placement(&[range(usize::MAX, 0, 1)]).is_none());
        assert!(best_placement(&[range(usize::MAX - 128, 0, 1), range(4096, 0, 1)]).is_none());
    }
}
