//! A private copy of the program table, and its structural check.

use crate::generated::wire;
use flatbuffers::{InvalidFlatbuffer, VerifierOptions};
use pteron_core::{AlignedBuffer, Error, Result};
use std::ops::Range;

/// Deepest nesting of tables; the schema needs 6.
const MAX_DEPTH: usize = 16;
/// Bytes that a table may seem to have when everything it shares is counted at every use: this many
/// times its size, plus [`APPARENT_BASE`]. Legal files share little but vtables.
const APPARENT_FACTOR: usize = 16;
/// See [`APPARENT_FACTOR`].
const APPARENT_BASE: usize = 1 << 20;

/// Owned bytes of a program table. The copy comes first and the check second, so nobody can change
/// what was checked.
pub(super) struct ProgramTable {
    bytes: AlignedBuffer,
}

impl ProgramTable {
    /// Copies `bytes`, the program table of a file with its headers.
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        Ok(ProgramTable { bytes: AlignedBuffer::copy_of(bytes)? })
    }

    /// The root table, after every offset, length, vtable and string below it was verified.
    pub fn verified_root(&self) -> Result<wire::Program<'_>> {
        let bytes = self.bytes.as_slice();
        let max_apparent_size = bytes.len().saturating_mul(APPARENT_FACTOR).saturating_add(APPARENT_BASE);
        let options = VerifierOptions {
            max_depth: MAX_DEPTH,
            // Every visit of a table counts at least 8 bytes, so this is no limit of its own.
            max_tables: max_apparent_size,
            max_apparent_size,
            ignore_missing_null_terminator: false,
        };
        flatbuffers::root_with_opts::<wire::Program<'_>>(&options, bytes).map_err(|e| damaged(&e))
    }

    /// The place of `part`, a slice of this table, in the file. The table is the start of the file.
    pub fn range_of(&self, part: &[u8]) -> Range<usize> {
        let start = part.as_ptr().addr().wrapping_sub(self.bytes.as_slice().as_ptr().addr());
        start..start.wrapping_add(part.len())
    }
}

#[cold]
fn damaged(error: &InvalidFlatbuffer) -> Error {
    let reason = match error {
        InvalidFlatbuffer::DepthLimitReached => "tables are nested too deep".to_owned(),
        InvalidFlatbuffer::ApparentSizeTooLarge | InvalidFlatbuffer::TooManyTables => {
            "tables refer to the same bytes over and over".to_owned()
        }
        other => other.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
    };
    Error::program("the program table is damaged")
        .got(reason)
        .hint("the file may have been cut short or changed; copy or export it again")
}
