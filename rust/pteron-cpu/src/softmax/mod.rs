//! Softmax kernels.

pub mod rows;
