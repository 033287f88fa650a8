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

fn wide(v: f32) -> f64 {
    f64::from(v)
}

/// A tensor of `T` with these numbers, and the numbers that it holds.
fn rounded<T: Element + From<Half>>(shape: &[usize], order: DimOrder, v: &[f32]) -> (CallArg, Vec<f32>)
where
    f64: From<T>,
{
    let v: Vec<T> = v.iter().map(|v| T::from(Half(*v))).collect();
    let held = v.iter().map(|v| f64::from(*v) as f32).collect();
    (CallArg::Tensor(HostTensor::in_order(shape, order, &v).unwrap()), held)
}

/// Batch norm of `T` with numbers of channels of `P` against f64 arithmetic, to `step` of the result.
fn check_short_batch_norm<T: Element + From<Half>, P: Element + From<Half>>(isa: Isa, step: f64)
where
    f64: From<T> + From<P>,
{
    let [n, c, h, w] = [2, 19, 5, 7];
    for order in [DimOrder::contiguous(4), DimOrder::new(&[0, 2, 3, 1]).unwrap()] {
        let row = DimOrder::contiguous(1);
        let (x, x_held) = rounded::<T>(&[n, c, h, w], order, &numbers(n * c * h * w, 1));
        let (weight, weight_held) = rounded::<P>(&[c], row, &numbers(c, 2));
        let (mean, mean_held) = rounded::<P>(&[c], row, &numbers(c, 4));
        let var: Vec<f32> = numbers(c, 5).iter().map(|v| v.abs() + 0.1).collect();
        let (var, var_held) = rounded::<P>(&[c], row, &var);
        let args = vec![
            x,
            weight,
            CallArg::None,
            mean,
            var,
            CallArg::double(0.1),
            CallArg::double(1e-5),
            CallArg::SameBytesAs(0),
            zero(&[0]),
            zero(&[0]),
        ];
        let Some(call) = run(batch_norm::prepare, isa, args) else { return };
        for (i, y) in call.output::<T>(7).unwrap().into_iter().enumerate() {
            let k = if order.is_contiguous() { i / (h * w) % c } else { i % c };
            let scale = wide(weight_held[k]) / (wide(var_held[k]) + 1e-5).sqrt();
            let want = (wide(x_held[i]) - wide(mean_held[k])) * scale;
            let bound = step * want.abs() + 1e-5 * (1.0 + scale.abs());
            assert!((f64::from(y) - want).abs() <= bound, "{isa:?} {i}: {} {want}", f64::from(y));
        }
    }
}

#[test]
fn batch_norm_of_halves() {
    for isa in Isa::ALL {
        // Half a step of the result.
        check_short_batch_norm::<f16, f16>(isa, 2f64.powi(-11));
        check_short_batch_norm::<f16, f32>(isa, 2f64.powi(-11));
        check_short_batch_norm::<bf16, bf16>(isa, 2f64.powi(-8));
        check_short_batch_norm::<bf16, f32>(isa, 2f64.powi(-8));
    }
}

/// Group norm of `T` against f64 arithmetic, to `step` of the result.
fn check_short_group_norm<T: Element + From<Half>>(isa: Isa, step: f64)
where
    f64: From<T>,
{
    let ([n, c, pixels], groups) = ([2, 6, 35], 3);
    let row = DimOrder::contiguous(1);
    let (x, x_held) = rounded::<T>(&[n, c, pixels], DimOrder::contiguous(3), &numbers(n * c * pixels, 1));
    let (weight, weight_held) = rounded::<T>(&[c], row, &numbers(c, 2));
    let (bias, bias_held) = rounded::<T>(&[c], row, &numbers(c, 3));
    let out = |shape: &[usize]| CallArg::Tensor(HostTensor::zeros(T::DTYPE, shape).unwrap());
    let mut args = vec![x, weight, bias];
    args.extend([n, c, pixels, groups].map(|v| CallArg::int(v as i64)));
    args.extend([CallArg::double(1e-5), out(&[n, c, pixels]), out(&[n, groups]), out(&[n, groups])]);
    let Some(call) = run(group_norm::prepare, isa, args) else { return };
    let (y, means) = (call.output::<T>(8).unwrap(), call.output::<T>(9).unwrap());
    let per_group = c / groups * pixels;
    for (i, y) in y.into_iter().enumerate() {
        let group = i / per_group;
        let (mean, rstd) = reference_moments(&x_held[group * per_group..(group + 1) * per_group]);
        assert!((f64::from(means[group]) - mean).abs() <= step * mean.abs() + 1e-6, "{isa:?} {group}");
        let k = i / pixels % c;
        // The statistics that normalise are not rounded to `T`.
        let want = (wide(x_held[i]) - mean) * rstd * wide(weight_held[k]) + wide(bias_held[k]);
        assert!(
            (f64::from(y) - want).abs() <= step * want.abs() + 1e-5,
            "{isa:?} {i}: {} {want}",
            f64::from(y)
        );
    }
}

#[test]
fn group_norm_of_halves() {
    for isa in Isa::ALL {
        check_short_group_norm::<f16>(isa, 2f64.powi(-11));
        check_short_group_norm::<bf16>(isa, 2f64.powi(-8));
    }
}
