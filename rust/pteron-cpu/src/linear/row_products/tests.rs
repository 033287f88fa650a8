//! Products of rows in every dtype against sums in f64 and wrapping sums.

use super::*;
use pteron_core::Isa;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::numbers;

fn tensor<T: Element>(shape: &[usize], values: &[T]) -> CallArg {
    CallArg::Tensor(HostTensor::new(shape, values).unwrap())
}

/// `mv` of `[m, k]`, or `dot` for no rows; the chunks backwards.
fn run<T: Element>(isa: Isa, m: Option<usize>, a: &[T], b: &[T]) -> Option<Vec<T>> {
    let rows: Vec<usize> = m.into_iter().collect();
    let left = [&rows[..], &[b.len()]].concat();
    let out = CallArg::Tensor(HostTensor::zeros(T::DTYPE, &rows).unwrap());
    let args = vec![tensor(&left, a), tensor(&[b.len()], b), out];
    let kernel = KERNELS[usize::from(m.is_none())].prepare;
    let mut call = SingleCall::new(kernel, &profile(isa)?, args).unwrap().unwrap();
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    Some(call.output::<T>(OUT).unwrap())
}

const SHAPES: [(Option<usize>, usize); 11] = [
    (Some(1), 1),
    (Some(7), 33),
    (Some(4), 64),
    (Some(5), 0),
    (Some(0), 3),
    (Some(261), 130),
    (None, 0),
    (None, 1),
    (None, 100),
    (None, PART),
    (None, 2 * PART + 3),
];

fn floats<T: Element>(of: fn(f32) -> T, wide: fn(T) -> f64, [relative, of_size]: [f64; 2]) {
    for isa in Isa::ALL {
        for (m, k) in SHAPES {
            if m.is_some() && T::DTYPE == DType::Float32 {
                continue;
            }
            let values = |n: usize, seed| numbers(n, seed).into_iter().map(of).collect::<Vec<T>>();
            let (a, b) = (values(m.unwrap_or(1) * k, 3), values(k, 4));
            let Some(got) = run(isa, m, &a, &b) else { continue };
            assert_eq!(got.len(), m.unwrap_or(1));
            for (i, y) in got.iter().enumerate() {
                let products = (0..k).map(|p| wide(a[i * k + p]) * wide(b[p]));
                let (want, size) = products.fold((0.0, 0.0), |(t, u), v| (t + v, u + v.abs()));
                let limit = relative * f64::abs(want) + of_size * size;
                assert!((wide(*y) - want).abs() <= limit, "{isa:?} {} {m:?} {k}: {want}", T::DTYPE.name());
            }
        }
    }
}

#[test]
fn floats_agree_with_sums_in_f64() {
    floats::<f32>(|v| v, f64::from, [0.0, 1e-6]);
    floats::<f64>(f64::from, |v| v, [0.0, 1e-14]);
    floats::<f16>(f16::from_f32, f16::to_f64, [1.0 / 2048.0, 1e-6]);
    floats::<bf16>(bf16::from_f32, bf16::to_f64, [1.0 / 256.0, 1e-6]);
}

fn whole<T: Element + PartialEq + std::fmt::Debug>(of: fn(i64) -> T, wide: fn(T) -> i64) {
    for isa in Isa::ALL {
        for (m, k) in SHAPES {
            let values = |n: usize, by: i64| {
                (0..n as i64).map(|i| of(i.wrapping_mul(by).wrapping_mul(0x1e37_79b9_7f4a_7c15))).collect()
            };
            let (a, b): (Vec<T>, Vec<T>) = (values(m.unwrap_or(1) * k, 3), values(k, 5));
            let Some(got) = run(isa, m, &a, &b) else { continue };
            for (i, y) in got.iter().enumerate() {
                let products = (0..k).map(|p| wide(a[i * k + p]).wrapping_mul(wide(b[p])));
                assert_eq!(*y, of(products.fold(0, i64::wrapping_add)), "{isa:?} {m:?} {k}");
            }
        }
    }
}

#[test]
fn integers_wrap() {
    whole::<i32>(|v| v as i32, i64::from);
    whole::<i64>(|v| v, |v| v);
}

/// Not a number and infinities in the vectors and in what is left behind them; sixteen-bit sums that leave their range.
#[test]
fn odd_values_reach_the_result() {
    for isa in Isa::ALL {
        for at in [0, 17, 66] {
            let ones = [f16::ONE; 67];
            let mut odd = ones;
            odd[at] = f16::NAN;
            let Some(got) = run(isa, None, &odd, &ones) else { continue };
            assert!(got[0].is_nan(), "{isa:?} {at}");
            odd[at] = f16::INFINITY;
            assert_eq!(run(isa, Some(1), &odd, &ones).unwrap(), [f16::INFINITY], "{isa:?} {at}");
        }
        let large = [f16::MAX; 2];
        let Some(got) = run(isa, None, &large, &[f16::ONE, f16::NEG_ONE]) else { continue };
        assert_eq!(got, [f16::ZERO]);
        assert_eq!(run(isa, None, &large, &[f16::ONE; 2]).unwrap(), [f16::INFINITY]);
    }
}
