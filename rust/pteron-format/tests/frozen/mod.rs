//! The frozen files of `schema/samples`, which must read for ever.

use std::fs;
use std::path::PathBuf;

/// The bytes of a frozen file. One that is missing is written from `newest` where `PTERON_BLESS` is set
/// (`make bless`); one that is there never changes.
pub fn frozen(name: &str, newest: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/samples")).join(name);
    if !path.exists() && std::env::var("PTERON_BLESS").as_deref() == Ok("1") {
        fs::write(&path, newest()).unwrap();
    }
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
