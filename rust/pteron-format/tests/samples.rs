//! Frozen files of every format generation still read as they did.

mod drafts;
mod wire_tree;

use pteron_format::write::WriteOptions;
use pteron_format::{ProgramFile, listing};
use std::fs;
use std::path::PathBuf;

fn sample(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/samples")).join(name)
}

#[test]
fn frozen_files_keep_their_listing() {
    for name in ["everything-v0", "add-inline-constants", "linear_relu", "tiny_backend"] {
        let bytes = fs::read(sample(&format!("{name}.pte"))).unwrap();
        let expected = fs::read_to_string(sample(&format!("{name}.txt"))).unwrap();
        let program = ProgramFile::parse(&bytes).unwrap();
        assert_eq!(listing(&program).unwrap(), expected, "{name}");
    }
}

/// The writer may change how it lays files out, but only knowingly: then this sample is replaced by a
/// new one beside the old.
#[test]
fn the_writer_still_makes_the_newest_sample() {
    let bytes = drafts::everything().to_bytes(&WriteOptions::default()).unwrap();
    assert!(bytes == fs::read(sample("everything-v0.pte")).unwrap(), "the layout of written files changed");
}

#[test]
#[ignore = "writes the files that the other tests compare with: cargo test -p pteron-format -- --ignored"]
fn write_samples() {
    let files = [
        ("everything-v0", drafts::everything().to_bytes(&WriteOptions::default()).unwrap()),
        ("add-inline-constants", wire_tree::old_style_add().to_file()),
    ];
    for (name, bytes) in files {
        fs::write(sample(&format!("{name}.pte")), &bytes).unwrap();
        let text = listing(&ProgramFile::parse(&bytes).unwrap()).unwrap();
        fs::write(sample(&format!("{name}.txt")), text).unwrap();
    }
}
