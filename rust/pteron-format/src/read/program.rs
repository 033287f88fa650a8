//! The whole file.

use super::container::Container;
use super::delegates::inline_blobs;
use super::method::MethodContext;
use super::place::{InPlace, explained, name, required};
use super::segments::Segments;
use super::stored_data::StoredData;
use super::table::FileTable;
use crate::generated::wire;
use crate::{MethodDef, NamedDataDef, ProgramFile};
use pteron_core::error::printable;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result};
use std::collections::HashSet;

impl ProgramFile {
    /// Reads and checks a whole file.
    ///
    /// The program table is copied before it is verified, so `bytes` may be a mapping of a file that
    /// somebody changes: what was checked cannot be undone, only weights can differ.
    ///
    /// # Errors
    /// `ErrorKind::Program` when anything in the file breaks a rule of the format, with method,
    /// instruction or value, what was expected and what was found; `ErrorKind::LimitExceeded` when
    /// memory for the table cannot be had.
    pub fn parse(bytes: &[u8]) -> Result<ProgramFile> {
        program(bytes, bytes.len())
    }

    /// As [`ProgramFile::parse`] for a file of `len` bytes of which only the first are at hand, at least
    /// header and program table: what lies behind them is not looked at when a file is checked.
    ///
    /// # Errors
    /// As for [`ProgramFile::parse`].
    pub fn parse_head(head: &[u8], len: u64) -> Result<ProgramFile> {
        let len = usize::try_from(len).map_err(|_| {
            Error::limit("the file is larger than the address space").got(format!("{len} bytes"))
        })?;
        program(head, len)
    }
}

/// Reads and checks a file of `len` bytes that begins with `head`.
fn program(head: &[u8], len: usize) -> Result<ProgramFile> {
    checked(head, len).map_err(explained)
}

fn checked(head: &[u8], len: usize) -> Result<ProgramFile> {
    let container = Container::read(head, len)?;
    let table = head.get(..container.program_size).ok_or_else(|| {
        Error::program("the program table is not within the bytes at hand")
            .expected(format!("{} bytes", container.program_size))
            .got(format!("{} bytes", head.len()))
    })?;
    let table = FileTable::copy_of(table)?;
    let root = table.verified_root::<wire::Program<'_>>()?;
    if root.version() != 0 {
        return Err(Error::program("unknown version of the program table")
            .expected("0")
            .got(root.version().to_string())
            .hint("the file comes from a newer exporter"));
    }
    let segments = Segments::read(&root, &container)?;
    let constants = StoredData::constants(&root, &table, &segments)?;
    let initial = StoredData::initial(&root, &segments)?;
    let named_data = named_data(&root, &segments)?;
    let context = MethodContext {
        constants: &constants,
        initial: &initial,
        segments: &segments,
        inline_blobs: &inline_blobs(&root, &table)?,
    };
    let methods = methods(&root, &context)?;
    Ok(ProgramFile {
        methods,
        named_data,
        constants: constants.segment(),
        segments: segments.into_ranges(),
        program_size: container.program_size,
    })
}

fn methods(root: &wire::Program<'_>, context: &MethodContext<'_>) -> Result<Vec<MethodDef>> {
    let plans = required(root.execution_plan(), "execution_plan")?;
    let mut out: Vec<MethodDef> = try_with_capacity(plans.len())?;
    for plan in plans {
        out.push(context.read(&plan)?);
    }
    let mut names = HashSet::new();
    match out.iter().find(|m| !names.insert(m.name.as_str())) {
        Some(twice) => Err(Error::program("two methods have the same name").got(printable(&twice.name))),
        None => Ok(out),
    }
}

fn named_data(root: &wire::Program<'_>, segments: &Segments) -> Result<Vec<NamedDataDef>> {
    let table = root.named_data().unwrap_or_default();
    let mut out = try_with_capacity(table.len())?;
    for (index, entry) in table.iter().enumerate() {
        let key = required(entry.key(), "key").in_place(|| format!("named data {index}"))?;
        let place = || format!("named data '{}'", printable(key));
        let range = segments.get(entry.segment_index()).in_place(place)?;
        out.push(NamedDataDef { key: name(key)?, range });
    }
    out.sort_by(|a, b| a.key.cmp(&b.key));
    let twice = out.iter().zip(out.iter().skip(1)).find(|(a, b)| a.key == b.key);
    match twice {
        Some((a, _)) => Err(Error::program("two named blobs have the same key").got(printable(&a.key))),
        None => Ok(out),
    }
}
