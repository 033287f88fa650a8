//! Packed weight formats: versioned, the same on every instruction set, holding numbers and never
//! offsets, so that they can be stored in files and mapped. All but that of Winograd's products hold the exact
//! weights in another order, zeros, and sums of them.

pub mod bf16_scales_nr32_v1;
mod block;
pub mod f32_nr32_v1;
mod formats;
mod packed_format;
mod parts;
pub mod s8_nr32k4_v1;
mod strided_matrix;
#[cfg(test)]
pub(crate) mod testing;
pub mod u4_nr32k8_v1;

pub(crate) use block::pack_block;
pub use formats::{FORMATS, packed_format};
pub use packed_format::{DENSE, PackedFormat};
pub(crate) use parts::{in_parts, share};
pub(crate) use strided_matrix::StridedMatrix;
