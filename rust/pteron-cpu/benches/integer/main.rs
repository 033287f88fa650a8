//! `cargo bench -p pteron-cpu --bench integer [-- WORDS]`: integer products and convolutions of real models beside the f32
//! kernels of the same shapes, one thread, in one run. Words are parts of labels.
//!
//! GOP/s count a multiplication and an addition as two. The ceiling is that of the dot products of bytes which the machine
//! has, in registers.

mod ceiling;
#[allow(dead_code, reason = "the clock on the wall is for more than one thread")]
#[path = "../gemm/clock.rs"]
mod clock;

use clock::{best, thread_time};
use pteron_core::{DType, DimOrder, Isa};
use pteron_cpu::integer::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec, RowScheme};
use pteron_kernels::cpu_detect;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall};

/// What is computed: a convolution of one square image, channels-last; a product is a pointwise one of a line of pixels.
#[derive(Clone, Copy)]
struct Layer {
    model: &'static str,
    channels: [usize; 2],
    groups: usize,
    /// Height and width.
    input: [usize; 2],
    kernel: usize,
    stride: usize,
}

const fn layer(
    model: &'static str,
    channels: [usize; 2],
    size: usize,
    kernel: usize,
    stride: usize,
) -> Layer {
    Layer { model, channels, groups: 1, input: [size; 2], kernel, stride }
}

const fn product(m: usize, n: usize, k: usize) -> Layer {
    Layer { model: "product", channels: [k, n], groups: 1, input: [1, m], kernel: 1, stride: 1 }
}

const fn depthwise(channels: usize, size: usize, stride: usize) -> Layer {
    Layer { groups: channels, ..layer(MOBILE, [channels; 2], size, 3, stride) }
}

const RESNET: &str = "ResNet-50";
const MOBILE: &str = "MobileNetV2";

const LAYERS: &[Layer] = &[
    product(1, 768, 768),
    product(4, 768, 768),
    product(64, 768, 768),
    product(256, 768, 768),
    product(1024, 768, 768),
    product(1, 3072, 768),
    product(64, 3072, 768),
    product(1024, 3072, 768),
    product(64, 768, 3072),
    product(1024, 768, 3072),
    product(1, 3072, 3072),
    product(64, 3072, 3072),
    layer(RESNET, [3, 64], 224, 7, 2),
    layer(RESNET, [64, 64], 56, 1, 1),
    layer(RESNET, [64, 64], 56, 3, 1),
    layer(RESNET, [64, 256], 56, 1, 1),
    layer(RESNET, [128, 128], 28, 3, 1),
    layer(RESNET, [128, 512], 28, 1, 1),
    layer(RESNET, [256, 512], 56, 1, 2),
    layer(RESNET, [256, 256], 14, 3, 1),
    layer(RESNET, [1024, 256], 14, 1, 1),
    layer(RESNET, [512, 512], 7, 3, 1),
    layer(RESNET, [2048, 512], 7, 1, 1),
    layer(MOBILE, [3, 32], 224, 3, 2),
    layer(MOBILE, [16, 96], 112, 1, 1),
    layer(MOBILE, [96, 24], 56, 1, 1),
    layer(MOBILE, [24, 144], 56, 1, 1),
    layer(MOBILE, [192, 64], 14, 1, 1),
    layer(MOBILE, [960, 320], 7, 1, 1),
    depthwise(32, 112, 1),
    depthwise(96, 112, 2),
    depthwise(144, 56, 1),
    depthwise(384, 14, 1),
    depthwise(960, 7, 1),
];

impl Layer {
    fn padding(&self) -> usize {
        self.kernel / 2
    }

    fn output(&self) -> [usize; 2] {
        self.input.map(|n| (n + 2 * self.padding() - self.kernel) / self.stride + 1)
    }

    fn is_product(&self) -> bool {
        self.input[0] == 1
    }

    fn operations(&self) -> f64 {
        let depth = self.channels[0] / self.groups * self.kernel * self.kernel;
        2.0 * (self.output()[0] * self.output()[1] * self.channels[1] * depth) as f64
    }

    fn label(&self) -> String {
        let Layer { model, channels: [k, n], input, kernel, stride, groups } = *self;
        match (self.is_product(), groups) {
            (true, _) => format!("{model} {} x {k} x {n}", input[1]),
            (_, 1) => format!("{model} {kernel}x{kernel}/{stride} {k}-{n} {}", input[0]),
            _ => format!("{model} {kernel}x{kernel}/{stride} depthwise {k} {}", input[0]),
        }
    }

    /// Shapes of input, weight and output, and the memory order of the images.
    fn shapes(&self) -> ([Vec<usize>; 3], DimOrder) {
        let ([k, n], [height, width]) = (self.channels, self.output());
        if self.is_product() {
            let m = self.input[1];
            return ([vec![m, k], vec![n, k], vec![m, n]], DimOrder::contiguous(2));
        }
        let weight = vec![n, k / self.groups, self.kernel, self.kernel];
        let shapes = [vec![1, k, self.input[0], self.input[1]], weight, vec![1, n, height, width]];
        (shapes, DimOrder::new(&[0, 2, 3, 1]).expect("a permutation"))
    }

    fn integer(&self, is_float: bool) -> SingleCall {
        let ([x, w, y], order) = self.shapes();
        let pair = |v: usize| vec![v as i64; 2];
        let operation = match self.is_product() {
            true => IntegerOperation::Linear { is_weight_transposed: false },
            false => IntegerOperation::Convolution {
                stride: pair(self.stride),
                padding: pair(self.padding()),
                dilation: pair(1),
                groups: self.groups as i64,
            },
        };
        let spec = IntegerSpec {
            operation,
            input: match is_float {
                true => IntegerInput::Rows { scheme: RowScheme::PerToken },
                false => IntegerInput::PerTensor { scale: 0.02, zero_point: 3 },
            },
            has_bias: true,
            clamp: None,
            output: match is_float {
                true => IntegerOutput::Float,
                false => IntegerOutput::Quantised { scale: 0.1, zero_point: -3, low: -128, high: 127 },
            },
            sum: None,
        };
        let dtype = if is_float { DType::Float32 } else { DType::Int8 };
        let args = vec![
            CallArg::Tensor(HostTensor::zeros_in_order(dtype, &x, order).expect("memory")),
            CallArg::Constant(HostTensor::zeros(DType::Int8, &w).expect("memory")),
            CallArg::Constant(
                HostTensor::new(&[self.channels[1]], &vec![0.01f32; self.channels[1]]).expect("memory"),
            ),
            CallArg::Constant(
                HostTensor::new(&[self.channels[1]], &vec![0.3f32; self.channels[1]]).expect("memory"),
            ),
            CallArg::Tensor(HostTensor::zeros_in_order(dtype, &y, order).expect("memory")),
        ];
        taken(|ctx| pteron_cpu::integer::prepare(ctx, &spec), args)
    }

    fn float(&self) -> SingleCall {
        let ([x, w, y], order) = self.shapes();
        let tensor = |shape: &[usize], order: DimOrder| {
            HostTensor::zeros_in_order(DType::Float32, shape, order).expect("memory")
        };
        let (x, y) = (CallArg::Tensor(tensor(&x, order)), CallArg::Tensor(tensor(&y, order)));
        let w = CallArg::Constant(tensor(&w, DimOrder::contiguous(w.len())));
        let bias = CallArg::Tensor(tensor(&[self.channels[1]], DimOrder::contiguous(1)));
        let pair = |v: usize| CallArg::Ints(vec![v as i64; 2]);
        if self.is_product() {
            let prepare = pteron_cpu::linear::prepare_linear_like;
            return taken(|ctx| prepare(ctx, "aten::linear.out", &Default::default()), vec![x, w, bias, y]);
        }
        let args = vec![
            x,
            w,
            bias,
            pair(self.stride),
            pair(self.padding()),
            pair(1),
            CallArg::bool(false),
            pair(0),
            CallArg::int(self.groups as i64),
            y,
        ];
        taken(|ctx| pteron_cpu::conv::prepare_convolution(ctx, &Default::default()), args)
    }
}

fn taken(
    prepare: impl Fn(&pteron_core::PrepareContext<'_>) -> pteron_kernels::grid_kernel::Preparation,
    args: Vec<CallArg>,
) -> SingleCall {
    let cpu = cpu_detect::detect().expect("PTERON_ISA is right");
    SingleCall::of(prepare, &cpu, args).expect("prepares").expect("is taken")
}

fn seconds(mut call: SingleCall) -> f64 {
    let grid = call.bind().expect("binds");
    best(thread_time, || call.run(grid, false).expect("runs"))
}

fn main() {
    let isa = cpu_detect::detect().map_or(Isa::Portable, |cpu| cpu.isa);
    let has_tiles = product(1, 32, 64).integer(false).prepared().name().ends_with("amx");
    let ceiling = ceiling::operations_per_second(isa, has_tiles);
    let units = if has_tiles { "amx" } else { isa.name() };
    println!("{units}: ceiling of dot products {:.0} GOP/s", ceiling / 1e9);
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    for layer in LAYERS {
        let label = layer.label();
        if !(words.is_empty() || words.iter().any(|w| label.contains(w.as_str()))) {
            continue;
        }
        let operations = layer.operations();
        let report = |kind: &str, time: f64, base: f64| {
            println!(
                "{label:<36} {kind:<8} {:>9.1} us {:>7.1} GOP/s {:>4.0} % of the ceiling {:>5.2}x f32",
                time * 1e6,
                operations / time / 1e9,
                operations / time / ceiling * 100.0,
                base / time
            );
        };
        let float = seconds(layer.float());
        report("f32", float, float);
        report("int8", seconds(layer.integer(false)), float);
        if layer.is_product() {
            report("rows", seconds(layer.integer(true)), float);
        }
    }
}
