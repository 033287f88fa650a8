//! A packed format: what a pack of a tensor holds.

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
