//! What the hand-off is made of. `rust/pteron-pool-model` compiles `team.rs` and `region.rs` with loom's counterparts
//! of these instead, so both name nothing else of `std`'s threads and atomics.

pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Mutex};
pub(super) use std::thread::{JoinHandle, Thread, current, park};

use std::time::{Duration, Instant};

/// How long an idle worker spins before it parks, and a caller before it sleeps for the last chunk.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// A thread with a name; an error when the system has none.
pub(super) fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(work)
}

/// Between a store and a load of which one thread must see the other's. Both are sequentially consistent, which is
/// enough; loom takes such accesses for weaker ones and gets a fence here.
#[inline(always)]
pub(super) fn store_then_load() {}

/// Spins for up to [`SPIN`]; true as soon as `is_done` is.
pub(super) fn spin_until(is_done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..64 {
            if is_done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() >= SPIN {
            return is_done();
        }
    }
}
