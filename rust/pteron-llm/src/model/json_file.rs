//! JSON files beside a program, and the error of a folder that cannot be used.

use pteron_core::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// The object in a JSON file.
pub(crate) type Object = Map<String, Value>;

/// JSON files beside a program are small; a longer one is refused unread.
const MOST_BYTES: u64 = 64 << 20;

/// The error of a folder that cannot be used.
#[cold]
pub(crate) fn damaged(file: &str, what: &str) -> Error {
    Error::program(format!("language model: {file} cannot be used: {what}"))
        .hint("export the model again, or fetch the folder again")
}

/// The object in a JSON file, empty where there is no file.
///
/// Errors: `Program` where it holds something else.
pub(crate) fn read_object(path: &Path) -> Result<Object> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    match read_bounded(path, &name)? {
        None => Ok(Object::new()),
        Some(bytes) => match serde_json::from_slice(&bytes) {
            Ok(Value::Object(found)) => Ok(found),
            Ok(_) => Err(damaged(&name, "it holds no object")),
            Err(_) => Err(damaged(&name, "it is no JSON")),
        },
    }
}

/// The bytes of a file, `None` where there is none.
///
/// Errors: `Program` where it is too long or cannot be read.
pub(crate) fn read_bounded(path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > MOST_BYTES => return Err(damaged(name, "it is too long")),
        _ => {}
    }
    std::fs::read(path).map(Some).map_err(|error| damaged(name, &error.to_string()))
}
