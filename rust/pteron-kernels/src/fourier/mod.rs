//! Discrete Fourier transforms: of one row of any length in float64 ([`scalar`]), and of many rows in float32 ([`rows`]).

pub mod axis;
pub mod butterflies;
#[allow(unsafe_code, reason = "vector loads and stores: the module says which and why")]
mod groups;
pub mod halves;
#[allow(unsafe_code, reason = "vector loads and stores: the module says which and why")]
mod passes;
#[allow(unsafe_code, reason = "pointers to the places of numbers: the module says which and why")]
pub mod rows;
pub mod scalar;
pub mod tables;

pub use scalar::{Number, Transform, memory, most_memory};
