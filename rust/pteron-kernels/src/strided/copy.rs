//! Copies of strided regions between tensors: the whole of permute, expand, slice, cat, pad and the
//! like. Unsafe island: every region is checked against its tensor before the first element moves.

use crate::compute::{BLOCK, Class, Compute, load_fn, store_fn};
use crate::strided::loops::{Loops, Run, Walk, memory_order, signed};
use pteron_core::{DType, Dims, Error, MAX_RANK, Result, TensorView, TensorViewMut};
use std::ops::Range;

/// `$call` with the type `$T` of so many bytes, which stands for every dtype of that size: a copy moves bits.
macro_rules! by_size {
    ($size:expr, $T:ident => $call:expr) => {{
        match $size {
            1 => {
                type $T = u8;
                $call
            }
            2 => {
                type $T = u16;
                $call
            }
            4 => {
                type $T = u32;
                $call
            }
            8 => {
                type $T = u64;
                $call
            }
            _ => {
                type $T = [u64; 2];
                $call
            }
        }
    }};
}
pub(crate) use by_size;

/// A strided region of a tensor: first element and strides, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StridedRegion {
    /// First element.
    pub offset: isize,
    /// One stride per dimension of the region.
    pub strides: [isize; MAX_RANK],
}

impl StridedRegion {
    /// The whole tensor with these strides.
    pub fn of(strides: &[usize]) -> StridedRegion {
        StridedRegion { offset: 0, strides: signed(strides) }
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
    pub fn new(
        shape: &Dims,
        from: StridedRegion,
        source: usize,
        to: StridedRegion,
        target: usize,
    ) -> Result<RegionCopy> {
        Ok(RegionCopy::ordered(shape, from, source, to, target)?.with_long_inner())
    }

    /// As [`RegionCopy::new`], strictly in the memory order of the target.
    pub(super) fn ordered(
        shape: &Dims,
        from: StridedRegion,
        source: usize,
        to: StridedRegion,
        target: usize,
    ) -> Result<RegionCopy> {
        if shape.contains(&0) {
            return Ok(RegionCopy::EMPTY);
        }
        let reach = [from.check(shape, source)?, to.check(shape, target)?];
        let loops = loops_between(shape, &from.strides, &to.strides);
        Ok(RegionCopy { loops, from: from.offset, to: to.offset, reach })
    }

    /// The same elements, in an order of which the runs are worth starting.
    pub(crate) fn with_long_inner(self) -> RegionCopy {
        RegionCopy { loops: self.loops.with_long_inner(), ..self }
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.loops.numel()
    }

    /// Copies `range` of the elements, in an order of its own. The tensors must not overlap.
    pub fn run(&self, src: &TensorView<'_>, dst: &mut TensorViewMut<'_>, range: Range<usize>) -> Result<()> {
        if range.end > self.numel() {
            return Err(leaves());
        }
        self.check(src.numel(), dst.numel())?;
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

    /// An error unless source and target have as many elements as those that the copy was made for.
    pub(super) fn check(&self, source: usize, target: usize) -> Result<()> {
        if source < self.reach[0] || target < self.reach[1] {
            return Err(leaves());
        }
        Ok(())
    }

    /// The loops, and where their positions begin in source and target.
    pub(super) fn parts(&self) -> (&Loops<2>, [isize; 2]) {
        (&self.loops, [self.from, self.to])
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
            return Err(leaves());
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
        let size = src.dtype().size();
        // SAFETY: the caller promises both regions inside their tensors, and `T` has the size of either dtype.
        unsafe {
            let s = src.as_ptr().offset(first.0 * size as isize);
            let d = dst.as_ptr().offset(first.1 * size as isize);
            by_size!(size, T => copy_runs::<T>(&self.loops, s.cast(), d.cast(), range));
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
        self.loops.each_run(range.start, range.len(), |_, [from, to], len| {
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
    from: StridedRegion,
    dst: &mut TensorViewMut<'_>,
    to: StridedRegion,
) -> Result<()> {
    let copy = RegionCopy::new(shape, from, src.numel(), to, dst.numel())?;
    copy.run(src, dst, 0..copy.numel())
}

/// Copies every element of `shape` from one region of `source`, elements of `dtype`, to another of `target`.
///
/// Errors: a region leaves its bytes.
pub fn copy_between(
    shape: &Dims,
    dtype: DType,
    (source, from): (&[u8], StridedRegion),
    (target, to): (&mut [u8], StridedRegion),
) -> Result<()> {
    let size = dtype.size();
    let copy = RegionCopy::new(shape, from, source.len() / size, to, target.len() / size)?;
    // SAFETY: `new` proved that both regions lie inside the slices, which are borrowed for this call.
    unsafe {
        let s = source.as_ptr().offset(copy.from * size as isize);
        let d = target.as_mut_ptr().offset(copy.to * size as isize);
        by_size!(size, T => copy_runs::<T>(&copy.loops, s.cast(), d.cast(), 0..copy.numel()));
    }
    Ok(())
}

/// One side of a copy between callers' memory: the address of element 0 and a stride per dimension, in elements.
#[derive(Debug, Clone, Copy)]
pub struct Layout<P> {
    /// Where element 0 is.
    pub data: P,
    /// One stride per dimension.
    pub strides: [isize; MAX_RANK],
}

/// Copies every element of `shape`, which is of `dtype`.
///
/// # Safety
/// Every element that `shape` and the strides reach must be valid: readable in `from`, writable in `to`,
/// and the two must not overlap. Byte offsets must fit `isize`. Nothing has to be aligned.
pub unsafe fn copy_strided(shape: &[usize], dtype: DType, from: Layout<*const u8>, to: Layout<*mut u8>) {
    if shape.contains(&0) {
        return;
    }
    let loops = loops_between(shape, &from.strides, &to.strides).with_long_inner();
    // SAFETY: the loops visit the elements that shape and strides reach, which the caller promises.
    unsafe {
        by_size!(dtype.size(), T => copy_runs::<T>(&loops, from.data.cast(), to.data.cast(), 0..loops.numel()));
    }
}

/// Loops over source and target in the memory order of the target.
fn loops_between(shape: &[usize], from: &[isize; MAX_RANK], to: &[isize; MAX_RANK]) -> Loops<2> {
    let order = memory_order(shape.len(), to);
    Loops::over(order.into_iter().take(shape.len()), shape, [from, to])
}

#[cold]
fn leaves() -> Error {
    Error::internal("a copy would leave its tensor")
}

/// # Safety
/// All offsets of both operands must be elements of the tensors, which must not overlap.
unsafe fn copy_runs<T: Copy>(loops: &Loops<2>, src: *const T, dst: *mut T, range: Range<usize>) {
    let [s_stride, d_stride] = loops.inner_strides();
    for Run { offsets: [from, to], n, .. } in loops.runs_between(range.start, range.end) {
        // SAFETY: the run's offsets are elements of both tensors, as the caller promises of all of them.
        unsafe { copy_run(src.offset(from), s_stride, dst.offset(to), d_stride, n) };
    }
}

/// Copies `n` elements that lie `s_stride` and `d_stride` apart. Unaligned access, since complex elements are
/// only aligned to half their size.
///
/// # Safety
/// Valid for those elements, without overlap.
#[inline(always)]
pub(super) unsafe fn copy_run<T: Copy>(
    src: *const T,
    s_stride: isize,
    dst: *mut T,
    d_stride: isize,
    n: usize,
) {
    // SAFETY: the caller promises `n` elements at these strides on both sides, which do not overlap.
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
            (_, 1) => (0..n).for_each(|i| {
                dst.add(i).write_unaligned(src.offset(i as isize * s_stride).read_unaligned());
            }),
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
    src: *const T,
    (read, first): (&Walk, usize),
    dst: *mut T,
    (write, range): (&Walk, Range<usize>),
) {
    let [to_stride] = write.inner_strides();
    let [from_stride] = read.inner_strides();
    for Run { at, offsets: [to], n } in write.runs_between(range.start, range.end) {
        let start = first + (at - range.start);
        for Run { at, offsets: [from], n } in read.runs_between(start, start + n) {
            // SAFETY: both walks give elements of their tensors, as the caller promises of all positions.
            unsafe {
                let d = dst.offset(to + (at - start) as isize * to_stride);
                copy_run(src.offset(from), from_stride, d, to_stride, n);
            }
        }
    }
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
    copy_region(src.shape(), src, StridedRegion::of(src.strides()), dst, StridedRegion::of(dst.strides()))
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
        return Err(leaves());
    }
    let read = Walk::row_major(src.shape(), &signed(src.strides()));
    let write = Walk::row_major(dst.shape(), &signed(dst.strides()));
    let (s, d) = (src.as_ptr(), dst.as_ptr());
    // SAFETY: the walks are those of the tensors themselves, and both ranges lie inside.
    unsafe {
        by_size!(src.dtype().size(), T => {
            copy_elements::<T>(s.cast(), (&read, from), d.cast(), (&write, to));
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pteron_core::{DimOrder, TensorMeta};

    #[test]
    fn regions_outside_are_refused() {
        let data = [1u8, 2, 3, 4];
        let mut out = [0u8; 4];
        let meta = TensorMeta::contiguous(DType::UInt8, &[2, 2]).unwrap();
        // SAFETY: both blocks are 4 bytes and outlive the views.
        let (src, mut dst) = unsafe {
            (TensorView::from_raw(data.as_ptr(), &meta), TensorViewMut::from_raw(out.as_mut_ptr(), &meta))
        };
        let whole = StridedRegion::of(&[2, 1]);
        let shape = Dims::new(&[2, 2]).unwrap();
        for bad in [
            StridedRegion { offset: 1, ..whole },
            StridedRegion { offset: -1, ..whole },
            StridedRegion::of(&[3, 1]),
            StridedRegion::of(&[usize::MAX >> 1, 1]),
        ] {
            assert!(copy_region(&shape, &src, bad, &mut dst, whole).is_err());
            assert!(copy_region(&shape, &src, whole, &mut dst, bad).is_err());
        }
        let mut reversed = StridedRegion::of(&[0, 0]);
        reversed.offset = 3;
        reversed.strides[0] = -2;
        reversed.strides[1] = -1;
        copy_region(&shape, &src, reversed, &mut dst, whole).unwrap();
        assert_eq!(out, [4, 3, 2, 1]);
    }

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
                    DType::Int16,
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
            let dense = DimOrder::contiguous(rank).strides(&Dims::new(&shape).unwrap());
            // SAFETY: the strides are those of a dense tensor of `numel` elements on both sides.
            unsafe {
                copy_strided(
                    &shape,
                    DType::Int32,
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
