//! When the threads of the pool worked on the kernels of a call: what profiles show beside the steps of the caller.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A helper's part in one phase of a kernel: from the beginning of its first chunk to the end of its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSpan {
    /// The thread: 1 and more; worker 0 is the thread that calls, whose time is that of the step.
    pub worker: usize,
    /// Since the origin.
    pub begin: Duration,
    /// Since the origin.
    pub end: Duration,
}

/// Nanoseconds since the origin of a worker's first and last reading of the clock in this phase.
#[derive(Debug)]
struct Open {
    begin: AtomicU64,
    end: AtomicU64,
}

/// No chunk of this phase yet.
const NOT_BEGUN: u64 = u64::MAX;

/// Collects spans while kernels run. Readings of the clock are the helpers' own, two for each chunk.
#[derive(Debug)]
pub struct WorkerTimes {
    origin: Instant,
    open: Vec<Open>,
    spans: Mutex<Vec<WorkerSpan>>,
}

impl WorkerTimes {
    /// For calls on up to `threads` threads, the calling one included; times count from `origin`.
    pub fn since(origin: Instant, threads: usize) -> Self {
        let open = || Open { begin: AtomicU64::new(NOT_BEGUN), end: AtomicU64::new(0) };
        WorkerTimes { origin, open: (1..threads).map(|_| open()).collect(), spans: Mutex::new(Vec::new()) }
    }

    /// The spans since the last time that they were asked for, in order of phases.
    pub fn take(&self) -> Vec<WorkerSpan> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a chunk on a worker.
    pub(super) fn chunk<T>(&self, worker: usize, run: impl FnOnce() -> T) -> T {
        let Some(open) = worker.checked_sub(1).and_then(|helper| self.open.get(helper)) else { return run() };
        let now = || u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // No thread but this one uses them until the phase has ended, which orders what it wrote.
        if open.begin.load(Ordering::Relaxed) == NOT_BEGUN {
            open.begin.store(now(), Ordering::Relaxed);
        }
        let result = run();
        open.end.store(now(), Ordering::Relaxed);
        result
    }

    /// A phase has ended: no thread runs a chunk of it.
    pub(super) fn end_phase(&self) {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        for (helper, open) in self.open.iter().enumerate() {
            let begin = open.begin.swap(NOT_BEGUN, Ordering::Relaxed);
            if begin != NOT_BEGUN {
                let [begin, end] = [begin, open.end.load(Ordering::Relaxed)].map(Duration::from_nanos);
                spans.push(WorkerSpan { worker: helper + 1, begin, end });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_a_span_for_each_helper_that_worked() {
        let times = WorkerTimes::since(Instant::now(), 3);
        for worker in [0, 2, 2, 7] {
            assert_eq!(times.chunk(worker, || worker), worker);
        }
        times.end_phase();
        times.end_phase();
        times.chunk(1, || ());
        times.end_phase();
        let spans = times.take();
        assert_eq!(spans.iter().map(|s| s.worker).collect::<Vec<_>>(), [2, 1]);
        assert!(spans.iter().all(|s| s.begin <= s.end) && spans[0].end <= spans[1].begin);
        assert!(times.take().is_empty());
    }
}
