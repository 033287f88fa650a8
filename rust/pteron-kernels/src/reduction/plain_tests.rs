//! Fast reductions and softmax of every dtype on every instruction set, as the plain kernels have them.

use crate::elementwise::operand::{Sink, Source};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use half::{bf16, f16};
use pteron_core::{Bool8, DType, Element, Isa};

/// Outer, reduced and inner extents.
const SHAPES: [[usize; 3]; 7] =
    [[3, 50, 1], [2, 9, 70], [1, 300, 35], [2, 5, 64], [1, 4, 3], [2, 1, 130], [1, 5000, 1]];

/// How an element is made of a number, and which number it is.
type Ways<T> = (fn(f32) -> T, fn(T) -> f64);

/// A call that reduces dimension 1, or keeps it; the arguments behind the dimension.
fn call<T: Element, O: Element>(
    (operator, variant): (&str, &str),
    isa: Isa,
    (shape, x): ([usize; 3], &[T]),
    arguments: Vec<CallArg>,
    out: &[usize],
) -> Option<Vec<O>> {
    let mut args = vec![CallArg::Tensor(HostTensor::new(&shape, x).unwrap())];
    args.extend(arguments);
    let at = args.len();
    args.push(CallArg::Tensor(HostTensor::zeros(O::DTYPE, out).unwrap()));
    let mut call = SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    Some(call.output::<O>(at).unwrap())
}

/// Numbers with NaN, infinities of either sign and a column of nothing else in some shapes.
fn floats<T>([outer, reduced, inner]: [usize; 3], of: impl Fn(f32) -> T) -> Vec<T> {
    let mut x = numbers(outer * reduced * inner, 5);
    for (i, v) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0].into_iter().enumerate() {
        if inner > 30 {
            x[i] = v;
            x[inner * (reduced - 1) + 7 * i % inner] = v;
        }
    }
    if inner > 30 {
        (0..reduced).for_each(|r| x[r * inner + 20] = f32::NEG_INFINITY);
    }
    x.into_iter().map(of).collect()
}

/// Compares results that may differ by `error`, of their size or of one.
fn compare<T: Element>(
    (operator, variant): (&str, &str),
    error: f64,
    (of, wide): Ways<T>,
    arguments: fn() -> Vec<CallArg>,
) {
    for shape in SHAPES {
        let x = floats(shape, of);
        let out = if operator.contains("softmax") { shape.to_vec() } else { vec![shape[0], shape[2]] };
        let run = |variant, isa| call::<T, T>((operator, variant), isa, (shape, &x), arguments(), &out);
        let want = run("reference", Isa::Portable).unwrap();
        for isa in Isa::ALL {
            let Some(got) = run(variant, isa) else { continue };
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let (got, want) = (wide(*got), wide(*want));
                let is_near = got == want || (got - want).abs() <= error * want.abs().max(1.0);
                assert!(
                    is_near || (got.is_nan() && want.is_nan()),
                    "{operator} {} {isa:?} {shape:?} {i}: {got} {want}",
                    T::DTYPE
                );
            }
        }
    }
}

fn halves<T: Source + Sink + Element>(operators: [(&str, &str); 5], error: f64) {
    let ways: Ways<T> = (T::of_number, |v| f64::from(v.number()));
    let [log_sum_exp, norm, sum, softmax, log_softmax] = operators;
    let listed = || vec![CallArg::Ints(vec![1]), CallArg::bool(false)];
    compare(log_sum_exp, error, ways, listed);
    let of_order_two = || vec![CallArg::int(2), CallArg::Ints(vec![1]), CallArg::bool(false), CallArg::None];
    compare(norm, error, ways, of_order_two);
    compare(sum, error, ways, || vec![CallArg::Ints(vec![1]), CallArg::bool(false), CallArg::None]);
    for softmax in [softmax, log_softmax] {
        compare(softmax, error, ways, || vec![CallArg::int(1), CallArg::bool(false)]);
    }
}

#[test]
fn floats_as_the_plain_kernels_have_them() {
    let operators = [
        ("aten::logsumexp.out", "float"),
        ("aten::linalg_vector_norm.out", "other_dtypes"),
        ("aten::sum.IntList_out", "float"),
        ("aten::_softmax.out", "float"),
        ("aten::_log_softmax.out", "float"),
    ];
    halves::<f32>(operators, 4e-6);
    halves::<f16>(operators, 1e-3);
    halves::<bf16>(operators, 8e-3);
}

#[test]
fn doubles_as_the_plain_kernels_have_them() {
    let ways: Ways<f64> = (f64::from, |v| v);
    let listed = || vec![CallArg::Ints(vec![1]), CallArg::bool(false)];
    compare(("aten::logsumexp.out", "other_dtypes"), 1e-14, ways, listed);
    compare(("aten::amax.out", "other_dtypes"), 0.0, ways, listed);
    compare(("aten::amin.out", "other_dtypes"), 0.0, ways, listed);
    for softmax in ["aten::_softmax.out", "aten::_log_softmax.out"] {
        compare((softmax, "float"), 1e-14, ways, || vec![CallArg::int(1), CallArg::bool(false)]);
    }
}

/// any, all and, of bools, amax and amin: all true, all false and mixed stretches.
fn truths<T: Element>(of: fn(u8) -> T) {
    for shape in SHAPES {
        let [outer, reduced, inner] = shape;
        let count = outer * reduced * inner;
        // Columns that are all true, all false, true but for one and false but for one.
        let value = |i: usize| {
            let (column, is_last) = (i % inner + i / (reduced * inner), i / inner % reduced == reduced - 1);
            u8::from(match column % 4 {
                0 => true,
                1 => false,
                2 => !is_last,
                _ => is_last,
            }) * (1 + (i % 2) as u8)
        };
        let x: Vec<T> = (0..count).map(|i| of(value(i))).collect();
        let mut operators = vec![("aten::any.out", "truth"), ("aten::all.out", "truth")];
        if T::DTYPE == DType::Bool {
            operators.extend([("aten::amax.out", "other_dtypes"), ("aten::amin.out", "other_dtypes")]);
        }
        for (operator, variant) in operators {
            let run = |variant, isa| {
                let is_list = operator.contains("::am");
                let dim = if is_list { CallArg::Ints(vec![1]) } else { CallArg::int(1) };
                let arguments = vec![dim, CallArg::bool(false)];
                call::<T, Bool8>((operator, variant), isa, (shape, &x), arguments, &[outer, inner])
            };
            let want: Vec<u8> = run("reference", Isa::Portable).unwrap().iter().map(|v| v.0).collect();
            for isa in Isa::ALL {
                let Some(got) = run(variant, isa) else { continue };
                let got: Vec<u8> = got.iter().map(|v| v.0).collect();
                assert_eq!(got, want, "{operator} {} {isa:?} {shape:?}", T::DTYPE);
            }
        }
    }
}

#[test]
fn truth_of_every_dtype() {
    // Bytes of bools other than 0 and 1 count as true.
    truths::<Bool8>(Bool8);
    truths::<u8>(|v| v);
    truths::<i8>(|v| -(v as i8));
    truths::<i16>(|v| i16::from(v) << 8);
    truths::<i32>(|v| i32::from(v) << 16);
    truths::<i64>(|v| i64::from(v) << 32);
    // Both zeros are false, subnormal numbers and NaN are true.
    truths::<f16>(|v| f16::from_f32(if v == 2 { f32::NAN } else { f32::from(v) * -1e-7 }));
    truths::<bf16>(|v| bf16::from_f32(if v == 2 { f32::NAN } else { f32::from(v) * -1e-7 }));
    truths::<f32>(|v| if v == 2 { f32::NAN } else { f32::from(v) * -1e-40 });
    truths::<f64>(|v| if v == 2 { f64::NAN } else { f64::from(v) * -1e-310 });
}

#[test]
fn a_dimension_listed_twice_is_left_to_the_plain_kernel() {
    for (op, variant) in [("aten::logsumexp.out", "float"), ("aten::amax.out", "float")] {
        let args = vec![
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[3, 4, 5]).unwrap()),
            CallArg::Ints(vec![0, 0]),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[4, 5]).unwrap()),
        ];
        let cpu = profile(Isa::Portable).unwrap();
        assert!(SingleCall::new(prepare_of(op, variant), &cpu, args).unwrap().is_none(), "{op}");
    }
}
