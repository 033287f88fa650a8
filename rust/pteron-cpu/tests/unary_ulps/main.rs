//! The accuracy of every function of one f32 tensor, in units in the last place: each kernel that takes it, on
//! each instruction set, against arithmetic in f64.
//!
//! The usual test takes every 50 021st of the 2^32 inputs. The ignored one takes them all and prints a line
//! per kernel. `PTERON_ULPS=exp,tanh` limits it to some functions:
//!
//! ```text
//! cargo test --release -p pteron-cpu --test unary_ulps -- --ignored --nocapture
//! ```

mod functions;
mod ulps;

use functions::{Function, functions};
use pteron_core::{DType, Isa, StaticKernel};
use pteron_cpu::single_call::{CallArg, HostTensor, SingleCall, profile};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use ulps::Worst;

const ISAS: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];
const BLOCK: usize = 1 << 16;

/// One kernel with the instruction set it is asked for.
#[derive(Clone, Copy)]
struct Candidate {
    kernel: &'static StaticKernel,
    isa: Isa,
    is_reference: bool,
}

impl Candidate {
    fn prepare(&self, function: &Function, input: &[f32]) -> Option<SingleCall> {
        let mut args = vec![CallArg::Tensor(HostTensor::new(&[input.len()], input).unwrap())];
        args.extend((function.arguments)());
        args.push(CallArg::Tensor(HostTensor::zeros(DType::Float32, &[input.len()]).unwrap()));
        SingleCall::new(self.kernel.prepare, &profile(self.isa)?, args).unwrap()
    }

    fn name(&self, function: &Function) -> Option<String> {
        let call = self.prepare(function, &[0.0])?;
        Some(if self.is_reference { "reference".to_string() } else { call.prepared().name().to_string() })
    }

    fn apply(&self, function: &Function, input: &[f32]) -> Vec<f32> {
        let mut call = self.prepare(function, input).unwrap();
        call.call().unwrap();
        call.output((function.arguments)().len() + 1).unwrap()
    }
}

/// Every kernel of a function, each variant once.
fn candidates(function: &Function) -> Vec<(String, Candidate)> {
    let start = format!("aten::{}(", function.operator);
    let mut found: Vec<(String, Candidate)> = vec![];
    let tables =
        [(pteron_cpu::kernels().collect::<Vec<_>>(), false), (pteron_kernels::kernels().collect(), true)];
    for (kernels, is_reference) in tables {
        for kernel in kernels.into_iter().filter(|k| k.schema.starts_with(&start)) {
            for isa in ISAS {
                let candidate = Candidate { kernel, isa, is_reference };
                let Some(name) = candidate.name(function) else { continue };
                if found.iter().all(|(n, _)| *n != name) {
                    found.push((name, candidate));
                }
            }
        }
    }
    found
}

/// Takes every `step`-th input, on `threads` threads, and answers the largest error of each kernel.
fn measure(function: &Function, step: u64, threads: usize) -> Vec<(String, Worst)> {
    let candidates = candidates(function);
    assert!(!candidates.is_empty(), "{} has no kernel", function.name);
    let worst = Mutex::new(vec![Worst::default(); candidates.len()]);
    let total = (1u64 << 32).div_ceil(step);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = vec![Worst::default(); candidates.len()];
                loop {
                    let first = next.fetch_add(BLOCK as u64, Ordering::Relaxed);
                    if first >= total {
                        break;
                    }
                    let last = (first + BLOCK as u64).min(total);
                    let inputs: Vec<f32> = (first..last).map(|i| f32::from_bits((i * step) as u32)).collect();
                    let wanted: Vec<f64> = inputs.iter().map(|x| (function.exact)(f64::from(*x))).collect();
                    for (worst, (_, candidate)) in own.iter_mut().zip(&candidates) {
                        worst.take(
                            &inputs,
                            &candidate.apply(function, &inputs),
                            &wanted,
                            function.is_at_argument,
                        );
                    }
                }
                for (all, own) in worst.lock().unwrap().iter_mut().zip(own) {
                    all.join(own);
                }
            });
        }
    });
    let worst = worst.into_inner().unwrap();
    candidates.into_iter().map(|(name, _)| name).zip(worst).collect()
}

fn check(step: u64, threads: usize, is_shown: bool) {
    let only = std::env::var("PTERON_ULPS").unwrap_or_default();
    let mut failures = vec![];
    for function in functions() {
        if is_shown && !only.is_empty() && !only.split(',').any(|name| name == function.name) {
            continue;
        }
        for (kernel, worst) in measure(&function, step, threads) {
            let line = format!("{} | {kernel} | {worst} | bound {}", function.name, function.bound);
            if is_shown {
                println!("{line}");
            }
            // Not `>`: a NaN is a failure, too.
            if worst.ulps.is_nan() || worst.ulps > function.bound {
                failures.push(line);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sampled_inputs_stay_within_the_bounds() {
    check(50_021, 2, false);
}

#[test]
#[ignore = "every f32 input of every function: hours"]
fn all_inputs_stay_within_the_bounds() {
    check(1, 2, true);
}

#[test]
fn special_inputs_give_what_arithmetic_in_f64_gives() {
    let tiny = f32::from_bits(1);
    let inputs = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        tiny,
        -tiny,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        88.72284,
        -103.97,
        2.5,
        3.5,
        -2.5,
        20.0,
        -88.0,
        3.402e38,
    ];
    let mut failures = vec![];
    for function in functions() {
        let wanted: Vec<f64> = inputs.iter().map(|x| (function.exact)(f64::from(*x))).collect();
        for (name, candidate) in candidates(&function) {
            let mut worst = Worst::default();
            worst.take(&inputs, &candidate.apply(&function, &inputs), &wanted, function.is_at_argument);
            if worst.ulps > function.bound {
                failures.push(format!("{} | {name} | {worst}", function.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
