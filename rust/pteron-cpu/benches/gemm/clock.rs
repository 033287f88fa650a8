//! How calls are timed.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Shortest time of one call in seconds, over at least a fifth of a second: the machine may be shared, and
/// what others do can only make a call slower.
pub fn best(clock: impl Fn() -> Duration, mut call: impl FnMut()) -> f64 {
    call();
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut rounds = 0;
    while start.elapsed() < Duration::from_millis(200) || rounds < 5 {
        // Short calls are timed in groups, so that the clock does not count.
        let group = if best < Duration::from_micros(20) { 64 } else { 1 };
        let before = clock();
        for _ in 0..group {
            call();
        }
        let time = (clock() - before) / group;
        // Some virtual machines let the clock of a thread stand still now and then.
        if !time.is_zero() {
            best = best.min(time);
        }
        rounds += 1;
    }
    best.as_secs_f64()
}

/// Time that this thread has spent running: what counts with one thread, whoever else is at work.
pub fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Time on the wall: what counts with two threads. Says little on a machine that is busy.
pub fn wall_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
