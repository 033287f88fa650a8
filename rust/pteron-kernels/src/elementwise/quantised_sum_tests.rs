//! Sums of quantised tensors against the same arithmetic one number at a time, on every instruction set.

use super::chain::{Chain, Operand, Step};
use super::chain_kernel;
use super::function::Function;
use super::function_table::recognise;
use super::quantised_sum::QuantisedSum;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::{ArgSpec, DType, DimOrder, Element, Isa, TensorSpec};
use std::sync::Arc;

const F: DType = DType::Float32;
/// Scale and zero point of the operands and of the result.
const SCHEMES: [(f64, i64); 3] = [(0.031, 5), (0.27, -11), (0.2, 3)];

fn tensor(dtype: DType) -> ArgSpec<'static> {
    ArgSpec::Tensor(TensorSpec::contiguous(dtype, &[1]).unwrap(), None)
}

fn quantisation(operator: &str, dtypes: [DType; 2], which: usize, stored: DType) -> Function {
    let (scale, zero) = SCHEMES[which];
    let (zero, low, high) = if stored == DType::Int8 { (zero, -128, 127) } else { (zero + 128, 0, 255) };
    let numbers = [zero, low, high, i64::from(stored.code())].map(|v| ArgSpec::Int(Some(v)));
    let mut args = vec![tensor(dtypes[0]), ArgSpec::Double(Some(scale))];
    args.extend(numbers);
    if operator.contains("dequantize") {
        args.push(ArgSpec::None);
    }
    args.push(tensor(dtypes[1]));
    recognise(operator, &args).unwrap().function
}

fn steps(stored: DType, between: Option<Function>, alpha: i64) -> Vec<Step> {
    let read =
        |which| quantisation("quantized_decomposed::dequantize_per_tensor.out", [stored, F], which, stored);
    let sum = [tensor(F), tensor(F), ArgSpec::Int(Some(alpha)), tensor(F)];
    let sum = recognise("aten::add.out", &sum).unwrap().function;
    let step = |function, operands: &[Operand]| Step { function, operands: operands.to_vec() };
    let mut steps = vec![
        step(read(0), &[Operand::Input(0)]),
        step(read(1), &[Operand::Input(1)]),
        step(sum, &[Operand::Step(1), Operand::Step(0)]),
    ];
    steps.extend(between.map(|f| step(f, &[Operand::Step(2)])));
    let last = Operand::Step(steps.len() as u8 - 1);
    let write = quantisation("quantized_decomposed::quantize_per_tensor.out", [F, stored], 2, stored);
    steps.push(step(write, &[last]));
    steps
}

fn relu() -> Function {
    recognise("aten::relu.out", &[tensor(F), tensor(F)]).unwrap().function
}

/// A number that wraps into the range of `T` from any other.
trait Byte: Element {
    fn wrapped(v: i64) -> Self;
    fn value(self) -> i64;
}

impl Byte for i8 {
    fn wrapped(v: i64) -> i8 {
        v as i8
    }
    fn value(self) -> i64 {
        i64::from(self)
    }
}

impl Byte for u8 {
    fn wrapped(v: i64) -> u8 {
        v as u8
    }
    fn value(self) -> i64 {
        i64::from(self)
    }
}

fn expected<T: Byte>(x: T, y: T, has_relu: bool) -> i64 {
    let shift = if T::DTYPE == DType::Int8 { 0 } else { 128 };
    let real = |v: T, (scale, zero): (f64, i64)| (v.value() as f32 - (zero + shift) as f32) * scale as f32;
    let sum = real(x, SCHEMES[0]) + real(y, SCHEMES[1]);
    let sum = if has_relu { sum.max(0.0) } else { sum };
    let (scale, zero) = SCHEMES[2];
    let nearest = (sum * (1.0 / scale) as f32).round_ties_even() + (zero + shift) as f32;
    (nearest as i64).clamp(shift - 128, shift + 127)
}

fn check<T: Byte>() {
    let channels_last = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let rows = DimOrder::contiguous(4);
    let whole = [2, 5, 61, 37];
    // A stretch of several chunks, a channel's number, and two memory orders.
    let cases = [(whole, rows), ([1, 5, 1, 1], rows), (whole, channels_last), ([1, 1, 1, 1], channels_last)];
    for isa in Isa::ALL {
        for (second, out_order) in cases {
            for between in [None, Some(relu())] {
                let n: usize = whole.iter().product();
                let m: usize = second.iter().product();
                let x: Vec<T> = (0..n as i64).map(|i| T::wrapped(i * 89 + i / 256)).collect();
                let y: Vec<T> = (0..m as i64).map(|i| T::wrapped(i * 53 + 7)).collect();
                let chain = Arc::new(Chain::new(2, steps(T::DTYPE, between, 1)).unwrap());
                assert!(QuantisedSum::of(&chain).is_some());
                let Some(cpu) = profile(isa) else { continue };
                let args = vec![
                    CallArg::Tensor(HostTensor::new(&whole, &x).unwrap()),
                    CallArg::Tensor(HostTensor::new(&second, &y).unwrap()),
                    CallArg::Tensor(HostTensor::zeros_in_order(T::DTYPE, &whole, out_order).unwrap()),
                ];
                let mut call =
                    SingleCall::of(|ctx| chain_kernel::prepare(ctx, &chain), &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                let found = call.output::<T>(2).unwrap();
                for (i, x) in x.iter().enumerate() {
                    let (image, channel, pixel) = (i / (5 * 2257), i / 2257 % 5, i % 2257);
                    let at = if out_order == rows { i } else { (image * 2257 + pixel) * 5 + channel };
                    let y = match m {
                        1 => y[0],
                        5 => y[channel],
                        _ => y[i],
                    };
                    assert_eq!(
                        found[at].value(),
                        expected(*x, y, between.is_some()),
                        "{isa:?} {second:?} {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn sums_have_the_numbers_of_their_steps() {
    check::<i8>();
    check::<u8>();
}

#[test]
fn other_chains_are_no_sums() {
    let is_sum = |steps: Vec<Step>| QuantisedSum::of(&Chain::new(2, steps).unwrap()).is_some();
    assert!(is_sum(steps(DType::Int8, None, 1)));
    assert!(!is_sum(steps(DType::Int8, None, 2)));
    let mut doubled = steps(DType::Int8, None, 1);
    doubled[2].operands = vec![Operand::Step(0), Operand::Step(0)];
    assert!(!is_sum(doubled));
    let mut twice = steps(DType::Int8, None, 1);
    twice[1].operands = vec![Operand::Input(0)];
    assert!(!is_sum(twice));
    let mut early = steps(DType::Int8, Some(relu()), 1);
    early[4].operands = vec![Operand::Step(2)];
    assert!(!is_sum(early));
}
