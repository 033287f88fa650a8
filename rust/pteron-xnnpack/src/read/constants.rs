//! The table of constants: where stored bytes are and how many there are.

use super::fields::{INVALID, index, required};
use crate::expansion::ConstantBytes;
use crate::generated::wire;
use crate::payload::StoredBytes;
use pteron_core::error::printable;
use pteron_core::sizes::checked_range;
use pteron_core::{Error, NamedData, Result};
use std::ops::Range;

/// An offset that says: named data.
const NAMED: u64 = u64::MAX;

/// The table of constants of a graph.
pub(super) struct Constants<'a> {
    table: flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<wire::ConstantData<'a>>>,
    data: Range<usize>,
    named: &'a dyn NamedData,
}

impl<'a> Constants<'a> {
    /// The constants of `graph`, whose bytes are those of `data` in the payload or named data of the program.
    pub(super) fn new(graph: &wire::Graph<'a>, data: Range<usize>, named: &'a dyn NamedData) -> Result<Self> {
        let table = graph.constant_data().unwrap_or_default();
        let inline = graph.constant_buffer().unwrap_or_default();
        if table.is_empty() && inline.len() > 1 {
            return Err(Error::program(
                "the XNNPACK payload keeps its weights within the graph, as exporters before 2024 did",
            )
            .expected("weights as named data, or behind the graph")
            .got(format!("{} buffers in the graph", inline.len()))
            .hint("export the model again"));
        }
        Ok(Constants { table, data, named })
    }

    /// The bytes of constant `number`, which is not 0; the first byte lies at a multiple of `align`.
    pub(super) fn stored(&self, number: u32, align: usize) -> Result<StoredBytes> {
        let place = || format!("constant {number} of the XNNPACK payload");
        if number == INVALID || index(number) >= self.table.len() {
            return Err(Error::program(format!("{} is not in the table of constants", place()))
                .expected(format!("an index below {}", self.table.len())));
        }
        let entry = self.table.get(index(number));
        let size = entry.size_();
        let key = entry.named_key().unwrap_or_default();
        if entry.offset() == NAMED {
            let key = required(Some(key).filter(|key| !key.is_empty()), "named_key")?;
            return self.named(key, size).map_err(|e| e.argument(place()));
        }
        if !key.is_empty() {
            return Err(
                Error::program(format!("{} has both an offset and a name", place())).got(printable(key))
            );
        }
        let range = checked_range(entry.offset(), size, self.data.len())
            .map_err(|e| e.with_message(format!("{} lies outside of the payload", place())))?;
        let shifted = |at: usize| self.data.start.checked_add(at);
        let (Some(start), Some(end)) = (shifted(range.start), shifted(range.end)) else {
            return Err(Error::program(format!("{} lies outside of the payload", place())));
        };
        if !start.is_multiple_of(align) {
            return Err(Error::program(format!("{} is misaligned for its elements", place()))
                .expected(format!("an offset that is a multiple of {align}"))
                .got(start.to_string()));
        }
        Ok(StoredBytes { bytes: ConstantBytes::Payload(start..end), len: range.len() })
    }

    fn named(&self, key: &str, size: u64) -> Result<StoredBytes> {
        let Some(found) = self.named.get(key) else {
            return Err(Error::external_data("a weight of the XNNPACK payload is not there")
                .expected(format!("named data '{}' in the program or its data files", printable(key)))
                .hint("pass the data file (.ptd) that was written together with the program"));
        };
        let len = usize::try_from(size).ok().filter(|size| *size <= found.len());
        let Some(len) = len else {
            return Err(Error::external_data("a weight of the XNNPACK payload is too short")
                .expected(format!("at least {size} bytes of '{}'", printable(key)))
                .got(format!("{} bytes", found.len()))
                .hint("pass the data file (.ptd) that was written together with the program"));
        };
        Ok(StoredBytes { bytes: ConstantBytes::Named(key.to_owned()), len })
    }
}
