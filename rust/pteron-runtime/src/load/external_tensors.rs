//! Tensors of a method whose bytes are in data files: found by name, and checked to be what the program
//! says.

use crate::load::program_data::ProgramData;
use crate::load::source::data_file_key;
use pteron_core::error::printable;
use pteron_core::{ConstantKey, Dynamism, Error, Result, TensorSpec};
use pteron_format::{MethodDef, SpecText, StoredBytes};
use std::collections::{BTreeSet, HashMap};

/// Where the bytes of every external tensor of a method are, by name.
///
/// Errors with `ExternalData` when one is missing (all missing ones are named), or is not exactly what the
/// program expects: dtype, extents, memory order.
pub(crate) fn resolve(method: &MethodDef, data: &ProgramData) -> Result<HashMap<String, ConstantKey>> {
    let mut found = HashMap::new();
    let mut missing = BTreeSet::new();
    for (_, tensor) in method.tensors() {
        let Some(StoredBytes::External(key)) = tensor.stored() else { continue };
        match find(key, &tensor.spec, data).map_err(|e| e.method(method.name.as_str()))? {
            Some(place) => {
                found.insert(key.to_string(), place);
            }
            None => {
                missing.insert(key.as_str());
            }
        }
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(missing_error(&missing, data).method(method.name.as_str()))
    }
}

fn find(key: &str, spec: &TensorSpec, data: &ProgramData) -> Result<Option<ConstantKey>> {
    let Some((index, file, entry)) = data.external().find(key) else { return Ok(None) };
    let wanted = TensorSpec { dynamism: Dynamism::Static, ..spec.clone() };
    let refused = |message: &str, got: String| {
        Error::external_data(format!(
            "data file '{}' does not fit the program: {message} '{}'",
            printable(&file.name),
            printable(key)
        ))
        .expected(SpecText(&wanted).to_string())
        .got(got)
        .hint("pass the data file that was written together with this program")
    };
    match &entry.layout {
        None => {
            Err(refused("there is no tensor under the key", format!("{} plain bytes", entry.range.len())))
        }
        Some(layout) if *layout != wanted => {
            Err(refused("another tensor is under the key", SpecText(layout).to_string()))
        }
        Some(_) => {
            let found = data_file_key(index, &entry.range);
            found.map(Some).ok_or_else(|| Error::limit("there are too many data files"))
        }
    }
}

fn missing_error(missing: &BTreeSet<&str>, data: &ProgramData) -> Error {
    const SHOWN: usize = 8;
    let shown: Vec<String> = missing.iter().take(SHOWN).map(|k| format!("'{}'", printable(k))).collect();
    let more = if missing.len() > SHOWN { ", ..." } else { "" };
    Error::external_data("tensors of the program are in no data file that was given")
        .expected(format!("{} tensors: {}{more}", missing.len(), shown.join(", ")))
        .got(data.external().description())
        .hint("load the program with the .ptd files that were written with it: load(program, data=[...])")
}
