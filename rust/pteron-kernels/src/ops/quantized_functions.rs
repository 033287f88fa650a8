//! Quantise and dequantise per tensor as functions of f32: steps of chains, and kernels of their own. Between the steps of a
//! chain a quantised number is the f32 of the same value.

use super::quantized_layout::limits;
use crate::elementwise::function::{ElementwiseCall, Function};
use crate::elementwise::pointwise::{Parameters, Pointwise, functions};
use pteron_core::{ArgSpec, DType};

functions! {
    /// What a quantised number stands for.
    Dequantise { zero, scale } = "dequantise", 2, |s, [x]| s.mul(s.sub(x, s.splat(zero)), s.splat(scale));
    /// The quantised number: half to even, what lies outside becomes the end of the range, NaN becomes 0. Never -0.
    Quantise { inverse, zero, low, high } = "quantise", 4, |s, [x]| {
        let nearest = s.add(s.round(s.mul(x, s.splat(inverse))), s.splat(zero));
        let held = s.clamp(nearest, s.splat(low), s.splat(high));
        s.select(s.eq(held, held), held, s.zero())
    };
}

fn call<F: Pointwise<1>>(parameters: Parameters, out: usize) -> ElementwiseCall {
    ElementwiseCall {
        function: Function::of::<F, 1>(parameters),
        out,
        is_predicate: false,
        has_condition: false,
    }
}

fn dtype(args: &[ArgSpec<'_>], i: usize) -> Option<DType> {
    args.get(i)?.tensor().map(|t| t.dtype)
}

/// `input, scale, zero_point, quant_min, quant_max, dtype, ..., out` as the numbers of a call whose quantised tensor is `i`;
/// `None` where something is not known at load, or wrong: the plain kernel's part.
fn numbers(args: &[ArgSpec<'_>], i: usize) -> Option<[f64; 4]> {
    let number = |at: usize| args.get(at)?.number();
    let quantised = dtype(args, i).filter(|d| matches!(d, DType::Int8 | DType::UInt8))?;
    let [scale, zero, low, high] = [number(1)?, number(2)?, number(3)?, number(4)?];
    let (least, greatest) = limits(quantised).ok()?;
    let is_range = least as f64 <= low && low <= high && high <= greatest as f64;
    // Zero points beyond the range of the dtype would leave the integers that f32 has.
    let is_zero = (least as f64..=greatest as f64).contains(&zero);
    let is_stated = number(5) == Some(f64::from(quantised.code()));
    (is_range && is_zero && is_stated).then_some([scale, zero, low, high])
}

/// A call of `dequantize_per_tensor` that gives f32.
pub(crate) fn recognise_dequantise(args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    let out = args.len().checked_sub(1)?;
    let [scale, zero, ..] = numbers(args, 0)?;
    (dtype(args, out)? == DType::Float32)
        .then(|| call::<Dequantise>([zero as f32, scale as f32, 0.0, 0.0], out))
}

/// A call of `quantize_per_tensor` on f32.
pub(crate) fn recognise_quantise(args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    let out = args.len().checked_sub(1)?;
    let [scale, zero, low, high] = numbers(args, out)?;
    let inverse = (1.0 / scale) as f32;
    let is_single = dtype(args, 0)? == DType::Float32;
    is_single.then(|| call::<Quantise>([inverse, zero as f32, low as f32, high as f32], out))
}
