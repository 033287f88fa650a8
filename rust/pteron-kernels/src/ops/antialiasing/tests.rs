//! Resampling in two passes on every instruction set against the plain kernel.

use super::{CUBIC, Filter, LINEAR, separable, weighted_form};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{Arg, Tensor, numbers, run_out};
use pteron_core::{DType, DimOrder, Element, Isa};

/// Shape of the input and extents of the output.
const CASES: [([usize; 4], [usize; 2]); 10] = [
    ([1, 3, 5, 7], [10, 14]),
    ([2, 17, 14, 14], [5, 9]),
    ([1, 2, 9, 40], [4, 13]),
    ([1, 1, 1, 1], [3, 5]),
    ([1, 2, 6, 5], [1, 1]),
    ([1, 4, 3, 4], [3, 4]),
    ([1, 1, 2, 3], [30, 40]),
    ([1, 1, 90, 64], [7, 33]),
    ([0, 3, 4, 4], [8, 8]),
    // Two chunks.
    ([1, 3, 60, 30], [80, 90]),
];

const KINDS: [(&str, Filter); 2] =
    [("aten::_upsample_bilinear2d_aa.out", LINEAR), ("aten::_upsample_bicubic2d_aa.out", CUBIC)];

fn factor(value: Option<f64>) -> (CallArg, Arg) {
    value.map_or((CallArg::None, Arg::None), |v| (CallArg::double(v), Arg::Double(v)))
}

/// Both results, the fast kernel's first; `None` where the processor lacks the instruction set.
fn both<T: Element>(
    isa: Isa,
    (operator, filter): (&str, Filter),
    (shape, size): ([usize; 4], [usize; 2]),
    x: &[T],
    align: bool,
    factors: [Option<f64>; 2],
) -> Option<(Vec<T>, Vec<T>)> {
    let out = [shape[0], shape[1], size[0], size[1]];
    let sizes: Vec<i64> = size.iter().map(|v| *v as i64).collect();
    let [(high, plain_high), (wide, plain_wide)] = factors.map(factor);
    let args = vec![
        CallArg::Tensor(HostTensor::new(&shape, x).unwrap()),
        CallArg::Ints(sizes.clone()),
        CallArg::bool(align),
        high,
        wide,
        CallArg::Tensor(HostTensor::zeros(T::DTYPE, &out).unwrap()),
    ];
    let mut call =
        SingleCall::of(|ctx| separable::prepare(ctx, filter), &profile(isa)?, args).unwrap().expect("taken");
    call.call().unwrap();
    let plain = [Tensor::of(&shape, x).into(), sizes.into(), align.into(), plain_high, plain_wide];
    let plain = run_out(operator, &plain, T::DTYPE, &out).unwrap();
    Some((call.output(weighted_form(2).out).unwrap(), plain.values()))
}

fn check_all(align: bool, factors: [Option<f64>; 2], cases: &[([usize; 4], [usize; 2])]) {
    for isa in Isa::ALL {
        for kind in KINDS {
            for case in cases {
                let x = numbers(case.0.iter().product(), 5);
                let Some((got, want)) = both::<f32>(isa, kind, *case, &x, align, factors) else { continue };
                for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                    assert!((a - b).abs() < 4e-6, "{isa:?} {} {case:?} {align} {i}: {a} {b}", kind.0);
                }
                let x: Vec<f64> = x.iter().map(|v| f64::from(*v) * 1.1).collect();
                let (got, want) = both::<f64>(isa, kind, *case, &x, align, factors).unwrap();
                assert_eq!(got.len(), want.len());
                for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                    assert!((a - b).abs() < 1e-14, "{isa:?} {} {case:?} {align} {i}: {a} {b}", kind.0);
                }
            }
        }
    }
}

#[test]
fn two_passes_are_the_double_sum() {
    check_all(false, [None, None], &CASES);
    check_all(true, [None, None], &CASES);
}

#[test]
fn a_factor_decides_the_places() {
    check_all(false, [Some(1.5), Some(2.1)], &[([1, 3, 5, 7], [7, 14])]);
    check_all(false, [None, Some(0.4)], &[([1, 3, 5, 17], [7, 6])]);
    check_all(true, [Some(1.5), Some(2.1)], &[([1, 3, 5, 7], [7, 14])]);
    // Factors that do not fit the extents: outputs beside the image, and such that read all of it.
    check_all(false, [Some(0.01), Some(0.3)], &[([1, 3, 5, 7], [7, 14])]);
    check_all(false, [Some(300.0), Some(1e-300)], &[([1, 3, 5, 7], [7, 14])]);
}

#[test]
fn what_is_no_number_and_what_is_infinite_stay_where_they_are() {
    let edges = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    let case = ([1, 2, 12, 13], [5, 20]);
    let mut x = numbers(2 * 12 * 13, 7);
    for (i, edge) in edges.into_iter().enumerate() {
        x[17 + 61 * i] = edge;
    }
    for isa in Isa::ALL {
        for kind in KINDS {
            let Some((got, want)) = both::<f32>(isa, kind, case, &x, false, [None, None]) else { continue };
            assert!(want.iter().any(|v| v.is_nan()) && want.iter().any(|v| v.is_infinite()));
            for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                let is_same = a.is_nan() && b.is_nan() || a == b || (a - b).abs() < 4e-6;
                assert!(is_same, "{isa:?} {} {i}: {a} {b}", kind.0);
            }
            // The sum of zeros of either sign is as the plain kernel's.
            let x = [-0.0f32; 12];
            let case = ([1, 1, 3, 4], [2, 3]);
            let (got, want) = both::<f32>(isa, kind, case, &x, false, [None, None]).unwrap();
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&want));
        }
    }
}

/// A sum of rows may overflow f32 where the whole window's does not, and cubic weights have either sign.
#[test]
fn the_largest_numbers_are_summed_in_f64() {
    let case = ([1, 2, 7, 6], [14, 18]);
    for x in [[-f32::MAX; 84], [-0.99 * f32::MAX; 84], [f32::MAX; 84]] {
        for (isa, kind) in Isa::ALL.into_iter().flat_map(|isa| KINDS.map(|kind| (isa, kind))) {
            let Some((got, want)) = both::<f32>(isa, kind, case, &x, false, [None, None]) else { continue };
            for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                assert!(a == b || ((a - b) / b).abs() < 1e-6, "{isa:?} {} {i}: {a} {b}", kind.0);
            }
        }
    }
}

#[test]
fn other_calls_are_left_to_the_plain_kernel() {
    let cpu = profile(Isa::Portable).unwrap();
    let taken = |dtype, order: DimOrder| {
        let tensor = || CallArg::Tensor(HostTensor::zeros_in_order(dtype, &[1, 2, 4, 4], order).unwrap());
        let args = vec![
            tensor(),
            CallArg::Ints(vec![4, 4]),
            CallArg::bool(false),
            CallArg::double(1.0),
            CallArg::None,
            tensor(),
        ];
        SingleCall::of(|ctx| separable::prepare(ctx, LINEAR), &cpu, args).unwrap().is_some()
    };
    assert!(taken(DType::Float32, DimOrder::contiguous(4)));
    assert!(!taken(DType::Float16, DimOrder::contiguous(4)));
    assert!(!taken(DType::Float32, DimOrder::new(&[0, 2, 3, 1]).unwrap()));
}

#[test]
fn senseless_sizes_are_refused() {
    let cpu = profile(Isa::Portable).unwrap();
    let tensor = || CallArg::Tensor(HostTensor::new(&[1, 1, 2, 2], &[0f32; 4]).unwrap());
    for size in [vec![0, 2], vec![2], vec![-1, 2], vec![3, 2], vec![1 << 40, 2]] {
        let args =
            vec![tensor(), CallArg::Ints(size), CallArg::bool(false), CallArg::None, CallArg::None, tensor()];
        let mut call = SingleCall::of(|ctx| separable::prepare(ctx, LINEAR), &cpu, args).unwrap().unwrap();
        assert!(call.bind().is_err());
    }
}
