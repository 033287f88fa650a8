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
