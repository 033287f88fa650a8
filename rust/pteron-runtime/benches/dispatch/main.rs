//! What the runtime costs around the kernels: a step, a delegate call, a call, loading an instruction.
//!
//! `cargo bench -p pteron-runtime --bench dispatch`; the table in nanoseconds is printed at the end.

mod programs;

use criterion::Criterion;
use programs::{CHAIN, Kind, STEPS, Touch, call, chain, load, program, runtime};
use pteron_core::{Args, DType, Prepared, WorkerScratch};
use pteron_cpu::plan::RuleSwitches;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Median nanoseconds of `f` over `rounds` rounds.
fn median(rounds: usize, mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}

/// The kernel called by itself, without a runtime around it.
fn kernel_alone() -> f64 {
    let spec = pteron_core::TensorSpec::contiguous(DType::Float32, &[1]).unwrap();
    let mut data = [0f32; 2];
    let mut values = Vec::new();
    for d in &mut data {
        let mut slot = pteron_core::TensorSlot::new(&spec).unwrap();
        // SAFETY: `data` outlives the values.
        unsafe { slot.set_data((d as *mut f32).cast(), 4) };
        values.push(pteron_core::Value::Tensor(Box::new(slot)));
    }
    let ids = [pteron_core::ValueId(0), pteron_core::ValueId(1)];
    let prepared: Box<dyn Prepared> = Box::new(Touch);
    let bound = prepared.new_bound();
    let mut scratch = WorkerScratch { worker: &mut [], shared: std::ptr::null_mut() };
    median(2000, || {
        for _ in 0..STEPS {
            // SAFETY: both slots have memory for one element.
            unsafe {
                let args = Args::new(black_box(&values), &ids);
                black_box(&*prepared).run(&bound, &args, 0, 0, &mut scratch).unwrap();
            }
        }
    }) / STEPS as f64
}

fn main() {
    let runtime_on = runtime(RuleSwitches::all_on());
    let mut criterion = Criterion::default().configure_from_args();
    let mut rows: Vec<(&str, f64)> = vec![("kernel alone, per call", kernel_alone())];
    let cases = [
        ("step, bound once", Kind::Touch, false),
        ("step, bound every time", Kind::Touch, true),
        ("Rust delegate call", Kind::Delegate, false),
    ];
    for (name, kind, is_dynamic) in cases {
        let (long, short) = (program(kind, STEPS, is_dynamic), program(kind, 1, is_dynamic));
        let (long, short) = (load(&runtime_on, &Arc::new(long)), load(&runtime_on, &Arc::new(short)));
        criterion.bench_function(&format!("1000 steps: {name}"), |b| b.iter(|| call(&long)));
        let (many, one) = (median(2000, || call(&long)), median(2000, || call(&short)));
        rows.push((name, (many - one) / (STEPS - 1) as f64));
        if kind == Kind::Touch && !is_dynamic {
            rows.push(("whole call of a one-step method", one));
        }
    }
    let plain = load(&runtime(RuleSwitches::all_off()), &Arc::new(chain()));
    let fused = load(&runtime_on, &Arc::new(chain()));
    rows.push(("elementwise step of 16, plans off", median(2000, || call(&plain)) / CHAIN as f64));
    rows.push(("elementwise step of 16, fused", median(2000, || call(&fused)) / CHAIN as f64));
    let bytes = Arc::new(program(Kind::Touch, STEPS, false));
    let empty = Arc::new(program(Kind::Touch, 1, false));
    criterion.bench_function("load 1000 instructions", |b| b.iter(|| black_box(load(&runtime_on, &bytes))));
    let load_ns = |b: &Arc<Vec<u8>>| median(200, || drop(black_box(load(&runtime_on, b))));
    rows.push((
        "load and prepare, per instruction",
        (load_ns(&bytes) - load_ns(&empty)) / (STEPS - 1) as f64,
    ));
    println!("\n{:<40} {:>9}", "what", "ns");
    for (name, ns) in rows {
        println!("{name:<40} {ns:>9.1}");
    }
}
