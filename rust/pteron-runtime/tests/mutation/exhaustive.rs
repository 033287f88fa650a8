//! Every truncation and every single-bit flip of the smallest program and of the smallest data file: loaded, built
//! and executed in this process, so that a death is the test's own.

use crate::{Tools, corpus};
use pteron_fuzz::mutation::{Mutant, Seed};
use std::sync::Arc;

/// Flips and truncations of `bytes`, each given to `run`, which says how many were accepted.
fn all(bytes: &[u8], mut run: impl FnMut(Vec<u8>, String)) {
    for len in 0..bytes.len() {
        run(bytes[..len].to_vec(), format!("cut to {len} of {} bytes", bytes.len()));
    }
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.to_vec();
        changed[at / 8] ^= 1 << (at % 8);
        run(changed, format!("bit {} of byte {} flipped", at % 8, at / 8));
    }
}

fn problems(tools: &Tools, bytes: &[u8], mutant: impl Fn(Vec<u8>, String) -> Mutant) -> Vec<String> {
    let mut problems = Vec::new();
    all(bytes, |bytes, what| {
        let mutant = mutant(bytes, what);
        if let Err(text) = tools.trial.verdict(&mutant) {
            problems.push(format!("{}: {text}", mutant.name));
        }
    });
    problems
}

/// The smallest program that there is: constants in its table, no interface, no segments.
pub fn program(tools: &Tools) -> Vec<String> {
    let seed = Seed::read(&corpus().join("../../schema/samples/add-inline-constants.pte"));
    problems(tools, &seed.program.bytes, |bytes, name| Mutant { name, program: Arc::new(bytes), data: None })
}

/// A data file of one tensor, under a program that reads it.
pub fn data_file(tools: &Tools) -> Vec<String> {
    let seed = Seed::read(&corpus().join("seeds/external_smallest.pte"));
    let data = seed.data.expect("a data file beside it");
    let program = &seed.program.bytes;
    problems(tools, &data.bytes, |bytes, name| Mutant {
        name,
        program: program.clone(),
        data: Some(Arc::new(bytes)),
    })
}
