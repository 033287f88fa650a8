//! The text blob of `BackendWithCompilerDemo`:
//!
//! ```text
//! blob        = count "version:" "0" "#" instruction*
//! instruction = "op:demo::" operator ", numel:" numel ", dtype:" dtype "<debug_handle>" handle "#"
//! ```

use pteron_core::error::printable;
use pteron_core::{Error, Result};

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Edge operator, `aten.add.Tensor`.
    pub operator: String,
    /// dtype of the result, `torch.float32`.
    pub dtype: String,
    /// Debug handle in the lowered program; -1 where it has none.
    pub handle: i64,
}

/// The instructions of a blob. Errors when it is damaged, of another version, or holds another number
/// of instructions than it says.
pub(crate) fn read_blob(blob: &[u8]) -> Result<Vec<Instruction>> {
    let text = std::str::from_utf8(blob)
        .map_err(|e| damaged("it is not UTF-8").got(format!("an error at byte {}", e.valid_up_to())))?;
    let start = || {
        damaged("it has no header")
            .expected("'<count>version:0#' at the start")
            .got(printable(&text.chars().take(24).collect::<String>()))
    };
    let (count, rest) = text.split_once("version:").ok_or_else(start)?;
    let count: usize = count.parse().map_err(|_| start())?;
    let (version, mut rest) = rest.split_once('#').ok_or_else(start)?;
    if version != "0" {
        return Err(damaged("it has another version")
            .expected("version 0")
            .got(printable(version))
            .hint("lower the model again"));
    }
    let mut out = Vec::new();
    while !rest.is_empty() {
        let (instruction, after) = read_instruction(rest).ok_or_else(|| {
            damaged("it holds something that is no instruction")
                .got(printable(&rest.chars().take(40).collect::<String>()))
        })?;
        out.push(instruction);
        rest = after;
    }
    if out.len() != count {
        return Err(damaged("it has another number of instructions than it says")
            .expected(count.to_string())
            .got(out.len().to_string()));
    }
    Ok(out)
}

fn read_instruction(text: &str) -> Option<(Instruction, &str)> {
    let (line, after) = text.strip_prefix("op:demo::")?.split_once('#')?;
    let (operator, line) = line.split_once(", numel:")?;
    let (numel, line) = line.split_once(", dtype:")?;
    let (dtype, handle) = line.split_once("<debug_handle>")?;
    let is_plain = |s: &str| !s.is_empty() && !s.contains(',');
    if !is_plain(operator) || !is_plain(numel) || !is_plain(dtype) || dtype.contains('<') {
        return None;
    }
    let handle = handle.parse().ok()?;
    Some((Instruction { operator: operator.into(), dtype: dtype.into(), handle }, after))
}

#[cold]
fn damaged(what: &str) -> Error {
    Error::delegate(format!("the blob cannot be read: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_exporter_writes() {
        let blob = b"2version:0#op:demo::aten.mm.default, numel:4, dtype:torch.float32<debug_handle>1#\
                     op:demo::aten.add.Tensor, numel:4*s0, dtype:torch.float32<debug_handle>-1#";
        let read = read_blob(blob).unwrap();
        assert_eq!(read[0].operator, "aten.mm.default");
        assert_eq!((read[1].handle, read[1].dtype.as_str()), (-1, "torch.float32"));
        assert!(read_blob(b"0version:0#").unwrap().is_empty());
    }

    #[test]
    fn damage_is_an_error() {
        let whole = b"1version:0#op:demo::aten.sin.default, numel:1, dtype:torch.float32<debug_handle>1#";
        for end in 0..whole.len() {
            assert!(read_blob(&whole[..end]).is_err(), "{end}");
        }
        for text in [
            "",
            "x",
            "1version:1#",
            "-1version:0#",
            "1version:0#op:demo::a,b, numel:1, dtype:c<debug_handle>1#",
        ] {
            assert!(read_blob(text.as_bytes()).is_err(), "{text}");
        }
        assert!(read_blob(&[0xff; 20]).is_err());
    }
}
