//! Numbered blobs that tensors refer to: constants and the first contents of mutable buffers.

use super::place::{InPlace, index_below, required};
use super::segments::Segments;
use super::table::FileTable;
use crate::generated::wire;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result};
use std::ops::Range;

/// Where the numbered blobs of one kind are. Blob 0 is none.
pub(super) enum StoredData {
    /// There are none.
    Empty,
    /// Offsets into one segment.
    Segment {
        /// The segment.
        range: Range<usize>,
        /// Where each blob begins, at most the length of the segment.
        offsets: Vec<usize>,
    },
    /// Inside the program table, as old files have constants: each blob's range in the file.
    Table(Vec<Range<usize>>),
}

impl StoredData {
    /// The constants of a program.
    pub fn constants(program: &wire::Program<'_>, table: &FileTable, segments: &Segments) -> Result<Self> {
        let buffers = program.constant_buffer().unwrap_or_default();
        if let Some(place) = program.constant_segment()
            && !place.offsets().unwrap_or_default().is_empty()
        {
            if !buffers.is_empty() {
                return Err(Error::program("constants are stored in two ways at once")
                    .expected("either constant_segment or constant_buffer")
                    .got(format!("{} entries in constant_buffer as well", buffers.len())));
            }
            return Self::in_segment(&place, segments).in_place(|| "constant_segment");
        }
        let mut ranges = try_with_capacity(buffers.len())?;
        ranges.extend(buffers.iter().map(|b| match b.storage() {
            Some(bytes) => table.range_of(bytes.bytes()),
            None => 0..0,
        }));
        Ok(StoredData::Table(ranges))
    }

    /// The first contents of mutable buffers.
    pub fn initial(program: &wire::Program<'_>, segments: &Segments) -> Result<Self> {
        let places = program.mutable_data_segments().unwrap_or_default();
        let mut places = places.iter();
        let first = places.next();
        if places.next().is_some() {
            return Err(Error::program("mutable_data_segments has several entries")
                .expected("at most one, the only one that readers of this format use"));
        }
        match first {
            None => Ok(StoredData::Empty),
            Some(place) => Self::in_segment(&place, segments).in_place(|| "mutable_data_segments[0]"),
        }
    }

    fn in_segment(place: &wire::SubsegmentOffsets<'_>, segments: &Segments) -> Result<Self> {
        let table = required(place.offsets(), "offsets")?;
        // A list with the placeholder alone refers to nothing, whatever segment it names.
        let range = if table.len() > 1 { segments.get(place.segment_index())? } else { 0..0 };
        let mut offsets = try_with_capacity(table.len())?;
        for (index, offset) in table.iter().enumerate() {
            match usize::try_from(offset) {
                Ok(o) if index == 0 || o <= range.len() => offsets.push(o),
                _ => {
                    return Err(Error::program(format!("entry {index} begins outside its segment"))
                        .expected(format!("an offset of at most {}", range.len()))
                        .got(offset.to_string()));
                }
            }
        }
        Ok(StoredData::Segment { range, offsets })
    }

    /// The segment that holds them; empty when no segment does.
    pub fn segment(&self) -> Range<usize> {
        match self {
            StoredData::Segment { range, .. } => range.clone(),
            StoredData::Empty | StoredData::Table(_) => 0..0,
        }
    }

    /// The `nbytes` of blob `index` as a range of the file. `index` must not be 0.
    pub fn range(&self, index: u32, nbytes: usize, what: &str) -> Result<Range<usize>> {
        let (start, end) = match self {
            StoredData::Empty => {
                return Err(index_below(i64::from(index), 0, what).err().unwrap_or_else(none));
            }
            StoredData::Segment { range, offsets } => {
                let at = index_below(i64::from(index), offsets.len(), what)? as usize;
                let offset = offsets.get(at).copied().unwrap_or(range.len());
                (range.start.saturating_add(offset), range.end)
            }
            StoredData::Table(ranges) => {
                let at = index_below(i64::from(index), ranges.len(), what)? as usize;
                let range = ranges.get(at).cloned().unwrap_or_default();
                (range.start, range.end)
            }
        };
        let room = end.saturating_sub(start);
        if nbytes > room {
            return Err(Error::program("the tensor is larger than its stored data")
                .expected(format!("{nbytes} bytes"))
                .got(format!("{room} bytes up to the end of the stored data")));
        }
        Ok(start..start.saturating_add(nbytes))
    }
}

fn none() -> Error {
    Error::program("there is no stored data")
}
