//! What fuzzing runs. Every target is a function of bytes that panics at a finding, so that the same code runs
//! under libFuzzer (`fuzz/`), under the driver `fuzz_here` that needs no fuzzer, and over the kept seeds in the
//! tests. What other tests need of it is here, too, once: random programs, a builder of small ones, changed files, inputs
//! for what a file asks for, pseudo-random numbers, and what two results have to have in common.
//!
//! Unsafe code lives in `kernel_args::call` and `call_method`.

#![deny(unsafe_code)]

pub mod api_calls;
pub mod builder;
#[allow(unsafe_code, reason = "plays the caller's part in the contracts of kernels and delegates")]
pub mod call_method;
pub mod choices;
mod file_run;
pub mod file_trial;
pub mod files;
pub mod kernel_args;
pub mod mutation;
pub mod oracles;
pub mod payloads;
pub mod pseudo_random;
pub mod random_program;
pub mod seed_programs;
pub mod structured_program;

use mutation::{Mutant, Seed, SeedFile};
use pseudo_random::PseudoRandom;
use std::sync::LazyLock;

/// A target by name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    Some(match name {
        "load_bytes" => files::load_bytes,
        "load_and_run" => files::load_and_run,
        "structured_program" => structured_program::run,
        "ptd" => files::ptd,
        "delegate_blob" => files::delegate_blob,
        "packed_weights" => files::packed_weights,
        "xnnpack_payload" => payloads::xnnpack_payload,
        "kernel_args" => |data| drop(kernel_args::run(data)),
        "api_calls" => api_calls::run,
        _ => return None,
    })
}

/// Runs the target called `name`.
pub fn run(name: &str, data: &[u8]) {
    match target(name) {
        Some(run) => run(data),
        None => panic!("there is no target called {name}"),
    }
}

/// Programs that inputs begin with, written once.
static SEEDS: LazyLock<Vec<Seed>> = LazyLock::new(seed_programs::seeds);

/// An input for a target, of a seed: changed files for targets that read files, else pseudo-random bytes.
pub fn input(target: &str, seed: u64) -> Vec<u8> {
    let mut random = PseudoRandom::of_number(seed);
    let mut changed = |file: &SeedFile| mutation::changed(file, &SEEDS, &mut random);
    match target {
        "load_bytes" if seed.is_multiple_of(8) => changed(&SeedFile::new(seed_programs::data_file())),
        "load_bytes" | "load_and_run" => Mutant::of_number(&SEEDS, seed).program.to_vec(),
        "ptd" => changed(&SeedFile::new(seed_programs::data_file())),
        "delegate_blob" if seed.is_multiple_of(2) => {
            [vec![0], changed(&SeedFile::new(seed_programs::sum()))].concat()
        }
        "delegate_blob" => [vec![1], changed(&SeedFile::new(seed_programs::DEMO_BLOB.to_vec()))].concat(),
        "xnnpack_payload" => {
            let (site, payload) = payloads::right(seed);
            [vec![site], changed(&SeedFile::new(payload))].concat()
        }
        _ => choices::random_bytes(seed, 512),
    }
}

/// Names of all targets.
pub const TARGETS: [&str; 9] = [
    "load_bytes",
    "load_and_run",
    "structured_program",
    "ptd",
    "delegate_blob",
    "packed_weights",
    "xnnpack_payload",
    "kernel_args",
    "api_calls",
];
