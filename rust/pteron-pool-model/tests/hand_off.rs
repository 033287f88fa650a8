//! The pool's hand-off (`rust/pteron-cpu/src/pool/team.rs`, `region.rs`) over loom: every order in which the steps of its
//! threads can come, up to a number of preemptions, and every value that a relaxed load may then see.
//!
//! What must hold in each: every chunk runs once; what chunks wrote is what the caller reads (loom's cells report a
//! race otherwise); nobody sleeps for ever (loom reports a deadlock); the first error in chunk order comes out; threads end
//! with their team. Spinning is one look here, so that both its outcomes, found and gone to sleep, are tried.

/// Loom's counterparts of the pool's own `primitives.rs`.
mod primitives {
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
    pub use loom::sync::{Arc, Mutex};
    pub use loom::thread::{JoinHandle, Thread, current, park};

    pub fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        loom::thread::Builder::new().name(name).spawn(work)
    }

    pub fn store_then_load() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    pub fn spin_until(is_done: impl Fn() -> bool) -> bool {
        is_done()
    }
}

#[path = "../../pteron-cpu/src/pool/region.rs"]
mod region;
#[path = "../../pteron-cpu/src/pool/team.rs"]
mod team;

use loom::cell::UnsafeCell;
use pteron_core::{Error, Result};
use team::Team;

/// What the chunks of a region write: each its own cell.
struct Cells(Vec<UnsafeCell<u32>>);

// SAFETY: loom's cells report every access that is not ordered with one that writes.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(chunks: u32) -> Cells {
        Cells((0..chunks).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, chunk: u32) {
        // SAFETY: loom checks that nobody else looks.
        self.0[chunk as usize].with_mut(|cell| unsafe { *cell += 1 });
    }

    fn sum(&self) -> u32 {
        // SAFETY: loom checks that nobody writes.
        self.0.iter().map(|cell| cell.with(|cell| unsafe { *cell })).sum()
    }
}

/// Tries all orders with at most `preemptions` switches of a thread that could have gone on.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// A region whose chunks each count once; did the team run it, or was it busy?
fn run(team: &Team, limit: usize, chunks: u32) -> bool {
    let cells = Cells::new(chunks);
    let result = team.run(limit, chunks, &|chunk, worker| {
        assert!(worker < limit);
        cells.add(chunk);
        Ok(())
    });
    match result {
        Some(result) => {
            result.unwrap();
            assert_eq!(cells.sum(), chunks, "each chunk runs once");
            true
        }
        None => {
            assert_eq!(cells.sum(), 0, "a busy team runs nothing");
            false
        }
    }
}

#[test]
fn one_region_on_two_threads() {
    model(3, || {
        let team = Team::start(1, 2).unwrap();
        assert!(run(&team, 2, 2));
    });
}

#[test]
fn one_region_on_three_threads() {
    model(2, || {
        let team = Team::start(1, 3).unwrap();
        assert!(run(&team, 3, 2));
    });
}

#[test]
fn regions_one_after_the_other() {
    model(2, || {
        let team = Team::start(1, 2).unwrap();
        assert!(run(&team, 2, 2));
        // Whatever a caller hears of the worker, the next region runs.
        let limit = if team.is_awake() { 2 } else { 1 };
        assert!(run(&team, limit, 1));
    });
}

#[test]
fn a_limit_keeps_workers_out() {
    model(2, || {
        let team = Team::start(1, 3).unwrap();
        assert!(run(&team, 2, 2));
    });
}

#[test]
fn two_callers() {
    model(2, || {
        let team = primitives::Arc::new(Team::start(1, 2).unwrap());
        let other = {
            let team = team.clone();
            loom::thread::spawn(move || run(&team, 2, 1))
        };
        let is_first = run(&team, 2, 1);
        let is_second = other.join().unwrap();
        assert!(is_first || is_second, "one of them had the team");
    });
}

#[test]
fn the_first_error_comes_out() {
    fn fails(chunk: u32, _: usize) -> Result<()> {
        Err(Error::kernel(format!("chunk {chunk}")))
    }
    model(2, || {
        let team = Team::start(1, 2).unwrap();
        let error = team.run(2, 2, &fails).unwrap().unwrap_err();
        assert_eq!(error.detail().message, "chunk 0");
        assert_eq!(team.pid(), 1);
    });
}

#[test]
fn a_team_without_work_ends() {
    model(3, || drop(Team::start(1, 3).unwrap()));
}
