//! The part of a tensor that one chunk of a call may touch: [`ChunkOf`] for reading, [`ChunkOfMut`] for writing. This is
//! the one place where a view and a range become a slice or a pointer. Unsafe island.
//!
//! A chunk is a pointer with a length, not a slice: in a kernel that works in place an output lies over an input.
//! [`ChunkOf::as_slice`] and [`ChunkOfMut::into_slice`] are for kernels without aliasing; only the frame
//! ([`crate::frame`]), which knows the alias rule, makes chunks that have slices.

use pteron_core::{Element, Error, Result, TensorView, TensorViewMut, WorkerScratch};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements of one chunk of a simple kernel; fixed, so that results do not depend on the number of threads.
pub const CHUNK: usize = 16 << 10;

/// Bytes that a chunk of a copy writes at least.
pub const CHUNK_BYTES: usize = 64 << 10;

/// The part of `0..count` that chunk number `chunk` of `size` positions covers.
#[inline(always)]
pub fn part(chunk: usize, size: usize, count: usize) -> Range<usize> {
    let start = chunk.saturating_mul(size).min(count);
    start..start.saturating_add(size).min(count)
}

#[cold]
fn outside(range: &Range<usize>, len: usize) -> Error {
    Error::internal("a chunk would leave its tensor").got(format!("elements {range:?} of {len}"))
}

/// Elements to read.
#[derive(Clone, Copy)]
pub struct ChunkOf<'a, T> {
    start: *const T,
    len: usize,
    is_exclusive: bool,
    tensor: PhantomData<&'a T>,
}

/// Elements to write.
pub struct ChunkOfMut<'a, T> {
    start: *mut T,
    len: usize,
    is_exclusive: bool,
    tensor: PhantomData<&'a mut T>,
}

impl<'a, T: Element> ChunkOf<'a, T> {
    /// All elements of a tensor, in memory order. `is_exclusive`: nothing that is written meanwhile overlaps it.
    ///
    /// Errors: the tensor has another dtype.
    #[inline(always)]
    pub(crate) fn of(view: TensorView<'a>, is_exclusive: bool) -> Result<Self> {
        let start = view.ptr::<T>()?;
        let len = if start.is_null() { 0 } else { view.numel() };
        Ok(ChunkOf { start, len, is_exclusive, tensor: PhantomData })
    }

    /// The elements `range` of these.
    ///
    /// Errors: they are not all there.
    #[inline(always)]
    pub fn part(self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.len {
            return Err(outside(&range, self.len));
        }
        Ok(ChunkOf { start: self.start.wrapping_add(range.start), len: range.end - range.start, ..self })
    }

    /// The elements.
    ///
    /// Errors: the kernel may work in place, so that no slice of its operands can be had.
    #[inline(always)]
    pub fn as_slice(self) -> Result<&'a [T]> {
        if !self.is_exclusive {
            return Err(Error::internal("a kernel that works in place asks for a slice"));
        }
        if self.len == 0 {
            return Ok(&[]);
        }
        // SAFETY: `of` made it from a view, whose maker promises `numel` elements for `'a` (`pteron_core::tensor`); `part`
        // only shrinks it. Nothing writes them meanwhile, as the alias rule of the kernel says.
        Ok(unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// Where the elements begin, for vector loads: [`ChunkOf::len`] of them are readable.
    #[inline(always)]
    pub fn as_ptr(self) -> *const T {
        self.start
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// No elements?
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl<'a> ChunkOf<'a, u8> {
    /// All bytes of a tensor of any dtype, in memory order. `is_exclusive`: as for [`ChunkOf::of`].
    #[inline(always)]
    pub(crate) fn bytes(view: TensorView<'a>, is_exclusive: bool) -> Self {
        let start = view.as_ptr();
        let len = if start.is_null() { 0 } else { view.nbytes() };
        ChunkOf { start, len, is_exclusive, tensor: PhantomData }
    }
}

impl<'a, T: Element> ChunkOfMut<'a, T> {
    /// The elements `range` of a tensor, in memory order; no other thread may touch them. `is_exclusive`: nothing that
    /// is read meanwhile overlaps them.
    ///
    /// Errors: the tensor has another dtype, or fewer elements.
    #[inline(always)]
    pub(crate) fn of(view: TensorViewMut<'a>, range: Range<usize>, is_exclusive: bool) -> Result<Self> {
        let start = view.ptr::<T>()?;
        let len = if start.is_null() { 0 } else { view.numel() };
        Self::within((start, len), range, is_exclusive)
    }

    #[inline(always)]
    fn within((start, len): (*mut T, usize), range: Range<usize>, is_exclusive: bool) -> Result<Self> {
        if range.start > range.end || range.end > len {
            return Err(outside(&range, len));
        }
        let (start, len) = (start.wrapping_add(range.start), range.end - range.start);
        Ok(ChunkOfMut { start, len, is_exclusive, tensor: PhantomData })
    }

    /// The elements `range` of these; the whole is out of use until they are done with.
    ///
    /// Errors: they are not all there.
    #[inline(always)]
    pub fn part(&mut self, range: Range<usize>) -> Result<ChunkOfMut<'_, T>> {
        if range.start > range.end || range.end > self.len {
            return Err(outside(&range, self.len));
        }
        let (start, len) = (self.start.wrapping_add(range.start), range.end - range.start);
        Ok(ChunkOfMut { start, len, is_exclusive: self.is_exclusive, tensor: PhantomData })
    }

    /// The elements.
    ///
    /// Errors: the kernel may work in place, so that no slice of its output can be had.
    #[inline(always)]
    pub fn into_slice(self) -> Result<&'a mut [T]> {
        if !self.is_exclusive {
            return Err(Error::internal("a kernel that works in place asks for a slice"));
        }
        if self.len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: `of` made it from a view, whose maker promises `numel` elements for `'a` (`pteron_core::tensor`). The frame
        // gives a unit of work to one chunk, so these elements are this chunk's alone; the chunk is consumed.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.len) })
    }

    /// Where the elements begin, for vector stores: [`ChunkOfMut::len`] of them are writable.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.start
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No elements?
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> ChunkOfMut<'a, u8> {
    /// The bytes `range` of a tensor of any dtype; otherwise as [`ChunkOfMut::of`].
    #[inline(always)]
    pub(crate) fn bytes(view: TensorViewMut<'a>, range: Range<usize>, is_exclusive: bool) -> Result<Self> {
        let start = view.as_ptr();
        Self::within((start, if start.is_null() { 0 } else { view.nbytes() }), range, is_exclusive)
    }
}

/// The scratch memory that all workers of a call share: a place for what one phase leaves to the next.
pub(crate) struct SharedMemory<'s> {
    start: *mut u8,
    nbytes: usize,
    memory: PhantomData<&'s mut [u8]>,
}

impl<'s> SharedMemory<'s> {
    /// That of `scratch`, of which the kernel asked for `nbytes`.
    #[inline(always)]
    pub(crate) fn of(scratch: &WorkerScratch<'s>, nbytes: usize) -> Self {
        let start = scratch.shared;
        SharedMemory { start, nbytes: if start.is_null() { 0 } else { nbytes }, memory: PhantomData }
    }

    /// Its elements `range`, which no other chunk of the phase asks for.
    ///
    /// Errors: they are not all there.
    #[inline(always)]
    pub(crate) fn into_part<T: bytemuck::Pod>(self, range: Range<usize>) -> Result<&'s mut [T]> {
        const { assert!(align_of::<T>() <= 64) };
        if range.start > range.end || range.end > self.nbytes.checked_div(size_of::<T>()).unwrap_or(0) {
            return Err(outside(&range, self.nbytes));
        }
        if range.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: the executor gives as many bytes as the kernel asks for, aligned to 64 and never uninitialised, and the
        // range lies in them (`of` knows of none behind a null pointer). The frame gives a unit, and with it its part of the
        // memory, to one chunk of a phase, and phases follow one another; the memory is handed out once per chunk.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start.cast::<T>().add(range.start), range.len()) })
    }
}
