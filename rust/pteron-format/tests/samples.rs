//! Frozen files of every format generation still read as they did.

mod drafts;
mod frozen;
mod wire_tree;

use frozen::frozen;
use pteron_format::write::WriteOptions;
use pteron_format::{ProgramFile, listing};

/// Makes the bytes of a sample.
type Maker = fn() -> Vec<u8>;

/// What `everything-v0` was written from.
fn everything() -> Vec<u8> {
    drafts::everything().to_bytes(&WriteOptions::default()).unwrap()
}

/// Nothing here writes the files that exporters made.
fn written_elsewhere() -> Vec<u8> {
    panic!("the file was made by an exporter and cannot be made here")
}

#[test]
fn frozen_files_keep_their_listing() {
    let files: [(&str, Maker); 5] = [
        ("everything-v0", everything),
        ("add-inline-constants", || wire_tree::old_style_add().to_file()),
        ("linear_relu", written_elsewhere),
        // A method on cuda:1 and one without devices, by ExecuTorch 1.5.1.
        ("executorch_devices", written_elsewhere),
        ("tiny_backend", written_elsewhere),
    ];
    for (name, newest) in files {
        let bytes = frozen(&format!("{name}.pte"), newest);
        let text = listing(&ProgramFile::parse(&bytes).unwrap()).unwrap();
        let expected = frozen(&format!("{name}.txt"), || text.clone().into_bytes());
        assert_eq!(text, String::from_utf8(expected).unwrap(), "{name}");
    }
}

/// The writer may change how it lays files out, but only knowingly: then this sample is replaced by a
/// new one beside the old.
#[test]
fn the_writer_still_makes_the_newest_sample() {
    assert!(everything() == frozen("everything-v0.pte", everything), "the layout of written files changed");
}
