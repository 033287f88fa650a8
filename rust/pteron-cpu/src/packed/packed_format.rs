//! The table of packed formats that files may hold.

use super::f32_nr32_v1;
use crate::conv;
use pteron_core::{DType, Dims, Error, Result};

/// A packed format: how many numbers the pack of a tensor has. What they are says the module that makes them.
///
/// Numbers are all a pack holds, so a wrong one makes a wrong result and nothing worse.
#[derive(Debug, Clone, Copy)]
pub struct PackedFormat {
    /// Its name, with version.
    pub name: &'static str,
    /// The one element type it is for; `None` for any.
    pub dtype: Option<DType>,
    /// Numbers in the pack of a tensor with this shape; `None` for a rank that the format is not for, or
    /// when they cannot be counted.
    pub elements: fn(&[usize]) -> Option<usize>,
}

/// Row-major elements of any type: what kernels read that take no other packed form.
pub const DENSE: PackedFormat = PackedFormat {
    name: "dense_v1",
    dtype: None,
    elements: |shape| shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d)),
};

/// Every format that this version reads and writes.
pub const FORMATS: [PackedFormat; 6] = [
    DENSE,
    f32_nr32_v1::PACKED,
    conv::f32_conv_nr32_v1::PACKED,
    conv::f32_conv_groups_v1::PACKED,
    conv::depthwise::PACKED_INTERLEAVED,
    conv::winograd::PACKED,
];

/// The format of that name, if this version knows it.
pub fn packed_format(name: &str) -> Option<&'static PackedFormat> {
    const TABLE: &[PackedFormat] = &FORMATS;
    TABLE.iter().find(|f| f.name == name)
}

impl PackedFormat {
    /// Bytes of the pack of a tensor.
    ///
    /// Errors: an element type or rank that the format is not for, a size that cannot be addressed.
    pub fn nbytes(&self, dtype: DType, shape: &Dims) -> Result<usize> {
        if self.dtype.is_some_and(|only| only != dtype) {
            return Err(Error::program("a packed format does not hold this element type")
                .expected(self.dtype.map_or("", DType::name))
                .got(format!("{dtype} in {}", self.name)));
        }
        (self.elements)(shape)
            .and_then(|n| n.checked_mul(dtype.size()))
            .filter(|n| isize::try_from(*n).is_ok())
            .ok_or_else(|| {
                Error::program("a packed format does not hold tensors of this shape")
                    .got(format!("shape {shape} in {}", self.name))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(bytes("dense_v1", DType::Int16, &[8, 3]), Some(48));
        assert!(packed_format("f32_nr32_v2").is_none());
    }
}
