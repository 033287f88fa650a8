//! Vector arithmetic: the instruction set interface [`simd::Simd`] with its four implementations, and
//! the transcendental functions written against it. Measured errors in their documentation come from every
//! 37th f32, on all instruction sets of x86-64; an ignored test checks the bounds on every f32.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod bessel;
pub mod bessel_second;
pub mod double;
pub mod erf;
pub mod erfc;
pub mod erfinv;
pub mod exp;
pub mod half_bits;
pub mod hyperbolic;
pub mod hypot;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod intrinsics;
pub mod inverse_trigonometric;
pub mod level;
pub mod log;
#[cfg(target_arch = "x86_64")]
mod look_up;
#[cfg(test)]
mod method_tests;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod portable;
pub mod power;
mod quarter_turns;
pub mod remainders;
pub mod sigmoid;
pub mod simd;
pub mod sine_pair;
pub mod tanh;
pub mod trigonometric;
pub mod twice;
#[cfg(test)]
mod ulp_tests;

pub use level::SimdLevel;
pub use simd::{Simd, SimdTask};
