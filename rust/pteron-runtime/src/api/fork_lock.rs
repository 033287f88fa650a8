//! A lock for short work whose holder may be gone: in a forked child the threads of the parent do not exist, and what
//! one of them held at the fork stays held.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// A lock that does not wait for ever for a holder that a fork left behind.
pub(crate) struct ForkLock<T> {
    mutex: Mutex<T>,
    // Where it was first taken; zero before.
    process: AtomicU32,
}

impl<T> ForkLock<T> {
    /// A free lock.
    pub(crate) const fn new(value: T) -> Self {
        ForkLock { mutex: Mutex::new(value), process: AtomicU32::new(0) }
    }

    /// Waits as long as it takes in the process where the lock was first taken, and for `patience` in one that was
    /// forked from it. `None` after that, and when a holder panicked.
    pub(crate) fn lock_within(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        if self.process.load(Ordering::Relaxed) == 0 {
            // Asking for the process is a system call: once, and where the lock is held.
            let this = std::process::id();
            let _ = self.process.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed);
        }
        match self.mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(_)) => return None,
            Err(TryLockError::WouldBlock) => {}
        }
        if self.process.load(Ordering::Relaxed) == std::process::id() {
            return self.mutex.lock().ok();
        }
        let start = Instant::now();
        while start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
            match self.mutex.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(_)) => return None,
                Err(TryLockError::WouldBlock) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_in_another_process_is_waited_for_in_vain_but_not_for_ever() {
        let lock = ForkLock::new(1);
        let held = lock.lock_within(Duration::ZERO).unwrap();
        // As a forked child finds it: taken elsewhere, by nobody here.
        lock.process.store(u32::MAX, Ordering::Relaxed);
        assert!(lock.lock_within(Duration::ZERO).is_none());
        assert!(lock.lock_within(Duration::from_millis(5)).is_none());
        drop(held);
        assert_eq!(*lock.lock_within(Duration::ZERO).unwrap(), 1);
    }

    #[test]
    fn threads_of_one_process_wait_for_each_other() {
        let lock = ForkLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        *lock.lock_within(Duration::ZERO).unwrap() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock_within(Duration::ZERO).unwrap(), 400);
    }
}
