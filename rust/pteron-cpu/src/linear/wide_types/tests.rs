//! Products in every wide type against sums in f64.

use super::*;
use crate::elementwise::tests::numbers;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::Isa;

#[test]
fn products_of_doubles_and_halves() {
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
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
