//! Targets that read files: `load_bytes`, `load_and_run`, `ptd`, `delegate_blob`, `packed_weights`.

use crate::call_method::{LIMITS, call};
use crate::choices::Choices;
use crate::seed_programs as seeds;
use pteron_core::{ErrorKind, Result};
use pteron_cpu::plan::RuleSwitches;
use pteron_format::{BundleFile, DataFile, ProgramFile, listing, strip};
use pteron_runtime::{DataSource, MethodOptions, Program, ProgramSource, Runtime, RuntimeOptions};
use std::sync::{Arc, LazyLock};

fn runtime_with(rules: RuleSwitches) -> Option<Arc<Runtime>> {
    let runtime =
        Runtime::new(RuntimeOptions { threads: Some(1), rules, ..RuntimeOptions::default() }).ok()?;
    pteron_demo::register(&runtime).ok()?;
    Some(runtime)
}

static REWRITING: LazyLock<Option<Arc<Runtime>>> = LazyLock::new(|| runtime_with(RuleSwitches::all_on()));
static PLAIN: LazyLock<Option<Arc<Runtime>>> = LazyLock::new(|| runtime_with(RuleSwitches::all_off()));

/// The runtime that targets load programs into; all rewrites are on.
pub fn runtime() -> &'static Arc<Runtime> {
    REWRITING.as_ref().unwrap_or_else(|| panic!("no runtime can be made"))
}

/// One whose rewrites are off.
pub fn plain_runtime() -> &'static Arc<Runtime> {
    PLAIN.as_ref().unwrap_or_else(|| panic!("no runtime can be made"))
}

/// No file may bring out an error that says "our own bug".
fn no_bug<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.kind() != ErrorKind::Internal, "{error}");
            let text = error.to_string();
            assert!(text.len() < 20_000, "a message of {} bytes", text.len());
            None
        }
    }
}

/// Reads `data` as every format there is.
pub fn load_bytes(data: &[u8]) {
    if let Some(file) = no_bug(ProgramFile::parse(data)) {
        no_bug(listing(&file));
    }
    no_bug(DataFile::parse(data));
    no_bug(BundleFile::parse(data));
    no_bug(strip(data));
}

/// Loads `data`, runs every method twice, and once more as the file has it.
pub fn load_and_run(data: &[u8]) {
    let mut results = [run_all(runtime(), data, vec![]), run_all(plain_runtime(), data, vec![])];
    for result in &mut results {
        // A loop may end at the budget in one and at the end in the other: a rewrite makes fewer steps.
        result.retain(|(_, outcome)| outcome.is_some());
    }
    let [rewritten, plain] = results;
    for ((name, a), (_, b)) in rewritten.iter().zip(&plain).filter(|((n, _), (m, _))| n == m) {
        let (Some(a), Some(b)) = (a, b) else { continue };
        assert_eq!(a.len(), b.len(), "method {name} has another number of outputs after rewriting");
    }
}

type Outcomes = Vec<(String, Option<Vec<Vec<u8>>>)>;

fn run_all(runtime: &Arc<Runtime>, data: &[u8], files: Vec<DataSource>) -> Outcomes {
    let source = ProgramSource::Bytes(Arc::new(data.to_vec()));
    let Some(program) = no_bug(Program::load_with_data(runtime, source, files, LIMITS)) else {
        return vec![];
    };
    let mut outcomes = Vec::new();
    for name in program.methods().into_iter().take(4) {
        no_bug(program.plan_listing(name));
        let Some(method) =
            no_bug(program.load_method(name, MethodOptions { seed: Some(1), ..Default::default() }))
        else {
            continue;
        };
        for is_small in [false, true] {
            let outcome = no_bug(call(&method, &mut Choices::new(&[]), is_small));
            outcomes.push((name.to_string(), outcome));
        }
        no_bug(method.get_state());
        no_bug(method.reset_state());
    }
    outcomes
}

/// `data` as the data file of a program that needs one.
pub fn ptd(data: &[u8]) {
    let source = ProgramSource::Bytes(Arc::new(data.to_vec()));
    let file = DataSource { source, name: "weights.ptd".into() };
    run_all(runtime(), &seeds::with_external_tensors(), vec![file]);
}

/// The first byte chooses the backend, the rest is its blob.
pub fn delegate_blob(data: &[u8]) {
    let Some((first, blob)) = data.split_first() else { return };
    let backend = ["ExecutorBackend", "BackendWithCompilerDemo"][usize::from(first % 2)];
    run_all(runtime(), &seeds::with_delegate(backend, blob), vec![]);
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
    run_all(runtime(), &seeds::packed_mlp(&index, &packs), vec![]);
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
