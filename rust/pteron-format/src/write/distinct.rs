//! Deduplication of blobs by content.

use std::collections::HashMap;

/// The distinct blobs of a list, in order of first appearance, and where each entry of the list went.
pub(super) struct Distinct<'a> {
    /// Each content once.
    pub blobs: Vec<&'a [u8]>,
    /// Position in `blobs` for every entry of the list.
    pub index: Vec<usize>,
}

impl<'a> Distinct<'a> {
    /// Sorts out duplicates.
    pub fn of(list: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut seen: HashMap<&'a [u8], usize> = HashMap::new();
        let mut out = Distinct { blobs: Vec::new(), index: Vec::new() };
        for blob in list {
            let next = out.blobs.len();
            let at = *seen.entry(blob).or_insert(next);
            if at == next {
                out.blobs.push(blob);
            }
            out.index.push(at);
        }
        out
    }
}
