//! A private copy of a file's table, and its structural check.

use flatbuffers::{Follow, InvalidFlatbuffer, Verifiable, VerifierOptions};
use pteron_core::{AlignedBuffer, Error, Result};
use std::ops::Range;

/// Deepest nesting of tables; the schema needs 6.
const MAX_DEPTH: usize = 16;
/// Bytes that a table may seem to have when everything it shares is counted at every use: this many
/// times its size, plus [`APPARENT_BASE`]. Legal files share little but vtables.
const APPARENT_FACTOR: usize = 16;
/// See [`APPARENT_FACTOR`].
const APPARENT_BASE: usize = 1 << 20;

/// Owned bytes of a table. The copy comes first and the check second, so nobody can change what was
/// checked.
pub(crate) struct FileTable {
    bytes: AlignedBuffer,
}

impl FileTable {
    /// Copies `bytes`, the start of a file up to the end of its table.
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        Ok(FileTable { bytes: AlignedBuffer::copy_of(bytes)? })
    }

    /// Takes a private copy that somebody else made.
    pub fn of_copy(bytes: AlignedBuffer) -> Self {
        FileTable { bytes }
    }

    /// The copy.
    pub fn into_bytes(self) -> AlignedBuffer {
        self.bytes
    }

    /// The root table, after every offset, length, vtable and string below it was verified.
    pub fn verified_root<'t, T>(&'t self) -> Result<T::Inner>
    where
        T: Follow<'t> + Verifiable + 't,
    {
        let bytes = self.bytes.as_slice();
        let max_apparent_size = bytes.len().saturating_mul(APPARENT_FACTOR).saturating_add(APPARENT_BASE);
        let options = VerifierOptions {
            max_depth: MAX_DEPTH,
            // Every visit of a table counts at least 8 bytes, so this is no limit of its own.
            max_tables: max_apparent_size,
            max_apparent_size,
            ignore_missing_null_terminator: false,
        };
        flatbuffers::root_with_opts::<T>(&options, bytes).map_err(|e| damaged(&e))
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
    Error::program("the table of the file is damaged")
        .got(reason)
        .hint("the file may have been cut short or changed; copy or export it again")
}
