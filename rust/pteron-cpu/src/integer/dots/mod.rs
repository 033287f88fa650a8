//! The vectors of integer products, once for each instruction set that has dot products of bytes or can stand in for
//! them. Unsafe island: the functions are reachable only through [`super::kit::Kit`], which detects the instructions.
//!
//! Activations are unsigned bytes, weights signed ones; a dot product adds the four products of a *quad*, exactly.

#![allow(unsafe_code, reason = "intrinsics of an instruction set, and loads and stores by address")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod vectors;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::{Avx2, AvxVnni};
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::{Avx512, Avx512Vnni};
#[cfg(target_arch = "aarch64")]
pub(super) use neon::{Neon, NeonDot, NeonMixedDot};
pub(super) use portable::Portable;
pub(super) use vectors::{Dots, Narrowing, TapDots};
