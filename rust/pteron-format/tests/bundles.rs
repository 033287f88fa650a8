//! Bundled programs: what is written reads back, and no damage to one is fatal.

mod drafts;
mod frozen;

use frozen::frozen;
use proptest::prelude::*;
use pteron_core::DType;
use pteron_format::write::{
    BundleDraft, BundledValueDraft, LayoutDraft, TestCaseDraft, TestSuiteDraft, WriteOptions,
};
use pteron_format::{BundleFile, BundledValue, ProgramFile};

fn tensor(dtype: DType, shape: &[usize], data: Vec<u8>) -> BundledValueDraft<'static> {
    BundledValueDraft::Tensor(LayoutDraft::contiguous(dtype, shape).unwrap(), data.into())
}

fn draft(program: Vec<u8>) -> BundleDraft<'static> {
    let case = TestCaseDraft {
        inputs: vec![
            tensor(DType::Float32, &[3], (0..12).collect()),
            BundledValueDraft::Int(-4),
            BundledValueDraft::Bool(true),
            BundledValueDraft::Double(0.25),
        ],
        expected_outputs: vec![tensor(DType::Int64, &[], vec![7; 8]), tensor(DType::UInt8, &[0], vec![])],
    };
    let suites = vec![
        TestSuiteDraft { method: "forward".to_owned(), cases: vec![case, TestCaseDraft::default()] },
        TestSuiteDraft { method: "other".to_owned(), cases: vec![] },
    ];
    BundleDraft { program: program.into(), suites }
}

fn program() -> Vec<u8> {
    drafts::everything().to_bytes(&WriteOptions::default()).unwrap()
}

fn sample() -> Vec<u8> {
    draft(program()).to_bytes().unwrap()
}

/// Reads everything that the reader let through.
fn read(bytes: &[u8]) -> bool {
    let Ok(bundle) = BundleFile::parse(bytes) else { return false };
    let all = bundle.bytes.as_slice();
    drop(ProgramFile::parse(&all[bundle.program.clone()]));
    for value in
        bundle.suites.iter().flat_map(|s| &s.cases).flat_map(|c| c.inputs.iter().chain(&c.expected_outputs))
    {
        if let BundledValue::Tensor(spec, range) = value {
            assert_eq!(all[range.clone()].len(), spec.nbytes().unwrap());
        }
    }
    true
}

#[test]
fn what_is_written_reads_back() {
    let bytes = sample();
    assert!(BundleFile::is_bundle(&bytes));
    let bundle = BundleFile::parse(&bytes).unwrap();
    assert_eq!(bundle.bytes.as_slice()[bundle.program.clone()], program());
    assert_eq!(bundle.program.start % 32, 0);
    let [forward, other] = bundle.suites.as_slice() else { panic!("two suites") };
    assert_eq!((forward.method.as_str(), other.method.as_str()), ("forward", "other"));
    let case = &forward.cases[0];
    assert_eq!(
        case.inputs[1..],
        [BundledValue::Int(-4), BundledValue::Bool(true), BundledValue::Double(0.25)]
    );
    let BundledValue::Tensor(spec, range) = &case.inputs[0] else { panic!("a tensor") };
    assert_eq!((spec.dtype, &*spec.shape), (DType::Float32, &[3usize][..]));
    assert_eq!(range.start % 16, 0);
    assert_eq!(bytes[range.clone()], (0..12).collect::<Vec<u8>>());
    assert_eq!(case.expected_outputs.len(), 2);
    assert!(forward.cases[1].expected_outputs.is_empty());
    assert_eq!(sample(), bytes, "the same draft gives the same bytes");
}

#[test]
fn truncations_are_refused() {
    let bytes = sample();
    for len in 0..bytes.len() {
        assert!(!read(&bytes[..len]), "accepted when cut to {len} of {} bytes", bytes.len());
    }
}

#[test]
fn no_flipped_bit_is_fatal() {
    let mut bytes = draft(b"a program".to_vec()).to_bytes().unwrap();
    let mut refused = 0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            refused += usize::from(!read(&bytes));
            bytes[at] ^= 1 << bit;
        }
    }
    assert!(refused > bytes.len() / 2, "only {refused} flips were noticed");
}

#[test]
fn illegal_cases_are_refused_with_their_place() {
    let mut illegal = draft(program());
    illegal.suites[0].cases[0].inputs[0] = tensor(DType::Float32, &[3], vec![0; 8]);
    let text = illegal.to_bytes().unwrap_err().to_string();
    assert!(text.contains("method 'forward', test case 0: input 0: the tensor is larger"), "{text}");
    assert!(BundleFile::parse(&program()).is_err());
}

#[test]
fn the_frozen_file_reads_and_is_still_written() {
    let bytes = frozen("everything.bpte", sample);
    assert!(read(&bytes));
    assert!(sample() == bytes, "the layout of written bundles changed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn several_changes_at_once(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read(&bytes);
    }
}
