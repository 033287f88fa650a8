//! The accuracy of every function of one f32 tensor, in units in the last place: each kernel that takes it, on
//! each instruction set, against arithmetic in f64.
//!
//! The usual test takes every 50 021st of the 2^32 inputs, of every kernel on every instruction set. The ignored
//! one takes all inputs of the kernel that a program gets on this processor (a minute or two of a core for each
//! function) and prints a row of the table in `docs/reference/accuracy.md` for each. The bounds are those of the rows of the
//! operator table; a test compares the page with them, and rewrites it where `PTERON_BLESS=1` is set. `PTERON_ULPS=exp,tanh` limits it to some
//! functions, `PTERON_ULPS_KERNELS=all` takes every kernel, `PTERON_ULPS_STEP=101` every 101st input.
//!
//! ```text
//! cargo test --release -p pteron-kernels --features testing --test unary_ulps -- --ignored --nocapture
//! ```

mod bessel;
mod functions;
mod ulps;

use functions::{Function, functions};
use pteron_core::{DType, Isa, StaticKernel};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use ulps::Worst;

const ISAS: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];
const BLOCK: usize = 1 << 16;

/// One kernel with the instruction set it is asked for.
#[derive(Clone, Copy)]
struct Candidate {
    kernel: StaticKernel,
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
    let tables = [
        (pteron_kernels::fast_kernels().collect::<Vec<_>>(), false),
        (pteron_kernels::plain_kernels().collect(), true),
    ];
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

/// Takes every `step`-th input, on `threads` threads, and answers the largest error of the first `most` kernels:
/// the first one is what a program gets on this processor.
fn measure(function: &Function, step: u64, threads: usize, most: usize) -> Vec<(String, Worst)> {
    let mut candidates = candidates(function);
    candidates.truncate(most);
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

/// The functions that the environment names; all if it names none.
fn chosen() -> Vec<Function> {
    let only = std::env::var("PTERON_ULPS").unwrap_or_default();
    let mut found = functions();
    found.retain(|f| only.is_empty() || only.split(',').any(|name| name == f.name));
    found
}

/// Not `<=` turned round: a NaN is a failure, too.
fn is_within(worst: &Worst, function: &Function) -> bool {
    worst.ulps <= function.bound()
}

#[test]
fn sampled_inputs_stay_within_the_bounds() {
    let mut failures = vec![];
    for function in functions() {
        for (kernel, worst) in measure(&function, 50_021, 2, usize::MAX) {
            if !is_within(&worst, &function) {
                failures.push(format!("{} | {kernel} | {worst} | bound {}", function.name, function.bound()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "every f32 input of every function: an hour or two of a core"]
fn all_inputs_stay_within_the_bounds() {
    let step = std::env::var("PTERON_ULPS_STEP").map_or(1, |s| s.parse().unwrap());
    let every_kernel = std::env::var("PTERON_ULPS_KERNELS").is_ok_and(|k| k == "all");
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let inputs = if step == 1 { "all".to_string() } else { format!("every {step}th") };
    let mut failures = vec![];
    for function in chosen() {
        for (kernel, worst) in measure(&function, step, threads, if every_kernel { usize::MAX } else { 1 }) {
            let row = format!("| {} | {kernel} | {worst} | {} | {inputs} |", function.name, function.bound());
            println!("{row}");
            if !is_within(&worst, &function) {
                failures.push(row);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
            if worst.ulps > function.bound() {
                failures.push(format!("{} | {name} | {worst}", function.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/accuracy.md");

/// The line of a function: as it is on the page but for the bound; measured with few inputs where it is not there yet.
fn line(function: &Function, page: &str) -> String {
    let start = format!("| {} | ", function.name);
    let known = page.lines().find(|line| line.starts_with(&start)).map(str::to_string);
    let known = known.unwrap_or_else(|| {
        let (kernel, worst) = measure(function, 50_021, 2, 1).remove(0);
        format!("{start}{kernel} | {worst} | 0 | every 50021st |")
    });
    let mut cells: Vec<&str> = known.split(" | ").collect();
    let bound = function.bound().to_string();
    let at = cells.len() - 2;
    cells[at] = &bound;
    cells.join(" | ")
}

#[test]
fn the_page_states_the_bounds_of_the_rows() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let head = page.find("\n|---|").and_then(|i| Some(i + 1 + page[i + 1..].find('\n')? + 1)).unwrap();
    let lines: Vec<String> = functions().iter().map(|function| line(function, &page)).collect();
    let text = format!("{}{}\n", &page[..head], lines.join("\n"));
    if std::env::var("PTERON_BLESS").as_deref() == Ok("1") {
        std::fs::write(PAGE, &text).unwrap();
    }
    let stored = std::fs::read_to_string(PAGE).unwrap();
    assert!(stored == text, "accuracy.md is out of date: make bless");
}

#[test]
fn every_bound_of_a_row_is_measured() {
    let mut measured: Vec<(&str, &str)> = vec![];
    for function in functions() {
        let (row, specs) = (function.row(), function.specs());
        let found = row.functions().find(|f| (f.recognise)(&specs).is_some());
        measured.push((row.name(), found.map_or(row.name(), |f| f.name)));
    }
    for row in pteron_kernels::operators() {
        for name in row.functions_with_bounds() {
            assert!(
                measured.contains(&(row.name(), name)),
                "{name} of {} has no case in functions.rs",
                row.name()
            );
        }
    }
}
