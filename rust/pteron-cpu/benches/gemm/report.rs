//! Rows of the bench: measured one by one, printed with their share of the ceiling, summed up at the end.

use crate::bandwidth::{self, BEYOND_CACHES};
use crate::ceiling;
use crate::clock::{best, thread_time, wall_time};
use pteron_core::Isa;
use pteron_cpu::Pool;
use std::collections::HashMap;

/// Something that is timed.
pub trait Timed {
    /// One call with at most `threads` threads.
    fn run(&mut self, pool: &Pool, threads: usize);
}

/// What a row stands for.
pub struct Row {
    pub label: String,
    pub flops: f64,
    /// Bytes of weights, when reading them is what limits a call; it is then held against the bandwidth.
    pub weight_bytes: Option<usize>,
}

/// The ceilings of one instruction set and what was measured under them.
pub struct Report<'a> {
    isa: Isa,
    pool: &'a Pool,
    flops_ceiling: f64,
    memory_ceiling: f64,
    read_ceilings: HashMap<usize, f64>,
    compute: Vec<(f64, String)>,
    cached: Vec<(f64, String)>,
    memory: Vec<(f64, String)>,
    speedups: Vec<(f64, String)>,
}

/// Calls longer than this should be faster with two threads.
const WORTH_TWO_THREADS: f64 = 200e-6;

impl<'a> Report<'a> {
    pub fn new(isa: Isa, pool: &'a Pool) -> Self {
        let flops_ceiling = ceiling::flops_per_second(isa);
        let memory_ceiling = bandwidth::bytes_per_second(isa, BEYOND_CACHES);
        println!(
            "\n{}: FMA ceiling {:.1} GFLOP/s per thread, reads from memory {:.1} GB/s",
            isa.name(),
            flops_ceiling / 1e9,
            memory_ceiling / 1e9
        );
        Report {
            isa,
            pool,
            flops_ceiling,
            memory_ceiling,
            read_ceilings: HashMap::new(),
            compute: Vec::new(),
            cached: Vec::new(),
            memory: Vec::new(),
            speedups: Vec::new(),
        }
    }

    /// Times `call` with one and two threads.
    pub fn measure(&mut self, row: &Row, call: &mut dyn Timed) {
        let one = best(thread_time, || call.run(self.pool, 1));
        let two = best(wall_time, || call.run(self.pool, 2));
        let (share, of) = match row.weight_bytes {
            Some(bytes) => {
                let ceiling = self.read_ceiling(bytes);
                (bytes as f64 / one / ceiling, format!("of {:>5.1} GB/s", ceiling / 1e9))
            }
            None => (row.flops / one / self.flops_ceiling, String::new()),
        };
        println!(
            "{:<46} {:>9.1} us {:>6.1} GFLOP/s {:>4.0} % {of:<13} 2 threads {:>9.1} us {:>5.2}x",
            row.label,
            one * 1e6,
            row.flops / one / 1e9,
            share * 100.0,
            two * 1e6,
            one / two
        );
        let list = if row.weight_bytes.is_some() { &mut self.cached } else { &mut self.compute };
        list.push((share, row.label.clone()));
        if one > WORTH_TWO_THREADS {
            self.speedups.push((one / two, row.label.clone()));
        }
    }

    /// Times one thread that takes the weights of `calls` in turn, so that they come from memory.
    pub fn measure_from_memory(&mut self, row: &Row, calls: &mut [impl Timed]) {
        let count = calls.len();
        let pool = self.pool;
        let seconds = best(thread_time, || calls.iter_mut().for_each(|c| c.run(pool, 1))) / count as f64;
        let rate = row.weight_bytes.unwrap_or(0) as f64 / seconds;
        let share = rate / self.memory_ceiling;
        println!(
            "{:<46} {:>9.1} us {:>6.1} GB/s    {:>4.0} % of {:>5.1} GB/s, from memory",
            row.label,
            seconds * 1e6,
            rate / 1e9,
            share * 100.0,
            self.memory_ceiling / 1e9
        );
        self.memory.push((share, row.label.clone()));
    }

    /// Reading so many bytes again and again; sizes within a quarter of a power of two share a figure.
    fn read_ceiling(&mut self, bytes: usize) -> f64 {
        let step = (bytes.next_power_of_two() / 8).max(1024);
        let isa = self.isa;
        let size = bytes.next_multiple_of(step);
        *self.read_ceilings.entry(size).or_insert_with(|| bandwidth::bytes_per_second(isa, size))
    }

    /// Medians and worst rows.
    pub fn summary(mut self) {
        println!("\n{} in short (median, worst):", self.isa.name());
        // Clock rates move: the ceiling is the better of before and after.
        let after = ceiling::flops_per_second(self.isa);
        let scale = self.flops_ceiling / self.flops_ceiling.max(after);
        self.compute.iter_mut().for_each(|r| r.0 *= scale);
        println!("FMA ceiling {:.1} GFLOP/s", self.flops_ceiling.max(after) / 1e9);
        print_summary("share of the FMA ceiling, more than 4 rows", &mut self.compute);
        print_summary("share of the read bandwidth, up to 4 rows, weights read again", &mut self.cached);
        print_summary("share of the read bandwidth, up to 4 rows, weights from memory", &mut self.memory);
        print_summary("speed-up with two threads above 200 us", &mut self.speedups);
    }
}

fn print_summary(what: &str, rows: &mut [(f64, String)]) {
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let (Some(worst), Some(median)) = (rows.first(), rows.get(rows.len() / 2)) {
        println!("{what:<62} {:>5.2} {:>5.2} ({}), {} rows", median.0, worst.0, worst.1, rows.len());
    }
}
