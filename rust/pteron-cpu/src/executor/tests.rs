use super::*;
use pteron_core::{BindArgs, ErrorKind, Value};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two phases: every chunk of the first writes its square into shared scratch, every chunk of the
/// second adds all of them up, so it sees only finished work.
struct TwoPhases {
    chunks: usize,
    chunk_ns: usize,
    sums: Vec<AtomicUsize>,
    fail_at: Option<u32>,
}

impl Prepared for TwoPhases {
    fn name(&self) -> &str {
        "test.two_phases"
    }
    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 64, shared: self.chunks * 8 }
    }
    fn bind(&self, _: &mut BindArgs<'_>, _: &mut Bound) -> Result<Grid> {
        Ok(Grid::phases(&[self.chunks, self.chunks], self.chunk_ns))
    }
    unsafe fn run(
        &self,
        _: &Bound,
        _: &Args<'_>,
        phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        if self.fail_at == Some(chunk) {
            return Err(Error::kernel("on purpose"));
        }
        scratch.worker.fill(chunk as u8);
        let shared = scratch.shared.cast::<u64>();
        if phase == 0 {
            // SAFETY: the shared scratch has one word per chunk.
            unsafe { shared.add(chunk as usize).write(u64::from(chunk) * u64::from(chunk)) };
        } else {
            // SAFETY: as above; nothing writes in this phase.
            let sum: u64 = (0..self.chunks).map(|i| unsafe { shared.add(i).read() }).sum();
            self.sums[chunk as usize].fetch_add(sum as usize, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn run(kernel: &TwoPhases, pool: &Pool, max_threads: usize, stop: u32) -> Result<()> {
    let mut values: Vec<Value> = vec![];
    let mut bound = kernel.new_bound();
    // SAFETY: there are no tensors.
    let grid = kernel.bind(&mut unsafe { BindArgs::new(&mut values, &[]) }, &mut bound)?;
    let mut scratch = SessionScratch::new(max_threads, largest_scratch([kernel.scratch(), Scratch::NONE]))?;
    let stop = AtomicU32::new(stop);
    let executor = Executor { pool, max_threads, stop: &stop, watch: None, workers: None };
    // SAFETY: bound just now, scratch of the declared size, no tensors.
    unsafe { executor.run_bound(kernel, &bound, &Args::new(&values, &[]), &grid, &mut scratch) }
}

fn two_phases(chunks: usize, chunk_ns: usize) -> TwoPhases {
    TwoPhases { chunks, chunk_ns, sums: (0..chunks).map(|_| AtomicUsize::new(0)).collect(), fail_at: None }
}

#[test]
fn phases_are_ordered_with_any_number_of_threads() {
    let pool = Pool::new(3);
    for (max_threads, chunk_ns) in [(1, 1_000_000), (2, 1_000_000), (3, 1_000_000), (3, 1)] {
        for chunks in [1usize, 2, 7, 40] {
            let kernel = two_phases(chunks, chunk_ns);
            run(&kernel, &pool, max_threads, stop_word::RUNNING).unwrap();
            let expected: usize = (0..chunks).map(|i| i * i).sum();
            assert!(kernel.sums.iter().all(|s| s.load(Ordering::Relaxed) == expected));
        }
    }
}

#[test]
fn small_work_stays_on_the_caller() {
    let pool = Pool::new(4);
    let stop = AtomicU32::new(0);
    let executor = Executor { pool: &pool, max_threads: 4, stop: &stop, watch: None, workers: None };
    assert_eq!(executor.threads_for(100, 10), 1);
    assert_eq!(executor.threads_for(1, 10_000_000), 1);
    assert_eq!(executor.threads_for(10, 2_500), 2);
    assert_eq!(executor.threads_for(10, 1_000_000), 4);
    assert_eq!(executor.threads_for(3, 1_000_000), 3);
    let worth = |work| [false, true].map(|is_awake| threads_worth(work, is_awake));
    assert_eq!(worth(7_999), [1, 1]);
    assert_eq!(worth(8_000), [1, 2]);
    assert_eq!(worth(20_000), [2, 5]);
}

#[test]
fn few_parts_are_even() {
    let even = |parts| even_parts(parts, 7);
    assert_eq!([0, 1, 2, 3, 5, 6, 7, 9].map(even), [0, 1, 2, 4, 6, 6, 7, 9]);
}

#[test]
fn a_stop_word_and_errors_end_the_run() {
    let pool = Pool::new(2);
    for threads in [1, 2] {
        let kernel = two_phases(8, 1_000_000);
        assert_eq!(
            run(&kernel, &pool, threads, stop_word::CANCELLED).unwrap_err().kind(),
            ErrorKind::Cancelled
        );
        assert_eq!(
            run(&kernel, &pool, threads, stop_word::DEADLINE).unwrap_err().kind(),
            ErrorKind::DeadlineExceeded
        );
        assert!(kernel.sums.iter().all(|s| s.load(Ordering::Relaxed) == 0));
        let kernel = TwoPhases { fail_at: Some(3), ..two_phases(8, 1_000_000) };
        assert!(run(&kernel, &pool, threads, 0).unwrap_err().to_string().contains("on purpose"));
        assert!(
            kernel.sums.iter().all(|s| s.load(Ordering::Relaxed) == 0),
            "phase 2 ran after a failed phase 1"
        );
    }
}

#[test]
fn scratch_is_the_maximum_over_steps() {
    let steps = [Scratch { per_worker: 10, shared: 300 }, Scratch { per_worker: 20, shared: 5 }];
    let scratch = SessionScratch::new(3, largest_scratch(steps)).unwrap();
    assert_eq!((scratch.threads(), scratch.nbytes()), (3, 3 * 64 + 300));
}
