//! Every target over the inputs that are kept (`seeds/TARGET`: each was a finding once), over files that are
//! known to be right, and over some pseudo-random inputs. Fuzzing proper is `make fuzz`.

use pteron_fuzz::choices::random_bytes;
use pteron_fuzz::kernel_args::operators::OPERATORS;
use pteron_fuzz::kernel_args::{self, Reach};
use pteron_fuzz::mutation::{SeedFile, changed};
use pteron_fuzz::pseudo_random::PseudoRandom;
use pteron_fuzz::{TARGETS, files, input, run, seed_programs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files_in(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths
}

#[test]
fn kept_inputs_bring_out_nothing_any_more() {
    let mut count = 0;
    for target in TARGETS {
        for path in files_in(&format!("seeds/{target}")) {
            println!("{}", path.display());
            run(target, &std::fs::read(path).unwrap());
            count += 1;
        }
    }
    assert!(count > 0, "the kept inputs are not where this test looks");
}

#[test]
fn files_that_are_right_run() {
    let mut count = 0;
    for path in files_in("../../schema/samples") {
        let data = std::fs::read(&path).unwrap();
        files::load_bytes(&data);
        files::load_and_run(&data);
        count += 1;
    }
    assert!(count >= 8, "{count} samples");
    files::ptd(&seed_programs::data_file());
    files::delegate_blob(&[&[0], &*seed_programs::sum()].concat());
    files::delegate_blob(&[&[1], seed_programs::DEMO_BLOB].concat());
    files::packed_weights(&[]);
}

#[test]
fn damaged_samples_bring_out_nothing() {
    for path in files_in("../../schema/samples") {
        let data = std::fs::read(&path).unwrap();
        let sample = SeedFile::new(data);
        let mut random = PseudoRandom::new(0);
        for _ in 0..40 {
            let damaged = changed(&sample, &[], &mut random);
            files::load_bytes(&damaged);
            files::load_and_run(&damaged);
        }
    }
}

#[test]
fn random_inputs_bring_out_nothing() {
    for target in TARGETS.into_iter().filter(|t| *t != "kernel_args") {
        let cases = if target == "structured_program" { 25 } else { 150 };
        for seed in 0..cases {
            run(target, &input(target, seed));
        }
    }
}

#[test]
fn random_kernel_calls_bring_out_nothing() {
    let mut ran = BTreeSet::new();
    for seed in 0..4000 {
        let data = random_bytes(seed, 512);
        let result = std::panic::catch_unwind(|| kernel_args::run(&data));
        let (name, reach) =
            result.unwrap_or_else(|_| panic!("seed {seed}: {}", kernel_args::describe(&data)));
        if reach == Reach::Ran {
            ran.insert(name);
        }
    }
    // The test means nothing unless most operators run.
    assert!(ran.len() * 3 > OPERATORS.len(), "{} of {} operators ran", ran.len(), OPERATORS.len());
}

#[test]
#[ignore = "minutes"]
fn many_random_kernel_calls_reach_every_operator() {
    let mut ran = BTreeSet::new();
    for seed in 0..200_000 {
        let data = random_bytes(seed, 512);
        let result = std::panic::catch_unwind(|| kernel_args::run(&data));
        let (name, reach) =
            result.unwrap_or_else(|_| panic!("seed {seed}: {}", kernel_args::describe(&data)));
        if reach == Reach::Ran {
            ran.insert(name);
        }
    }
    let missing: Vec<&str> =
        OPERATORS.iter().map(|o| o.schema.name.as_str()).filter(|name| !ran.contains(name)).collect();
    println!("{} of {} operators ran; not: {missing:?}", ran.len(), OPERATORS.len());
    assert!(missing.is_empty(), "not: {missing:?}");
}
