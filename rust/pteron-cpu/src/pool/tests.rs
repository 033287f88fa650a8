use super::primitives::SPIN;
use super::*;
use pteron_core::{Error, ErrorKind};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

#[test]
fn every_chunk_runs_once_and_workers_stay_below_the_limit() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads);
        for round in 0..2000u32 {
            let chunks = round % 17;
            let limit = 1 + round as usize % threads;
            let counts: Vec<AtomicU32> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
            let in_use: Vec<AtomicU32> = (0..limit).map(|_| AtomicU32::new(0)).collect();
            pool.run(limit, chunks, &|chunk, worker| {
                assert_eq!(in_use[worker].fetch_add(1, Ordering::SeqCst), 0, "a worker index is shared");
                counts[chunk as usize].fetch_add(1, Ordering::SeqCst);
                in_use[worker].fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
            assert!(counts.iter().all(|c| c.load(Ordering::SeqCst) == 1), "{threads} threads, round {round}");
        }
    }
}

#[test]
fn two_threads_really_work_side_by_side() {
    let pool = Pool::new(2);
    let arrived = AtomicUsize::new(0);
    // Each of the two chunks waits for the other: one thread alone would give up.
    pool.run(2, 2, &|_, _| {
        arrived.fetch_add(1, Ordering::SeqCst);
        let start = std::time::Instant::now();
        while arrived.load(Ordering::SeqCst) < 2 {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(Error::internal("the second thread never came"));
            }
            std::thread::yield_now();
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn parked_workers_wake_up() {
    let pool = Pool::new(2);
    let seen = AtomicUsize::new(0);
    for _ in 0..20 {
        std::thread::sleep(SPIN * 4);
        pool.run(2, 4, &|_, _| {
            seen.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(200));
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(seen.load(Ordering::SeqCst), 80);
}

#[test]
fn the_first_error_in_chunk_order_wins() {
    let pool = Pool::new(3);
    for _ in 0..300 {
        let error = pool
            .run(3, 40, &|chunk, _| {
                if chunk >= 7 { Err(Error::kernel(format!("chunk {chunk}"))) } else { Ok(()) }
            })
            .unwrap_err();
        assert_eq!(error.detail().message, "chunk 7");
    }
}

#[test]
fn a_panic_becomes_an_error_and_the_pool_lives_on() {
    let pool = Pool::new(2);
    for threads in [1, 2] {
        let error =
            pool.run(threads, 8, &|chunk, _| if chunk == 5 { panic!("boom") } else { Ok(()) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("boom"), "{error}");
        pool.run(threads, 8, &|_, _| Ok(())).unwrap();
    }
}

#[test]
fn a_busy_pool_means_the_caller_runs_alone() {
    let pool = Pool::new(2);
    pool.run(2, 4, &|_, _| {
        pool.run(2, 4, &|_, worker| if worker == 0 { Ok(()) } else { Err(Error::internal("shared")) })
    })
    .unwrap();
}

#[test]
fn many_callers_share_one_pool() {
    let pool = Pool::new(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3000 {
                    let sum = AtomicU32::new(0);
                    pool.run(3, 9, &|chunk, _| {
                        sum.fetch_add(chunk + 1, Ordering::Relaxed);
                        Ok(())
                    })
                    .unwrap();
                    assert_eq!(sum.load(Ordering::Relaxed), 45);
                }
            });
        }
    });
}

#[test]
fn the_default_is_the_number_of_usable_processors() {
    assert!((1..=MAX_THREADS).contains(&default_threads()));
    assert_eq!(Pool::shared().threads(), default_threads());
}

/// The child of a fork has none of the parent's threads; its first region starts new ones.
#[cfg(unix)]
#[test]
fn a_forked_child_starts_its_own_threads() {
    let pool = Pool::new(2);
    pool.run(2, 8, &|_, _| Ok(())).unwrap();
    // SAFETY: the child calls only the pool and `_exit`; it inherits no lock that it needs, because
    // this process's allocator handles fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let arrived = AtomicUsize::new(0);
        let result = pool.run(2, 2, &|_, _| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let start = std::time::Instant::now();
            while arrived.load(Ordering::SeqCst) < 2 {
                if start.elapsed() > Duration::from_secs(20) {
                    return Err(Error::internal("no second thread in the child"));
                }
                std::thread::yield_now();
            }
            Ok(())
        });
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(if result.is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    pool.run(2, 8, &|_, _| Ok(())).unwrap();
}
