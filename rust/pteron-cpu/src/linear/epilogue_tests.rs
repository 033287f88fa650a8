//! Epilogues of linear operators: residual, clamp and post-chain, against the calls that they replace.
#![allow(unsafe_code, reason = "tests play the caller's part in the contracts of kernels")]
use super::tests::{Arg, assert_close, execute, execute_with_output, prepare};
use crate::epilogue::Epilogue;
use crate::gemm::tests::{noise, reference};
use pteron_core::PackStore;
use pteron_kernels::cpu_detect::{available_isas, best_isa};
use pteron_kernels::elementwise::chain::{Chain, Operand, Step};
use pteron_kernels::testing::gelu_erf;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::Arc;

/// A constant and a computed weight.
fn weights(b: &[f32], k: usize, n: usize) -> [Arg; 2] {
    [Arg::Constant([k, n], [n, 1], b.to_vec()), Arg::tensor(&[k, n], b.to_vec())]
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn residual_clamp_and_program_give_the_bytes_of_separate_steps() {
    // Shapes with one and several K-blocks, with packed and direct left-hand sides, one row and many.
    for (m, n, k) in
        [(1, 70, 40), (5, 40, 900), (60, 300, 500), (33, 33, 1024), (33, 800, 40), (33, 140, 1030)]
    {
        let (a, b, bias) = (noise(m * k, 1), noise(k * n, 2), noise(n, 3));
        let residual = noise(m * n, 4);
        let gelu = Arc::new(Chain::unary(gelu_erf()).unwrap());
        for isa in available_isas() {
            for weight in weights(&b, k, n) {
                let args = [
                    Arg::tensor(&[n], bias.clone()),
                    Arg::tensor(&[m, k], a.clone()),
                    weight,
                    Arg::Number(1.0),
                    Arg::Number(1.0),
                    Arg::out(&[m, n]),
                    Arg::tensor(&[m, n], residual.clone()),
                ];
                let plain =
                    prepare("aten::addmm.out", &args, isa, &PackStore::new(), Epilogue::NONE).unwrap();
                let plain = execute_with_output(&*plain, &args, 1, 5).unwrap().values;
                let mut expected: Vec<f32> =
                    plain.iter().zip(&residual).map(|(x, r)| (x + r).clamp(-0.5, 2.0)).collect();
                let level = SimdLevel::at_most(isa);
                // SAFETY: the block is all of `expected`.
                unsafe {
                    let mut scratch = vec![0.0; gelu.scratch_floats()];
                    gelu.apply(level, expected.as_mut_ptr(), n, [m, n], &mut scratch);
                }
                let epilogue =
                    Epilogue { residual: Some(6), clamp: Some((-0.5, 2.0)), post: Some(gelu.clone()) };
                let fused = prepare("aten::addmm.out", &args, isa, &PackStore::new(), epilogue).unwrap();
                assert!(fused.name().ends_with("+residual+clamp+post"), "{}", fused.name());
                for threads in [1, 2] {
                    let got = execute_with_output(&*fused, &args, threads, 5).unwrap().values;
                    assert_eq!(bits(&got), bits(&expected), "{} {m}x{n}x{k}", fused.name());
                }
            }
        }
    }
}

#[test]
fn factors_and_every_broadcast_of_the_added_tensor() {
    let (m, n, k) = (37, 45, 50);
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let (sums, _) = reference(&a, &b, m, n, k);
    let shapes: [&[usize]; 7] = [&[], &[1], &[n], &[1, n], &[m, 1], &[1, 1], &[m, n]];
    for isa in available_isas() {
        for weight in weights(&b, k, n) {
            for shape in shapes {
                let added = noise(shape.iter().product(), 5);
                for (beta, alpha) in [(1.0, 1.0), (0.5, 1.0), (1.0, -2.0), (3.0, 0.25), (0.0, 2.0)] {
                    let args = [
                        Arg::tensor(shape, added.clone()),
                        Arg::tensor(&[m, k], a.clone()),
                        weight.clone(),
                        Arg::Number(beta),
                        Arg::Number(alpha),
                        Arg::out(&[m, n]),
                    ];
                    let at = |i: usize| {
                        let row = if shape.len() == 2 && shape[0] == m { i / n } else { 0 };
                        let (width, column) = match shape.last() {
                            Some(&w) if w == n => (n, i % n),
                            _ => (1, 0),
                        };
                        f64::from(added[row * width + column])
                    };
                    let expected: Vec<f64> =
                        sums.iter().enumerate().map(|(i, x)| alpha * x + beta * at(i)).collect();
                    let prepared =
                        prepare("aten::addmm.out", &args, isa, &PackStore::new(), Epilogue::RELU).unwrap();
                    let expected: Vec<f64> = expected.into_iter().map(|x| x.max(0.0)).collect();
                    let got = execute(&*prepared, &args, 2).unwrap().values;
                    assert_close(&got, &expected, k, &format!("{isa:?} {shape:?} beta {beta} alpha {alpha}"));
                }
            }
        }
    }
}

#[test]
fn batches_add_what_broadcasts_over_them() {
    let (batch, m, n, k) = (3, 9, 40, 20);
    let (a, b) = (noise(batch * m * k, 1), noise(batch * k * n, 2));
    let shapes: [&[usize]; 6] = [&[batch, m, n], &[1, m, n], &[batch, 1, n], &[m, n], &[n], &[batch, m, 1]];
    for isa in available_isas() {
        for shape in shapes {
            let added = noise(shape.iter().product(), 3);
            let args = [
                Arg::tensor(shape, added.clone()),
                Arg::tensor(&[batch, m, k], a.clone()),
                Arg::tensor(&[batch, k, n], b.clone()),
                Arg::Number(1.0),
                Arg::Number(1.0),
                Arg::out(&[batch, m, n]),
            ];
            let mut expected = Vec::new();
            for i in 0..batch {
                expected.extend(reference(&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], m, n, k).0);
            }
            for (i, x) in expected.iter_mut().enumerate() {
                let index = [i / (m * n), i / n % m, i % n];
                let mut at = 0;
                for (extent, place) in shape.iter().zip(&index[3 - shape.len()..]) {
                    at = at * extent + if *extent == 1 { 0 } else { *place };
                }
                *x += f64::from(added[at]);
            }
            let prepared =
                prepare("aten::baddbmm.out", &args, isa, &PackStore::new(), Epilogue::NONE).unwrap();
            let got = execute(&*prepared, &args, 1).unwrap().values;
            assert_close(&got, &expected, k, &format!("{isa:?} {shape:?}"));
        }
    }
}

#[test]
fn products_of_computed_matrices_are_packed_once_for_all_rows() {
    // More rows than one block: the panels are packed in a phase of their own.
    for (batch, m, n, k) in [(1, 500, 300, 90), (2, 300, 40, 400)] {
        let (a, b) = (noise(batch * m * k, 1), noise(batch * k * n, 2));
        let args = [
            Arg::tensor(&[batch, m, k], a.clone()),
            Arg::tensor(&[batch, k, n], b.clone()),
            Arg::out(&[batch, m, n]),
        ];
        let mut expected = Vec::new();
        for i in 0..batch {
            expected.extend(reference(&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], m, n, k).0);
        }
        for isa in available_isas() {
            let prepared = prepare("aten::bmm.out", &args, isa, &PackStore::new(), Epilogue::NONE).unwrap();
            assert!(prepared.scratch().shared > 0);
            let one = execute(&*prepared, &args, 1).unwrap().values;
            assert_close(&one, &expected, k, &format!("{isa:?}"));
            assert_eq!(bits(&execute(&*prepared, &args, 2).unwrap().values), bits(&one));
        }
    }
}

#[test]
fn what_does_not_fit_is_declined_or_refused() {
    let (m, n, k) = (4, 40, 20);
    let args = |added: Arg, residual: Arg| {
        [
            added,
            Arg::tensor(&[m, k], noise(m * k, 1)),
            Arg::tensor(&[k, n], noise(k * n, 2)),
            Arg::Number(1.0),
            Arg::Number(1.0),
            Arg::out(&[m, n]),
            residual,
        ]
    };
    let bias = Arg::tensor(&[n], noise(n, 3));
    let take = |epilogue: Epilogue, args: &[Arg]| {
        prepare("aten::addmm.out", args, best_isa(), &PackStore::new(), epilogue)
    };
    let row = args(bias.clone(), Arg::tensor(&[1, n], noise(n, 4)));
    assert!(take(Epilogue { residual: Some(6), ..Epilogue::NONE }, &row).is_none(), "a residual is no row");
    assert!(take(Epilogue { residual: Some(9), ..Epilogue::NONE }, &row).is_none(), "no such argument");
    let double = vec![Step { function: gelu_erf(), operands: vec![Operand::Input(1)] }];
    let post = Some(Arc::new(Chain::new(2, double).unwrap()));
    assert!(take(Epilogue { post, ..Epilogue::NONE }, &row).is_none(), "a chain of two inputs");
    // The bound fits, the shape in use does not.
    let less = Arg::Tensor(vec![n], vec![n - 1], noise(n - 1, 3));
    let wrong = args(less, Arg::out(&[m, n]));
    let e = execute_with_output(&*take(Epilogue::NONE, &wrong).unwrap(), &wrong, 1, 5).err().unwrap();
    assert!(e.to_string().contains("expands to [4, 40]"), "{e}");
}
