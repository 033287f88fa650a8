//! The fast kernels of pooling gradients against the plain ones, byte by byte.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use half::{bf16, f16};
use pteron_core::{Element, Isa};

/// Runs a kernel; what is in the output before counts for nothing.
fn run(op: &str, variant: &str, isa: Isa, args: Vec<CallArg>) -> Option<Vec<u8>> {
    let out = args.len() - 1;
    let mut call = SingleCall::new(prepare_of(op, variant), &profile(isa)?, args).unwrap().expect("taken");
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    Some(call.output_bytes(out).unwrap().to_vec())
}

fn tensor<T: Element>(shape: &[usize], seed: u64, of: &impl Fn(f32) -> T) -> CallArg {
    let values: Vec<T> = numbers(shape.iter().product(), seed)
        .into_iter()
        .enumerate()
        .map(|(i, v)| of(if i % 13 == 5 { [-0.0, f32::INFINITY, 1e-30][i / 13 % 3] } else { v }))
        .collect();
    CallArg::Tensor(HostTensor::new(shape, &values).unwrap())
}

fn same<T: Element>(op: &str, variant: &str, args: impl Fn() -> Vec<CallArg>) {
    let want = run(op, "reference", Isa::Portable, args()).unwrap();
    for isa in Isa::ALL {
        let Some(got) = run(op, variant, isa, args()) else { continue };
        assert!(got == want, "{op} {:?} {isa:?}", T::DTYPE);
    }
}

fn ints(v: &[i64]) -> CallArg {
    CallArg::Ints(v.to_vec())
}

/// Input, kernel, stride, padding of the last two dimensions; rounded up?
type Case = (&'static [usize], [i64; 2], [i64; 2], [i64; 2], bool);

const CASES: [Case; 6] = [
    (&[1, 2, 9, 13], [3, 3], [2, 2], [1, 1], false),
    (&[2, 1, 8, 11], [3, 2], [1, 1], [1, 0], false),
    (&[2, 5, 7], [2, 3], [2, 3], [0, 1], true),
    // Windows as large as what they cover, and steps beyond them.
    (&[1, 1, 4, 9], [4, 9], [1, 1], [2, 4], false),
    (&[1, 3, 10, 21], [2, 2], [3, 5], [0, 0], true),
    (&[0, 3, 4, 4], [2, 2], [2, 2], [0, 0], false),
];

fn pooled((shape, kernel, stride, padding, is_ceil): Case) -> Vec<usize> {
    let mut out = shape.to_vec();
    let first = shape.len() - 2;
    for d in 0..2 {
        let (n, p, s) = (shape[first + d] as i64, padding[d], stride[d]);
        let span = n + 2 * p - kernel[d];
        let mut count = (span + if is_ceil { s - 1 } else { 0 }) / s + 1;
        if is_ceil && (count - 1) * s >= n + p {
            count -= 1;
        }
        out[first + d] = count as usize;
    }
    out
}

fn averages<T: Element>(of: impl Fn(f32) -> T) {
    for case @ (shape, kernel, stride, padding, is_ceil) in CASES {
        for (includes_padding, divisor) in [(true, None), (false, None), (true, Some(-3))] {
            same::<T>("aten::avg_pool2d_backward.grad_input", "windows", || {
                vec![
                    tensor(&pooled(case), 3, &of),
                    tensor(shape, 4, &of),
                    ints(&kernel),
                    ints(&stride),
                    ints(&padding),
                    CallArg::bool(is_ceil),
                    CallArg::bool(includes_padding),
                    divisor.map_or(CallArg::None, CallArg::int),
                    tensor(shape, 5, &of),
                ]
            });
        }
    }
    // Volumes.
    same::<T>("aten::avg_pool3d_backward.grad_input", "windows", || {
        let mut args = vec![tensor(&[2, 2, 3, 3], 1, &of), tensor(&[2, 4, 6, 7], 2, &of)];
        args.extend([ints(&[3, 3, 2]), ints(&[2, 2, 2]), ints(&[1, 1, 0])]);
        args.extend([CallArg::bool(false), CallArg::bool(false), CallArg::None]);
        args.push(tensor(&[2, 4, 6, 7], 3, &of));
        args
    });
}

#[test]
fn averages_of_every_float() {
    averages(|v| v);
    averages(f64::from);
    averages(f16::from_f32);
    averages(bf16::from_f32);
}

fn adaptive<T: Element>(of: impl Fn(f32) -> T) {
    let cases: [(&[usize], &[usize]); 4] = [
        (&[1, 2, 9, 13], &[1, 2, 3, 5]),
        (&[3, 4, 5], &[3, 7, 2]),
        (&[2, 1, 6, 6], &[2, 1, 1, 6]),
        (&[0, 2, 3, 3], &[0, 2, 2, 2]),
    ];
    for (x, grad) in cases {
        same::<T>("aten::_adaptive_avg_pool2d_backward.out", "windows", || {
            vec![tensor(grad, 1, &of), tensor(x, 2, &of), tensor(x, 3, &of)]
        });
    }
    same::<T>("aten::_adaptive_avg_pool3d_backward.out", "windows", || {
        [&[2, 2, 3, 4], &[2, 3, 5, 6], &[2, 3, 5, 6]].map(|shape| tensor(shape, 7, &of)).into()
    });
}

#[test]
fn adaptive_averages_of_every_float() {
    adaptive(|v| v);
    adaptive(f64::from);
    adaptive(f16::from_f32);
    adaptive(bf16::from_f32);
}

fn maxima<T: Element>(of: impl Fn(f32) -> T) {
    for case @ (shape, kernel, stride, padding, is_ceil) in CASES {
        let pooled = pooled(case);
        let pixels = shape[shape.len() - 2] * shape[shape.len() - 1];
        same::<T>("aten::max_pool2d_with_indices_backward.grad_input", "maxima", || {
            let count = pooled.iter().product();
            let places: Vec<i64> = (0..count)
                .map(|i: usize| if i % 7 == 3 { -1 } else { (i * i % pixels / 2) as i64 })
                .collect();
            vec![
                tensor(&pooled, 3, &of),
                tensor(shape, 4, &of),
                ints(&kernel),
                ints(&stride),
                ints(&padding),
                ints(&[1]),
                CallArg::bool(is_ceil),
                CallArg::Tensor(HostTensor::new(&pooled, &places).unwrap()),
                tensor(shape, 5, &of),
            ]
        });
    }
}

#[test]
fn maxima_of_every_float() {
    maxima(|v| v);
    maxima(f64::from);
    maxima(f16::from_f32);
    maxima(bf16::from_f32);
}

/// The gradients of three maxima of four elements, at `places`.
fn three_maxima(variant: &str, places: [i64; 3]) -> pteron_core::Result<Vec<f32>> {
    let grad = [256.0, 1.0, 1.0].map(bf16::from_f32);
    let zeros = || CallArg::Tensor(HostTensor::new(&[1, 1, 4], &[bf16::ZERO; 4]).unwrap());
    let args = vec![
        CallArg::Tensor(HostTensor::new(&[1, 1, 3], &grad).unwrap()),
        zeros(),
        ints(&[1, 2]),
        ints(&[1]),
        ints(&[0]),
        ints(&[1]),
        CallArg::bool(false),
        CallArg::Tensor(HostTensor::new(&[1, 1, 3], &places).unwrap()),
        zeros(),
    ];
    let prepare = prepare_of("aten::max_pool2d_with_indices_backward.grad_input", variant);
    let mut call = SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args)?.expect("taken");
    call.call()?;
    Ok(call.output::<bf16>(8)?.iter().map(|v| v.to_f32()).collect())
}

#[test]
fn sixteen_bits_are_rounded_once_and_places_must_exist() {
    for variant in ["maxima", "reference"] {
        assert_eq!(three_maxima(variant, [2; 3]).unwrap(), [0.0, 0.0, 258.0, 0.0], "{variant}");
        for bad in [4, -2, i64::MAX] {
            let error = three_maxima(variant, [0, bad, 0]).unwrap_err().to_string();
            assert!(error.contains("index out of range"), "{variant}: {error}");
        }
    }
}
