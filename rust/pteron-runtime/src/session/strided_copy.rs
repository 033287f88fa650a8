//! Copies elements between two layouts of one shape. Unsafe island.

use pteron_core::{Dims, Error, MAX_RANK, Result, TensorView, TensorViewMut};

/// One side of a copy: the address of element 0 and a stride per dimension, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Layout<P> {
    pub data: P,
    pub strides: [isize; MAX_RANK],
}

/// Strides as signed numbers; missing ones are zero.
pub(crate) fn signed(strides: &Dims) -> [isize; MAX_RANK] {
    let mut out = [0isize; MAX_RANK];
    for (o, s) in out.iter_mut().zip(strides.iter()) {
        *o = isize::try_from(*s).unwrap_or(isize::MAX);
    }
    out
}

/// Do these strides describe a dense tensor of `shape` in the order that `dense` has? Dimensions of
/// extent 1 have no order, and a tensor without elements is always dense.
pub(crate) fn is_dense(shape: &[usize], strides: &[isize; MAX_RANK], dense: &Dims) -> bool {
    shape.contains(&0)
        || shape
            .iter()
            .zip(strides.iter().zip(dense.iter()))
            .all(|(n, (have, want))| *n == 1 || usize::try_from(*have).is_ok_and(|h| h == *want))
}

/// Copies every element of `shape`, `size` bytes each.
///
/// # Safety
/// Every element that `shape` and the strides reach must be valid: readable in `from`, writable in `to`,
/// and the two must not overlap. Byte offsets must fit `isize`. Nothing has to be aligned.
pub(crate) unsafe fn copy_strided(
    shape: &[usize],
    size: usize,
    from: Layout<*const u8>,
    to: Layout<*mut u8>,
) {
    if shape.contains(&0) {
        return;
    }
    // Dimensions that both sides walk without gaps are one block for memcpy.
    let mut block = size;
    let mut outer = shape.len();
    while let Some(d) = outer.checked_sub(1) {
        let stride = |s: &[isize; MAX_RANK]| s.get(d).map(|s| s.wrapping_mul(size.cast_signed()));
        let n = shape.get(d).copied().unwrap_or(1);
        let is_joined = stride(&from.strides) == Some(block.cast_signed())
            && stride(&to.strides) == Some(block.cast_signed());
        if n != 1 && !is_joined {
            break;
        }
        block = block.wrapping_mul(n);
        outer = d;
    }
    let outer = shape.get(..outer).unwrap_or_default();
    let mut index = [0usize; MAX_RANK];
    loop {
        let at = |strides: &[isize; MAX_RANK]| {
            let elements = index
                .iter()
                .zip(strides)
                .take(outer.len())
                .fold(0isize, |sum, (i, s)| sum.wrapping_add(i.cast_signed().wrapping_mul(*s)));
            elements.wrapping_mul(size.cast_signed())
        };
        // SAFETY: `index` is within `shape`, so both addresses are elements by the caller's contract, and
        // the block lies within the dimensions that were joined.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.data.offset(at(&from.strides)),
                to.data.offset(at(&to.strides)),
                block,
            );
        }
        let mut has_more = false;
        for (i, n) in index.iter_mut().zip(outer).rev() {
            *i = i.wrapping_add(1);
            if *i < *n {
                has_more = true;
                break;
            }
            *i = 0;
        }
        if !has_more {
            return;
        }
    }
}

/// Copies one tensor into another of the same dtype and shape, whatever their memory orders. An error
/// when dtype or shape differ.
pub(crate) fn copy_tensor(from: TensorView<'_>, to: TensorViewMut<'_>) -> Result<()> {
    if from.dtype() != to.dtype() || from.shape() != to.shape() {
        return Err(Error::delegate("a result does not fit its output")
            .expected(format!("{}{}", to.dtype(), to.shape()))
            .got(format!("{}{}", from.dtype(), from.shape())));
    }
    // SAFETY: both views are valid for their elements, and a writable view overlaps no other (the
    // contract of `pteron_core::tensor`).
    unsafe {
        copy_strided(
            from.shape(),
            from.dtype().size(),
            Layout { data: from.as_ptr(), strides: signed(from.strides()) },
            Layout { data: to.as_ptr(), strides: signed(to.strides()) },
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strides(s: &[isize]) -> [isize; MAX_RANK] {
        let mut out = [0; MAX_RANK];
        out[..s.len()].copy_from_slice(s);
        out
    }

    #[test]
    fn transposes_reverses_and_broadcasts() {
        let from: Vec<u16> = (0..6).collect();
        let mut to = [0u16; 6];
        let run = |shape: &[usize], start: usize, s: &[isize], to: &mut [u16; 6]| {
            // SAFETY: all elements of the cases below lie within the two arrays.
            unsafe {
                copy_strided(
                    shape,
                    2,
                    Layout { data: from.as_ptr().add(start).cast(), strides: strides(s) },
                    Layout { data: to.as_mut_ptr().cast(), strides: strides(&[shape[1] as isize, 1]) },
                )
            }
        };
        run(&[3, 2], 0, &[1, 3], &mut to);
        assert_eq!(to, [0, 3, 1, 4, 2, 5]);
        run(&[2, 3], 5, &[-3, -1], &mut to);
        assert_eq!(to, [5, 4, 3, 2, 1, 0]);
        run(&[2, 3], 0, &[0, 1], &mut to);
        assert_eq!(to, [0, 1, 2, 0, 1, 2]);
        run(&[0, 3], 0, &[0, 1], &mut to);
        assert_eq!(to, [0, 1, 2, 0, 1, 2]);
    }

    proptest! {
        #[test]
        fn any_permutation_agrees_with_indexing(
            shape in prop::collection::vec(1usize..4, 0..5),
            seed in any::<u64>(),
        ) {
            let rank = shape.len();
            let mut order: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                order.swap(i, (seed as usize >> i) % (i + 1));
            }
            let mut from_strides = vec![0isize; rank];
            let mut next = 1isize;
            for d in &order {
                from_strides[*d] = next;
                next *= shape[*d] as isize;
            }
            let numel: usize = shape.iter().product();
            let from: Vec<u32> = (0..numel as u32).collect();
            let mut to = vec![0u32; numel];
            let dense = pteron_core::DimOrder::contiguous(rank).strides(&Dims::new(&shape).unwrap());
            // SAFETY: the strides are those of a dense tensor of `numel` elements on both sides.
            unsafe {
                copy_strided(
                    &shape,
                    4,
                    Layout { data: from.as_ptr().cast(), strides: strides(&from_strides) },
                    Layout { data: to.as_mut_ptr().cast(), strides: signed(&dense) },
                )
            }
            for (at, value) in to.iter().enumerate() {
                let mut rest = at;
                let mut expected = 0isize;
                for d in (0..rank).rev() {
                    expected += (rest % shape[d]) as isize * from_strides[d];
                    rest /= shape[d];
                }
                prop_assert_eq!(*value as isize, expected);
            }
        }
    }
}
