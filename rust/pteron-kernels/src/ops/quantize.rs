//! Quantise: per tensor, per channel, per token.
//!
//! Shape: that of the input. Dtype: from float32, float16 and bfloat16 (per token float64 too) to int8,
//! uint8, int16, uint16 and int32; computed in float32, in float64 where the scales or the input are.
//! Edge cases: half rounds to even; NaN becomes 0; what lies outside the range becomes its end. Source:
//! `quantized_decomposed` of `torch.ao.quantization`, with ExecuTorch's out variants.

use crate::chunked;
use crate::compute::{BLOCK, Compute, unsupported};
use crate::elements::{Reader, Writer};
use crate::elementwise::chain_kernel::prepare_unary;
use crate::operator::{Operator, kernel};
use crate::ops::quantized_functions::recognise_quantise;
use crate::ops::quantized_layout::{
    Spread, Walks, check_scales, check_stated, limits, single, stated_limits,
};
use crate::routine::{Preparation, dtype_of};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

/// A float that is quantised.
pub(crate) trait Rounded: Compute + std::ops::Div<Output = Self> {
    /// To the nearest integer, half to even.
    fn nearest(self) -> Self;
}

impl Rounded for f32 {
    // Beyond 2^23 every float is an integer; below, adding 2^23 rounds away the fraction. Without a call,
    // so that loops vectorise on every instruction set.
    #[inline(always)]
    fn nearest(self) -> f32 {
        const WHOLE: f32 = (1u32 << 23) as f32;
        let rounded = ((self.abs() + WHOLE) - WHOLE).copysign(self);
        if self.abs() < WHOLE { rounded } else { self }
    }
}

impl Rounded for f64 {
    #[inline(always)]
    fn nearest(self) -> f64 {
        const WHOLE: f64 = (1u64 << 52) as f64;
        let rounded = ((self.abs() + WHOLE) - WHOLE).copysign(self);
        if self.abs() < WHOLE { rounded } else { self }
    }
}

/// Replaces every element by its quantised number.
#[inline(always)]
fn quantize_block<C: Rounded>(
    x: &mut [C],
    inverse: &[C],
    zero: &[C],
    (low, high): (C, C),
    is_zero_rounded: bool,
) {
    for ((x, inverse), zero) in x.iter_mut().zip(inverse).zip(zero) {
        let scaled = x.times(*inverse);
        let moved = if is_zero_rounded { scaled.plus(*zero).nearest() } else { scaled.nearest().plus(*zero) };
        let raised = if moved < low { low } else { moved };
        *x = if raised > high { high } else { raised };
    }
}

/// Shapes and range of a bound call.
#[derive(Default)]
struct State {
    walks: Walks,
    range: (i64, i64),
}

fn bind(
    args: &mut BindArgs<'_>,
    state: &mut State,
    spread: Spread,
    out: usize,
    dtype: DType,
) -> Result<usize> {
    let shape = *args.args().tensor(0)?.shape();
    args.resize(out, &shape)?;
    let args = args.args();
    // Behind the parameters and, per channel, the axis.
    let at = if matches!(spread, Spread::Channel { .. }) { 4 } else { 3 };
    *state = State { walks: Walks::bind(&args, spread, out)?, range: stated_limits(&args, at, dtype)? };
    Ok(state.walks.numel)
}

fn run<C: Rounded>(
    State { walks, range }: &State,
    args: &Args<'_>,
    spread: Spread,
    positions: Range<usize>,
    mut out: Writer<'_, C>,
) -> Result<()> {
    let range = (C::from_i64(range.0), C::from_i64(range.1));
    let (mut x, mut inverse, mut zero) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK], [C::ZERO; BLOCK]);
    let reader = Reader::<C>::new(args.tensor(0)?)?;
    let parameters = match spread {
        Spread::Whole => None,
        _ => Some((Reader::<C>::new(args.tensor(1)?)?, Reader::<C>::new(args.tensor(2)?)?)),
    };
    if parameters.is_none() {
        inverse.fill(C::from_f64(1.0 / single(args, 1)?));
        zero.fill(C::from_f64(single(args, 2)?));
    }
    for at in positions.clone().step_by(BLOCK) {
        let n = (positions.end - at).min(BLOCK);
        reader.gather(&walks.x, 0, at, &mut x[..n])?;
        if let Some((scales, zeros)) = &parameters {
            scales.gather(&walks.scale, 0, at, &mut inverse[..n])?;
            inverse[..n].iter_mut().for_each(|s| *s = C::ONE / *s);
            zeros.gather(&walks.zero, 0, at, &mut zero[..n])?;
        }
        quantize_block(&mut x[..n], &inverse[..n], &zero[..n], range, spread == Spread::Token);
        // The output is dense in its dim order, which is the order of positions.
        out.write(at as isize, 1, &x[..n])?;
    }
    Ok(())
}

fn no_float(dtype: DType) -> Error {
    unsupported(dtype).argument("input").expected("float32, float16 or bfloat16 (per token float64 too)")
}

fn prepare(ctx: &PrepareContext<'_>, spread: Spread, out: usize) -> Preparation {
    let (x, dtype) = (dtype_of(ctx, 0)?, dtype_of(ctx, out)?);
    limits(dtype)?;
    check_stated(ctx, out - 1, dtype)?;
    let scales = match spread {
        Spread::Whole => DType::Float32,
        _ => check_scales(ctx, 1)?,
    };
    let is_taken = match x {
        DType::Float32 | DType::Float16 | DType::BFloat16 => true,
        DType::Float64 => spread == Spread::Token,
        _ => false,
    };
    if !is_taken {
        return Err(no_float(x));
    }
    let is_double = x == DType::Float64 || scales == DType::Float64;
    chunked::prepare(
        move |args, state| bind(args, state, spread, out, dtype),
        move |state, args, positions| {
            let view = args.output(out)?;
            if is_double {
                run(state, args, spread, positions, Writer::<f64>::new(view)?)
            } else {
                run(state, args, spread, positions, Writer::<f32>::in_range(view)?)
            }
        },
    )
}

/// quantize_per_tensor, quantize_per_channel, quantize_per_token.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "quantized_decomposed::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Whole, 6),
    )
    .unary("quantise", recognise_quantise, |ctx| prepare_unary(ctx, recognise_quantise)),
    kernel(
        "quantized_decomposed::quantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Whole, 6),
    ),
    kernel(
        "quantized_decomposed::quantize_per_channel.out(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Channel { axis: 3 }, 7),
    ),
    kernel(
        "quantized_decomposed::quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Token, 6),
    ),
];

#[cfg(test)]
mod tests {
    use super::Rounded;
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn half_goes_to_even_at_every_size() {
        for x in [0.5f32, 1.5, 2.5, -0.5, -1.5, 8388607.5, 1e30, f32::INFINITY, -0.0, 0.49999997] {
            assert_eq!(x.nearest().to_bits(), x.round_ties_even().to_bits(), "{x}");
            assert_eq!(f64::from(x).nearest().to_bits(), f64::from(x).round_ties_even().to_bits());
        }
        assert!(f32::NAN.nearest().is_nan());
    }

    #[test]
    fn ranges_and_dtypes_are_checked() {
        let x = Tensor::of(&[2], &[1f32, f32::NAN]);
        let run = |low: i64, high: i64, code: i64, out: DType| {
            let args =
                [x.clone().into(), Arg::Double(0.5), Arg::Int(1), low.into(), high.into(), code.into()];
            run_out("quantized_decomposed::quantize_per_tensor.out", &args, out, &[2])
        };
        assert_eq!(run(-128, 127, 1, DType::Int8).unwrap().values::<i8>(), [3, 0]);
        assert!(error_text(run(-129, 127, 1, DType::Int8)).contains("does not fit"));
        assert!(error_text(run(0, 127, 0, DType::Int8)).contains("states"));
        assert!(error_text(run(0, 127, 4, DType::Int64)).contains("int32"));
    }
}
