//! Reductions over neighbouring dimensions.

pub mod any;
pub mod float;
pub mod plain;
pub mod shape;
#[cfg(test)]
mod tests;
pub mod wide;
