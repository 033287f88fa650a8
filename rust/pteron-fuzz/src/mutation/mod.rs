//! Changed files: what the mutation test of `pteron-runtime` and the fuzz targets over whole files run. Each mutant is a
//! function of its number, while the seeds and the mutators stay.

pub mod mutators;
mod schema;
pub mod seed;
pub mod sites;

pub use seed::{Seed, SeedFile, read_all};

use crate::pseudo_random::PseudoRandom;
use std::sync::Arc;

/// A program and its data file, one of them changed.
pub struct Mutant {
    /// Number, seed and mutator.
    pub name: String,
    /// The program.
    pub program: Arc<Vec<u8>>,
    /// The data file beside it.
    pub data: Option<Arc<Vec<u8>>>,
}

impl Mutant {
    /// A seed as it is.
    pub fn unchanged(seed: &Seed) -> Mutant {
        let data = seed.data.as_ref().map(|d| d.bytes.clone());
        Mutant { name: seed.name.clone(), program: seed.program.bytes.clone(), data }
    }

    /// Mutant `number` of these seeds.
    pub fn of_number(seeds: &[Seed], number: u64) -> Mutant {
        let mut random = PseudoRandom::of_number(number);
        let seed = random.pick(seeds);
        let mutator = mutators::draw(&mut random);
        let mut out = Mutant::unchanged(seed);
        out.name = format!("{number}-{}-{}", seed.name, mutator.name);
        match &seed.data {
            Some(data) if random.one_in(2) => {
                out.data = Some(Arc::new(mutator.apply(data, seeds, &mut random)));
                out.name += "-data";
            }
            _ => out.program = Arc::new(mutator.apply(&seed.program, seeds, &mut random)),
        }
        out
    }
}

/// `file`, changed by one mutator after the other until it is another one.
pub fn changed(file: &SeedFile, others: &[Seed], random: &mut PseudoRandom) -> Vec<u8> {
    loop {
        let bytes = mutators::draw(random).apply(file, others, random);
        if bytes != *file.bytes {
            return bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed_programs;

    #[test]
    fn a_number_is_always_the_same_mutant_and_no_two_are_alike() {
        let seeds = seed_programs::seeds();
        let mutants: Vec<Mutant> = (0..40).map(|n| Mutant::of_number(&seeds, n)).collect();
        for (number, mutant) in mutants.iter().enumerate() {
            let again = Mutant::of_number(&seeds, number as u64);
            assert_eq!((&again.name, &again.program), (&mutant.name, &mutant.program));
            assert_eq!(again.data, mutant.data);
        }
        let changed = mutants.iter().filter(|m| {
            seeds
                .iter()
                .all(|s| s.program.bytes != m.program || s.data.as_ref().map(|d| &d.bytes) != m.data.as_ref())
        });
        assert!(changed.count() > 30, "a mutator changes nothing");
    }

    #[test]
    fn every_written_program_has_sites_of_each_kind() {
        for seed in seed_programs::seeds() {
            let fields: Vec<&str> = seed.program.sites.list.iter().map(|s| s.field).collect();
            for wanted in [&["args", "delegate_args"] as &[_], &["val_type"], &["sizes"]] {
                let is_there = wanted.iter().any(|field| fields.contains(field));
                assert!(is_there, "{}: none of {wanted:?} among its sites", seed.name);
            }
        }
    }

    #[test]
    fn what_has_no_sites_is_changed_too() {
        let file = SeedFile::new(b"1version:0#op:none#".to_vec());
        let seeds = [Seed::new("sum", seed_programs::sum())];
        let mut random = PseudoRandom::new(3);
        assert!((0..50).all(|_| changed(&file, &seeds, &mut random) != *file.bytes));
    }
}
