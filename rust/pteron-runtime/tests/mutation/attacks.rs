//! Attacks on one field at a time, none left out: what a generator of random changes would find late.

use crate::campaign::{Tally, judge, keep};
use crate::{Tools, folder};
use pteron_fuzz::mutation::sites::{Site, What};
use pteron_fuzz::mutation::{Mutant, Seed, mutators};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

fn write(bytes: &mut [u8], site: &Site, value: u64) {
    if let Some(place) = bytes.get_mut(site.at..site.at + site.width) {
        place.copy_from_slice(&value.to_le_bytes()[..site.width]);
    }
}

fn mutant(seed: &Seed, name: String, change: impl FnOnce(&mut [u8])) -> Mutant {
    let mut bytes = seed.program.bytes.to_vec();
    change(&mut bytes);
    Mutant { name: format!("{}-{name}", seed.name), program: Arc::new(bytes), ..Mutant::unchanged(seed) }
}

/// Each argument of each call (of kernels and delegates) replaced by each value of the method; every `step`th of
/// these, where `most` says how many there may be.
pub fn arguments(seed: &Seed, most: usize) -> impl Iterator<Item = Mutant> {
    let sites = &seed.program.sites.list;
    let values = sites.iter().filter(|s| s.field == "val_type").count();
    let is_argument = |s: &&Site| s.what == What::Number && matches!(s.field, "args" | "delegate_args");
    let places: Vec<&Site> = sites.iter().filter(is_argument).collect();
    let count = places.len() * values;
    (0..count).step_by(step(count, most)).map(move |i| {
        let (site, value) = (places[i / values], i % values);
        mutant(seed, format!("argument-{}-{value}", site.at), |b| write(b, site, value as u64))
    })
}

/// Each field of numbers with each boundary number, in its first place and in all of them; at most `most`.
pub fn boundaries(seed: &Seed, most: usize) -> impl Iterator<Item = Mutant> {
    let sites = &seed.program.sites.list;
    let mut fields: Vec<&str> = sites.iter().filter(|s| s.what == What::Number).map(|s| s.field).collect();
    fields.sort_unstable();
    fields.dedup();
    let numbers = mutators::BOUNDARIES.len();
    let count = fields.len() * numbers * 2;
    (0..count).step_by(step(count, most)).map(move |i| {
        let (field, value) = (fields[i / 2 / numbers], mutators::BOUNDARIES[i / 2 % numbers]);
        let places = if i % 2 == 0 { 1 } else { usize::MAX };
        let chosen = sites.iter().filter(|s| s.what == What::Number && s.field == field).take(places);
        let name = format!("{field}-{value}-{}", if i % 2 == 0 { "first" } else { "all" });
        mutant(seed, name, |b| chosen.for_each(|s| write(b, s, value)))
    })
}

/// How far apart at most `most` of `count` things are.
fn step(count: usize, most: usize) -> usize {
    count.div_ceil(most).max(1)
}

/// All planned tensors at one place, or packed into a few: every overlap of inputs and outputs there is.
pub fn overlaps(seed: &Seed) -> Vec<Mutant> {
    let places = || seed.program.sites.list.iter().filter(|s| s.field == "memory_offset_low");
    let mut out: Vec<Mutant> = [0, 16, 64]
        .iter()
        .map(|&at| mutant(seed, format!("all-at-{at}"), |b| places().for_each(|s| write(b, s, at))))
        .collect();
    for distance in [4, 8, 16, 64] {
        out.push(mutant(seed, format!("{distance}-apart"), |b| {
            places().enumerate().for_each(|(i, s)| write(b, s, i as u64 % 4 * distance));
        }));
    }
    // Each pair of tensors at one place.
    let all: Vec<&Site> = places().collect();
    for (i, first) in all.iter().enumerate() {
        for second in all.iter().skip(i + 1) {
            out.push(mutant(seed, format!("{}-at-{}", second.at, first.at), |b| {
                let place = b[first.at..first.at + 4].to_vec();
                b[second.at..second.at + 4].copy_from_slice(&place);
            }));
        }
    }
    out
}

fn findings(tools: &Tools, mutants: impl Iterator<Item = Mutant>) -> Vec<String> {
    let mut tally = Tally::default();
    for mutant in mutants {
        if let Some(problem) = judge(&tools.server, &tools.trial, &mutant, &mut tally) {
            keep(&folder(), &mutant, &problem);
        }
    }
    tally.findings
}

/// Mutants per seed in a run of seconds.
const FEW: usize = 16;

pub fn every_argument(tools: &Tools) -> Vec<String> {
    findings(tools, tools.seeds.iter().flat_map(|seed| arguments(seed, FEW)))
}

pub fn every_boundary(tools: &Tools) -> Vec<String> {
    findings(tools, tools.seeds.iter().flat_map(|seed| boundaries(seed, FEW)))
}

pub fn every_overlap(tools: &Tools) -> Vec<String> {
    findings(tools, tools.seeds.iter().flat_map(|seed| overlaps(seed).into_iter().take(FEW)))
}

/// All of them, at every place.
pub fn all(tools: &Tools) -> ExitCode {
    let mut tally = Tally::default();
    let start = Instant::now();
    for seed in &tools.seeds {
        for mutant in arguments(seed, 2000).chain(boundaries(seed, 2000)).chain(overlaps(seed)) {
            if let Some(problem) = judge(&tools.server, &tools.trial, &mutant, &mut tally) {
                keep(&folder(), &mutant, &problem);
            }
        }
        println!("{}: {} so far", seed.name, tally.total());
    }
    print!("{}", tally.summary(start.elapsed()));
    tally.findings.iter().for_each(|f| println!("  {f:.400}"));
    if tally.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
