//! Reductions on every instruction set against plain loops.

use super::float;
use super::fold::Kind;
use super::shape::DimsArg;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use pteron_core::{Bool8, DType, DimOrder, Isa};

/// (shape, first reduced dimension, last reduced dimension).
const CASES: [(&[usize], usize, usize); 10] = [
    (&[7], 0, 0),
    (&[3, 50], 1, 1),
    (&[3, 50], 0, 0),
    (&[2, 128, 70], 1, 1),
    (&[2, 5, 7, 7], 2, 3),
    (&[300, 33], 0, 1),
    (&[2, 3000, 3], 1, 1),
    (&[40_000], 0, 0),
    (&[4, 1, 5], 1, 1),
    (&[0, 5], 1, 1),
];

fn volumes(shape: &[usize], first: usize, last: usize) -> [usize; 3] {
    let product = |s: &[usize]| s.iter().product();
    [product(&shape[..first]), product(&shape[first..=last]), product(&shape[last + 1..])]
}

fn output_shape(shape: &[usize], first: usize, last: usize, keepdim: bool) -> Vec<usize> {
    let kept = |d: usize| if (first..=last).contains(&d) { keepdim.then_some(1) } else { Some(shape[d]) };
    (0..shape.len()).filter_map(kept).collect()
}

fn dims(first: usize, last: usize, rank: usize) -> CallArg {
    // The last one counted from the end.
    let list = (first..=last).map(|d| if d == last { d as i64 - rank as i64 } else { d as i64 });
    CallArg::Ints(list.collect())
}

#[test]
fn sums_means_and_extremes() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for (shape, first, last) in CASES {
            for keepdim in [false, true] {
                let x = numbers(shape.iter().product(), 9);
                for kind in [Kind::Mean, Kind::Sum, Kind::Max, Kind::Min] {
                    let mut args = vec![
                        CallArg::Tensor(HostTensor::new(shape, &x).unwrap()),
                        dims(first, last, shape.len()),
                        CallArg::bool(keepdim),
                    ];
                    if matches!(kind, Kind::Mean | Kind::Sum) {
                        args.push(CallArg::None);
                    }
                    let out = args.len();
                    let out_shape = output_shape(shape, first, last, keepdim);
                    args.push(CallArg::Tensor(HostTensor::zeros(DType::Float32, &out_shape).unwrap()));
                    let call =
                        SingleCall::of(|ctx| float::prepare(ctx, kind, out, DimsArg::List), &cpu, args);
                    let mut call = call.unwrap().unwrap();
                    let grid = call.bind().unwrap();
                    call.run(grid, true).unwrap();
                    let [_, reduced, inner] = volumes(shape, first, last);
                    for (i, y) in call.output::<f32>(out).unwrap().into_iter().enumerate() {
                        let at = |r: usize| f64::from(x[(i / inner * reduced + r) * inner + i % inner]);
                        let sum: f64 = (0..reduced).map(at).sum();
                        let size: f64 = (0..reduced).map(|r| at(r).abs()).sum();
                        let (want, size) = match kind {
                            Kind::Mean => (sum / reduced as f64, size / reduced as f64),
                            Kind::Sum => (sum, size),
                            Kind::Max => ((0..reduced).map(at).fold(f64::NEG_INFINITY, f64::max), 0.0),
                            _ => ((0..reduced).map(at).fold(f64::INFINITY, f64::min), 0.0),
                        };
                        assert!(
                            (f64::from(y) - want).abs() <= 5e-7 * size,
                            "{} {shape:?} {first}..={last}: {y} {want}",
                            call.prepared().name()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn channels_last_mean_over_pixels() {
    let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let x = numbers(2 * 5 * 3 * 4, 1);
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let args = vec![
            CallArg::Tensor(HostTensor::in_order(&[2, 5, 3, 4], nhwc, &x).unwrap()),
            CallArg::Ints(vec![2, 3]),
            CallArg::bool(false),
            CallArg::None,
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[2, 5]).unwrap()),
        ];
        let mut call = SingleCall::of(|ctx| float::prepare(ctx, Kind::Mean, 4, DimsArg::List), &cpu, args)
            .unwrap()
            .unwrap();
        call.call().unwrap();
        for (i, y) in call.output::<f32>(4).unwrap().iter().enumerate() {
            let want: f64 = (0..12).map(|p| f64::from(x[(i / 5 * 12 + p) * 5 + i % 5])).sum::<f64>() / 12.0;
            assert!((f64::from(*y) - want).abs() < 1e-6, "{isa:?} {i}: {y} {want}");
        }
    }
}

#[test]
fn extremes_keep_nan_and_refuse_nothing() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let run = |shape: &[usize], x: &[f32], dim: i64, out: &[usize]| {
            let args = vec![
                CallArg::Tensor(HostTensor::new(shape, x).unwrap()),
                CallArg::Ints(vec![dim]),
                CallArg::bool(false),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, out).unwrap()),
            ];
            let mut call = SingleCall::of(|ctx| float::prepare(ctx, Kind::Max, 3, DimsArg::List), &cpu, args)
                .unwrap()
                .unwrap();
            call.call().map(|()| call.output::<f32>(3).unwrap())
        };
        for at in [0, 17, 36] {
            let mut x = numbers(37, 2);
            x[at] = f32::NAN;
            assert!(run(&[37], &x, 0, &[]).unwrap()[0].is_nan(), "{isa:?} {at}");
            let mut columns = numbers(37 * 3, 2);
            columns[at * 3 + 1] = f32::NAN;
            let y = run(&[37, 3], &columns, 0, &[3]).unwrap();
            assert!(y[1].is_nan() && !y[0].is_nan() && !y[2].is_nan());
        }
        assert!(run(&[2, 0], &[], 1, &[2]).unwrap_err().to_string().contains("no elements"));
    }
}

#[test]
fn dims_that_are_apart_are_left_to_the_reference_kernel() {
    let cpu = profile(Isa::Portable).unwrap();
    let args = vec![
        CallArg::Tensor(HostTensor::zeros(DType::Float32, &[2, 3, 4]).unwrap()),
        CallArg::Ints(vec![0, 2]),
        CallArg::bool(false),
        CallArg::None,
        CallArg::Tensor(HostTensor::zeros(DType::Float32, &[3]).unwrap()),
    ];
    assert!(
        SingleCall::of(|ctx| float::prepare(ctx, Kind::Mean, 4, DimsArg::List), &cpu, args)
            .unwrap()
            .is_none()
    );
}

#[test]
fn any_true_byte_counts() {
    let cpu = profile(Isa::Portable).unwrap();
    for (shape, first, last) in CASES {
        let n: usize = shape.iter().product();
        // Sparse, so that both answers occur.
        let x: Vec<Bool8> = numbers(n, 4).iter().map(|v| Bool8(if *v > 3.9 { 128 } else { 0 })).collect();
        let [_, reduced, inner] = volumes(shape, first, last);
        let out_shape = output_shape(shape, first, last, false);
        let args = vec![
            CallArg::Tensor(HostTensor::new(shape, &x).unwrap()),
            dims(first, last, shape.len()),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::zeros(DType::Bool, &out_shape).unwrap()),
        ];
        let mut call =
            SingleCall::new(prepare_of("aten::any.dims_out", "truth"), &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        for (i, y) in call.output::<Bool8>(3).unwrap().iter().enumerate() {
            let want = (0..reduced).any(|r| x[(i / inner * reduced + r) * inner + i % inner].get());
            assert_eq!(y.0, u8::from(want), "{shape:?} {i}");
        }
    }
}

#[test]
fn logarithms_of_sums_of_exponentials() {
    let x = [
        1.0f32,
        2.0,
        3.0,
        800.0,
        801.0,
        -900.0,
        f32::INFINITY,
        0.0,
        1.0,
        f32::NEG_INFINITY,
        f32::NEG_INFINITY,
        f32::NEG_INFINITY,
    ];
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for (length, repeats) in [(3, 1), (300, 100)] {
            let rows: Vec<f32> = x.chunks(3).flat_map(|row| row.repeat(repeats)).collect();
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[4, length], &rows).unwrap()),
                CallArg::Ints(vec![1]),
                CallArg::bool(false),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[4]).unwrap()),
            ];
            let mut call =
                SingleCall::of(|ctx| float::prepare(ctx, Kind::LogSumExp, 3, DimsArg::List), &cpu, args)
                    .unwrap()
                    .unwrap();
            call.call().unwrap();
            let y = call.output::<f32>(3).unwrap();
            let more = (repeats as f32).ln();
            assert!(
                (y[0] - 3.407_606 - more).abs() < 1e-6 && (y[1] - 801.313_26 - more).abs() < 1e-4,
                "{isa:?} {y:?}"
            );
            assert_eq!(y[2..], [f32::INFINITY, f32::NEG_INFINITY]);
        }
    }
}
