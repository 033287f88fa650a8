//! Elementwise kernels on f32 and bool. Outputs may share bytes with an operand of the same shape.

pub mod binary;
pub mod boolean;
pub mod broadcast;
pub mod choose;
pub mod pointwise;
#[cfg(test)]
pub(crate) mod tests;
pub mod unary;
