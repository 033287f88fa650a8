//! Fields of a graph as numbers that can be used.

use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result};

/// No value, no argument.
pub(super) const INVALID: u32 = u32::MAX;

/// As an index or extent; u32 fits.
pub(super) fn index(number: u32) -> usize {
    number as usize
}

/// A vector of numbers that belong to the dimensions of a value.
pub(super) fn numbers(list: Option<flatbuffers::Vector<'_, u32>>) -> Result<Vec<usize>> {
    let list = list.unwrap_or_default();
    let mut out = try_with_capacity(list.len())?;
    out.extend(list.iter().map(index));
    Ok(out)
}

/// The same, whose length is said twice.
pub(super) fn counted(
    list: Option<flatbuffers::Vector<'_, u32>>,
    count: u32,
    what: &str,
) -> Result<Vec<usize>> {
    let found = numbers(list)?;
    if found.len() != index(count) {
        return Err(Error::program(format!("{what}: the list and its stated length differ"))
            .expected(format!("{count} numbers"))
            .got(format!("{} numbers", found.len())));
    }
    Ok(found)
}

/// A table that the schema does not ask for, but every exporter writes.
pub(super) fn required<T>(field: Option<T>, name: &str) -> Result<T> {
    field.ok_or_else(|| {
        Error::program(format!("the field '{name}' of the XNNPACK payload is missing"))
            .expected("a table, which every exporter writes")
            .got("none")
    })
}
