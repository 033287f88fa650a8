//! The ATen kernel table and its reference kernels.
//!
//! One operator family per file under [`ops`], each with a `KERNELS` table; [`kernels`] joins them.
//! Reference kernels are complete rather than fastest: every dtype that PyTorch's operator takes,
//! every dim order, empty and 0-d tensors, NaN, and PyTorch's own errors. Fast kernels live in
//! `pteron-cpu` and are asked first.
//!
//! Adding a kernel touches two places: the family's file, and its line in [`ops`] if the file is new.
//!
//! Unsafe code lives in [`chunked`], [`compute`], [`elements`], [`elementwise`], [`indexed`], [`mapped_copy`],
//! [`region`] and [`routine`].
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod chunked;
pub mod complex_blocks;
pub mod complex_number;
#[allow(unsafe_code)]
pub mod compute;
pub mod draws;
#[allow(unsafe_code)]
pub mod elements;
#[allow(unsafe_code)]
pub mod elementwise;
pub mod features;
pub mod fourier;
#[allow(unsafe_code)]
pub mod indexed;
pub mod loops;
#[allow(unsafe_code)]
pub mod mapped_copy;
pub mod ops;
pub(crate) mod ordering;
pub mod promotion;
pub mod reduction;
#[allow(unsafe_code)]
pub mod region;
#[allow(unsafe_code)]
pub mod routine;
pub mod shape;
#[cfg(any(test, feature = "testing"))]
#[allow(unsafe_code)]
pub mod testing;
pub mod walk;

use pteron_core::{Schema, StaticKernel};

/// Every reference kernel.
pub fn kernels() -> impl Iterator<Item = &'static StaticKernel> {
    ops::TABLES.iter().copied().flatten().copied().flatten()
}

/// Kernels of operators on complex numbers, to be asked before those of [`kernels`].
#[cfg(not(feature = "complex"))]
pub fn complex_kernels() -> impl Iterator<Item = &'static StaticKernel> {
    std::iter::empty()
}

/// Kernels of operators on complex numbers, to be asked before those of [`kernels`].
#[cfg(feature = "complex")]
pub fn complex_kernels() -> impl Iterator<Item = &'static StaticKernel> {
    let functions = ops::complex_functions::FUNCTIONS.iter().chain(ops::complex_functions::OPERATORS);
    let functions = functions.chain(ops::complex_scans::KERNELS);
    ops::complex_elementwise::KERNELS.iter().chain(ops::complex_sums::KERNELS).chain(functions)
}

/// Names of all operators with a reference kernel (`aten::add.out`), sorted.
pub fn operator_names() -> Vec<String> {
    let all = kernels().chain(complex_kernels());
    let mut names: Vec<String> = all.filter_map(|k| Schema::parse(k.schema).ok()).map(|s| s.name).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_parses_and_every_operator_is_there_once() {
        let mut seen = std::collections::HashSet::new();
        for kernel in kernels() {
            let schema = Schema::parse(kernel.schema).unwrap();
            assert!(schema.has_scalar_return || schema.outputs().next().is_some(), "{}", schema.name);
            assert!(seen.insert(schema.name.clone()), "{} appears twice", schema.name);
        }
        for kernel in complex_kernels() {
            seen.insert(Schema::parse(kernel.schema).unwrap().name);
        }
        assert_eq!(operator_names().len(), seen.len());
    }
}
