//! Bilinear resampling on every instruction set and in both memory orders against plain loops.

use super::{LIST, bilinear, weighted_form};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::numbers;
use pteron_core::{DType, DimOrder, Isa};

/// Shape of the input and extents of the output.
const CASES: [([usize; 4], [usize; 2]); 9] = [
    ([1, 3, 5, 7], [20, 28]),
    ([2, 17, 14, 14], [56, 56]),
    ([1, 2, 9, 40], [4, 13]),
    ([1, 1, 1, 1], [3, 5]),
    ([1, 2, 6, 5], [1, 1]),
    ([1, 40, 3, 4], [3, 4]),
    ([1, 1, 2, 3], [300, 400]),
    ([1, 1, 300, 64], [90, 33]),
    ([0, 3, 4, 4], [8, 8]),
];

fn order(is_last: bool) -> DimOrder {
    if is_last { DimOrder::new(&[0, 2, 3, 1]).unwrap() } else { DimOrder::contiguous(4) }
}

/// Memory position of (image, channel, row, column).
fn at(is_last: bool, [_, c, h, w]: [usize; 4], [i, k, y, x]: [usize; 4]) -> usize {
    if is_last { ((i * h + y) * w + x) * c + k } else { ((i * c + k) * h + y) * w + x }
}

/// Neighbours and the second one's weight, coordinates rounded to float32.
fn neighbours(
    o: usize,
    input: usize,
    output: usize,
    factor: Option<f64>,
    align: bool,
) -> (usize, usize, f64) {
    let place = if align {
        let step = if output > 1 { (input - 1) as f32 / (output - 1) as f32 } else { 0.0 };
        step * o as f32
    } else {
        let step = factor.map_or(input as f32 / output as f32, |f| (1.0 / f) as f32);
        ((f64::from(step) * (o as f64 + 0.5) - 0.5) as f32).max(0.0)
    };
    let first = (place.floor() as usize).min(input - 1);
    (first, (first + 1).min(input - 1), f64::from(place - first as f32))
}

fn check(
    isa: Isa,
    shape: [usize; 4],
    size: [usize; 2],
    is_last: bool,
    align: bool,
    factors: Option<[f64; 2]>,
) {
    let Some(cpu) = profile(isa) else { return };
    let [n, c, h, w] = shape;
    let out = [n, c, size[0], size[1]];
    let x = numbers(shape.iter().product(), 5);
    let tensor = || CallArg::Tensor(HostTensor::in_order(&shape, order(is_last), &x).unwrap());
    let room = || CallArg::Tensor(HostTensor::zeros_in_order(DType::Float32, &out, order(is_last)).unwrap());
    let sizes = || CallArg::Ints(size.iter().map(|v| *v as i64).collect());
    let calls = match factors {
        None => vec![
            (LIST, vec![tensor(), sizes(), CallArg::bool(align), CallArg::None, room()]),
            (
                weighted_form(2),
                vec![tensor(), sizes(), CallArg::bool(align), CallArg::None, CallArg::None, room()],
            ),
        ],
        Some([a, b]) => vec![(
            weighted_form(2),
            vec![tensor(), sizes(), CallArg::bool(align), CallArg::double(a), CallArg::double(b), room()],
        )],
    };
    for (form, args) in calls {
        let place = args.len() - 1;
        let mut call = SingleCall::of(|ctx| bilinear::prepare(ctx, form), &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let y = call.output::<f32>(place).unwrap();
        for i in 0..out.iter().product() {
            let [image, k, oy, ox] = [
                i / (c * size[0] * size[1]),
                i / (size[0] * size[1]) % c,
                i / size[1] % size[0],
                i % size[1],
            ];
            let (y0, y1, wy) = neighbours(oy, h, size[0], factors.map(|f| f[0]), align);
            let (x0, x1, wx) = neighbours(ox, w, size[1], factors.map(|f| f[1]), align);
            let pixel = |row, column| f64::from(x[at(is_last, shape, [image, k, row, column])]);
            let top = pixel(y0, x0) * (1.0 - wx) + pixel(y0, x1) * wx;
            let bottom = pixel(y1, x0) * (1.0 - wx) + pixel(y1, x1) * wx;
            let want = top * (1.0 - wy) + bottom * wy;
            let got = f64::from(y[at(is_last, out, [image, k, oy, ox])]);
            let what = format!("{isa:?} {shape:?} {size:?} last={is_last} align={align} {factors:?} {i}");
            assert!((got - want).abs() < 2e-6, "{what}: {got} {want}");
        }
    }
}

#[test]
fn weighted_sums_of_four_pixels() {
    for isa in Isa::ALL {
        for (shape, size) in CASES {
            for (is_last, align) in [(false, false), (false, true), (true, false), (true, true)] {
                check(isa, shape, size, is_last, align, None);
            }
        }
        // A factor decides the places even where it does not divide the extents.
        check(isa, [1, 3, 5, 7], [7, 14], false, false, Some([1.5, 2.1]));
        check(isa, [1, 3, 5, 7], [7, 14], true, false, Some([1.5, 2.1]));
    }
}

#[test]
fn senseless_sizes_are_refused() {
    let cpu = profile(Isa::Portable).unwrap();
    let x = || CallArg::Tensor(HostTensor::new(&[1, 1, 2, 2], &[0f32; 4]).unwrap());
    let out = || CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, 1, 2, 2]).unwrap());
    for size in [vec![0, 2], vec![2], vec![-1, 2]] {
        let args = vec![x(), CallArg::Ints(size), CallArg::bool(false), CallArg::None, out()];
        let mut call = SingleCall::of(|ctx| bilinear::prepare(ctx, LIST), &cpu, args).unwrap().unwrap();
        assert!(call.bind().is_err());
    }
}
