//! The word that stops a run: zero while it may go on, polled before every step and every chunk.

use pteron_core::Error;
use std::sync::atomic::{AtomicU32, Ordering};

/// Go on.
pub const RUNNING: u32 = 0;
/// Someone cancelled the run.
pub const CANCELLED: u32 = 1;
/// The deadline passed.
pub const DEADLINE: u32 = 2;

/// An error if `word` says stop: [`pteron_core::ErrorKind::DeadlineExceeded`] for [`DEADLINE`],
/// [`pteron_core::ErrorKind::Cancelled`] for every other non-zero value.
#[inline(always)]
pub fn check(word: &AtomicU32) -> pteron_core::Result<()> {
    match word.load(Ordering::Relaxed) {
        RUNNING => Ok(()),
        reason => Err(stopped(reason)),
    }
}

#[cold]
fn stopped(reason: u32) -> Error {
    match reason {
        DEADLINE => Error::deadline_exceeded("the deadline passed before the run was complete"),
        _ => Error::cancelled("the run was cancelled"),
    }
}
