//! Fast kernels of single elements against the plain kernels of their operators, on edge values and on odd numbers of them.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::prepare_of;
use half::{bf16, f16};
use pteron_core::{Bool8, Element, Isa};

/// Numbers that are compared, NaN as one.
trait Same: Element {
    fn key(self) -> i64;
}
macro_rules! same {
    ($($t:ty: |$v:ident| $key:expr;)*) => { $(
        impl Same for $t {
            fn key(self) -> i64 {
                let $v = self;
                let key = $key;
                key as i64
            }
        }
    )* };
}
same! {
    Bool8: |v| v.0;
    f16: |v| if v.is_nan() { u16::MAX } else { v.to_bits() };
    bf16: |v| if v.is_nan() { u16::MAX } else { v.to_bits() };
    f32: |v| if v.is_nan() { u32::MAX } else { v.to_bits() };
    f64: |v| if v.is_nan() { u64::MAX } else { v.to_bits() };
}

fn call<T: Element, U: Element>(
    (operator, variant): (&str, &str),
    isa: Isa,
    operands: &[(&[usize], &[T])],
) -> Option<Vec<U>> {
    let tensor = |(shape, x): &(&[usize], &[T])| CallArg::Tensor(HostTensor::new(shape, x).unwrap());
    let mut args: Vec<CallArg> = operands.iter().map(tensor).collect();
    args.push(CallArg::Tensor(HostTensor::zeros(U::DTYPE, operands[0].0).unwrap()));
    let out = args.len() - 1;
    let mut call =
        SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().expect("taken");
    call.call().unwrap();
    Some(call.output::<U>(out).unwrap())
}

/// Every number of `edges` with every other: as many tensors, rows that repeat and single numbers.
fn check<T: Element + std::fmt::Debug, U: Same>(operator: &str, variant: &str, edges: &[T], count: usize) {
    let n = edges.len();
    let a: Vec<T> = (0..n * n).map(|i| edges[i / n]).collect();
    let b: Vec<T> = (0..n * n).map(|i| edges[i % n]).collect();
    let (all, row, one) = ([n, n], [n], []);
    let mut calls: Vec<Vec<(&[usize], &[T])>> = vec![vec![(&all, &a)]];
    if count == 2 {
        calls = vec![
            vec![(&all, &a), (&all, &b)],
            vec![(&all, &b), (&row, edges)],
            vec![(&all, &b), (&one, &edges[1..2])],
        ];
    }
    for operands in calls {
        let want: Vec<U> = call((operator, "reference"), Isa::Portable, &operands).unwrap();
        for isa in Isa::ALL {
            let Some(got) = call::<T, U>((operator, variant), isa, &operands) else { continue };
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_eq!(got.key(), want.key(), "{operator} {isa:?} {:?}, element {i}", T::DTYPE);
            }
        }
    }
}

const DOUBLES: [f64; 15] = [
    f64::NAN,
    0.0,
    -0.0,
    1.0,
    -1.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    5e-324,
    -5e-324,
    f64::MAX,
    f64::MIN,
    f64::MIN_POSITIVE,
    3.0,
    1e-5,
    -6e4,
];

/// The same as f32, with its own smallest and largest numbers.
fn singles() -> Vec<f32> {
    let own = [f32::from_bits(1), -f32::from_bits(1), f32::MAX, f32::MIN, f32::MIN_POSITIVE];
    DOUBLES.iter().map(|v| *v as f32).chain(own).collect()
}

#[test]
fn truth_values_and_signs() {
    let bools = [0, 1, 2, 255, 0, 1, 128].map(Bool8);
    let ints = [0, 1, -1, i32::MAX, i32::MIN, 256, 65_536];
    let longs = [0, 1, -1, i64::MAX, i64::MIN, 1 << 32, 1 << 8];
    for name in ["eq", "ne", "lt", "le", "gt", "ge"] {
        check::<_, Bool8>(&format!("aten::{name}.Tensor_out"), "bool", &bools, 2);
    }
    for name in ["and", "or", "xor"] {
        let operator = format!("aten::logical_{name}.out");
        check::<_, Bool8>(&operator, "bool", &bools, 2);
        check::<_, Bool8>(&operator, "vectorised", &ints, 2);
        check::<_, Bool8>(&operator, "vectorised", &longs, 2);
        check::<_, Bool8>(&operator, "vectorised", &DOUBLES, 2);
    }
    for operator in ["aten::logical_not.out", "aten::signbit.out"] {
        check::<_, Bool8>(operator, "vectorised", &ints, 1);
        check::<_, Bool8>(operator, "vectorised", &longs, 1);
        check::<_, Bool8>(operator, "vectorised", &DOUBLES, 1);
        check::<_, Bool8>(operator, "vectorised", &[0u8, 1, 128, 255, 7], 1);
    }
}

#[test]
fn floats_of_sixteen_bits() {
    let (f16s, bf16s): (Vec<f16>, Vec<bf16>) =
        singles().iter().map(|v| (f16::from_f32(*v), bf16::from_f32(*v))).unzip();
    let f16s = [f16s, vec![f16::from_bits(1), f16::MAX, f16::from_f32(-3.0), f16::from_f32(4.0)]].concat();
    for (name, count) in [("neg", 1), ("abs", 1), ("copysign", 2)] {
        let operator = format!("aten::{name}.out");
        check::<_, f16>(&operator, "sixteen_bits", &f16s, count);
        check::<_, bf16>(&operator, "sixteen_bits", &bf16s, count);
    }
    check::<_, f16>("aten::hypot.out", "float", &f16s, 2);
    check::<_, bf16>("aten::hypot.out", "float", &bf16s, 2);
}

#[test]
fn neighbours_and_hypotenuses() {
    check::<_, f64>("aten::nextafter.out", "vectorised", &DOUBLES, 2);
    check::<_, f32>("aten::nextafter.out", "float32", &singles(), 2);
    check::<_, f32>("aten::hypot.out", "float", &singles(), 2);
}
