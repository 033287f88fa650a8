//! Products of quantised tensors with floats against the same arithmetic one number at a time, on every instruction set.

use super::blocks::Stored;
use super::chain::{Chain, Operand, Step};
use super::chain_kernel;
use super::function::Function;
use super::function_table::recognise;
use super::quantised_product::QuantisedProduct;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::numbers;
use pteron_core::{ArgSpec, DType, DimOrder, Element, Isa, TensorSpec};
use std::sync::Arc;

const F: DType = DType::Float32;
const SCALES: [f64; 2] = [0.031, 0.0113];

fn tensor(dtype: DType) -> ArgSpec<'static> {
    ArgSpec::Tensor(TensorSpec::contiguous(dtype, &[1]).unwrap(), None)
}

/// Zero point, least and greatest number.
fn range(stored: DType) -> [i64; 3] {
    if stored == DType::Int8 { [-9, -128, 127] } else { [119, 0, 255] }
}

fn quantisation(operator: &str, dtypes: [DType; 2], scale: f64, stored: DType) -> Function {
    let mut args = vec![tensor(dtypes[0]), ArgSpec::Double(Some(scale))];
    args.extend(range(stored).map(|v| ArgSpec::Int(Some(v))));
    args.push(ArgSpec::Int(Some(i64::from(stored.code()))));
    if operator.contains("dequantize") {
        args.push(ArgSpec::None);
    }
    args.push(tensor(dtypes[1]));
    recognise(operator, &args).unwrap().function
}

/// `quantise(dequantise(input) * other)`.
fn steps(stored: DType, input: u8) -> Vec<Step> {
    let step = |function, operands: &[Operand]| Step { function, operands: operands.to_vec() };
    let read =
        quantisation("quantized_decomposed::dequantize_per_tensor.out", [stored, F], SCALES[0], stored);
    let write = quantisation("quantized_decomposed::quantize_per_tensor.out", [F, stored], SCALES[1], stored);
    let mul = recognise("aten::mul.out", &[tensor(F), tensor(F), tensor(F)]).unwrap().function;
    let mut operands = [Operand::Step(0), Operand::Input(1 - input)];
    if input == 1 {
        operands.reverse();
    }
    vec![step(read, &[Operand::Input(input)]), step(mul, &operands), step(write, &[Operand::Step(1)])]
}

fn expected(q: i64, factor: f32, stored: DType) -> i64 {
    let [zero, low, high] = range(stored);
    let real = (q as f32 - zero as f32) * SCALES[0] as f32 * factor;
    if real.is_nan() {
        return 0;
    }
    let nearest = (real * (1.0 / SCALES[1]) as f32).round_ties_even() + zero as f32;
    (nearest as i64).clamp(low, high)
}

fn check<T: Element>(byte: fn(u8) -> T, value: fn(T) -> i64) {
    let channels_last = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let rows = DimOrder::contiguous(4);
    let whole = [2, 5, 61, 37];
    let n: usize = whole.iter().product();
    let x: Vec<T> = (0..n).map(|i| byte((i * 89 + i / 256) as u8)).collect();
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for (second, order) in [
            (whole, rows),
            ([1, 5, 1, 1], rows),
            (whole, channels_last),
            ([1, 5, 1, 1], channels_last),
            ([1, 1, 1, 1], rows),
        ] {
            for input in [0, 1] {
                let mut factors = numbers(second.iter().product(), 5);
                factors[0] = if input == 0 { f32::NAN } else { f32::INFINITY };
                let chain = Arc::new(Chain::new(2, steps(T::DTYPE, input)).unwrap());
                let mut args = vec![
                    CallArg::Tensor(HostTensor::new(&whole, &x).unwrap()),
                    CallArg::Tensor(HostTensor::new(&second, &factors).unwrap()),
                ];
                if input == 1 {
                    args.reverse();
                }
                args.push(CallArg::Tensor(HostTensor::zeros_in_order(T::DTYPE, &whole, order).unwrap()));
                let mut call =
                    SingleCall::of(|ctx| chain_kernel::prepare(ctx, &chain), &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                let found = call.output::<T>(2).unwrap();
                for (i, q) in x.iter().enumerate() {
                    let (image, channel, pixel) = (i / (5 * 2257), i / 2257 % 5, i % 2257);
                    let at = if order == rows { i } else { (image * 2257 + pixel) * 5 + channel };
                    let factor = match factors.len() {
                        1 => factors[0],
                        5 => factors[channel],
                        _ => factors[i],
                    };
                    let want = expected(value(*q), factor, T::DTYPE);
                    assert_eq!(value(found[at]), want, "{isa:?} {second:?} {input} {i}");
                }
            }
        }
    }
}

#[test]
fn products_have_the_numbers_of_their_steps() {
    check::<i8>(|b| b as i8, i64::from);
    check::<u8>(|b| b, i64::from);
}

#[test]
fn other_chains_are_no_products() {
    let bytes = [Stored::Int8, Stored::Single];
    let is_product = |steps: Vec<Step>, operands: &[Stored], result| {
        QuantisedProduct::of(&Chain::new(2, steps).unwrap(), operands, result).is_some()
    };
    assert!(is_product(steps(DType::Int8, 0), &bytes, Stored::Int8));
    assert!(is_product(steps(DType::Int8, 1), &[Stored::Single, Stored::Int8], Stored::Int8));
    assert!(!is_product(steps(DType::Int8, 1), &bytes, Stored::Int8));
    assert!(!is_product(steps(DType::Int8, 0), &bytes, Stored::UInt8));
    assert!(!is_product(steps(DType::Int8, 0), &[Stored::Int8, Stored::Bool], Stored::Int8));
    let mut squared = steps(DType::Int8, 0);
    squared[1].operands = vec![Operand::Step(0), Operand::Step(0)];
    assert!(!is_product(squared, &bytes, Stored::Int8));
    let mut early = steps(DType::Int8, 0);
    early[2].operands = vec![Operand::Step(0)];
    assert!(!is_product(early, &bytes, Stored::Int8));
}
