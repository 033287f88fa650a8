//! Folds of float64 and integers, and norms, on every instruction set against plain loops.

use super::fold::Kind;
use super::other_dtypes::{prepare, prepare_norm};
use super::shape::DimsArg;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::{DType, Element, Isa, Result};

const SHAPES: [[usize; 3]; 8] =
    [[1, 7, 1], [3, 50, 1], [3, 5000, 1], [2, 9, 70], [2, 600, 64], [1, 300, 3], [4, 0, 2], [0, 5, 3]];

fn call<A: Element, B: Element>(isa: Isa, kind: Kind, shape: [usize; 3], x: &[A]) -> Option<Result<Vec<B>>> {
    let mut args = vec![
        CallArg::Tensor(HostTensor::new(&shape, x).unwrap()),
        CallArg::Ints(vec![1]),
        CallArg::bool(false),
    ];
    if matches!(kind, Kind::Sum | Kind::Mean) {
        args.push(CallArg::None);
    }
    let out = args.len();
    args.push(CallArg::Tensor(HostTensor::zeros(B::DTYPE, &[shape[0], shape[2]]).unwrap()));
    let mut call =
        SingleCall::of(|ctx| prepare(ctx, kind, out, DimsArg::List), &profile(isa)?, args).unwrap().unwrap();
    Some(call.call().map(|()| call.output::<B>(out).unwrap()))
}

/// The elements that make up every result.
fn fields<T: Copy>([outer, n, inner]: [usize; 3], x: &[T]) -> Vec<Vec<T>> {
    let at = |o: usize, i: usize| (0..n).map(|r| x[(o * n + r) * inner + i]).collect();
    (0..outer * inner).map(|k| at(k / inner, k % inner)).collect()
}

#[test]
fn doubles() {
    for (isa, shape) in Isa::ALL.into_iter().flat_map(|i| SHAPES.map(|s| (i, s))) {
        let count = shape.iter().product::<usize>();
        let mut x: Vec<f64> = (0..count).map(|i| (i * 7919 % 1013) as f64 / 100.0 - 5.0).collect();
        let want = fields(shape, &x);
        let Some(sums) = call::<f64, f64>(isa, Kind::Sum, shape, &x) else { continue };
        for (y, v) in sums.unwrap().iter().zip(&want) {
            assert!((y - v.iter().sum::<f64>()).abs() < 1e-9, "{isa:?} {shape:?}");
        }
        let means = call::<f64, f64>(isa, Kind::Mean, shape, &x).unwrap().unwrap();
        for (y, v) in means.iter().zip(&want) {
            assert!(v.is_empty() && y.is_nan() || (y - v.iter().sum::<f64>() / v.len() as f64).abs() < 1e-12);
        }
        let Some(last) = x.last_mut() else { continue };
        *last = f64::NAN;
        let largest = call::<f64, f64>(isa, Kind::Max, shape, &x).unwrap().unwrap();
        for (y, v) in largest.iter().zip(fields(shape, &x)) {
            let wanted = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!(
                if v.iter().any(|v| v.is_nan()) { y.is_nan() } else { *y == wanted },
                "{isa:?} {shape:?}"
            );
        }
    }
}

#[test]
fn norms_of_large_numbers() {
    let cpu = profile(Isa::Portable).unwrap();
    let args = vec![
        CallArg::Tensor(HostTensor::new(&[2, 2], &[3e30f32, 4e30, 0.0, f32::NAN]).unwrap()),
        CallArg::int(2),
        CallArg::Ints(vec![-1]),
        CallArg::bool(false),
        CallArg::None,
        CallArg::Tensor(HostTensor::zeros(DType::Float32, &[2]).unwrap()),
    ];
    let mut call = SingleCall::of(|ctx| prepare_norm(ctx, 5, DimsArg::Second), &cpu, args).unwrap().unwrap();
    call.call().unwrap();
    let y = call.output::<f32>(5).unwrap();
    assert!(y[0] == 5e30 && y[1].is_nan(), "{y:?}");
}

#[test]
fn integers_wrap_and_extremes_of_nothing_are_refused() {
    for (isa, shape) in Isa::ALL.into_iter().flat_map(|i| SHAPES.map(|s| (i, s))) {
        let count = shape.iter().product::<usize>();
        let x: Vec<i8> = (0..count).map(|i| (i * 7919 % 1013) as u8 as i8).collect();
        let Some(sums) = call::<i8, i64>(isa, Kind::Sum, shape, &x) else { continue };
        let want: Vec<i64> =
            fields(shape, &x).iter().map(|v| v.iter().map(|v| i64::from(*v)).sum()).collect();
        assert_eq!(sums.unwrap(), want, "{isa:?} {shape:?}");
        let largest = call::<i8, i8>(isa, Kind::Min, shape, &x).unwrap();
        match shape {
            [4, 0, 2] => assert!(largest.unwrap_err().to_string().contains("no elements")),
            _ => {
                let want: Vec<i8> =
                    fields(shape, &x).iter().filter_map(|v| v.iter().copied().min()).collect();
                assert_eq!(largest.unwrap(), want, "{isa:?} {shape:?}");
            }
        }
    }
    let x = [i64::MAX, 2, 3];
    let sums = call::<i64, i64>(Isa::Portable, Kind::Sum, [1, 3, 1], &x).unwrap().unwrap();
    assert_eq!(sums, [i64::MIN + 4]);
}
