//! `make bench-gemm` (`cargo bench -p pteron-cpu --bench gemm [-- WORDS]`): the multiplications and
//! convolutions of real models, each against the ceiling of its instruction set, measured in the same run.
//!
//! More than four rows: share of the FMA ceiling. Up to four: every weight is read for a handful of
//! multiply-adds, so the share of the bandwidth of reading as many bytes, once with the weights read
//! again and again (in the caches as far as they fit) and once from memory.
//!
//! Words name instruction sets (default: the best one), parts of labels, or a product M x K x N
//! (`128x768x3072`).

mod bandwidth;
mod call;
mod ceiling;
mod clock;
mod convolutions;
mod report;
mod shapes;

use call::Call;
use clock::{best, thread_time};
use pteron_core::{AlignedBuffer, Isa};
use pteron_cpu::Pool;
use pteron_cpu::packed::f32_nr32_v1;
use pteron_kernels::cpu_detect;
use report::{Report, Row, Timed};
use shapes::{Kind, SHAPES, Shape};

impl Timed for Call {
    fn run(&mut self, pool: &Pool, threads: usize) {
        Call::run(self, pool, threads);
    }
}

/// Rows up to which reading the weights is the limit.
const FEW_ROWS: usize = 4;

fn cpu_model() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|t| t.lines().find(|l| l.starts_with("model name")).map(|l| l.to_string()))
        .map_or("unknown processor".to_string(), |l| l.split(':').nth(1).unwrap_or("").trim().to_string())
}

/// Words on the command line that name no instruction set: only rows with one of them are run.
fn is_wanted(label: &str) -> bool {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|a| Isa::from_name(a).is_none() && !a.starts_with("--")).collect();
    words.is_empty() || words.iter().any(|w| label.contains(w.as_str()))
}

/// Products of a constant whose shape is a word: `128x768x3072`.
fn asked_shapes() -> Vec<Shape> {
    let shape = |word: String| {
        let sizes: Vec<usize> = word.split('x').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let &[m, k, n] = sizes.as_slice() else { return None };
        Some(Shape { model: "asked for", m, k, n, kind: Kind::Constant })
    };
    std::env::args().skip(1).filter_map(shape).collect()
}

/// The instruction sets that were named, or the best one.
fn wanted_isas() -> Vec<Isa> {
    let named: Vec<Isa> = std::env::args().filter_map(|a| Isa::from_name(&a)).collect();
    let mut isas = cpu_detect::available_isas();
    isas.retain(|isa| if named.is_empty() { *isa == cpu_detect::best_isa() } else { named.contains(isa) });
    isas
}

impl Shape {
    fn row(&self) -> Row {
        let Shape { model, m, k, n, kind } = *self;
        let (batch, name) = match kind {
            Kind::Constant => (1, String::new()),
            Kind::Batch(b) => (b, format!("{b} x ")),
            Kind::BatchTransposed(b) => (b, format!("{b} x transposed ")),
        };
        let is_limited_by_reading = kind == Kind::Constant && m <= FEW_ROWS;
        Row {
            label: format!("{model} {name}{m} x {k} x {n}"),
            flops: 2.0 * (batch * m * k * n) as f64,
            weight_bytes: is_limited_by_reading.then_some(k * n * 4),
        }
    }

    fn call(&self, isa: Isa) -> Call {
        match self.kind {
            Kind::Constant => Call::linear(isa, self.m, self.n, self.k),
            Kind::Batch(batch) => Call::bmm(isa, batch, self.m, self.n, self.k, false),
            Kind::BatchTransposed(batch) => Call::bmm(isa, batch, self.m, self.n, self.k, true),
        }
    }
}

fn main() {
    let pool = Pool::new(2);
    println!("{}, {} processors", cpu_model(), pteron_cpu::pool::default_threads());
    for isa in wanted_isas() {
        let mut report = Report::new(isa, &pool);
        let asked = asked_shapes();
        for shape in SHAPES.iter().filter(|s| is_wanted(&s.row().label)).chain(&asked) {
            let row = shape.row();
            report.measure(&row, &mut shape.call(isa));
            if let Some(bytes) = row.weight_bytes {
                let copies = bandwidth::BEYOND_CACHES.div_ceil(bytes).min(1024);
                let mut calls: Vec<Call> = (0..copies).map(|_| shape.call(isa)).collect();
                report.measure_from_memory(&row, &mut calls);
            }
        }
        convolutions::measure(isa, &mut report);
        report.summary();
        convolutions::measure_depthwise(isa, &pool);
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
        let seconds = best(thread_time, || drop(f32_nr32_v1::pack(isa, 1, &view).expect("pack")));
        println!("pack {label:<22} {:>6.2} GB/s of weights", (k * n * 4) as f64 / seconds / 1e9);
    }
}
