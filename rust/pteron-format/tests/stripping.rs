//! Files without debug information.

mod drafts;
mod wire_tree;

use drafts::{blob, everything};
use pteron_format::write::{NamedDataDraft, ProgramDraft, WriteOptions};
use pteron_format::{DEBUG_KEY, ProgramFile, strip};

const SECRET: &[u8] = b"{\"files\": [\"package/secret_model.py\"], \"padding\": \"0123456789\"}";

fn named(key: &str, data: &'static [u8]) -> NamedDataDraft<'static> {
    NamedDataDraft { key: key.to_owned(), data: blob(data), alignment: 1 }
}

/// The debug information at place `at` of the named data.
fn with_debug(at: usize) -> ProgramDraft<'static> {
    let mut draft = everything();
    draft.named_data.insert(at, named(DEBUG_KEY, SECRET));
    draft
}

fn bytes(draft: &ProgramDraft<'_>) -> Vec<u8> {
    draft.to_bytes(&WriteOptions::default()).unwrap()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|w| w == part)
}

#[test]
fn debug_information_leaves_the_file_and_nothing_else_changes() {
    for at in 0..3 {
        let full = bytes(&with_debug(at));
        assert!(contains(&full, SECRET));
        let stripped = strip(&full).unwrap();
        assert!(!contains(&stripped, b"secret_model"), "place {at}");
        let (before, after) = (ProgramFile::parse(&full).unwrap(), ProgramFile::parse(&stripped).unwrap());
        assert_eq!(after.named(DEBUG_KEY), None);
        assert_eq!(after.methods, before.methods, "place {at}");
        for key in ["pteron.interface", "weights"] {
            let (old, new) = (before.named(key).unwrap(), after.named(key).unwrap());
            assert_eq!((&old, &full[old.clone()]), (&new, &stripped[new.clone()]), "place {at}, {key}");
        }
        let is_last = at == 2;
        assert_eq!(stripped.len() < full.len(), is_last, "what lies last is cut off");
    }
}

#[test]
fn stripping_a_layout_and_a_file_give_the_same_bytes() {
    for at in 0..3 {
        let draft = with_debug(at);
        let mut layout = draft.lay_out(&WriteOptions::default()).unwrap();
        layout.strip().unwrap();
        assert!(layout.to_bytes().unwrap() == strip(&bytes(&draft)).unwrap(), "place {at}");
    }
}

#[test]
fn stripping_twice_changes_nothing_more() {
    let stripped = strip(&bytes(&with_debug(2))).unwrap();
    assert!(strip(&stripped).unwrap() == stripped);
    for untouched in [bytes(&everything()), wire_tree::old_style_add().to_file()] {
        assert!(strip(&untouched).unwrap() == untouched);
    }
}

#[test]
fn the_only_segment_can_be_the_debug_information() {
    let mut draft = everything();
    draft.methods.clear();
    draft.constants = vec![blob([])];
    draft.mutable_data = vec![blob([])];
    draft.delegate_data.clear();
    draft.named_data = vec![named(DEBUG_KEY, SECRET)];
    let stripped = strip(&bytes(&draft)).unwrap();
    assert!(!contains(&stripped, b"secret"));
    assert_eq!(ProgramFile::parse(&stripped).unwrap().named_data, []);
}

#[test]
fn bytes_that_others_refer_to_stay() {
    let mut draft = with_debug(2);
    draft.named_data.push(named("twin", SECRET));
    let full = bytes(&draft);
    let stripped = strip(&full).unwrap();
    let file = ProgramFile::parse(&stripped).unwrap();
    assert_eq!(file.named(DEBUG_KEY), None);
    assert_eq!(&stripped[file.named("twin").unwrap()], SECRET);
}

#[test]
fn debug_information_that_is_a_constant_stays_as_one() {
    let mut draft = with_debug(2);
    draft.constants = vec![blob([]), blob([7; 12]), blob(SECRET)];
    let full = bytes(&draft);
    let stripped = strip(&full).unwrap();
    assert_eq!(ProgramFile::parse(&stripped).unwrap().named(DEBUG_KEY), None);
    assert!(contains(&stripped, SECRET), "the constant is needed");
}

#[test]
fn no_damage_is_fatal_to_stripping() {
    let mut full = bytes(&with_debug(1));
    for at in 0..full.len().min(3000) {
        for bit in [0, 3, 7] {
            full[at] ^= 1 << bit;
            drop(strip(&full).map(|s| ProgramFile::parse(&s).unwrap()));
            full[at] ^= 1 << bit;
        }
    }
}
