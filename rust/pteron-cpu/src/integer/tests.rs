//! Every kit against plain sums in i64.

use super::*;
use pteron_core::{CpuProfile, DType, DimOrder};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::{Arg, Tensor, call, numbers};

/// Names of the kits of this processor, and a profile that allows each.
fn kits() -> Vec<(&'static str, CpuProfile)> {
    Kit::available().filter_map(|(isa, kit)| Some((kit.name, profile(isa)?))).collect()
}

/// Bytes that hold every number, the ends often.
fn bytes(n: usize, seed: u32) -> Vec<i8> {
    let mix = |i: usize| (i as u32 ^ seed.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b9) >> 16;
    let byte = |v: u32| match v % 7 {
        0 => -128,
        1 => 127,
        _ => (v >> 4) as i8,
    };
    (0..n).map(|i| byte(mix(i))).collect()
}

/// A convolution, or a product as one of a single pixel; tensors as the definition has them, [N, C, H, W].
#[derive(Debug, Clone)]
struct Case {
    images: usize,
    channels: [usize; 2],
    groups: usize,
    input: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    /// Top, left, bottom, right.
    padding: [usize; 4],
    dilation: [usize; 2],
}

const fn case(channels: [usize; 2], input: [usize; 2], kernel: usize, stride: usize, padding: usize) -> Case {
    Case {
        images: 1,
        channels,
        groups: 1,
        input,
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 4],
        dilation: [1; 2],
    }
}

/// The numbers of a case.
#[derive(Debug, Clone)]
struct Scheme {
    is_unsigned: [bool; 2],
    scale: f32,
    zero: i32,
    weight_scales: Vec<f32>,
    bias: Option<Vec<f32>>,
    clamp: Option<(f32, f32)>,
    output: IntegerOutput,
}

impl Case {
    fn output(&self) -> [usize; 2] {
        [0, 1].map(|d| {
            let reach = self.dilation[d] * (self.kernel[d] - 1);
            (self.input[d] + self.padding[d] + self.padding[d + 2] - reach - 1) / self.stride[d] + 1
        })
    }

    fn depth(&self) -> usize {
        self.channels[0] / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// The exact sums of (q - zero) w, as [N, O, H, W].
    fn sums(&self, x: &[i64], w: &[i8], zero: i64) -> Vec<i64> {
        let ([i, o], [height, width]) = (self.channels, self.output());
        let (ci, co) = (i / self.groups, o / self.groups);
        let mut sums = Vec::new();
        for (n, c, y, z) in indices([self.images, o, height, width]) {
            let mut sum = 0;
            for (_, k, ky, kx) in indices([1, ci, self.kernel[0], self.kernel[1]]) {
                let at = |d: usize, o: usize, k: usize| {
                    (o * self.stride[d] + k * self.dilation[d])
                        .checked_sub(self.padding[d])
                        .filter(|v| *v < self.input[d])
                };
                if let (Some(y), Some(z)) = (at(0, y, ky), at(1, z, kx)) {
                    let channel = c / co * ci + k;
                    let pixel = ((n * i + channel) * self.input[0] + y) * self.input[1] + z;
                    let weight = ((c * ci + k) * self.kernel[0] + ky) * self.kernel[1] + kx;
                    sum += (x[pixel] - zero) * i64::from(w[weight]);
                }
            }
            sums.push(sum);
        }
        sums
    }
}

fn indices(extents: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let [a, b, c, d] = extents;
    (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
}

/// What a sum becomes: floats as they are, bytes as their numbers.
fn finish(scheme: &Scheme, c: usize, sum: i64) -> f32 {
    let unit = scheme.scale * scheme.weight_scales[c % scheme.weight_scales.len()];
    let biases = scheme.bias.clone().unwrap_or_default();
    let bias = biases.get(c).copied().unwrap_or(0.0);
    let (low, high) = scheme.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    match scheme.output {
        IntegerOutput::Float => (sum as f32 * unit + bias).max(low).min(high),
        IntegerOutput::Quantised { scale, zero_point, low: least, high: most } => {
            let multiple = |(c, b): (usize, &f32)| {
                let unit = scheme.scale * scheme.weight_scales[c % scheme.weight_scales.len()];
                let times = (b / unit).round_ties_even();
                (times * unit == *b).then_some(times as i64)
            };
            let multiples: Option<Vec<i64>> = biases.iter().enumerate().map(multiple).collect();
            let real = match multiples {
                Some(m) => (sum + m.get(c).copied().unwrap_or(0)) as f32 * (unit / scale),
                None => sum as f32 * (unit / scale) + bias / scale,
            };
            let whole =
                real.max(low / scale).min(high / scale).round_ties_even() as f64 + f64::from(zero_point);
            whole.clamp(f64::from(least), f64::from(most)) as f32
        }
    }
}

fn ints(v: &[usize]) -> Vec<i64> {
    v.iter().map(|v| *v as i64).collect()
}

/// Elements of a row-major [N, C, H, W] in the order of channels-last.
fn channels_last<T: Copy>(data: &[T], [n, c, h, w]: [usize; 4]) -> Vec<T> {
    indices([n, h, w, c]).map(|(n, y, x, k)| data[((n * c + k) * h + y) * w + x]).collect()
}

/// A tensor of bytes that stand for int8 or uint8.
fn byte_tensor(shape: &[usize], order: DimOrder, bytes: &[i8], is_unsigned: bool) -> HostTensor {
    match is_unsigned {
        true => HostTensor::in_order(shape, order, bytemuck::cast_slice::<i8, u8>(bytes)).unwrap(),
        false => HostTensor::in_order(shape, order, bytes).unwrap(),
    }
}

fn out_type(scheme: &Scheme) -> DType {
    match (scheme.output, scheme.is_unsigned[1]) {
        (IntegerOutput::Float, _) => DType::Float32,
        (_, true) => DType::UInt8,
        _ => DType::Int8,
    }
}

/// The numbers of the output at `position`.
fn results(call: &SingleCall, position: usize, scheme: &Scheme) -> Vec<f32> {
    match out_type(scheme) {
        DType::Float32 => call.output::<f32>(position).unwrap().to_vec(),
        DType::UInt8 => call.output::<u8>(position).unwrap().iter().map(|v| f32::from(*v)).collect(),
        _ => call.output::<i8>(position).unwrap().iter().map(|v| f32::from(*v)).collect(),
    }
}

fn value(byte: i8, is_unsigned: bool) -> i64 {
    if is_unsigned { i64::from(byte as u8) } else { i64::from(byte) }
}

fn spec(operation: IntegerOperation, scheme: &Scheme) -> IntegerSpec {
    IntegerSpec {
        operation,
        input: IntegerInput::PerTensor { scale: scheme.scale, zero_point: scheme.zero },
        has_bias: scheme.bias.is_some(),
        clamp: scheme.clamp,
        output: scheme.output,
    }
}

/// Schemes that use what there is, for `channels` output channels of `depth` products.
fn schemes(channels: usize, depth: usize) -> Vec<Scheme> {
    let per_channel: Vec<f32> = (0..channels).map(|c| 0.003 + 0.0001 * (c % 13) as f32).collect();
    let spread = 0.02 * (depth as f32).sqrt();
    let bias: Vec<f32> = (0..channels).map(|c| (c as f32 * 0.7).sin() * spread * 20.0).collect();
    let whole: Vec<f32> = per_channel.iter().map(|s| 0.02 * s * 37.0).collect();
    let quantised = |zero_point, low, high| IntegerOutput::Quantised { scale: spread, zero_point, low, high };
    let plain = Scheme {
        is_unsigned: [false; 2],
        scale: 0.02,
        zero: 3,
        weight_scales: per_channel,
        bias: Some(bias.clone()),
        clamp: None,
        output: quantised(-5, -128, 127),
    };
    vec![
        Scheme { is_unsigned: [true, false], zero: 131, ..plain.clone() },
        Scheme { is_unsigned: [false, true], zero: -128, output: quantised(77, 0, 255), ..plain.clone() },
        Scheme { bias: Some(whole), clamp: Some((0.0, f32::INFINITY)), zero: 127, ..plain.clone() },
        Scheme { bias: None, weight_scales: vec![0.004], output: IntegerOutput::Float, ..plain.clone() },
        Scheme { clamp: Some((-spread, 6.0)), output: IntegerOutput::Float, ..plain.clone() },
        Scheme { output: quantised(0, -127, 100), ..plain },
    ]
}

fn check_convolution(case: &Case, scheme: &Scheme, last: [bool; 2], kit: &str, cpu: &CpuProfile) {
    let ([i, o], [height, width]) = (case.channels, case.output());
    let shapes = [[case.images, i, case.input[0], case.input[1]], [case.images, o, height, width]];
    let weight_shape = [o, i / case.groups, case.kernel[0], case.kernel[1]];
    let data = bytes(shapes[0].iter().product(), 1);
    let weights = bytes(weight_shape.iter().product(), 2);
    let x: Vec<i64> = data.iter().map(|b| value(*b, scheme.is_unsigned[0])).collect();
    let order = |is_last: bool| match is_last {
        true => DimOrder::new(&[0, 2, 3, 1]).unwrap(),
        false => DimOrder::contiguous(4),
    };
    let laid = if last[0] { channels_last(&data, shapes[0]) } else { data };
    // Every other weight lies with its outputs apart.
    let weight = match case.depth() % 2 {
        0 => HostTensor::new(&weight_shape, &weights).unwrap(),
        _ => {
            HostTensor::in_order(&weight_shape, order(true), &channels_last(&weights, weight_shape)).unwrap()
        }
    };
    let mut args = vec![
        CallArg::Tensor(byte_tensor(&shapes[0], order(last[0]), &laid, scheme.is_unsigned[0])),
        CallArg::Constant(weight),
        CallArg::Constant(HostTensor::new(&[scheme.weight_scales.len()], &scheme.weight_scales).unwrap()),
    ];
    if let Some(bias) = &scheme.bias {
        args.push(CallArg::Constant(HostTensor::new(&[o], bias).unwrap()));
    }
    let out = args.len();
    args.push(CallArg::Tensor(
        HostTensor::zeros_in_order(out_type(scheme), &shapes[1], order(last[1])).unwrap(),
    ));
    let operation = IntegerOperation::Convolution {
        stride: ints(&case.stride),
        padding: ints(&case.padding),
        dilation: ints(&case.dilation),
        groups: case.groups as i64,
    };
    let spec = spec(operation, scheme);
    let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), cpu, args)
        .unwrap()
        .expect("is taken");
    call.call().unwrap();
    let sums = case.sums(&x, &weights, i64::from(scheme.zero));
    let plane = height * width;
    let want: Vec<f32> = sums.iter().enumerate().map(|(at, s)| finish(scheme, at / plane % o, *s)).collect();
    let want = if last[1] { channels_last(&want, shapes[1]) } else { want };
    let got = results(&call, out, scheme);
    let wrong = got.iter().zip(&want).position(|(a, b)| a.to_bits() != b.to_bits() && a != b);
    assert_eq!(
        wrong.map(|at| (at, got[at], want[at])),
        None,
        "{kit} {case:?} {scheme:?}, channels-last {last:?}"
    );
}

const CONVOLUTIONS: [Case; 22] = [
    case([3, 8], [9, 11], 3, 1, 1),
    case([3, 40], [13, 12], 7, 2, 3),
    case([64, 33], [7, 7], 1, 1, 0),
    case([70, 64], [7, 7], 3, 1, 1),
    case([5, 100], [4, 4], 1, 2, 0),
    case([300, 5], [5, 6], 1, 1, 0),
    case([4, 6], [13, 10], 3, 3, 2),
    case([1, 1], [1, 1], 1, 1, 0),
    case([24, 70], [1, 1], 1, 1, 0),
    Case { images: 3, ..case([17, 32], [10, 10], 3, 2, 1) },
    Case { images: 2, ..case([17, 65], [9, 7], 1, 1, 0) },
    Case { dilation: [2, 3], ..case([4, 8], [17, 19], 3, 1, 2) },
    Case { kernel: [1, 5], padding: [0, 2, 0, 2], ..case([6, 10], [3, 33], 1, 1, 0) },
    Case { padding: [0, 0, 1, 2], ..case([6, 40], [8, 9], 3, 2, 0) },
    Case { groups: 3, ..case([12, 24], [8, 9], 3, 1, 1) },
    Case { groups: 2, ..case([36, 72], [6, 9], 3, 2, 1) },
    Case { groups: 20, ..case([20, 20], [9, 10], 3, 1, 1) },
    Case { groups: 70, images: 2, ..case([70, 70], [9, 11], 3, 2, 1) },
    Case { groups: 40, ..case([40, 40], [6, 9], 5, 1, 2) },
    Case { groups: 144, ..case([144, 144], [5, 7], 3, 1, 1) },
    Case { groups: 33, dilation: [1, 2], padding: [2, 1, 0, 3], ..case([33, 33], [9, 9], 3, 1, 0) },
    // Windows that no output has whole.
    Case { groups: 64, ..case([64, 64], [2, 2], 5, 1, 2) },
];

#[test]
fn convolutions_agree_with_plain_sums() {
    for (kit, cpu) in kits() {
        for (i, case) in CONVOLUTIONS.iter().enumerate() {
            for (j, scheme) in schemes(case.channels[1], case.depth()).iter().enumerate() {
                // Every scheme in one order, channels-last in all of them.
                for last in [[true, true], [(i + j) % 2 == 0, (i + j) % 3 == 0]] {
                    check_convolution(case, scheme, last, kit, &cpu);
                }
            }
        }
    }
}

/// A linear layer: input shape, output features, order of the weight.
fn linear_call(
    shape: &[usize],
    n: usize,
    is_weight_transposed: bool,
    scheme: &Scheme,
    kit: &str,
    cpu: &CpuProfile,
) -> (SingleCall, Vec<f32>) {
    let k = shape[shape.len() - 1];
    let rows: usize = shape[..shape.len() - 1].iter().product();
    let (data, weights) = (bytes(rows * k, 5), bytes(n * k, 6));
    let x: Vec<i64> = data.iter().map(|b| value(*b, scheme.is_unsigned[0])).collect();
    let weight = match is_weight_transposed {
        true => {
            let turned: Vec<i8> = (0..k * n).map(|i| weights[i % n * k + i / n]).collect();
            HostTensor::new(&[k, n], &turned).unwrap()
        }
        false => HostTensor::new(&[n, k], &weights).unwrap(),
    };
    let mut args = vec![
        CallArg::Tensor(byte_tensor(shape, DimOrder::contiguous(shape.len()), &data, scheme.is_unsigned[0])),
        CallArg::Constant(weight),
        CallArg::Constant(HostTensor::new(&[scheme.weight_scales.len()], &scheme.weight_scales).unwrap()),
    ];
    if let Some(bias) = &scheme.bias {
        args.push(CallArg::Constant(HostTensor::new(&[n], bias).unwrap()));
    }
    let mut out_shape = shape.to_vec();
    *out_shape.last_mut().unwrap() = n;
    args.push(CallArg::Tensor(HostTensor::zeros(out_type(scheme), &out_shape).unwrap()));
    let spec = spec(IntegerOperation::Linear { is_weight_transposed }, scheme);
    let call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), cpu, args).unwrap();
    let sum = |row: usize, column: usize| -> i64 {
        let pairs = x[row * k..(row + 1) * k].iter().zip(&weights[column * k..(column + 1) * k]);
        pairs.map(|(x, w)| (x - i64::from(scheme.zero)) * i64::from(*w)).sum()
    };
    let want = (0..rows * n).map(|i| finish(scheme, i % n, sum(i / n, i % n))).collect();
    (call.expect("is taken"), want)
}

#[test]
fn products_agree_with_plain_sums() {
    let shapes: [(&[usize], usize); 12] = [
        (&[1, 1], 1),
        (&[7], 33),
        (&[1, 64], 64),
        (&[2, 3, 37], 40),
        (&[4, 128], 31),
        (&[12, 20], 96),
        (&[13, 65], 33),
        (&[5, 3], 320),
        (&[64, 100], 100),
        (&[27, 1030], 70),
        (&[300, 24], 16),
        (&[3, 5, 700], 130),
    ];
    for (kit, cpu) in kits() {
        for (i, (shape, n)) in shapes.into_iter().enumerate() {
            for scheme in schemes(n, shape[shape.len() - 1]) {
                let (mut call, want) = linear_call(shape, n, i % 2 == 1, &scheme, kit, &cpu);
                call.call().unwrap();
                assert_eq!(
                    results(&call, call_out(&scheme), &scheme),
                    want,
                    "{kit} {shape:?} {n} {scheme:?}"
                );
            }
        }
    }
}

fn call_out(scheme: &Scheme) -> usize {
    3 + usize::from(scheme.bias.is_some())
}

#[test]
fn the_largest_products_do_not_saturate() {
    for (kit, cpu) in kits() {
        for (x, zero, w) in [(-128i8, 127, -128i8), (127, -128, -128), (127, -128, 127), (-128, 0, -128)] {
            let (k, n) = (4096, 33);
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[1, k], &vec![x; k]).unwrap()),
                CallArg::Constant(HostTensor::new(&[n, k], &vec![w; n * k]).unwrap()),
                CallArg::Constant(HostTensor::new(&[1], &[1f32]).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, n]).unwrap()),
            ];
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::PerTensor { scale: 1.0, zero_point: zero },
                has_bias: false,
                clamp: None,
                output: IntegerOutput::Float,
            };
            let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args)
                .unwrap()
                .expect("is taken");
            call.call().unwrap();
            let sum = (i64::from(x) - i64::from(zero)) * i64::from(w) * k as i64;
            assert_eq!(call.output::<f32>(3).unwrap(), vec![sum as f32; n], "{kit} {x} {zero} {w}");
        }
    }
}

/// What the plain kernels make of rows of floats: quantised numbers, scales, zero points.
fn chosen(x: &[f32], rows: usize, k: usize) -> (Vec<i8>, Vec<f64>, Vec<i64>) {
    let input = Tensor::of(&[rows, k], x);
    let parameters = call(
        "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
        &[
            input.clone().into(),
            Arg::Int(1),
            Tensor::output(DType::Float64, &[rows, 1]).into(),
            Tensor::output(DType::Int64, &[rows, 1]).into(),
        ],
    )
    .unwrap();
    let [_, _, Arg::Tensor(scales), Arg::Tensor(zeros)] = parameters.as_slice() else {
        panic!("two outputs")
    };
    let quantised = call(
        "quantized_decomposed::quantize_per_token.out",
        &[
            input.into(),
            scales.clone().into(),
            zeros.clone().into(),
            Arg::Int(-128),
            Arg::Int(127),
            Arg::Int(1),
            Tensor::output(DType::Int8, &[rows, k]).into(),
        ],
    )
    .unwrap();
    let Arg::Tensor(q) = &quantised[6] else { panic!("an output") };
    (q.values(), scales.values(), zeros.values())
}

#[test]
fn rows_are_quantised_as_the_plain_kernels_do_it() {
    for (kit, cpu) in kits() {
        for (rows, k, n) in [(1, 16, 33), (5, 100, 40), (30, 67, 64), (1, 1, 1), (3, 700, 20)] {
            let mut x = numbers(rows * k, 9);
            // Rows of one sign, of zeros, of tiny and of large numbers.
            x.iter_mut().take(k).for_each(|v| *v = v.abs() * 1e4);
            x.iter_mut().skip(k).take(k).for_each(|v| *v = 0.0);
            x.iter_mut().skip(2 * k).take(k).for_each(|v| *v = -v.abs() * 1e-9);
            let weights = bytes(n * k, 8);
            let scales: Vec<f32> = (0..n).map(|c| 0.01 + c as f32 * 1e-4).collect();
            let bias: Vec<f32> = (0..n).map(|c| c as f32 - 10.0).collect();
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[rows, k], &x).unwrap()),
                CallArg::Constant(HostTensor::new(&[n, k], &weights).unwrap()),
                CallArg::Constant(HostTensor::new(&[n], &scales).unwrap()),
                CallArg::Constant(HostTensor::new(&[n], &bias).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[rows, n]).unwrap()),
            ];
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::Rows { scheme: RowScheme::PerToken },
                has_bias: true,
                clamp: Some((-1e4, 1e5)),
                output: IntegerOutput::Float,
            };
            let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args)
                .unwrap()
                .expect("is taken");
            call.call().unwrap();
            let (q, row_scales, zeros) = chosen(&x, rows, k);
            let mut want = Vec::new();
            for r in 0..rows {
                for c in 0..n {
                    let pairs = q[r * k..(r + 1) * k].iter().zip(&weights[c * k..(c + 1) * k]);
                    let sum: i64 = pairs.map(|(q, w)| (i64::from(*q) - zeros[r]) * i64::from(*w)).sum();
                    let real = sum as f32 * (row_scales[r] as f32 * scales[c]) + bias[c];
                    want.push(real.clamp(-1e4, 1e5));
                }
            }
            assert_eq!(call.output::<f32>(4).unwrap(), want, "{kit} {rows} x {k} x {n}");
        }
    }
}

#[test]
fn a_row_with_nan_becomes_nan_and_no_other() {
    for (kit, cpu) in kits() {
        let (k, n) = (40, 33);
        let mut x = numbers(3 * k, 4);
        x[k + 7] = f32::NAN;
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[3, k], &x).unwrap()),
            CallArg::Constant(HostTensor::new(&[n, k], &bytes(n * k, 3)).unwrap()),
            CallArg::Constant(HostTensor::new(&[1], &[0.5f32]).unwrap()),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[3, n]).unwrap()),
        ];
        let spec = IntegerSpec {
            operation: IntegerOperation::Linear { is_weight_transposed: false },
            input: IntegerInput::Rows { scheme: RowScheme::PerToken },
            has_bias: false,
            clamp: Some((-1.0, 1.0)),
            output: IntegerOutput::Float,
        };
        let mut call =
            SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let is_nan: Vec<bool> = call.output::<f32>(3).unwrap().iter().map(|v| v.is_nan()).collect();
        assert!((0..3 * n).all(|i| is_nan[i] == (i / n == 1)), "{kit}");
    }
}

#[test]
fn chunks_cover_every_row_and_column_once() {
    for (kit, cpu) in kits() {
        for (rows, k, n) in [(1, 768, 3072), (1000, 32, 16), (700, 256, 2000), (20_000, 16, 96)] {
            let shape = [rows, k];
            let args = vec![
                CallArg::Tensor(HostTensor::zeros(DType::Int8, &shape).unwrap()),
                CallArg::Constant(HostTensor::zeros(DType::Int8, &[n, k]).unwrap()),
                CallArg::Constant(HostTensor::new(&[1], &[1f32]).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Int8, &[rows, n]).unwrap()),
            ];
            let quantised = IntegerOutput::Quantised { scale: 1.0, zero_point: 77, low: -128, high: 127 };
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::PerTensor { scale: 1.0, zero_point: 0 },
                has_bias: false,
                clamp: None,
                output: quantised,
            };
            let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args)
                .unwrap()
                .expect("is taken");
            call.call().unwrap();
            assert!(call.output::<i8>(3).unwrap().iter().all(|v| *v == 77), "{kit} {rows} x {k} x {n}");
        }
    }
}
