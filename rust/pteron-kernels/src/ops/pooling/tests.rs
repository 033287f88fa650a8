//! Pooling on every instruction set and in both memory orders against plain loops.

use super::{avg_pool, max_pool, max_values};
use crate::elementwise::operand::{Sink, Source};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use half::{bf16, f16};
use pteron_core::{DType, DimOrder, Element, Isa};

#[derive(Debug, Clone, Copy)]
struct Case {
    shape: [usize; 4],
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    is_ceil: bool,
}

const fn case(shape: [usize; 4], [kernel, stride, padding, dilation]: [usize; 4], is_ceil: bool) -> Case {
    Case { shape, kernel, stride, padding, dilation, is_ceil }
}

const CASES: [Case; 8] = [
    case([1, 3, 12, 40], [3, 2, 1, 1], false),
    case([2, 20, 7, 7], [2, 2, 0, 1], false),
    case([1, 2, 7, 8], [2, 2, 0, 1], true),
    case([1, 1, 5, 5], [3, 1, 1, 1], false),
    case([1, 2, 11, 13], [3, 3, 1, 1], true),
    case([1, 2, 20, 37], [3, 1, 0, 2], false),
    case([1, 17, 56, 56], [3, 2, 1, 1], true),
    case([0, 3, 4, 4], [2, 2, 0, 1], false),
];

impl Case {
    /// Output extent along `d`, as eager computes it.
    fn output(&self, d: usize) -> usize {
        let n = self.shape[2 + d] as i64;
        let (k, s, p, dil) =
            (self.kernel as i64, self.stride as i64, self.padding as i64, self.dilation as i64);
        let extra = if self.is_ceil { s - 1 } else { 0 };
        let mut out = (n + 2 * p - dil * (k - 1) - 1 + extra) / s + 1;
        if self.is_ceil && (out - 1) * s >= n + p {
            out -= 1;
        }
        out as usize
    }

    /// Positions of window `o` along `d` that lie inside, and its padded length.
    fn positions(&self, d: usize, o: usize) -> (Vec<usize>, usize) {
        let (n, p) = (self.shape[2 + d], self.padding);
        let all = (0..self.kernel).map(|k| o * self.stride + k * self.dilation);
        let inside = all.filter(|q| *q >= p && *q < n + p).map(|q| q - p).collect();
        (inside, (o * self.stride + self.kernel).min(n + 2 * p) - o * self.stride)
    }
}

/// Memory position of (image, channel, pixel).
fn at(is_last: bool, [c, p]: [usize; 2], [i, k, q]: [usize; 3]) -> usize {
    if is_last { (i * p + q) * c + k } else { (i * c + k) * p + q }
}

fn ints(v: usize) -> CallArg {
    CallArg::Ints(vec![v as i64; 2])
}

fn order(is_last: bool) -> DimOrder {
    if is_last { DimOrder::new(&[0, 2, 3, 1]).unwrap() } else { DimOrder::contiguous(4) }
}

fn each_case(mut f: impl FnMut(Isa, Case, bool, &[f32])) {
    for isa in Isa::ALL {
        if profile(isa).is_none() {
            continue;
        }
        for c in CASES {
            for is_last in [false, true] {
                let mut x = numbers(c.shape.iter().product(), 3);
                if x.len() > 40 {
                    // Equal neighbours, and a NaN.
                    x[20] = x[21];
                    x[33] = f32::NAN;
                }
                f(isa, c, is_last, &x);
            }
        }
    }
}

#[test]
fn largest_elements_and_their_places() {
    places_of::<f32>();
    places_of::<f16>();
    places_of::<bf16>();
}

fn places_of<T: Source + Sink + Element>() {
    each_case(|isa, c, is_last, x| {
        let x: Vec<T> = x.iter().map(|v| T::of_number(*v)).collect();
        let ([n, ch, h, w], [oh, ow]) = (c.shape, [c.output(0), c.output(1)]);
        let args = vec![
            CallArg::Tensor(HostTensor::in_order(&c.shape, order(is_last), &x).unwrap()),
            ints(c.kernel),
            ints(c.stride),
            ints(c.padding),
            ints(c.dilation),
            CallArg::bool(c.is_ceil),
            CallArg::Tensor(HostTensor::zeros_in_order(T::DTYPE, &[n, ch, oh, ow], order(is_last)).unwrap()),
            CallArg::Tensor(
                HostTensor::zeros_in_order(DType::Int64, &[n, ch, oh, ow], order(is_last)).unwrap(),
            ),
        ];
        let cpu = profile(isa).unwrap();
        let mut call = SingleCall::of(|ctx| max_pool::prepare(ctx, 2), &cpu, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        let (y, places) = (call.output::<T>(6).unwrap(), call.output::<i64>(7).unwrap());
        for i in 0..n * ch * oh * ow {
            let (image, k, p) = (i / (ch * oh * ow), i / (oh * ow) % ch, i % (oh * ow));
            let (mut best, mut place) = (f32::NEG_INFINITY, None);
            for row in c.positions(0, p / ow).0 {
                for column in c.positions(1, p % ow).0 {
                    let v = x[at(is_last, [ch, h * w], [image, k, row * w + column])].number();
                    if v > best || v.is_nan() || place.is_none() {
                        (best, place) = (v, Some(row * w + column));
                    }
                }
            }
            let o = at(is_last, [ch, oh * ow], [image, k, p]);
            let what = format!("{isa:?} {c:?} last={is_last} {i}");
            assert_eq!(y[o].number().to_bits(), best.to_bits(), "{what}");
            assert_eq!(places[o] as usize, place.unwrap(), "{what}");
        }
    });
}

#[test]
fn volumes_of_sixteen_bits_as_the_plain_kernel_has_them() {
    volumes::<f16>();
    volumes::<bf16>();
}

fn volumes<T: Source + Sink + Element>() {
    let operator = "aten::max_pool3d_with_indices.out";
    let (shape, orders) = ([2, 3, 4, 5, 19], [[0, 1, 2, 3, 4], [0, 2, 3, 4, 1]]);
    let mut x: Vec<T> = numbers(shape.iter().product(), 7).iter().map(|v| T::of_number(*v)).collect();
    // Nothing but negative infinity in some windows, both zeros, NaN of either sign, and two in a window.
    x[..60].fill(T::of_number(f32::NEG_INFINITY));
    let edges = [0.0, -0.0, 0.0, f32::NAN, -f32::NAN, f32::INFINITY, -0.0, 0.0, 1e-7, -1e-7];
    for (i, v) in edges.into_iter().enumerate() {
        (x[100 + i], x[200 + 3 * i]) = (T::of_number(v), T::of_number(v));
    }
    for (kernel, stride, padding, out) in
        [(3, 1, 1, [4, 5, 19]), (2, 2, 0, [2, 2, 9]), (3, 3, 1, [2, 2, 7]), (1, 4, 0, [1, 2, 5])]
    {
        for order in orders.map(|o| DimOrder::new(&o).unwrap()) {
            let call = |variant: &str, isa: Isa| {
                let list = |v: i64| CallArg::Ints(vec![v; 3]);
                let result = |dtype| {
                    let shape = [shape[0], shape[1], out[0], out[1], out[2]];
                    CallArg::Tensor(HostTensor::zeros_in_order(dtype, &shape, order).unwrap())
                };
                let x = CallArg::Tensor(HostTensor::in_order(&shape, order, &x).unwrap());
                let args = [x, list(kernel), list(stride), list(padding), list(1), CallArg::bool(false)];
                let args = args.into_iter().chain([result(T::DTYPE), result(DType::Int64)]).collect();
                let mut call =
                    SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
                let grid = call.bind().unwrap();
                call.run(grid, true).unwrap();
                // Which NaN of a window it is, instruction sets differ in; not its place.
                let bits = |v: f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
                let values: Vec<u32> =
                    call.output::<T>(6).unwrap().iter().map(|v| bits(v.number())).collect();
                Some((values, call.output::<i64>(7).unwrap()))
            };
            let want = call("reference", Isa::Portable).unwrap();
            for isa in Isa::ALL {
                let Some(got) = call("float", isa) else { continue };
                assert!(got == want, "{isa:?} {kernel} {order:?}: {got:?} instead of {want:?}");
            }
        }
    }
}

#[test]
fn means_of_fixed_windows() {
    each_case(|isa, c, is_last, x| {
        if c.dilation > 1 {
            return;
        }
        let ([n, ch, h, w], [oh, ow]) = (c.shape, [c.output(0), c.output(1)]);
        for (counts_padding, divisor) in [(true, None), (false, None), (true, Some(7))] {
            let args = vec![
                CallArg::Tensor(HostTensor::in_order(&c.shape, order(is_last), x).unwrap()),
                ints(c.kernel),
                ints(c.stride),
                ints(c.padding),
                CallArg::bool(c.is_ceil),
                CallArg::bool(counts_padding),
                divisor.map_or(CallArg::None, CallArg::int),
                CallArg::Tensor(
                    HostTensor::zeros_in_order(DType::Float32, &[n, ch, oh, ow], order(is_last)).unwrap(),
                ),
            ];
            let cpu = profile(isa).unwrap();
            let mut call =
                SingleCall::of(|ctx| avg_pool::prepare_fixed(ctx, 2), &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            let y = call.output::<f32>(7).unwrap();
            for i in 0..n * ch * oh * ow {
                let (image, k, p) = (i / (ch * oh * ow), i / (oh * ow) % ch, i % (oh * ow));
                let ((rows, padded_h), (columns, padded_w)) =
                    (c.positions(0, p / ow), c.positions(1, p % ow));
                let mut sum = 0.0;
                for row in &rows {
                    for column in &columns {
                        sum += f64::from(x[at(is_last, [ch, h * w], [image, k, row * w + column])]);
                    }
                }
                let count = match (divisor, counts_padding) {
                    (Some(d), _) => d as usize,
                    (None, true) => padded_h * padded_w,
                    (None, false) => rows.len() * columns.len(),
                };
                let (got, want) = (y[at(is_last, [ch, oh * ow], [image, k, p])], sum / count as f64);
                let same = (f64::from(got) - want).abs() < 2e-6 || (got.is_nan() && want.is_nan());
                assert!(same, "{isa:?} {c:?} last={is_last} {i}: {got} {want}");
            }
        }
    });
}

#[test]
fn adaptive_windows_cover_the_input() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for (shape, [oh, ow]) in [([2, 20, 7, 7], [1, 1]), ([1, 3, 10, 70], [3, 2]), ([1, 2, 5, 6], [7, 4])] {
            for is_last in [false, true] {
                let [n, ch, h, w] = shape;
                let x = numbers(shape.iter().product(), 3);
                let out =
                    HostTensor::zeros_in_order(DType::Float32, &[n, ch, oh, ow], order(is_last)).unwrap();
                let args = vec![
                    CallArg::Tensor(HostTensor::in_order(&shape, order(is_last), &x).unwrap()),
                    CallArg::Ints(vec![oh as i64, ow as i64]),
                    CallArg::Tensor(out),
                ];
                let mut call =
                    SingleCall::of(|ctx| avg_pool::prepare_adaptive(ctx, 2), &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                let y = call.output::<f32>(2).unwrap();
                for i in 0..n * ch * oh * ow {
                    let (image, k, p) = (i / (ch * oh * ow), i / (oh * ow) % ch, i % (oh * ow));
                    let rows = p / ow * h / oh..((p / ow + 1) * h).div_ceil(oh);
                    let columns = p % ow * w / ow..((p % ow + 1) * w).div_ceil(ow);
                    let mut sum = 0.0;
                    for row in rows.clone() {
                        for column in columns.clone() {
                            sum += f64::from(x[at(is_last, [ch, h * w], [image, k, row * w + column])]);
                        }
                    }
                    let want = sum / (rows.len() * columns.len()) as f64;
                    let got = y[at(is_last, [ch, oh * ow], [image, k, p])];
                    assert!((f64::from(got) - want).abs() < 2e-6, "{isa:?} {shape:?}: {got} {want}");
                }
            }
        }
    }
}

/// Signals: fixed and adaptive means of every float and both memory orders beside the plain kernels.
#[test]
fn means_of_signals() {
    signals::<f32>(f64::from, |v| v, 2e-6);
    signals::<f64>(|v| v, f64::from, 1e-13);
    signals::<f16>(f64::from, f16::from_f32, 2e-3);
    signals::<bf16>(f64::from, bf16::from_f32, 1e-2);
}

fn signals<T: Element>(number: fn(T) -> f64, of: fn(f32) -> T, within: f64) {
    // Shape; kernel, stride and padding of a fixed window, its rounding, whether padding counts; outputs.
    for ([n, ch, length], window, out) in [
        ([2, 3, 40], Some(([3, 2, 1], false, true)), 20),
        ([1, 17, 41], Some(([4, 3, 2], true, false)), 15),
        ([2, 5, 9], Some(([5, 1, 0], true, true)), 5),
        ([0, 3, 4], Some(([2, 2, 0], false, true)), 2),
        ([2, 19, 70], None, 9),
        ([3, 4, 5], None, 7),
        ([1, 33, 64], None, 1),
        ([2, 3, 0], None, 1),
    ] {
        let list = |v: i64| CallArg::Ints(vec![v]);
        let arguments = || match window {
            None => ("aten::adaptive_avg_pool1d.out", vec![list(out as i64)]),
            Some(([kernel, stride, padding], is_ceil, counts_padding)) => {
                let window = vec![list(kernel), list(stride), list(padding)];
                let flags = [CallArg::bool(is_ceil), CallArg::bool(counts_padding)];
                ("aten::avg_pool1d.out", window.into_iter().chain(flags).collect())
            }
        };
        let x: Vec<T> = numbers(n * ch * length, 3).into_iter().map(of).collect();
        for order in [[0, 1, 2], [0, 2, 1]].map(|o| DimOrder::new(&o).unwrap()) {
            let call = |variant: &str, isa: Isa| {
                let (operator, arguments) = arguments();
                let mut args =
                    vec![CallArg::Tensor(HostTensor::in_order(&[n, ch, length], order, &x).unwrap())];
                args.extend(arguments);
                let at = args.len();
                args.push(CallArg::Tensor(
                    HostTensor::zeros_in_order(T::DTYPE, &[n, ch, out], order).unwrap(),
                ));
                let mut call =
                    SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
                let grid = call.bind().unwrap();
                call.run(grid, true).unwrap();
                Some(call.output::<T>(at).unwrap())
            };
            let want = call("reference", Isa::Portable).unwrap();
            assert_eq!(want.len(), n * ch * out);
            for isa in Isa::ALL {
                let Some(got) = call("float", isa) else { continue };
                for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                    let (a, b) = (number(*a), number(*b));
                    let same = (a - b).abs() <= within || (a.is_nan() && b.is_nan());
                    assert!(same, "{isa:?} {window:?} {order:?} {i}: {a} instead of {b}");
                }
            }
        }
    }
}

/// Volumes: both pools against plain loops.
#[test]
fn windows_over_volumes() {
    let ([n, ch], size, kernel) = ([2, 17], [4usize, 5, 6], [2usize, 3, 2]);
    let (stride, padding) = ([1usize, 2, 2], [1usize, 1, 0]);
    let out: Vec<usize> = (0..3).map(|d| (size[d] + 2 * padding[d] - kernel[d]) / stride[d] + 1).collect();
    let (pixels, outputs) = (size.iter().product::<usize>(), out.iter().product::<usize>());
    let mut x = numbers(n * ch * pixels, 3);
    (x[20], x[33]) = (x[21], f32::NAN);
    let list = |v: [usize; 3]| CallArg::Ints(v.map(|v| v as i64).to_vec());
    for (isa, is_last) in Isa::ALL.into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
        let Some(cpu) = profile(isa) else { continue };
        let order = if is_last { DimOrder::new(&[0, 2, 3, 4, 1]).unwrap() } else { DimOrder::contiguous(5) };
        let input = || {
            let x = HostTensor::in_order(&[n, ch, size[0], size[1], size[2]], order, &x).unwrap();
            vec![CallArg::Tensor(x), list(kernel), list(stride), list(padding)]
        };
        let result = |dtype| {
            CallArg::Tensor(
                HostTensor::zeros_in_order(dtype, &[n, ch, out[0], out[1], out[2]], order).unwrap(),
            )
        };
        let mut args = input();
        args.extend([list([1; 3]), CallArg::bool(false), result(DType::Float32), result(DType::Int64)]);
        let mut largest = SingleCall::of(|ctx| max_pool::prepare(ctx, 3), &cpu, args).unwrap().unwrap();
        let grid = largest.bind().unwrap();
        largest.run(grid, true).unwrap();
        let mut args = input();
        args.extend([CallArg::bool(false), CallArg::bool(true), CallArg::None, result(DType::Float32)]);
        let mut mean = SingleCall::of(|ctx| avg_pool::prepare_fixed(ctx, 3), &cpu, args).unwrap().unwrap();
        let grid = mean.bind().unwrap();
        mean.run(grid, true).unwrap();
        let (y, places, means) = (
            largest.output::<f32>(6).unwrap(),
            largest.output::<i64>(7).unwrap(),
            mean.output::<f32>(7).unwrap(),
        );
        for i in 0..n * ch * outputs {
            let (image, k, o) = (i / (ch * outputs), i / outputs % ch, i % outputs);
            let o = [o / (out[1] * out[2]), o / out[2] % out[1], o % out[2]];
            let (mut best, mut place, mut sum) = (f32::NEG_INFINITY, None, 0.0);
            for t in 0..kernel.iter().product() {
                let t = [t / (kernel[1] * kernel[2]), t / kernel[2] % kernel[1], t % kernel[2]];
                let q = [0, 1, 2].map(|d| (o[d] * stride[d] + t[d]).wrapping_sub(padding[d]));
                if (0..3).any(|d| q[d] >= size[d]) {
                    continue;
                }
                let p = (q[0] * size[1] + q[1]) * size[2] + q[2];
                let v = x[at(is_last, [ch, pixels], [image, k, p])];
                sum += f64::from(v);
                if v > best || v.is_nan() || place.is_none() {
                    (best, place) = (v, Some(p as i64));
                }
            }
            let slot = at(is_last, [ch, outputs], [image, k, i % outputs]);
            assert_eq!(y[slot].to_bits(), best.to_bits(), "{isa:?} {is_last} {i}");
            assert_eq!(Some(places[slot]), place, "{isa:?} {is_last} {i}");
            let (got, want) = (f64::from(means[slot]), sum / kernel.iter().product::<usize>() as f64);
            assert!(
                (got - want).abs() < 2e-6 || (got.is_nan() && want.is_nan()),
                "{isa:?} {i}: {got} {want}"
            );
        }
    }
}

/// The values alone of a tensor of any dtype, and those that the kernel with indices finds.
fn values<T: pteron_core::Element + PartialOrd + std::fmt::Debug>(
    dtype: DType,
    c: Case,
    is_last: bool,
    isa: Isa,
    x: &[T],
    expected: impl Fn(usize) -> T,
) {
    let ([n, ch, ..], [oh, ow]) = (c.shape, [c.output(0), c.output(1)]);
    let args = vec![
        CallArg::Tensor(HostTensor::in_order(&c.shape, order(is_last), x).unwrap()),
        ints(c.kernel),
        ints(c.stride),
        ints(c.padding),
        ints(c.dilation),
        CallArg::bool(c.is_ceil),
        CallArg::Tensor(HostTensor::zeros_in_order(dtype, &[n, ch, oh, ow], order(is_last)).unwrap()),
    ];
    let cpu = profile(isa).unwrap();
    let mut call = SingleCall::of(max_values::prepare, &cpu, args).unwrap().unwrap();
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    let y = call.output::<T>(6).unwrap();
    for (o, y) in y.iter().enumerate() {
        let e = expected(o);
        // NaN compares with nothing.
        let is_same = *y == e || (y.partial_cmp(y).is_none() && e.partial_cmp(&e).is_none());
        assert!(is_same, "{isa:?} {c:?} last={is_last} {o}: {y:?} instead of {e:?}");
    }
}

#[test]
fn largest_elements_without_places() {
    each_case(|isa, c, is_last, x| {
        let ([_, ch, h, w], [oh, ow]) = (c.shape, [c.output(0), c.output(1)]);
        // The positions of the window of output element `o`.
        let window = |o: usize| {
            let (channels, pixels) = (ch, oh * ow);
            let (image, k, p) = match is_last {
                true => (o / (channels * pixels), o % channels, o / channels % pixels),
                false => (o / (channels * pixels), o / pixels % channels, o % pixels),
            };
            let rows = c.positions(0, p / ow).0;
            let columns = c.positions(1, p % ow).0;
            let of = move |row: usize, column: usize| at(is_last, [ch, h * w], [image, k, row * w + column]);
            rows.into_iter().flat_map(move |r| columns.clone().into_iter().map(move |q| of(r, q)))
        };
        let largest = |best: f32, v: f32| if v > best || v.is_nan() { v } else { best };
        let single = |o: usize| window(o).map(|i| x[i]).fold(f32::NEG_INFINITY, largest);
        values(DType::Float32, c, is_last, isa, x, single);
        let int8: Vec<i8> = x.iter().map(|v| (v * 100.0) as i8).collect();
        values(DType::Int8, c, is_last, isa, &int8, |o| window(o).map(|i| int8[i]).max().unwrap_or(i8::MIN));
        let float16: Vec<f16> = x.iter().map(|v| f16::from_f32(*v)).collect();
        let wide = |o: usize| window(o).map(|i| float16[i].to_f32()).fold(f32::NEG_INFINITY, largest);
        values(DType::Float16, c, is_last, isa, &float16, |o| f16::from_f32(wide(o)));
        let bfloat16: Vec<bf16> = x.iter().map(|v| bf16::from_f32(*v)).collect();
        let wide = |o: usize| window(o).map(|i| bfloat16[i].to_f32()).fold(f32::NEG_INFINITY, largest);
        values(DType::BFloat16, c, is_last, isa, &bfloat16, |o| bf16::from_f32(wide(o)));
        let uint8: Vec<u8> = x.iter().map(|v| (v.abs() * 100.0) as u8).collect();
        values(DType::UInt8, c, is_last, isa, &uint8, |o| window(o).map(|i| uint8[i]).max().unwrap_or(0));
    });
}
