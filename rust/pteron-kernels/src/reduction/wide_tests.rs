//! Rows that are cut into parts and columns that are many, on every instruction set, against the plain kernels.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{Arg, Tensor, call, numbers, prepare_of};
use half::{bf16, f16};
use pteron_core::{Bool8, DType, Element, Isa};

/// An element that tests make of a number and compare as one.
pub(super) trait Sample: Element {
    fn of(v: f32) -> Self;
    fn wide(self) -> f64;
    /// Relative size of what rounding may change, the number of elements aside.
    const ROUNDING: f64;
}

macro_rules! samples {
    ($($t:ty, $rounding:literal, |$v:ident| $of:expr, |$w:ident| $wide:expr;)*) => { $(
        impl Sample for $t {
            fn of($v: f32) -> $t {
                $of
            }
            fn wide(self) -> f64 {
                let $w = self;
                $wide
            }
            const ROUNDING: f64 = $rounding;
        }
    )* };
}
samples! {
    f32, 1e-6, |v| v, |v| v.into();
    f64, 1e-13, |v| v.into(), |v| v;
    f16, 1e-3, |v| f16::from_f32(v), |v| v.to_f64();
    bf16, 8e-3, |v| bf16::from_f32(v), |v| v.to_f64();
    i32, 0.0, |v| (v * 100.0) as i32, |v| v.into();
    i64, 0.0, |v| (v * 100.0) as i64, |v| v as f64;
    i8, 0.0, |v| (v * 10.0) as i8, |v| v.into();
    Bool8, 0.0, |v| Bool8::from(v > 3.0), |v| u8::from(v.get()).into();
}

/// Results of the fast kernel `variant`, its phases, and results of the plain kernel.
pub(super) struct Both<O> {
    pub fast: Vec<Vec<O>>,
    pub plain: Vec<Vec<O>>,
    pub phases: u32,
}

/// `operator` on `x` of `shape`, more arguments, and outputs of `outputs` with the extents `out`.
pub(super) fn both<T: Element, O: Element>(
    isa: Isa,
    (operator, variant): (&str, &str),
    (shape, x): (&[usize], &[T]),
    more: &[Arg],
    (outputs, out): (usize, &[usize]),
) -> Option<Both<O>> {
    let mut args = vec![CallArg::Tensor(HostTensor::new(shape, x).unwrap())];
    args.extend(more.iter().map(|arg| match arg {
        Arg::Int(v) => CallArg::int(*v),
        Arg::Double(v) => CallArg::double(*v),
        Arg::Bool(v) => CallArg::bool(*v),
        Arg::IntList(v) => CallArg::Ints(v.clone()),
        _ => CallArg::None,
    }));
    let first = args.len();
    args.extend((0..outputs).map(|_| CallArg::Tensor(HostTensor::zeros(O::DTYPE, out).unwrap())));
    let mut fast =
        SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().expect("taken");
    let grid = fast.bind().unwrap();
    fast.run(grid, true).unwrap();
    let mut args = vec![Arg::Tensor(Tensor::of(shape, x))];
    args.extend_from_slice(more);
    args.extend((0..outputs).map(|_| Arg::Tensor(Tensor::output(O::DTYPE, out))));
    let plain = call(operator, &args).unwrap();
    Some(Both {
        fast: (first..first + outputs).map(|i| fast.output(i).unwrap()).collect(),
        plain: (first..first + outputs).map(|i| result(&plain, i)).collect(),
        phases: grid.phase_count(),
    })
}

fn result<O: Element>(args: &[Arg], i: usize) -> Vec<O> {
    let Some(Arg::Tensor(t)) = args.get(i) else { panic!("no tensor") };
    t.values()
}

/// Are they the same but for rounding, that of numbers as large as `size`?
pub(super) fn is_near<O: Sample>(a: O, b: O, size: f64) -> bool {
    let (a, b) = (a.wide(), b.wide());
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= O::ROUNDING * size.max(b.abs())
}

fn samples<T: Sample>(n: usize) -> Vec<T> {
    numbers(n, 5).into_iter().map(T::of).collect()
}

/// The arguments behind the input, where dimension `dim` is reduced.
fn arguments(operator: &str, dim: i64) -> Vec<Arg> {
    let list = Arg::IntList(vec![dim]);
    match operator {
        "aten::prod.int_out" => vec![Arg::Int(dim), Arg::Bool(false), Arg::None],
        "aten::linalg_vector_norm.out" => vec![Arg::Int(2), list, Arg::Bool(false), Arg::None],
        "aten::sum.IntList_out" | "aten::mean.out" => vec![list, Arg::Bool(false), Arg::None],
        _ => vec![list, Arg::Bool(false)],
    }
}

/// `size`: what sums of the elements are made of, for the rounding of results that may cancel.
fn compare<T: Sample, O: Sample>(kernel: (&str, &str), shape: [usize; 2], dim: usize, x: &[T], size: f64) {
    for isa in Isa::ALL {
        let arguments = arguments(kernel.0, dim as i64);
        let Some(results) = both::<T, O>(isa, kernel, (&shape, x), &arguments, (1, &[shape[1 - dim]])) else {
            continue;
        };
        let is_cut = dim == 1 && shape[1] > 64 << 10;
        assert_eq!(results.phases, if is_cut { 2 } else { 1 }, "{kernel:?}");
        for (a, b) in results.fast[0].iter().zip(&results.plain[0]) {
            assert!(is_near(*a, *b, size), "{isa:?} {kernel:?} {shape:?}: {} {}", a.wide(), b.wide());
        }
    }
}

fn everything(shape: [usize; 2], dim: usize) {
    let n = shape[0] * shape[1];
    let long = shape[dim] as f64;
    fn floats<T: Sample>(variant: &str, shape: [usize; 2], dim: usize, x: &mut [T], long: f64) {
        let kernel = |operator: &'static str| (operator, variant);
        compare::<T, T>(kernel("aten::mean.out"), shape, dim, x, 4.0);
        compare::<T, T>(kernel("aten::logsumexp.out"), shape, dim, x, 16.0);
        compare::<T, T>(("aten::linalg_vector_norm.out", "other_dtypes"), shape, dim, x, 0.0);
        compare::<T, T>(kernel("aten::sum.IntList_out"), shape, dim, x, 4.0 * long);
        compare::<T, T>(kernel("aten::amax.out"), shape, dim, x, 0.0);
        compare::<T, T>(kernel("aten::amin.out"), shape, dim, x, 0.0);
        // The last element of one result, of another an infinite one.
        x[x.len() - 1] = T::of(f32::NAN);
        x[0] = T::of(f32::INFINITY);
        for operator in ["aten::amax.out", "aten::amin.out", "aten::sum.IntList_out", "aten::logsumexp.out"] {
            compare::<T, T>(kernel(operator), shape, dim, x, 4.0 * long);
        }
    }
    floats::<f32>("float", shape, dim, &mut samples(n), long);
    floats::<f16>("float", shape, dim, &mut samples(n), long);
    floats::<bf16>("float", shape, dim, &mut samples(n), long);
    floats::<f64>("other_dtypes", shape, dim, &mut samples(n), long);
    let other = |operator: &'static str| (operator, "other_dtypes");
    compare::<i32, i32>(other("aten::amax.out"), shape, dim, &samples(n), 0.0);
    compare::<i64, i64>(other("aten::amin.out"), shape, dim, &samples(n), 0.0);
    compare::<i8, i64>(other("aten::sum.IntList_out"), shape, dim, &samples(n), 0.0);
    compare::<i32, i64>(other("aten::prod.int_out"), shape, dim, &samples(n), 0.0);
    // Products of numbers near one, which stay in range.
    let near: Vec<f32> = numbers(n, 7).iter().map(|v| 1.0 + v / 1000.0).collect();
    let doubles: Vec<f64> = near.iter().map(|v| f64::from(*v)).collect();
    let product = "aten::prod.int_out";
    for isa in Isa::ALL {
        let out = (1, &[shape[1 - dim]][..]);
        let more = arguments(product, dim as i64);
        let Some(single) = both::<f32, f32>(isa, (product, "float"), (&shape, &near), &more, out) else {
            continue;
        };
        for (a, b) in single.fast[0].iter().zip(&single.plain[0]) {
            assert!((a / b - 1.0).abs() < 1e-3, "{isa:?} {shape:?}: {a} {b}");
        }
        let double = both::<f64, f64>(isa, other(product), (&shape, &doubles), &more, out).unwrap();
        for (a, b) in double.fast[0].iter().zip(&double.plain[0]) {
            assert!((a / b - 1.0).abs() < 1e-10, "{isa:?} {shape:?}: {a} {b}");
        }
    }
}

#[test]
fn long_rows() {
    everything([2, 65_539], 1);
}

#[test]
fn many_columns() {
    everything([261, 100], 0);
    // Two units, of which the second is narrow, and rows that are no multiple of those that are read together.
    everything([7, 1100], 0);
}

#[test]
fn norms_out_of_the_range_of_squares() {
    for (v, n) in
        [(1e-30f32, 300), (3e30, 300), (0.0, 300), (f32::INFINITY, 3), (f32::NAN, 3), (1e-22, 70_000)]
    {
        let x = vec![bf16::from_f32(v); n];
        compare::<bf16, bf16>(("aten::linalg_vector_norm.out", "other_dtypes"), [1, n], 1, &x, 0.0);
    }
}

#[test]
fn one_element_decides_a_long_search() {
    let n = (256 << 10) * 2 + 5;
    for (operator, is_any) in [("aten::any.all_out", true), ("aten::all.all_out", false)] {
        for at in [None, Some(0), Some(n - 1)] {
            let mut x = vec![Bool8::from(!is_any); n];
            if let Some(at) = at {
                x[at] = Bool8::from(is_any);
            }
            let results =
                both::<Bool8, Bool8>(Isa::Portable, (operator, "truth"), (&[n], &x), &[], (1, &[])).unwrap();
            assert_eq!((results.phases, &results.fast), (2, &results.plain), "{operator} {at:?}");
            assert_eq!(results.fast[0][0].get(), is_any == at.is_some());
        }
    }
}

#[test]
fn parts_follow_the_extents_of_the_call() {
    let x = samples::<f32>(3 * 140_000);
    let args = vec![
        CallArg::Tensor(HostTensor::new(&[3, 140_000], &x).unwrap()),
        CallArg::Ints(vec![1]),
        CallArg::bool(false),
        CallArg::Tensor(HostTensor::zeros(DType::Float32, &[3]).unwrap()),
    ];
    let cpu = profile(Isa::Portable).unwrap();
    let mut call = SingleCall::new(prepare_of("aten::amax.out", "float"), &cpu, args).unwrap().unwrap();
    for (shape, chunks) in [([2, 140_000], 6), ([1, 65_537], 2), ([3, 65_536], 3), ([0, 140_000], 0)] {
        call.resize(0, &shape).unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, false).unwrap();
        assert_eq!(grid.chunk_count(0), chunks, "{shape:?}");
        for (row, y) in call.output::<f32>(3).unwrap().iter().enumerate() {
            let row = &x[row * shape[1]..][..shape[1]];
            assert_eq!(*y, row.iter().copied().fold(f32::MIN, f32::max), "{shape:?}");
        }
    }
}
