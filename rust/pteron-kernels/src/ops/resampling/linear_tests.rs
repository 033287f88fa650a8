//! Resampled signals on every instruction set against the plain kernel.

use super::{linear_rows, weighted_form};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{Arg, Tensor, numbers, run_out};
use half::{bf16, f16};
use pteron_core::{DType, DimOrder, Element, Isa};

const OPERATOR: &str = "aten::upsample_linear1d.out";

/// Shape of the input and extent of the output.
const CASES: [([usize; 3], usize); 10] = [
    ([1, 3, 5], 10),
    ([2, 17, 14], 5),
    ([1, 2, 200], 333),
    ([1, 2, 333], 200),
    ([1, 1, 1], 7),
    ([3, 1, 2], 130),
    ([1, 4, 64], 64),
    ([1, 5, 9], 1),
    ([0, 3, 4], 8),
    // Several chunks.
    ([3, 15, 300], 900),
];

/// Both results, the fast kernel's first; `None` where the processor lacks the instruction set.
fn both<T: Element>(
    isa: Isa,
    (shape, size): ([usize; 3], usize),
    x: &[T],
    align: bool,
    factor: Option<f64>,
) -> Option<(Vec<T>, Vec<T>)> {
    let (out, sizes) = ([shape[0], shape[1], size], vec![size as i64]);
    let args = vec![
        CallArg::Tensor(HostTensor::new(&shape, x).unwrap()),
        CallArg::Ints(sizes.clone()),
        CallArg::bool(align),
        factor.map_or(CallArg::None, CallArg::double),
        CallArg::Tensor(HostTensor::zeros(T::DTYPE, &out).unwrap()),
    ];
    let mut call = SingleCall::new(linear_rows::prepare, &profile(isa)?, args).unwrap().expect("taken");
    call.call().unwrap();
    let factor = factor.map_or(Arg::None, Arg::Double);
    let plain = [Tensor::of(&shape, x).into(), sizes.into(), align.into(), factor];
    let plain = run_out(OPERATOR, &plain, T::DTYPE, &out).unwrap();
    Some((call.output(weighted_form(1).out).unwrap(), plain.values()))
}

/// Compares with the plain kernel; numbers of eight at most are `tolerance` apart.
fn check<T: Element>(
    case: ([usize; 3], usize),
    x: &[T],
    (align, factor): (bool, Option<f64>),
    tolerance: f64,
    to_f64: fn(T) -> f64,
) {
    for isa in Isa::ALL {
        let Some((got, want)) = both::<T>(isa, case, x, align, factor) else { continue };
        assert_eq!(got.len(), want.len());
        for (i, (a, b)) in got.into_iter().map(to_f64).zip(want.into_iter().map(to_f64)).enumerate() {
            let is_same = a.is_nan() && b.is_nan() || a == b || (a - b).abs() <= tolerance;
            assert!(is_same, "{isa:?} {} {case:?} {align} {factor:?} {i}: {a} {b}", T::DTYPE.name());
        }
    }
}

/// Compares for every dtype.
fn check_all(case: ([usize; 3], usize), x: &[f32], rule: (bool, Option<f64>)) {
    check(case, x, rule, 1e-6, f64::from);
    check::<f64>(case, &x.iter().map(|v| f64::from(*v) * 1.1).collect::<Vec<_>>(), rule, 2e-15, |v| v);
    // One unit in the last place of a half, where f32 and f64 fall on two sides of a middle.
    check(case, &x.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>(), rule, 4e-3, f64::from);
    check(case, &x.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>(), rule, 3.2e-2, f64::from);
}

#[test]
fn sums_of_two_neighbours() {
    for case in CASES {
        let x = numbers(case.0.iter().product(), 5);
        for align in [false, true] {
            check_all(case, &x, (align, None));
            check_all(case, &x, (align, Some(1.7)));
        }
    }
    // Factors that do not fit the extents.
    check_all(([1, 2, 9], 40), &numbers(18, 5), (false, Some(0.01)));
    check_all(([1, 2, 9], 40), &numbers(18, 5), (false, Some(1e-300)));
    check_all(([1, 2, 9], 40), &numbers(18, 5), (false, Some(1e300)));
}

#[test]
fn what_is_no_number_and_what_is_infinite_stay_where_they_are() {
    let mut x = numbers(2 * 90, 7);
    // Twice beside each other, and at both ends.
    for (at, edge) in [(0, f32::INFINITY), (40, f32::NAN), (60, f32::INFINITY), (61, f32::NEG_INFINITY)] {
        (x[at], x[179 - at]) = (edge, edge);
    }
    for size in [45, 90, 91, 180] {
        for align in [false, true] {
            check_all(([1, 2, 90], size), &x, (align, None));
        }
    }
    for isa in Isa::ALL {
        let Some((got, want)) = both::<f32>(isa, ([1, 1, 4], 7), &[-0.0; 4], false, None) else { continue };
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&want), "{isa:?}");
    }
}

#[test]
fn other_calls_are_left_to_the_plain_kernel() {
    let cpu = profile(Isa::Portable).unwrap();
    let taken = |dtype, order: DimOrder| {
        let tensor = || CallArg::Tensor(HostTensor::zeros_in_order(dtype, &[1, 2, 4], order).unwrap());
        let args = vec![tensor(), CallArg::Ints(vec![4]), CallArg::bool(false), CallArg::None, tensor()];
        SingleCall::new(linear_rows::prepare, &cpu, args).unwrap().is_some()
    };
    assert!(taken(DType::Float32, DimOrder::contiguous(3)));
    assert!(!taken(DType::Float32, DimOrder::new(&[0, 2, 1]).unwrap()));
    assert!(!taken(DType::Int32, DimOrder::contiguous(3)));
}

#[test]
fn senseless_sizes_are_refused() {
    let cpu = profile(Isa::Portable).unwrap();
    let tensor = || CallArg::Tensor(HostTensor::new(&[1, 1, 2], &[0f32; 2]).unwrap());
    for size in [vec![0], vec![2, 2], vec![-1], vec![3], vec![1 << 40]] {
        let args = vec![tensor(), CallArg::Ints(size), CallArg::bool(false), CallArg::None, tensor()];
        let mut call = SingleCall::new(linear_rows::prepare, &cpu, args).unwrap().unwrap();
        assert!(call.bind().is_err());
    }
}
