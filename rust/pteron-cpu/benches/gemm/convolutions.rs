//! The convolutions that the models of the benches hold, as data; pointwise ones on channels-last pixels are
//! products and stand among the shapes. Images are 224 x 224.

use crate::bandwidth;
use crate::call::Call;
use crate::clock::{best, thread_time};
use crate::is_wanted;
use crate::report::{Report, Row};
use pteron_core::Isa;
use pteron_cpu::Pool;
use pteron_cpu::conv::{prepare_convolution, winograd};

/// A convolution of one square image, as wide as high, with square windows.
pub struct Convolution {
    /// Where it is from.
    pub model: &'static str,
    /// Input and output channels.
    pub channels: [usize; 2],
    pub groups: usize,
    /// Input height and width.
    pub size: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
}

const fn dense(
    model: &'static str,
    channels: [usize; 2],
    size: usize,
    kernel: usize,
    stride: usize,
) -> Convolution {
    Convolution { model, channels, groups: 1, size, kernel, stride, padding: kernel / 2 }
}

const fn depthwise(
    model: &'static str,
    channels: usize,
    size: usize,
    kernel: usize,
    stride: usize,
) -> Convolution {
    Convolution { groups: channels, ..dense(model, [channels; 2], size, kernel, stride) }
}

const RESNET: &str = "ResNet-50";
const MOBILE: &str = "MobileNetV2";
const EFFICIENT: &str = "EfficientNet-B0";
const BOTH: &str = "MobileNetV2, EfficientNet-B0";

/// Held against the FMA ceiling.
pub const DENSE: &[Convolution] = &[
    dense(RESNET, [3, 64], 224, 7, 2),
    dense(RESNET, [64, 64], 56, 3, 1),
    dense(RESNET, [128, 128], 56, 3, 2),
    dense(RESNET, [128, 128], 28, 3, 1),
    dense(RESNET, [256, 256], 28, 3, 2),
    dense(RESNET, [256, 256], 14, 3, 1),
    dense(RESNET, [512, 512], 14, 3, 2),
    dense(RESNET, [512, 512], 7, 3, 1),
    dense(RESNET, [256, 512], 56, 1, 2),
    dense(RESNET, [512, 1024], 28, 1, 2),
    dense(RESNET, [1024, 2048], 14, 1, 2),
    dense(BOTH, [3, 32], 224, 3, 2),
    Convolution { padding: 0, ..dense("ViT-base", [3, 768], 224, 16, 16) },
];

/// Pointwise ones whose tensors lie in channel planes.
pub const POINTWISE: &[Convolution] = &[
    dense(RESNET, [64, 256], 56, 1, 1),
    dense(RESNET, [512, 128], 28, 1, 1),
    dense(RESNET, [1024, 256], 14, 1, 1),
    dense(RESNET, [2048, 512], 7, 1, 1),
    dense(BOTH, [24, 144], 56, 1, 1),
    dense(MOBILE, [144, 24], 56, 1, 1),
    dense(EFFICIENT, [240, 40], 28, 1, 1),
];

/// Held against the bandwidth of reading as many bytes as they read and write.
pub const DEPTHWISE: &[Convolution] = &[
    depthwise(BOTH, 32, 112, 3, 1),
    depthwise(BOTH, 96, 112, 3, 2),
    depthwise(BOTH, 144, 56, 3, 1),
    depthwise(EFFICIENT, 144, 56, 5, 2),
    depthwise(EFFICIENT, 240, 28, 5, 1),
    depthwise(EFFICIENT, 240, 28, 3, 2),
    depthwise(MOBILE, 384, 14, 3, 1),
    depthwise(EFFICIENT, 480, 14, 5, 1),
    depthwise(EFFICIENT, 672, 14, 5, 2),
    depthwise(MOBILE, 960, 7, 3, 1),
    depthwise(EFFICIENT, 1152, 7, 5, 1),
];

impl Convolution {
    pub fn output(&self) -> usize {
        (self.size + 2 * self.padding - self.kernel) / self.stride + 1
    }

    fn label(&self, order: &str) -> String {
        let Convolution { model, channels: [from, to], size, kernel, stride, .. } = self;
        format!("{model} {kernel}x{kernel}/{stride} {from}-{to} {size} {order}")
    }

    fn flops(&self) -> f64 {
        let depth = self.channels[0] / self.groups * self.kernel * self.kernel;
        2.0 * (self.output() * self.output() * self.channels[1] * depth) as f64
    }

    fn bytes(&self) -> usize {
        let elements = |channels: usize, size: usize| channels * size * size;
        4 * (elements(self.channels[0], self.size) + elements(self.channels[1], self.output()))
    }
}

/// Dense convolutions in both memory orders.
pub fn measure(isa: Isa, report: &mut Report<'_>) {
    let dense = DENSE.iter().flat_map(|c| [(c, true), (c, false)]);
    for (c, is_last) in dense.chain(POINTWISE.iter().map(|c| (c, false))) {
        let label = c.label(if is_last { "NHWC" } else { "NCHW" });
        if is_wanted(&label) {
            let row = Row { label, flops: c.flops(), weight_bytes: None };
            report.measure(&row, &mut direct(isa, c, is_last));
        }
    }
    for c in DENSE {
        let label = format!("{} winograd", c.label("NHWC"));
        let call = || Call::convolution(isa, c, true, winograd::prepare);
        if is_wanted(&label)
            && let Some(mut call) = call()
        {
            // Held against the products of the direct way: more than all of the ceiling is possible.
            report.measure(&Row { label, flops: c.flops(), weight_bytes: None }, &mut call);
        }
    }
}

fn direct(isa: Isa, c: &Convolution, is_last: bool) -> Call {
    Call::convolution(isa, c, is_last, prepare_convolution).expect("is taken by the fast kernel")
}

/// Depthwise convolutions in both memory orders, one thread.
pub fn measure_depthwise(isa: Isa, pool: &Pool) {
    println!("\ndepthwise: bytes read and written per second, against reading as many");
    for (c, is_last) in DEPTHWISE.iter().flat_map(|c| [(c, true), (c, false)]) {
        let label = c.label(if is_last { "depthwise NHWC" } else { "depthwise NCHW" });
        if !is_wanted(&label) {
            continue;
        }
        let mut call = direct(isa, c, is_last);
        let seconds = best(thread_time, || call.run(pool, 1));
        let (rate, ceiling) = (c.bytes() as f64 / seconds, bandwidth::bytes_per_second(isa, c.bytes()));
        println!(
            "{label:<56} {:>8.1} us {:>6.1} GFLOP/s {:>6.1} GB/s {:>4.0} % of {:.1}",
            seconds * 1e6,
            c.flops() / seconds / 1e9,
            rate / 1e9,
            rate / ceiling * 100.0,
            ceiling / 1e9
        );
    }
}
