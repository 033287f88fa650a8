//! An allocator that fills what it hands out, and what it takes back, with a pattern: a result that depends on
//! memory which nobody wrote is another one under another pattern.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

static PATTERN: AtomicU8 = AtomicU8::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes that were handed out and not taken back.
pub fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The pattern from now on.
pub fn fill_with(pattern: u8) {
    PATTERN.store(pattern, Ordering::Relaxed);
}

/// Bytes of a block that are filled when it is given back.
const MOST_FILLED_WHEN_FREED: usize = 64 << 10;

struct Filling;

fn fill(pointer: *mut u8, len: usize) {
    // SAFETY: whoever calls has just got `len` bytes from the system, or is about to give them back.
    unsafe { pointer.write_bytes(PATTERN.load(Ordering::Relaxed), len) }
}

// SAFETY: everything is handed to the system's allocator; bytes are written only while this owns them.
unsafe impl GlobalAlloc for Filling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            fill(pointer, layout.size());
            LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        }
        pointer
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // All of a large block would make pages of it that were never used.
        fill(pointer, layout.size().min(MOST_FILLED_WHEN_FREED));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        }
        pointer
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        let grown = unsafe { System.realloc(pointer, layout, size) };
        if !grown.is_null() {
            LIVE.fetch_add(size, Ordering::Relaxed);
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        if !grown.is_null() && size > layout.size() {
            fill(grown.wrapping_add(layout.size()), size.saturating_sub(layout.size()));
        }
        grown
    }
}

#[global_allocator]
static ALLOCATOR: Filling = Filling;
