//! Samples on every instruction set against the plain kernel.

use super::{OUT, rows};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{Tensor, numbers, run_out};
use half::{bf16, f16};
use pteron_core::{DType, DimOrder, Element, Isa};

const OPERATOR: &str = "aten::grid_sampler_2d.out";

/// Extents of images and of grids.
const CASES: [([usize; 4], [usize; 2]); 9] = [
    ([2, 3, 5, 7], [3, 150]),
    ([1, 1, 1, 1], [4, 40]),
    ([1, 2, 1, 9], [2, 64]),
    ([1, 2, 9, 1], [2, 65]),
    ([2, 5, 2, 2], [9, 17]),
    ([1, 2, 300, 4], [1, 129]),
    ([0, 2, 3, 4], [5, 6]),
    ([1, 2, 3, 4], [5, 0]),
    // Several chunks.
    ([2, 5, 12, 13], [30, 150]),
];

/// Positions at and beside edges and middles of pixels, and such as are no places.
const POSITIONS: [f64; 26] = [
    -1.0,
    1.0,
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0 / 3.0,
    0.999_999_94,
    -0.999_999_94,
    1.000_000_1,
    -1.000_000_1,
    0.9,
    -0.9,
    1.1,
    -1.1,
    1.5,
    -2.0,
    3.0,
    -7.3,
    1e3,
    -1e7,
    3e38,
    -3e38,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Pairs of coordinates: edges with each other, then others.
fn positions(n: usize, seed: u64) -> Vec<f64> {
    let random = numbers(n, seed);
    let edge = |i: usize| POSITIONS[(i * 7 + i / POSITIONS.len()) % POSITIONS.len()];
    (0..n).map(|i| if i % 5 < 2 { edge(i) } else { f64::from(random[i]) / 3.0 }).collect()
}

/// Both results, the fast kernel's first; `None` where the processor lacks the instruction set.
fn both<T: Element>(
    isa: Isa,
    (image, places): ([usize; 4], [usize; 2]),
    (x, grid): (&[T], &[T]),
    (mode, padding, align): (i64, i64, bool),
) -> Option<(Vec<T>, Vec<T>)> {
    let out = [image[0], image[1], places[0], places[1]];
    let grid_shape = [image[0], places[0], places[1], 2];
    let args = vec![
        CallArg::Tensor(HostTensor::new(&image, x).unwrap()),
        CallArg::Tensor(HostTensor::new(&grid_shape, grid).unwrap()),
        CallArg::int(mode),
        CallArg::int(padding),
        CallArg::bool(align),
        CallArg::Tensor(HostTensor::zeros(T::DTYPE, &out).unwrap()),
    ];
    let mut call = SingleCall::new(rows::prepare, &profile(isa)?, args).unwrap().expect("taken");
    call.call().unwrap();
    let (x, grid) = (Tensor::of(&image, x), Tensor::of(&grid_shape, grid));
    let plain = [x.into(), grid.into(), mode.into(), padding.into(), align.into()];
    let plain = run_out(OPERATOR, &plain, T::DTYPE, &out).unwrap();
    Some((call.output(OUT).unwrap(), plain.values()))
}

/// To float64 and back.
type Conversions<T> = (fn(T) -> f64, fn(f64) -> T);

/// Compares with the plain kernel, in all modes: nearest samples bit by bit.
fn check<T: Element>(
    case: ([usize; 4], [usize; 2]),
    (x, grid): (&[f64], &[f64]),
    tolerance: f64,
    (to_f64, of_f64): Conversions<T>,
) {
    let x: Vec<T> = x.iter().map(|v| of_f64(*v)).collect();
    let grid: Vec<T> = grid.iter().map(|v| of_f64(*v)).collect();
    for isa in Isa::ALL {
        for rule in (0..12).map(|i| (i % 2, i / 2 % 3, i < 6)) {
            let Some((got, want)) = both::<T>(isa, case, (&x, &grid), rule) else { continue };
            assert_eq!(got.len(), want.len());
            for (i, (a, b)) in got.into_iter().map(to_f64).zip(want.into_iter().map(to_f64)).enumerate() {
                let is_near = rule.0 == 0 && (a - b).abs() <= tolerance;
                let is_same = a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits() || is_near;
                assert!(is_same, "{isa:?} {} {case:?} {rule:?} {i}: {a:e} {b:e}", T::DTYPE.name());
            }
        }
    }
}

/// Compares for every dtype.
fn check_all(case: ([usize; 4], [usize; 2]), x: &[f64], grid: &[f64]) {
    check::<f32>(case, (x, grid), 2e-6, (f64::from, |v| v as f32));
    check::<f64>(case, (x, grid), 4e-15, (|v| v, |v| v));
    // One unit in the last place of a half, where f32 and f64 fall on two sides of a middle.
    check::<f16>(case, (x, grid), 4e-3, (f64::from, f16::from_f64));
    check::<bf16>(case, (x, grid), 3.2e-2, (f64::from, bf16::from_f64));
}

fn image(n: usize) -> Vec<f64> {
    numbers(n, 11).into_iter().map(f64::from).collect()
}

#[test]
fn places_are_those_of_the_plain_kernel() {
    for (shape, places) in CASES {
        let grid = positions(2 * shape[0] * places[0] * places[1], 3);
        check_all((shape, places), &image(shape.iter().product()), &grid);
    }
}

#[test]
fn what_has_no_weight_is_not_read() {
    let case = ([1, 2, 3, 4], [10, 70]);
    let mut x = image(24);
    // Infinite, and no number, in corners and inside; places on whole pixels read their neighbours with a weight of zero.
    for (at, value) in
        [(0, f64::INFINITY), (6, f64::NAN), (11, f64::NEG_INFINITY), (12, -0.0), (21, f64::NAN)]
    {
        x[at] = value;
    }
    let whole = |i: usize| (i / 2 % 4) as f64 / 1.5 - 1.0;
    let middle = |i: usize| (i / 2 % 8) as f64 / 4.0 - 0.875;
    let grid: Vec<f64> = (0..1400).map(|i| if i % 6 < 2 { whole(i / 3) } else { middle(i / 4) }).collect();
    check_all(case, &x, &grid);
    check_all(case, &x, &positions(1400, 5));
}

#[test]
fn other_calls_are_left_to_the_plain_kernel() {
    let cpu = profile(Isa::Portable).unwrap();
    let taken = |dtype, order: DimOrder, mode| {
        let tensor = || CallArg::Tensor(HostTensor::zeros_in_order(dtype, &[1, 2, 4, 2], order).unwrap());
        let args =
            vec![tensor(), tensor(), CallArg::int(mode), CallArg::int(0), CallArg::bool(false), tensor()];
        SingleCall::new(rows::prepare, &cpu, args).unwrap().is_some()
    };
    assert!(taken(DType::Float32, DimOrder::contiguous(4), 0));
    assert!(!taken(DType::Float32, DimOrder::contiguous(4), 2));
    assert!(!taken(DType::Float32, DimOrder::contiguous(4), 3));
    assert!(!taken(DType::Float32, DimOrder::new(&[0, 2, 3, 1]).unwrap(), 0));
    assert!(!taken(DType::Int32, DimOrder::contiguous(4), 0));
}

#[test]
fn senseless_arguments_are_refused() {
    let cpu = profile(Isa::Portable).unwrap();
    let bound = |image: [usize; 4], grid: [usize; 4], padding| {
        let tensor = |shape: &[usize]| CallArg::Tensor(HostTensor::zeros(DType::Float32, shape).unwrap());
        let args = vec![
            tensor(&image),
            tensor(&grid),
            CallArg::int(0),
            CallArg::int(padding),
            CallArg::bool(false),
            tensor(&[1, 2, 5, 6]),
        ];
        SingleCall::new(rows::prepare, &cpu, args).unwrap().unwrap().bind().is_ok()
    };
    assert!(bound([1, 2, 3, 4], [1, 5, 6, 2], 0));
    assert!(!bound([1, 2, 3, 4], [1, 5, 6, 2], 3));
    assert!(!bound([1, 2, 3, 4], [1, 5, 6, 3], 0));
    assert!(!bound([1, 2, 3, 4], [2, 5, 6, 2], 0));
    assert!(!bound([1, 2, 0, 4], [1, 5, 6, 2], 0));
    assert!(!bound([1, 2, 3, 4], [1, 5, 7, 2], 0));
}
