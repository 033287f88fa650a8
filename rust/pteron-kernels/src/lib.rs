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
pub mod chunk;
#[allow(unsafe_code)]
pub mod chunked;
pub mod complex_blocks;
pub mod complex_number;
#[allow(unsafe_code)]
pub mod compute;
pub mod cpu_detect;
pub mod draws;
#[allow(unsafe_code)]
pub mod elements;
#[allow(unsafe_code)]
pub mod elementwise;
pub mod features;
pub mod fourier;
#[allow(unsafe_code)]
pub mod frame;
#[allow(unsafe_code)]
pub mod indexed;
#[allow(unsafe_code)]
pub mod layout;
pub mod loops;
#[allow(unsafe_code)]
pub mod mapped_copy;
#[allow(unsafe_code)]
pub mod norm;
pub mod operator;
pub mod ops;
pub(crate) mod ordering;
#[cfg(feature = "pooling")]
#[allow(unsafe_code)]
pub mod pooling;
pub mod promotion;
#[allow(unsafe_code)]
pub mod reduction;
#[allow(unsafe_code)]
pub mod region;
#[cfg(feature = "image")]
#[allow(unsafe_code)]
pub mod resampling;
#[allow(unsafe_code)]
pub mod routine;
pub mod shape;
#[allow(unsafe_code)]
pub mod single_call;
#[cfg(any(test, feature = "testing"))]
#[allow(unsafe_code)]
pub mod testing;
#[allow(unsafe_code)]
pub mod vector_math;
pub mod walk;

pub use operator::Operator;

use pteron_core::{Schema, StaticKernel};

/// The tables of all families of fast kernels.
static FAST: &[&[StaticKernel]] = &[
    elementwise::unary::KERNELS,
    elementwise::elementary::KERNELS,
    elementwise::activations::KERNELS,
    elementwise::binary::KERNELS,
    elementwise::pairs::KERNELS,
    elementwise::binary::COMPARISONS,
    elementwise::choose::KERNELS,
    elementwise::boolean::KERNELS,
    elementwise::numbers::KERNELS,
    elementwise::casts::KERNELS,
    norm::layer_norm::KERNELS,
    norm::batch_norm::KERNELS,
    norm::group_norm::KERNELS,
    #[cfg(feature = "pooling")]
    pooling::max_pool::KERNELS,
    #[cfg(feature = "pooling")]
    pooling::avg_pool::KERNELS,
    #[cfg(feature = "image")]
    resampling::bilinear::KERNELS,
    reduction::float::KERNELS,
    reduction::wide::KERNELS,
    reduction::any::KERNELS,
    layout::views::KERNELS,
    layout::cat::KERNELS,
    layout::embedding::KERNELS,
    layout::pad::KERNELS,
    layout::triangle::KERNELS,
];

/// Every fast kernel, in the order in which those of one operator are asked.
pub fn fast_kernels() -> impl Iterator<Item = StaticKernel> {
    FAST.iter().flat_map(|family| family.iter().copied()).chain(operators().flat_map(Operator::fast_kernels))
}

/// Every row of the operator table.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    ops::TABLES.iter().copied().flatten().copied().flatten()
}

/// The plain kernel of every row, which is asked last.
pub fn plain_kernels() -> impl Iterator<Item = StaticKernel> {
    operators().filter_map(Operator::plain_kernel)
}

/// Kernels of operators on complex numbers, to be asked before those of [`kernels`].
#[cfg(not(feature = "complex"))]
pub fn complex_kernels() -> impl Iterator<Item = StaticKernel> {
    std::iter::empty()
}

/// Kernels of operators on complex numbers, to be asked before those of [`kernels`].
#[cfg(feature = "complex")]
pub fn complex_kernels() -> impl Iterator<Item = StaticKernel> {
    let functions = ops::complex_functions::FUNCTIONS.iter().chain(ops::complex_functions::OPERATORS);
    let functions = functions.chain(ops::complex_scans::KERNELS);
    ops::complex_elementwise::KERNELS.iter().chain(ops::complex_sums::KERNELS).chain(functions).copied()
}

/// Names of all operators with a reference kernel (`aten::add.out`), sorted.
pub fn operator_names() -> Vec<String> {
    let complex = complex_kernels().filter_map(|k| Schema::parse(k.schema).ok()).map(|s| s.name);
    let mut names: Vec<String> = operators().map(|o| o.name().to_string()).chain(complex).collect();
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
        for row in operators() {
            let schema = Schema::parse(row.schema).unwrap();
            assert_eq!(schema.name, row.name());
            assert_eq!(row.plain_kernel().unwrap().variant, "reference", "{}", schema.name);
            assert!(schema.has_scalar_return || schema.outputs().next().is_some(), "{}", schema.name);
            assert!(seen.insert(schema.name.clone()), "{} appears twice", schema.name);
        }
        for kernel in complex_kernels() {
            seen.insert(Schema::parse(kernel.schema).unwrap().name);
        }
        assert_eq!(operator_names().len(), seen.len());
    }
}
