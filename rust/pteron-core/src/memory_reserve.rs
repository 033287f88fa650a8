//! What keeps a process alive when memory runs out in the middle of work that has no way to say so. Unsafe
//! island (a global allocator).
//!
//! Rust ends the process when a `Vec`, a `String` or a map cannot grow. Large requests whose size a file
//! states (tables, arenas, packed weights, scratch) are made in ways that can fail; the many small lists that
//! load makes on the way are not. [`ReservingAllocator`] gives those memory from a reserve when the system has
//! none, and remembers on the thread that it did. [`within_memory_limit`], around every entry point, then turns the
//! result into an error, and [`check`] does so earlier in loops over what a file holds.
//!
//! A process that does not install the allocator behaves as any Rust program: such requests end it.

use crate::{Error, ErrorKind, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the reserve. It lies in zeroed static memory, so it takes none until it is used.
pub const RESERVE_BYTES: usize = 64 << 20;
const ALIGNMENT: usize = 4096;

#[repr(align(4096))]
struct Block(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: the bytes are handed out by `take`, each to one owner at a time.
unsafe impl Sync for Block {}

static BLOCK: Block = Block(UnsafeCell::new([0; RESERVE_BYTES]));
/// Number of blocks in use (high half) and where the next one begins (low half).
static STATE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Size of the first request of this thread that the reserve served; 0: none.
    static SHORTAGE: Cell<usize> = const { Cell::new(0) };
    /// Is this thread making a request that may fail?
    static IS_REFUSABLE: Cell<bool> = const { Cell::new(false) };
}

/// The allocator of `A`, with the reserve behind it.
pub struct ReservingAllocator<A = System>(pub A);

fn base() -> usize {
    BLOCK.0.get().addr()
}

fn is_reserved(pointer: *mut u8) -> bool {
    pointer.addr().wrapping_sub(base()) < RESERVE_BYTES
}

/// A block of the reserve; null when it has no room, or the request may fail.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    // A thread that is ending has no flags any more, and nobody to tell.
    if IS_REFUSABLE.try_with(Cell::get).unwrap_or(false) || layout.align() > ALIGNMENT {
        return std::ptr::null_mut();
    }
    let mut state = STATE.load(Ordering::Relaxed);
    loop {
        let (live, next) = (state >> 32, (state & 0xffff_ffff) as usize);
        let start = next.next_multiple_of(layout.align());
        let Some(end) = start.checked_add(layout.size()).filter(|end| *end <= RESERVE_BYTES) else {
            return std::ptr::null_mut();
        };
        let new = (live + 1) << 32 | end as u64;
        match STATE.compare_exchange_weak(state, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                let _ =
                    SHORTAGE.try_with(|s| s.set(if s.get() == 0 { layout.size().max(1) } else { s.get() }));
                return BLOCK.0.get().cast::<u8>().wrapping_add(start);
            }
            Err(now) => state = now,
        }
    }
}

/// Gives a block back. The reserve is whole again when the last one is.
#[cold]
fn put_back() {
    let mut state = STATE.load(Ordering::Relaxed);
    loop {
        let live = (state >> 32).saturating_sub(1);
        let new = if live == 0 { 0 } else { live << 32 | (state & 0xffff_ffff) };
        match STATE.compare_exchange_weak(state, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => state = now,
        }
    }
}

// SAFETY: blocks come from `A` or, disjoint from those and from each other, from the reserve, where they stay
// until they are given back.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ReservingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        let given = unsafe { self.0.alloc(layout) };
        if given.is_null() { take(layout) } else { given }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        let given = unsafe { self.0.alloc_zeroed(layout) };
        if !given.is_null() {
            return given;
        }
        let taken = take(layout);
        if !taken.is_null() {
            // SAFETY: a block of this size, ours alone.
            unsafe { taken.write_bytes(0, layout.size()) };
        }
        taken
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_reserved(pointer) {
            return put_back();
        }
        // SAFETY: not of the reserve, so `A` gave it.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_reserved(pointer) {
            // SAFETY: not of the reserve, so `A` gave it.
            let given = unsafe { self.0.realloc(pointer, layout, size) };
            if !given.is_null() {
                return given;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        // SAFETY: `wanted` is a layout of non-zero size, by the caller's contract; the old block is valid for
        // its own size and given back where it came from.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                pointer.copy_to_nonoverlapping(new, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

/// Makes requests whose failure `work` notices itself: they never touch the reserve.
pub fn refusable<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_REFUSABLE.set(self.0);
        }
    }
    let _restore = Restore(IS_REFUSABLE.replace(true));
    work()
}

/// Does `work`; an error of kind `LimitExceeded` when this thread had to use the reserve meanwhile.
pub fn within_memory_limit<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            SHORTAGE.set(self.0);
        }
    }
    let _restore = Restore(SHORTAGE.replace(0));
    let result = work();
    match (SHORTAGE.get(), result) {
        (0, result) => result,
        (_, Err(error)) if error.kind() == ErrorKind::LimitExceeded || error.detail().is_memory_kept => {
            Err(error)
        }
        (nbytes, Err(error)) => Err(exhausted(nbytes).cause(error)),
        (nbytes, Ok(_)) => Err(exhausted(nbytes)),
    }
}

/// An error when this thread has had to use the reserve since the innermost [`within_memory_limit`] began.
pub fn check() -> Result<()> {
    match SHORTAGE.get() {
        0 => Ok(()),
        nbytes => Err(exhausted(nbytes)),
    }
}

#[cold]
fn exhausted(nbytes: usize) -> Error {
    out_of_memory(format!("a request for {nbytes} bytes"))
}

/// The error for memory that cannot be had.
#[cold]
pub fn out_of_memory(request: impl Into<String>) -> Error {
    Error::limit("memory could not be allocated")
        .got(request)
        .hint("the process has reached its memory limit, or the machine has no more: free memory or raise the limit")
}

/// An empty list with room for `n`; an error when memory cannot be had.
pub fn try_with_capacity<T>(n: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    refusable(|| out.try_reserve_exact(n))
        .map_err(|_| out_of_memory(format!("a list of {n} entries of {} bytes", size_of::<T>())))?;
    Ok(out)
}

/// The items of `items` in a list; an error when memory cannot be had.
pub fn try_collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut out = try_with_capacity(items.len())?;
    out.extend(items);
    Ok(out)
}

/// A list of `n` times `value`; an error when memory cannot be had.
pub fn filled<T: Clone>(value: T, n: usize) -> Result<Vec<T>> {
    let mut out = try_with_capacity(n)?;
    out.resize(n, value);
    Ok(out)
}

/// A text that grows in ways that can fail.
struct Text(String);

impl std::fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        refusable(|| self.0.try_reserve(part.len())).map_err(|_| std::fmt::Error)?;
        self.0.push_str(part);
        Ok(())
    }
}

/// The text of `value`, which may be long; an error when memory cannot be had.
pub fn text_of(value: &impl std::fmt::Display) -> Result<String> {
    let mut out = Text(String::new());
    match std::fmt::write(&mut out, format_args!("{value}")) {
        Ok(()) => Ok(out.0),
        Err(_) => Err(out_of_memory(format!("a text of more than {} bytes", out.0.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Has no memory at all.
    struct Empty;

    // SAFETY: no memory is ever given, so none can overlap.
    unsafe impl GlobalAlloc for Empty {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            std::ptr::null_mut()
        }
        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
            panic!("nothing was given")
        }
    }

    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn blocks_are_disjoint_grow_and_come_back() {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|p| p.into_inner());
        let allocator = ReservingAllocator(Empty);
        let layout = Layout::from_size_align(100, 64).unwrap();
        // SAFETY: blocks are used within their sizes and given back with their layouts.
        let text = within_memory_limit(|| unsafe {
            let a = allocator.alloc(layout);
            let b = allocator.alloc_zeroed(layout);
            assert!(a.addr().is_multiple_of(64) && b.addr().is_multiple_of(64) && b.addr() >= a.addr() + 100);
            a.write_bytes(7, 100);
            let a = allocator.realloc(a, layout, 200);
            assert_eq!(*a.add(99), 7);
            assert_eq!(*b, 0);
            assert!(check().is_err());
            allocator.dealloc(a, Layout::from_size_align(200, 64).unwrap());
            allocator.dealloc(b, layout);
            Ok(())
        });
        let text = text.unwrap_err().to_string();
        assert!(text.contains("memory could not be allocated; got a request for 100 bytes"), "{text}");
        assert!(check().is_ok());
        assert_eq!(STATE.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_can_fail_fails_and_so_does_what_is_too_large() {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|p| p.into_inner());
        let allocator = ReservingAllocator(Empty);
        let small = Layout::from_size_align(100, 8).unwrap();
        let large = Layout::from_size_align(RESERVE_BYTES + 1, 8).unwrap();
        // SAFETY: non-zero sizes; nothing is given.
        unsafe {
            assert!(refusable(|| allocator.alloc(small)).is_null());
            assert!(allocator.alloc(large).is_null());
        }
        assert!(check().is_ok());
        assert!(try_with_capacity::<u64>(usize::MAX / 4).unwrap_err().to_string().contains("a list of"));
        assert_eq!(filled(3, 2).unwrap(), [3, 3]);
        assert_eq!(try_collect([1, 2].into_iter()).unwrap(), [1, 2]);
        assert_eq!(text_of(&"a text").unwrap(), "a text");
    }
}
