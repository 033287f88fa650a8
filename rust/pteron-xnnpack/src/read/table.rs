//! A private copy of a payload's graph, and its structural check. The copy comes first, so nobody can change what was checked.

use crate::generated::wire;
use flatbuffers::VerifierOptions;
use pteron_core::error::printable;
use pteron_core::{AlignedBuffer, Error, Result};
use std::ops::Range;

/// Deepest nesting of tables; the schema needs 5.
const MAX_DEPTH: usize = 16;
/// Bytes that a table may seem to have when everything it shares is counted at every use: this many times its size, plus
/// [`APPARENT_BASE`]. Legal files share little but vtables.
const APPARENT_FACTOR: usize = 16;
/// See [`APPARENT_FACTOR`].
const APPARENT_BASE: usize = 1 << 20;
/// Where the identifier is, and the ones that are read.
const IDENTIFIER: Range<usize> = 4..8;
const KNOWN: [&[u8]; 2] = [b"XN00", b"XN01"];

/// Owned bytes of a graph.
pub(super) struct GraphTable {
    bytes: AlignedBuffer,
}

impl GraphTable {
    /// Copies the bytes `range` of `payload`.
    pub(super) fn copy_of(payload: &[u8], range: &Range<usize>) -> Result<Self> {
        let bytes = payload.get(range.clone()).unwrap_or_default();
        Ok(GraphTable { bytes: AlignedBuffer::copy_of(bytes)? })
    }

    /// The root, after the identifier and every offset, length, vtable and string below it was verified.
    pub(super) fn verified_root(&self) -> Result<wire::Graph<'_>> {
        let bytes = self.bytes.as_slice();
        let identifier = bytes.get(IDENTIFIER).unwrap_or_default();
        if !KNOWN.contains(&identifier) {
            return Err(Error::program("the XNNPACK payload is not of a known format")
                .expected("file identifier XN00 or XN01")
                .got(format!("'{}'", printable(&String::from_utf8_lossy(identifier))))
                .hint("the file was damaged, or written by another generation of ExecuTorch: export the model again"));
        }
        let max_apparent_size = bytes.len().saturating_mul(APPARENT_FACTOR).saturating_add(APPARENT_BASE);
        let options = VerifierOptions {
            max_depth: MAX_DEPTH,
            // Every visit of a table counts at least 8 bytes, so this is no limit of its own.
            max_tables: max_apparent_size,
            max_apparent_size,
            ignore_missing_null_terminator: false,
        };
        flatbuffers::root_with_opts::<wire::Graph<'_>>(&options, bytes).map_err(|e| {
            let reason = e.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            Error::program("the graph of the XNNPACK payload is damaged")
                .got(reason)
                .hint("copy the file again, or export the model again")
        })
    }
}
