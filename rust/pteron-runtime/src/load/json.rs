//! JSON texts out of files, in bounded memory.
//!
//! The parser's lists and texts grow without a way to fail, and a list takes sixteen times the bytes of its
//! text. Bounds keep each of them below what the reserve can serve
//! ([`memory_reserve`](pteron_core::memory_reserve)); that there is room for all of them together is asked for
//! beforehand, in a way that can fail.

use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result};
use serde_json::Value as Json;

/// Longest text, in bytes. Debug information of some hundred thousand instructions fits.
pub const MOST_BYTES: usize = 16 << 20;
/// Most commas, which bound the entries of lists and objects.
pub const MOST_COMMAS: usize = 1 << 20;
/// Bytes that the parser needs for one entry, lists doubled while they grow.
const ENTRY_BYTES: usize = 128;

/// The value of a text; what is wrong with it goes through `bad`.
///
/// # Errors
/// That of `bad`, for texts that are too long as well; `ErrorKind::LimitExceeded` when memory cannot be had.
pub fn parse(text: &[u8], bad: impl Fn(String) -> Error) -> Result<Json> {
    if text.len() > MOST_BYTES {
        return Err(
            bad(format!("a text of {} bytes", text.len())).expected(format!("at most {MOST_BYTES} bytes"))
        );
    }
    let commas = text.iter().filter(|b| **b == b',').count();
    if commas > MOST_COMMAS {
        return Err(bad(format!("a text with {commas} commas"))
            .expected(format!("at most {MOST_COMMAS} entries in all lists together")));
    }
    drop(try_with_capacity::<u8>(
        text.len().saturating_mul(2).saturating_add(commas.saturating_mul(ENTRY_BYTES)),
    )?);
    serde_json::from_slice(text).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &[u8]) -> String {
        parse(text, |got| Error::program("it is not JSON").got(got)).unwrap_err().to_string()
    }

    #[test]
    fn both_sides_of_the_bounds() {
        let list = |n: usize| format!("[0{}]", ",0".repeat(n)).into_bytes();
        let parsed = parse(&list(MOST_COMMAS), Error::program).unwrap();
        assert_eq!(parsed.as_array().map(Vec::len), Some(MOST_COMMAS + 1));
        assert!(message(&list(MOST_COMMAS + 1)).contains("expected at most 1048576 entries in all lists"));
        let text = |n: usize| format!("\"{}\"", "x".repeat(n - 2)).into_bytes();
        assert!(parse(&text(MOST_BYTES), Error::program).is_ok());
        assert!(
            message(&text(MOST_BYTES + 1))
                .contains("expected at most 16777216 bytes; got a text of 16777217")
        );
        assert!(message(b"[1,").contains("EOF"));
    }
}
