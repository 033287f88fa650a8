//! Programs that ExecuTorch lowered (`tests/corpus/make_xnnpack_programs.py` writes them): their payloads expand to the calls
//! of a reviewed listing. (That operators take these calls is checked where they are prepared, in `pteron-runtime`.)

use pteron_core::{ErrorKind, Instruction, NamedData, TensorSpec, Value};
use pteron_format::ProgramFile;
use pteron_xnnpack::{BACKEND, ExpandedTensor, Expansion, expand};
use std::fs;
use std::path::{Path, PathBuf};

struct Named<'a> {
    file: &'a [u8],
    program: &'a ProgramFile,
}

impl NamedData for Named<'_> {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.file.get(self.program.named(key)?)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn programs() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the folder of programs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pte"))
        .collect();
    found.sort();
    assert!(found.len() >= 10, "programs are missing");
    found
}

/// What each delegate call of a program becomes.
fn expansions(file: &[u8]) -> Vec<(Vec<Option<TensorSpec>>, Expansion)> {
    let mut found = vec![];
    each_payload(file, |payload, arguments, named| {
        let expansion = expand(payload, arguments, named).unwrap_or_else(|e| panic!("{e}"));
        found.push((arguments.to_vec(), expansion));
    });
    found
}

fn each_payload(file: &[u8], mut work: impl FnMut(&[u8], &[Option<TensorSpec>], &dyn NamedData)) {
    let program = ProgramFile::parse(file).expect("a program");
    let named = Named { file, program: &program };
    for method in &program.methods {
        for instruction in &method.instructions {
            let Instruction::Delegate { delegate, args } = instruction else { continue };
            let delegate = &method.delegates[*delegate as usize];
            assert_eq!(delegate.backend, BACKEND);
            let arguments: Vec<Option<TensorSpec>> =
                args.iter().map(|arg| method.tensor(*arg).map(|tensor| tensor.spec.clone())).collect();
            work(&file[delegate.blob.clone()], &arguments, &named);
        }
    }
}

#[test]
fn damaged_payloads_are_refused_or_expand() {
    const WORDS: [u32; 4] = [0, 1, 1 << 20, u32::MAX];
    for path in programs() {
        let file = fs::read(&path).expect("a program");
        each_payload(&file, |payload, arguments, named| {
            for at in (0..payload.len()).step_by(4) {
                for word in WORDS {
                    let mut damaged = payload.to_vec();
                    let place = damaged.iter_mut().skip(at).zip(word.to_le_bytes());
                    place.for_each(|(to, byte)| *to = byte);
                    if let Err(error) = expand(&damaged, arguments, named) {
                        assert_ne!(
                            error.kind(),
                            ErrorKind::Internal,
                            "{}: word {at}: {error}",
                            path.display()
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn payloads_expand_to_the_reviewed_calls() {
    for path in programs() {
        let file = fs::read(&path).expect("a program");
        let text: Vec<String> =
            expansions(&file).iter().map(|(_, expansion)| expansion.to_string()).collect();
        let text = text.join("\n");
        let golden = path.with_extension("txt");
        if std::env::var("PTERON_BLESS").as_deref() == Ok("1") {
            fs::write(&golden, &text).expect("a listing is written");
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            text == expected,
            "{}: the expansion changed; `make bless` accepts it:\n{text}",
            path.display()
        );
    }
}

#[test]
fn intermediates_are_written_before_they_are_read_and_arguments_stand_once() {
    for path in programs() {
        let file = fs::read(&path).expect("a program");
        for (arguments, expansion) in expansions(&file) {
            let mut written = vec![false; expansion.values.len()];
            let mut seen = vec![0; arguments.len()];
            for (slot, value) in written.iter_mut().zip(&expansion.values) {
                match value.as_tensor() {
                    Some(ExpandedTensor::Intermediate(_)) => {}
                    Some(ExpandedTensor::Argument(argument)) => {
                        seen[*argument] += 1;
                        *slot = true;
                    }
                    _ => *slot = true,
                }
            }
            assert!(seen.iter().all(|times| *times <= 1), "{}", path.display());
            for call in &expansion.calls {
                for input in &call.inputs {
                    let leaves = match &expansion.values[*input] {
                        Value::TensorList(list) => list.to_vec(),
                        _ => vec![*input],
                    };
                    assert!(leaves.iter().all(|leaf| written[*leaf]), "{}: {call:?}", path.display());
                }
                assert!(!call.outputs.is_empty(), "{}: {call:?}", path.display());
                for output in &call.outputs {
                    written[*output] = true;
                }
            }
        }
    }
}
