//! Where the bytes of a file come from.

use pteron_core::{ConstantKey, StableBytes};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a program comes from.
pub enum ProgramSource {
    /// A file.
    File {
        /// Path of the `.pte` file.
        path: PathBuf,
        /// Map the weights (private, read-only)? Else they are read into memory of the program's own,
        /// for files on storage that may change or vanish.
        is_mapped: bool,
    },
    /// Bytes that somebody keeps unchanged while the program lives (Python `bytes`, a `Vec<u8>`).
    /// Used in place when 16-byte aligned, else copied.
    Bytes(Arc<dyn StableBytes>),
}

/// Origin of constants that lie in the program file itself; their offset is the file offset. Data file n
/// (from 0) is origin n + 1.
pub(crate) const FILE_ORIGIN: u32 = 0;

/// Names a byte range of data file `index`; `None` where there are too many of them.
pub(crate) fn data_file_key(index: usize, range: &Range<usize>) -> Option<ConstantKey> {
    let origin = u32::try_from(index).ok()?.checked_add(1)?;
    Some(ConstantKey { origin, offset: range.start as u64, nbytes: range.len() as u64 })
}

/// Names a byte range of the program file.
pub(crate) fn file_key(range: &Range<usize>) -> ConstantKey {
    ConstantKey { origin: FILE_ORIGIN, offset: range.start as u64, nbytes: range.len() as u64 }
}
