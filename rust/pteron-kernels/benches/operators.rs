//! Time of the elementwise, norm, softmax, layout, pooling and convolution kernels on one thread.
//!
//! `cargo bench -p pteron-cpu --bench operators [-- FILTER]`. `PTERON_ISA=avx2` (or `portable`) lowers the
//! instruction set. Prints nanoseconds per output element, and GFLOP/s for convolutions.

use pteron_core::{DType, StaticKernel};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall};
use std::hint::black_box;
use std::time::Instant;

fn kernels_of(schema_start: &str) -> Vec<StaticKernel> {
    pteron_kernels::fast_kernels().filter(|k| k.schema.starts_with(schema_start)).collect()
}

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 2003) as f32 / 500.0 - 2.0).collect()
}

fn tensor(shape: &[usize]) -> CallArg {
    CallArg::Tensor(HostTensor::new(shape, &values(shape.iter().product())).expect("tensor"))
}

fn constant(shape: &[usize]) -> CallArg {
    CallArg::Constant(HostTensor::new(shape, &values(shape.iter().product())).expect("tensor"))
}

fn zeros(dtype: DType, shape: &[usize]) -> CallArg {
    CallArg::Tensor(HostTensor::zeros(dtype, shape).expect("tensor"))
}

/// Median nanoseconds of a run.
fn measure(call: &mut SingleCall) -> f64 {
    let grid = call.bind().expect("bind");
    let mut time = || {
        let start = Instant::now();
        call.run(black_box(grid), false).expect("run");
        start.elapsed().as_nanos() as f64
    };
    let once = time().max(1.0);
    let runs = (50e6 / once).clamp(5.0, 2000.0) as usize;
    let mut times: Vec<f64> = (0..runs).map(|_| time()).collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

struct Bench {
    filter: String,
}

impl Bench {
    fn report(&self, label: &str, op: &str, outputs: usize, flops: usize, args: impl Fn() -> Vec<CallArg>) {
        if !label.contains(&self.filter) {
            return;
        }
        let cpu = pteron_kernels::cpu_detect::detect().expect("processor");
        let found =
            kernels_of(op).iter().find_map(|k| SingleCall::new(k.prepare, &cpu, args()).expect("prepare"));
        let Some(mut call) = found else {
            println!("{label:44} no fast kernel");
            return;
        };
        let ns = measure(&mut call);
        let rate = if flops > 0 { format!("{:8.1} GFLOP/s", flops as f64 / ns) } else { String::new() };
        println!("{label:44} {:10.2} us {:8.3} ns/element {rate}", ns / 1e3, ns / outputs as f64);
    }

    fn elementwise(&self) {
        let n = 384;
        for (size, rows) in [("small", 1), ("medium", 128), ("large", 4096)] {
            let shape = [rows, n];
            let outputs = rows * n;
            for op in ["exp", "tanh", "sigmoid", "erf", "log", "relu", "sqrt"] {
                self.report(&format!("{op} {size}"), &format!("aten::{op}.out"), outputs, 0, || {
                    vec![tensor(&shape), zeros(DType::Float32, &shape)]
                });
            }
            for kind in ["none", "tanh"] {
                self.report(&format!("gelu {kind} {size}"), "aten::gelu.out", outputs, 0, || {
                    vec![tensor(&shape), CallArg::String(kind.into()), zeros(DType::Float32, &shape)]
                });
            }
            for (what, other) in
                [("same", vec![rows, n]), ("row", vec![n]), ("column", vec![rows, 1]), ("scalar", vec![])]
            {
                self.report(&format!("mul {what} {size}"), "aten::mul.out", outputs, 0, || {
                    vec![tensor(&shape), tensor(&other), zeros(DType::Float32, &shape)]
                });
            }
            self.report(&format!("eq scalar {size}"), "aten::eq.Scalar_out", outputs, 0, || {
                vec![tensor(&shape), CallArg::double(0.0), zeros(DType::Bool, &shape)]
            });
            self.report(&format!("where {size}"), "aten::where.self_out", outputs, 0, || {
                vec![zeros(DType::Bool, &shape), tensor(&[]), tensor(&shape), zeros(DType::Float32, &shape)]
            });
        }
    }

    fn rows(&self) {
        for (size, rows, n) in [("12x16x16", 192, 16), ("12x128x128", 1536, 128), ("12x256x256", 3072, 256)] {
            self.report(&format!("softmax {size}"), "aten::_softmax.out", rows * n, 0, || {
                let shape = [rows, n];
                vec![tensor(&shape), CallArg::int(-1), CallArg::bool(false), zeros(DType::Float32, &shape)]
            });
        }
        for rows in [1, 128, 2048] {
            self.report(
                &format!("layer norm {rows}x384"),
                "aten::native_layer_norm.out",
                rows * 384,
                0,
                || {
                    let mut args =
                        vec![tensor(&[rows, 384]), CallArg::Ints(vec![384]), tensor(&[384]), tensor(&[384])];
                    args.push(CallArg::double(1e-12));
                    args.extend([&[rows, 384], &[rows, 1], &[rows, 1]].map(|s| zeros(DType::Float32, s)));
                    args
                },
            );
        }
        for (label, shape, dims) in
            [("sum rows 1536x128", [1536, 128], 1), ("sum columns 128x384", [128, 384], 0)]
        {
            self.report(label, "aten::sum.IntList_out", shape[0] * shape[1], 0, || {
                let out = shape[1 - dims];
                vec![
                    tensor(&shape),
                    CallArg::Ints(vec![dims as i64]),
                    CallArg::bool(false),
                    CallArg::None,
                    zeros(DType::Float32, &[out]),
                ]
            });
        }
    }

    fn layout(&self) {
        for (label, shape, dims) in [
            ("permute heads [1,128,12,32] 0213", vec![1, 128, 12, 32], vec![0usize, 2, 1, 3]),
            ("permute keys [1,128,12,32] 0231", vec![1, 128, 12, 32], vec![0, 2, 3, 1]),
            ("transpose [384,1536]", vec![384, 1536], vec![1, 0]),
            ("nchw to nhwc [1,64,56,56]", vec![1, 64, 56, 56], vec![0, 2, 3, 1]),
        ] {
            let out: Vec<usize> = dims.iter().map(|d| shape[*d]).collect();
            self.report(label, "aten::permute_copy.out", shape.iter().product(), 0, || {
                let order = dims.iter().map(|d| *d as i64).collect();
                vec![tensor(&shape), CallArg::Ints(order), zeros(DType::Float32, &out)]
            });
        }
    }

    /// (label, channels in, channels out, groups, input, kernel, stride, padding).
    fn convolutions(&self) {
        for (label, ic, oc, groups, input, kernel, stride, padding) in [
            ("conv 7x7/2 3->64 224 (resnet stem)", 3, 64, 1, 224, 7, 2, 3),
            ("conv 3x3 64->64 56", 64, 64, 1, 56, 3, 1, 1),
            ("conv 3x3/2 64->128 56", 64, 128, 1, 56, 3, 2, 1),
            ("conv 3x3 128->128 28", 128, 128, 1, 28, 3, 1, 1),
            ("conv 3x3 256->256 14", 256, 256, 1, 14, 3, 1, 1),
            ("conv 3x3 512->512 7", 512, 512, 1, 7, 3, 1, 1),
            ("conv 1x1 24->144 56 (mobilenet)", 24, 144, 1, 56, 1, 1, 0),
            ("conv 1x1 144->24 56", 144, 24, 1, 56, 1, 1, 0),
            ("conv 1x1 384->64 14", 384, 64, 1, 14, 1, 1, 0),
            ("conv 1x1 320->1280 7", 320, 1280, 1, 7, 1, 1, 0),
            ("conv 3x3/2 3->32 224", 3, 32, 1, 224, 3, 2, 1),
            ("depthwise 3x3 144 56", 144, 144, 144, 56, 3, 1, 1),
            ("depthwise 3x3/2 144 56", 144, 144, 144, 56, 3, 2, 1),
            ("depthwise 3x3 576 14", 576, 576, 576, 14, 3, 1, 1),
            ("depthwise 5x5 240 28", 240, 240, 240, 28, 5, 1, 2),
        ] {
            let output = (input + 2 * padding - kernel) / stride + 1;
            let outputs = oc * output * output;
            let flops = 2 * outputs * ic / groups * kernel * kernel;
            self.report(label, "aten::convolution.out", outputs, flops, || {
                let pair = |v: usize| CallArg::Ints(vec![v as i64; 2]);
                vec![
                    tensor(&[1, ic, input, input]),
                    constant(&[oc, ic / groups, kernel, kernel]),
                    constant(&[oc]),
                    pair(stride),
                    pair(padding),
                    pair(1),
                    CallArg::bool(false),
                    pair(0),
                    CallArg::int(groups as i64),
                    zeros(DType::Float32, &[1, oc, output, output]),
                ]
            });
        }
    }

    fn pooling(&self) {
        self.report("max pool 3x3/2 64 112", "aten::max_pool2d_with_indices.out", 64 * 56 * 56, 0, || {
            let pair = |v: i64| CallArg::Ints(vec![v; 2]);
            let mut args =
                vec![tensor(&[1, 64, 112, 112]), pair(3), pair(2), pair(1), pair(1), CallArg::bool(false)];
            args.push(zeros(DType::Float32, &[1, 64, 56, 56]));
            args.push(zeros(DType::Int64, &[1, 64, 56, 56]));
            args
        });
        self.report("bilinear 256 14 to 56", "aten::upsample_bilinear2d.vec_out", 256 * 56 * 56, 0, || {
            let (size, out) = (CallArg::Ints(vec![56; 2]), zeros(DType::Float32, &[1, 256, 56, 56]));
            vec![tensor(&[1, 256, 14, 14]), size, CallArg::bool(false), CallArg::None, out]
        });
        self.report("mean over pixels 512 7x7", "aten::mean.out", 512 * 49, 0, || {
            let dims = CallArg::Ints(vec![-1, -2]);
            let out = zeros(DType::Float32, &[1, 512, 1, 1]);
            vec![tensor(&[1, 512, 7, 7]), dims, CallArg::bool(true), CallArg::None, out]
        });
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let bench = Bench { filter };
    println!("instruction set: {}", pteron_kernels::cpu_detect::detect().expect("processor").isa.name());
    bench.elementwise();
    bench.rows();
    bench.layout();
    bench.convolutions();
    bench.pooling();
}
