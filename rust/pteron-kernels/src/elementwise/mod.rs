//! Elementwise kernels on floats, integers and bool, and programs of several elementwise functions ([`program`]).
//! Outputs may share bytes with an operand of the same shape.

pub mod activations;
pub mod binary;
pub mod boolean;
pub mod broadcast;
pub mod casts;
pub mod chain;
#[cfg(test)]
mod chain_tests;
pub mod choose;
pub mod elementary;
pub mod floats;
pub mod function;
mod lanewise;
pub mod numbers;
pub mod operand;
pub mod pairs;
pub mod plain;
pub mod pointwise;
pub mod program;
#[cfg(test)]
mod program_tests;
#[cfg(test)]
pub(crate) mod tests;
pub mod unary;
