//! Data files: what is written reads back, and no damage to one is fatal or goes unnoticed where it counts.

mod drafts;
mod frozen;

use frozen::frozen;
use proptest::prelude::*;
use pteron_core::{DType, ErrorKind};
use pteron_format::DataFile;
use pteron_format::write::{DataEntryDraft, DataFileDraft, LayoutDraft};

fn tensor(key: &str, dtype: DType, shape: &[usize], data: Vec<u8>) -> DataEntryDraft<'static> {
    let layout = Some(LayoutDraft::contiguous(dtype, shape).unwrap());
    DataEntryDraft { key: key.to_owned(), data: data.into(), alignment: 1, layout }
}

fn draft() -> DataFileDraft<'static> {
    let mut channels_last = tensor("conv.weight", DType::Float32, &[1, 2, 2, 1], (0..16).collect());
    channels_last.layout.as_mut().unwrap().dim_order = vec![0, 2, 3, 1];
    let opaque = |key: &str, alignment| DataEntryDraft {
        key: key.to_owned(),
        data: vec![9u8; 5].into(),
        alignment,
        layout: None,
    };
    DataFileDraft {
        entries: vec![
            tensor("layer.weight", DType::Float32, &[2, 2], vec![1; 16]),
            tensor("tied.weight", DType::Int32, &[4], vec![1; 16]),
            channels_last,
            tensor("empty", DType::Int64, &[0, 3], vec![]),
            opaque("blob", 1),
            opaque("aligned blob", 4096),
        ],
    }
}

fn sample() -> Vec<u8> {
    draft().lay_out(128).unwrap().to_bytes().unwrap()
}

/// The opaque entries want a large alignment, which makes for many zeros; for tests of every byte.
fn small_sample() -> Vec<u8> {
    let mut draft = draft();
    draft.entries.pop();
    draft.lay_out(16).unwrap().to_bytes().unwrap()
}

#[test]
fn what_is_written_reads_back() {
    let bytes = sample();
    assert_eq!(&bytes[4..12], b"FT01FH01");
    let file = DataFile::parse(&bytes).unwrap();
    let keys: Vec<&str> = file.entries.iter().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["aligned blob", "blob", "conv.weight", "empty", "layer.weight", "tied.weight"]);
    let entry = |key: &str| file.entry(key).unwrap();
    assert_eq!(&bytes[entry("layer.weight").range.clone()], [1; 16]);
    assert_eq!(entry("layer.weight").range, entry("tied.weight").range, "equal bytes are stored once");
    assert_ne!(entry("layer.weight").layout, entry("tied.weight").layout);
    assert_eq!(entry("conv.weight").layout.as_ref().unwrap().dim_order.as_slice(), [0, 2, 3, 1]);
    assert!(entry("empty").range.is_empty());
    assert_eq!(entry("blob").layout, None);
    assert_eq!(entry("blob").range.start % 4096, 0, "the alignment of every key that shares the bytes");
    assert_eq!(file.entry("nothing"), None);
    assert_eq!(sample(), bytes, "the same draft gives the same bytes");
}

#[test]
fn an_empty_file_is_legal() {
    let bytes = DataFileDraft::default().lay_out(128).unwrap().to_bytes().unwrap();
    assert_eq!(DataFile::parse(&bytes).unwrap().entries, []);
}

#[test]
fn every_truncation_is_refused() {
    for bytes in [sample(), small_sample()] {
        for len in 0..bytes.len() {
            let error = DataFile::parse(&bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ExternalData, "cut to {len}: {error}");
        }
    }
}

#[test]
fn no_flipped_bit_is_fatal() {
    let mut bytes = small_sample();
    let table = DataFile::parse(&bytes).unwrap().table_size;
    let mut refused = 0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            match DataFile::parse(&bytes) {
                Ok(file) => drop(file.listing()),
                Err(_) => refused += 1,
            }
            bytes[at] ^= 1 << bit;
        }
    }
    assert!(refused > table, "only {refused} flips were noticed");
}

#[test]
fn no_word_at_any_place_is_fatal() {
    let bytes = small_sample();
    for word in [0u32, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0xffff_fff0, bytes.len() as u32] {
        for at in 0..bytes.len() - 4 {
            let mut changed = bytes.clone();
            changed[at..at + 4].copy_from_slice(&word.to_le_bytes());
            drop(DataFile::parse(&changed).and_then(|f| f.listing()));
        }
    }
}

#[test]
fn illegal_entries_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Vec<DataEntryDraft<'static>>), part: &str| {
        let mut draft = draft();
        change(&mut draft.entries);
        let text = draft.lay_out(128).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    };
    refused(&|e| e[1].key = "layer.weight".to_owned(), "two entries have the same key");
    refused(&|e| e[0].data = vec![1; 12].into(), "entry 'layer.weight': the tensor and its bytes differ");
    refused(&|e| e[0].layout.as_mut().unwrap().scalar_type = 77, "entry 'layer.weight': unknown dtype");
    refused(&|e| e[0].layout.as_mut().unwrap().dim_order = vec![0], "dim_order and sizes differ in length");
    refused(&|e| e[0].layout.as_mut().unwrap().sizes = vec![-1, 2], "layer.weight");
    refused(&|e| e[0].alignment = 0, "the alignment of named data 'layer.weight'");
}

#[test]
fn other_files_are_recognised() {
    let program = drafts::unchecked(&drafts::everything());
    let text = DataFile::parse(&program).unwrap_err().to_string();
    assert!(text.contains("expected file identifier FT01") && text.contains("this is a program"), "{text}");
    assert!(DataFile::parse(b"short").unwrap_err().to_string().contains("too short"));
    let mut without_header = sample();
    without_header[8] = b'X';
    assert!(DataFile::parse(&without_header).unwrap_err().to_string().contains("no header"));
}

#[test]
fn the_frozen_file_reads_and_is_still_written() {
    let bytes = frozen("weights.ptd", small_sample);
    let listing = DataFile::parse(&bytes).unwrap().listing().unwrap();
    assert_eq!(listing.as_bytes(), frozen("weights.txt", || listing.clone().into_bytes()));
    assert!(small_sample() == bytes, "the layout of written data files changed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn several_changes_at_once(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = small_sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        drop(DataFile::parse(&bytes).and_then(|f| f.listing()));
    }

    #[test]
    fn random_bytes_behind_a_good_start(tail in prop::collection::vec(any::<u8>(), 0..400), root in 0u32..64) {
        let mut bytes = root.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"FT01FH01");
        bytes.extend(40u32.to_le_bytes());
        bytes.extend(tail);
        drop(DataFile::parse(&bytes));
    }
}
