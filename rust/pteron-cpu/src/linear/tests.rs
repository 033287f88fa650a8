//! Linear operators against sums in f64, over instruction sets, threads and layouts.
#![allow(unsafe_code, reason = "tests play the caller's part in the contracts of kernels")]
use super::*;
use crate::epilogue::Epilogue;
use crate::executor::{Executor, SessionScratch};
use crate::gemm::tests::{noise, reference};
use crate::{Pool, stop_word};
use pteron_core::{
    AlignedBuffer, ArgSpec, Args, BindArgs, ConstantKey, ConstantView, DType, DimOrder, Dims, Dynamism, Isa,
    PackStore, PrepareContext, Prepared, Result, TensorSlot, TensorSpec, Value, ValueId,
};
use pteron_kernels::cpu_detect;
use std::sync::atomic::AtomicU32;

/// An argument of a test call.
#[derive(Clone)]
pub(super) enum Arg {
    None,
    Number(f64),
    /// Upper-bound shape and values of the shape in use.
    Tensor(Vec<usize>, Vec<usize>, Vec<f32>),
    /// Shape, strides into the storage, storage.
    Constant([usize; 2], [usize; 2], Vec<f32>),
}

impl Arg {
    pub(super) fn tensor(shape: &[usize], values: Vec<f32>) -> Arg {
        Arg::Tensor(shape.to_vec(), shape.to_vec(), values)
    }
    pub(super) fn out(shape: &[usize]) -> Arg {
        Arg::tensor(shape, vec![f32::NAN; shape.iter().product()])
    }
    fn storage(&self) -> Option<(&[usize], &[usize], &[f32])> {
        match self {
            Arg::Tensor(bound, shape, values) => Some((bound, shape, values)),
            Arg::Constant(shape, _, values) => Some((shape, shape, values)),
            _ => None,
        }
    }
    fn spec(&self) -> ArgSpec<'_> {
        match self {
            Arg::None => ArgSpec::None,
            Arg::Number(x) => ArgSpec::Double(Some(*x)),
            Arg::Tensor(bound, shape, _) => {
                let mut spec = TensorSpec::contiguous(DType::Float32, bound).unwrap();
                if bound != shape {
                    spec.dynamism = Dynamism::Bounded;
                }
                ArgSpec::Tensor(spec, None)
            }
            Arg::Constant(shape, strides, values) => {
                let view = ConstantView {
                    key: ConstantKey { origin: 0, offset: 0, nbytes: size_of_val(&values[..]) as u64 },
                    data: bytemuck::cast_slice(values),
                    dtype: DType::Float32,
                    offset: 0,
                    shape: Dims::new(shape).unwrap(),
                    strides: Dims::new(strides).unwrap(),
                };
                ArgSpec::Tensor(TensorSpec::contiguous(DType::Float32, shape).unwrap(), Some(view))
            }
        }
    }
}

pub(super) struct Outcome {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

pub(super) fn prepare(
    op: &str,
    args: &[Arg],
    isa: Isa,
    packs: &PackStore,
    epilogue: Epilogue,
) -> Option<Box<dyn Prepared>> {
    let specs: Vec<ArgSpec<'_>> = args.iter().map(Arg::spec).collect();
    let cpu = cpu_detect::profile_for(isa).unwrap();
    prepare_linear_like(&PrepareContext::new(&specs, packs, &cpu), op, &epilogue).unwrap()
}

/// Binds and runs as the executor would; the last argument is the output.
pub(super) fn execute(prepared: &dyn Prepared, args: &[Arg], threads: usize) -> Result<Outcome> {
    execute_with_output(prepared, args, threads, args.len() - 1)
}

/// As [`execute`], with the output at position `out`.
pub(super) fn execute_with_output(
    prepared: &dyn Prepared,
    args: &[Arg],
    threads: usize,
    out: usize,
) -> Result<Outcome> {
    let mut buffers = Vec::new();
    let mut values = Vec::new();
    for (i, arg) in args.iter().enumerate() {
        let Some((bound, shape, numbers)) = arg.storage() else {
            values.push(match arg {
                Arg::Number(x) => Value::Double(*x),
                _ => Value::None,
            });
            continue;
        };
        let mut spec = TensorSpec::contiguous(DType::Float32, bound)?;
        spec.dynamism = Dynamism::Bounded;
        let mut slot = TensorSlot::new(&spec)?;
        let mut buffer = AlignedBuffer::zeroed(spec.nbytes()?.max(64))?;
        // Bytes that must not be touched are poisoned by leaving constants out when they are packed.
        if prepared.needs(i) {
            buffer.as_mut_elements::<f32>()[..numbers.len()].copy_from_slice(numbers);
        } else {
            buffer.as_mut_elements::<f32>().fill(f32::NAN);
        }
        // SAFETY: the buffer lives until the end of this function, longer than the slot's use.
        unsafe { slot.set_data(buffer.as_ptr(), buffer.len()) };
        slot.resize(shape)?;
        buffers.push(buffer);
        values.push(Value::Tensor(Box::new(slot)));
    }
    let ids: Vec<ValueId> = (0..values.len() as u32).map(ValueId).collect();
    let mut bound = prepared.new_bound();
    // SAFETY: every slot points to its own memory.
    let grid = prepared.bind(&mut unsafe { BindArgs::new(&mut values, &ids) }, &mut bound)?;
    let mut scratch = SessionScratch::new(threads, prepared.scratch())?;
    let (pool, stop) = (Pool::new(threads), AtomicU32::new(stop_word::RUNNING));
    let executor = Executor { pool: &pool, max_threads: threads, stop: &stop, watch: None, workers: None };
    // SAFETY: as above; grid, bound and scratch belong to this call.
    unsafe { executor.run_bound(prepared, &bound, &Args::new(&values, &ids), &grid, &mut scratch)? };
    let out = values.get(out).and_then(Value::as_tensor).unwrap().view();
    Ok(Outcome {
        name: prepared.name().to_string(),
        shape: out.shape().to_vec(),
        values: out.as_slice::<f32>()?.to_vec(),
    })
}

fn run(op: &str, args: &[Arg], isa: Isa) -> Outcome {
    let prepared = prepare(op, args, isa, &PackStore::new(), Epilogue::NONE).expect("taken");
    execute(&*prepared, args, 1).unwrap()
}

#[track_caller]
pub(super) fn assert_close(got: &[f32], expected: &[f64], k: usize, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (x, y)) in got.iter().zip(expected).enumerate() {
        let bound = 1e-6 * (2.0 + k as f64).sqrt() + 1e-6 * y.abs();
        assert!((f64::from(*x) - y).abs() <= bound, "{what} at {i}: {x} for {y}");
    }
}

#[test]
fn addmm_takes_permuted_and_plain_constants_and_computed_weights() {
    for isa in cpu_detect::available_isas() {
        for (m, n, k) in [(1, 5, 3), (4, 384, 96), (33, 40, 700), (0, 4, 4), (3, 4, 0), (2, 0, 3)] {
            let (a, b, bias) = (noise(m * k, 1), noise(k * n, 2), noise(n, 3));
            let (sums, _) = reference(&a, &b, m, n, k);
            let expected: Vec<f64> =
                sums.iter().enumerate().map(|(i, x)| x + f64::from(bias[i % n])).collect();
            let weights = [
                // The storage of a permuted weight is its N x K original.
                Arg::Constant([k, n], [1, k], transposed(&b, k, n)),
                Arg::Constant([k, n], [n, 1], b.clone()),
                Arg::tensor(&[k, n], b.clone()),
            ];
            for (i, weight) in weights.into_iter().enumerate() {
                let args = [
                    Arg::tensor(&[n], bias.clone()),
                    Arg::tensor(&[m, k], a.clone()),
                    weight,
                    Arg::Number(1.0),
                    Arg::Number(1.0),
                    Arg::out(&[m, n]),
                ];
                let got = run("aten::addmm.out", &args, isa);
                assert_eq!(got.shape, [m, n]);
                assert_close(&got.values, &expected, k, &format!("{} {m}x{n}x{k}", got.name));
                let format = if i < 2 { "f32_nr32_v1" } else { "f32" };
                assert_eq!(got.name, format!("gemm.{format}.{}", isa.name()));
            }
        }
    }
}

/// The N x K storage whose transposed view is `b` (K x N).
fn transposed(b: &[f32], k: usize, n: usize) -> Vec<f32> {
    (0..n * k).map(|i| b[(i % k) * n + i / k]).collect()
}

#[test]
fn beta_zero_ignores_even_nan_and_a_full_matrix_is_added() {
    let (m, n, k) = (9, 37, 50);
    let (a, b, full) = (noise(m * k, 1), noise(k * n, 2), noise(m * n, 3));
    let (sums, _) = reference(&a, &b, m, n, k);
    for isa in cpu_detect::available_isas() {
        let call = |added: Arg, beta: f64| {
            let weight = Arg::Constant([k, n], [n, 1], b.clone());
            let tail = [Arg::Number(beta), Arg::Number(1.0), Arg::out(&[m, n])];
            let args: Vec<Arg> =
                [added, Arg::tensor(&[m, k], a.clone()), weight].into_iter().chain(tail).collect();
            run("aten::addmm.out", &args, isa).values
        };
        assert_close(&call(Arg::tensor(&[n], vec![f32::NAN; n]), 0.0), &sums, k, "beta 0");
        let expected: Vec<f64> = sums.iter().zip(&full).map(|(x, y)| x + f64::from(*y)).collect();
        assert_close(&call(Arg::tensor(&[m, n], full.clone()), 1.0), &expected, k, "full");
    }
}

#[test]
fn linear_has_leading_dimensions_an_optional_bias_and_a_clamp() {
    let (m, n, k) = (6, 40, 24);
    let (a, b, bias) = (noise(m * k, 4), noise(k * n, 5), noise(n, 6));
    let (sums, _) = reference(&a, &b, m, n, k);
    let weight = Arg::Constant([n, k], [k, 1], transposed(&b, k, n));
    for isa in cpu_detect::available_isas() {
        for (shape, out) in [(vec![2, 3, k], vec![2, 3, n]), (vec![6, k], vec![6, n])] {
            let no_bias = [Arg::tensor(&shape, a.clone()), weight.clone(), Arg::None, Arg::out(&out)];
            let got = run("aten::linear.out", &no_bias, isa);
            assert_eq!(got.shape, out);
            assert_close(&got.values, &sums, k, "no bias");
            let args = [no_bias[0].clone(), weight.clone(), Arg::tensor(&[n], bias.clone()), Arg::out(&out)];
            let prepared =
                prepare("aten::linear.out", &args, isa, &PackStore::new(), Epilogue::RELU).unwrap();
            assert_eq!(prepared.name(), format!("gemm.f32_nr32_v1.{}+clamp", isa.name()));
            assert!(!prepared.needs(1) && prepared.needs(0) && prepared.needs(2));
            let expected: Vec<f64> =
                sums.iter().enumerate().map(|(i, x)| (x + f64::from(bias[i % n])).max(0.0)).collect();
            assert_close(&execute(&*prepared, &args, 1).unwrap().values, &expected, k, "relu");
        }
        let one = [Arg::tensor(&[k], a[..k].to_vec()), weight.clone(), Arg::None, Arg::out(&[n])];
        assert_close(&run("aten::linear.out", &one, isa).values, &sums[..n], k, "vector");
        let computed = [
            Arg::tensor(&[6, k], a.clone()),
            Arg::tensor(&[n, k], transposed(&b, k, n)),
            Arg::None,
            Arg::out(&[6, n]),
        ];
        assert_close(&run("aten::linear.out", &computed, isa).values, &sums, k, "computed weight");
    }
}

#[test]
fn batched_products_and_their_sum() {
    for isa in cpu_detect::available_isas() {
        for (batch, m, n, k) in
            [(12, 16, 16, 32), (3, 50, 33, 7), (2, 1, 64, 400), (0, 2, 2, 2), (5, 2, 3, 0)]
        {
            let (a, b) = (noise(batch * m * k, 1), noise(batch * k * n, 2));
            let added = noise(batch * m * n, 3);
            let mut expected = Vec::new();
            for i in 0..batch {
                let (a, b) = (&a[i * m * k..][..m * k], &b[i * k * n..][..k * n]);
                expected.extend(reference(a, b, m, n, k).0);
            }
            let (left, right) = (Arg::tensor(&[batch, m, k], a), Arg::tensor(&[batch, k, n], b));
            let args = [left.clone(), right.clone(), Arg::out(&[batch, m, n])];
            assert_close(&run("aten::bmm.out", &args, isa).values, &expected, k, "bmm");
            let args = [
                Arg::tensor(&[batch, m, n], added.clone()),
                left,
                right,
                Arg::Number(1.0),
                Arg::Number(1.0),
                Arg::out(&[batch, m, n]),
            ];
            let expected: Vec<f64> = expected.iter().zip(&added).map(|(x, y)| x + f64::from(*y)).collect();
            assert_close(&run("aten::baddbmm.out", &args, isa).values, &expected, k, "baddbmm");
        }
    }
}

#[test]
fn one_and_more_threads_give_the_same_bytes() {
    for isa in cpu_detect::available_isas() {
        let (m, n, k) = (150, 260, 500);
        let (a, b) = (noise(m * k, 1), noise(k * n, 2));
        for weight in [Arg::Constant([k, n], [n, 1], b.clone()), Arg::tensor(&[k, n], b.clone())] {
            let args = [Arg::tensor(&[m, k], a.clone()), weight, Arg::out(&[m, n])];
            let prepared = prepare("aten::mm.out", &args, isa, &PackStore::new(), Epilogue::NONE).unwrap();
            let one = execute(&*prepared, &args, 1).unwrap().values;
            for threads in [2, 3] {
                let more = execute(&*prepared, &args, threads).unwrap().values;
                assert!(one.iter().zip(&more).all(|(x, y)| x.to_bits() == y.to_bits()), "{isa:?} {threads}");
            }
        }
    }
}

#[test]
fn rows_may_change_between_calls_up_to_the_bound() {
    let (bound, n, k) = (64, 70, 40);
    let (a, b) = (noise(bound * k, 1), noise(k * n, 2));
    for isa in cpu_detect::available_isas() {
        let weight = Arg::Constant([k, n], [n, 1], b.clone());
        let args = |m: usize| {
            let x = Arg::Tensor(vec![bound, k], vec![m, k], a[..m * k].to_vec());
            [x, weight.clone(), Arg::Tensor(vec![bound, n], vec![0, n], vec![])]
        };
        let prepared = prepare("aten::mm.out", &args(7), isa, &PackStore::new(), Epilogue::NONE).unwrap();
        for m in [64, 1, 0, 13] {
            let got = execute(&*prepared, &args(m), 2).unwrap();
            assert_eq!(got.shape, [m, n]);
            assert_close(&got.values, &reference(&a[..m * k], &b, m, n, k).0, k, "dynamic rows");
        }
    }
}

#[test]
fn call_sites_share_one_packed_copy() {
    let (n, k) = (64, 32);
    let storage = noise(n * k, 1);
    let packs = PackStore::new();
    let isa = cpu_detect::best_isa();
    // The same bytes as the weight of a `linear` and as the permuted constant of an `addmm`.
    let linear = [
        Arg::tensor(&[4, k], noise(4 * k, 2)),
        Arg::Constant([n, k], [k, 1], storage.clone()),
        Arg::None,
        Arg::out(&[4, n]),
    ];
    let mm = [linear[0].clone(), Arg::Constant([k, n], [1, k], storage), Arg::out(&[4, n])];
    let one = prepare("aten::linear.out", &linear, isa, &packs, Epilogue::NONE).unwrap();
    let two = prepare("aten::mm.out", &mm, isa, &packs, Epilogue::RELU).unwrap();
    assert_eq!(packs.totals().made, (1, n * k * 4));
    let (one, two) = (execute(&*one, &linear, 1).unwrap(), execute(&*two, &mm, 1).unwrap());
    assert!(one.values.iter().zip(&two.values).all(|(x, y)| x.max(0.0) == *y));
}

#[test]
fn other_cases_are_left_to_the_next_kernel() {
    let isa = cpu_detect::best_isa();
    let cpu = cpu_detect::profile_for(isa).unwrap();
    let packs = PackStore::new();
    let tensor = |shape: &[usize]| TensorSpec::contiguous(DType::Float32, shape).unwrap();
    let taken = |specs: Vec<TensorSpec>, numbers: [f64; 2], op: &str| {
        let mut args: Vec<ArgSpec<'_>> = specs.into_iter().map(|s| ArgSpec::Tensor(s, None)).collect();
        if op.contains("addmm") {
            args.splice(3..3, numbers.map(|x| ArgSpec::Double(Some(x))));
        }
        let ctx = PrepareContext::new(&args, &packs, &cpu);
        prepare_linear_like(&ctx, op, &Epilogue::NONE).unwrap().is_some()
    };
    let addmm = |bias: &[usize]| vec![tensor(bias), tensor(&[2, 3]), tensor(&[3, 4]), tensor(&[2, 4])];
    assert!(taken(addmm(&[4]), [1.0, 1.0], "aten::addmm.out"));
    assert!(taken(addmm(&[1, 4]), [1.0, 1.0], "aten::addmm.out"));
    assert!(taken(addmm(&[4]), [2.0, 0.5], "aten::addmm.out"));
    assert!(!taken(addmm(&[1, 2, 4]), [1.0, 1.0], "aten::addmm.out"), "more dimensions than the result");
    let mut double = tensor(&[2, 3]);
    double.dtype = DType::Float64;
    assert!(!taken(vec![double, tensor(&[3, 4]), tensor(&[2, 4])], [1.0; 2], "aten::mm.out"), "dtype");
    let mut columns_first = tensor(&[2, 3]);
    columns_first.dim_order = DimOrder::new(&[1, 0]).unwrap();
    assert!(!taken(vec![columns_first, tensor(&[3, 4]), tensor(&[2, 4])], [1.0; 2], "aten::mm.out"), "order");
}

#[test]
fn shapes_that_do_not_fit_are_errors_that_say_so() {
    let args = [Arg::tensor(&[2, 3], noise(6, 1)), Arg::tensor(&[5, 4], noise(20, 2)), Arg::out(&[2, 4])];
    let prepared = prepare("aten::mm.out", &args, Isa::Portable, &PackStore::new(), Epilogue::NONE).unwrap();
    let e = execute(&*prepared, &args, 1).err().unwrap().to_string();
    assert!(e.contains("aten::mm.out") && e.contains("5 columns") && e.contains("[2, 3]"), "{e}");
    let packs = PackStore::new();
    let cpu = cpu_detect::profile_for(Isa::Portable).unwrap();
    let ctx = PrepareContext::new(&[], &packs, &cpu);
    let e = prepare_linear_like(&ctx, "aten::relu.out", &Epilogue::NONE).err().unwrap().to_string();
    assert!(e.contains("aten::relu.out"), "{e}");
}

#[test]
fn the_table_parses() {
    for kernel in KERNELS {
        let schema = pteron_core::Schema::parse(kernel.with_schema().unwrap().schema).unwrap();
        assert_eq!(schema.outputs().count(), 1, "{}", kernel.operator);
    }
}
