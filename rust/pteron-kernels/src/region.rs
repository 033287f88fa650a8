//! Copies of strided regions between tensors: the whole of permute, expand, slice, cat, pad and the
//! like. Unsafe island: every region is checked against its tensor before the first element moves.

use crate::compute::{BLOCK, Class, Compute, load_fn, store_fn};
use crate::walk::{Walk, signed};
use pteron_core::{Dims, Error, MAX_RANK, Result, TensorView, TensorViewMut};

/// A strided region of a tensor: first element and strides, in elements.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// First element.
    pub offset: isize,
    /// One stride per dimension of the region.
    pub strides: [isize; MAX_RANK],
}

impl Region {
    /// The whole tensor with these strides.
    pub fn of(strides: &[usize]) -> Region {
        Region { offset: 0, strides: signed(strides) }
    }

    /// Lowest and highest element of the region; `None` when that overflows.
    fn span(&self, shape: &[usize]) -> Option<(isize, isize)> {
        let (mut low, mut high) = (self.offset, self.offset);
        for (extent, stride) in shape.iter().zip(&self.strides) {
            let reach = isize::try_from(extent.checked_sub(1)?).ok()?.checked_mul(*stride)?;
            if reach < 0 {
                low = low.checked_add(reach)?;
            } else {
                high = high.checked_add(reach)?;
            }
        }
        Some((low, high))
    }

    fn check(&self, shape: &[usize], numel: usize) -> Result<()> {
        match self.span(shape) {
            Some((low, high)) if low >= 0 && high < numel as isize => Ok(()),
            _ => Err(Error::internal("a copy would leave its tensor").got(format!(
                "shape {shape:?}, offset {}, strides {:?}, {numel} elements",
                self.offset,
                &self.strides[..shape.len()]
            ))),
        }
    }
}

/// Dimensions of a region, largest destination stride first.
fn memory_order(shape: &[usize], strides: &[isize; MAX_RANK]) -> ([usize; MAX_RANK], usize) {
    let mut order = [0usize; MAX_RANK];
    let rank = shape.len();
    for (d, slot) in order.iter_mut().enumerate().take(rank) {
        *slot = d;
    }
    // Insertion sort: at most 16 entries, and it does not allocate.
    for i in 1..rank {
        let mut j = i;
        while j > 0 && strides[order[j - 1]].unsigned_abs() < strides[order[j]].unsigned_abs() {
            order.swap(j - 1, j);
            j -= 1;
        }
    }
    (order, rank)
}

/// Copies the elements of `shape` from one region to another; equal dtypes move as bytes, others
/// convert. The tensors must not overlap.
pub fn copy_region(
    shape: &Dims,
    src: &TensorView<'_>,
    from: Region,
    dst: &mut TensorViewMut<'_>,
    to: Region,
) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    from.check(shape, src.numel())?;
    to.check(shape, dst.numel())?;
    if src.dtype() == dst.dtype() && shape.iter().all(|n| *n == 1) {
        let size = src.dtype().size();
        // SAFETY: `check` proved that both elements lie inside their tensors.
        unsafe {
            let s = src.as_ptr().offset(from.offset * size as isize);
            std::ptr::copy_nonoverlapping(s, dst.as_ptr().offset(to.offset * size as isize), size);
        }
        return Ok(());
    }
    let (order, rank) = memory_order(shape, &to.strides);
    let read = Walk::new(order[..rank].iter().copied(), shape, &from.strides);
    let write = Walk::new(order[..rank].iter().copied(), shape, &to.strides);
    if src.dtype() != dst.dtype() {
        return match (Class::of(src.dtype()), Class::of(dst.dtype())) {
            (Some(Class::I64), Some(Class::I64)) => {
                convert::<i64>(src, &read, from.offset, dst, &write, to.offset)
            }
            _ => convert::<f64>(src, &read, from.offset, dst, &write, to.offset),
        };
    }
    let size = src.dtype().size() as isize;
    // SAFETY: `check` proved that both regions lie inside their tensors.
    unsafe {
        let s = src.as_ptr().offset(from.offset * size);
        let d = dst.as_ptr().offset(to.offset * size);
        match size {
            1 => copy_elements::<u8>(s, &read, d, &write),
            2 => copy_elements::<u16>(s, &read, d, &write),
            4 => copy_elements::<u32>(s, &read, d, &write),
            8 => copy_elements::<u64>(s, &read, d, &write),
            _ => copy_elements::<[u64; 2]>(s, &read, d, &write),
        }
    }
    Ok(())
}

/// # Safety
/// All offsets of both walks must be elements of the tensors, which must not overlap.
unsafe fn copy_elements<T: Copy>(src: *const u8, read: &Walk, dst: *mut u8, write: &Walk) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    let _: std::result::Result<(), std::convert::Infallible> =
        write.runs(0, write.numel(), |position, to, to_stride, len| {
            read.runs(position, len, |done, from, from_stride, n| {
                // SAFETY: contract of this function. Unaligned access, since complex elements are only
                // aligned to half their size.
                unsafe {
                    let s = src.offset(from);
                    let d = dst.offset(to + done as isize * to_stride);
                    if from_stride == 1 && to_stride == 1 {
                        std::ptr::copy_nonoverlapping(s.cast::<u8>(), d.cast::<u8>(), n * size_of::<T>());
                    } else {
                        for i in 0..n as isize {
                            d.offset(i * to_stride)
                                .write_unaligned(s.offset(i * from_stride).read_unaligned());
                        }
                    }
                }
                Ok(())
            })
        });
}

fn convert<C: Compute>(
    src: &TensorView<'_>,
    read: &Walk,
    from: isize,
    dst: &mut TensorViewMut<'_>,
    write: &Walk,
    to: isize,
) -> Result<()> {
    let bad = || {
        Error::kernel("these dtypes do not convert into each other").got(format!(
            "{} to {}",
            src.dtype(),
            dst.dtype()
        ))
    };
    let load = load_fn::<C>(src.dtype()).ok_or_else(bad)?;
    let store = store_fn::<C>(dst.dtype()).ok_or_else(bad)?;
    let (s_size, d_size) = (src.dtype().size() as isize, dst.dtype().size() as isize);
    let (s, d) = (src.as_ptr(), dst.as_ptr());
    let mut block = [C::ZERO; BLOCK];
    write.runs(0, write.numel(), |position, w, w_stride, len| {
        read.runs(position, len, |done, r, r_stride, n| {
            let mut i = 0;
            while i < n {
                let m = (n - i).min(BLOCK);
                // SAFETY: the caller checked that both regions lie inside their tensors.
                unsafe {
                    load(s.offset((from + r + i as isize * r_stride) * s_size), r_stride, &mut block[..m]);
                    let at = to + w + (done + i) as isize * w_stride;
                    store(&block[..m], d.offset(at * d_size), w_stride);
                }
                i += m;
            }
            Ok(())
        })
    })
}

/// Sets every byte to zero and gives the view back.
pub fn zero(dst: TensorViewMut<'_>) -> TensorViewMut<'_> {
    if dst.numel() > 0 {
        // SAFETY: the view is writable for all its bytes.
        unsafe { dst.as_ptr().write_bytes(0, dst.nbytes()) };
    }
    dst
}

/// Copies a tensor of the same shape, whatever the dim orders and dtypes.
pub fn copy_whole(src: &TensorView<'_>, dst: &mut TensorViewMut<'_>) -> Result<()> {
    crate::shape::check_same("the output", src.shape(), dst.shape())?;
    copy_region(src.shape(), src, Region::of(src.strides()), dst, Region::of(dst.strides()))
}

/// Copies a whole tensor to where it is to be changed; nothing when that is its own memory
/// ([`pteron_core::AliasRule::Update`]).
pub fn copy_to_update(src: &TensorView<'_>, dst: &mut TensorViewMut<'_>) -> Result<()> {
    if src.as_ptr() == dst.as_ptr().cast_const() && src.meta().nbytes() == dst.meta().nbytes() {
        return Ok(());
    }
    copy_whole(src, dst)
}

/// Copies elements in row-major order into a tensor of another shape (view, reshape).
pub fn copy_reshaped(src: &TensorView<'_>, dst: &mut TensorViewMut<'_>) -> Result<()> {
    if src.dtype() != dst.dtype() {
        return Err(Error::kernel("a view keeps the dtype")
            .expected(src.dtype().name())
            .got(dst.dtype().name()));
    }
    if src.numel() != dst.numel() {
        return Err(Error::kernel("a view keeps the number of elements")
            .expected(src.numel().to_string())
            .got(dst.numel().to_string()));
    }
    if src.numel() == 0 {
        return Ok(());
    }
    let read = Walk::row_major(src.shape(), &signed(src.strides()));
    let write = Walk::row_major(dst.shape(), &signed(dst.strides()));
    let (s, d) = (src.as_ptr(), dst.as_ptr());
    // SAFETY: the walks are those of the tensors themselves.
    unsafe {
        match src.dtype().size() {
            1 => copy_elements::<u8>(s, &read, d, &write),
            2 => copy_elements::<u16>(s, &read, d, &write),
            4 => copy_elements::<u32>(s, &read, d, &write),
            8 => copy_elements::<u64>(s, &read, d, &write),
            _ => copy_elements::<[u64; 2]>(s, &read, d, &write),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{DType, TensorMeta};

    #[test]
    fn regions_outside_are_refused() {
        let data = [1u8, 2, 3, 4];
        let mut out = [0u8; 4];
        let meta = TensorMeta::contiguous(DType::UInt8, &[2, 2]).unwrap();
        // SAFETY: both blocks are 4 bytes and outlive the views.
        let (src, mut dst) = unsafe {
            (TensorView::from_raw(data.as_ptr(), &meta), TensorViewMut::from_raw(out.as_mut_ptr(), &meta))
        };
        let whole = Region::of(&[2, 1]);
        let shape = Dims::new(&[2, 2]).unwrap();
        for bad in [
            Region { offset: 1, ..whole },
            Region { offset: -1, ..whole },
            Region::of(&[3, 1]),
            Region::of(&[usize::MAX >> 1, 1]),
        ] {
            assert!(copy_region(&shape, &src, bad, &mut dst, whole).is_err());
            assert!(copy_region(&shape, &src, whole, &mut dst, bad).is_err());
        }
        let mut reversed = Region::of(&[0, 0]);
        reversed.offset = 3;
        reversed.strides[0] = -2;
        reversed.strides[1] = -1;
        copy_region(&shape, &src, reversed, &mut dst, whole).unwrap();
        assert_eq!(out, [4, 3, 2, 1]);
    }
}
