//! The segment table: byte ranges behind the program table.

use super::container::Container;
use super::place::{InPlace, index_below, list_of};
use crate::generated::wire;
use pteron_core::{Error, Result};
use std::ops::Range;

/// All segments, each within the file and behind the program table.
pub(super) struct Segments {
    ranges: Vec<Range<usize>>,
}

impl Segments {
    /// Reads and checks every entry.
    pub fn read(program: &wire::Program<'_>, container: &Container) -> Result<Self> {
        let table = program.segments().unwrap_or_default();
        let mut ranges = list_of(table.len())?;
        for (index, segment) in table.iter().enumerate() {
            let range = checked(&segment, container).in_place(|| format!("segment {index}"))?;
            ranges.push(range);
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

fn checked(segment: &wire::DataSegment<'_>, container: &Container) -> Result<Range<usize>> {
    let (offset, size) = (segment.offset(), segment.size_());
    if size == 0 {
        return Ok(container.segment_base..container.segment_base);
    }
    if container.segment_base == 0 {
        return Err(Error::program("the program has segments but the file has no header that places them")
            .got(format!("offset {offset}, size {size}")));
    }
    let room = container.segment_end.saturating_sub(container.segment_base);
    let range = pteron_core::sizes::checked_range(offset, size, room)?;
    // Both ends are at most `room`, so neither sum passes the end of the file.
    let base = container.segment_base;
    Ok(base.saturating_add(range.start)..base.saturating_add(range.end))
}
