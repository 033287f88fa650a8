//! The delegate table of a method.

use super::place::{InPlace, index_below, name, required};
use super::segments::Segments;
use super::table::FileTable;
use crate::DelegateDef;
use crate::generated::wire;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{CompileSpec, Error, Result};
use std::ops::Range;

/// Reads all delegates of `plan`.
pub(super) fn delegates(
    plan: &wire::ExecutionPlan<'_>,
    inline: &[Range<usize>],
    segments: &Segments,
) -> Result<Vec<DelegateDef>> {
    let table = plan.delegates().unwrap_or_default();
    let mut out = try_with_capacity(table.len())?;
    for (index, entry) in table.iter().enumerate() {
        out.push(delegate(&entry, inline, segments).in_place(|| format!("delegate {index}"))?);
    }
    Ok(out)
}

/// Places of the blobs inside the program table.
pub(super) fn inline_blobs(program: &wire::Program<'_>, table: &FileTable) -> Result<Vec<Range<usize>>> {
    let entries = program.backend_delegate_data().unwrap_or_default();
    let mut out = try_with_capacity(entries.len())?;
    out.extend(entries.iter().map(|e| match e.data() {
        Some(bytes) => table.range_of(bytes.bytes()),
        None => 0..0,
    }));
    Ok(out)
}

fn delegate(
    entry: &wire::BackendDelegate<'_>,
    inline: &[Range<usize>],
    segments: &Segments,
) -> Result<DelegateDef> {
    let backend = name(required(entry.id(), "id")?)?;
    let place = required(entry.processed(), "processed")?;
    let blob = match place.location() {
        wire::DataLocation::SEGMENT => segments.get(place.index())?,
        wire::DataLocation::INLINE => {
            let index = index_below(i64::from(place.index()), inline.len(), "inline blob")?;
            inline.get(index as usize).cloned().unwrap_or_default()
        }
        other => {
            return Err(Error::program("unknown location of the blob").got(format!("code {}", other.0)));
        }
    };
    let table = entry.compile_specs().unwrap_or_default();
    let mut specs = try_with_capacity(table.len())?;
    for (index, spec) in table.iter().enumerate() {
        let key = required(spec.key(), "key").and_then(name).in_place(|| format!("compile spec {index}"))?;
        let bytes = spec.value().unwrap_or_default();
        let mut value = try_with_capacity(bytes.len())?;
        value.extend_from_slice(bytes.bytes());
        specs.push(CompileSpec { key, value });
    }
    Ok(DelegateDef { backend, blob, specs })
}
