//! Memory that arenas, packed weights and scratch live in: owned, zeroed and 64-byte aligned, or bytes
//! that somebody else keeps. Unsafe island.

use crate::large_pages::Mapping;
use crate::{Error, Result, memory_reserve, region};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

/// Alignment of every buffer: one cache line, one AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// A zeroed block of memory whose allocation can fail without ending the process.
pub struct AlignedBuffer {
    ptr: NonNull<u8>,
    len: usize,
    // What the allocator gave; null for an empty or mapped buffer. `ptr` is the first aligned byte of it.
    base: *mut u8,
    // In place of `base`; several buffers may lie in one.
    mapping: Option<Arc<Mapping>>,
    // Where it goes back to.
    home: Option<Weak<BufferHome>>,
}

/// Alignment that is asked of the allocator. Up to this one it can hand out fresh pages of the system,
/// which are zero already; above it, it has to write every byte. So buffers are allocated with room to
/// align them here.
const BASE_ALIGNMENT: usize = 16;

// SAFETY: the buffer owns its memory exclusively; shared references give shared access only, and the
// raw pointer from `as_ptr` puts the burden on whoever writes through it.
unsafe impl Send for AlignedBuffer {}
// SAFETY: through a shared reference bytes are read only; whoever writes through `as_ptr` sees to it that
// nobody reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` zero bytes. Errors with [`crate::ErrorKind::LimitExceeded`] when the memory cannot be had.
    pub fn zeroed(len: usize) -> Result<Self> {
        let fail = || memory_reserve::out_of_memory(format!("a request for {len} bytes"));
        if len == 0 {
            return Ok(AlignedBuffer {
                ptr: Self::dangling(),
                len: 0,
                base: std::ptr::null_mut(),
                mapping: None,
                home: None,
            });
        }
        let layout = Self::layout(len).ok_or_else(fail)?;
        // SAFETY: `layout` has non-zero size.
        let base = memory_reserve::refusable(|| unsafe { alloc_zeroed(layout) });
        if base.is_null() {
            return Err(fail());
        }
        // At most ALIGNMENT - BASE_ALIGNMENT bytes, which `layout` has room for.
        let aligned = base.wrapping_add(base.align_offset(ALIGNMENT));
        let ptr = NonNull::new(aligned).ok_or_else(fail)?;
        Ok(AlignedBuffer { ptr, len, base, mapping: None, home: None })
    }

    /// `len` zero bytes for what is written once, whole, and read for as long as the program lives, such as packed
    /// weights. They lie in large pages where the system has them: large ones alone, small ones side by side within
    /// [`region::side_by_side`]. Not for memory that may stay unused in part, which would become resident too.
    ///
    /// Errors: as [`AlignedBuffer::zeroed`].
    pub fn zeroed_to_keep(len: usize) -> Result<Self> {
        if len > 0
            && !Mapping::is_worth_it(len)
            && let Some((ptr, mapping)) = region::take(len, ALIGNMENT)
        {
            return Ok(AlignedBuffer::mapped(ptr, len, mapping));
        }
        Self::zeroed_to_fill(len)
    }

    /// `len` zero bytes for what is written once, whole, and given back soon: in large pages of its own where it
    /// is large.
    ///
    /// Errors: as [`AlignedBuffer::zeroed`].
    pub fn zeroed_to_fill(len: usize) -> Result<Self> {
        if !Mapping::is_worth_it(len) {
            return Self::zeroed(len);
        }
        let mapping = Mapping::new(len)
            .ok_or_else(|| memory_reserve::out_of_memory(format!("a request for {len} bytes")))?;
        let ptr = mapping.start();
        Ok(AlignedBuffer::mapped(ptr, len, Arc::new(mapping)))
    }

    fn mapped(ptr: NonNull<u8>, len: usize, mapping: Arc<Mapping>) -> Self {
        AlignedBuffer { ptr, len, base: std::ptr::null_mut(), mapping: Some(mapping), home: None }
    }

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len.checked_add(ALIGNMENT - BASE_ALIGNMENT)?, BASE_ALIGNMENT).ok()
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        let mut out = Self::zeroed(bytes.len())?;
        out.as_mut_slice().copy_from_slice(bytes);
        Ok(out)
    }

    fn dangling() -> NonNull<u8> {
        // Aligned, never dereferenced.
        NonNull::without_provenance(std::num::NonZeroUsize::MIN.saturating_add(ALIGNMENT - 1))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Start of the memory. Writing through it while other references read is the caller's matter.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `len` initialised bytes while `self` lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// All bytes, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes as elements of `T`; trailing bytes that make no whole element are left out.
    pub fn as_elements<T: bytemuck::Pod>(&self) -> &[T] {
        let n = self.len / size_of::<T>().max(1);
        bytemuck::cast_slice(&self.as_slice()[..n * size_of::<T>()])
    }

    /// Writable twin of [`AlignedBuffer::as_elements`].
    pub fn as_mut_elements<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        let n = self.len / size_of::<T>().max(1);
        bytemuck::cast_slice_mut(&mut self.as_mut_slice()[..n * size_of::<T>()])
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take().and_then(|home| home.upgrade()) {
            let base = std::mem::replace(&mut self.base, std::ptr::null_mut());
            let mapping = self.mapping.take();
            home.put(AlignedBuffer { ptr: self.ptr, len: self.len, base, mapping, home: None });
            return;
        }
        if let (false, Some(layout)) = (self.base.is_null(), Self::layout(self.len)) {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { dealloc(self.base, layout) }
        }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

/// Where the memory of an output goes back to when the caller drops it, so that the next call need not have it anew:
/// pages that come fresh from the system are zeroed one by one. One buffer is kept.
#[derive(Default)]
pub struct BufferHome {
    kept: Mutex<Option<AlignedBuffer>>,
}

impl BufferHome {
    /// A buffer of `len` bytes for what is written whole: zeros, or what its last owner left.
    ///
    /// Errors: as [`AlignedBuffer::zeroed`].
    pub fn take(self: &Arc<Self>, len: usize) -> Result<AlignedBuffer> {
        let kept = self.kept.lock().ok().and_then(|mut kept| kept.take());
        let mut buffer = match kept {
            Some(buffer) if buffer.len() == len => buffer,
            _ => AlignedBuffer::zeroed_to_fill(len)?,
        };
        buffer.home = Some(Arc::downgrade(self));
        Ok(buffer)
    }

    fn put(&self, buffer: AlignedBuffer) {
        // What was kept is freed behind the lock.
        let last = self.kept.lock().ok().and_then(|mut kept| kept.replace(buffer));
        drop(last);
    }
}

/// Bytes that stay where and what they are.
///
/// # Safety
/// While a value lives, `bytes` returns the same memory with the same contents every time it is called,
/// and that memory does not change.
pub unsafe trait StableBytes: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

// SAFETY: shared references to a `Vec` give no way to change it.
unsafe impl StableBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}
// SAFETY: immutable for the whole life of the process.
unsafe impl StableBytes for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}
// SAFETY: nobody else has the pointer of a buffer that was given away.
unsafe impl StableBytes for AlignedBuffer {
    fn bytes(&self) -> &[u8] {
        self.as_slice()
    }
}

/// Bytes of a packed weight: made at load, or a part of the program's own bytes.
pub struct PackedBytes {
    ptr: *const u8,
    len: usize,
    is_copied: bool,
    // Keeps `ptr` valid; read only through it.
    _owner: Arc<dyn StableBytes>,
}

// SAFETY: the memory is kept unchanged by the owner, which is Send and Sync itself; all access is shared.
unsafe impl Send for PackedBytes {}
// SAFETY: nothing is written: all access is shared, and the owner is `Sync`.
unsafe impl Sync for PackedBytes {}

impl PackedBytes {
    /// `range` of the bytes that `owner` keeps, in place where they are aligned to [`ALIGNMENT`], else
    /// copied to memory that is.
    ///
    /// Errors: a range outside the bytes, no memory for the copy.
    pub fn stored(owner: Arc<dyn StableBytes>, range: Range<usize>) -> Result<Self> {
        let bytes = owner.bytes().get(range.clone()).ok_or_else(|| {
            Error::internal("a packed weight lies outside its storage").got(format!("{range:?}"))
        })?;
        if !(bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) {
            return Ok(PackedBytes { is_copied: true, ..AlignedBuffer::copy_of(bytes)?.into() });
        }
        let (ptr, len) = (bytes.as_ptr(), bytes.len());
        Ok(PackedBytes { ptr, len, is_copied: false, _owner: owner })
    }

    /// Did the bytes have to be copied because they lay at an odd address?
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Start of the memory, which must not be written to.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` and `len` are those of a slice that the owner keeps unchanged while `self` lives.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// The bytes as elements of `T`; trailing bytes that make no whole element are left out.
    pub fn as_elements<T: bytemuck::Pod>(&self) -> &[T] {
        let n = self.len / size_of::<T>().max(1);
        bytemuck::cast_slice(&self.as_slice()[..n * size_of::<T>()])
    }
}

impl From<AlignedBuffer> for PackedBytes {
    fn from(buffer: AlignedBuffer) -> Self {
        let (ptr, len) = (buffer.as_ptr().cast_const(), buffer.len());
        PackedBytes { ptr, len, is_copied: false, _owner: Arc::new(buffer) }
    }
}

impl std::fmt::Debug for PackedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedBytes({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_are_used_in_place_where_they_are_aligned() {
        let buffer = Arc::new(AlignedBuffer::copy_of(&(0..=255).collect::<Vec<u8>>()).unwrap());
        let aligned = PackedBytes::stored(buffer.clone(), 64..128).unwrap();
        assert_eq!(aligned.as_ptr(), buffer.as_ptr().wrapping_add(64).cast_const());
        assert!(!aligned.is_copied());
        let odd = PackedBytes::stored(buffer.clone(), 65..129).unwrap();
        assert!(odd.is_copied() && (odd.as_ptr() as usize).is_multiple_of(ALIGNMENT));
        assert_eq!(odd.as_slice(), &buffer.as_slice()[65..129]);
        assert!(PackedBytes::stored(buffer.clone(), 200..300).is_err());
        let kept = Arc::downgrade(&buffer);
        drop(buffer);
        assert_eq!(aligned.as_slice()[0], 64);
        drop(aligned);
        assert!(kept.upgrade().is_none());
    }

    #[test]
    fn zeroed_aligned_and_fallible() {
        let b = AlignedBuffer::zeroed(100).unwrap();
        assert_eq!(b.as_ptr() as usize % ALIGNMENT, 0);
        assert!(b.as_slice().iter().all(|x| *x == 0));
        assert_eq!(b.as_elements::<f32>().len(), 25);
        assert!(AlignedBuffer::zeroed(usize::MAX).is_err());
        assert!(AlignedBuffer::zeroed(0).unwrap().as_slice().is_empty());
    }

    #[test]
    fn a_buffer_goes_home_while_there_is_one() {
        let home = Arc::new(BufferHome::default());
        for len in [100, 5 << 20] {
            let mut one = home.take(len).unwrap();
            let two = home.take(len).unwrap();
            let place = one.as_ptr();
            assert!(two.as_ptr() != place && two.as_slice().iter().all(|x| *x == 0));
            one.as_mut_slice().fill(7);
            drop(one);
            let again = home.take(len).unwrap();
            assert_eq!((again.as_ptr(), again.as_slice()[len - 1]), (place, 7));
            // One is kept, of the size that was asked for last.
            drop((two, again));
            assert!(home.take(len + 1).unwrap().as_slice().iter().all(|x| *x == 0));
        }
        let last = home.take(100).unwrap();
        drop(home);
        assert_eq!(last.as_slice()[99], 0);
    }

    #[test]
    fn buffers_to_keep_are_zeroed_and_aligned_too() {
        for len in [0, 100, (4 << 20) - 1, 4 << 20, (4 << 20) + 12_345] {
            let mut b = AlignedBuffer::zeroed_to_keep(len).unwrap();
            assert!((b.as_ptr() as usize).is_multiple_of(ALIGNMENT));
            assert!(b.len() == len && b.as_slice().iter().all(|x| *x == 0));
            b.as_mut_slice().fill(1);
        }
        assert!(AlignedBuffer::zeroed_to_keep(usize::MAX).is_err());
        assert!(AlignedBuffer::zeroed_to_keep(usize::MAX / 4).is_err());
    }
}
