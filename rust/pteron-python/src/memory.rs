//! Bytes that Python objects look at, with a count of who looks. Unsafe island.
//!
//! A [`Memory`] is either owned (an output, alive as long as anything refers to it) or lent (an
//! argument of a delegate call, dead after the call). Exports (buffers, DLPack capsules) are counted
//! in the same word that says whether the memory is dead, so that neither check can miss the other.

use pteron_core::AlignedBuffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const DEAD: usize = 1 << (usize::BITS - 1);

/// Bytes with an export count.
pub struct Memory {
    data: *mut u8,
    state: AtomicUsize,
    /// Keeps owned bytes alive; `None` for lent ones.
    _owner: Option<AlignedBuffer>,
}

// SAFETY: `Memory` itself never dereferences `data`; whoever does holds an export or, in the lender's
// case, has it exclusively. The count is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Owned bytes.
    pub fn owned(buffer: AlignedBuffer) -> Self {
        Memory { data: buffer.as_ptr(), state: AtomicUsize::new(0), _owner: Some(buffer) }
    }

    /// Bytes of somebody else, until [`Memory::revoke`].
    pub fn lent(data: *mut u8) -> Self {
        Memory { data, state: AtomicUsize::new(0), _owner: None }
    }

    /// Counts one export and gives the start of the bytes; `None` when the memory was revoked.
    pub fn export(&self) -> Option<*mut u8> {
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |s| {
                (s & DEAD == 0).then(|| s.wrapping_add(1))
            })
            .ok()
            .map(|_| self.data)
    }

    /// Ends one export. Touches nothing of Python: it may run on any thread.
    pub fn release(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Number of exports alive.
    pub fn exports(&self) -> usize {
        self.state.load(Ordering::Acquire) & !DEAD
    }

    /// Was the memory revoked?
    pub fn is_dead(&self) -> bool {
        self.state.load(Ordering::Acquire) & DEAD != 0
    }

    /// Refuses exports from now on.
    pub fn revoke(&self) {
        self.state.fetch_or(DEAD, Ordering::AcqRel);
    }
}

/// One export that ends on drop.
pub struct Export(Arc<Memory>);

impl Export {
    /// Counts an export; `None` when the memory was revoked.
    pub fn of(memory: &Arc<Memory>) -> Option<Self> {
        memory.export().map(|_| Export(memory.clone()))
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.0.release();
    }
}
