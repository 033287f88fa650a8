//! `pteron.packed`: which packed weights a file brings along, as JSON. The packs themselves are named data of
//! their own, numbers only; what the index says about them is checked here, before any kernel sees them.
//!
//! ```json
//! {"version": 1, "packs": [{"data": "pteron.packed.0", "format": "f32_nr32_v1", "dtype": "float32",
//!   "constant": {"offset": 0, "nbytes": 4194304}, "offset": 0, "shape": [1024, 1024], "strides": [1, 1024]}]}
//! ```
//!
//! `constant` is a range of the constant segment; `offset`, `shape` and `strides` (in elements) are the view of
//! it that was packed.

use crate::load::source::FILE_ORIGIN;
use pteron_core::error::printable;
use pteron_core::{ConstantKey, DType, Dims, Error, PackKey, Result};
use pteron_cpu::packed::{FORMATS, packed_format};
use pteron_format::ProgramFile;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::ops::Range;

/// Named data that holds the index. Packs have this name with a dot and a number behind it.
pub(crate) const INDEX_KEY: &str = "pteron.packed";

/// The index of a file, one entry per pack: name of its data, identity.
pub(crate) struct PackedIndex {
    entries: Vec<(String, PackKey)>,
}

impl PackedIndex {
    /// Reads the JSON text; the constants in its keys are still ranges of the constant segment.
    ///
    /// Errors: no JSON of version 1, a missing field, an unknown format or element type.
    pub(crate) fn parse(text: &[u8]) -> Result<PackedIndex> {
        let json = crate::load::json::parse(text, |why| bad("is not JSON").got(why))?;
        if json.get("version").and_then(Json::as_i64) != Some(1) {
            return Err(bad("has a version that this runtime does not know")
                .expected("version 1")
                .got(json.get("version").map_or("none".into(), |v| printable(&v.to_string())))
                .hint("use a newer pteron, or export the model again with this one"));
        }
        let packs = json.get("packs").and_then(Json::as_array).ok_or_else(|| bad("has no list 'packs'"))?;
        let entries = packs
            .iter()
            .enumerate()
            .map(|(i, entry)| parse_entry(entry).map_err(|e| e.argument(format!("packs[{i}]"))))
            .collect::<Result<_>>()?;
        Ok(PackedIndex { entries })
    }

    /// The range of each pack in the file, by the key that load looks for.
    ///
    /// Errors: data that the file does not have or that has another size than its format asks for, a
    /// constant outside the constant segment.
    pub(crate) fn ranges(self, file: &ProgramFile) -> Result<HashMap<PackKey, Range<usize>>> {
        let mut ranges = HashMap::new();
        for (data, mut key) in self.entries {
            let shown = printable(&data);
            let place = |e: Error| e.argument(shown.clone());
            let range =
                file.named(&data).ok_or_else(|| place(bad("names data that the file does not have")))?;
            let format = packed_format(key.format).ok_or_else(|| Error::internal("a format got lost"))?;
            let nbytes = format.nbytes(key.dtype, &key.shape).map_err(place)?;
            if range.len() != nbytes {
                return Err(place(Error::program("a packed weight has the wrong size"))
                    .expected(format!("{nbytes} bytes for shape {} in {}", key.shape, key.format))
                    .got(format!("{} bytes", range.len())));
            }
            let stored = &file.constants;
            pteron_core::sizes::checked_range(key.constant.offset, key.constant.nbytes, stored.len())
                .map_err(place)?;
            key.constant.offset = key.constant.offset.saturating_add(stored.start as u64);
            if ranges.insert(key, range).is_some() {
                return Err(place(bad("holds the same pack twice")));
            }
        }
        Ok(ranges)
    }

    /// The index as JSON text. Constants become ranges of the constant segment of `file`.
    ///
    /// Errors: a pack of a constant that lies elsewhere.
    pub(crate) fn text(entries: &[(String, PackKey)], file: &ProgramFile) -> Result<Vec<u8>> {
        let mut packs = Vec::new();
        for (data, key) in entries {
            let start = file.constants.start as u64;
            let offset =
                key.constant.offset.checked_sub(start).filter(|_| key.constant.origin == FILE_ORIGIN);
            let offset = offset.ok_or_else(|| {
                Error::program("only constants inside the program file can be stored packed")
                    .got(format!("a tensor of shape {} from elsewhere", key.shape))
                    .hint("export without external constants, or without packed_weights")
            })?;
            packs.push(json!({
                "data": data,
                "format": key.format,
                "dtype": key.dtype.name(),
                "constant": {"offset": offset, "nbytes": key.constant.nbytes},
                "offset": key.offset,
                "shape": &*key.shape,
                "strides": &*key.strides,
            }));
        }
        serde_json::to_vec(&json!({"version": 1, "packs": packs}))
            .map_err(|e| Error::internal("an index cannot be written").got(e.to_string()))
    }
}

fn parse_entry(entry: &Json) -> Result<(String, PackKey)> {
    let entry = entry.as_object().ok_or_else(|| bad("holds an entry that is no object"))?;
    let name = text(entry, "format")?;
    let format = packed_format(name).ok_or_else(|| {
        let known: Vec<&str> = FORMATS.iter().map(|f| f.name).collect();
        Error::program("the file holds weights in a packed format that this version does not know")
            .expected(format!("one of: {}", known.join(", ")))
            .got(printable(name))
            .hint("use a newer pteron, or export the model again with this one")
    })?;
    let dtype = text(entry, "dtype")?;
    let dtype = DType::ALL
        .into_iter()
        .find(|d| d.name() == dtype)
        .ok_or_else(|| bad("names an unknown element type").got(printable(dtype)))?;
    let constant = entry
        .get("constant")
        .and_then(Json::as_object)
        .ok_or_else(|| bad("holds an entry without 'constant'"))?;
    let shape = extents(entry, "shape")?;
    let strides = extents(entry, "strides")?;
    if shape.len() != strides.len() {
        return Err(bad("holds a view whose shape and strides differ in rank")
            .got(format!("shape {shape}, strides {strides}")));
    }
    let key = PackKey {
        constant: ConstantKey {
            origin: FILE_ORIGIN,
            offset: number(constant, "offset")?,
            nbytes: number(constant, "nbytes")?,
        },
        dtype,
        offset: size(entry.get("offset"), "offset")?,
        shape,
        strides,
        format: format.name,
    };
    Ok((text(entry, "data")?.to_string(), key))
}

fn text<'a>(entry: &'a Map<String, Json>, field: &str) -> Result<&'a str> {
    entry.get(field).and_then(Json::as_str).ok_or_else(|| missing(field, "a string"))
}

fn number(entry: &Map<String, Json>, field: &str) -> Result<u64> {
    entry.get(field).and_then(Json::as_u64).ok_or_else(|| missing(field, "an integer that is not negative"))
}

fn size(value: Option<&Json>, field: &str) -> Result<usize> {
    let number = value.and_then(Json::as_u64).and_then(|n| usize::try_from(n).ok());
    number.ok_or_else(|| missing(field, "an integer that is not negative"))
}

fn extents(entry: &Map<String, Json>, field: &str) -> Result<Dims> {
    let list =
        entry.get(field).and_then(Json::as_array).ok_or_else(|| missing(field, "a list of integers"))?;
    let mut dims = Dims::EMPTY;
    for n in list {
        dims.push(size(Some(n), field)?)?;
    }
    Ok(dims)
}

fn missing(field: &str, expected: &str) -> Error {
    bad(&format!("holds an entry without a proper '{field}'")).expected(expected)
}

fn bad(what: &str) -> Error {
    Error::program(format!("the index of packed weights ({INDEX_KEY}) {what}"))
        .hint("export the model again; the file may be damaged")
}
