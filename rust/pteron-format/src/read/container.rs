//! File identifier and extended header: where the program table and the segments are.

use super::foreign;
use crate::header::{
    FILE_IDENTIFIER, HEADER_LEN, HEADER_MAGIC, HEADER_MIN_LEN, HEADER_OFFSET, IDENTIFIER_OFFSET,
};
use pteron_core::{Error, Result};

/// The outermost layout of a file, checked against its length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// The program table is bytes `0..program_size`.
    pub program_size: usize,
    /// Where segment offsets count from; 0 when the file has no segments.
    pub segment_base: usize,
    /// End of the last byte that segments may use.
    pub segment_end: usize,
}

impl Container {
    /// Reads identifier and header of a file of `len` bytes that begins with `head`.
    pub fn read(head: &[u8], len: usize) -> Result<Self> {
        check_identifier(head)?;
        let header = head.get(HEADER_OFFSET..).unwrap_or_default();
        if !header.starts_with(&HEADER_MAGIC) {
            return Ok(Container { program_size: len, segment_base: 0, segment_end: len });
        }
        let length = read_u32(header, 4)? as usize;
        if length < HEADER_MIN_LEN {
            return Err(Error::program("the extended header is too short")
                .expected(format!("at least {HEADER_MIN_LEN} bytes"))
                .got(format!("{length} bytes")));
        }
        let program_size = within(read_u64(header, 8)?, len, "the program table")?;
        let segment_base = within(read_u64(header, 16)?, len, "the segment base")?;
        let segment_size = if length >= HEADER_LEN { read_u64(header, 24)? } else { 0 };
        if segment_base != 0 && segment_base < program_size {
            return Err(Error::program("segments overlap the program table")
                .expected(format!("a segment base of at least {program_size}"))
                .got(segment_base.to_string()));
        }
        let segment_end = match segment_size {
            // Old writers left the size out; each segment is checked against the file in any case.
            0 => len,
            n => within(n.saturating_add(segment_base as u64), len, "the segment data")?,
        };
        if segment_base == 0 && segment_size != 0 {
            return Err(Error::program("the header gives a size of segment data but no place for it")
                .got(format!("{segment_size} bytes")));
        }
        Ok(Container { program_size, segment_base, segment_end })
    }
}

fn check_identifier(file: &[u8]) -> Result<()> {
    let found = file.get(IDENTIFIER_OFFSET..).and_then(|rest| rest.first_chunk::<4>());
    let Some(found) = found else {
        return Err(Error::program("the file is too short to be a program")
            .expected("at least 8 bytes")
            .got(format!("{} bytes", file.len())));
    };
    if found == FILE_IDENTIFIER.as_bytes() {
        return Ok(());
    }
    let error = Error::program("the file is not a program of a known format")
        .expected(format!("file identifier {FILE_IDENTIFIER}"));
    Err(foreign::refusal(error, file, ".pte"))
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> Result<u32> {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    chunk.map(|c| u32::from_le_bytes(*c)).ok_or_else(cut)
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> Result<u64> {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    chunk.map(|c| u64::from_le_bytes(*c)).ok_or_else(cut)
}

fn cut() -> Error {
    Error::program("the file ends within the extended header")
}

pub(super) fn within(end: u64, file_len: usize, what: &str) -> Result<usize> {
    match usize::try_from(end) {
        Ok(n) if n <= file_len => Ok(n),
        _ => Err(Error::program(format!("{what} reaches beyond the end of the file"))
            .expected(format!("at most {file_len} bytes"))
            .got(end.to_string())
            .hint("the file may have been cut short; copy or export it again")),
    }
}
