//! Products in groups against one product after another, f32 and bfloat16, packed and as they lie.

use crate::linear::{grouped, other_dtypes};
use half::bf16;
use pteron_core::{DType, Isa};
use pteron_kernels::cpu_detect::{available_isas, profile_for};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall};

fn noise(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 31 + seed * 17) % 97) as f32 / 32.0 - 1.5).collect()
}

/// One call of the fallback's kernel; `ends` are the offsets.
fn call(
    isa: Isa,
    [s, k, n]: [usize; 3],
    ends: &[i64],
    is_constant: bool,
    is_half: bool,
) -> Result<Vec<f32>, String> {
    let (a, b) = (noise(s * k, 1), noise(ends.len() * k * n, 2));
    let tensor = |shape: &[usize], v: &[f32]| match is_half {
        true => HostTensor::new(shape, &v.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>()).unwrap(),
        false => HostTensor::new(shape, v).unwrap(),
    };
    let weight = tensor(&[ends.len(), k, n], &b);
    let dtype = if is_half { DType::BFloat16 } else { DType::Float32 };
    let args = vec![
        CallArg::Tensor(tensor(&[s, k], &a)),
        if is_constant { CallArg::Constant(weight) } else { CallArg::Tensor(weight) },
        CallArg::Tensor(HostTensor::new(&[ends.len()], ends).unwrap()),
        CallArg::Tensor(HostTensor::zeros(dtype, &[s, n]).unwrap()),
    ];
    let kernel = match is_half {
        true => other_dtypes::KERNELS.iter().find(|k| k.operator.starts_with("transformers")),
        false => grouped::KERNELS.get(1),
    };
    let cpu = profile_for(isa).unwrap();
    let mut call = SingleCall::new(kernel.unwrap().prepare, &cpu, args).unwrap().unwrap();
    call.call().map_err(|e| e.to_string())?;
    Ok(match is_half {
        true => call.output::<bf16>(3).unwrap().iter().map(|v| v.to_f32()).collect(),
        false => call.output::<f32>(3).unwrap(),
    })
}

#[test]
fn each_row_meets_the_matrix_of_its_group() {
    for isa in available_isas() {
        for (s, k, n, ends) in [
            (9, 5, 7, &[2i64, 2, 8][..]),
            (300, 40, 70, &[0, 250, 300]),
            (1, 33, 32, &[1]),
            (4, 0, 3, &[2, 3]),
            (64, 1024, 65, &[10, 20, 64]),
        ] {
            let (a, b) = (noise(s * k, 1), noise(ends.len() * k * n, 2));
            for (is_constant, is_half) in [(true, false), (false, false), (false, true)] {
                let got = call(isa, [s, k, n], ends, is_constant, is_half).unwrap();
                for (i, got) in got.iter().enumerate() {
                    let (row, column) = (i / n, i % n);
                    let group = ends.iter().position(|end| row < *end as usize);
                    let want = group.map_or(0.0, |g| {
                        (0..k).map(|p| a[row * k + p] * b[(g * k + p) * n + column]).sum::<f32>()
                    });
                    let limit = if is_half { want.abs() / 200.0 + 1e-2 } else { 1e-4 * (1.0 + want.abs()) };
                    assert!((got - want).abs() <= limit, "{isa:?} {s} {k} {n} {row} {column}: {got} {want}");
                }
            }
        }
    }
}

#[test]
fn offsets_that_cut_nothing_are_refused() {
    for ends in [&[3i64, 2, 4][..], &[1, 5], &[-1, 2], &[i64::MAX, i64::MIN]] {
        for is_half in [false, true] {
            let error = call(Isa::Portable, [4, 3, 2], ends, false, is_half).unwrap_err();
            assert!(error.contains("no end of a group"), "{error}");
        }
    }
}
