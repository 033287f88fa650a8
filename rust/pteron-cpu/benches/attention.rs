//! Fused attention on one thread, by its own processor time, beside the FMA ceiling measured in the same
//! run. 12 heads; queries, keys and values lie as a linear layer leaves them.
//!
//! `cargo bench -p pteron-cpu --bench attention [-- avx2 causal]`: one instruction set, lines with a text.

#[path = "gemm/ceiling.rs"]
mod ceiling;

use pteron_core::{DType, Isa};
use pteron_cpu::attention::{AttentionSpec, Axes, Causality, EmptyRow, Operand, prepare_attention};
use pteron_kernels::cpu_detect;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall};
use std::time::{Duration, Instant};

const HEADS: usize = 12;

fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Shortest time of a call in microseconds, over at least a quarter of a second.
fn best(call: &mut SingleCall) -> f64 {
    let grid = call.bind().expect("bind");
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < Duration::from_millis(250) {
        let before = thread_time();
        for _ in 0..4 {
            call.run(grid, false).expect("run");
        }
        best = best.min((thread_time() - before) / 4);
    }
    best.as_secs_f64() * 1e6
}

fn tensor(shape: &[usize]) -> CallArg {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 7919) % 2003) as f32 / 1000.0 - 1.0).collect();
    CallArg::Tensor(HostTensor::new(shape, &values).expect("tensor"))
}

/// A mask: f32 [1, 1, rows, keys].
#[derive(Clone, Copy, PartialEq)]
enum Mask {
    None,
    Numbers,
    /// -inf but for the keys of one of four texts that share a cache, rows of each text in turn.
    Texts,
}

impl Mask {
    fn argument(self, rows: usize, keys: usize) -> CallArg {
        match self {
            Mask::None => CallArg::None,
            Mask::Numbers => tensor(&[1, 1, rows, keys]),
            Mask::Texts => {
                let of_text = |i: usize| i % keys / keys.div_ceil(4) == i / keys % 4;
                let mask: Vec<f32> =
                    (0..rows * keys).map(|i| if of_text(i) { 0.0 } else { f32::NEG_INFINITY }).collect();
                CallArg::Tensor(HostTensor::new(&[1, 1, rows, keys], &mask).expect("tensor"))
            }
        }
    }
}

fn call(isa: Isa, rows: usize, keys: usize, depth: usize, causality: Causality, mask: Mask) -> SingleCall {
    let operand = |argument| Operand { argument, axes: Axes::ROWS_FIRST };
    let spec = AttentionSpec {
        query: operand(0),
        key: operand(1),
        value: operand(2),
        mask: (mask != Mask::None).then_some(3),
        out: operand(4),
        scale: 1.0 / (depth as f32).sqrt(),
        causality,
        keys_from: None,
        empty_row: EmptyRow::Zero,
        row_factors: None,
        checks: Vec::new(),
    };
    let args = vec![
        tensor(&[1, rows, HEADS, depth]),
        tensor(&[1, keys, HEADS, depth]),
        tensor(&[1, keys, HEADS, depth]),
        mask.argument(rows, keys),
        CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, rows, HEADS, depth]).expect("tensor")),
    ];
    let cpu = cpu_detect::profile_for(isa).expect("processor");
    SingleCall::of(|ctx| prepare_attention(ctx, &spec), &cpu, args).expect("prepare").expect("accepted")
}

/// Words on the command line that name no instruction set: only lines with one of them are run.
fn is_wanted(label: &str) -> bool {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|a| Isa::from_name(a).is_none() && !a.starts_with("--")).collect();
    words.is_empty() || words.iter().any(|w| label.contains(w.as_str()))
}

fn main() {
    let wanted: Vec<Isa> = std::env::args().filter_map(|a| Isa::from_name(&a)).collect();
    for isa in cpu_detect::available_isas().into_iter().rev() {
        if !wanted.is_empty() && !wanted.contains(&isa) {
            continue;
        }
        let ceiling = ceiling::flops_per_second(isa) / 1e9;
        println!("\n{}: FMA ceiling {ceiling:.1} GFLOP/s", isa.name());
        let report = |label: &str, rows: usize, keys: usize, depth: usize, causality, mask| {
            let label = format!("{label:10} {rows:5} queries {keys:5} keys of {depth:3}");
            if !is_wanted(&label) {
                return;
            }
            let us = best(&mut call(isa, rows, keys, depth, causality, mask));
            let rate = 4.0 * (HEADS * rows * keys * depth) as f64 / us / 1e3;
            println!("{label} {us:10.1} us {rate:7.1} GFLOP/s {:4.0} %", rate / ceiling * 100.0);
        };
        for depth in [64, 32] {
            for n in [1, 8, 16, 32, 128, 256, 512, 1024] {
                report("all", n, n, depth, Causality::Everything, Mask::None);
            }
        }
        for n in [128, 512] {
            report("mask", n, n, 64, Causality::Everything, Mask::Numbers);
            report("causal", n, n, 64, Causality::FromTopLeft, Mask::None);
        }
        for (n, keys) in [(4, 512), (12, 512), (12, 2048)] {
            report("texts", n, keys, 64, Causality::Everything, Mask::Texts);
        }
        for n in [1, 2, 3, 4, 6, 8, 9, 12, 16] {
            report("cache", n, 1024, 64, Causality::Everything, Mask::None);
        }
    }
}
