//! Convolutions.

use super::*;
use pteron_kernels::single_call::CallArg;

/// A convolution; tensors as the definition has them, [N, C, H, W].
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

fn ints(v: &[usize]) -> Vec<i64> {
    v.iter().map(|v| *v as i64).collect()
}

fn indices(extents: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let [a, b, c, d] = extents;
    (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
}

/// Elements of a row-major [N, C, H, W] in the order of channels-last.
fn channels_last<T: Copy>(data: &[T], [n, c, h, w]: [usize; 4]) -> Vec<T> {
    indices([n, h, w, c]).map(|(n, y, x, k)| data[((n * c + k) * h + y) * w + x]).collect()
}

/// Checks a case by the kit of this name, or by those that would be chosen where it is empty.
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
    let summands = bytes(shapes[1].iter().product(), 3);
    if scheme.sum.is_some() {
        let laid = if last[1] { channels_last(&summands, shapes[1]) } else { summands.clone() };
        args.push(CallArg::Tensor(summand_tensor(scheme, &shapes[1], order(last[1]), &laid)));
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
    let call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| kit.is_empty() || k.name == kit), cpu, args);
    // A sum is for outputs that lie channels-last, of kernels that have products.
    let is_depthwise = case.groups > 1 && case.groups == case.channels[0] && case.groups == case.channels[1];
    if scheme.sum.is_some() && (!last[1] || is_depthwise) {
        return assert!(call.unwrap().is_none(), "{kit} {case:?} {scheme:?}");
    }
    let mut call = call.unwrap().expect("is taken");
    call.call().unwrap();
    let sums = case.sums(&x, &weights, i64::from(scheme.zero));
    let plane = height * width;
    let result = |(at, sum): (usize, &i64)| add(scheme, finish(scheme, at / plane % o, *sum), summands[at]);
    let want: Vec<f32> = sums.iter().enumerate().map(result).collect();
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

#[test]
fn channels_at_the_end_may_have_shorter_vectors() {
    let Some((_, cpu)) = kits().into_iter().next() else { panic!("there is a portable kit") };
    for channels in [40, 80, 96, 100, 144] {
        for stride in [1, 2] {
            let case = Case { groups: channels, ..case([channels; 2], [6, 9], 3, stride, 1) };
            for scheme in schemes(channels, case.depth()) {
                check_convolution(&case, &scheme, [true, true], "", &cpu);
            }
        }
    }
}

/// Images of other extents than were said at load, in planes: both reordering phases.
#[test]
fn smaller_images_are_bound() {
    for (kit, cpu) in kits() {
        for (groups, weight) in [(1, [40, 5, 3, 3]), (40, [40, 1, 3, 3])] {
            let channels = weight[1] * groups;
            let data = bytes(2 * channels * 9 * 8, 1);
            let output = IntegerOutput::Quantised { scale: 40.0, zero_point: 1, low: -128, high: 127 };
            let spec = IntegerSpec {
                operation: IntegerOperation::Convolution {
                    stride: vec![1],
                    padding: vec![1, 1],
                    dilation: vec![1],
                    groups: groups as i64,
                },
                input: IntegerInput::PerTensor { scale: 1.0, zero_point: 7 },
                has_bias: false,
                clamp: None,
                output,
                sum: None,
            };
            let call_of = |images: usize, height: usize, data: &[i8]| {
                let args = vec![
                    CallArg::Tensor(HostTensor::new(&[images, channels, height, 8], data).unwrap()),
                    CallArg::Constant(HostTensor::new(&weight, &bytes(weight.iter().product(), 2)).unwrap()),
                    CallArg::Constant(HostTensor::new(&[1], &[1f32]).unwrap()),
                    CallArg::Tensor(HostTensor::zeros(DType::Int8, &[images, 40, height, 8]).unwrap()),
                ];
                let prepared = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args);
                prepared.unwrap().expect("is taken")
            };
            let mut large = call_of(2, 9, &data);
            for (images, height) in [(2, 9), (1, 5), (0, 4), (2, 3)] {
                large.resize(0, &[images, channels, height, 8]).unwrap();
                let grid = large.bind().unwrap();
                large.run(grid, true).unwrap();
                let mut exact = call_of(images, height, &data[..images * channels * height * 8]);
                exact.call().unwrap();
                assert_eq!(&*large.shape(3).unwrap(), &[images, 40, height, 8]);
                assert_eq!(large.output::<i8>(3).unwrap(), exact.output::<i8>(3).unwrap(), "{kit} {height}");
            }
        }
    }
}
