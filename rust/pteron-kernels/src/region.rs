//! Copies of strided regions between tensors: the whole of permute, expand, slice, cat, pad and the
//! like. Unsafe island: every region is checked against its tensor before the first element moves.

use crate::compute::{BLOCK, Class, Compute, load_fn, store_fn};
use crate::loops::{Loops, memory_order};
use crate::walk::{Walk, signed};
use pteron_core::{Dims, Error, MAX_RANK, Result, TensorView, TensorViewMut};
use std::ops::Range;

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

    /// Elements that the tensor must have: those before the end of the region.
    fn check(&self, shape: &[usize], numel: usize) -> Result<usize> {
        match self.span(shape) {
            Some((low, high)) if low >= 0 && high < numel as isize => Ok(high as usize + 1),
            _ => Err(Error::internal("a copy would leave its tensor").got(format!(
                "shape {shape:?}, offset {}, strides {:?}, {numel} elements",
                self.offset,
                &self.strides[..shape.len()]
            ))),
        }
    }
}

/// A copy of the elements of a shape from one region to another; equal dtypes move as bytes, others convert.
#[derive(Debug, Clone, Copy)]
pub struct RegionCopy {
    loops: Loops<2>,
    from: isize,
    to: isize,
    /// Elements that source and target must have at least.
    reach: [usize; 2],
}

impl RegionCopy {
    /// A copy of nothing.
    pub const EMPTY: RegionCopy = RegionCopy { loops: Loops::EMPTY, from: 0, to: 0, reach: [0, 0] };

    /// The copy of `shape` from region `from` of a tensor of `source` elements to region `to` of one of
    /// `target` elements; an error where a region leaves its tensor.
    pub fn new(shape: &Dims, from: Region, source: usize, to: Region, target: usize) -> Result<RegionCopy> {
        if shape.contains(&0) {
            return Ok(RegionCopy::EMPTY);
        }
        let reach = [from.check(shape, source)?, to.check(shape, target)?];
        let order = memory_order(shape.len(), &to.strides);
        let order = order[..shape.len()].iter().copied();
        let loops = Loops::new(order, shape, [&from.strides, &to.strides]).with_long_inner();
        Ok(RegionCopy { loops, from: from.offset, to: to.offset, reach })
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.loops.numel()
    }

    /// Copies `range` of the elements, in an order of its own. The tensors must not overlap.
    pub fn run(&self, src: &TensorView<'_>, dst: &mut TensorViewMut<'_>, range: Range<usize>) -> Result<()> {
        if range.end > self.numel() || src.numel() < self.reach[0] || dst.numel() < self.reach[1] {
            return Err(Error::internal("a copy would leave its tensor"));
        }
        if src.dtype() != dst.dtype() {
            return match (Class::of(src.dtype()), Class::of(dst.dtype())) {
                (Some(Class::I64), Some(Class::I64)) => self.convert::<i64>(src, dst, range),
                _ => self.convert::<f64>(src, dst, range),
            };
        }
        // SAFETY: `new` proved that both regions lie inside tensors of so many elements.
        unsafe { self.move_bytes(src, dst, (self.from, self.to), range) };
        Ok(())
    }

    /// Copies everything between regions that begin `from` and `to` elements later.
    pub fn run_at(
        &self,
        src: &TensorView<'_>,
        from: isize,
        dst: &mut TensorViewMut<'_>,
        to: isize,
    ) -> Result<()> {
        if self.numel() == 0 {
            // Places between which nothing lies may be anywhere.
            return Ok(());
        }
        let ends = |reach: usize, by: isize| usize::try_from(by).ok().and_then(|by| reach.checked_add(by));
        let fits = |reach: usize, by: isize, numel: usize| ends(reach, by).is_some_and(|end| end <= numel);
        if !fits(self.reach[0], from, src.numel())
            || !fits(self.reach[1], to, dst.numel())
            || src.dtype() != dst.dtype()
        {
            return Err(Error::internal("a copy would leave its tensor"));
        }
        // SAFETY: the regions of `new`, so many elements later, end inside the tensors.
        unsafe { self.move_bytes(src, dst, (self.from + from, self.to + to), 0..self.numel()) };
        Ok(())
    }

    /// # Safety
    /// The regions lie inside the tensors from the elements `first` on; the dtypes are equal.
    unsafe fn move_bytes(
        &self,
        src: &TensorView<'_>,
        dst: &mut TensorViewMut<'_>,
        first: (isize, isize),
        range: Range<usize>,
    ) {
        let size = src.dtype().size() as isize;
        // SAFETY: the caller's promise.
        unsafe {
            let s = src.as_ptr().offset(first.0 * size);
            let d = dst.as_ptr().offset(first.1 * size);
            match size {
                1 => copy_runs::<u8>(&self.loops, s, d, range),
                2 => copy_runs::<u16>(&self.loops, s, d, range),
                4 => copy_runs::<u32>(&self.loops, s, d, range),
                8 => copy_runs::<u64>(&self.loops, s, d, range),
                _ => copy_runs::<[u64; 2]>(&self.loops, s, d, range),
            }
        }
    }

    /// The same for different dtypes.
    fn convert<C: Compute>(
        &self,
        src: &TensorView<'_>,
        dst: &mut TensorViewMut<'_>,
        range: Range<usize>,
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
        let [s_stride, d_stride] = self.loops.inner_strides();
        let mut block = [C::ZERO; BLOCK];
        self.loops.runs(range.start, range.len(), |_, [from, to], len| {
            for i in (0..len).step_by(BLOCK) {
                let m = (len - i).min(BLOCK);
                // SAFETY: `new` proved that both regions lie inside tensors of so many elements.
                unsafe {
                    let at = self.from + from + i as isize * s_stride;
                    load(s.offset(at * s_size), s_stride, &mut block[..m]);
                    let at = self.to + to + i as isize * d_stride;
                    store(&block[..m], d.offset(at * d_size), d_stride);
                }
            }
            Ok(())
        })
    }
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
    let copy = RegionCopy::new(shape, from, src.numel(), to, dst.numel())?;
    copy.run(src, dst, 0..copy.numel())
}

/// # Safety
/// All offsets of both operands must be elements of the tensors, which must not overlap.
unsafe fn copy_runs<T: Copy>(loops: &Loops<2>, src: *const u8, dst: *mut u8, range: Range<usize>) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    let [s_stride, d_stride] = loops.inner_strides();
    let _: std::result::Result<(), std::convert::Infallible> =
        loops.runs(range.start, range.len(), |_, [from, to], n| {
            // SAFETY: contract of this function.
            unsafe { copy_run(src.offset(from), s_stride, dst.offset(to), d_stride, n) };
            Ok(())
        });
}

/// Copies `n` elements that lie `s_stride` and `d_stride` apart. Unaligned access, since complex elements are
/// only aligned to half their size.
///
/// # Safety
/// Valid for those elements, without overlap.
#[inline(always)]
unsafe fn copy_run<T: Copy>(src: *const T, s_stride: isize, dst: *mut T, d_stride: isize, n: usize) {
    // SAFETY: contract of this function.
    unsafe {
        match (s_stride, d_stride) {
            (1, 1) if n >= 8 => {
                std::ptr::copy_nonoverlapping(src.cast::<u8>(), dst.cast::<u8>(), n * size_of::<T>());
            }
            (0, 1) => {
                let value = src.read_unaligned();
                (0..n).for_each(|i| dst.add(i).write_unaligned(value));
            }
            (-1, 1) => {
                let first = src.offset(1 - n as isize);
                (0..n).for_each(|i| dst.add(i).write_unaligned(first.add(n - 1 - i).read_unaligned()));
            }
            _ => (0..n as isize).for_each(|i| {
                dst.offset(i * d_stride).write_unaligned(src.offset(i * s_stride).read_unaligned());
            }),
        }
    }
}

/// # Safety
/// All offsets of both walks must be elements of the tensors, which must not overlap; as many positions from
/// `first` on as `range` has must be positions of `read`.
unsafe fn copy_elements<T: Copy>(
    src: *const u8,
    (read, first): (&Walk, usize),
    dst: *mut u8,
    (write, range): (&Walk, Range<usize>),
) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    let _: std::result::Result<(), std::convert::Infallible> =
        write.runs(range.start, range.len(), |position, to, to_stride, len| {
            read.runs(first + position, len, |done, from, from_stride, n| {
                // SAFETY: contract of this function.
                unsafe {
                    let d = dst.offset(to + done as isize * to_stride);
                    copy_run(src.offset(from), from_stride, d, to_stride, n);
                }
                Ok(())
            })
        });
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

/// Copies the elements at the row-major positions `range` into a tensor of another shape (view, reshape).
pub fn copy_reshaped_part(
    src: &TensorView<'_>,
    dst: &mut TensorViewMut<'_>,
    range: Range<usize>,
) -> Result<()> {
    if src.numel() != dst.numel() {
        return Err(Error::kernel("a view keeps the number of elements")
            .expected(src.numel().to_string())
            .got(dst.numel().to_string()));
    }
    copy_positions(src, range.start, dst, range)
}

/// Copies the elements at as many row-major positions from `from` on to the positions `to`.
pub fn copy_positions(
    src: &TensorView<'_>,
    from: usize,
    dst: &mut TensorViewMut<'_>,
    to: Range<usize>,
) -> Result<()> {
    if src.dtype() != dst.dtype() {
        return Err(Error::kernel("a view keeps the dtype")
            .expected(src.dtype().name())
            .got(dst.dtype().name()));
    }
    if to.is_empty() {
        return Ok(());
    }
    if to.end > dst.numel() || from.checked_add(to.len()).is_none_or(|end| end > src.numel()) {
        return Err(Error::internal("a copy would leave its tensor"));
    }
    let read = Walk::row_major(src.shape(), &signed(src.strides()));
    let write = Walk::row_major(dst.shape(), &signed(dst.strides()));
    let (s, d) = (src.as_ptr(), dst.as_ptr());
    // SAFETY: the walks are those of the tensors themselves, and both ranges lie inside.
    unsafe {
        match src.dtype().size() {
            1 => copy_elements::<u8>(s, (&read, from), d, (&write, to)),
            2 => copy_elements::<u16>(s, (&read, from), d, (&write, to)),
            4 => copy_elements::<u32>(s, (&read, from), d, (&write, to)),
            8 => copy_elements::<u64>(s, (&read, from), d, (&write, to)),
            _ => copy_elements::<[u64; 2]>(s, (&read, from), d, (&write, to)),
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
