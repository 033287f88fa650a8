//! What all methods and sessions of a program share: its bytes and those of its data files, what they say,
//! debug information.

use crate::load::debug_info::DebugInfo;
use crate::load::delegate_data::own_key;
use crate::load::external_file::ExternalFiles;
use crate::load::packed_index::{INDEX_KEY, PackedIndex};
use crate::load::source::{data_file_key, file_key};
use crate::load::storage::Storage;
use pteron_core::error::printable;
use pteron_core::{ConstantKey, Error, NamedData, PackStore, Result, StableBytes};
use pteron_format::{DEBUG_KEY, ProgramFile};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

/// The bytes of a program and what they say.
pub(crate) struct ProgramData {
    storage: Arc<Storage>,
    file: ProgramFile,
    external: ExternalFiles,
    debug: OnceLock<DebugInfo>,
    released: Mutex<Released>,
}

/// Bytes that are collected before the system is asked to take them: a call for each of a thousand small weights
/// would cost more than their pages.
const RELEASED_AT_ONCE: u64 = 1 << 20;

/// Between neighbours there may lie this much that is needed: its page is read from the file again.
const GAP: u64 = 4096;

/// Constants that are not expected to be read again.
#[derive(Default)]
struct Released {
    /// Since [`ProgramData::release_again`].
    keys: Vec<ConstantKey>,
    /// How many of them were given back to the system.
    given_back: usize,
    /// Bytes of the others.
    waiting: u64,
}

impl ProgramData {
    /// Checks the program; a key that it shares with a data file must stand for the same bytes.
    pub(crate) fn new(storage: Storage, external: ExternalFiles) -> Result<Self> {
        let file = ProgramFile::parse(storage.bytes())?;
        let data = ProgramData {
            storage: Arc::new(storage),
            file,
            external,
            debug: OnceLock::new(),
            released: Mutex::default(),
        };
        for named in &data.file.named_data {
            if let Some((_, file, _)) = data.external.find(&named.key)
                && data.external.get(&named.key) != data.bytes(&named.range)
            {
                return Err(Error::external_data("program and data file have different bytes under one key")
                    .expected("data that was written with the program")
                    .got(format!(
                        "'{}' in the program and in '{}'",
                        printable(&named.key),
                        printable(&file.name)
                    ))
                    .hint("pass only the data files that were written with this program"));
            }
        }
        Ok(data)
    }

    pub(crate) fn file(&self) -> &ProgramFile {
        &self.file
    }

    /// Bytes of the program file.
    pub(crate) fn file_bytes(&self) -> usize {
        self.storage.bytes().len()
    }

    pub(crate) fn external(&self) -> &ExternalFiles {
        &self.external
    }

    /// Bytes of a range that the format crate has checked.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> Option<&[u8]> {
        self.storage.bytes().get(range.clone())
    }

    /// Bytes of a stored constant; `None` for keys of other origins.
    pub(crate) fn constant(&self, key: &ConstantKey) -> Option<&[u8]> {
        self.storage_of(key)?.range(key.offset, key.nbytes).ok()
    }

    /// Says that the bytes of a stored constant are not expected to be read again.
    pub(crate) fn release(&self, key: &ConstantKey) {
        let Ok(mut released) = self.released.lock() else { return };
        released.keys.push(*key);
        released.waiting = released.waiting.saturating_add(key.nbytes);
        if released.waiting >= RELEASED_AT_ONCE {
            let waiting = released.keys.get(released.given_back..).map(<[ConstantKey]>::to_vec);
            released.given_back = released.keys.len();
            released.waiting = 0;
            self.give_back(waiting.unwrap_or_default());
        }
    }

    /// Once more for all that was released, at the end of load: whatever was read next to it has brought pages
    /// of it back.
    pub(crate) fn release_again(&self) {
        let released = self.released.lock().map(|mut released| std::mem::take(&mut *released));
        self.give_back(released.unwrap_or_default().keys);
    }

    /// Gives pages back to the system, those of neighbours at once.
    fn give_back(&self, mut keys: Vec<ConstantKey>) {
        keys.sort_unstable_by_key(|key| (key.origin, key.offset));
        let are_neighbours = |a: &ConstantKey, b: &ConstantKey| {
            a.origin == b.origin && b.offset.saturating_sub(a.offset.saturating_add(a.nbytes)) < GAP
        };
        for run in keys.chunk_by(are_neighbours) {
            let Some(first) = run.first() else { continue };
            let end = run.iter().map(|key| key.offset.saturating_add(key.nbytes)).max().unwrap_or(0);
            if let Some(storage) = self.storage_of(first) {
                storage.release(first.offset, end.saturating_sub(first.offset));
            }
        }
    }

    /// Does the constant lie in a mapped file?
    pub(crate) fn is_mapped(&self, key: &ConstantKey) -> bool {
        self.storage_of(key).is_some_and(Storage::is_mapped)
    }

    fn storage_of(&self, key: &ConstantKey) -> Option<&Storage> {
        match key.origin.checked_sub(1) {
            None => Some(&*self.storage),
            Some(index) => Some(&self.external.file(index as usize)?.storage),
        }
    }

    /// The store of packed weights, with those that the file brings along.
    ///
    /// Errors: an index of packed weights that breaks a rule, or names a format that this version does not
    /// read.
    pub(crate) fn pack_store(&self) -> Result<PackStore> {
        let Some(text) = self.own(INDEX_KEY) else { return Ok(PackStore::new()) };
        let packs = PackedIndex::parse(text)?.ranges(&self.file)?;
        Ok(PackStore::with_stored(self.storage.clone(), packs))
    }

    /// Debug information, parsed when it is first asked for; empty when the file has none.
    pub(crate) fn debug(&self) -> &DebugInfo {
        self.debug.get_or_init(|| self.own(DEBUG_KEY).map(DebugInfo::parse).unwrap_or_default())
    }

    /// A named blob of the program file itself.
    pub(crate) fn own(&self, key: &str) -> Option<&[u8]> {
        self.bytes(&self.file.named(key)?)
    }

    /// Where the bytes are that delegate `index` of `method` finds under `key`.
    pub(crate) fn delegate_key(&self, key: &str, method: &str, index: usize) -> Option<ConstantKey> {
        self.named_key(&own_key(key, method, index)).or_else(|| self.named_key(key))
    }

    fn named_key(&self, key: &str) -> Option<ConstantKey> {
        match self.external.find(key) {
            Some((index, _, entry)) => data_file_key(index, &entry.range),
            None => Some(file_key(&self.file.named(key)?)),
        }
    }

    /// Keys of all named blobs, of the program and of its data files, sorted.
    pub(crate) fn keys(&self) -> Vec<&str> {
        let own = self.file.named_data.iter().map(|n| n.key.as_str());
        let mut keys: Vec<&str> = own.chain(self.external.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl NamedData for ProgramData {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.external.get(key).or_else(|| self.own(key))
    }
}
