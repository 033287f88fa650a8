//! Products in every wide type against sums in f64.

use super::*;
use pteron_core::{Element, Isa};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::numbers;

#[test]
fn products_of_doubles_and_halves() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for [m, n, k] in [[1, 1, 1], [5, 33, 7], [130, 40, 600], [4, 32, 0], [3, 0, 2]] {
            let a: Vec<f64> = numbers(m * k, 3).into_iter().map(f64::from).collect();
            let b: Vec<f64> = numbers(n * k, 4).into_iter().map(f64::from).collect();
            let c: Vec<f64> = numbers(n, 5).into_iter().map(f64::from).collect();
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[m, k], &a).unwrap()),
                CallArg::Tensor(HostTensor::new(&[n, k], &b).unwrap()),
                CallArg::Tensor(HostTensor::new(&[n], &c).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float64, &[m, n]).unwrap()),
            ];
            let mut call = SingleCall::new(KERNELS[4].prepare, &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            let at = |i: usize| (0..k).map(move |p| (i / n * k + p, i % n * k + p));
            for (i, y) in call.output::<f64>(3).unwrap().iter().enumerate() {
                let want = at(i).map(|(x, y)| a[x] * b[y]).sum::<f64>() + c[i % n];
                assert!((y - want).abs() <= 1e-12 * (1.0 + k as f64), "{isa:?} {m} {n} {k}: {y} {want}");
            }
            let small = |v: &[f64]| v.iter().map(|v| bf16::from_f64(*v)).collect::<Vec<_>>();
            let (a, b) = (small(&a), small(&b));
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[m, k], &a).unwrap()),
                CallArg::Tensor(HostTensor::new(&[n, k], &b).unwrap()),
                CallArg::None,
                CallArg::Tensor(HostTensor::zeros(DType::BFloat16, &[m, n]).unwrap()),
            ];
            let mut call = SingleCall::new(KERNELS[4].prepare, &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            for (i, y) in call.output::<bf16>(3).unwrap().iter().enumerate() {
                let want: f64 = at(i).map(|(x, y)| a[x].to_f64() * b[y].to_f64()).sum();
                let size: f64 = at(i).map(|(x, y)| (a[x].to_f64() * b[y].to_f64()).abs()).sum();
                let limit = want.abs() / 250.0 + size * 1e-6;
                assert!((y.to_f64() - want).abs() <= limit, "{isa:?} {m} {n} {k}: {y} {want}");
            }
        }
    }
}

/// `addmm` with factors 2 and 3 of numbers that wrap, in `T`.
fn whole<T: Element>(isa: Isa, [m, n, k]: [usize; 3], number: fn(i64) -> T) -> Option<Vec<T>> {
    let values =
        |count: usize, by: i64| -> Vec<T> { (0..count as i64).map(|i| number(i * by % 251 - 60)).collect() };
    let args = vec![
        CallArg::Tensor(HostTensor::new(&[n], &values(n, 17)).unwrap()),
        CallArg::Tensor(HostTensor::new(&[m, k], &values(m * k, 31)).unwrap()),
        CallArg::Tensor(HostTensor::new(&[k, n], &values(k * n, 43)).unwrap()),
        CallArg::int(3),
        CallArg::int(2),
        CallArg::Tensor(HostTensor::zeros(T::DTYPE, &[m, n]).unwrap()),
    ];
    let mut call = SingleCall::new(KERNELS[2].prepare, &profile(isa)?, args).unwrap().unwrap();
    call.call().unwrap();
    Some(call.output::<T>(5).unwrap())
}

#[test]
fn integers_wrap_at_their_width() {
    for isa in Isa::ALL {
        for [m, n, k] in [[1, 1, 1], [7, 33, 9], [200, 40, 600], [3, 5, 0]] {
            let at = |i: usize, by: i64| i as i64 * by % 251 - 60;
            let want = |i: usize| {
                let (row, column) = (i / n, i % n);
                let sum: i64 = (0..k).map(|p| at(row * k + p, 31) * at(p * n + column, 43)).sum();
                at(column, 17) * 3 + sum * 2
            };
            let Some(long) = whole::<i64>(isa, [m, n, k], |v| v << 40) else { continue };
            for (i, y) in long.iter().enumerate() {
                let own: i64 = (0..k)
                    .map(|p| (at(i / n * k + p, 31) << 40).wrapping_mul(at(p * n + i % n, 43) << 40))
                    .fold(0, i64::wrapping_add);
                let all = (at(i % n, 17) << 40).wrapping_mul(3).wrapping_add(own.wrapping_mul(2));
                assert_eq!(*y, all, "{isa:?} {m} {n} {k}");
            }
            let (int, short) = (whole(isa, [m, n, k], |v| v as i32), whole(isa, [m, n, k], |v| v as i16));
            let byte = whole(isa, [m, n, k], |v| v as i8);
            let unsigned = whole(isa, [m, n, k], |v| v as u8);
            for i in 0..m * n {
                assert_eq!(int.as_ref().unwrap()[i], want(i) as i32, "{isa:?} {m} {n} {k}");
                assert_eq!(short.as_ref().unwrap()[i], want(i) as i16);
                // The values themselves wrap at eight bits, which the low bits of the result do not see.
                assert_eq!(byte.as_ref().unwrap()[i], want(i) as i8);
                assert_eq!(unsigned.as_ref().unwrap()[i], want(i) as u8);
            }
        }
    }
}
