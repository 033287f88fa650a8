//! The container: program table, header between identifier and table, padding, segments.

use super::segment_layout::{SegmentLayout, align_up};
use super::{ProgramDraft, WriteOptions, table};
use crate::header::{HEADER_LEN, HEADER_MAGIC, HEADER_OFFSET};
use pteron_core::{Error, ErrorKind, Result};

/// Alignment that every reader gives the program table.
const TABLE_ALIGNMENT: usize = 16;

/// The whole file.
pub(super) fn assemble(draft: &ProgramDraft<'_>, options: &WriteOptions) -> Result<Vec<u8>> {
    options.check()?;
    let layout = SegmentLayout::plan(draft, options)?;
    let delegate_alignment = usize::try_from(options.delegate_alignment).unwrap_or(TABLE_ALIGNMENT);
    let inline_alignment = delegate_alignment.max(TABLE_ALIGNMENT);
    let table = table::build(draft, &layout, inline_alignment)?;

    // Inserting bytes behind the identifier changes only the root offset: every other offset of a
    // FlatBuffer is relative. The insertion also makes the length a multiple of the alignment of inline
    // blobs, which are aligned from the end.
    let header_len = if layout.total == 0 { 0 } else { HEADER_LEN };
    let program_size = table
        .len()
        .checked_add(header_len)
        .and_then(|n| n.checked_next_multiple_of(inline_alignment))
        .ok_or_else(too_large)?;
    let inserted = program_size.saturating_sub(table.len());
    let base = align_up(program_size as u64, layout.base_alignment)?;
    let total = if layout.total == 0 { program_size as u64 } else { base.saturating_add(layout.total) };

    let mut out = Vec::new();
    let capacity = usize::try_from(total).map_err(|_| too_large())?;
    out.try_reserve_exact(capacity).map_err(|_| {
        Error::new(ErrorKind::LimitExceeded, "memory could not be allocated").got(format!("{capacity} bytes"))
    })?;
    append_table(&mut out, &table, inserted)?;
    if header_len != 0 {
        let header = extended_header(program_size as u64, base, layout.total);
        let place = out.get_mut(HEADER_OFFSET..).and_then(|rest| rest.first_chunk_mut::<HEADER_LEN>());
        *place.ok_or_else(too_small)? = header;
        out.resize(usize::try_from(base).map_err(|_| too_large())?, 0);
        layout.append_to(&mut out)?;
    }
    Ok(out)
}

/// Root offset and identifier, `inserted` zero bytes, the rest of `table`.
fn append_table(out: &mut Vec<u8>, table: &[u8], inserted: usize) -> Result<()> {
    let (start, rest) = table.split_at_checked(HEADER_OFFSET).ok_or_else(too_small)?;
    let (root, identifier) = start.split_first_chunk::<4>().ok_or_else(too_small)?;
    let moved = u32::try_from(inserted).ok().and_then(|n| n.checked_add(u32::from_le_bytes(*root)));
    out.extend_from_slice(&moved.ok_or_else(too_large)?.to_le_bytes());
    out.extend_from_slice(identifier);
    out.resize(out.len().saturating_add(inserted), 0);
    out.extend_from_slice(rest);
    Ok(())
}

fn extended_header(program_size: u64, segment_base: u64, segment_size: u64) -> [u8; HEADER_LEN] {
    let length = (HEADER_LEN as u32).to_le_bytes();
    let numbers = [program_size, segment_base, segment_size].map(u64::to_le_bytes);
    let all = HEADER_MAGIC.iter().chain(&length).chain(numbers.iter().flatten());
    let mut out = [0; HEADER_LEN];
    for (slot, byte) in out.iter_mut().zip(all) {
        *slot = *byte;
    }
    out
}

fn too_large() -> Error {
    Error::limit("the program is too large for a file of this format")
}

fn too_small() -> Error {
    Error::internal("the program table is shorter than its own header")
}
