//! Runs bound kernels: phases in order, chunks of a phase in any order on the pool, scratch per
//! worker. Unsafe island: it hands the same session scratch to several workers, each its own part.
#![allow(unsafe_code, reason = "plays the caller's part in the contract of `Prepared::run`")]

use crate::{Pool, stop_word};
use pteron_core::{AlignedBuffer, Args, Bound, Error, Grid, Prepared, Result, Scratch, WorkerScratch};
use std::sync::atomic::AtomicU32;
pub use worker_times::{WorkerSpan, WorkerTimes};

/// Phases with less estimated work than this (nanoseconds) run on the caller alone.
const MIN_PARALLEL_NS: u64 = 20_000;
/// Chunks with more estimated work than this (nanoseconds) are worth a look at the clock each; of smaller ones
/// every sixteenth gets one.
const LOOK_NS: u32 = 10_000;
/// Each thread should get at least this much work (nanoseconds) to be worth waking.
const MIN_NS_PER_THREAD: u64 = 10_000;
/// The same two while workers spin, as they do between the steps of a call.
const MIN_PARALLEL_NS_AWAKE: u64 = 8_000;
const MIN_NS_PER_THREAD_AWAKE: u64 = 4_000;

/// `parts` of a phase, or one more (at most `most`) where they are few and odd: one of two threads would wait for the last.
pub(crate) fn even_parts(parts: usize, most: usize) -> usize {
    const FEW: usize = 8;
    if parts > 1 && parts < FEW && !parts.is_multiple_of(2) && parts < most { parts + 1 } else { parts }
}

/// The scratch memory of a session: one block per worker and one that all workers share. Sized once
/// from the largest need of any step, so that running allocates nothing.
#[derive(Debug)]
pub struct SessionScratch {
    workers: Vec<AlignedBuffer>,
    shared: AlignedBuffer,
}

impl SessionScratch {
    /// Scratch for `threads` workers and steps that need at most `largest` (see [`largest_scratch`]).
    /// A worker's part has a whole number of words of any size, whichever step asked for most of it.
    pub fn new(threads: usize, largest: Scratch) -> Result<Self> {
        let per_worker = largest.per_worker.checked_next_multiple_of(64).unwrap_or(usize::MAX);
        let mut workers = Vec::new();
        for _ in 0..threads.max(1) {
            workers.push(AlignedBuffer::zeroed(per_worker)?);
        }
        Ok(SessionScratch { workers, shared: AlignedBuffer::zeroed(largest.shared)? })
    }

    /// Workers it has room for.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Bytes in all.
    pub fn nbytes(&self) -> usize {
        self.workers.iter().map(AlignedBuffer::len).sum::<usize>() + self.shared.len()
    }

    fn shared_ptr(&self) -> *mut u8 {
        if self.shared.is_empty() { std::ptr::null_mut() } else { self.shared.as_ptr() }
    }

    /// The part of worker `index`.
    ///
    /// # Safety
    /// No other reference to that worker's part may be alive.
    #[inline(always)]
    unsafe fn worker(&self, index: usize) -> Result<WorkerScratch<'_>> {
        let buffer = self.workers.get(index).ok_or_else(|| Error::internal("a worker has no scratch"))?;
        // SAFETY: the buffer is valid for its length while `self` lives; exclusive by contract. An
        // empty buffer has an aligned dangling pointer, which is fine for an empty slice.
        let worker = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), buffer.len()) };
        Ok(WorkerScratch { worker, shared: self.shared_ptr() })
    }
}

/// The need that covers every one of `steps`.
pub fn largest_scratch(steps: impl IntoIterator<Item = Scratch>) -> Scratch {
    steps.into_iter().fold(Scratch::NONE, |a, b| Scratch {
        per_worker: a.per_worker.max(b.per_worker),
        shared: a.shared.max(b.shared),
    })
}

/// Where and how far a session runs its kernels.
#[derive(Clone, Copy)]
pub struct Executor<'a> {
    /// Threads to use.
    pub pool: &'a Pool,
    /// Most threads for one kernel, the caller included.
    pub max_threads: usize,
    /// Polled before every chunk; see [`stop_word`].
    pub stop: &'a AtomicU32,
    /// Asked by the calling thread, and by it alone, between chunks; an error stops the run. Not asked in calls
    /// that are one chunk.
    pub watch: Option<&'a dyn Fn() -> Result<()>>,
    /// Told when helpers work, in calls that somebody watches.
    pub workers: Option<&'a WorkerTimes>,
}

/// Lets the chunks of a region carry the question, which only the calling thread asks.
struct CallersQuestion<'a>(Option<&'a dyn Fn() -> Result<()>>);

// SAFETY: `run_parallel` asks on worker 0, which is the thread that called (`Pool::run`).
unsafe impl Sync for CallersQuestion<'_> {}

impl CallersQuestion<'_> {
    /// # Safety
    /// On the thread that called only.
    #[inline(always)]
    unsafe fn ask(&self, chunk: u32, chunk_ns: u32) -> Result<()> {
        match self.0 {
            Some(ask) if chunk_ns >= LOOK_NS || chunk & 15 == 15 => ask(),
            _ => Ok(()),
        }
    }
}

impl Executor<'_> {
    /// Runs every chunk of a bound call. Does not call [`Prepared::finish`].
    ///
    /// Errors: the first failing chunk's (in chunk order), cancellation, or an internal error for a
    /// panic on a pool thread.
    ///
    /// # Safety
    /// As [`Prepared::run`]: `bound`, `args` and `grid` are those of the last successful `bind`, and
    /// `scratch` is at least as large as [`Prepared::scratch`] says.
    #[inline]
    pub unsafe fn run_bound(
        &self,
        prepared: &dyn Prepared,
        bound: &Bound,
        args: &Args<'_>,
        grid: &Grid,
        scratch: &mut SessionScratch,
    ) -> Result<()> {
        if grid.phase_count() == 1 && grid.chunk_count(0) == 1 {
            stop_word::check(self.stop)?;
            // SAFETY: `&mut scratch` makes worker 0's part exclusive; the rest is the caller's contract.
            return unsafe { prepared.run(bound, args, 0, 0, &mut scratch.worker(0)?) };
        }
        for phase in 0..grid.phase_count() {
            let chunks = grid.chunk_count(phase);
            let threads = self.threads_for(chunks, grid.chunk_ns).min(scratch.threads());
            if threads > 1 {
                // SAFETY: `bound`, `args` and `grid` are those of one bind and the scratch is large enough,
                // as the caller promises.
                unsafe {
                    self.run_parallel(
                        prepared,
                        bound,
                        args,
                        (phase, chunks, grid.chunk_ns),
                        threads,
                        scratch,
                    )?
                };
                continue;
            }
            // SAFETY: `&mut scratch` makes worker 0's part exclusive to this thread.
            let mut own = unsafe { scratch.worker(0)? };
            let question = CallersQuestion(self.watch);
            for chunk in 0..chunks {
                stop_word::check(self.stop)?;
                // SAFETY: this is the thread that called.
                unsafe { question.ask(chunk, grid.chunk_ns)? };
                // SAFETY: the chunk is one of the grid, and worker 0's scratch is this thread's alone by
                // `&mut scratch`; the caller promises the rest.
                unsafe { prepared.run(bound, args, phase, chunk, &mut own)? };
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`Executor::run_bound`].
    unsafe fn run_parallel(
        &self,
        prepared: &dyn Prepared,
        bound: &Bound,
        args: &Args<'_>,
        (phase, chunks, chunk_ns): (u32, u32, u32),
        threads: usize,
        scratch: &mut SessionScratch,
    ) -> Result<()> {
        let scratch = &*scratch;
        let (pool, stop, question) = (self.pool, self.stop, &CallersQuestion(self.watch));
        let run = |chunk, worker| {
            stop_word::check(stop)?;
            if worker == 0 {
                // SAFETY: worker 0 is the thread that called.
                unsafe { question.ask(chunk, chunk_ns)? };
            }
            // SAFETY: the pool gives a worker index to one thread at a time, and the exclusive borrow of
            // the scratch is held by our caller; the rest is the contract of `run_bound`.
            unsafe { prepared.run(bound, args, phase, chunk, &mut scratch.worker(worker)?) }
        };
        let Some(times) = self.workers else { return pool.run(threads, chunks, &run) };
        let result = pool.run(threads, chunks, &|chunk, worker| times.chunk(worker, || run(chunk, worker)));
        times.end_phase();
        result
    }

    /// Threads that a phase is worth.
    #[inline]
    fn threads_for(&self, chunks: u32, chunk_ns: u32) -> usize {
        let most = self.max_threads.min(self.pool.threads()).min(chunks as usize);
        let work = u64::from(chunks) * u64::from(chunk_ns);
        // The pool is asked, and counts that, only where its answer matters.
        if most < 2 || work < MIN_PARALLEL_NS_AWAKE {
            return 1;
        }
        most.min(threads_worth(work, self.pool.is_awake()))
    }
}

/// Threads that so much work (nanoseconds) is worth; `is_awake`: nobody has to be woken.
#[inline]
fn threads_worth(work: u64, is_awake: bool) -> usize {
    let (least, of_thread) = match is_awake {
        true => (MIN_PARALLEL_NS_AWAKE, MIN_NS_PER_THREAD_AWAKE),
        false => (MIN_PARALLEL_NS, MIN_NS_PER_THREAD),
    };
    if work < least { 1 } else { usize::try_from(work / of_thread).unwrap_or(usize::MAX) }
}

mod worker_times;

#[cfg(test)]
mod tests;
