//! Convolutions on every instruction set and in both memory orders against a plain f64 loop.

use super::f32_conv_nr32_v1::{packed, unpack};
use super::geometry::{Geometry, OUT};
use super::test_cases::{CASES, Case, case, grouped, in_memory};
use super::{prepare_convolution, winograd};
use crate::epilogue::Epilogue;
use pteron_core::kernel::PrepareFn;
use pteron_core::{ConstantKey, ConstantView, DType, Dims, Isa, PackStore, PrepareContext, Result};
use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::gelu_erf;
use pteron_kernels::testing::numbers;
use std::sync::Arc;

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
