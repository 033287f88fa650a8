//! What the analysis of data flow knows at one place of the chain.

use crate::step_effects::{ByteRegion, Space};
use pteron_core::ValueId;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};

/// Who may have written bytes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writer {
    /// This step.
    Step(u32),
    /// Nobody: what was there when the chain started.
    Entry,
}

impl Writer {
    pub fn step(index: usize) -> Self {
        Writer::Step(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The step's index.
    pub fn index(self) -> Option<usize> {
        match self {
            Writer::Step(step) => Some(step as usize),
            Writer::Entry => None,
        }
    }
}

pub(super) type Definitions = SmallVec<[Writer; 2]>;
/// The value behind each view that was made so far in a block, and what it held then.
pub(super) type Views = HashMap<ValueId, (ValueId, Reach)>;

/// Where a read's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All of them from this step, which wrote exactly this range.
    Step(u32),
    /// From nowhere else than the start, or a constant.
    Entry,
    /// From several steps, or from a step that wrote another range.
    Mixed,
}

/// Which step last wrote each byte, at one place of the chain.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    // (space, start) → (end, candidates). Bytes not covered: `Entry`.
    pub map: BTreeMap<(Space, usize), (usize, Definitions)>,
    // Something may have been written anywhere.
    pub is_clobbered: bool,
}

impl State {
    pub fn overlapping(&self, r: &ByteRegion) -> impl Iterator<Item = (usize, usize, &Definitions)> {
        let first = self
            .map
            .range(..=(r.space, r.start))
            .next_back()
            .filter(|((space, _), (end, _))| *space == r.space && *end > r.start)
            .map_or((r.space, r.start), |(k, _)| *k);
        self.map.range(first..(r.space, r.end)).map(|((_, start), (end, d))| (*start, *end, d))
    }

    pub fn write(&mut self, r: &ByteRegion, step: Writer) {
        let cut: SmallVec<[(usize, usize, Definitions); 4]> =
            self.overlapping(r).map(|(s, e, d)| (s, e, d.clone())).collect();
        for (start, end, d) in cut {
            self.map.remove(&(r.space, start));
            if start < r.start {
                self.map.insert((r.space, start), (r.start, d.clone()));
            }
            if end > r.end {
                self.map.insert((r.space, r.end), (end, d));
            }
        }
        self.map.insert((r.space, r.start), (r.end, SmallVec::from_slice(&[step])));
    }

    /// `step` may have written to `r`, or not.
    pub fn write_perhaps(&mut self, r: &ByteRegion, step: Writer) {
        let mut before: Vec<(usize, usize, Definitions)> = Vec::new();
        let mut covered = r.start;
        for (start, end, d) in self.overlapping(r) {
            let (start, end) = (start.max(r.start), end.min(r.end));
            if covered < start {
                before.push((covered, start, SmallVec::from_slice(&[Writer::Entry])));
            }
            before.push((start, end, d.clone()));
            covered = end;
        }
        if covered < r.end {
            before.push((covered, r.end, SmallVec::from_slice(&[Writer::Entry])));
        }
        for (start, end, mut candidates) in before {
            self.write(&ByteRegion { start, end, ..*r }, step);
            if !candidates.contains(&step) {
                candidates.push(step);
                candidates.sort_unstable();
            }
            self.map.insert((r.space, start), (end, candidates));
        }
    }

    /// Unites `other` into `self`; true when something changed.
    pub fn join(&mut self, other: &State) -> bool {
        let mut spaces: Vec<(Space, usize)> = Vec::new();
        for state in [&*self, other] {
            for ((space, start), (end, _)) in &state.map {
                spaces.push((*space, *start));
                spaces.push((*space, *end));
            }
        }
        spaces.sort_unstable();
        spaces.dedup();
        let mut map = BTreeMap::new();
        for pair in spaces.windows(2) {
            let [(space, start), (next_space, end)] = pair else { continue };
            if space != next_space {
                continue;
            }
            let piece = ByteRegion { space: *space, start: *start, end: *end };
            let mine = self.at(&piece);
            let theirs = other.at(&piece);
            if mine.is_none() && theirs.is_none() {
                continue;
            }
            let entry: Definitions = SmallVec::from_slice(&[Writer::Entry]);
            let mut all = mine.unwrap_or_else(|| entry.clone());
            all.extend(theirs.unwrap_or(entry));
            all.sort_unstable();
            all.dedup();
            map.insert((*space, *start), (*end, all));
        }
        let joined =
            State { map: merge_neighbours(map), is_clobbered: self.is_clobbered || other.is_clobbered };
        let is_changed = joined != *self;
        *self = joined;
        is_changed
    }

    pub fn at(&self, piece: &ByteRegion) -> Option<Definitions> {
        self.overlapping(piece).next().map(|(_, _, d)| d.clone())
    }
}

fn merge_neighbours(
    map: BTreeMap<(Space, usize), (usize, Definitions)>,
) -> BTreeMap<(Space, usize), (usize, Definitions)> {
    let mut out: BTreeMap<(Space, usize), (usize, Definitions)> = BTreeMap::new();
    for ((space, start), (end, d)) in map {
        if let Some(mut last) = out.last_entry()
            && last.key().0 == space
            && last.get().0 == start
            && last.get().1 == d
        {
            last.get_mut().0 = end;
            continue;
        }
        out.insert((space, start), (end, d));
    }
    out
}
