//! Variances on every instruction set against the plain kernels.

use super::wide_tests::{Sample, both, is_near};
use crate::testing::{Arg, numbers};
use half::{bf16, f16};
use pteron_core::Isa;

/// (shape, reduced dimensions, extents of the results).
type Case = (&'static [usize], &'static [i64], &'static [usize]);

const CASES: [Case; 11] = [
    (&[7], &[0], &[]),
    (&[3, 50], &[1], &[3]),
    (&[3, 5000], &[1], &[3]),
    (&[70, 3], &[0], &[3]),
    (&[2, 67, 130], &[1], &[2, 130]),
    (&[5, 1100], &[0], &[1100]),
    (&[1, 4], &[0], &[4]),
    (&[0, 4], &[0], &[4]),
    (&[4, 0], &[0], &[0]),
    (&[0], &[], &[]),
    (&[1, 70_001], &[1], &[1]),
];

fn check<T: Sample>(change: impl Fn(&mut [f32])) {
    for (shape, dims, out) in CASES {
        let mut x: Vec<f32> = numbers(shape.iter().product(), 3).iter().map(|v| v + 20.0).collect();
        change(&mut x);
        let x: Vec<T> = x.into_iter().map(T::of).collect();
        let dims = || Arg::IntList(dims.to_vec());
        let calls = [
            ("aten::var.correction_out", [dims(), Arg::None, Arg::Bool(false)], 1),
            ("aten::var.out", [dims(), Arg::Bool(false), Arg::Bool(false)], 1),
            ("aten::std.correction_out", [dims(), Arg::Double(0.5), Arg::Bool(false)], 1),
            ("aten::var_mean.correction_out", [dims(), Arg::Int(5), Arg::Bool(false)], 2),
        ];
        for (isa, (operator, more, outputs)) in
            Isa::ALL.into_iter().flat_map(|i| calls.clone().map(|c| (i, c)))
        {
            let kernel = (operator, "float");
            let Some(results) = both::<T, T>(isa, kernel, (shape, &x), &more, (outputs, out)) else {
                continue;
            };
            for (fast, plain) in results.fast.iter().zip(&results.plain) {
                for (a, b) in fast.iter().zip(plain) {
                    let (wide, size) = ((a.wide(), b.wide()), 0.0);
                    assert!(is_near(*a, *b, size), "{isa:?} {operator} {shape:?}: {wide:?}");
                }
            }
        }
    }
}

#[test]
fn variances_roots_and_means() {
    check::<f32>(|_| {});
    check::<f64>(|_| {});
    check::<f16>(|_| {});
    check::<bf16>(|_| {});
}

#[test]
fn numbers_that_are_none_and_infinite_ones() {
    check::<f32>(|x| {
        if let Some(last) = x.last_mut() {
            *last = f32::NAN;
        }
    });
    check::<f64>(|x| {
        if let Some(first) = x.first_mut() {
            *first = f32::NEG_INFINITY;
        }
    });
}

#[test]
fn equal_numbers_do_not_vary() {
    let x = vec![0.1f32; 9 * 70];
    for isa in Isa::ALL {
        for (dim, out) in [(0, 70), (1, 9)] {
            let more = [Arg::IntList(vec![dim]), Arg::None, Arg::Bool(false)];
            let kernel = ("aten::var.correction_out", "float");
            let Some(results) = both::<f32, f32>(isa, kernel, (&[9, 70], &x), &more, (1, &[out])) else {
                continue;
            };
            assert!(results.fast[0].iter().all(|v| v.abs() < 1e-30), "{isa:?}");
        }
    }
}
