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
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[rows, k], &x).unwrap()),
                CallArg::Constant(HostTensor::new(&[n, k], &weights).unwrap()),
                CallArg::Constant(HostTensor::new(&[n], &scales).unwrap()),
                CallArg::Constant(HostTensor::new(&[n], &bias).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[rows, n]).unwrap()),
            ];
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::Rows { scheme: RowScheme::PerToken },
                has_bias: true,
                clamp: Some((-1e4, 1e5)),
                output: IntegerOutput::Float,
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
                    want.push(real.clamp(-1e4, 1e5));
                }
            }
            assert_eq!(call.output::<f32>(4).unwrap(), want, "{kit} {rows} x {k} x {n}");
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
        };
        let mut call =
            SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let is_nan: Vec<bool> = call.output::<f32>(3).unwrap().iter().map(|v| v.is_nan()).collect();
        assert!((0..3 * n).all(|i| is_nan[i] == (i / n == 1)), "{kit}");
    }
}
