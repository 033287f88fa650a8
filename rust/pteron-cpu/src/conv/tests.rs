//! Convolutions on every instruction set and in both memory orders against a plain f64 loop.

use super::f32_conv_nr32_v1::{packed, unpack};
use super::geometry::{Geometry, OUT};
use super::{prepare_convolution, winograd};
use crate::epilogue::Epilogue;
use pteron_core::kernel::PrepareFn;
use pteron_core::{ConstantKey, ConstantView, DType, DimOrder, Dims, Isa, PackStore, PrepareContext, Result};
use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::gelu_erf;
use pteron_kernels::testing::numbers;
use std::sync::Arc;

/// Extents are (depth, height, width); `rank` of them are those of the tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) rank: usize,
    pub(super) images: usize,
    pub(super) channels: [usize; 2],
    pub(super) groups: usize,
    pub(super) input: [usize; 3],
    pub(super) kernel: [usize; 3],
    pub(super) stride: [usize; 3],
    pub(super) padding: [usize; 3],
    /// Rows and columns of zeros behind the input besides those of `padding`.
    pub(super) more_behind: [usize; 3],
    pub(super) dilation: [usize; 3],
    pub(super) output_padding: [usize; 3],
    pub(super) is_transposed: bool,
}

const fn flat(v: usize, fill: usize) -> [usize; 3] {
    [fill, v, v]
}

pub(super) const fn case(
    channels: [usize; 2],
    input: [usize; 2],
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Case {
    Case {
        rank: 2,
        images: 1,
        channels,
        groups: 1,
        input: [1, input[0], input[1]],
        kernel: flat(kernel, 1),
        stride: flat(stride, 1),
        padding: flat(padding, 0),
        more_behind: [0; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        is_transposed: false,
    }
}

const fn volume(channels: [usize; 2], input: [usize; 3], kernel: [usize; 3], stride: usize) -> Case {
    let plain = case(channels, [1, 1], 1, 1, 0);
    Case { rank: 3, input, kernel, stride: [stride; 3], padding: [1, 0, 1], ..plain }
}

/// Of one dimension.
const fn signal(channels: [usize; 2], input: usize, kernel: usize, stride: usize) -> Case {
    let plain = case(channels, [1, input], 1, stride, 0);
    Case { rank: 1, kernel: [1, 1, kernel], stride: [1, 1, stride], padding: [0, 0, kernel / 2], ..plain }
}

const fn grouped(mut c: Case, groups: usize) -> Case {
    c.groups = groups;
    c
}

pub(super) const fn transposed(mut c: Case, more: usize) -> Case {
    c.is_transposed = true;
    c.output_padding = flat(more, 0);
    c
}

pub(super) const CASES: [Case; 60] = [
    case([3, 8], [9, 11], 3, 1, 1),
    case([3, 40], [23, 19], 7, 2, 3),
    case([64, 33], [7, 7], 1, 1, 0),
    case([70, 64], [7, 7], 3, 1, 1),
    case([5, 300], [4, 4], 1, 2, 0),
    case([300, 5], [14, 15], 1, 1, 0),
    case([400, 20], [6, 16], 1, 1, 0),
    case([4, 6], [13, 10], 3, 3, 2),
    case([1, 1], [1, 1], 1, 1, 0),
    case([2, 3], [5, 1], 3, 1, 1),
    case([24, 70], [1, 1], 1, 1, 0),
    Case { images: 3, ..case([17, 32], [10, 10], 3, 2, 1) },
    Case { images: 2, ..case([17, 65], [9, 7], 1, 1, 0) },
    Case { dilation: [1, 2, 3], ..case([4, 8], [17, 19], 3, 1, 2) },
    Case { dilation: [1, 2, 3], ..case([14, 8], [17, 19], 3, 1, 2) },
    Case { kernel: [1, 1, 5], padding: [0, 0, 2], ..case([6, 10], [3, 33], 1, 1, 0) },
    // Wider than a band of planes.
    case([2, 3], [5, 530], 3, 2, 1),
    grouped(case([12, 24], [8, 9], 3, 1, 1), 3),
    grouped(case([8, 16], [8, 9], 3, 1, 1), 8),
    grouped(case([36, 72], [6, 9], 3, 2, 1), 2),
    grouped(case([20, 20], [8, 9], 1, 1, 0), 4),
    grouped(case([20, 20], [16, 18], 3, 1, 1), 20),
    grouped(case([50, 50], [17, 19], 3, 2, 1), 50),
    grouped(Case { images: 2, ..case([33, 33], [14, 40], 5, 2, 2) }, 33),
    grouped(case([40, 40], [9, 9], 5, 1, 2), 40),
    grouped(case([35, 35], [9, 9], 7, 1, 3), 35),
    grouped(case([3, 3], [9, 9], 7, 2, 3), 3),
    grouped(Case { images: 2, ..case([11, 33], [9, 10], 3, 1, 1) }, 11),
    grouped(Case { dilation: [1, 2, 2], kernel: [1, 3, 2], ..case([5, 5], [11, 12], 3, 3, 1) }, 5),
    transposed(case([6, 40], [5, 7], 2, 2, 0), 0),
    transposed(case([20, 9], [5, 7], 4, 2, 1), 0),
    transposed(Case { images: 2, ..case([7, 33], [4, 5], 3, 2, 1) }, 1),
    transposed(Case { dilation: [1, 2, 1], ..case([5, 6], [4, 5], 3, 3, 2) }, 2),
    transposed(case([5, 6], [4, 5], 1, 3, 0), 0),
    transposed(grouped(case([8, 12], [4, 5], 3, 2, 1), 4), 1),
    transposed(case([5, 40], [6, 6], 3, 1, 1), 0),
    volume([3, 8], [4, 6, 7], [3, 3, 3], 1),
    volume([20, 40], [5, 6, 7], [2, 3, 3], 2),
    grouped(volume([33, 33], [4, 6, 7], [3, 3, 3], 1), 33),
    grouped(volume([6, 12], [4, 6, 7], [1, 3, 2], 1), 3),
    transposed(volume([6, 9], [3, 4, 5], [2, 3, 3], 2), 1),
    // Matrix products of groups, and of several blocks of K.
    case([800, 40], [5, 9], 1, 1, 0),
    grouped(case([1600, 70], [3, 4], 1, 1, 0), 2),
    grouped(case([80, 160], [6, 9], 1, 1, 0), 4),
    grouped(Case { images: 2, ..case([51, 105], [5, 4], 1, 1, 0) }, 3),
    transposed(grouped(case([40, 72], [5, 4], 1, 1, 0), 2), 0),
    signal([20, 70], 33, 3, 2),
    signal([40, 33], 50, 1, 1),
    grouped(signal([33, 33], 40, 5, 1), 33),
    grouped(signal([34, 68], 40, 1, 1), 2),
    transposed(signal([20, 40], 13, 4, 2), 0),
    // Other margins behind than before, for every kernel of the family.
    uneven(case([3, 40], [23, 19], 3, 2, 0), [0, 1, 1]),
    uneven(case([3, 8], [9, 11], 3, 2, 0), [0, 1, 2]),
    uneven(case([70, 64], [7, 8], 3, 2, 0), [0, 1, 1]),
    uneven(case([9, 20], [7, 8], 1, 1, 0), [0, 1, 0]),
    uneven(grouped(case([50, 50], [17, 19], 3, 2, 0), 50), [0, 1, 1]),
    uneven(grouped(case([35, 35], [9, 19], 5, 2, 1), 35), [0, 1, 2]),
    uneven(grouped(case([12, 24], [8, 9], 3, 1, 1), 3), [0, 2, 0]),
    uneven(Case { kernel: [1, 1, 5], padding: [0, 0, 1], ..case([6, 10], [3, 33], 1, 1, 0) }, [0, 0, 3]),
    uneven(volume([20, 40], [5, 6, 7], [2, 3, 3], 2), [1, 1, 0]),
];

const fn uneven(mut c: Case, more_behind: [usize; 3]) -> Case {
    c.more_behind = more_behind;
    c
}

impl Case {
    pub(super) fn output(&self) -> [usize; 3] {
        [0, 1, 2].map(|d| {
            let reach = self.dilation[d] * (self.kernel[d] - 1);
            match self.is_transposed {
                true => {
                    (self.input[d] - 1) * self.stride[d] + reach + 1 + self.output_padding[d]
                        - 2 * self.padding[d]
                }
                false => {
                    let padding = 2 * self.padding[d] + self.more_behind[d];
                    (self.input[d] + padding - reach - 1) / self.stride[d] + 1
                }
            }
        })
    }

    /// Every (output, input, tap) position along `d` that the definition joins.
    fn joined(&self, d: usize) -> Vec<[usize; 3]> {
        let mut found = Vec::new();
        for o in 0..self.output()[d] {
            for i in 0..self.input[d] {
                for k in 0..self.kernel[d] {
                    let (wide, narrow) = if self.is_transposed { (o, i) } else { (i, o) };
                    if wide + self.padding[d] == narrow * self.stride[d] + k * self.dilation[d] {
                        found.push([o, i, k]);
                    }
                }
            }
        }
        found
    }

    /// Result in channel planes, and the sum of the terms' sizes.
    pub(super) fn reference(&self, x: &[f32], w: &[f32], b: &[f32]) -> Vec<(f64, f64)> {
        let ([ic, oc], [_, h, wd], [_, kh, kw], [od, oh, ow]) =
            (self.channels, self.input, self.kernel, self.output());
        let (icg, ocg) = (ic / self.groups, oc / self.groups);
        let (pixels, taps, outputs) =
            (self.input.iter().product::<usize>(), self.kernel.iter().product::<usize>(), od * oh * ow);
        let mut out: Vec<(f64, f64)> =
            (0..self.images * oc * outputs).map(|i| (f64::from(b[i / outputs % oc]), 0.0)).collect();
        let [zs, ys, xs] = [0, 1, 2].map(|d| self.joined(d));
        for z in &zs {
            for y in &ys {
                for q in &xs {
                    let o = (z[0] * oh + y[0]) * ow + q[0];
                    let i = (z[1] * h + y[1]) * wd + q[1];
                    let k = (z[2] * kh + y[2]) * kw + q[2];
                    for n in 0..self.images {
                        for oc_ in 0..oc {
                            for c in 0..icg {
                                let ic_ = oc_ / ocg * icg + c;
                                let weight = match self.is_transposed {
                                    true => ic_ * ocg + oc_ % ocg,
                                    false => oc_ * icg + c,
                                };
                                let v = f64::from(x[(n * ic + ic_) * pixels + i])
                                    * f64::from(w[weight * taps + k]);
                                let slot = &mut out[(n * oc + oc_) * outputs + o];
                                *slot = (slot.0 + v, slot.1 + v.abs());
                            }
                        }
                    }
                }
            }
        }
        out
    }

    /// The shape of a tensor with these spatial extents.
    pub(super) fn shape(&self, channels: usize, extents: [usize; 3]) -> Vec<usize> {
        [&[self.images, channels], &extents[3 - self.rank..]].concat()
    }

    pub(super) fn weight_shape(&self) -> Vec<usize> {
        let [ic, oc] = self.channels;
        let leading = if self.is_transposed { [ic, oc / self.groups] } else { [oc, ic / self.groups] };
        [&leading, &self.kernel[3 - self.rank..]].concat()
    }

    fn list(&self, v: [usize; 3]) -> CallArg {
        CallArg::Ints(v[3 - self.rank..].iter().map(|v| *v as i64).collect())
    }

    /// Those before and behind, where they are not the same.
    fn paddings(&self) -> CallArg {
        let behind = [0, 1, 2].map(|d| self.padding[d] + self.more_behind[d]);
        let sides = if self.more_behind == [0; 3] { vec![self.padding] } else { vec![self.padding, behind] };
        CallArg::Ints(sides.iter().flat_map(|v| &v[3 - self.rank..]).map(|v| *v as i64).collect())
    }

    /// The operator's arguments but for the output.
    pub(super) fn arguments(&self, input: HostTensor, weight: CallArg, bias: CallArg) -> Vec<CallArg> {
        vec![
            CallArg::Tensor(input),
            weight,
            bias,
            self.list(self.stride),
            self.paddings(),
            self.list(self.dilation),
            CallArg::bool(self.is_transposed),
            self.list(self.output_padding),
            CallArg::int(self.groups as i64),
        ]
    }

    /// The weight as a constant.
    fn constant(&self, w: &[f32]) -> CallArg {
        CallArg::Constant(HostTensor::new(&self.weight_shape(), w).unwrap())
    }

    pub(super) fn order(&self, is_last: bool) -> DimOrder {
        match (is_last, self.rank) {
            (true, 1) => DimOrder::new(&[0, 2, 1]).unwrap(),
            (true, 2) => DimOrder::new(&[0, 2, 3, 1]).unwrap(),
            (true, _) => DimOrder::new(&[0, 2, 3, 4, 1]).unwrap(),
            (false, rank) => DimOrder::contiguous(rank + 2),
        }
    }
}

/// Values of channel planes in the memory order of a tensor.
pub(super) fn in_memory<T: Copy>(v: &[T], [n, c, p]: [usize; 3], is_last: bool) -> Vec<T> {
    match is_last {
        false => v.to_vec(),
        true => (0..n * p * c).map(|i| v[(i / c / p * c + i % c) * p + i / c % p]).collect(),
    }
}

fn relu_6(ctx: &PrepareContext<'_>) -> Preparation {
    prepare_convolution(ctx, &Epilogue::clamped(0.0, 6.0))
}

fn plain(ctx: &PrepareContext<'_>) -> Preparation {
    prepare_convolution(ctx, &Epilogue::NONE)
}

/// Residual, clamp and a chain.
fn everything(ctx: &PrepareContext<'_>) -> Preparation {
    prepare_convolution(ctx, &everything_behind()?)
}

fn everything_behind() -> Result<Epilogue> {
    let post = Some(Arc::new(Chain::unary(gelu_erf())?));
    Ok(Epilogue { residual: Some(OUT + 1), clamp: Some((-6.0, 6.0)), post })
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum After {
    Nothing,
    Clamp,
    Everything,
}

const AFTER: [After; 3] = [After::Nothing, After::Clamp, After::Everything];

impl After {
    fn of(self, sum: f64, residual: f32) -> f64 {
        match self {
            After::Nothing => sum,
            After::Clamp => sum.clamp(0.0, 6.0),
            _ => gelu((sum + f64::from(residual)).clamp(-6.0, 6.0)),
        }
    }

    /// The call with these arguments.
    fn call(
        self,
        method: [PrepareFn; 3],
        isa: Isa,
        mut args: Vec<CallArg>,
        out: HostTensor,
        residual: HostTensor,
    ) -> Option<SingleCall> {
        let cpu = profile(isa)?;
        let [nothing, clamp, all] = method;
        let prepare = match self {
            After::Nothing => nothing,
            After::Clamp => clamp,
            _ => all,
        };
        match self {
            After::Nothing | After::Clamp => args.push(CallArg::Tensor(out)),
            After::Everything => args.extend([CallArg::Tensor(out), CallArg::Tensor(residual)]),
        }
        Some(SingleCall::new(prepare, &cpu, args).unwrap().unwrap())
    }
}

/// What prepares a convolution alone, with a clamp, with everything behind it.
const DIRECT: [PrepareFn; 3] = [plain, relu_6, everything];
const WINOGRAD: [PrepareFn; 3] = [
    |ctx| winograd::prepare(ctx, &Epilogue::NONE),
    |ctx| winograd::prepare(ctx, &Epilogue::clamped(0.0, 6.0)),
    |ctx| winograd::prepare(ctx, &everything_behind()?),
];

fn check(c: Case, isa: Isa) {
    for (from_last, to_last) in [(false, false), (false, true), (true, false), (true, true)] {
        check_orders(c, isa, DIRECT, [from_last, to_last]);
    }
}

fn check_orders(c: Case, isa: Isa, method: [PrepareFn; 3], [from_last, to_last]: [bool; 2]) {
    let ([ic, oc], outputs) = (c.channels, c.output().iter().product::<usize>());
    let pixels = c.input.iter().product::<usize>();
    let x = numbers(c.images * ic * pixels, 1);
    let weight = numbers(c.weight_shape().iter().product(), 2);
    let (b, added) = (numbers(oc, 3), numbers(c.images * oc * outputs, 4));
    let want = c.reference(&x, &weight, &b);
    for after in AFTER {
        let x = in_memory(&x, [c.images, ic, pixels], from_last);
        let input = HostTensor::in_order(&c.shape(ic, c.input), c.order(from_last), &x).unwrap();
        let (shape, order) = (c.shape(oc, c.output()), c.order(to_last));
        let out = HostTensor::zeros_in_order(DType::Float32, &shape, order).unwrap();
        let residual = in_memory(&added, [c.images, oc, outputs], to_last);
        let residual = HostTensor::in_order(&shape, order, &residual).unwrap();
        let bias = CallArg::Tensor(HostTensor::new(&[oc], &b).unwrap());
        let args = c.arguments(input, c.constant(&weight), bias);
        let Some(mut call) = after.call(method, isa, args, out, residual) else { return };
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        let y = call.output::<f32>(OUT).unwrap();
        for (i, (sum, size)) in want.iter().enumerate() {
            let place = match to_last {
                true => (i / (oc * outputs) * outputs + i % outputs) * oc + i / outputs % oc,
                false => i,
            };
            let want = after.of(*sum, added[i]);
            assert!(
                (f64::from(y[place]) - want).abs() <= 1e-6 * (1.0 + size),
                "{} {c:?} {from_last} {to_last} {after:?} at {i}: {} {want}",
                call.prepared().name(),
                y[place]
            );
        }
    }
}

#[test]
fn every_case_in_every_memory_order() {
    for isa in Isa::ALL {
        for c in CASES {
            check(c, isa);
        }
    }
}

/// Odd and even extents, every padding, channels that fill no vector, several blocks and groups of panels.
#[test]
fn fewer_products_give_the_same_sums() {
    for isa in Isa::ALL {
        for c in [
            case([32, 32], [12, 13], 3, 1, 1),
            case([64, 33], [13, 12], 3, 1, 0),
            case([40, 150], [10, 10], 3, 1, 1),
            case([32, 32], [10, 9], 3, 1, 2),
            Case { images: 3, ..case([33, 40], [11, 14], 3, 1, 1) },
            // Groups of 32 and 40 inputs; of 160 outputs, whose panels are more than a part has.
            Case { groups: 3, ..case([96, 192], [13, 12], 3, 1, 1) },
            Case { groups: 2, images: 2, ..case([80, 320], [10, 11], 3, 1, 1) },
        ] {
            check_orders(c, isa, WINOGRAD, [true, true]);
        }
    }
}

/// What a tile of outputs does not read changes nothing in it.
#[test]
fn not_a_number_stays_in_the_tiles_that_read_it() {
    let c = case([32, 32], [12, 12], 3, 1, 1);
    let (clean, w) = (numbers(32 * 144, 1), numbers(32 * 32 * 9, 2));
    let mut spoilt = clean.clone();
    // Pixel (5, 5): tiles of rows and columns 4 and 6 read it.
    spoilt[(5 * 12 + 5) * 32] = f32::NAN;
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let [clean, spoilt] = [&clean, &spoilt].map(|x| {
            let x = HostTensor::in_order(&[1, 32, 12, 12], c.order(true), x).unwrap();
            let mut args = c.arguments(x, c.constant(&w), CallArg::None);
            args.push(CallArg::Tensor(
                HostTensor::zeros_in_order(DType::Float32, &[1, 32, 12, 12], c.order(true)).unwrap(),
            ));
            let mut call = SingleCall::new(WINOGRAD[0], &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            call.output::<f32>(OUT).unwrap()
        });
        for (i, (a, b)) in clean.iter().zip(&spoilt).enumerate() {
            let (y, x) = (i / 32 / 12, i / 32 % 12);
            let is_near = |v: usize| (4..8).contains(&v);
            assert!(a == b || (b.is_nan() && is_near(y) && is_near(x)), "{isa:?} {y} {x}: {a} {b}");
            let is_in_window = |v: usize| (4..7).contains(&v);
            assert!(b.is_nan() || !is_in_window(y) || !is_in_window(x), "{isa:?} {y} {x}");
        }
    }
}

/// Chunks in any order, and rows of images alone or in a batch, give the same bytes.
#[test]
fn a_batch_gives_the_bytes_of_its_images() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for is_last in [false, true] {
            for (c, has_fewer_products) in [
                (case([70, 64], [9, 9], 3, 1, 1), false),
                (case([40, 50], [9, 9], 1, 1, 0), false),
                (grouped(case([40, 40], [9, 9], 3, 1, 1), 40), false),
                (case([40, 50], [9, 9], 3, 1, 1), true),
            ] {
                if has_fewer_products && !is_last {
                    continue;
                }
                let method = if has_fewer_products { WINOGRAD } else { DIRECT };
                let w = numbers(c.weight_shape().iter().product(), 2);
                let run = |images: usize, x: &[f32]| {
                    let c = Case { images, ..c };
                    let x = HostTensor::in_order(&c.shape(c.channels[0], c.input), c.order(is_last), x);
                    let shape = c.shape(c.channels[1], c.output());
                    let out = HostTensor::zeros_in_order(DType::Float32, &shape, c.order(is_last)).unwrap();
                    let mut args = c.arguments(x.unwrap(), c.constant(&w), CallArg::None);
                    args.push(CallArg::Tensor(out));
                    let mut call = SingleCall::new(method[0], &cpu, args).unwrap().unwrap();
                    call.call().unwrap();
                    call.output::<f32>(OUT).unwrap()
                };
                let n = c.channels[0] * 81;
                let x = numbers(3 * n, 5);
                let alone: Vec<f32> = x.chunks(n).flat_map(|image| run(1, image)).collect();
                assert!(run(3, &x) == alone, "{isa:?} {c:?}");
            }
        }
    }
}

#[test]
fn an_empty_batch_has_nothing_to_run() {
    let cpu = profile(Isa::Portable).unwrap();
    let c = Case { images: 0, ..case([3, 4], [5, 5], 3, 1, 1) };
    let x = HostTensor::zeros(DType::Float32, &[0, 3, 5, 5]).unwrap();
    let mut args = c.arguments(x, c.constant(&[0.0; 108]), CallArg::None);
    args.push(CallArg::Tensor(HostTensor::zeros(DType::Float32, &[0, 4, 5, 5]).unwrap()));
    let mut call = SingleCall::new(plain, &cpu, args).unwrap().unwrap();
    call.call().unwrap();
    assert_eq!(*call.shape(OUT).unwrap(), [0, 4, 5, 5]);
}

#[test]
fn one_dimension_without_bias() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let c = Case { kernel: [1, 1, 5], padding: [0, 0, 2], ..case([6, 10], [1, 33], 1, 1, 0) };
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
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for groups in [1, 2] {
            let c = grouped(case([2, 2], [1, 2], 1, 1, 0), groups);
            let x =
                HostTensor::new(&[1, 2, 1, 2], &[f32::NAN, f32::INFINITY, f32::NAN, f32::INFINITY]).unwrap();
            let out = HostTensor::zeros(DType::Float32, &[1, 2, 1, 2]).unwrap();
            let w = vec![1.0; 4 / groups];
            let mut args = c.arguments(x, c.constant(&w), CallArg::None);
            args.push(CallArg::Tensor(out));
            let mut call = SingleCall::new(relu_6, &cpu, args).unwrap().unwrap();
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
        let mut args = c.arguments(x, c.constant(&[0.0; 108]), b);
        args.push(CallArg::Tensor(out));
        let mut call = SingleCall::new(plain, &cpu, args).unwrap().unwrap();
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
        kernel: [1, 3, 2],
        stride: [1; 3],
        padding: [0; 3],
        padding_behind: [0; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        is_transposed: false,
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
    let cpu = profile(Isa::Portable).unwrap();
    let first = packed(&packs, &cpu, &view, &geometry).unwrap().unwrap();
    let second = packed(&packs, &cpu, &view, &geometry).unwrap().unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_eq!(unpack(first.as_elements::<f32>(), &geometry), w);
    let regrouped = Geometry { groups: 1, out_channels: 70, ..geometry };
    packed(&packs, &cpu, &view, &regrouped).unwrap().unwrap();
    assert_eq!(packs.totals().made.0, 2);
}
