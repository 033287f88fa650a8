//! The container: program table, header between identifier and table, padding, segments.

use super::file_layout::FileLayout;
use super::segment_layout::SegmentLayout;
use super::segments::align_up;
use super::{ProgramDraft, WriteOptions, table};
use crate::ProgramFile;
use crate::header::{HEADER_LEN, HEADER_MAGIC, HEADER_OFFSET};
use pteron_core::memory_reserve::{try_with_capacity, within_memory_limit};
use pteron_core::{Error, Result};

/// Alignment that every reader gives the program table.
const TABLE_ALIGNMENT: usize = 16;

impl ProgramDraft<'_> {
    /// Lays the program out as a file, without copying constants and blobs.
    ///
    /// Equal constants, equal first contents, equal delegate blobs and equal named blobs are stored once.
    ///
    /// # Errors
    /// `ErrorKind::Program` when the draft is not a legal program (with the place and what was
    /// expected) or an alignment cannot be kept; `ErrorKind::LimitExceeded` when it is too large.
    pub fn lay_out(&self, options: &WriteOptions) -> Result<FileLayout<'_>> {
        within_memory_limit(|| {
            let layout = lay_out(self, options)?;
            if options.verify {
                ProgramFile::parse_head(&layout.head, layout.len).map_err(|e| {
                    e.hint("the program given to the writer is illegal at this place; nothing was written")
                })?;
            }
            Ok(layout)
        })
    }

    /// The whole file in memory; errors as for [`ProgramDraft::lay_out`].
    pub fn to_bytes(&self, options: &WriteOptions) -> Result<Vec<u8>> {
        self.lay_out(options)?.to_bytes()
    }
}

/// The layout of the whole file.
fn lay_out<'a>(draft: &'a ProgramDraft<'_>, options: &WriteOptions) -> Result<FileLayout<'a>> {
    options.check()?;
    let layout = SegmentLayout::plan(draft, options)?;
    let delegate_alignment = usize::try_from(options.delegate_alignment).unwrap_or(TABLE_ALIGNMENT);
    let inline_alignment = delegate_alignment.max(TABLE_ALIGNMENT);
    let table = table::build(draft, &layout, inline_alignment)?;

    // The insertion also makes the length a multiple of the alignment of inline blobs, which are aligned
    // from the end.
    let header_len = if layout.segments.total == 0 { 0 } else { HEADER_LEN };
    let program_size = table
        .len()
        .checked_add(header_len)
        .and_then(|n| n.checked_next_multiple_of(inline_alignment))
        .ok_or_else(too_large)?;
    let inserted = program_size.saturating_sub(table.len());
    let mut head = with_gap(&table, inserted)?;
    if header_len == 0 {
        return Ok(FileLayout { len: head.len() as u64, head, pieces: Vec::new() });
    }
    let base = align_up(program_size as u64, layout.segments.base_alignment)?;
    let numbers = [program_size as u64, base, layout.segments.total];
    write_header(&mut head, HEADER_MAGIC, &numbers)?;
    layout.segments.behind(head, base)
}

/// A finished FlatBuffers buffer with `inserted` zero bytes between its identifier and the rest. That
/// changes only the root offset: every other offset of a FlatBuffer is relative.
pub(super) fn with_gap(table: &[u8], inserted: usize) -> Result<Vec<u8>> {
    let (start, rest) = table.split_at_checked(HEADER_OFFSET).ok_or_else(too_small)?;
    let (root, identifier) = start.split_first_chunk::<4>().ok_or_else(too_small)?;
    let moved = u32::try_from(inserted).ok().and_then(|n| n.checked_add(u32::from_le_bytes(*root)));
    let mut out = try_with_capacity(table.len().saturating_add(inserted))?;
    out.extend_from_slice(&moved.ok_or_else(too_large)?.to_le_bytes());
    out.extend_from_slice(identifier);
    out.resize(out.len().saturating_add(inserted), 0);
    out.extend_from_slice(rest);
    Ok(out)
}

/// Puts an extended header into the gap of `head`: magic, own length, numbers.
pub(super) fn write_header(head: &mut [u8], magic: [u8; 4], numbers: &[u64]) -> Result<()> {
    let len = u32::try_from(numbers.len().saturating_mul(8).saturating_add(8)).map_err(|_| too_large())?;
    let bytes =
        magic.into_iter().chain(len.to_le_bytes()).chain(numbers.iter().flat_map(|n| n.to_le_bytes()));
    let gap = head.get_mut(HEADER_OFFSET..).ok_or_else(too_small)?;
    for (slot, byte) in gap.iter_mut().zip(bytes) {
        *slot = byte;
    }
    Ok(())
}

pub(super) fn too_large() -> Error {
    Error::limit("the program is too large for a file of this format")
}

fn too_small() -> Error {
    Error::internal("a table is shorter than its own header")
}
