//! Packed weights on their way into a file.

use crate::load::packed_index::{INDEX_KEY, PackedIndex};
use crate::load::source::FILE_ORIGIN;
use pteron_core::{DERIVED_ORIGIN, PackKey, PackedBytes, Result};
use pteron_format::ProgramFile;
use std::ops::Range;
use std::sync::Arc;

/// Named data to store with a program, so that its load packs nothing: the index and the packs.
pub struct PackedWeights {
    index: Vec<u8>,
    packs: Vec<(String, Arc<PackedBytes>)>,
}

impl PackedWeights {
    pub(crate) fn new(made: Vec<(PackKey, Arc<PackedBytes>)>, file: &ProgramFile) -> Result<PackedWeights> {
        let (keys, packs): (Vec<_>, Vec<_>) = made
            .into_iter()
            // Computed at load from what the file has; nothing in a file refers to them, nor to weights of delegates.
            .filter(|(key, _)| key.constant.origin != DERIVED_ORIGIN && !is_of_delegate(key, file))
            .enumerate()
            .map(|(i, (key, pack))| {
                let name = format!("{INDEX_KEY}.{i}");
                ((name.clone(), key), (name, pack))
            })
            .unzip();
        Ok(PackedWeights { index: PackedIndex::text(&keys, file)?, packs })
    }

    /// Name and bytes of the index.
    pub fn index(&self) -> (&'static str, &[u8]) {
        (INDEX_KEY, &self.index)
    }

    /// Name and bytes of each pack; each wants to lie at a multiple of 64 bytes.
    pub fn packs(&self) -> impl Iterator<Item = (&str, &Arc<PackedBytes>)> {
        self.packs.iter().map(|(name, pack)| (name.as_str(), pack))
    }
}

/// Is the constant a weight of a delegate: named data, or a part of a payload?
fn is_of_delegate(key: &PackKey, file: &ProgramFile) -> bool {
    let holds = |range: &Range<usize>| (range.start as u64..range.end as u64).contains(&key.constant.offset);
    let mut blobs = file.methods.iter().flat_map(|method| &method.delegates);
    key.constant.origin == FILE_ORIGIN
        && (file.named_data.iter().any(|named| holds(&named.range)) || blobs.any(|d| holds(&d.blob)))
}
