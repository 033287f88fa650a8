//! Rows on every instruction set against the transform of single rows in float64.

use super::super::scalar::{Number, Transform, memory};
use super::{FEWEST_ABREAST, MOST_ABREAST, Rows, scratch_floats, scratch_numbers};
use crate::fourier::axis::{Axis, Kind};
use crate::testing::numbers;
use crate::vector_math::SimdLevel;
use pteron_core::Isa;

/// Transforms in float64 of rows of complex numbers, `count` of each row; `rows` gives number `k` of a row.
fn reference(axis: Axis, is_forward: bool, rows: impl Fn(usize, usize, usize) -> Number) -> Vec<Number> {
    let Axis { outer, n, inner } = axis;
    let mut out = vec![[0.0; 2]; outer * n * inner];
    let mut tables = vec![[0.0; 2]; memory(n).unwrap()];
    let mut transform = Transform::new(n, is_forward, &mut tables).unwrap();
    for a in 0..outer {
        for b in 0..inner {
            let mut row: Vec<Number> = (0..n).map(|k| rows(a, k, b)).collect();
            transform.apply(&mut row);
            for (k, v) in row.iter().enumerate() {
                out[(a * n + k) * inner + b] = *v;
            }
        }
    }
    out
}

fn run(
    level: SimdLevel,
    axis: Axis,
    kind: Kind,
    is_forward: bool,
    x: &[f32],
    target: &mut [f32],
    in_place: bool,
) {
    let mut scratch = vec![f32::NAN; scratch_floats(axis.n).unwrap()];
    let mut memory = vec![[f64::NAN; 2]; scratch_numbers(axis.n, false).unwrap()];
    let source = (!in_place).then_some(x);
    if in_place {
        target.copy_from_slice(x);
    }
    let rows = Rows {
        axis,
        kind,
        is_forward,
        factor: 0.25,
        source,
        target,
        scratch: &mut scratch,
        numbers: &mut memory,
    };
    level.dispatch(rows).unwrap();
}

fn axes() -> Vec<Axis> {
    let mut axes = Vec::new();
    for n in (1..=40).chain([49, 62, 64, 74, 100, 121, 128, 200, 202, 256, 400, 480, 509, 512, 961]) {
        for (outer, inner) in [(1, 1), (2, 1), (3, 1), (19, 1), (2, 5), (1, 18), (3, 2)] {
            axes.push(Axis { outer, n, inner });
        }
    }
    axes.push(Axis { outer: 3, n: MOST_ABREAST + 4, inner: 1 });
    axes.push(Axis { outer: FEWEST_ABREAST, n: 2048, inner: 1 });
    axes
}

/// Errors relative to the largest size of a row of `n` numbers.
#[track_caller]
fn near(got: &[f32], want: impl Iterator<Item = f64> + Clone, n: usize, place: &str) {
    let mut count = 0;
    let largest = want.clone().fold(0.0, |most: f64, v| most.max(v.abs()));
    let bound = 0.25 * largest * 1e-7 * (2.0 + (n as f64).log2());
    for (i, want) in want.enumerate() {
        let error = (f64::from(got[i]) - 0.25 * want).abs();
        assert!(error <= bound, "{place}, element {i}: {} for {}", got[i], 0.25 * want);
        count += 1;
    }
    assert_eq!(got.len(), count, "{place}");
}

fn each_level(test: impl Fn(SimdLevel, String)) {
    for isa in Isa::ALL {
        let level = SimdLevel::at_most(isa);
        if level.isa() == isa {
            test(level, format!("{isa:?}"));
        }
    }
}

#[test]
fn complex_rows() {
    each_level(|level, isa| {
        for axis in axes() {
            let Axis { outer, n, inner } = axis;
            let x = numbers(2 * outer * n * inner, 1);
            for (is_forward, in_place) in [(true, false), (false, true)] {
                let want = reference(axis, is_forward, |a, k, b| {
                    let i = 2 * ((a * n + k) * inner + b);
                    [f64::from(x[i]), f64::from(x[i + 1])]
                });
                let mut out = vec![f32::NAN; x.len()];
                run(level, axis, Kind::Complex, is_forward, &x, &mut out, in_place);
                near(&out, want.iter().flatten().copied(), n, &format!("{isa} {axis:?} {is_forward}"));
            }
        }
    });
}

#[test]
fn real_rows() {
    each_level(|level, isa| {
        for axis in axes() {
            let Axis { outer, n, inner } = axis;
            let x = numbers(outer * n * inner, 2);
            let want = reference(axis, true, |a, k, b| [f64::from(x[(a * n + k) * inner + b]), 0.0]);
            for kept in [n / 2 + 1, n] {
                let mut out = vec![f32::NAN; 2 * outer * kept * inner];
                run(level, axis, Kind::FromReal { kept }, true, &x, &mut out, false);
                let width = n * inner;
                let kept_of = want.chunks(width).flat_map(|row| &row[..kept * inner]);
                near(&out, kept_of.flatten().copied(), n, &format!("{isa} {axis:?} {kept}"));
            }
        }
    });
}

#[test]
fn real_results() {
    each_level(|level, isa| {
        for axis in axes() {
            let Axis { outer, n, inner } = axis;
            // One number more than is read.
            let given = n / 2 + 2;
            let x = numbers(2 * outer * given * inner, 3);
            let want = reference(axis, false, |a, k, b| {
                let (at, sign) = if k <= n / 2 { (k, 1.0) } else { (n - k, -1.0) };
                let i = 2 * ((a * given + at) * inner + b);
                let is_end = at == 0 || 2 * at == n;
                [f64::from(x[i]), if is_end { 0.0 } else { sign * f64::from(x[i + 1]) }]
            });
            let mut out = vec![f32::NAN; outer * n * inner];
            run(level, axis, Kind::ToReal { given }, false, &x, &mut out, false);
            near(&out, want.iter().map(|v| v[0]), n, &format!("{isa} {axis:?}"));
        }
    });
}

/// A row has the same bytes whatever lies beside it: NaN and infinity of one row stay there.
#[test]
fn rows_do_not_touch_each_other() {
    each_level(|level, isa| {
        for n in [8, 30, 37, 400] {
            let rows = 19;
            let axis = Axis { outer: rows, n, inner: 1 };
            let x = numbers(rows * n, 4);
            let mut spoiled = x.clone();
            spoiled[5 * n] = f32::NAN;
            spoiled[6 * n + 1] = f32::INFINITY;
            let kept = n / 2 + 1;
            let mut out = [vec![0.0; 2 * rows * kept], vec![0.0; 2 * rows * kept], vec![0.0; 2 * kept]];
            run(level, axis, Kind::FromReal { kept }, true, &x, &mut out[0], false);
            run(level, axis, Kind::FromReal { kept }, true, &spoiled, &mut out[1], false);
            let alone = Axis { outer: 1, ..axis };
            run(level, alone, Kind::FromReal { kept }, true, &x[3 * n..4 * n], &mut out[2], false);
            for row in 0..rows {
                let part = row * 2 * kept..(row + 1) * 2 * kept;
                let (clean, beside) = (&out[0][part.clone()], &out[1][part]);
                if row == 5 || row == 6 {
                    assert!(beside.iter().any(|v| !v.is_finite()), "{isa} {n} {row}");
                } else {
                    assert_eq!(clean, beside, "{isa} {n} {row}");
                }
            }
            assert_eq!(&out[0][3 * 2 * kept..4 * 2 * kept], &out[2][..], "{isa} {n}");
        }
    });
}

#[test]
fn rows_that_do_not_fit_are_an_error() {
    let level = SimdLevel::at_most(Isa::Portable);
    let axis = Axis { outer: 2, n: 8, inner: 1 };
    let (x, mut out) = (vec![0.0; 31], vec![0.0; 32]);
    let mut scratch = vec![0.0; scratch_floats(8).unwrap()];
    let rows = Rows {
        axis,
        kind: Kind::Complex,
        is_forward: true,
        factor: 1.0,
        source: Some(&x),
        target: &mut out,
        scratch: &mut scratch,
        numbers: &mut [],
    };
    assert!(level.dispatch(rows).is_err());
}
