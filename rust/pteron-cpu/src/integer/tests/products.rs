//! Linear layers of integers.

use super::*;
use pteron_kernels::single_call::CallArg;

/// A linear layer: input shape, output features, order of the weight.
fn linear_call(
    shape: &[usize],
    n: usize,
    is_weight_transposed: bool,
    scheme: &Scheme,
    kit: &str,
    cpu: &CpuProfile,
) -> (SingleCall, Vec<f32>) {
    let k = shape[shape.len() - 1];
    let rows: usize = shape[..shape.len() - 1].iter().product();
    let (data, weights) = (bytes(rows * k, 5), bytes(n * k, 6));
    let x: Vec<i64> = data.iter().map(|b| value(*b, scheme.is_unsigned[0])).collect();
    let weight = match is_weight_transposed {
        true => {
            let turned: Vec<i8> = (0..k * n).map(|i| weights[i % n * k + i / n]).collect();
            HostTensor::new(&[k, n], &turned).unwrap()
        }
        false => HostTensor::new(&[n, k], &weights).unwrap(),
    };
    let mut args = vec![
        CallArg::Tensor(byte_tensor(shape, DimOrder::contiguous(shape.len()), &data, scheme.is_unsigned[0])),
        CallArg::Constant(weight),
        CallArg::Constant(HostTensor::new(&[scheme.weight_scales.len()], &scheme.weight_scales).unwrap()),
    ];
    if let Some(bias) = &scheme.bias {
        args.push(CallArg::Constant(HostTensor::new(&[n], bias).unwrap()));
    }
    let mut out_shape = shape.to_vec();
    *out_shape.last_mut().unwrap() = n;
    let summands = bytes(rows * n, 7);
    if scheme.sum.is_some() {
        let order = DimOrder::contiguous(shape.len());
        args.push(CallArg::Tensor(summand_tensor(scheme, &out_shape, order, &summands)));
    }
    args.push(CallArg::Tensor(HostTensor::zeros(out_type(scheme), &out_shape).unwrap()));
    let spec = spec(IntegerOperation::Linear { is_weight_transposed }, scheme);
    let call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), cpu, args).unwrap();
    let sum = |row: usize, column: usize| -> i64 {
        let pairs = x[row * k..(row + 1) * k].iter().zip(&weights[column * k..(column + 1) * k]);
        pairs.map(|(x, w)| (x - i64::from(scheme.zero)) * i64::from(*w)).sum()
    };
    let result = |i: usize| add(scheme, finish(scheme, i % n, sum(i / n, i % n)), summands[i]);
    let want = (0..rows * n).map(result).collect();
    (call.expect("is taken"), want)
}

#[test]
fn products_agree_with_plain_sums() {
    let shapes: [(&[usize], usize); 12] = [
        (&[1, 1], 1),
        (&[7], 33),
        (&[1, 64], 64),
        (&[2, 3, 37], 40),
        (&[4, 128], 31),
        (&[12, 20], 96),
        (&[13, 65], 33),
        (&[5, 3], 320),
        (&[64, 100], 100),
        (&[27, 1030], 70),
        (&[300, 24], 16),
        (&[3, 5, 700], 130),
    ];
    for (kit, cpu) in kits() {
        for (i, (shape, n)) in shapes.into_iter().enumerate() {
            for scheme in schemes(n, shape[shape.len() - 1]) {
                let (mut call, want) = linear_call(shape, n, i % 2 == 1, &scheme, kit, &cpu);
                call.call().unwrap();
                assert_eq!(
                    results(&call, call_out(&scheme), &scheme),
                    want,
                    "{kit} {shape:?} {n} {scheme:?}"
                );
            }
        }
    }
}

/// As high as the tiles of all kits and one more, as deep as steps of tile registers and less or more.
#[test]
fn tiles_of_every_height_and_depth_agree_with_plain_sums() {
    for (kit, cpu) in kits() {
        for rows in (1..=33).chain([48, 63, 65]) {
            for k in [1, 4, 60, 64, 68, 96, 144, 147, 1000] {
                let scheme = &schemes(33, k)[0];
                let (mut call, want) = linear_call(&[rows, k], 33, false, scheme, kit, &cpu);
                call.call().unwrap();
                assert_eq!(results(&call, call_out(scheme), scheme), want, "{kit} {rows} x {k}");
            }
        }
    }
}

/// Fewer rows than were said at load, chunks from the last to the first.
#[test]
fn fewer_rows_and_chunks_in_any_order_give_the_same_bytes() {
    for (kit, cpu) in kits() {
        for (shape, n) in [([40usize, 70], 100), ([300, 130], 320)] {
            let scheme = &schemes(n, shape[1])[0];
            let (mut call, want) = linear_call(&shape, n, false, scheme, kit, &cpu);
            for rows in [shape[0], 17, 0, 1, shape[0]] {
                call.resize(0, &[rows, shape[1]]).unwrap();
                let grid = call.bind().unwrap();
                // The test means nothing unless the larger product is several chunks.
                assert!(rows < 300 || (0..grid.phase_count()).any(|phase| grid.chunk_count(phase) > 1));
                call.run(grid, true).unwrap();
                assert_eq!(
                    results(&call, call_out(scheme), scheme),
                    want[..rows * n],
                    "{kit} {shape:?} {rows}"
                );
            }
        }
    }
}

fn call_out(scheme: &Scheme) -> usize {
    3 + usize::from(scheme.bias.is_some()) + usize::from(scheme.sum.is_some())
}

#[test]
fn a_summand_has_the_shape_of_the_result_in_every_call() {
    for (kit, cpu) in kits() {
        let schemes = schemes(40, 24);
        let scheme = schemes.iter().find(|s| s.sum.is_some()).unwrap();
        let (mut call, want) = linear_call(&[9, 24], 40, false, scheme, kit, &cpu);
        call.resize(0, &[5, 24]).unwrap();
        let text = call.call().unwrap_err().to_string();
        assert!(text.contains("[5, 40]") && text.contains("[9, 40]"), "{text}");
        call.resize(4, &[5, 40]).unwrap();
        call.call().unwrap();
        assert_eq!(results(&call, 5, scheme), want[..5 * 40], "{kit}");
    }
}

#[test]
fn sums_that_are_no_numbers_or_leave_i32_are_refused() {
    let schemes = schemes(40, 24);
    let scheme = schemes.iter().find(|s| s.sum.is_some()).unwrap();
    let Some(Summand::Quantised(sum)) = scheme.sum else { panic!("{:?}", scheme.sum) };
    for sum in [
        IntegerSum { own_scale: f32::NAN, ..sum },
        IntegerSum { scale: 0.0, ..sum },
        IntegerSum { scale: f32::MAX, ..sum },
        IntegerSum { inverse: 1e30, ..sum },
        IntegerSum { zero_point: 128, ..sum },
        IntegerSum { sum_zero_point: -129, ..sum },
        IntegerSum { low: 5, high: 4, ..sum },
        IntegerSum { clamp: Some((f32::NAN, 1.0)), ..sum },
        IntegerSum { clamp: Some((1.0, 0.0)), ..sum },
    ] {
        assert!(sum::SumNumbers::of(&sum, DType::Int8, [-128, 127]).is_none(), "{sum:?}");
    }
    assert!(sum::SumNumbers::of(&sum, DType::Int8, [-128, 127]).is_some());
}

#[test]
fn the_largest_products_do_not_saturate() {
    for (kit, cpu) in kits() {
        for (x, zero, w) in [(-128i8, 127, -128i8), (127, -128, -128), (127, -128, 127), (-128, 0, -128)] {
            let (k, n) = (4096, 33);
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[1, k], &vec![x; k]).unwrap()),
                CallArg::Constant(HostTensor::new(&[n, k], &vec![w; n * k]).unwrap()),
                CallArg::Constant(HostTensor::new(&[1], &[1f32]).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[1, n]).unwrap()),
            ];
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::PerTensor { scale: 1.0, zero_point: zero },
                has_bias: false,
                clamp: None,
                output: IntegerOutput::Float,
                sum: None,
            };
            let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args)
                .unwrap()
                .expect("is taken");
            call.call().unwrap();
            let sum = (i64::from(x) - i64::from(zero)) * i64::from(w) * k as i64;
            assert_eq!(call.output::<f32>(3).unwrap(), vec![sum as f32; n], "{kit} {x} {zero} {w}");
        }
    }
}

#[test]
fn what_cannot_be_exact_is_left_to_others() {
    let cpu = profile(pteron_core::Isa::Portable).unwrap();
    let taken = |k: usize, scale: f32, weight_scale: f32, zero_point: i32, out: IntegerOutput| {
        let dtype = if out == IntegerOutput::Float { DType::Float32 } else { DType::Int8 };
        let args = vec![
            CallArg::Tensor(HostTensor::zeros(DType::Int8, &[1, k]).unwrap()),
            CallArg::Constant(HostTensor::zeros(DType::Int8, &[3, k]).unwrap()),
            CallArg::Constant(HostTensor::new(&[1], &[weight_scale]).unwrap()),
            CallArg::Tensor(HostTensor::zeros(dtype, &[1, 3]).unwrap()),
        ];
        let spec = IntegerSpec {
            operation: IntegerOperation::Linear { is_weight_transposed: false },
            input: IntegerInput::PerTensor { scale, zero_point },
            has_bias: false,
            clamp: None,
            output: out,
            sum: None,
        };
        SingleCall::of(|ctx| prepare(ctx, &spec), &cpu, args).unwrap().is_some()
    };
    let quantised = |scale| IntegerOutput::Quantised { scale, zero_point: 0, low: -128, high: 127 };
    assert!(taken(65_536, 0.5, 0.5, 0, IntegerOutput::Float));
    assert!(!taken(65_540, 0.5, 0.5, 0, IntegerOutput::Float));
    assert!(!taken(8, f32::INFINITY, 0.5, 0, IntegerOutput::Float));
    assert!(!taken(8, 0.5, f32::NAN, 0, IntegerOutput::Float));
    assert!(!taken(8, 0.5, 0.5, 200, IntegerOutput::Float));
    assert!(taken(8, 0.5, 0.5, 0, quantised(0.1)) && !taken(8, 0.5, 0.5, 0, quantised(0.0)));
    // The factor of the sums would be infinite.
    assert!(!taken(8, 1e20, 1e15, 0, quantised(1e-10)));
}

#[test]
fn chunks_cover_every_row_and_column_once() {
    for (kit, cpu) in kits() {
        for (rows, k, n) in [(1, 768, 3072), (1000, 32, 16), (350, 64, 2000), (5000, 16, 96)] {
            let shape = [rows, k];
            let args = vec![
                CallArg::Tensor(HostTensor::zeros(DType::Int8, &shape).unwrap()),
                CallArg::Constant(HostTensor::zeros(DType::Int8, &[n, k]).unwrap()),
                CallArg::Constant(HostTensor::new(&[1], &[1f32]).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Int8, &[rows, n]).unwrap()),
            ];
            let quantised = IntegerOutput::Quantised { scale: 1.0, zero_point: 77, low: -128, high: 127 };
            let spec = IntegerSpec {
                operation: IntegerOperation::Linear { is_weight_transposed: false },
                input: IntegerInput::PerTensor { scale: 1.0, zero_point: 0 },
                has_bias: false,
                clamp: None,
                output: quantised,
                sum: None,
            };
            let mut call = SingleCall::of(|ctx| prepare_with(ctx, &spec, |k| k.name == kit), &cpu, args)
                .unwrap()
                .expect("is taken");
            let grid = call.bind().unwrap();
            // The second one is a single chunk, the others are several.
            let is_divided = (0..grid.phase_count()).any(|phase| grid.chunk_count(phase) > 1);
            assert!(is_divided || rows == 1000, "{kit} {rows} x {k} x {n}");
            call.run(grid, true).unwrap();
            assert!(call.output::<i8>(3).unwrap().iter().all(|v| *v == 77), "{kit} {rows} x {k} x {n}");
        }
    }
}
