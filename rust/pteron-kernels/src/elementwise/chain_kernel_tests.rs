//! Fused chains against the same functions in f64, one element at a time, on every instruction set.

use super::chain::{Chain, Operand, Step};
use super::chain_kernel;
use super::function::Function;
use super::function_table::recognise;
use crate::grid_kernel::Preparation;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::numbers;
use pteron_core::{ArgSpec, Bool8, DType, DimOrder, Isa, PrepareContext, TensorSpec};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static CHAIN: RefCell<Option<Arc<Chain>>> = const { RefCell::new(None) };
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    CHAIN.with_borrow(|p| chain_kernel::prepare(ctx, p.as_ref().expect("a chain is set")))
}

fn call(chain: Chain, isa: Isa, args: Vec<CallArg>) -> Option<SingleCall> {
    CHAIN.set(Some(Arc::new(chain)));
    Some(SingleCall::new(prepare, &profile(isa)?, args).unwrap().expect("taken"))
}

fn function(operator: &str, dtypes: &[DType], numbers: &[i64]) -> Function {
    let tensor = |d: &DType| ArgSpec::Tensor(TensorSpec::contiguous(*d, &[1]).unwrap(), None);
    let mut args: Vec<_> = dtypes[..dtypes.len() - 1].iter().map(tensor).collect();
    args.extend(numbers.iter().map(|n| ArgSpec::Int(Some(*n))));
    args.push(tensor(&dtypes[dtypes.len() - 1]));
    recognise(operator, &args).unwrap().function
}

const F: DType = DType::Float32;

/// relu(a * b + c), b and c in any broadcast shape.
fn scale_shift_relu() -> Chain {
    let step = |function, operands: &[Operand]| Step { function, operands: operands.to_vec() };
    Chain::new(
        3,
        vec![
            step(function("aten::mul.out", &[F, F, F], &[]), &[Operand::Input(0), Operand::Input(1)]),
            step(function("aten::add.out", &[F, F, F], &[1]), &[Operand::Step(0), Operand::Input(2)]),
            step(function("aten::relu.out", &[F, F], &[]), &[Operand::Step(1)]),
        ],
    )
    .unwrap()
}

fn position(shape: &[usize], index: &[usize]) -> usize {
    let missing = index.len() - shape.len();
    shape.iter().enumerate().fold(0, |at, (d, n)| at * n + if *n == 1 { 0 } else { index[missing + d] })
}

fn index_of(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for d in (0..shape.len()).rev() {
        index[d] = at % shape[d];
        at /= shape[d];
    }
    index
}

#[test]
fn inputs_broadcast_in_any_way() {
    let cases: [(&[usize], &[usize], &[usize]); 8] = [
        (&[40_000], &[40_000], &[40_000]),
        (&[50, 700], &[700], &[50, 1]),
        (&[2, 16, 40, 33], &[16, 1, 1], &[]),
        (&[3, 1, 5], &[3, 4, 5], &[4, 1]),
        (&[1], &[3, 3], &[1, 3]),
        (&[], &[], &[]),
        (&[0, 4], &[4], &[1, 4]),
        (&[7, 1000, 3], &[3], &[7, 1000, 3]),
    ];
    for isa in Isa::ALL {
        for (sa, sb, sc) in cases {
            let data = |s: &[usize], seed| numbers(s.iter().product(), seed);
            let (a, b, c) = (data(sa, 1), data(sb, 2), data(sc, 3));
            let rank = sa.len().max(sb.len()).max(sc.len());
            let so: Vec<usize> = (0..rank)
                .map(|d| {
                    let at = |s: &[usize]| (d + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
                    [at(sa), at(sb), at(sc)].into_iter().find(|n| *n != 1).unwrap_or(1)
                })
                .collect();
            let t = |s: &[usize], v: &[f32]| CallArg::Tensor(HostTensor::new(s, v).unwrap());
            let out = CallArg::Tensor(HostTensor::zeros(F, &so).unwrap());
            let args = vec![t(sa, &a), t(sb, &b), t(sc, &c), out];
            let Some(mut call) = call(scale_shift_relu(), isa, args) else { continue };
            let grid = call.bind().unwrap();
            call.run(grid, true).unwrap();
            for (i, y) in call.output::<f32>(3).unwrap().into_iter().enumerate() {
                let x = index_of(&so, i);
                let want = (a[position(sa, &x)] * b[position(sb, &x)] + c[position(sc, &x)]).max(0.0);
                assert_eq!(y, want, "{isa:?} {sa:?} {sb:?} {sc:?} {i}");
            }
        }
    }
}

#[test]
fn the_output_may_be_an_input() {
    for isa in Isa::ALL {
        let (a, b) = (numbers(5000, 1), numbers(5000, 2));
        let t = |v: &[f32]| CallArg::Tensor(HostTensor::new(&[5000], v).unwrap());
        for shared in [0, 1] {
            let args = vec![
                t(&a),
                t(&b),
                CallArg::Tensor(HostTensor::new(&[], &[0.5f32]).unwrap()),
                CallArg::SameBytesAs(shared),
            ];
            let Some(mut call) = call(scale_shift_relu(), isa, args) else { continue };
            call.call().unwrap();
            for (i, y) in call.output::<f32>(3).unwrap().into_iter().enumerate() {
                assert_eq!(y, (a[i] * b[i] + 0.5).max(0.0), "{isa:?}");
            }
        }
    }
}

#[test]
fn conditions_and_answers_are_bools() {
    let step = |function, operands: &[Operand]| Step { function, operands: operands.to_vec() };
    let chain = || {
        Chain::new(
            3,
            vec![
                step(
                    function("aten::where.self_out", &[DType::Bool, F, F, F], &[]),
                    &[0, 1, 2].map(Operand::Input),
                ),
                step(function("aten::gt.Scalar_out", &[F, DType::Bool], &[1]), &[Operand::Step(0)]),
            ],
        )
    };
    // `gt.Scalar` has its number between the tensors.
    let chain = chain().unwrap();
    for isa in Isa::ALL {
        let n = 3000;
        let (a, b) = (numbers(n, 1), numbers(n, 2));
        let c: Vec<Bool8> = (0..n).map(|i| Bool8([0, 1, 255][i % 3])).collect();
        let t = |v: &[f32]| CallArg::Tensor(HostTensor::new(&[n], v).unwrap());
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[n], &c).unwrap()),
            t(&a),
            t(&b),
            CallArg::Tensor(HostTensor::zeros(DType::Bool, &[n]).unwrap()),
        ];
        let Some(mut call) = call(chain.clone(), isa, args) else { continue };
        call.call().unwrap();
        for (i, y) in call.output::<Bool8>(3).unwrap().into_iter().enumerate() {
            let chosen = if c[i].get() { a[i] } else { b[i] };
            assert_eq!(y.0, u8::from(chosen > 1.0), "{isa:?} {i}");
        }
    }
}

#[test]
fn memory_orders_may_differ_and_shapes_change() {
    let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let shape = [2, 3, 20, 30];
    let n = 3600;
    let (a, b) = (numbers(n, 1), numbers(3, 2));
    for isa in Isa::ALL {
        let args = vec![
            CallArg::Tensor(HostTensor::new(&shape, &a).unwrap()),
            CallArg::Tensor(HostTensor::new(&[3, 1, 1], &b).unwrap()),
            CallArg::Tensor(HostTensor::new(&[], &[1f32]).unwrap()),
            CallArg::Tensor(HostTensor::zeros_in_order(F, &shape, nhwc).unwrap()),
        ];
        let Some(mut call) = call(scale_shift_relu(), isa, args) else { continue };
        for images in [2, 1] {
            call.resize(0, &[images, 3, 20, 30]).unwrap();
            call.call().unwrap();
            let y = call.output::<f32>(3).unwrap();
            for (i, value) in a.iter().enumerate().take(images * 1800) {
                let x = index_of(&[images, 3, 20, 30], i);
                let at = ((x[0] * 20 + x[2]) * 30 + x[3]) * 3 + x[1];
                assert_eq!(y[at], (value * b[x[1]] + 1.0).max(0.0), "{isa:?} {i}");
            }
        }
        call.resize(1, &[2, 1, 1]).unwrap();
        let text = call.call().unwrap_err().to_string();
        assert!(text.contains("do not broadcast"), "{text}");
    }
}

#[test]
fn other_dtypes_and_counts_are_left_alone() {
    CHAIN.set(Some(Arc::new(scale_shift_relu())));
    let cpu = profile(Isa::Portable).unwrap();
    let t = |d| CallArg::Tensor(HostTensor::zeros(d, &[4]).unwrap());
    assert!(SingleCall::new(prepare, &cpu, vec![t(F), t(F), t(DType::Int64), t(F)]).unwrap().is_none());
    assert!(SingleCall::new(prepare, &cpu, vec![t(F), t(F), t(F)]).unwrap().is_none());
}
