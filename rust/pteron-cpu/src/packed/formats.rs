//! The table of packed formats that files may hold.

use super::bf16_scales_nr32_v1;
use super::f32_nr32_v1;
use super::packed_format::{DENSE, PackedFormat};
use super::s8_nr32k4_v1;
use super::u4_nr32k8_v1;
use crate::conv;
use crate::linear::halves;
use crate::weight_only;

/// Every format that this version reads and writes.
pub const FORMATS: [PackedFormat; 15] = [
    DENSE,
    f32_nr32_v1::PACKED,
    conv::f32_conv_nr32_v1::PACKED,
    conv::f32_conv_groups_v1::PACKED,
    conv::depthwise::PACKED_INTERLEAVED,
    conv::winograd::PACKED,
    s8_nr32k4_v1::PACKED,
    u4_nr32k8_v1::PACKED,
    u4_nr32k8_v1::PACKED_PAIRS,
    bf16_scales_nr32_v1::PACKED,
    weight_only::panels::BYTES,
    weight_only::panels::NIBBLES,
    weight_only::panels::PAIRS,
    halves::panels::BRAIN,
    halves::panels::BINARY,
];

/// The format of that name, if this version knows it.
pub fn packed_format(name: &str) -> Option<&'static PackedFormat> {
    const TABLE: &[PackedFormat] = &FORMATS;
    TABLE.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{DType, Dims};

    #[test]
    fn sizes_are_checked() {
        let bytes = |name: &str, dtype, shape: &[usize]| {
            packed_format(name).unwrap().nbytes(dtype, &Dims::new(shape).unwrap()).ok()
        };
        assert_eq!(bytes("f32_nr32_v1", DType::Float32, &[3, 33]), Some(3 * 64 * 4));
        assert_eq!(bytes("f32_nr32_v1", DType::Int32, &[3, 33]), None);
        assert_eq!(bytes("f32_nr32_v1", DType::Float32, &[3]), None);
        assert_eq!(bytes("f32_nr32_v1", DType::Float32, &[usize::MAX / 64, 33]), None);
        assert_eq!(
            bytes("f32_conv_nr32_v1", DType::Float32, &[2, 33, 4, 3, 3]),
            Some(2 * 2 * 9 * 4 * 32 * 4)
        );
        assert_eq!(bytes("f32_depthwise_interleaved_v1", DType::Float32, &[8, 1, 3, 3]), Some(288));
        assert_eq!(bytes("s8_nr32k4_v1", DType::Int8, &[5, 33]), Some(2 * 3 * 128));
        assert_eq!(bytes("s8_nr32k4_v1", DType::Int8, &[3, 3, 5, 33]), Some(2 * 13 * 128));
        assert_eq!(bytes("s8_nr32k4_v1", DType::UInt8, &[5, 33]), None);
        assert_eq!(bytes("s8_nr32k4_v1", DType::Int8, &[33]), None);
        assert_eq!(bytes("u4_nr32k8_v1", DType::Int8, &[33, 33]), Some(2 * 2 * 512));
        assert_eq!(bytes("u4_nr32k8_v1", DType::UInt8, &[33, 33]), None);
        assert_eq!(bytes("u4_pairs_nr32k8_v1", DType::UInt8, &[17, 33]), Some(2 * 2 * 512));
        assert_eq!(bytes("u4_pairs_nr32k8_v1", DType::Int8, &[17, 33]), None);
        assert_eq!(bytes("u4_pairs_nr32k8_v1", DType::UInt8, &[usize::MAX, 33]), None);
        assert_eq!(bytes("bf16_scales_nr32_v1", DType::Float32, &[3, 33]), Some(3 * 64 * 2));
        assert_eq!(bytes("bf16_scales_nr32_v1", DType::BFloat16, &[3, 33]), None);
        assert_eq!(bytes("bf16_scales_nr32_v1", DType::Float32, &[usize::MAX, 33]), None);
        assert_eq!(bytes("s8_rows_nr32_v1", DType::Int8, &[3, 33]), Some(3 * 64));
        assert_eq!(bytes("s4_rows_nr32_v1", DType::Int8, &[3, 33]), Some(2 * 64));
        assert_eq!(bytes("s4_rows_nr32_v1", DType::UInt8, &[3, 33]), None);
        assert_eq!(bytes("s4_pairs_nr32_v1", DType::UInt8, &[3, 33]), Some(3 * 64));
        assert_eq!(bytes("s4_pairs_nr32_v1", DType::Int8, &[3, 33]), None);
        assert_eq!(bytes("bf16_nr32k2_v1", DType::BFloat16, &[3, 33]), Some(4 * 64 * 2));
        assert_eq!(bytes("f16_nr32_v1", DType::Float16, &[3, 33]), Some(3 * 64 * 2));
        assert_eq!(bytes("f16_nr32_v1", DType::BFloat16, &[3, 33]), None);
        assert_eq!(bytes("dense_v1", DType::Int16, &[8, 3]), Some(48));
        assert!(packed_format("f32_nr32_v2").is_none());
    }
}
