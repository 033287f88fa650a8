//! Bytes that others look at, with a count of who looks. Unsafe island.
//!
//! A [`Memory`] is owned (an output, alive as long as anything refers to it), lent by a session (an output
//! where the session computed it, dead when its next call begins) or lent for a delegate call (dead
//! after it). Exports (buffers, DLPack capsules, borrowed bytes) are counted in the same word that says
//! whether the memory is dead, so that neither check can miss the other.

use pteron_core::AlignedBuffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const DEAD: usize = 1 << (usize::BITS - 1);

/// Bytes with an export count.
pub struct Memory {
    data: *mut u8,
    state: AtomicUsize,
    owner: Owner,
}

/// What keeps the bytes alive.
enum Owner {
    /// The memory itself.
    Own { _buffer: AlignedBuffer },
    /// A session, and this share in its arena.
    Session { _arena: Arc<AlignedBuffer> },
    /// Whoever revokes it in time.
    Lender,
}

// SAFETY: `Memory` itself never dereferences `data`; whoever does holds an export or, in the lender's
// case, has it exclusively. The count is atomic.
unsafe impl Send for Memory {}
// SAFETY: as for sending: a shared `Memory` hands its pointer to holders of exports, and counts them
// atomically.
unsafe impl Sync for Memory {}

impl Memory {
    /// Owned bytes.
    pub fn owned(buffer: AlignedBuffer) -> Self {
        Memory { data: buffer.as_ptr(), state: AtomicUsize::new(0), owner: Owner::Own { _buffer: buffer } }
    }

    /// Bytes of a session's arena, until the session takes them back.
    pub(crate) fn of_arena(arena: Arc<AlignedBuffer>, data: *mut u8) -> Self {
        Memory { data, state: AtomicUsize::new(0), owner: Owner::Session { _arena: arena } }
    }

    /// Bytes of somebody else, until [`Memory::revoke`].
    ///
    /// # Safety
    /// `data` must be valid for what exports are used for until then, and as long as an export lives.
    pub unsafe fn lent(data: *mut u8) -> Self {
        Memory { data, state: AtomicUsize::new(0), owner: Owner::Lender }
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

    /// The start of the bytes where the memory owns them: they are there as long as it is, exported or not.
    pub fn owned_data(&self) -> Option<*mut u8> {
        matches!(self.owner, Owner::Own { .. }).then_some(self.data)
    }

    /// Ends one export. Touches nothing of Python: it may run on any thread.
    ///
    /// # Safety
    /// The export was counted by [`Memory::export`], has not ended, and nobody uses the bytes by it any more.
    pub unsafe fn release(&self) {
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

    /// Refuses exports from now on, unless there is one; did it?
    pub(crate) fn take_back(&self) -> bool {
        match self.state.compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(state) => state == DEAD,
        }
    }

    /// Does a session lend it?
    pub fn is_of_session(&self) -> bool {
        matches!(self.owner, Owner::Session { .. })
    }

    /// Refuses exports from now on.
    pub fn revoke(&self) {
        self.state.fetch_or(DEAD, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} exports)", self.exports())
    }
}

/// One export that ends on drop.
#[derive(Debug)]
pub struct Export(Arc<Memory>);

impl Export {
    /// Counts an export; `None` when the memory was revoked.
    pub fn of(memory: &Arc<Memory>) -> Option<Self> {
        memory.export().map(|_| Export(memory.clone()))
    }

    /// Start of the bytes, which stay while the export lives.
    pub fn data(&self) -> *const u8 {
        self.0.data
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // SAFETY: counted in `of`, and ended here alone.
        unsafe { self.0.release() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_cannot_be_taken_back_and_what_was_taken_back_cannot_be_exported() {
        let arena = Arc::new(AlignedBuffer::zeroed(8).unwrap());
        let memory = Arc::new(Memory::of_arena(arena.clone(), arena.as_ptr()));
        let export = Export::of(&memory).unwrap();
        assert!(!memory.take_back() && !memory.is_dead());
        drop(export);
        assert!(memory.take_back() && memory.take_back());
        assert!(Export::of(&memory).is_none());
    }
}
