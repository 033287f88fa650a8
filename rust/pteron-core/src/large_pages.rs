//! Memory for large buffers that are kept, in large pages where the system has them to give. Unsafe island.
//!
//! Filling a hundred megabytes of fresh memory is mostly page faults, one for every 4 KiB. With pages of 2 MiB there
//! are 512 times fewer, which takes a tenth to a quarter off the time to load a large model (benches/HISTORY.md), and
//! reading them later misses the translation cache less. The memory comes from the system itself, not from the allocator: what that hands
//! out a second time it has to clear first, and where it begins is chance.

use std::ptr::NonNull;

/// Fresh zeroed memory that begins at a large page.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    // What was mapped, with room to align it.
    #[cfg(all(target_os = "linux", not(miri)))]
    whole: (*mut libc::c_void, usize),
}

/// Size of a large page.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

impl Mapping {
    /// From four megabytes on at least half of a buffer lies in large pages.
    pub(crate) fn is_worth_it(len: usize) -> bool {
        cfg!(all(target_os = "linux", not(miri))) && len >= 2 * LARGE_PAGE
    }

    /// At least `len` bytes, `len` not 0; `None` where they cannot be had.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn new(len: usize) -> Option<Mapping> {
        let room = len.checked_add(LARGE_PAGE)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of no file touches no memory that there is.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let bytes = base.cast::<u8>();
        // Less than a large page on, so that `len` bytes follow.
        let start = bytes.wrapping_add(bytes.align_offset(LARGE_PAGE));
        let mapping = Mapping { start: NonNull::new(start)?, whole: (base, room) };
        // Whole pages only, so that no more memory is taken than asked for. Without large pages the memory is as
        // good, so a refusal does not matter.
        // SAFETY: the range lies in the mapping, and this advice changes no contents.
        unsafe { libc::madvise(start.cast(), len / LARGE_PAGE * LARGE_PAGE, libc::MADV_HUGEPAGE) };
        Some(mapping)
    }

    /// Never called: see [`Mapping::is_worth_it`].
    #[cfg(not(all(target_os = "linux", not(miri))))]
    pub(crate) fn new(_: usize) -> Option<Mapping> {
        None
    }

    /// First byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

// SAFETY: a mapping is an address range that it alone unmaps; it reads and writes nothing.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references give its address only.
unsafe impl Sync for Mapping {}

#[cfg(all(target_os = "linux", not(miri)))]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, with this size; nobody reads it after its owner is gone.
        unsafe { libc::munmap(self.whole.0, self.whole.1) };
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_begins_at_a_large_page_and_can_be_refused() {
        let mapping = Mapping::new(3 * LARGE_PAGE + 1).unwrap();
        assert!((mapping.start().as_ptr() as usize).is_multiple_of(LARGE_PAGE));
        assert!(Mapping::new(usize::MAX).is_none());
        assert!(Mapping::new(usize::MAX / 4).is_none());
        assert!(Mapping::is_worth_it(4 << 20) && !Mapping::is_worth_it((4 << 20) - 1));
    }
}
