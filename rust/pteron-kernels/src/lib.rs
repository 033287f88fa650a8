//! The operator table. One operator family per file under [`ops`], with a row ([`Operator`]) for each operator: its schema, its
//! kernels from fast to plain, its elementwise function and its error bound.
//!
//! Plain kernels are complete rather than fastest: every dtype that PyTorch's operator takes, every dim order, empty and 0-d
//! tensors, NaN, and PyTorch's own errors. Fast kernels are asked first; those that need the engine are in `pteron-cpu`.
//!
//! Adding a kernel touches one place: the row. A new file has a line in [`ops`].
//!
//! Unsafe code lives below the families, in [`chunk`], [`compute`], [`elements`], [`grid_kernel`], [`indexed`], [`strided`],
//! [`vector_math`], and in SIMD tasks, which are modules of their own inside the families. Nothing else of a family is unsafe.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
pub mod chunk;
pub mod chunked;
pub mod complex_blocks;
pub mod complex_number;
#[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
pub mod compute;
pub mod cpu_detect;
pub mod draws;
#[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
pub mod elements;
pub mod elementwise;
pub mod features;
pub mod fourier;
pub mod frame;
#[allow(unsafe_code, reason = "the contract of `Prepared::run` is turned into safe calls of kernels")]
pub mod grid_kernel;
#[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
pub mod indexed;
pub mod operator;
pub mod ops;
pub(crate) mod ordering;
pub mod promotion;
pub mod reduction;
pub mod routine;
pub mod shape;
#[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
pub mod single_call;
pub mod strided;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
pub mod vector_math;

pub use operator::Operator;

use pteron_core::StaticKernel;

/// Every fast kernel, in the order in which those of one operator are asked.
pub fn fast_kernels() -> impl Iterator<Item = StaticKernel> {
    operators().flat_map(Operator::fast_kernels)
}

/// Every row of the operator table.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    ops::TABLES.iter().copied().flatten().copied().flatten()
}

/// The plain kernels of every row, which are asked last: the one for complex numbers, if there is one, then the other.
pub fn plain_kernels() -> impl Iterator<Item = StaticKernel> {
    operators().flat_map(Operator::plain_kernels)
}

/// Names of all operators of the table (`aten::add.out`), sorted.
pub fn operator_names() -> Vec<String> {
    let mut names: Vec<String> = operators().map(|o| o.name().to_string()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::Schema;

    #[test]
    fn every_schema_parses_and_every_operator_is_there_once() {
        let mut seen = std::collections::HashSet::new();
        for row in operators() {
            let schema = Schema::parse(row.schema).unwrap();
            assert_eq!(schema.name, row.name());
            assert_eq!(row.plain_kernels().last().unwrap().variant, "reference", "{}", schema.name);
            assert!(schema.has_scalar_return || schema.outputs().next().is_some(), "{}", schema.name);
            assert!(seen.insert(schema.name.clone()), "{} appears twice", schema.name);
        }
        assert_eq!(operator_names().len(), seen.len());
    }
}
