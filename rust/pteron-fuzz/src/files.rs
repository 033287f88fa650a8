//! Targets that read files: `load_bytes`, `load_and_run`, `ptd`, `delegate_blob`, `packed_weights`.

use crate::choices::Choices;
use crate::file_trial::{FileTrial, check_refusal};
use crate::mutation::Mutant;
use crate::seed_programs as seeds;
use pteron_core::Result;
use pteron_format::{BundleFile, DataFile, ProgramFile, listing, strip};
use pteron_runtime::Runtime;
use std::sync::{Arc, LazyLock};

// Nothing fills memory here: the two runs that would see it must be the same all the same.
static TRIAL: LazyLock<FileTrial> = LazyLock::new(|| FileTrial::new(|_| ()));

/// The runtime that targets load programs into; all rewrites are on.
pub fn runtime() -> &'static Arc<Runtime> {
    TRIAL.rewriting()
}

/// One whose rewrites are off.
pub fn plain_runtime() -> &'static Arc<Runtime> {
    TRIAL.plain()
}

/// A refusal is one that tells what is wrong.
fn well_refused<T>(result: Result<T>) -> Option<T> {
    result
        .inspect_err(|e| {
            let (kind, text) = (format!("{:?}", e.kind()), e.to_string());
            if let Err(problem) = check_refusal(&kind, &text) {
                panic!("{problem}: {kind}: {text}");
            }
        })
        .ok()
}

/// Reads `data` as every format there is.
pub fn load_bytes(data: &[u8]) {
    if let Some(file) = well_refused(ProgramFile::parse(data)) {
        well_refused(listing(&file));
    }
    well_refused(DataFile::parse(data));
    well_refused(BundleFile::parse(data));
    well_refused(strip(data));
}

/// Loads `data` and runs every method twice, with rewrites and as the file has it.
pub fn load_and_run(data: &[u8]) {
    judge(data.to_vec(), None);
}

fn judge(program: Vec<u8>, data: Option<Vec<u8>>) {
    let mutant = Mutant { name: "an input".into(), program: Arc::new(program), data: data.map(Arc::new) };
    if let Err(finding) = TRIAL.verdict(&mutant) {
        panic!("{finding}");
    }
}

/// `data` as the data file of a program that needs one.
pub fn ptd(data: &[u8]) {
    judge(seeds::with_external_tensors(), Some(data.to_vec()));
}

/// The first byte chooses the backend, the rest is its blob.
pub fn delegate_blob(data: &[u8]) {
    let Some((first, blob)) = data.split_first() else { return };
    let backend = ["ExecutorBackend", "BackendWithCompilerDemo"][usize::from(first % 2)];
    judge(seeds::with_delegate(backend, blob), None);
}

/// Packed weights that a file brings along, with an edited index, edited packs, or anything in their place.
pub fn packed_weights(data: &[u8]) {
    static TRUE_PACKS: LazyLock<Option<seeds::StoredPacks>> =
        LazyLock::new(|| seeds::mlp_packs(runtime()).ok());
    let Some((index, packs)) = &*TRUE_PACKS else { panic!("the MLP cannot be packed") };
    let (mut index, mut packs) = (index.clone(), packs.clone());
    let mut choices = Choices::new(data);
    match choices.below(4) {
        0 => index = choices.rest().to_vec(),
        1 => edit(&mut index, &mut choices),
        2 => {
            let at = choices.below(packs.len());
            if let Some((_, pack)) = packs.get_mut(at) {
                edit(pack, &mut choices);
            }
        }
        _ => {
            edit(&mut index, &mut choices);
            let at = choices.below(packs.len());
            if let Some((name, pack)) = packs.get_mut(at) {
                pack.truncate(choices.below(pack.len() + 1));
                if choices.chance(20) {
                    name.push('x');
                }
            }
        }
    }
    judge(seeds::packed_mlp(&index, &packs), None);
}

/// Up to eight edits: a byte set, removed or put in, a digit changed.
fn edit(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    for _ in 0..1 + choices.below(8) {
        let at = choices.below(bytes.len().max(1));
        match (choices.below(5), bytes.get_mut(at)) {
            (0, Some(byte)) => *byte = choices.byte(),
            (1, Some(_)) => drop(bytes.remove(at)),
            (2, _) => bytes.insert(at.min(bytes.len()), choices.byte()),
            (_, _) => {
                let digits: Vec<usize> =
                    bytes.iter().enumerate().filter(|(_, b)| b.is_ascii_digit()).map(|(i, _)| i).collect();
                if let Some(at) = digits.get(choices.below(digits.len())) {
                    bytes[*at] = b'0' + choices.byte() % 10;
                }
            }
        }
    }
}
