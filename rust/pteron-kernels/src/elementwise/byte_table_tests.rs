//! Chains from bytes to bytes as tables: every byte, on every instruction set, against the chain itself.

use super::chain::{Chain, Operand, Step};
use super::chain_kernel;
use super::function::Function;
use super::function_table::recognise;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::{ArgSpec, DType, DimOrder, Element, Isa, TensorSpec};
use std::sync::Arc;

const F: DType = DType::Float32;

fn tensor(dtype: DType) -> ArgSpec<'static> {
    ArgSpec::Tensor(TensorSpec::contiguous(dtype, &[1]).unwrap(), None)
}

fn quantisation(operator: &str, dtypes: [DType; 2], scale: f64, stored: DType) -> Function {
    let numbers = if stored == DType::Int8 { [-7, -128, 127] } else { [100, 0, 255] };
    let mut args = vec![tensor(dtypes[0]), ArgSpec::Double(Some(scale))];
    args.extend(numbers.map(|v| ArgSpec::Int(Some(v))));
    args.push(ArgSpec::Int(Some(i64::from(stored.code()))));
    if operator.contains("dequantize") {
        args.push(ArgSpec::None);
    }
    args.push(tensor(dtypes[1]));
    recognise(operator, &args).unwrap().function
}

/// `quantise(v * sigmoid(v))` of dequantised bytes v; or `v * sigmoid(v)`.
fn steps(from: DType, to: Option<DType>) -> Vec<Step> {
    let step = |function, operands: &[Operand]| Step { function, operands: operands.to_vec() };
    let function = |name: &str, inputs: usize| {
        let args: Vec<_> = (0..=inputs).map(|_| tensor(F)).collect();
        recognise(name, &args).unwrap().function
    };
    let read = quantisation("quantized_decomposed::dequantize_per_tensor.out", [from, F], 0.05, from);
    let mut steps = vec![
        step(read, &[Operand::Input(0)]),
        step(function("aten::sigmoid.out", 1), &[Operand::Step(0)]),
        step(function("aten::mul.out", 2), &[Operand::Step(0), Operand::Step(1)]),
    ];
    if let Some(to) = to {
        let write = quantisation("quantized_decomposed::quantize_per_tensor.out", [F, to], 0.011, to);
        steps.push(step(write, &[Operand::Step(2)]));
    }
    steps
}

fn call(chain: Vec<Step>, isa: Isa, args: Vec<CallArg>) -> Option<SingleCall> {
    let chain = Arc::new(Chain::new(1, chain).unwrap());
    let cpu = profile(isa)?;
    Some(SingleCall::of(|ctx| chain_kernel::prepare(ctx, &chain), &cpu, args).unwrap().expect("is taken"))
}

/// What the chain up to the last step gives in f32, then quantised by hand.
fn check<A: Element, B: Element + TryFrom<i32> + PartialEq + std::fmt::Debug>(bytes: &[A], to: [i32; 3])
where
    B::Error: std::fmt::Debug,
{
    let channels_last = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    for isa in Isa::ALL {
        for n in [0, 1, 31, 32, 33, 256, bytes.len()] {
            let x = &bytes[..n];
            let args = |out: HostTensor| {
                vec![CallArg::Tensor(HostTensor::new(&[n], x).unwrap()), CallArg::Tensor(out)]
            };
            let floats = HostTensor::zeros(F, &[n]).unwrap();
            let Some(mut floats) = call(steps(A::DTYPE, None), isa, args(floats)) else { continue };
            floats.call().unwrap();
            let [zero, low, high] = to;
            let inverse = (1.0 / 0.011f64) as f32;
            let want: Vec<B> = floats
                .output::<f32>(1)
                .unwrap()
                .iter()
                .map(|v| {
                    B::try_from((((v * inverse).round_ties_even() as i32) + zero).clamp(low, high)).unwrap()
                })
                .collect();
            let out = HostTensor::zeros(B::DTYPE, &[n]).unwrap();
            let mut table = call(steps(A::DTYPE, Some(B::DTYPE)), isa, args(out)).unwrap();
            assert!(table.prepared().name().contains(".table."), "{}", table.prepared().name());
            table.call().unwrap();
            assert_eq!(table.output::<B>(1).unwrap(), want, "{isa:?} {n}");
        }
        // An output in another memory order.
        let shape = [2, 5, 61, 37];
        let n: usize = shape.iter().product();
        let x: Vec<A> = bytes.iter().copied().cycle().take(n).collect();
        let both = [DimOrder::contiguous(4), channels_last].map(|order| {
            let args = vec![
                CallArg::Tensor(HostTensor::new(&shape, &x).unwrap()),
                CallArg::Tensor(HostTensor::zeros_in_order(B::DTYPE, &shape, order).unwrap()),
            ];
            let mut call = call(steps(A::DTYPE, Some(B::DTYPE)), isa, args)?;
            call.call().unwrap();
            Some(call.output::<B>(1).unwrap().to_vec())
        });
        let [Some(rows), Some(pixels)] = both else { continue };
        for (i, value) in rows.iter().enumerate() {
            let (image, channel, pixel) = (i / (5 * 2257), i / 2257 % 5, i % 2257);
            assert_eq!(pixels[(image * 2257 + pixel) * 5 + channel], *value, "{isa:?} {i}");
        }
    }
}

#[test]
fn every_byte_has_what_the_chain_makes_of_it() {
    let signed: Vec<i8> = (0..1000).map(|i| (i * 89 + i / 256) as i8).collect();
    let unsigned: Vec<u8> = signed.iter().map(|v| *v as u8).collect();
    check::<i8, i8>(&signed, [-7, -128, 127]);
    check::<i8, u8>(&signed, [100, 0, 255]);
    check::<u8, i8>(&unsigned, [-7, -128, 127]);
    check::<u8, u8>(&unsigned, [100, 0, 255]);
}
