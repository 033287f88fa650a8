//! Vector arithmetic: the instruction set interface [`simd::Simd`] with its three implementations, and
//! the transcendental functions written against it.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod erf;
pub mod exp;
pub mod log;
pub mod portable;
pub mod sigmoid;
pub mod simd;
pub mod tanh;
#[cfg(test)]
mod ulp_tests;

pub use simd::{Simd, SimdLevel, SimdTask};
