//! JSON as Python writes it: `", "` and `": "`, or lines with an indent.

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{Result, Write};

/// The text of a value as `json.dumps(value, ensure_ascii=False, indent=indent)` gives it.
///
/// Errors: for what JSON has no form for.
pub(super) fn dumps<T: Serialize>(value: &T, indent: Option<usize>) -> serde_json::Result<String> {
    let mut out = Vec::new();
    match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced))?,
        Some(width) => {
            let space = " ".repeat(width);
            let lines = PrettyFormatter::with_indent(space.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, lines))?;
        }
    }
    Ok(String::from_utf8(out).unwrap_or_default())
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Value as Jinja;

    #[test]
    fn text_is_as_python_writes_it() {
        let text = r#"{"b": [1, 2.5, null], "a": {"é": "\"x\"\n<>"}}"#;
        assert_eq!(dumps(&serde_json::from_str::<Jinja>(text).unwrap(), None).unwrap(), text);
        let lines = "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}";
        assert_eq!(dumps(&serde_json::from_str::<Jinja>(lines).unwrap(), Some(2)).unwrap(), lines);
    }
}
