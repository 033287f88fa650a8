//! The word that stops a run: set by `cancel` and by a deadline, polled per step and per kernel chunk.

use pteron_core::Error;
use pteron_cpu::stop_word;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Cancels the run of one method from any thread.
#[derive(Debug, Clone)]
pub struct CancelHandle {
    word: Arc<AtomicU32>,
}

impl CancelHandle {
    pub(crate) fn new() -> Self {
        CancelHandle { word: Arc::new(AtomicU32::new(stop_word::RUNNING)) }
    }

    /// Stops the run in progress, which then fails with [`pteron_core::ErrorKind::Cancelled`]. Without
    /// a run in progress nothing happens: the next run starts afresh.
    pub fn cancel(&self) {
        self.stop(stop_word::CANCELLED);
    }

    pub(crate) fn expire(&self) {
        self.stop(stop_word::DEADLINE);
    }

    fn stop(&self, reason: u32) {
        // The first reason wins: a cancel after the deadline stays a deadline.
        let _ = self.word.compare_exchange(stop_word::RUNNING, reason, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.word.store(stop_word::RUNNING, Ordering::Relaxed);
    }

    /// Is this the handle of the same session?
    pub(crate) fn is_same(&self, other: &CancelHandle) -> bool {
        Arc::ptr_eq(&self.word, &other.word)
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// May the run go on?
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.word.load(Ordering::Relaxed) == stop_word::RUNNING
    }

    /// Why the run stopped.
    #[cold]
    pub(crate) fn error(&self) -> Error {
        match stop_word::check(&self.word) {
            Err(reason) => explain(reason),
            Ok(()) => Error::internal("a run stopped without a reason"),
        }
    }
}

/// Adds what the reader can do.
pub(crate) fn explain(stopped: Error) -> Error {
    stopped.hint("the method can be used again; give a later deadline or do not cancel it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::ErrorKind;

    fn check(handle: &CancelHandle) -> pteron_core::Result<()> {
        if handle.is_running() { Ok(()) } else { Err(handle.error()) }
    }

    #[test]
    fn the_first_reason_wins_until_reset() {
        let h = CancelHandle::new();
        check(&h).unwrap();
        h.expire();
        h.cancel();
        assert_eq!(check(&h).unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        h.reset();
        check(&h).unwrap();
        h.clone().cancel();
        assert_eq!(check(&h).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
