//! Blocks against loops, and every operator's kernel of blocks against the plain one.

use super::plain::Triangle;
use super::update::{self, How, Place, Update};
use super::{Blocked, Dense, Method, Plain};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use crate::vector_math::SimdLevel;
use pteron_core::{DType, Isa, Result};

const SIZES: [usize; 8] = [0, 1, 2, 8, 16, 19, 33, 70];

fn levels() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| profile(*isa).is_some())
}

fn matrix(n: usize, seed: u64) -> Vec<f64> {
    numbers(n, seed).into_iter().map(f64::from).collect()
}

fn rounded<T: Dense>(values: &[f64]) -> Vec<T> {
    values.iter().map(|v| T::from_f64(*v)).collect()
}

/// As far apart as rounding explains, beside the largest number.
fn check_near<T: Dense>(found: &[T], want: &[f64], what: &str) {
    let largest = want.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
    let bound = largest * if T::DTYPE == DType::Float32 { 2e-4 } else { 1e-11 };
    assert_eq!(found.len(), want.len(), "{what}");
    for (i, (x, y)) in found.iter().zip(want).enumerate() {
        assert!((x.to_f64() - y).abs() <= bound, "{what}: {i}: {x:?}, {y}");
    }
}

/// A matrix with a large diagonal that is not in place, so that rows are exchanged.
fn regular(n: usize) -> Vec<f64> {
    let mut a = matrix(n * n, 3);
    (0..n).for_each(|i| a[i * n + (i * 5 + 3) % n] += 4.0);
    a
}

fn definite(n: usize) -> Vec<f64> {
    let a = matrix(n * n, 4);
    let at = |i: usize, j: usize| -> f64 { (0..n).map(|k| a[i * n + k] * a[j * n + k]).sum() };
    (0..n * n).map(|i| at(i / n, i % n) + if i / n == i % n { 3.0 } else { 0.0 }).collect()
}

fn check_factors<T: Dense>(isa: Isa) {
    let method = Blocked::<T>::new(SimdLevel::at_most(isa));
    for (rows, columns) in SIZES.into_iter().map(|n| (n, n)).chain([(40, 23), (23, 40), (3, 0), (0, 3)]) {
        let what = format!("{isa:?} {rows} {columns}");
        let side = rows.max(columns);
        let mut room = vec![T::ZERO; Blocked::<T>::room(side)];
        let square = regular(side);
        let a: Vec<f64> = (0..rows * columns).map(|i| square[i / columns * side + i % columns]).collect();
        let a: Vec<f64> = rounded::<T>(&a).into_iter().map(|v| v.to_f64()).collect();
        let (mut want, mut found) = (a.clone(), rounded::<T>(&a));
        let (mut p, mut q) = (vec![0.0; rows.min(columns)], vec![0.0; rows.min(columns)]);
        assert_eq!(Plain.factor(&mut want, [rows, columns], &mut p, &mut []), 0);
        assert_eq!(method.factor(&mut found, [rows, columns], &mut q, &mut room), 0, "{what}");
        assert_eq!(p, q, "{what}");
        check_near(&found, &want, &what);
        if rows == columns {
            let (mut x, mut y) = (vec![0.0; rows * rows], vec![T::ZERO; rows * rows]);
            Plain.invert(&want, &p, &mut x, &mut []);
            method.invert(&found, &q, &mut y, &mut room);
            check_near(&y, &x, &what);
        }
    }
    // Singular: a column of zeros within a later block.
    let n = 20;
    let mut a = regular(n);
    (0..n).for_each(|i| a[i * n + 12] = 0.0);
    let (mut found, mut pivots) = (rounded::<T>(&a), vec![0.0; n]);
    let mut room = vec![T::ZERO; Blocked::<T>::room(n)];
    assert_eq!(method.factor(&mut found, [n, n], &mut pivots, &mut room), 13);
    assert!(found.iter().all(|v| !v.is_nan()));
}

fn check_cholesky<T: Dense>(isa: Isa) {
    let method = Blocked::<T>::new(SimdLevel::at_most(isa));
    for n in SIZES {
        let what = format!("{isa:?} {n}");
        let mut room = vec![T::ZERO; Blocked::<T>::room(n)];
        let mut a = definite(n);
        // Nothing above the diagonal is read.
        (0..n).for_each(|i| a[i * n + i + 1..(i + 1) * n].fill(f64::NAN));
        let (mut want, mut found) = (a.clone(), rounded::<T>(&a));
        let mut copies = [vec![T::ZERO; n * n], vec![T::ZERO; n * n]];
        let [x, copy] = &mut copies;
        assert_eq!(Plain.cholesky(&mut want, n, &mut [], &mut []), 0);
        assert_eq!(method.cholesky(&mut found, n, copy, &mut room), 0, "{what}");
        check_near(&found, &want, &what);
        for is_upper in [false, true] {
            let (mut turned, mut inverse) = (want.clone(), vec![0.0; n * n]);
            if is_upper {
                crate::ops::matrix_batch::transpose(&want, [n, n], &mut turned);
            }
            Plain.invert_definite(&turned, n, is_upper, [&mut inverse, &mut []], &mut []);
            method.invert_definite(&rounded(&turned), n, is_upper, [&mut *x, &mut *copy], &mut room);
            check_near(x, &inverse, &what);
        }
        for bad in [0, n / 2, n.saturating_sub(1)] {
            if n > 0 {
                let mut a = rounded::<T>(&a);
                a[bad * (n + 1)] = T::from_f64(-1.0);
                assert_eq!(method.cholesky(&mut a, n, copy, &mut room), bad + 1, "{what}");
                assert!(a[bad * (n + 1)] < T::ZERO);
            }
        }
    }
}

fn check_reflections<T: Dense>(isa: Isa) {
    let method = Blocked::<T>::new(SimdLevel::at_most(isa));
    for [m, n] in [[1, 1], [5, 3], [3, 5], [16, 16], [40, 19], [19, 40], [37, 37], [0, 3], [3, 0]] {
        for size in [1.0, 1e30] {
            let what = format!("{isa:?} {m} {n} {size}");
            let mut a: Vec<f64> =
                matrix(m * n, 9).into_iter().map(|v| (v as f32 * size as f32).into()).collect();
            // A column that is done already.
            (1..m).filter(|_| n > 0).for_each(|i| a[i * n] = 0.0);
            let (inner, side) = (m.min(n), m.max(n));
            let mut room = vec![T::ZERO; Blocked::<T>::room(side)];
            let (mut want, mut found, mut copy) = (a.clone(), rounded::<T>(&a), vec![0.0; m * n]);
            let (mut t, mut u) = (vec![0.0; inner], vec![T::ZERO; inner]);
            Plain.reflect(&mut want, [m, n], &mut t, &mut copy, &mut []);
            method.reflect(&mut found, [m, n], &mut u, &mut [], &mut room);
            check_near(&u, &t, &what);
            check_near(&found, &want, &what);
            for width in [inner, m] {
                let (mut p, mut q) = (vec![0.0; m * width], vec![T::ZERO; m * width]);
                Plain.reflections(&want, [m, n], &t, (&mut p, width), &mut []);
                method.reflections(&found, [m, n], &u, (&mut q, width), &mut room);
                check_near(&q, &p, &what);
            }
        }
    }
}

fn check_triangles<T: Dense>(isa: Isa) {
    let method = Blocked::<T>::new(SimdLevel::at_most(isa));
    for (n, width) in [(1, 1), (5, 33), (17, 16), (40, 3), (70, 17), (9, 0), (0, 2)] {
        for (is_upper, is_unit, is_transposed) in (0..8).map(|i| (i & 1 > 0, i & 2 > 0, i & 4 > 0)) {
            let triangle = Triangle { is_upper, is_unit, is_transposed };
            let mut a: Vec<f64> = matrix(n * n, 7).into_iter().map(|v| v / n as f64).collect();
            for i in 0..n {
                a[i * n + i] = if is_unit { f64::NAN } else { 2.0 };
                (0..n).filter(|j| (*j > i) != is_upper && *j != i).for_each(|j| a[i * n + j] = f64::NAN);
            }
            let b = matrix(n * width, 8);
            let (mut want, mut found) = (b.clone(), rounded::<T>(&b));
            let mut room = vec![T::ZERO; Blocked::<T>::room(n)];
            Plain.substitute(&a, n, (&mut want, width), triangle, &mut []);
            method.substitute(&rounded(&a), n, (&mut found, width), triangle, &mut room);
            check_near(&found, &want, &format!("{isa:?} {n} {width} {is_upper} {is_unit} {is_transposed}"));
        }
    }
}

fn check_updates<T: Dense>(isa: Isa) {
    let whole = |n: usize, seed: usize| -> Vec<T> {
        (0..n).map(|i| T::from_i64((i * seed % 13) as i64 - 6)).collect()
    };
    for [m, n, k] in [[1, 1, 1], [5, 40, 260], [131, 17, 3], [4, 32, 256], [3, 16, 0], [0, 3, 3]] {
        let (a, b, c) = (whole(m * k, 5), whole(k * n, 7), whole(m * n, 11));
        for (how, is_transposed) in [How::Set, How::Add, How::Subtract].into_iter().zip([false, true, false])
        {
            let mut found = c.clone();
            let place = match is_transposed {
                false => Place::rows(0, k),
                true => Place { at: 0, row: 1, column: m },
            };
            let mut room = vec![T::ZERO; update::room(m.max(k))];
            SimdLevel::at_most(isa).dispatch(Update {
                target: (&mut found, Place::rows(0, n)),
                left: (Some(&a), place),
                right: (Some(&b), Place::rows(0, n)),
                extents: [m, n, k],
                how,
                room: &mut room,
            });
            for (at, (found, c)) in found.iter().zip(&c).enumerate() {
                let (i, j) = (at / n, at % n);
                let left = |p: usize| if is_transposed { a[p * m + i] } else { a[i * k + p] };
                let sum = (0..k).fold(T::ZERO, |sum, p| sum + left(p) * b[p * n + j]);
                let want = match how {
                    How::Set if k > 0 => sum,
                    How::Subtract => *c - sum,
                    _ => *c + sum,
                };
                assert!(*found == want, "{isa:?} {m} {n} {k} {is_transposed} {i} {j}: {found:?}, {want:?}");
            }
        }
    }
}

#[test]
fn products_of_blocks_are_exact() {
    levels().for_each(|isa| (check_updates::<f32>(isa), check_updates::<f64>(isa)).0);
}

#[test]
fn blocks_factor_as_loops() {
    levels().for_each(|isa| (check_factors::<f32>(isa), check_factors::<f64>(isa)).0);
}

#[test]
fn blocks_find_positive_minors_as_loops() {
    levels().for_each(|isa| (check_cholesky::<f32>(isa), check_cholesky::<f64>(isa)).0);
}

#[test]
fn blocks_reflect_as_loops() {
    levels().for_each(|isa| (check_reflections::<f32>(isa), check_reflections::<f64>(isa)).0);
}

#[test]
fn blocks_substitute_as_loops() {
    levels().for_each(|isa| (check_triangles::<f32>(isa), check_triangles::<f64>(isa)).0);
}

/// The outputs of one kernel, behind each other.
fn outputs<T: Dense>(
    operator: &str,
    (variant, isa): (&str, Isa),
    inputs: &[Input],
    shapes: &[(DType, &[usize])],
) -> Result<Vec<f64>> {
    let tensor = |(shape, values): (&[usize], &[f64])| HostTensor::new(shape, &rounded::<T>(values));
    let mut args = Vec::new();
    for input in inputs {
        args.push(match input {
            Input::Tensor(shape, values) => CallArg::Tensor(tensor((shape, values))?),
            Input::Flag(flag) => CallArg::bool(*flag),
            Input::Text(text) => CallArg::String((*text).into()),
        });
    }
    for (dtype, shape) in shapes {
        args.push(CallArg::Tensor(HostTensor::zeros(*dtype, shape)?));
    }
    let cpu = profile(isa).expect("the processor has it");
    let mut call = SingleCall::new(prepare_of(operator, variant), &cpu, args)?.expect("taken");
    call.call()?;
    let mut all = Vec::new();
    for (i, (dtype, _)) in shapes.iter().enumerate() {
        let i = inputs.len() + i;
        match dtype {
            DType::Int32 => all.extend(call.output::<i32>(i)?.into_iter().map(f64::from)),
            _ => all.extend(call.output::<T>(i)?.into_iter().map(|v| v.to_f64())),
        }
    }
    Ok(all)
}

enum Input {
    Tensor(Vec<usize>, Vec<f64>),
    Flag(bool),
    Text(&'static str),
}

fn check_operators<T: Dense>(n: usize) {
    use Input::{Flag, Tensor};
    let two = |item: fn(usize) -> Vec<f64>| {
        let mut all = item(n);
        all.extend(item(n).iter().enumerate().map(|(i, v)| v + if i % (n + 1) == 0 { 1.0 } else { 0.0 }));
        Tensor(vec![2, n, n], all)
    };
    let lower = |n: usize| -> Vec<f64> {
        let a = definite(n);
        (0..n * n).map(|i| if i / n >= i % n { a[i] / n as f64 + 1.0 } else { 0.0 }).collect()
    };
    let unit = |n: usize| matrix(n * n, 5).iter().map(|v| v / 4.0).collect::<Vec<_>>();
    let right = || Tensor(vec![n, 3], matrix(n * 3, 6));
    let (t, i) = (T::DTYPE, DType::Int32);
    let (square, sides, rows, batch) = ([2, n, n], [2, n, 3], [2, n], [2]);
    type Case<'a> = (&'a str, Vec<Input>, Vec<(DType, &'a [usize])>);
    let cases: Vec<Case<'_>> = vec![
        (
            "aten::linalg_lu_factor_ex.out",
            vec![two(regular), Flag(true), Flag(false)],
            vec![(t, &square), (i, &rows), (i, &batch)],
        ),
        (
            "aten::linalg_lu.out",
            vec![two(regular), Flag(true)],
            vec![(t, &square), (t, &square), (t, &square)],
        ),
        ("aten::linalg_inv_ex.inverse", vec![two(regular), Flag(false)], vec![(t, &square), (i, &batch)]),
        (
            "aten::_linalg_solve_ex.result",
            vec![two(regular), right(), Flag(true), Flag(false)],
            vec![(t, &sides), (t, &square), (i, &rows), (i, &batch)],
        ),
        (
            "aten::_linalg_slogdet.sign",
            vec![two(regular)],
            vec![(t, &batch), (t, &batch), (t, &square), (i, &rows)],
        ),
        ("aten::_linalg_det.result", vec![two(unit)], vec![(t, &batch), (t, &square), (i, &rows)]),
        (
            "aten::linalg_cholesky_ex.L",
            vec![two(definite), Flag(true), Flag(false)],
            vec![(t, &square), (i, &batch)],
        ),
        ("aten::cholesky.out", vec![two(definite), Flag(false)], vec![(t, &square)]),
        ("aten::cholesky_solve.out", vec![right(), two(lower), Flag(false)], vec![(t, &sides)]),
        ("aten::cholesky_inverse.out", vec![two(lower), Flag(false)], vec![(t, &square)]),
        (
            "aten::linalg_solve_triangular.out",
            vec![two(lower), right(), Flag(false), Flag(true), Flag(false)],
            vec![(t, &sides)],
        ),
        (
            "aten::triangular_solve.X",
            vec![right(), two(lower), Flag(false), Flag(true), Flag(false)],
            vec![(t, &sides), (t, &square)],
        ),
        ("aten::linalg_qr.out", vec![two(unit), Input::Text("reduced")], vec![(t, &square), (t, &square)]),
        ("aten::geqrf.a", vec![two(unit)], vec![(t, &square), (t, &rows)]),
        ("aten::linalg_matrix_exp.out", vec![two(unit)], vec![(t, &square)]),
    ];
    for (operator, inputs, shapes) in cases {
        let want = outputs::<T>(operator, ("reference", Isa::Portable), &inputs, &shapes).unwrap();
        for isa in levels() {
            let found = outputs::<T>(operator, ("blocks", isa), &inputs, &shapes).unwrap();
            check_near(&rounded::<T>(&found), &want, &format!("{operator} {n} {isa:?}"));
        }
    }
}

#[test]
fn operators_agree_with_their_plain_kernels() {
    // Of float32, both what is computed in float64 and what is not.
    check_operators::<f32>(7);
    check_operators::<f32>(37);
    check_operators::<f64>(37);
}

#[test]
fn exponentials_of_what_is_not_finite_are_nan() {
    for bad in [f64::NAN, f64::INFINITY] {
        let n = 37;
        let mut a = vec![0.0; n * n];
        a[5 * n + 5] = bad;
        let inputs = [Input::Tensor(vec![n, n], a)];
        for isa in levels() {
            let shapes = [(DType::Float32, &[n, n][..])];
            let found =
                outputs::<f32>("aten::linalg_matrix_exp.out", ("blocks", isa), &inputs, &shapes).unwrap();
            assert!(found.iter().all(|v| v.is_nan()), "{bad} {isa:?}");
        }
    }
}
