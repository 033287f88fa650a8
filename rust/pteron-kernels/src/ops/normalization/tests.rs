//! Norms on every instruction set against f64 arithmetic.

use super::rms_norm::{self, RmsNorm};
use super::{batch_norm, group_norm, layer_norm};
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::numbers;
use half::{bf16, f16};
use pteron_core::{DType, DimOrder, Element, Isa, kernel::PrepareFn};

fn tensor(shape: &[usize], v: &[f32]) -> CallArg {
    CallArg::Tensor(HostTensor::new(shape, v).unwrap())
}
fn zero(shape: &[usize]) -> CallArg {
    CallArg::Tensor(HostTensor::zeros(DType::Float32, shape).unwrap())
}
fn optional(is_there: bool, shape: &[usize], v: &[f32]) -> CallArg {
    if is_there { tensor(shape, v) } else { CallArg::None }
}

fn run(prepare: PrepareFn, isa: Isa, args: Vec<CallArg>) -> Option<SingleCall> {
    let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap().unwrap();
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    Some(call)
}

fn reference_moments(x: &[f32]) -> (f64, f64) {
    let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
    let var = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / x.len() as f64;
    (mean, 1.0 / (var + 1e-5).sqrt())
}

#[track_caller]
fn near(got: f32, want: f64) {
    assert!((f64::from(got) - want).abs() <= 3e-6 * (1.0 + want.abs()), "{got} {want}");
}

#[test]
fn layer_norm_rows_with_and_without_affine() {
    for isa in Isa::ALL {
        for (rows, n) in [(1, 1), (3, 7), (200, 384), (5, 4099), (2, 16), (0, 8)] {
            for has_affine in [true, false] {
                let x: Vec<f32> = numbers(rows * n, 1).iter().map(|v| v + 3.0).collect();
                let (w, b) = (numbers(n, 2), numbers(n, 3));
                let args = vec![
                    tensor(&[rows, n], &x),
                    CallArg::Ints(vec![n as i64]),
                    optional(has_affine, &[n], &w),
                    optional(has_affine, &[n], &b),
                    CallArg::double(1e-5),
                    zero(&[rows, n]),
                    zero(&[rows, 1]),
                    zero(&[rows, 1]),
                ];
                let Some(call) = run(layer_norm::prepare, isa, args) else { continue };
                let (y, means, rstds) = (
                    call.output::<f32>(5).unwrap(),
                    call.output::<f32>(6).unwrap(),
                    call.output::<f32>(7).unwrap(),
                );
                for r in 0..rows {
                    let row = &x[r * n..(r + 1) * n];
                    let (mean, rstd) = reference_moments(row);
                    near(means[r], mean);
                    assert!((f64::from(rstds[r]) / rstd - 1.0).abs() < 1e-5);
                    for i in 0..n {
                        let (w, b) = if has_affine { (w[i], b[i]) } else { (1.0, 0.0) };
                        near(y[r * n + i], (f64::from(row[i]) - mean) * rstd * f64::from(w) + f64::from(b));
                    }
                }
            }
        }
    }
}

#[test]
fn layer_norm_refuses_shapes_that_do_not_fit() {
    let args = vec![
        tensor(&[2, 3], &[0.0; 6]),
        CallArg::Ints(vec![4]),
        CallArg::None,
        CallArg::None,
        CallArg::double(1e-5),
        zero(&[2, 3]),
        zero(&[2, 1]),
        zero(&[2, 1]),
    ];
    let cpu = profile(Isa::Portable).unwrap();
    let mut call = SingleCall::new(layer_norm::prepare, &cpu, args).unwrap().unwrap();
    assert!(call.bind().unwrap_err().to_string().contains("normalized_shape"));
}

#[test]
fn batch_norm_in_both_memory_orders() {
    let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    for isa in Isa::ALL {
        for [n, c, h, w] in [[2, 3, 4, 5], [1, 40, 7, 7], [2, 1, 1, 1], [0, 3, 2, 2], [1, 20, 56, 56]] {
            for (is_last, has_affine) in [(false, true), (true, true), (true, false), (false, false)] {
                let numel = n * c * h * w;
                let x = numbers(numel, 1);
                let (weight, bias, mean) = (numbers(c, 2), numbers(c, 3), numbers(c, 4));
                let var: Vec<f32> = numbers(c, 5).iter().map(|v| v.abs() + 0.1).collect();
                let order = if is_last { nhwc } else { DimOrder::contiguous(4) };
                let args = vec![
                    CallArg::Tensor(HostTensor::in_order(&[n, c, h, w], order, &x).unwrap()),
                    optional(has_affine, &[c], &weight),
                    optional(has_affine, &[c], &bias),
                    tensor(&[c], &mean),
                    tensor(&[c], &var),
                    CallArg::double(0.1),
                    CallArg::double(1e-5),
                    CallArg::SameBytesAs(0),
                    zero(&[0]),
                    zero(&[0]),
                ];
                let Some(call) = run(batch_norm::prepare, isa, args) else { continue };
                for (i, y) in call.output::<f32>(7).unwrap().into_iter().enumerate() {
                    let k = if is_last { i % c } else { i / (h * w) % c };
                    let rstd = 1.0 / (f64::from(var[k]) + 1e-5).sqrt();
                    let (g, b) = if has_affine { (weight[k], bias[k]) } else { (1.0, 0.0) };
                    let centered = f64::from(x[i]) - f64::from(mean[k]);
                    let want = centered * rstd * f64::from(g) + f64::from(b);
                    let size = (f64::from(mean[k]) * rstd * f64::from(g)).abs();
                    assert!(
                        (f64::from(y) - want).abs() < 2e-6 * (1.0 + want.abs() + size),
                        "{isa:?} {y} {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn group_norm_per_image_and_group() {
    for isa in Isa::ALL {
        for ([n, c, pixels], groups) in [([2, 6, 5], 3), ([1, 32, 49], 8), ([3, 4, 1], 1)] {
            let x = numbers(n * c * pixels, 1);
            let (weight, bias) = (numbers(c, 2), numbers(c, 3));
            let args = vec![
                tensor(&[n, c, pixels], &x),
                tensor(&[c], &weight),
                tensor(&[c], &bias),
                CallArg::int(n as i64),
                CallArg::int(c as i64),
                CallArg::int(pixels as i64),
                CallArg::int(groups as i64),
                CallArg::double(1e-5),
                zero(&[n, c, pixels]),
                zero(&[n, groups]),
                zero(&[n, groups]),
            ];
            let Some(call) = run(group_norm::prepare, isa, args) else { continue };
            let y = call.output::<f32>(8).unwrap();
            let per_group = c / groups * pixels;
            for row in 0..n * groups {
                let (mean, rstd) = reference_moments(&x[row * per_group..(row + 1) * per_group]);
                near(call.output::<f32>(9).unwrap()[row], mean);
                for i in row * per_group..(row + 1) * per_group {
                    let k = i / pixels % c;
                    let want = (f64::from(x[i]) - mean) * rstd * f64::from(weight[k]) + f64::from(bias[k]);
                    near(y[i], want);
                }
            }
        }
    }
}

/// `y` of rows of `n` elements, with weights of type `W`.
fn rms<T: Element + From<Half>, W: Element + From<Half>>(
    isa: Isa,
    norm: RmsNorm,
    x: &[f32],
    w: &[f32],
) -> Option<Vec<T>> {
    let n = w.len();
    let rows = x.len() / n;
    let of = |v: &[f32]| v.iter().map(|v| T::from(Half(*v))).collect::<Vec<T>>();
    let mut args = vec![CallArg::Tensor(HostTensor::new(&[rows, n], &of(x)).unwrap())];
    if norm.has_weight {
        let w: Vec<W> = w.iter().map(|v| W::from(Half(*v))).collect();
        args.push(CallArg::Tensor(HostTensor::new(&[n], &w).unwrap()));
    }
    args.push(CallArg::Tensor(HostTensor::zeros(T::DTYPE, &[rows, n]).unwrap()));
    let out = args.len() - 1;
    let mut call =
        SingleCall::of(|ctx| rms_norm::prepare(ctx, &norm), &profile(isa)?, args).unwrap().unwrap();
    call.call().unwrap();
    Some(call.output::<T>(out).unwrap())
}

/// A number that becomes an element of a test.
struct Half(f32);
impl From<Half> for f32 {
    fn from(v: Half) -> f32 {
        v.0
    }
}
impl From<Half> for bf16 {
    fn from(v: Half) -> bf16 {
        bf16::from_f32(v.0)
    }
}
impl From<Half> for f16 {
    fn from(v: Half) -> f16 {
        f16::from_f32(v.0)
    }
}

#[test]
fn rms_norm_rows_of_every_type() {
    for isa in Isa::ALL {
        for (rows, n) in [(1, 1), (3, 7), (200, 576), (2, 4099), (0, 8)] {
            let (x, w) = (numbers(rows * n, 1), numbers(n, 2));
            for (has_weight, rounds) in [(false, false), (true, false), (true, true)] {
                let norm = RmsNorm { eps: 1e-5, has_weight, rounds };
                let mut want = Vec::new();
                for row in x.chunks(n) {
                    let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
                    want.extend(row.iter().zip(&w).map(|(x, w)| {
                        let w = if has_weight { *w } else { 1.0 };
                        f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(w)
                    }));
                }
                let check = |got: Vec<f64>, step: f64| {
                    assert_eq!(got.len(), x.len());
                    for (i, (got, want)) in got.into_iter().zip(&want).enumerate() {
                        // Input, weight and result are rounded, and the row between if it is.
                        let bound = 4.0 * step * (1.0 + want.abs());
                        assert!((got - want).abs() <= bound, "{isa:?} {i}: {got} {want}");
                    }
                };
                let Some(y) = rms::<f32, f32>(isa, norm, &x, &w) else { continue };
                check(y.into_iter().map(f64::from).collect(), 1e-6);
                let half = [rms::<f16, f16>(isa, norm, &x, &w), rms::<f16, f32>(isa, norm, &x, &w)];
                half.into_iter().flatten().for_each(|y| check(y.iter().map(|v| v.to_f64()).collect(), 5e-4));
                let brain = [rms::<bf16, bf16>(isa, norm, &x, &w), rms::<bf16, f32>(isa, norm, &x, &w)];
                brain.into_iter().flatten().for_each(|y| check(y.iter().map(|v| v.to_f64()).collect(), 4e-3));
            }
        }
    }
}

#[test]
fn rms_norm_refuses_weights_of_other_rows() {
    let norm = RmsNorm { eps: 1e-5, has_weight: true, rounds: false };
    let args = vec![tensor(&[2, 3], &[1.0; 6]), tensor(&[4], &[1.0; 4]), zero(&[2, 3])];
    let prepare = |ctx: &pteron_core::PrepareContext<'_>| rms_norm::prepare(ctx, &norm);
    let mut call = SingleCall::of(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().unwrap();
    assert!(call.bind().unwrap_err().to_string().contains("3 weights"));
    let args =
        vec![zero(&[2, 3]), CallArg::Tensor(HostTensor::zeros(DType::Int8, &[3]).unwrap()), zero(&[2, 3])];
    assert!(SingleCall::of(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().is_none());
}
