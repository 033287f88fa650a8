//! Linear layers of rows that are quantised at run time.

use super::*;
use pteron_kernels::single_call::CallArg;
use pteron_kernels::testing::{Arg, Tensor, call, numbers};

/// What the plain kernels make of rows of floats: quantised numbers, scales, zero points.
fn chosen(x: &[f32], rows: usize, k: usize) -> (Vec<i8>, Vec<f64>, Vec<i64>) {
    let input = Tensor::of(&[rows, k], x);
    let parameters = call(
        "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
        &[
            input.clone().into(),
            Arg::Int(1),
            Tensor::output(DType::Float64, &[rows, 1]).into(),
            Tensor::output(DType::Int64, &[rows, 1]).into(),
        ],
    )
    .unwrap();
    let [_, _, Arg::Tensor(scales), Arg::Tensor(zeros)] = parameters.as_slice() else {
        panic!("two outputs")
    };
    let quantised = call(
        "quantized_decomposed::quantize_per_token.out",
        &[
            input.into(),
            scales.clone().into(),
            zeros.clone().into(),
            Arg::Int(-128),
            Arg::Int(127),
            Arg::Int(1),
            Tensor::output(DType::Int8, &[rows, k]).into(),
        ],
    )
    .unwrap();
    let Arg::Tensor(q) = &quantised[6] else { panic!("an output") };
    (q.values(), scales.values(), zeros.values())
}

#[test]
fn rows_are_quantised_as_the_plain_kernels_do_it() {
    for (kit, cpu) in kits() {
        for (rows, k, n) in [(1, 16, 33), (5, 100, 40), (30, 67, 64), (1, 1, 1), (3, 700, 20)] {
            let mut x = numbers(rows * k, 9);
            // Rows of one sign, of zeros, of tiny and of large numbers.
            x.iter_mut().take(k).for_each(|v| *v = v.abs() * 1e4);
            x.iter_mut().skip(k).take(k).for_each(|v| *v = 0.0);
            x.iter_mut().skip(2 * k).take(k).for_each(|v| *v = -v.abs() * 1e-9);
            let weights = bytes(n * k, 8);
            let scales: Vec<f32> = (0..n).map(|c| 0.01 + c as f32 * 1e-4).collect();
            let bias: Vec<f32> = (0..n).map(|c| c as f32 - 10.0).collect();
            let added = numbers(rows * n, 10);
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[rows, k], &x).unwrap()),
                CallArg::Constant(HostTensor::new(&[n, k], &weights).unwrap()),
                CallArg::Constant(HostTensor::new(&[n], &scales).unwrap()),
                CallArg::Constant(HostTensor::new(&[n], &bias).unwrap()),
                CallArg::Tensor(HostTensor::new(&[rows, n], &added).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[rows, n]).unwrap()),
            ];
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::Rows { scheme: RowScheme::PerToken },
                has_bias: true,
                clamp: Some((-1e4, 1e5)),
                output: IntegerOutput::Float,
                sum: Some(Summand::Floats),
            };
            let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args)
                .unwrap()
                .expect("is taken");
            call.call().unwrap();
            let (q, row_scales, zeros) = chosen(&x, rows, k);
            let mut want = Vec::new();
            for r in 0..rows {
                for c in 0..n {
                    let pairs = q[r * k..(r + 1) * k].iter().zip(&weights[c * k..(c + 1) * k]);
                    let sum: i64 = pairs.map(|(q, w)| (i64::from(*q) - zeros[r]) * i64::from(*w)).sum();
                    let real = sum as f32 * (row_scales[r] as f32 * scales[c]) + bias[c];
                    want.push(real.clamp(-1e4, 1e5) + added[r * n + c]);
                }
            }
            assert_eq!(call.output::<f32>(5).unwrap(), want, "{kit} {rows} x {k} x {n}");
        }
    }
}

#[test]
fn a_row_with_nan_becomes_nan_and_no_other() {
    for (kit, cpu) in kits() {
        let (k, n) = (40, 33);
        let mut x = numbers(3 * k, 4);
        x[k + 7] = f32::NAN;
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[3, k], &x).unwrap()),
            CallArg::Constant(HostTensor::new(&[n, k], &bytes(n * k, 3)).unwrap()),
            CallArg::Constant(HostTensor::new(&[1], &[0.5f32]).unwrap()),
            CallArg::Tensor(HostTensor::zeros(DType::Float32, &[3, n]).unwrap()),
        ];
        let spec = IntegerSpec {
            operation: IntegerOperation::Linear { is_weight_transposed: false },
            input: IntegerInput::Rows { scheme: RowScheme::PerToken },
            has_bias: false,
            clamp: Some((-1.0, 1.0)),
            output: IntegerOutput::Float,
            sum: None,
        };
        let mut call =
            SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let is_nan: Vec<bool> = call.output::<f32>(3).unwrap().iter().map(|v| v.is_nan()).collect();
        assert!((0..3 * n).all(|i| is_nan[i] == (i / n == 1)), "{kit}");
    }
}

/// What the plain kernels make of all rows together: quantised numbers, the scale, the zero point.
fn chosen_for_all(x: &[f32], least: f64) -> (Vec<i8>, f32, i64) {
    let input = Tensor::of(&[x.len()], x);
    let range = [Arg::Int(-128), Arg::Int(127)];
    let outputs = [Tensor::output(DType::Float64, &[1]), Tensor::output(DType::Int64, &[1])];
    let [scale, zero] = outputs.map(Arg::from);
    let [low, high] = range.clone();
    let args = [input.clone().into(), low, high, Arg::Double(least), Arg::Int(1), scale, zero];
    let parameters = call("quantized_decomposed::choose_qparams.Tensor_out", &args).unwrap();
    let [.., Arg::Tensor(scale), Arg::Tensor(zero)] = parameters.as_slice() else { panic!("two outputs") };
    let [low, high] = range;
    let out = Tensor::output(DType::Int8, &[x.len()]);
    let args = [input.into(), scale.clone().into(), zero.clone().into(), low, high, Arg::Int(1), out.into()];
    let quantised = call("quantized_decomposed::quantize_per_tensor.Tensor_out", &args).unwrap();
    let Some(Arg::Tensor(q)) = quantised.last() else { panic!("an output") };
    (q.values(), scale.values::<f64>()[0] as f32, zero.values::<i64>()[0])
}

/// A call of rows with one scale: its arguments.
fn one_scale_arguments(x: &[f32], [rows, k, n]: [usize; 3]) -> Vec<CallArg> {
    let scales: Vec<f32> = (0..n).map(|c| 0.01 + c as f32 * 1e-4).collect();
    let bias: Vec<f32> = (0..n).map(|c| c as f32 - 10.0).collect();
    vec![
        CallArg::Tensor(HostTensor::new(&[rows, k], x).unwrap()),
        CallArg::Constant(HostTensor::new(&[n, k], &bytes(n * k, 8)).unwrap()),
        CallArg::Constant(HostTensor::new(&[n], &scales).unwrap()),
        CallArg::Constant(HostTensor::new(&[n], &bias).unwrap()),
        CallArg::Tensor(HostTensor::zeros(DType::Float32, &[rows, n]).unwrap()),
    ]
}

fn one_scale(least_scale: f32) -> IntegerSpec {
    IntegerSpec {
        operation: IntegerOperation::Linear { is_weight_transposed: false },
        input: IntegerInput::Rows { scheme: RowScheme::PerTensor { least_scale } },
        has_bias: true,
        clamp: None,
        output: IntegerOutput::Float,
        sum: None,
    }
}

#[test]
fn rows_with_one_scale_are_quantised_as_the_plain_kernels_do_it() {
    let (eps, least) = (2f64.powi(-12), 2f32.powi(-12));
    // Of both signs, of one sign (zero points at the ends), nothing but zeros, below the least scale, large, with one far
    // number, halves of a step.
    let kinds: [fn(f32) -> f32; 8] = [
        |v| v,
        f32::abs,
        |v| -v.abs(),
        |_| 0.0,
        |v| v * 1e-6,
        |v| v * 1e30,
        |v| if v > 0.9 { 1e4 } else { v },
        |v| (v * 100.0).round() / 2.0,
    ];
    for (kit, cpu) in kits() {
        // The last ones have several chunks of rows to quantise.
        for shape in [[1, 16, 33], [5, 100, 40], [30, 67, 64], [1, 1, 1], [70, 2000, 40], [3, 35_000, 5]] {
            let [rows, k, n] = shape;
            // Of the large ones some kinds.
            let each = if rows * k > 10_000 { 3 } else { 1 };
            for kind in kinds.into_iter().step_by(each) {
                let x: Vec<f32> = numbers(rows * k, 9).into_iter().map(kind).collect();
                let prepare =
                    |ctx: &PrepareContext<'_>| prepare_with(ctx, &one_scale(least), |k| k.name == kit);
                let mut call =
                    SingleCall::of(prepare, &cpu, one_scale_arguments(&x, shape)).unwrap().unwrap();
                call.call().unwrap();
                let (q, scale, zero) = chosen_for_all(&x, eps);
                let weights = bytes(n * k, 8);
                let want: Vec<f32> = (0..rows * n)
                    .map(|i| {
                        let (r, c) = (i / n, i % n);
                        let pairs = q[r * k..(r + 1) * k].iter().zip(&weights[c * k..(c + 1) * k]);
                        let sum: i64 = pairs.map(|(q, w)| (i64::from(*q) - zero) * i64::from(*w)).sum();
                        sum as f32 * (scale * (0.01 + c as f32 * 1e-4)) + (c as f32 - 10.0)
                    })
                    .collect();
                assert_eq!(call.output::<f32>(4).unwrap(), want, "{kit} {shape:?}");
            }
        }
    }
}

#[test]
fn symmetric_rows_are_quantised_as_torchao_does_it() {
    let least = f32::EPSILON;
    for (kit, cpu) in kits() {
        for shape in [[1, 16, 33], [5, 100, 40], [30, 67, 64], [1, 1, 1], [3, 700, 20]] {
            let [rows, k, n] = shape;
            let mut x = numbers(rows * k, 9);
            // The largest magnitude on either side, then rows of zeros, below the least scale, large.
            x[k / 2] = 40.0;
            for (row, factor) in x.chunks_mut(k).zip([1.0, -1e4, 0.0, 1e-9, 1e30]) {
                row.iter_mut().for_each(|v| *v *= factor);
            }
            let spec = IntegerSpec {
                input: IntegerInput::Rows { scheme: RowScheme::Symmetric { least_scale: least } },
                ..one_scale(least)
            };
            let prepare = |ctx: &PrepareContext<'_>| prepare_with(ctx, &spec, |k| k.name == kit);
            let mut call = SingleCall::of(prepare, &cpu, one_scale_arguments(&x, shape)).unwrap().unwrap();
            call.call().unwrap();
            let weights = bytes(n * k, 8);
            let mut want = Vec::new();
            for row in x.chunks(k) {
                let low = row.iter().fold(0f32, |a, v| a.min(*v));
                let high = row.iter().fold(0f32, |a, v| a.max(*v));
                let scale = ((-low).max(high) / 127.5).max(least);
                let inverse = 1.0 / scale;
                let q: Vec<i64> =
                    row.iter().map(|v| (v * inverse).round_ties_even().clamp(-128.0, 127.0) as i64).collect();
                want.extend(weights.chunks(k).enumerate().map(|(c, w)| {
                    let sum: i64 = q.iter().zip(w).map(|(q, w)| q * i64::from(*w)).sum();
                    sum as f32 * (scale * (0.01 + c as f32 * 1e-4)) + (c as f32 - 10.0)
                }));
            }
            assert_eq!(call.output::<f32>(4).unwrap(), want, "{kit} {shape:?}");
        }
    }
}

#[test]
fn one_nan_makes_all_rows_of_one_scale_nan() {
    for (kit, cpu) in kits() {
        let mut x = numbers(40 * 2000, 4);
        x[77_000] = f32::NAN;
        let prepare = |ctx: &PrepareContext<'_>| prepare_with(ctx, &one_scale(1e-6), |k| k.name == kit);
        let args = one_scale_arguments(&x, [40, 2000, 33]);
        let mut call = SingleCall::of(prepare, &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        assert!(call.output::<f32>(4).unwrap().iter().all(|v| v.is_nan()), "{kit}");
    }
}

#[test]
fn no_rows_have_no_scale() {
    for (kit, cpu) in kits() {
        let prepare = |ctx: &PrepareContext<'_>| prepare_with(ctx, &one_scale(1e-6), |k| k.name == kit);
        let mut call = SingleCall::of(prepare, &cpu, one_scale_arguments(&[], [0, 8, 33])).unwrap().unwrap();
        assert!(call.call().unwrap_err().to_string().contains("without elements"), "{kit}");
    }
}
