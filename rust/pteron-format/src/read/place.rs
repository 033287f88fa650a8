//! Where in a file an error is.

use pteron_core::{Error, Result};
use std::fmt::Display;

/// Says which part of the file an error is about, in front of its message.
pub(super) trait InPlace<T> {
    /// Puts `place()` in front of the message.
    fn in_place<P: Display>(self, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T> InPlace<T> for Result<T> {
    fn in_place<P: Display>(self, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|e| {
            let message = format!("{}: {}", place(), e.detail().message);
            let detail = e.into_detail();
            let mut out = Error::new(detail.kind, message);
            if let Some(expected) = detail.expected {
                out = out.expected(expected);
            }
            if let Some(got) = detail.got {
                out = out.got(got);
            }
            if let Some(hint) = detail.hint {
                out = out.hint(hint);
            }
            out
        })
    }
}

/// An error that says no more than that something is wrong gets the hint that fits any damage.
pub(super) fn explained(error: Error) -> Error {
    let detail = error.detail();
    match detail.expected.is_none() && detail.got.is_none() && detail.hint.is_none() {
        true => error.hint("the file is damaged, or no exporter made it: copy or export it again"),
        false => error,
    }
}

/// The field that must be there, or an error that names it.
pub(super) fn required<T>(field: Option<T>, name: &str) -> Result<T> {
    field.ok_or_else(|| Error::program(format!("the required field '{name}' is missing")))
}

/// `index` as an index into `len` entries of `what`.
pub(super) fn index_below(index: i64, len: usize, what: &str) -> Result<u32> {
    match u32::try_from(index) {
        Ok(i) if (i as usize) < len => Ok(i),
        _ => Err(no_such(index, len, what)),
    }
}

#[cold]
fn no_such(index: i64, len: usize, what: &str) -> Error {
    let error = Error::program(format!("there is no such {what}")).got(index.to_string());
    match len {
        0 => error.expected("nothing that refers to one, because there is none"),
        _ => error.expected(format!("an index below {len}")),
    }
}

/// Longest name, in bytes.
const LONGEST_NAME: usize = 64 << 10;
/// Longest text of a structure, in bytes.
const LONGEST_TREE: usize = 16 << 20;
/// Most items of a list value.
const MOST_ITEMS: usize = 1 << 20;

fn checked_len(len: usize, most: usize, what: &str, unit: &str) -> Result<()> {
    if len <= most {
        return Ok(());
    }
    Err(Error::program(format!("{what} is too long"))
        .expected(format!("at most {most} {unit}"))
        .got(format!("{len} {unit}")))
}

/// A name of the file, as owned text.
pub(super) fn name(text: &str) -> Result<String> {
    checked_len(text.len(), LONGEST_NAME, "a name", "bytes")?;
    Ok(text.to_owned())
}

/// The text of a structure of inputs or outputs, empty where there is none.
pub(super) fn tree(text: Option<&str>) -> Result<String> {
    let text = text.unwrap_or_default();
    checked_len(text.len(), LONGEST_TREE, "a structure of inputs or outputs", "bytes")?;
    Ok(text.to_owned())
}

/// Refuses lists that no model has.
pub(super) fn check_items(len: usize) -> Result<()> {
    checked_len(len, MOST_ITEMS, "a list", "items")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_on_both_sides() {
        assert!(name(&"x".repeat(LONGEST_NAME)).is_ok());
        let text = name(&"x".repeat(LONGEST_NAME + 1)).unwrap_err().to_string();
        assert_eq!(text, "a name is too long; expected at most 65536 bytes; got 65537 bytes");
        assert!(tree(None).unwrap().is_empty());
        assert!(check_items(MOST_ITEMS).is_ok() && check_items(MOST_ITEMS + 1).is_err());
    }
}
