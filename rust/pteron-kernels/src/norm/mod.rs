//! Normalisation kernels: layer norm, batch norm at inference, group norm.

pub mod batch_norm;
pub mod group_norm;
pub mod layer_norm;
pub mod moments;
#[cfg(test)]
mod tests;
