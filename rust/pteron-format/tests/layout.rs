//! Where the writer puts things: header, alignment, sharing, placeholders.

mod drafts;

use drafts::{blob, everything, f32s, floats};
use pteron_core::DType;
use pteron_format::write::{
    ChainDraft, MethodDraft, NamedDataDraft, ProgramDraft, TensorDraft, ValueDraft, WriteOptions,
};
use pteron_format::{Placement, ProgramFile, StoredBytes};

fn write(draft: &ProgramDraft<'_>) -> (Vec<u8>, ProgramFile) {
    write_with(draft, &WriteOptions::default())
}

fn write_with(draft: &ProgramDraft<'_>, options: &WriteOptions) -> (Vec<u8>, ProgramFile) {
    let bytes = draft.to_bytes(options).unwrap();
    let program = ProgramFile::parse(&bytes).unwrap();
    (bytes, program)
}

/// A method over `values`, with no instructions.
fn method(values: Vec<ValueDraft>) -> MethodDraft {
    MethodDraft {
        name: "forward".to_owned(),
        values,
        chains: vec![ChainDraft::default()],
        non_const_buffer_sizes: vec![0],
        ..MethodDraft::default()
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn constant(program: &ProgramFile, value: usize) -> std::ops::Range<usize> {
    match &program.methods[0].values[value].as_tensor().unwrap().placement {
        Placement::Constant(StoredBytes::InFile(range)) => range.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn header_states_the_layout() {
    let (bytes, program) = write(&everything());
    assert_eq!(&bytes[4..12], b"ET12eh00");
    assert_eq!(u64_at(&bytes, 8) >> 32, 32);
    let (size, base, data) = (u64_at(&bytes, 16), u64_at(&bytes, 24), u64_at(&bytes, 32));
    assert_eq!(size as usize, program.program_size);
    assert_eq!(base, size.next_multiple_of(128));
    assert_eq!(base + data, bytes.len() as u64, "the last segment has no padding behind it");
    assert!(program.segments.iter().all(|s| s.start % 128 == 0));
}

#[test]
fn without_bytes_there_is_no_header() {
    let (bytes, program) = write(&ProgramDraft { methods: vec![method(vec![])], ..Default::default() });
    assert_ne!(&bytes[8..12], b"eh00");
    assert_eq!(program.program_size, bytes.len());
    assert!(matches!(program.segments.as_slice(), [only] if *only == (0..0)));
}

#[test]
fn the_same_draft_gives_the_same_bytes() {
    assert!(write(&everything()).0 == write(&everything()).0);
}

#[test]
fn equal_bytes_are_stored_once() {
    let weight = floats(&[1.5; 64]);
    let mut draft = everything();
    draft.constants = vec![blob([]), weight.clone(), floats(&[2.0; 64]), weight.clone(), blob([]), blob([])];
    let tensors = [1, 2, 3, 3].map(|i| ValueDraft::from(f32s(&[64]).constant(i)));
    let empties = [4, 5].map(|i| ValueDraft::from(f32s(&[0]).constant(i)));
    draft.methods = vec![method(tensors.into_iter().chain(empties).collect())];
    draft.delegate_data = vec![blob([7; 9]), blob([8; 9]), blob([7; 9])];
    draft.methods[0].delegates = (0..3)
        .map(|i| pteron_format::write::DelegateDraft { id: "X".to_owned(), blob: i, specs: vec![] })
        .collect();
    let named = |key: &str, data: Vec<u8>, alignment| NamedDataDraft {
        key: key.to_owned(),
        data: data.into(),
        alignment,
    };
    draft.named_data =
        vec![named("a", vec![1; 50], 1), named("b", vec![2; 50], 1), named("c", vec![1; 50], 96)];
    let (bytes, program) = write(&draft);
    assert_eq!(constant(&program, 0), constant(&program, 2));
    assert_eq!(constant(&program, 0), constant(&program, 3));
    assert_ne!(constant(&program, 0), constant(&program, 1));
    assert_eq!(&bytes[constant(&program, 1)], &*floats(&[2.0; 64]));
    assert!(constant(&program, 4).is_empty(), "an empty constant is a constant");
    let delegates = &program.methods[0].delegates;
    assert_eq!(delegates[0].blob, delegates[2].blob);
    assert_eq!(&bytes[delegates[1].blob.clone()], &[8; 9]);
    assert_eq!(program.named("a"), program.named("c"));
    assert_eq!(&bytes[program.named("b").unwrap()], &[2; 50]);
    assert_eq!(program.named("c").unwrap().start % 384, 0, "all keys' alignments hold together");
    // Constants, initial data, two delegate blobs, two named blobs.
    assert_eq!(program.segments.len(), 6);
}

/// What a kernel and a delegate both read is in the file once: the named segment lies within the constants.
#[test]
fn named_bytes_that_are_a_constant_are_stored_with_the_constants() {
    let (weight, other) = (floats(&[1.5; 64]), floats(&[2.5; 64]));
    let mut draft = everything();
    draft.constants = vec![blob([]), floats(&[0.5; 3]), weight.clone(), blob([])];
    draft.methods =
        vec![method([(3, 1), (64, 2), (0, 3)].map(|(n, i)| f32s(&[n]).constant(i).into()).to_vec())];
    let named = |key: &str, data: &std::borrow::Cow<'static, [u8]>, alignment| NamedDataDraft {
        key: key.to_owned(),
        data: data.clone(),
        alignment,
    };
    draft.named_data = vec![
        named("shared", &weight, 96),
        named("again", &weight, 1),
        named("own", &other, 1),
        named("empty", &blob([]), 1),
    ];
    let (bytes, program) = write(&draft);
    let shared = program.named("shared").unwrap();
    assert_eq!((&shared, &program.named("again").unwrap()), (&constant(&program, 1), &shared));
    assert_eq!(bytes[shared.clone()], *weight);
    assert_eq!(shared.start % 384, 0, "aligned for its key and as a segment");
    assert_eq!(constant(&program, 0).start % 16, 0);
    assert_eq!(bytes[program.named("own").unwrap()], *other);
    assert!(program.named("empty").unwrap().is_empty());
    let found = bytes.windows(weight.len()).filter(|part| **part == *weight).count();
    assert_eq!(found, 1);
}

#[test]
fn alignments_are_kept() {
    let mut draft = everything();
    draft.constants = (0..9u8).map(|n| blob(vec![n; usize::from(n)])).collect();
    let byte = |n: usize| TensorDraft::contiguous(DType::UInt8, &[n]).unwrap();
    draft.methods = vec![method((1..9).map(|n| byte(n).constant(n as u32).into()).collect())];
    for alignment in [1, 4, 16, 64, 4096] {
        let options = WriteOptions { constant_tensor_alignment: alignment, ..WriteOptions::default() };
        let (bytes, program) = write_with(&draft, &options);
        for n in 1..9usize {
            let range = constant(&program, n - 1);
            assert_eq!(range.start % alignment as usize, 0);
            assert_eq!(bytes[range], vec![n as u8; n]);
        }
    }
    for alignment in [1, 100, 4096] {
        let options = WriteOptions { segment_alignment: alignment, ..WriteOptions::default() };
        let (_, program) = write_with(&draft, &options);
        assert!(program.segments.iter().all(|s| s.start % alignment as usize == 0));
    }
}

#[test]
fn delegate_blobs_stay_inline_when_asked() {
    let mut draft = everything();
    let payload: Vec<u8> = (0..77).collect();
    draft.delegate_data = vec![payload.clone().into()];
    for alignment in [1, 16, 64, 1024] {
        let options = WriteOptions {
            extract_delegate_segments: false,
            delegate_alignment: alignment,
            ..WriteOptions::default()
        };
        let (bytes, program) = write_with(&draft, &options);
        let range = program.methods[0].delegates[0].blob.clone();
        assert!(range.end <= program.program_size);
        assert_eq!(range.start % alignment as usize, 0);
        assert_eq!(bytes[range], payload);
    }
}

#[test]
fn empty_delegate_blobs_are_legal() {
    let mut draft = everything();
    draft.delegate_data = vec![blob([])];
    let (_, program) = write(&draft);
    assert!(program.methods[0].delegates[0].blob.is_empty());
}

#[test]
fn bad_orders_to_the_writer() {
    let refused = |draft: &ProgramDraft<'_>, options: &WriteOptions, part: &str| {
        let text = draft.to_bytes(options).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    };
    let options = WriteOptions::default();
    let mut draft = everything();
    refused(&draft, &WriteOptions { segment_alignment: 0, ..options }, "segment_alignment is out of range");
    refused(&draft, &WriteOptions { constant_tensor_alignment: 24, ..options }, "powers of two");
    draft.named_data[0].alignment = 0;
    refused(&draft, &options, "the alignment of named data 'pteron.interface'");
    draft.named_data[0].alignment = 999_983;
    refused(&draft, &options, "too large");
    draft = everything();
    draft.methods[0].delegates[0].blob = 1;
    refused(&draft, &options, "a delegate refers to a blob that does not exist");
    draft = everything();
    draft.constants[0] = blob([1]);
    refused(&draft, &options, "entry 0 of constants is not empty");
    draft = everything();
    draft.methods[0].inputs = vec![99];
    refused(&draft, &options, "nothing was written");
}
