//! The segment table: byte ranges behind the program table.

use super::container::Container;
use super::place::{InPlace, index_below};
use crate::generated::wire;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result};
use std::ops::Range;

/// All segments, each within the file and behind the program table.
pub(super) struct Segments {
    ranges: Vec<Range<usize>>,
}

impl Segments {
    /// Reads and checks every entry of a program's table.
    pub fn read(program: &wire::Program<'_>, container: &Container) -> Result<Self> {
        let table = program.segments().unwrap_or_default();
        let area = container.segment_base..container.segment_end;
        Self::of_extents(table.iter().map(|s| (s.offset(), s.size_())), &area)
    }

    /// Checks (offset, size) of every segment; offsets count from the start of `area`, and a start of 0
    /// means that there is none.
    pub fn of_extents(
        extents: impl ExactSizeIterator<Item = (u64, u64)>,
        area: &Range<usize>,
    ) -> Result<Self> {
        let mut ranges = try_with_capacity(extents.len())?;
        for (index, extent) in extents.enumerate() {
            ranges.push(checked(extent, area).in_place(|| format!("segment {index}"))?);
        }
        Ok(Segments { ranges })
    }

    /// The range of segment `index`.
    pub fn get(&self, index: u32) -> Result<Range<usize>> {
        let index = index_below(i64::from(index), self.ranges.len(), "segment")?;
        Ok(self.ranges.get(index as usize).cloned().unwrap_or_default())
    }

    /// All ranges.
    pub fn into_ranges(self) -> Vec<Range<usize>> {
        self.ranges
    }
}

fn checked((offset, size): (u64, u64), area: &Range<usize>) -> Result<Range<usize>> {
    if size == 0 {
        return Ok(area.start..area.start);
    }
    if area.start == 0 {
        return Err(Error::program("the file has segments but no header that places them")
            .got(format!("offset {offset}, size {size}")));
    }
    let room = area.end.saturating_sub(area.start);
    let range = pteron_core::sizes::checked_range(offset, size, room)?;
    // Both ends are at most `room`, so neither sum passes the end of the file.
    Ok(area.start.saturating_add(range.start)..area.start.saturating_add(range.end))
}
