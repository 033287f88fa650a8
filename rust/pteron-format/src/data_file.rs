//! A data file (`.ptd`), checked.

use crate::listing::SpecText;
use pteron_core::memory_reserve::{text_of, within_memory_limit};
use pteron_core::{Result, TensorSpec};
use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// What a `.ptd` file says, as owned plain data. Byte ranges are positions in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    /// Its entries, sorted by key; keys are unique.
    pub entries: Vec<DataEntryDef>,
    /// Length of the table with headers.
    pub table_size: usize,
}

/// Named bytes of a data file.
#[derive(Debug, Clone, PartialEq)]
pub struct DataEntryDef {
    /// Name: of a tensor in the model, or what a backend calls its data.
    pub key: String,
    /// Its bytes in the file. With a layout they are exactly as many as the tensor has, and aligned for
    /// its dtype.
    pub range: Range<usize>,
    /// The tensor that the bytes are, if they are one.
    pub layout: Option<TensorSpec>,
}

impl DataFile {
    /// The entry called `key`.
    pub fn entry(&self, key: &str) -> Option<&DataEntryDef> {
        let at = self.entries.binary_search_by(|e| e.key.as_str().cmp(key)).ok()?;
        self.entries.get(at)
    }

    /// Text form: one line per entry.
    ///
    /// # Errors
    /// `ErrorKind::LimitExceeded` when memory for it cannot be had.
    pub fn listing(&self) -> Result<String> {
        within_memory_limit(|| text_of(&Listing(self)))
    }
}

struct Listing<'a>(&'a DataFile);

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "data file: {} entries", self.0.entries.len())?;
        for e in &self.0.entries {
            write!(f, "'{}': ", pteron_core::error::printable(&e.key))?;
            if let Some(spec) = &e.layout {
                write!(f, "{}, ", SpecText(spec))?;
            }
            writeln!(f, "{} bytes at {}", e.range.len(), e.range.start)?;
        }
        Ok(())
    }
}
