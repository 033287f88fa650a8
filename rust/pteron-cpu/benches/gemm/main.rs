//! Matrix multiplication beside the FMA ceiling measured in the same run: one thread (by its own
//! processor time) and two (by the clock on the wall); the packing rate; the cost of a single-chunk call.
//!
//! `cargo bench -p pteron-cpu --bench gemm`, optionally `-- avx512 'M 64'` for one
//! instruction set and the shapes whose label contains a text.

mod call;
mod ceiling;

use call::Call;
use pteron_core::{AlignedBuffer, Isa};
use pteron_cpu::packed::f32_nr32_v1;
use pteron_cpu::{Pool, cpu_detect};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Shortest time of one call, over at least a quarter of a second: the machine may be shared, and what
/// others do can only make a call slower.
fn best(clock: impl Fn() -> Duration, mut call: impl FnMut()) -> f64 {
    call();
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut rounds = 0;
    while start.elapsed() < Duration::from_millis(250) || rounds < 5 {
        // Short calls are timed in groups, so that the clock does not count.
        let group = if best < Duration::from_micros(20) { 64 } else { 1 };
        let before = clock();
        for _ in 0..group {
            call();
        }
        best = best.min((clock() - before) / group);
        rounds += 1;
    }
    best.as_secs_f64()
}

/// Time that this thread has spent running: what counts with one thread, whoever else is at work.
fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Time on the wall: what counts with two threads. Says little on a machine that is busy.
fn wall_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

fn cpu_model() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|t| t.lines().find(|l| l.starts_with("model name")).map(|l| l.to_string()))
        .map_or("unknown processor".to_string(), |l| l.split(':').nth(1).unwrap_or("").trim().to_string())
}

/// Words on the command line that name no instruction set: only shapes with one of them are run.
fn is_wanted(label: &str) -> bool {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|a| Isa::from_name(a).is_none() && !a.starts_with("--")).collect();
    words.is_empty() || words.iter().any(|w| label.contains(w.as_str()))
}

fn report(label: &str, isa: Isa, flops: f64, ceiling: f64, pool: &Pool, mut make: impl FnMut(Isa) -> Call) {
    if !is_wanted(label) {
        return;
    }
    let mut call = make(isa);
    let one = best(thread_time, || call.run(pool, 1));
    let two = best(wall_time, || call.run(pool, 2));
    println!(
        "{label:<34} {:>9.1} us  {:>7.1} GFLOP/s {:>4.0} %   2 threads {:>9.1} us  {:>7.1} GFLOP/s {:>4.2}x",
        one * 1e6,
        flops / one / 1e9,
        flops / one / ceiling * 100.0,
        two * 1e6,
        flops / two / 1e9,
        one / two
    );
}

fn main() {
    let wanted: Vec<Isa> = std::env::args().filter_map(|a| Isa::from_name(&a)).collect();
    let pool = Pool::new(2);
    println!("{}, {} processors", cpu_model(), pteron_cpu::pool::default_threads());
    for isa in cpu_detect::available_isas().into_iter().rev() {
        if !wanted.is_empty() && !wanted.contains(&isa) {
            continue;
        }
        let ceiling = ceiling::flops_per_second(isa);
        println!("\n{}: FMA ceiling {:.1} GFLOP/s per thread", isa.name(), ceiling / 1e9);
        for (k, n) in [(384, 384), (384, 1536), (1536, 384)] {
            for m in [1, 2, 4, 8, 16, 64, 128, 256] {
                let flops = 2.0 * (m * n * k) as f64;
                report(&format!("linear M {m} K {k} N {n}"), isa, flops, ceiling, &pool, |i| {
                    Call::linear(i, m, n, k)
                });
            }
        }
        for (m, n, k) in [(128, 1024, 4096), (256, 4096, 1024), (1024, 1024, 1024)] {
            let flops = 2.0 * (m * n * k) as f64;
            report(&format!("linear M {m} K {k} N {n}"), isa, flops, ceiling, &pool, |i| {
                Call::linear(i, m, n, k)
            });
        }
        for t in [16, 64, 128, 256] {
            let flops = 2.0 * (12 * t * t * 32) as f64;
            report(&format!("attention scores 12 x {t} x 32 x {t}"), isa, flops, ceiling, &pool, |i| {
                Call::bmm(i, 12, t, t, 32)
            });
            report(&format!("attention values 12 x {t} x {t} x 32"), isa, flops, ceiling, &pool, |i| {
                Call::bmm(i, 12, t, 32, t)
            });
        }
        packing(isa);
    }
    let mut call = Call::linear(cpu_detect::best_isa(), 1, 1, 1);
    println!(
        "\nsingle-chunk call through the executor (1x1x1): {:.1} ns",
        best(thread_time, || call.run(&pool, 2)) * 1e9
    );
    println!("bind: {:.1} ns", best(thread_time, || call.bind()) * 1e9);
}

/// Rate of packing a fresh copy, page faults included, as at load.
fn packing(isa: Isa) {
    let (k, n) = (1536, 1536);
    let weights = AlignedBuffer::zeroed(k * n * 4).expect("memory");
    for (label, strides) in [("N x K (linear weight)", [1, k]), ("K x N", [n, 1])] {
        let view = call::constant(&weights, [k, n], strides);
        let seconds = best(thread_time, || drop(f32_nr32_v1::pack(isa, &view).expect("pack")));
        println!("pack {label:<22} {:>6.2} GB/s of weights", (k * n * 4) as f64 / seconds / 1e9);
    }
}
