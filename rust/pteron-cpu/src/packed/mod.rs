//! Packed weight formats: versioned, the same on every instruction set, holding numbers and never
//! offsets, so that they can be stored in files and mapped. Each can be unpacked again to the exact
//! weights, so no raw copy needs to be kept.

mod block;
pub mod f32_nr32_v1;
mod packed_format;
mod parts;

pub(crate) use block::pack_block;
pub use packed_format::{DENSE, FORMATS, PackedFormat, packed_format};
pub(crate) use parts::in_parts;
