//! A data file: header, table, entries.

use super::container::{read_u32, read_u64, within};
use super::foreign;
use super::place::{InPlace, explained, name, required};
use super::segments::Segments;
use super::table::FileTable;
use super::tensor_layout::layout_spec;
use crate::generated::data_wire;
use crate::header::{DATA_HEADER_LEN, DATA_HEADER_MAGIC, DATA_IDENTIFIER, HEADER_OFFSET, IDENTIFIER_OFFSET};
use crate::{DataEntryDef, DataFile};
use pteron_core::error::printable;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, ErrorKind, Result, TensorSpec};
use std::ops::Range;

impl DataFile {
    /// Reads and checks a whole data file. The table is copied before it is verified, as in
    /// [`crate::ProgramFile::parse`].
    ///
    /// # Errors
    /// `ErrorKind::ExternalData` when anything in the file breaks a rule of the format;
    /// `ErrorKind::LimitExceeded` when memory for the table cannot be had.
    pub fn parse(bytes: &[u8]) -> Result<DataFile> {
        data_file(bytes, bytes.len())
    }
}

/// Reads and checks a data file of `len` bytes that begins with `head`.
pub(crate) fn data_file(head: &[u8], len: usize) -> Result<DataFile> {
    // What is shared with programs says "program"; whoever catches it should know that it is the data.
    checked(head, len).map_err(explained).map_err(|e| match e.kind() {
        ErrorKind::Program => e.with_kind(ErrorKind::ExternalData),
        _ => e,
    })
}

fn checked(head: &[u8], len: usize) -> Result<DataFile> {
    check_identifier(head)?;
    let (table_size, area) = read_header(head.get(HEADER_OFFSET..).unwrap_or_default(), len)?;
    let table = head.get(..table_size).ok_or_else(|| Error::program("the table is not within the file"))?;
    let table = FileTable::copy_of(table)?;
    let root = table.verified_root::<data_wire::FlatTensor<'_>>()?;
    if root.version() != 0 {
        return Err(Error::program("unknown version of the data file")
            .expected("0")
            .got(root.version().to_string())
            .hint("the file comes from a newer exporter"));
    }
    let segments = root.segments().unwrap_or_default();
    let segments = Segments::of_extents(segments.iter().map(|s| (s.offset(), s.size_())), &area)?;
    let named = root.named_data().unwrap_or_default();
    let mut entries = try_with_capacity(named.len())?;
    for (index, entry) in named.iter().enumerate() {
        let key = required(entry.key(), "key").in_place(|| format!("entry {index}"))?;
        entries.push(read_entry(&entry, key, &segments).in_place(|| format!("entry '{}'", printable(key)))?);
    }
    entries.sort_by(|a: &DataEntryDef, b| a.key.cmp(&b.key));
    let twice = entries.iter().zip(entries.iter().skip(1)).find(|(a, b)| a.key == b.key);
    match twice {
        Some((a, _)) => Err(Error::program("two entries have the same key").got(printable(&a.key))),
        None => Ok(DataFile { entries, table_size }),
    }
}

fn check_identifier(file: &[u8]) -> Result<()> {
    let found = file.get(IDENTIFIER_OFFSET..).and_then(|rest| rest.first_chunk::<4>());
    let Some(found) = found else {
        return Err(Error::program("the file is too short to be a data file")
            .expected("at least 8 bytes")
            .got(format!("{} bytes", file.len())));
    };
    if found == DATA_IDENTIFIER.as_bytes() {
        return Ok(());
    }
    let error = Error::program("the file is not a data file of a known format")
        .expected(format!("file identifier {DATA_IDENTIFIER}"));
    Err(foreign::refusal(error, file, ".ptd"))
}

/// Length of the table with headers, and the area of the segments.
fn read_header(header: &[u8], len: usize) -> Result<(usize, Range<usize>)> {
    if !header.starts_with(&DATA_HEADER_MAGIC) {
        return Err(Error::program("the data file has no header").expected("FH01 at byte 8"));
    }
    let header_len = read_u32(header, 4)? as usize;
    if header_len < DATA_HEADER_LEN {
        return Err(Error::program("the header of the data file is too short")
            .expected(format!("at least {DATA_HEADER_LEN} bytes"))
            .got(format!("{header_len} bytes")));
    }
    // The offset of the table is what the header inserted, its size that before the insertion.
    let table_end = read_u64(header, 8)?.saturating_add(read_u64(header, 16)?);
    let table_size = within(table_end, len, "the table")?;
    let base = read_u64(header, 24)?;
    let start = within(base, len, "the segment base")?;
    let end = within(base.saturating_add(read_u64(header, 32)?), len, "the segment data")?;
    if start < table_size && start != end {
        return Err(Error::program("segments overlap the table")
            .expected(format!("a segment base of at least {table_size}"))
            .got(start.to_string()));
    }
    Ok((table_size, start..end))
}

fn read_entry(entry: &data_wire::NamedData<'_>, key: &str, segments: &Segments) -> Result<DataEntryDef> {
    let range = segments.get(entry.segment_index())?;
    let layout = match entry.tensor_layout() {
        Some(layout) => {
            let spec = layout_spec(layout.scalar_type().0, layout.sizes(), layout.dim_order())?;
            check_bytes(&spec, &range)?;
            Some(spec)
        }
        None => None,
    };
    Ok(DataEntryDef { key: name(key)?, range, layout })
}

fn check_bytes(spec: &TensorSpec, range: &Range<usize>) -> Result<()> {
    let nbytes = spec.nbytes()?;
    if nbytes != range.len() {
        return Err(Error::program("the tensor and its bytes differ in length")
            .expected(format!("{nbytes} bytes"))
            .got(format!("{} bytes", range.len())));
    }
    let align = spec.dtype.align();
    if nbytes > 0 && !range.start.is_multiple_of(align) {
        return Err(Error::program("the tensor's bytes are misaligned for its dtype")
            .expected(format!("an offset that is a multiple of {align}"))
            .got(range.start.to_string()));
    }
    Ok(())
}
