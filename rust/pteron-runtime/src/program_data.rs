//! What all methods and sessions of a program share: its bytes, what the file says, debug information.

use crate::debug_info::DebugInfo;
use crate::packed_index::{INDEX_KEY, PackedIndex};
use crate::storage::Storage;
use pteron_core::{ConstantKey, NamedData, PackStore, Result, StableBytes};
use pteron_format::ProgramFile;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Named data that holds [`DebugInfo`].
const DEBUG_KEY: &str = "pteron.debug";

/// The bytes of a program and what they say.
pub(crate) struct ProgramData {
    storage: Arc<Storage>,
    file: ProgramFile,
    debug: OnceLock<DebugInfo>,
}

/// Origin of constants that lie in the program file itself; their offset is the file offset.
pub(crate) const FILE_ORIGIN: u32 = 0;

impl ProgramData {
    pub(crate) fn new(storage: Storage) -> Result<Self> {
        let file = ProgramFile::parse(storage.bytes())?;
        Ok(ProgramData { storage: Arc::new(storage), file, debug: OnceLock::new() })
    }

    pub(crate) fn file(&self) -> &ProgramFile {
        &self.file
    }

    /// Bytes of a range that the format crate has checked.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> Option<&[u8]> {
        self.storage.bytes().get(range.clone())
    }

    /// Bytes of a stored constant; `None` for keys of other origins.
    pub(crate) fn constant(&self, key: &ConstantKey) -> Option<&[u8]> {
        if key.origin != FILE_ORIGIN {
            return None;
        }
        self.storage.range(key.offset, key.nbytes).ok()
    }

    /// The store of packed weights, with those that the file brings along.
    ///
    /// Errors: an index of packed weights that breaks a rule, or names a format that this version does not
    /// read.
    pub(crate) fn pack_store(&self) -> Result<PackStore> {
        let Some(text) = self.get(INDEX_KEY) else { return Ok(PackStore::new()) };
        let packs = PackedIndex::parse(text)?.ranges(&self.file)?;
        Ok(PackStore::with_stored(self.storage.clone(), packs))
    }

    /// Debug information, parsed when it is first asked for; empty when the file has none.
    pub(crate) fn debug(&self) -> &DebugInfo {
        self.debug.get_or_init(|| self.get(DEBUG_KEY).map(DebugInfo::parse).unwrap_or_default())
    }
}

impl NamedData for ProgramData {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.bytes(&self.file.named(key)?)
    }
}
