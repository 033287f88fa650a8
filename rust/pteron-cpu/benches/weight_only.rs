//! `cargo bench -p pteron-cpu --bench weight_only [-- WORDS]`: linear layers of language models with quantised weights, one thread.
//! Words are parts of labels.
//!
//! One row (a token of a decode) reads weights that no cache holds: as many copies as that takes are called in turn, and what is
//! read of them is held against the read bandwidth, measured in the same run. More rows are held against the same product in f32.

#[path = "gemm/bandwidth.rs"]
mod bandwidth;
#[allow(dead_code, reason = "the clock on the wall is for more than one thread")]
#[path = "gemm/clock.rs"]
mod clock;

use clock::{best, thread_time};
use pteron_core::{DType, Isa};
use pteron_cpu::integer::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec, RowScheme};
use pteron_cpu::weight_only::WeightOnlySpec;
use pteron_kernels::cpu_detect;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall};

const GROUP: usize = 32;
/// Outputs and inputs: SmolLM's of 135 M parameters, TinyLlama's.
const LAYERS: &[[usize; 2]] =
    &[[576, 576], [1536, 576], [576, 1536], [2048, 2048], [5632, 2048], [2048, 5632]];
const ROWS: &[usize] = &[1, 4, 16, 128];
/// Bytes of weights that calls of one row read in turn.
const BEYOND_CACHE_LEVELS: f64 = 128e6;

/// How rows and weights are.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    F32,
    /// Weights of 8 bits, floats are multiplied.
    Bytes,
    /// Weights of 4 bits in groups, floats are multiplied.
    Nibbles,
    /// Weights of 8 bits, rows become bytes.
    ByteRows,
    /// Weights of 4 bits in groups, rows become bytes.
    NibbleRows,
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::F32, "f32"),
    (Kind::Bytes, "int8"),
    (Kind::Nibbles, "int4"),
    (Kind::ByteRows, "int8 rows"),
    (Kind::NibbleRows, "int4 rows"),
];

impl Kind {
    /// Bytes of a weight, scales included.
    fn bytes(self, [n, k]: [usize; 2]) -> f64 {
        let numbers = (n * k) as f64;
        let scales = match self {
            Kind::F32 => 0.0,
            Kind::Bytes | Kind::ByteRows => 4.0 * n as f64,
            Kind::Nibbles => 4.0 * numbers / GROUP as f64,
            // Those of bfloat16 lie in half the bytes.
            Kind::NibbleRows => 2.0 * numbers / GROUP as f64,
        };
        scales
            + numbers
                * if self == Kind::F32 {
                    4.0
                } else if self.is_nibbles() {
                    0.5
                } else {
                    1.0
                }
    }

    fn is_nibbles(self) -> bool {
        matches!(self, Kind::Nibbles | Kind::NibbleRows)
    }

    fn call(self, rows: usize, [n, k]: [usize; 2]) -> SingleCall {
        let floats = |shape: &[usize], v: f32| {
            let count = shape.iter().product();
            HostTensor::new(shape, &vec![v; count]).expect("memory")
        };
        let x: Vec<f32> = (0..rows * k).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let mut args = vec![CallArg::Tensor(HostTensor::new(&[rows, k], &x).expect("memory"))];
        let scheme = RowScheme::PerRow { least_scale: f32::MIN_POSITIVE };
        let groups = if self.is_nibbles() { k / GROUP } else { 1 };
        args.push(CallArg::Constant(match self {
            Kind::F32 => floats(&[n, k], 0.5),
            Kind::Bytes | Kind::ByteRows => HostTensor::new(&[n, k], &vec![100i8; n * k]).expect("memory"),
            _ => HostTensor::new(&[n, k / 2], &vec![0x5au8; n * k / 2]).expect("memory"),
        }));
        let y = CallArg::Tensor(HostTensor::zeros(DType::Float32, &[rows, n]).expect("memory"));
        if self == Kind::F32 {
            args.extend([CallArg::None, y]);
            let prepare = pteron_cpu::linear::prepare_linear_like;
            return taken(|ctx| prepare(ctx, "aten::linear.out", &Default::default()), args);
        }
        args.push(CallArg::Constant(floats(&[n, groups], 1.0 / 128.0)));
        if self == Kind::NibbleRows {
            args.push(CallArg::Constant(floats(&[n], 0.3)));
        }
        args.push(y);
        if self == Kind::ByteRows {
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::Rows { scheme },
                has_bias: false,
                clamp: None,
                output: IntegerOutput::Float,
                sum: None,
            };
            return taken(|ctx| pteron_cpu::integer::prepare(ctx, &spec), args);
        }
        let spec = WeightOnlySpec {
            k,
            n,
            group: k / groups,
            is_row_per_output: true,
            has_pairs: self.is_nibbles(),
            has_zeros: false,
            has_bias: false,
            rows: (self == Kind::NibbleRows).then_some(scheme),
        };
        taken(|ctx| pteron_cpu::weight_only::prepare(ctx, &spec, &Default::default()), args)
    }
}

fn taken(
    prepare: impl Fn(&pteron_core::PrepareContext<'_>) -> pteron_kernels::grid_kernel::Preparation,
    args: Vec<CallArg>,
) -> SingleCall {
    let cpu = cpu_detect::detect().expect("PTERON_ISA is right");
    SingleCall::of(prepare, &cpu, args).expect("prepares").expect("is taken")
}

/// Seconds of a call, the calls in turn.
fn seconds(mut calls: Vec<SingleCall>) -> f64 {
    let grids: Vec<_> = calls.iter_mut().map(|call| call.bind().expect("binds")).collect();
    let all = best(thread_time, || {
        for (call, grid) in calls.iter_mut().zip(&grids) {
            call.run(*grid, false).expect("runs");
        }
    });
    all / calls.len() as f64
}

fn main() {
    let isa = cpu_detect::detect().map_or(Isa::Portable, |cpu| cpu.isa);
    let bandwidth = bandwidth::bytes_per_second(isa, bandwidth::BEYOND_CACHES);
    println!("{}: reads {:.1} GB/s", isa.name(), bandwidth / 1e9);
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    for layer in LAYERS {
        for rows in ROWS {
            let mut base = None;
            for (kind, name) in KINDS {
                let [n, k] = *layer;
                let label = format!("{rows} x {k} x {n} {name}");
                if !(words.is_empty() || words.iter().any(|w| label.contains(w.as_str()))) {
                    continue;
                }
                let bytes = kind.bytes(*layer);
                let copies = if *rows == 1 { (BEYOND_CACHE_LEVELS / bytes) as usize + 1 } else { 1 };
                let time = seconds((0..copies).map(|_| kind.call(*rows, *layer)).collect());
                let base = *base.get_or_insert(time);
                println!(
                    "{label:<32} {:>9.1} us {:>7.1} GOP/s {:>6.1} GB/s {:>4.0} % of the bandwidth {:>5.2}x of the first",
                    time * 1e6,
                    2.0 * (rows * n * k) as f64 / time / 1e9,
                    bytes / time / 1e9,
                    bytes / time / bandwidth * 100.0,
                    time / base
                );
            }
        }
    }
}
