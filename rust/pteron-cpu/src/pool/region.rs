//! One parallel region: the work, and how it ended.

use super::primitives::{AtomicU32, Mutex, Ordering};
use pteron_core::error::panic_text;
use pteron_core::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a region computes.
pub(super) type Work<'a> = &'a (dyn Fn(u32, usize) -> Result<()> + Sync);

/// Lives on the caller's stack while the region runs.
pub(super) struct ParallelRegion<'a> {
    work: Work<'a>,
    /// The first failed chunk in chunk order; `u32::MAX` while all is well.
    failed_at: AtomicU32,
    error: Mutex<Option<(u32, Error)>>,
}

impl<'a> ParallelRegion<'a> {
    pub(super) fn new(work: Work<'a>) -> Self {
        ParallelRegion { work, failed_at: AtomicU32::new(u32::MAX), error: Mutex::new(None) }
    }

    /// Runs `chunk` unless one before it failed. Every chunk before the first that fails is run, since none before it
    /// fails, so the error that is kept in the end does not depend on timing.
    pub(super) fn run(&self, chunk: u32, worker: usize) {
        if chunk > self.failed_at.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = run_chunk(self.work, chunk, worker) {
            self.failed_at.fetch_min(chunk, Ordering::Relaxed);
            // Nothing can panic while the lock is held, so it is never poisoned.
            let mut slot = self.error.lock().unwrap_or_else(|p| p.into_inner());
            if slot.as_ref().is_none_or(|(at, _)| chunk < *at) {
                *slot = Some((chunk, error));
            }
        }
    }

    /// How the region ended; after its last chunk.
    pub(super) fn into_result(self) -> Result<()> {
        match self.error.into_inner().unwrap_or_else(|p| p.into_inner()) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Runs one chunk; a panic in it becomes an internal error.
#[inline]
pub(super) fn run_chunk(work: Work<'_>, chunk: u32, worker: usize) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| work(chunk, worker))).unwrap_or_else(|payload| Err(panicked(&*payload)))
}

#[cold]
fn panicked(payload: &(dyn std::any::Any + Send)) -> Error {
    Error::internal("a kernel panicked").got(panic_text(payload))
}
