//! What elementwise operators share: the functions of a row ([`pointwise`], [`lanewise`]), the vector frame (`blocks`) with
//! single functions ([`floats`]) and chains of several ([`chain`]), the loops over other elements ([`lanewise`]), and the
//! frame of plain kernels ([`plain`]). The functions themselves are beside the rows of their operators.
//! Outputs may share bytes with an operand of the same shape.

#[allow(unsafe_code, reason = "the blocks of SIMD tasks")]
mod blocks;
pub mod broadcast;
#[allow(unsafe_code, reason = "a SIMD task")]
mod byte_table;
#[cfg(test)]
mod byte_table_tests;
#[allow(unsafe_code, reason = "SIMD tasks of a chain, block by block")]
pub mod chain;
#[allow(unsafe_code, reason = "hands the blocks of a chunk to the chain's SIMD tasks")]
pub mod chain_kernel;
#[cfg(test)]
mod chain_kernel_tests;
#[cfg(test)]
#[allow(unsafe_code, reason = "tests play the caller's part in the contract of a chain")]
mod chain_tests;
#[allow(unsafe_code, reason = "loads and stores of SIMD tasks")]
pub mod columns;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod floats;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod function;
pub mod function_table;
#[cfg(test)]
mod lanes_and_plain_tests;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod lanewise;
#[cfg(test)]
mod lanewise_tests;
#[allow(unsafe_code, reason = "a SIMD task: loads and stores of each dtype")]
pub mod operand;
pub mod plain;
#[allow(unsafe_code, reason = "loops of SIMD tasks")]
pub mod pointwise;
#[allow(unsafe_code, reason = "a SIMD task")]
mod quantised_pairs;
#[allow(unsafe_code, reason = "a SIMD task")]
mod quantised_product;
#[cfg(test)]
mod quantised_product_tests;
#[allow(unsafe_code, reason = "a SIMD task")]
mod quantised_sum;
#[cfg(test)]
mod quantised_sum_tests;
#[cfg(test)]
pub(crate) mod tests;
