//! No byte string makes the reader panic, loop or allocate without bound.

mod drafts;
mod wire_tree;

use proptest::prelude::*;
use pteron_format::write::WriteOptions;
use pteron_format::{ProgramFile, listing};
use wire_tree::Node;

fn sample() -> Vec<u8> {
    drafts::everything().to_bytes(&WriteOptions::default()).unwrap()
}

/// Reads, and prints what could be read: the printer trusts what the reader let through.
fn read(bytes: &[u8]) -> bool {
    ProgramFile::parse(bytes).is_ok_and(|p| listing(&p).is_ok())
}

#[test]
fn every_truncation_is_refused() {
    for bytes in [sample(), wire_tree::old_style_add().to_file()] {
        assert!(read(&bytes));
        for len in 0..bytes.len() {
            assert!(!read(&bytes[..len]), "accepted when cut to {len} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn no_flipped_bit_is_fatal() {
    for mut bytes in [sample(), wire_tree::old_style_add().to_file()] {
        let mut refused = 0;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                refused += usize::from(!read(&bytes));
                bytes[at] ^= 1 << bit;
            }
        }
        assert!(refused > bytes.len(), "only {refused} flips were noticed");
    }
}

#[test]
fn no_word_at_any_place_is_fatal() {
    let bytes = sample();
    for word in [0u32, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0xffff_fff0, bytes.len() as u32] {
        for at in 0..bytes.len() - 4 {
            let mut changed = bytes.clone();
            changed[at..at + 4].copy_from_slice(&word.to_le_bytes());
            read(&changed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_behind_a_good_start(tail in prop::collection::vec(any::<u8>(), 0..400), root in 0u32..64) {
        let mut bytes = root.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"ET12");
        bytes.extend(tail);
        read(&bytes);
    }

    #[test]
    fn several_changes_at_once(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read(&bytes);
    }

    #[test]
    fn parts_of_one_file_inside_another(from in 0usize..4000, to in 0usize..4000, len in 0usize..200) {
        let mut bytes = sample();
        let (from, to) = (from % bytes.len(), to % bytes.len());
        let len = len.min(bytes.len() - from).min(bytes.len() - to);
        bytes.copy_within(from..from + len, to);
        read(&bytes);
    }
}

/// 200 KB that stand for 400 million tables when every reference is followed.
#[test]
fn shared_tables_do_not_multiply() {
    let mut tree = wire_tree::old_style_add();
    let value = tree.at(&[1, 0, 2, 2]).clone();
    *tree.at(&[1, 0, 2]) = Node::Repeated(Box::new(value), 20_000);
    let plan = tree.at(&[1, 0]).clone();
    *tree.at(&[1]) = Node::Repeated(Box::new(plan), 20_000);
    let bytes = tree.to_file();
    assert!(bytes.len() < 250_000);
    // Followed to its end it would parse, after minutes.
    let error = ProgramFile::parse(&bytes).unwrap_err();
    assert!(error.to_string().contains("over and over"), "{error}");
}

#[test]
fn other_files_are_recognised() {
    for (start, hint) in [
        (&b"\0\0\0\0FT01........"[..], "data file"),
        (b"\0\0\0\0BP08........", "bundled program"),
        (b"\0\0\0\0ET99........", "a newer generation"),
        (b"PK\x03\x04....PK", "a ZIP archive"),
        (b"\0\0\0\0........", "copied completely"),
    ] {
        let text = ProgramFile::parse(start).unwrap_err().to_string();
        assert!(text.contains(hint) && text.contains("expected file identifier ET12"), "{text}");
    }
    assert!(ProgramFile::parse(b"").unwrap_err().to_string().contains("too short"));
}
