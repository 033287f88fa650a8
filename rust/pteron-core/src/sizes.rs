//! The one place where sizes from files and callers are multiplied and added.

use crate::{DType, Error, Result};
use std::ops::Range;

/// Product of `dims`; an error when it does not fit `usize`. Zero extents make it zero, but the
/// other extents must still multiply without overflow, so strides stay representable.
pub fn checked_numel(dims: &[usize]) -> Result<usize> {
    let mut nonzero = 1usize;
    let mut has_zero = false;
    for &d in dims {
        if d == 0 {
            has_zero = true;
        } else {
            nonzero = nonzero.checked_mul(d).ok_or_else(|| too_large(dims))?;
        }
    }
    Ok(if has_zero { 0 } else { nonzero })
}

/// Bytes of a tensor with `dims` elements of `dtype`; an error above `isize::MAX`, the largest
/// object Rust can address.
pub fn checked_nbytes(dims: &[usize], dtype: DType) -> Result<usize> {
    checked_numel(dims)?
        .checked_mul(dtype.size())
        .filter(|n| isize::try_from(*n).is_ok())
        .ok_or_else(|| too_large(dims))
}

/// The range `offset..offset + len` if it lies within `0..total`.
pub fn checked_range(offset: u64, len: u64, total: usize) -> Result<Range<usize>> {
    let outside = || {
        Error::program("a byte range lies outside its container")
            .expected(format!("a range within {total} bytes"))
            .got(format!("offset {offset}, length {len}"))
    };
    let end = offset.checked_add(len).ok_or_else(outside)?;
    let start = usize::try_from(offset).map_err(|_| outside())?;
    let end = usize::try_from(end).map_err(|_| outside())?;
    if end > total { Err(outside()) } else { Ok(start..end) }
}

fn too_large(dims: &[usize]) -> Error {
    Error::program("a tensor is too large to address").got(format!("shape {dims:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn boundary() -> impl Strategy<Value = usize> {
        prop_oneof![
            Just(0usize),
            Just(1),
            Just(2),
            Just(usize::MAX),
            Just(usize::MAX / 2),
            Just(1 << 32),
            Just((1 << 31) - 1),
            any::<usize>()
        ]
    }

    proptest! {
        #[test]
        fn numel_agrees_with_wide_arithmetic(dims in prop::collection::vec(boundary(), 0..5)) {
            let mut wide = Some(1u128);
            for &d in dims.iter().filter(|d| **d != 0) {
                wide = wide.and_then(|w| w.checked_mul(d as u128)).filter(|w| *w <= usize::MAX as u128);
            }
            let expected = wide.map(|w| if dims.contains(&0) { 0 } else { w as usize });
            prop_assert_eq!(checked_numel(&dims).ok(), expected);
        }

        #[test]
        fn range_agrees_with_wide_arithmetic(off in any::<u64>(), len in any::<u64>(), total in boundary()) {
            let ok = off as u128 + len as u128 <= total as u128;
            prop_assert_eq!(checked_range(off, len, total).is_ok(), ok);
        }
    }
}
