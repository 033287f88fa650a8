//! Convolutions on every instruction set and in both memory orders against a plain f64 loop.

use super::f32_conv_nr32_v1::{packed, unpack};
use super::geometry::{Geometry, OUT};
use super::prepare_convolution;
use crate::elementwise::tests::numbers;
use crate::epilogue::Epilogue;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::{ConstantKey, ConstantView, DType, DimOrder, Dims, Isa, PackStore, Result};

const ISAS: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

#[derive(Debug, Clone, Copy)]
struct Case {
    images: usize,
    channels: [usize; 2],
    groups: usize,
    input: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
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
        padding: [padding; 2],
        dilation: [1, 1],
    }
}

const fn grouped(mut c: Case, groups: usize) -> Case {
    c.groups = groups;
    c
}

const CASES: [Case; 19] = [
    case([3, 8], [9, 11], 3, 1, 1),
    case([3, 40], [23, 19], 7, 2, 3),
    case([64, 33], [7, 7], 1, 1, 0),
    case([70, 64], [7, 7], 3, 1, 1),
    case([5, 300], [4, 4], 1, 2, 0),
    case([300, 5], [14, 15], 1, 1, 0),
    case([4, 6], [13, 10], 3, 3, 2),
    case([1, 1], [1, 1], 1, 1, 0),
    case([2, 3], [5, 1], 3, 1, 1),
    Case { images: 3, ..case([17, 32], [10, 10], 3, 2, 1) },
    Case { dilation: [2, 3], ..case([4, 8], [17, 19], 3, 1, 2) },
    Case { kernel: [1, 5], padding: [0, 2], ..case([6, 10], [3, 33], 1, 1, 0) },
    grouped(case([12, 24], [8, 9], 3, 1, 1), 3),
    grouped(case([8, 16], [8, 9], 3, 1, 1), 8),
    grouped(case([20, 20], [16, 18], 3, 1, 1), 20),
    grouped(case([20, 20], [17, 19], 3, 2, 1), 20),
    grouped(Case { images: 2, ..case([33, 33], [14, 40], 5, 2, 2) }, 33),
    grouped(case([3, 3], [9, 9], 7, 1, 3), 3),
    grouped(Case { dilation: [2, 2], kernel: [3, 2], ..case([5, 5], [11, 12], 3, 3, 1) }, 5),
];

impl Case {
    fn output(&self) -> [usize; 2] {
        [0, 1].map(|d| {
            (self.input[d] + 2 * self.padding[d] - self.dilation[d] * (self.kernel[d] - 1) - 1)
                / self.stride[d]
                + 1
        })
    }

    /// Row-major NCHW result and the sum of the terms' sizes.
    fn reference(&self, x: &[f32], w: &[f32], b: &[f32]) -> Vec<(f64, f64)> {
        let ([ic, oc], [h, iw], [kh, kw], [oh, ow]) = (self.channels, self.input, self.kernel, self.output());
        let (icg, ocg) = (ic / self.groups, oc / self.groups);
        let mut out = Vec::new();
        for n in 0..self.images {
            for o in 0..oc {
                for p in 0..oh * ow {
                    let (mut sum, mut size) = (f64::from(b[o]), 0.0);
                    for i in 0..icg {
                        for t in 0..kh * kw {
                            let y = (p / ow * self.stride[0] + t / kw * self.dilation[0])
                                .wrapping_sub(self.padding[0]);
                            let c = (p % ow * self.stride[1] + t % kw * self.dilation[1])
                                .wrapping_sub(self.padding[1]);
                            if y < h && c < iw {
                                let channel = o / ocg * icg + i;
                                let v = f64::from(x[((n * ic + channel) * h + y) * iw + c])
                                    * f64::from(w[(o * icg + i) * kh * kw + t]);
                                sum += v;
                                size += v.abs();
                            }
                        }
                    }
                    out.push((sum, size));
                }
            }
        }
        out
    }

    fn pair(v: [usize; 2]) -> CallArg {
        CallArg::Ints(v.iter().map(|v| *v as i64).collect())
    }

    fn arguments(&self, input: HostTensor, w: &[f32], bias: CallArg, out: HostTensor) -> Vec<CallArg> {
        let [ic, oc] = self.channels;
        let weight = HostTensor::new(&[oc, ic / self.groups, self.kernel[0], self.kernel[1]], w).unwrap();
        vec![
            CallArg::Tensor(input),
            CallArg::Constant(weight),
            bias,
            Self::pair(self.stride),
            Self::pair(self.padding),
            Self::pair(self.dilation),
            CallArg::bool(false),
            Self::pair([0, 0]),
            CallArg::int(self.groups as i64),
            CallArg::Tensor(out),
        ]
    }
}

/// NCHW values reordered into channels-last.
fn interleave(v: &[f32], [n, c, p]: [usize; 3]) -> Vec<f32> {
    let mut out = Vec::with_capacity(v.len());
    for i in 0..n * p {
        out.extend((0..c).map(|k| v[(i / p * c + k) * p + i % p]));
    }
    out
}

fn relu_6(ctx: &pteron_core::PrepareContext<'_>) -> Result<Option<Box<dyn pteron_core::Prepared>>> {
    prepare_convolution(ctx, &Epilogue::clamped(0.0, 6.0))
}

fn plain(ctx: &pteron_core::PrepareContext<'_>) -> Result<Option<Box<dyn pteron_core::Prepared>>> {
    prepare_convolution(ctx, &Epilogue::NONE)
}

#[test]
fn every_case_in_every_memory_order() {
    let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let nchw = DimOrder::contiguous(4);
    for isa in ISAS {
        let Some(cpu) = profile(isa) else { continue };
        for c in CASES {
            let ([ic, oc], [h, w], [oh, ow]) = (c.channels, c.input, c.output());
            let x = numbers(c.images * ic * h * w, 1);
            let weight = numbers(oc * (ic / c.groups) * c.kernel[0] * c.kernel[1], 2);
            let b = numbers(oc, 3);
            let want = c.reference(&x, &weight, &b);
            for (from_last, to_last) in [(false, false), (true, true), (false, true), (true, false)] {
                for is_clamped in [false, true] {
                    let shape = [c.images, ic, h, w];
                    let input = match from_last {
                        true => HostTensor::in_order(&shape, nhwc, &interleave(&x, [c.images, ic, h * w]))
                            .unwrap(),
                        false => HostTensor::new(&shape, &x).unwrap(),
                    };
                    let order = if to_last { nhwc } else { nchw };
                    let out =
                        HostTensor::zeros_in_order(DType::Float32, &[c.images, oc, oh, ow], order).unwrap();
                    let bias = CallArg::Tensor(HostTensor::new(&[oc], &b).unwrap());
                    let args = c.arguments(input, &weight, bias, out);
                    let prepare = if is_clamped { relu_6 } else { plain };
                    let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
                    let grid = call.bind().unwrap();
                    call.run(grid, true).unwrap();
                    let y = call.output::<f32>(OUT).unwrap();
                    for (i, (sum, size)) in want.iter().enumerate() {
                        let (image, p) = (i / (oc * oh * ow), i % (oh * ow));
                        let o = i / (oh * ow) % oc;
                        let at = if to_last { (image * oh * ow + p) * oc + o } else { i };
                        let sum = if is_clamped { sum.clamp(0.0, 6.0) } else { *sum };
                        assert!(
                            (f64::from(y[at]) - sum).abs() <= 1e-6 * (1.0 + size),
                            "{} {c:?} {from_last} {to_last} at {i}: {} {sum}",
                            call.prepared().name(),
                            y[at]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn one_dimension_without_bias() {
    for isa in ISAS {
        let Some(cpu) = profile(isa) else { continue };
        let c = Case { kernel: [1, 5], padding: [0, 2], ..case([6, 10], [1, 33], 1, 1, 0) };
        let (x, w) = (numbers(6 * 33, 1), numbers(10 * 6 * 5, 2));
        let want = c.reference(&x, &w, &[0.0; 10]);
        let one = |v: i64| CallArg::Ints(vec![v]);
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[1, 6, 33], &x).unwrap()),
            CallArg::Constant(HostTensor::new(&[10, 6, 5], &w).unwrap()),
            CallArg::None,
            one(1),
            one(2),
            one(1),
            CallArg::bool(false),
            one(0),
            CallArg::int(1),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, 10, 33]).unwrap()),
        ];
        let mut call = SingleCall::new(plain, &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        for (y, (sum, size)) in call.output::<f32>(OUT).unwrap().iter().zip(want) {
            assert!((f64::from(*y) - sum).abs() <= 1e-6 * (1.0 + size), "{isa:?}: {y} {sum}");
        }
    }
}

#[test]
fn nan_and_infinity_pass_through_the_clamp() {
    for isa in ISAS {
        let Some(cpu) = profile(isa) else { continue };
        for groups in [1, 2] {
            let c = grouped(case([2, 2], [1, 2], 1, 1, 0), groups);
            let x =
                HostTensor::new(&[1, 2, 1, 2], &[f32::NAN, f32::INFINITY, f32::NAN, f32::INFINITY]).unwrap();
            let out = HostTensor::zeros(DType::Float32, &[1, 2, 1, 2]).unwrap();
            let w = vec![1.0; 4 / groups];
            let mut call =
                SingleCall::new(relu_6, &cpu, c.arguments(x, &w, CallArg::None, out)).unwrap().unwrap();
            call.call().unwrap();
            let y = call.output::<f32>(OUT).unwrap();
            assert!(y[0].is_nan() && y[1] == 6.0 && y[2].is_nan() && y[3] == 6.0, "{isa:?} {y:?}");
        }
    }
}

#[test]
fn wrong_channels_and_bias_are_refused_with_place() {
    let cpu = profile(Isa::Portable).unwrap();
    let c = case([3, 4], [5, 5], 3, 1, 0);
    let run = |channels: usize, bias: usize| {
        let x = HostTensor::zeros(DType::Float32, &[1, channels, 5, 5]).unwrap();
        let out = HostTensor::zeros(DType::Float32, &[1, 4, 3, 3]).unwrap();
        let b = CallArg::Tensor(HostTensor::zeros(DType::Float32, &[bias]).unwrap());
        let mut call = SingleCall::new(plain, &cpu, c.arguments(x, &[0.0; 108], b, out)).unwrap().unwrap();
        call.bind().map_err(|e| e.to_string())
    };
    assert!(run(3, 4).is_ok());
    assert!(run(2, 4).unwrap_err().contains("3 channels"));
    assert!(run(3, 5).unwrap_err().contains("bias"));
}

#[test]
fn the_pack_holds_exactly_the_weights_and_is_shared() {
    let geometry = Geometry {
        spatial_rank: 2,
        kernel: [3, 2],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        groups: 2,
        in_channels: 5,
        out_channels: 35,
    };
    let w = numbers(2 * 35 * 5 * 6, 4);
    let view = ConstantView {
        key: ConstantKey { origin: 0, offset: 0, nbytes: w.len() as u64 * 4 },
        data: bytemuck::cast_slice(&w),
        dtype: DType::Float32,
        offset: 0,
        shape: Dims::new(&[70, 5, 3, 2]).unwrap(),
        strides: Dims::new(&[30, 6, 2, 1]).unwrap(),
    };
    let packs = PackStore::new();
    let first = packed(&packs, &view, &geometry).unwrap();
    let second = packed(&packs, &view, &geometry).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_eq!(unpack(first.as_elements::<f32>(), &geometry), w);
    let regrouped = Geometry { groups: 1, out_channels: 70, ..geometry };
    packed(&packs, &view, &regrouped).unwrap();
    assert_eq!(packs.totals().made.0, 2);
}
