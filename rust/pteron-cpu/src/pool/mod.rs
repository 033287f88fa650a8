//! The thread pool: one parallel region at a time, chunks claimed from both ends, the caller takes
//! part and can finish everything alone.
//!
//! Why not a general pool: a kernel call of 8 µs has to pay off on two threads, so handing it out
//! may cost a microsecond at most. Workers spin for up to 50 µs after a region and then park. A
//! worker that does not get a processor in time claims nothing and nobody waits for it. A busy pool
//! (another session, or a chunk that starts a region of its own) means that the caller runs alone.
//!
//! Results never depend on who ran what: kernels fix their chunks by shape, and of several failing
//! chunks the error of the first in order is returned.
//!
//! Unsafe island (`team.rs`).
#![allow(unsafe_code, reason = "a caller's stack is lent to threads until the call returns")]

mod environment;
mod primitives;
mod region;
mod team;

pub use environment::{available_processors, default_threads, threads_of_environment};
use pteron_core::Result;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use team::Team;

/// Most threads a pool may have; more are cut.
pub const MAX_THREADS: usize = 1024;

/// A pool of threads for kernels. Threads start with the first parallel region.
pub struct Pool {
    threads: usize,
    /// Null until the first parallel region. Replaced (never freed) in a forked child, where the
    /// threads of the parent do not exist.
    team: AtomicPtr<Team>,
}

impl Pool {
    /// A pool that runs regions on up to `threads` threads, the caller included.
    pub fn new(threads: usize) -> Pool {
        Pool { threads: threads.clamp(1, MAX_THREADS), team: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The pool that all models of the process share, with [`default_threads`] threads.
    pub fn shared() -> &'static Pool {
        static SHARED: OnceLock<Pool> = OnceLock::new();
        SHARED.get_or_init(|| Pool::new(default_threads()))
    }

    /// Threads a region can have, the caller included.
    #[inline(always)]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(chunk, worker)` once for every chunk in `0..chunks` on up to `max_threads` threads.
    /// `worker` is less than `max_threads` and belongs to one thread at a time; the caller is worker 0.
    ///
    /// Returns the error of the first chunk (in chunk order) that failed; chunks after it may be
    /// skipped. A panic in a chunk becomes an internal error.
    pub fn run(
        &self,
        max_threads: usize,
        chunks: u32,
        work: &(dyn Fn(u32, usize) -> Result<()> + Sync),
    ) -> Result<()> {
        let limit = max_threads.min(self.threads).min(chunks as usize);
        if limit > 1
            && let Some(result) = self.team().and_then(|team| team.run(limit, chunks, work))
        {
            return result;
        }
        for chunk in 0..chunks {
            region::run_chunk(work, chunk, 0)?;
        }
        Ok(())
    }

    /// Does the first worker spin, and has no caller had to sleep for one of late? Then a region begins without waking anybody, and
    /// ends soon.
    #[inline]
    pub fn is_awake(&self) -> bool {
        // SAFETY: a non-null pointer comes from `Box::into_raw` in `team` and is freed only in `drop`.
        unsafe { self.team.load(Ordering::Acquire).as_ref() }.is_some_and(Team::is_awake)
    }

    /// The running team, started on first use and again in a forked child; `None` when the system
    /// refuses threads, and then callers run alone.
    fn team(&self) -> Option<&Team> {
        let pid = std::process::id();
        loop {
            let seen = self.team.load(Ordering::Acquire);
            // SAFETY: a non-null pointer comes from `Box::into_raw` below and is freed only in `drop`.
            if let Some(team) = unsafe { seen.as_ref() }
                && team.pid() == pid
            {
                return Some(team);
            }
            let fresh = Box::into_raw(Box::new(Team::start(pid, self.threads)?));
            match self.team.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // A team of the parent process is leaked: its threads are gone, and whatever lock they
                // held at the fork stays held.
                // SAFETY: `fresh` is valid and now owned by `self`.
                Ok(_) => return Some(unsafe { &*fresh }),
                // SAFETY: another thread was faster, nobody has seen `fresh`.
                Err(_) => drop(unsafe { Box::from_raw(fresh) }),
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let team = *self.team.get_mut();
        if !team.is_null() {
            // SAFETY: made by `Box::into_raw` in `team`, and `&mut self` excludes other users.
            let team = unsafe { Box::from_raw(team) };
            if team.pid() != std::process::id() {
                std::mem::forget(team);
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads)
    }
}

#[cfg(test)]
mod tests;
