//! What elementwise operators share: the functions of a row ([`pointwise`], [`lanewise`]), the vector frame (`blocks`) with
//! single functions ([`floats`]) and chains of several ([`chain`]), the loops over other elements ([`lanewise`]), and the
//! frame of plain kernels ([`plain`]). The functions themselves are beside the rows of their operators.
//! Outputs may share bytes with an operand of the same shape.

mod blocks;
pub mod broadcast;
pub mod chain;
pub mod chain_kernel;
#[cfg(test)]
mod chain_kernel_tests;
#[cfg(test)]
mod chain_tests;
pub mod floats;
pub mod function;
pub mod lanewise;
#[cfg(test)]
mod lanewise_tests;
pub mod operand;
pub mod plain;
pub mod pointwise;
#[cfg(test)]
pub(crate) mod tests;
