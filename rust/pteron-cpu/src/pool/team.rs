//! The threads behind a pool. Unsafe island: workers reach a region on the caller's stack through a
//! raw pointer.
//!
//! Everything turns on one word, the [`Ticket`]: which chunks are unclaimed, and for whom. A worker with an index
//! below its limit claims the first or the last of these with compare-exchange. Whoever succeeds
//! holds a chunk of the region that is current at that moment, because a region ends only when every
//! one of its chunks was claimed *and* finished; so the region pointer is read after the claim and
//! is valid until the claimed chunk is reported as done.
//!
//! The caller and every other worker claim from the front, the others from the back. Chunks lie side by side in memory,
//! and so do those of the step before: half of the threads stay with either half of the rows of a model, in caches
//! of their own. A line that another processor wrote takes several nanoseconds.

use super::primitives::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, JoinHandle, Mutex, Ordering, Thread, current, park,
    spawn, spin_until, store_then_load,
};
use super::region::{ParallelRegion, Work};
use pteron_core::Result;
use std::ptr;

/// Questions whether a worker is awake that are answered with no, once callers had to sleep twice for workers within so many
/// questions as [`SUSPECT`] says: another process has the processor of one for a part of the time.
const LATE: u32 = 20_000;
/// See [`LATE`].
const SUSPECT: u32 = 2_000;

/// Chunks that a region can have; more are the caller's alone.
const MOST_CHUNKS: u32 = (1 << 24) - 1;

/// `limit << 48 | end << 24 | start`: chunks `start..end` are unclaimed, for workers below `limit`.
#[derive(Clone, Copy)]
struct Ticket(u64);

impl Ticket {
    fn new(limit: usize, chunks: u32) -> Ticket {
        Ticket((limit as u64) << 48 | u64::from(chunks) << 24)
    }

    fn start(self) -> u32 {
        self.0 as u32 & MOST_CHUNKS
    }

    fn end(self) -> u32 {
        (self.0 >> 24) as u32 & MOST_CHUNKS
    }

    /// Is there a chunk for `worker`?
    fn has_chunk_for(self, worker: usize) -> bool {
        self.start() != self.end() && worker < (self.0 >> 48) as usize
    }

    /// The chunk that `worker` takes, and the ticket without it.
    fn claim(self, worker: usize) -> Option<(u32, Ticket)> {
        match self.has_chunk_for(worker) {
            false => None,
            true if worker.is_multiple_of(2) => Some((self.start(), Ticket(self.0 + 1))),
            true => Some((self.end() - 1, Ticket(self.0 - (1 << 24)))),
        }
    }
}

/// State that the workers share with the callers.
struct Shared {
    /// A [`Ticket`]; no region while it has no chunks.
    ticket: AtomicU64,
    /// The current region. Read only between a claim and its completion.
    region: AtomicPtr<ParallelRegion<'static>>,
    /// Chunks of the current region that are not finished.
    pending: AtomicU32,
    /// One region at a time.
    is_busy: AtomicBool,
    /// Does the caller sleep until `pending` is zero?
    is_caller_waiting: AtomicBool,
    caller: Mutex<Option<Thread>>,
    /// Of [`LATE`] and [`SUSPECT`], what is left.
    late: AtomicU32,
    suspect: AtomicU32,
    /// Parked workers, by worker index minus one.
    asleep: Vec<AtomicBool>,
    is_ending: AtomicBool,
}

/// Started workers of one process.
pub(super) struct Team {
    pid: u32,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    /// Starts `threads - 1` workers; fewer if the system gives no more, `None` if it gives none.
    pub(super) fn start(pid: u32, threads: usize) -> Option<Team> {
        let wanted = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            ticket: AtomicU64::new(0),
            region: AtomicPtr::new(ptr::null_mut()),
            pending: AtomicU32::new(0),
            is_busy: AtomicBool::new(false),
            is_caller_waiting: AtomicBool::new(false),
            caller: Mutex::new(None),
            late: AtomicU32::new(0),
            suspect: AtomicU32::new(0),
            asleep: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
            is_ending: AtomicBool::new(false),
        });
        let mut workers = Vec::with_capacity(wanted);
        for index in 1..threads {
            let shared = shared.clone();
            match spawn(format!("pteron-{index}"), move || shared.work_until_end(index)) {
                Ok(handle) => workers.push(handle),
                Err(_) => break,
            }
        }
        let team = Team { pid, shared, workers };
        (!team.workers.is_empty()).then_some(team)
    }

    /// The process that started the threads.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Does the first worker spin, and was none late of late?
    pub(super) fn is_awake(&self) -> bool {
        // Two callers may count one question; it is about how many.
        let is_over = |left: &AtomicU32| match left.load(Ordering::Relaxed) {
            0 => true,
            questions => {
                left.store(questions - 1, Ordering::Relaxed);
                false
            }
        };
        is_over(&self.shared.suspect);
        if !is_over(&self.shared.late) {
            return false;
        }
        self.shared.asleep.first().is_some_and(|asleep| !asleep.load(Ordering::Relaxed))
    }

    /// Runs a region on up to `limit` threads; `None` when another region is running, or for too many chunks.
    pub(super) fn run(&self, limit: usize, chunks: u32, work: Work<'_>) -> Option<Result<()>> {
        let shared = &*self.shared;
        if chunks == 0 || chunks > MOST_CHUNKS || shared.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let region = ParallelRegion::new(work);
        shared.pending.store(chunks, Ordering::Relaxed);
        // The lifetime is taken off the type only: the region is left when `pending` is zero, and no
        // worker touches it after it has reported its last chunk.
        shared.region.store(ptr::from_ref(&region).cast_mut().cast(), Ordering::Relaxed);
        shared.ticket.store(Ticket::new(limit, chunks).0, Ordering::SeqCst);
        store_then_load();
        for (worker, asleep) in self.workers.iter().zip(&shared.asleep).take(limit - 1) {
            if asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        while shared.run_one(0) {}
        shared.wait_for_claimed_chunks();
        shared.is_busy.store(false, Ordering::Release);
        Some(region.into_result())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker cannot panic (chunks are caught), so there is nothing to report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Claims a chunk for `worker`.
    #[inline]
    fn claim(&self, worker: usize) -> Option<u32> {
        let mut seen = self.ticket.load(Ordering::Acquire);
        loop {
            let (chunk, left) = Ticket(seen).claim(worker)?;
            match self.ticket.compare_exchange_weak(seen, left.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(chunk),
                Err(now) => seen = now,
            }
        }
    }

    /// Claims and runs one chunk; false when there is none for `worker`.
    fn run_one(&self, worker: usize) -> bool {
        let Some(chunk) = self.claim(worker) else {
            return false;
        };
        let region = self.region.load(Ordering::Relaxed);
        // SAFETY: the chunk just claimed is unfinished, so `Team::run` has not returned and its
        // region is alive; the claim synchronises with the store of the ticket, which came after
        // the store of `region`. Regions are shared between threads by design (`Work` is `Sync`,
        // the rest are atomics and a mutex).
        let region = unsafe { &*region };
        region.run(chunk, worker);
        // From here on the region may be gone.
        let is_last = self.pending.fetch_sub(1, Ordering::SeqCst) == 1;
        store_then_load();
        if is_last
            && worker != 0
            && self.is_caller_waiting.load(Ordering::SeqCst)
            && let Some(caller) = self.caller.lock().unwrap_or_else(|p| p.into_inner()).as_ref()
        {
            caller.unpark();
        }
        true
    }

    /// Spins, then sleeps, until the chunks that workers have claimed are finished.
    fn wait_for_claimed_chunks(&self) {
        if spin_until(|| self.pending.load(Ordering::Acquire) == 0) {
            return;
        }
        if self.suspect.swap(SUSPECT, Ordering::Relaxed) > 0 {
            self.late.store(LATE, Ordering::Relaxed);
        }
        *self.caller.lock().unwrap_or_else(|p| p.into_inner()) = Some(current());
        self.is_caller_waiting.store(true, Ordering::SeqCst);
        store_then_load();
        while self.pending.load(Ordering::SeqCst) != 0 {
            park();
        }
        self.is_caller_waiting.store(false, Ordering::SeqCst);
    }

    fn has_work_for(&self, worker: usize, order: Ordering) -> bool {
        Ticket(self.ticket.load(order)).has_chunk_for(worker)
    }

    /// The life of worker `index` (from 1).
    fn work_until_end(&self, index: usize) {
        let Some(asleep) = self.asleep.get(index - 1) else {
            return;
        };
        loop {
            while self.run_one(index) {}
            let is_ending = || self.is_ending.load(Ordering::Relaxed);
            if spin_until(|| self.has_work_for(index, Ordering::Relaxed) || is_ending()) {
                if is_ending() {
                    return;
                }
                continue;
            }
            // Announced before the last look: whoever stores a ticket afterwards sees it and unparks.
            asleep.store(true, Ordering::SeqCst);
            store_then_load();
            while !self.has_work_for(index, Ordering::SeqCst) {
                if self.is_ending.load(Ordering::SeqCst) {
                    return;
                }
                park();
            }
            asleep.store(false, Ordering::SeqCst);
        }
    }
}
