//! What a file is that is none of ours, by its first bytes: for the error that refuses it, never for a decision.

use crate::header::{BUNDLE_IDENTIFIER, DATA_IDENTIFIER, FILE_IDENTIFIER, IDENTIFIER_OFFSET};
use pteron_core::Error;
use pteron_core::error::printable;

/// Bytes at the end of a ZIP archive that are searched for the names of its files.
const ZIP_TAIL: usize = 1 << 16;

/// A kind of file, and what to do with one.
struct Kind {
    name: &'static str,
    hint: &'static str,
}

/// What `error` (the file is not what was asked for) says of a file that begins with `head`; `suffix` is that of
/// the file that was asked for.
pub(super) fn refusal(error: Error, head: &[u8], suffix: &str) -> Error {
    if let Some(kind) = archive(head).or_else(|| by_first_bytes(head)) {
        return error.got(kind.name).hint(kind.hint);
    }
    let found: &[u8] = head.get(IDENTIFIER_OFFSET..IDENTIFIER_OFFSET + 4).unwrap_or_default();
    let error = error.got(format!("'{}'", printable(&String::from_utf8_lossy(found))));
    if let Some(hint) = generation(found) {
        return error.hint(hint);
    }
    error.hint(if found == FILE_IDENTIFIER.as_bytes() {
        "this is a program: pass it first and its data file as data=...".to_owned()
    } else if found == DATA_IDENTIFIER.as_bytes() {
        "this is a .ptd data file; it is loaded beside a program, not as one: load(program, data=...)"
            .to_owned()
    } else if found == BUNDLE_IDENTIFIER.as_bytes() {
        "this is a bundled program, which holds a program and its test cases".to_owned()
    } else {
        format!("is this a {suffix} file, and was it copied completely?")
    })
}

/// What to do with a program of another generation of the format.
fn generation(found: &[u8]) -> Option<String> {
    let number = |id: &[u8]| std::str::from_utf8(id.strip_prefix(b"ET")?).ok()?.parse::<u8>().ok();
    let (theirs, ours) = (number(found)?, number(FILE_IDENTIFIER.as_bytes())?);
    let advice = match theirs.cmp(&ours) {
        std::cmp::Ordering::Less => "an older generation of the .pte format: export the model again",
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => {
            "a newer generation of the .pte format: take a newer pteron, or export the model again with this one"
        }
    };
    Some(advice.to_owned())
}

/// PyTorch's files are ZIP archives, told apart by the names in them.
fn archive(head: &[u8]) -> Option<Kind> {
    if !head.starts_with(b"PK\x03\x04") {
        return None;
    }
    let tail = head.get(head.len().saturating_sub(ZIP_TAIL)..).unwrap_or(head);
    let has = |name: &[u8]| tail.windows(name.len()).any(|w| w == name);
    Some(if has(b"/archive_format") {
        Kind {
            name: "an exported program of torch.export (.pt2)",
            hint: "compile it: pteron.exir.to_edge(torch.export.load(path)).to_executorch().save(\"model.pte\")",
        }
    } else if has(b"/constants.pkl") {
        Kind {
            name: "a TorchScript file",
            hint: "export the model that it was made from: pteron.export(model, args)",
        }
    } else if has(b"/data.pkl") {
        Kind {
            name: "a file of torch.save",
            hint: "it holds objects or weights, no program: load them into the model and export that: pteron.export(model, args)",
        }
    } else {
        Kind { name: "a ZIP archive", hint: "unpack it, and pass the file that is in it" }
    })
}

fn by_first_bytes(head: &[u8]) -> Option<Kind> {
    let kind = |name, hint| Some(Kind { name, hint });
    let text = head.trim_ascii_start();
    let is_text = |start: &[u8]| text.get(..start.len()).is_some_and(|t| t.eq_ignore_ascii_case(start));
    if head.starts_with(b"version https://git-lfs") {
        return kind(
            "a git-lfs pointer",
            "the repository was cloned without its large files: run git lfs pull there",
        );
    }
    if is_text(b"<!doctype html") || is_text(b"<html") {
        return kind(
            "a web page",
            "the download gave a page (of a login or an error), not the file: look at it in a browser",
        );
    }
    if is_text(b"<?xml") {
        return kind(
            "an XML file",
            "an answer of a server, or a model of OpenVINO; programs are exported by pteron.export(model, args)",
        );
    }
    if head.starts_with(b"GGUF") {
        return kind("a GGUF file of llama.cpp", "it holds weights, no program: export the PyTorch model");
    }
    if head.get(IDENTIFIER_OFFSET..).is_some_and(|rest| rest.starts_with(b"TFL3")) {
        return kind("a TensorFlow Lite model", "export the PyTorch model: pteron.export(model, args)");
    }
    if head.starts_with(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") {
        return kind(
            "a file of torch.save in its old format",
            "it holds objects or weights, no program: load them into the model and export that: pteron.export(model, args)",
        );
    }
    if head.starts_with(b"\x1f\x8b") || head.starts_with(b"\x28\xb5\x2f\xfd") || head.starts_with(b"\xfd7zXZ")
    {
        return kind("a compressed file", "unpack it, and pass the file that is in it");
    }
    if is_safetensors(head) {
        return kind(
            "a safetensors file",
            "it holds weights, no program: load them into the model and export that: pteron.export(model, args)",
        );
    }
    if is_onnx(head) {
        return kind(
            "an ONNX model",
            "export the PyTorch model that it was made from: pteron.export(model, args)",
        );
    }
    None
}

/// Length of the JSON header, little-endian in eight bytes, then the header.
fn is_safetensors(head: &[u8]) -> bool {
    let length = head.first_chunk::<8>().map_or(0, |n| u64::from_le_bytes(*n));
    (2..100_000_000).contains(&length) && head.get(8..).is_some_and(|rest| rest.starts_with(b"{\""))
}

/// A protobuf `ModelProto`: field 1 (`ir_version`, a small number) comes first, then the producer's name (2), or another
/// of the fields of text (3 to 6), the graph (7), or the operator sets (8).
fn is_onnx(head: &[u8]) -> bool {
    matches!(head, [0x08, 1..=20, 0x12 | 0x1a | 0x22 | 0x2a | 0x32 | 0x3a | 0x42, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(head: &[u8]) -> String {
        refusal(Error::program("the file is not a program"), head, ".pte").to_string()
    }

    #[test]
    fn files_of_others_are_named() {
        let mut tail = b"PK\x03\x04".to_vec();
        tail.extend(vec![0; 100_000]);
        let zip = |name: &str| [&tail[..], name.as_bytes()].concat();
        let safetensors = [&40u64.to_le_bytes()[..], b"{\"weight\":{"].concat();
        for (head, says) in [
            (b"version https://git-lfs.github.com/spec/v1\noid".to_vec(), "git lfs pull"),
            (b"\n <!DOCTYPE html><html>".to_vec(), "a web page"),
            (b"<HTML lang=en>".to_vec(), "a web page"),
            (b"<?xml version".to_vec(), "an XML file"),
            (zip("e/archive_format"), "torch.export.load"),
            (zip("s/code/ s/constants.pkl s/data.pkl"), "TorchScript"),
            (zip("a/data.pkl"), "got a file of torch.save"),
            (zip("other"), "a ZIP archive"),
            (b"PK\x03\x04".to_vec(), "a ZIP archive"),
            (b"GGUF\x03\0\0\0".to_vec(), "llama.cpp"),
            (b"\x1c\0\0\0TFL3".to_vec(), "TensorFlow Lite"),
            (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec(), "old format"),
            (b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "compressed"),
            (safetensors, "safetensors"),
            (b"\x08\x0a\x12\x07pytorch".to_vec(), "ONNX"),
            (b"\0\0\0\0ET11".to_vec(), "an older generation"),
            (b"\0\0\0\0ET13".to_vec(), "a newer generation"),
            (b"\0\0\0\0ETxx".to_vec(), "got 'ETxx'"),
            (b"\0\0\0\0FT01".to_vec(), "data=..."),
            (b"\0\0\0\0BP08".to_vec(), "bundled program"),
            (b"what is this".to_vec(), "got ' is '"),
            (b"".to_vec(), "copied completely"),
        ] {
            let text = text(&head);
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}
