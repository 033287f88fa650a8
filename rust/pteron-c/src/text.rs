//! Texts of the library that C reads.

use pteron_core::{Error, Result};
use std::ffi::CString;

/// `text` with a zero byte behind it; zero bytes inside are written `\0`.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    match text.contains('\0') {
        true => CString::new(text.replace('\0', "\\0")),
        false => CString::new(text),
    }
    .map_err(|_| Error::internal("a text kept its zero bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_inside_are_written_out() {
        assert_eq!(c_string("a\0b").unwrap().to_bytes(), b"a\\0b");
        assert_eq!(c_string("").unwrap().to_bytes(), b"");
    }
}
