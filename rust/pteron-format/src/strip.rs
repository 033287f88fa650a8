//! A program file without its debug information.
//!
//! The file is edited, not written anew, so that everything else stays as it is to the byte, parts that a
//! newer exporter added included: the entry leaves the table of named data, its segment leaves the table of
//! segments, and its bytes leave the end of the file. Where the bytes lie before other data they become
//! zeros, because nothing that readers find by an offset may move.

use crate::ProgramFile;
use crate::generated::wire;
use crate::header::{HEADER_LEN, HEADER_OFFSET};
use crate::read::table::FileTable;
use crate::write::FileLayout;
use pteron_core::memory_reserve::{try_collect, try_with_capacity, within_memory_limit};
use pteron_core::{Error, Result};
use std::ops::Range;

/// Named data that holds debug information.
pub const DEBUG_KEY: &str = "pteron.debug";

/// The bytes of a program file without `pteron.debug`; the same bytes where it has none.
///
/// # Errors
/// As for [`ProgramFile::parse`].
pub fn strip(bytes: &[u8]) -> Result<Vec<u8>> {
    within_memory_limit(|| stripped(bytes))
}

fn stripped(bytes: &[u8]) -> Result<Vec<u8>> {
    let Some(cut) = Cut::of(bytes, bytes.len() as u64)? else { return copy_of(bytes) };
    let len = usize::try_from(cut.len).unwrap_or(bytes.len());
    let mut out = copy_of(bytes.get(..len).unwrap_or(bytes))?;
    let hole = start_of(&cut.hole)..end_of(&cut.hole).min(out.len());
    if let Some(hole) = out.get_mut(hole) {
        hole.fill(0);
    }
    let table = out.get_mut(..cut.table.len()).ok_or_else(lost)?;
    table.copy_from_slice(&cut.table);
    Ok(out)
}

fn copy_of(bytes: &[u8]) -> Result<Vec<u8>> {
    try_collect(bytes.iter().copied())
}

impl FileLayout<'_> {
    /// Takes the debug information out of a program that is laid out: what [`strip`] does to the written file.
    ///
    /// # Errors
    /// As for [`ProgramFile::parse`].
    pub fn strip(&mut self) -> Result<()> {
        let Some(cut) = Cut::of(&self.head, self.len)? else { return Ok(()) };
        let table = self.head.get_mut(..cut.table.len()).ok_or_else(lost)?;
        table.copy_from_slice(&cut.table);
        self.pieces.retain(|(offset, _)| !cut.hole.contains(offset));
        self.len = cut.len;
        Ok(())
    }
}

/// What changes in a file.
struct Cut {
    /// The table with headers, as it becomes.
    table: Vec<u8>,
    /// Bytes of the file that nothing refers to any more.
    hole: Range<u64>,
    /// Length of the file, as it becomes.
    len: u64,
}

impl Cut {
    /// `None` where there is nothing to take out.
    fn of(head: &[u8], len: u64) -> Result<Option<Cut>> {
        let file = ProgramFile::parse_head(head, len)?;
        let table = FileTable::copy_of(head.get(..file.program_size).ok_or_else(lost)?)?;
        let root = table.verified_root::<wire::Program<'_>>()?;
        let named = root.named_data().unwrap_or_default();
        let found = named.iter().enumerate().find(|(_, n)| n.key() == Some(DEBUG_KEY));
        let Some((entry, debug)) = found else { return Ok(None) };
        let segment = debug.segment_index();
        let list = table.range_of(named.bytes());
        let is_shared = references(&root).filter(|s| *s == segment).count() > 1 || overlaps(&file, segment);
        let mut cut =
            Cut { table: copy_of(head.get(..file.program_size).ok_or_else(lost)?)?, hole: 0..0, len };
        remove_entry(&mut cut.table, &list, entry)?;
        if !is_shared {
            cut.remove_segment(&root, &table, &file, segment)?;
        }
        ProgramFile::parse_head(&cut.padded(head)?, cut.len)?;
        Ok(Some(cut))
    }

    /// The new table followed by what the old head had behind it.
    fn padded(&self, head: &[u8]) -> Result<Vec<u8>> {
        let mut out = try_with_capacity(head.len())?;
        out.extend_from_slice(&self.table);
        out.extend_from_slice(head.get(self.table.len()..).ok_or_else(lost)?);
        Ok(out)
    }

    fn remove_segment(
        &mut self,
        root: &wire::Program<'_>,
        table: &FileTable,
        file: &ProgramFile,
        segment: u32,
    ) -> Result<()> {
        let at = segment as usize;
        let range = file.segments.get(at).cloned().unwrap_or_default();
        let segments = root.segments().unwrap_or_default();
        let list = table.range_of(segments.bytes());
        if at.saturating_add(1) == segments.len() {
            write_len(&mut self.table, &list, at)?;
        } else {
            // Others are found by their index, so the place stays and the size goes.
            let entry = segments.get(at)._tab;
            let field = usize::from(entry.vtable().get(wire::DataSegment::VT_SIZE_));
            if field != 0 {
                put(&mut self.table, entry.loc().saturating_add(field), &0u64.to_le_bytes())?;
            }
        }
        self.hole = range.start as u64..range.end as u64;
        let others = file.segments.iter().enumerate().filter(|(i, s)| *i != at && !s.is_empty());
        let end = others.map(|(_, s)| s.end).max();
        let base = base_of(&self.table)?;
        let end = end.map_or(base, |e| e as u64);
        if !range.is_empty() && end < self.hole.end {
            self.len = end;
            put(
                &mut self.table,
                HEADER_OFFSET.saturating_add(HEADER_LEN - 8),
                &end.saturating_sub(base).to_le_bytes(),
            )?;
        }
        Ok(())
    }
}

/// Every reference to a segment that a program makes.
fn references<'a>(root: &wire::Program<'a>) -> impl Iterator<Item = u32> + use<'a> {
    let constants = root.constant_segment().into_iter().map(|s| s.segment_index());
    let mutable = root.mutable_data_segments().unwrap_or_default().iter().map(|s| s.segment_index());
    let named = root.named_data().unwrap_or_default().iter().map(|n| n.segment_index());
    let plans = root.execution_plan().unwrap_or_default().iter();
    let blobs = plans.flat_map(|plan| {
        let delegates = plan.delegates().unwrap_or_default().iter();
        let places = delegates.filter_map(|d| d.processed());
        places.filter(|p| p.location() == wire::DataLocation::SEGMENT).map(|p| p.index())
    });
    constants.chain(mutable).chain(named).chain(blobs)
}

/// Does another segment have bytes of this one?
fn overlaps(file: &ProgramFile, segment: u32) -> bool {
    let own = file.segments.get(segment as usize).cloned().unwrap_or_default();
    let mut others = file.segments.iter().enumerate().filter(|(i, _)| *i != segment as usize);
    others.any(|(_, s)| !s.is_empty() && s.start < own.end && own.start < s.end)
}

/// Takes entry `index` out of the vector of tables whose offsets are `list`. Offsets count from where they
/// are, so those that move down by one place grow by its size.
fn remove_entry(table: &mut [u8], list: &Range<usize>, index: usize) -> Result<()> {
    let count = list.len() / 4;
    for i in index..count.saturating_sub(1) {
        let at = list.start.saturating_add(i.saturating_mul(4));
        let next =
            table.get(at.saturating_add(4)..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(lost)?;
        let moved = u32::from_le_bytes(*next).checked_add(4).ok_or_else(lost)?;
        put(table, at, &moved.to_le_bytes())?;
    }
    write_len(table, list, count.saturating_sub(1))
}

/// Makes the vector whose elements are `list` end after `len` of them.
fn write_len(table: &mut [u8], list: &Range<usize>, len: usize) -> Result<()> {
    let len = u32::try_from(len).map_err(|_| lost())?;
    put(table, list.start.checked_sub(4).ok_or_else(lost)?, &len.to_le_bytes())
}

fn put(table: &mut [u8], at: usize, bytes: &[u8]) -> Result<()> {
    let place = table.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())).ok_or_else(lost)?;
    place.copy_from_slice(bytes);
    Ok(())
}

/// The segment base of a file whose header was checked.
fn base_of(table: &[u8]) -> Result<u64> {
    let field = table.get(HEADER_OFFSET.saturating_add(16)..).and_then(|rest| rest.first_chunk::<8>());
    field.map(|f| u64::from_le_bytes(*f)).ok_or_else(lost)
}

fn start_of(range: &Range<u64>) -> usize {
    usize::try_from(range.start).unwrap_or(usize::MAX)
}

fn end_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end).unwrap_or(usize::MAX)
}

fn lost() -> Error {
    Error::internal("a place in a checked table is outside it")
}
