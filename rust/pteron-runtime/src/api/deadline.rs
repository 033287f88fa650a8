//! One thread that watches the deadlines of all runs and sets their stop words.
//!
//! The step loop polls one word; reading a clock per step would cost more than the step. The thread
//! starts with the first deadline and starts again in a forked child, where the parent's is gone.

use crate::CancelHandle;
use crate::api::fork_lock::ForkLock;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Watch {
    // (when, number) → whom to stop.
    pending: Mutex<State>,
    is_changed: Condvar,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<(Instant, u64), CancelHandle>,
    next: u64,
}

/// A registered deadline; dropping it takes the deadline back.
pub(crate) struct Deadline {
    watch: Arc<Watch>,
    key: (Instant, u64),
    // The process whose thread watches it.
    process: u32,
}

impl Deadline {
    /// Stops `run` at `when`. `None` when no thread can be had; the caller then checks the clock itself.
    pub(crate) fn set(when: Instant, run: &CancelHandle) -> Option<Deadline> {
        if when <= Instant::now() {
            // A short run would be over before the thread looked.
            run.expire();
        }
        let watch = watch()?;
        let key = {
            let mut state = watch.pending.lock().ok()?;
            let key = (when, state.next);
            state.next = state.next.wrapping_add(1);
            state.runs.insert(key, run.clone());
            key
        };
        watch.is_changed.notify_one();
        Some(Deadline { watch, key, process: std::process::id() })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // In a child that was forked during the run (by a delegate) nobody watches, and the lock may be held for ever.
        if self.process == std::process::id()
            && let Ok(mut state) = self.watch.pending.lock()
        {
            state.runs.remove(&self.key);
        }
    }
}

/// How long a forked child waits for what a thread of the parent may have held.
const PATIENCE: Duration = Duration::from_secs(1);

/// The watch of this process, with its thread running; `None` where there is none to be had.
fn watch() -> Option<Arc<Watch>> {
    // The process that owns the watch's thread, and the watch.
    type Owned = (u32, Arc<Watch>);
    static WATCH: ForkLock<Option<Owned>> = ForkLock::new(None);
    let mut slot = WATCH.lock_within(PATIENCE)?;
    let pid = std::process::id();
    if let Some((owner, watch)) = slot.as_ref()
        && *owner == pid
    {
        return Some(watch.clone());
    }
    let watch = Arc::new(Watch::default());
    let for_thread = watch.clone();
    std::thread::Builder::new().name("pteron-deadline".into()).spawn(move || run(&for_thread)).ok()?;
    *slot = Some((pid, watch.clone()));
    Some(watch)
}

fn run(watch: &Watch) {
    let Ok(mut state) = watch.pending.lock() else { return };
    loop {
        let now = Instant::now();
        while let Some(first) = state.runs.first_entry() {
            if first.key().0 > now {
                break;
            }
            first.remove().expire();
        }
        let wait = match state.runs.first_key_value() {
            Some(((when, _), _)) => when.saturating_duration_since(now),
            None => Duration::from_secs(3600),
        };
        match watch.is_changed.wait_timeout(state, wait) {
            Ok((next, _)) => state = next,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::ErrorKind;

    #[test]
    fn deadlines_fire_in_order_and_can_be_taken_back() {
        let (a, b, c) = (CancelHandle::new(), CancelHandle::new(), CancelHandle::new());
        let _calls = [&a, &b, &c].map(CancelHandle::begin_call);
        let start = Instant::now();
        let _far = Deadline::set(start + Duration::from_secs(60), &c).unwrap();
        let _a = Deadline::set(start + Duration::from_millis(20), &a).unwrap();
        drop(Deadline::set(start + Duration::from_millis(10), &b).unwrap());
        while a.is_running() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(b.is_running() && c.is_running());
        assert_eq!(a.error().kind(), ErrorKind::DeadlineExceeded);
    }
}
