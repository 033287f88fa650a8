//! The word that stops a run: set by `cancel` and by a deadline, polled per step and per kernel chunk.

use pteron_core::Error;
use pteron_cpu::stop_word;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// No call is in progress: there is nothing to stop.
const IDLE: u32 = u32::MAX;

/// Cancels the run of one method from any thread.
#[derive(Debug, Clone)]
pub struct CancelHandle {
    word: Arc<AtomicU32>,
}

/// A call in progress, which can be cancelled until this is dropped.
#[derive(Debug)]
pub struct CallInProgress<'a> {
    handle: &'a CancelHandle,
    /// Or a caller of this one has begun it.
    is_own: bool,
}

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.handle.word.store(IDLE, Ordering::Relaxed);
        }
    }
}

impl CancelHandle {
    pub(crate) fn new() -> Self {
        CancelHandle { word: Arc::new(AtomicU32::new(IDLE)) }
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

    /// Begins a call of whoever has the method to itself. [`crate::Method::execute`] does so by itself; a host that
    /// has work to do before it, while others find the method in use, begins the call where that work begins: a
    /// [`CancelHandle::cancel`] from then on stops it.
    pub fn begin_call(&self) -> CallInProgress<'_> {
        let begun =
            self.word.compare_exchange(IDLE, stop_word::RUNNING, Ordering::Relaxed, Ordering::Relaxed);
        CallInProgress { handle: self, is_own: begun.is_ok() }
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
    fn the_first_reason_wins_until_the_call_ends() {
        let h = CancelHandle::new();
        // Without a call nothing happens.
        h.cancel();
        let call = h.begin_call();
        check(&h).unwrap();
        h.expire();
        h.cancel();
        assert_eq!(check(&h).unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        drop(call);
        h.expire();
        let _call = h.begin_call();
        check(&h).unwrap();
        h.clone().cancel();
        assert_eq!(check(&h).unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn a_cancel_before_the_inner_call_begins_stops_it() {
        let h = CancelHandle::new();
        let outer = h.begin_call();
        h.cancel();
        let inner = h.begin_call();
        assert_eq!(check(&h).unwrap_err().kind(), ErrorKind::Cancelled);
        drop(inner);
        assert_eq!(check(&h).unwrap_err().kind(), ErrorKind::Cancelled);
        drop(outer);
        let _next = h.begin_call();
        check(&h).unwrap();
    }
}
