//! Scales and zero points from the data: choose_qparams, choose_qparams_per_token_asymmetric.
//!
//! Shape: `[1]`, or the input's with a last dimension of one. Dtype: from float32, float16 and bfloat16;
//! scales are float64 and zero points int64, each step rounded as the input's dtype is. Edge cases: zero
//! always lies in the range; NaN makes the scale NaN; without elements there is no range, an error. Source:
//! `quantized_decomposed` of `torch.ao.quantization`.

use crate::compute::{BLOCK, unsupported};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::quantize::Rounded;
use crate::ops::quantized_layout::limits;
use crate::reduction::plain::{Reduction, row_major};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::strided::loops::Walk;
use half::{bf16, f16};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Error, PrepareContext, Result};

/// Rounds to a dtype.
fn narrow(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::Float16 => f16::from_f32(value).to_f32(),
        DType::BFloat16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

/// Least and greatest of zero and the elements of one slice; NaN where one of them is.
fn range(x: &Reader<'_, f32>, walk: &Walk, base: isize) -> Result<(f32, f32)> {
    let (mut low, mut high) = (0f32, 0f32);
    let mut buffer = [0f32; BLOCK];
    x.blocks(walk, base, &mut buffer, |_, block| {
        for v in block {
            low = if *v < low || v.is_nan() { *v } else { low };
            high = if *v > high || v.is_nan() { *v } else { high };
        }
        Ok(())
    })?;
    Ok((low, high))
}

fn bind_tensor(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (low, high) = (view.int(1)?, view.int(2)?);
    if low >= high {
        return Err(Error::kernel("the quantised range is empty")
            .expected("quant_min below quant_max")
            .got(format!("{low} to {high}")));
    }
    if low > 0 || high < 0 {
        return Err(Error::kernel("the quantised range does not hold zero").got(format!("{low} to {high}")));
    }
    if view.tensor(0)?.numel() == 0 {
        return Err(Error::kernel("a tensor without elements has no range to quantise").argument("input"));
    }
    args.resize(5, &[1])?;
    args.resize(6, &[1])
}

fn choose_for_tensor(args: &Args<'_>) -> Result<()> {
    let x = Reader::<f32>::new(args.tensor(0)?)?;
    let dtype = x.meta().dtype();
    let (low, high) = range(&x, &row_major(x.meta()), 0)?;
    let (least, greatest) = (args.int(1)?, args.int(2)?);
    let spread = narrow(dtype, narrow(dtype, high - low) / (greatest - least) as f32);
    let eps = args.double(3)? as f32;
    let scale = if spread < eps { eps } else { spread };
    // An infinite range makes NaN here, which PyTorch's conversion makes the least int32.
    let steps = (low / scale).nearest();
    let steps = if steps.is_nan() { i32::MIN } else { steps as i32 };
    let zero = (least as i32).wrapping_sub(steps);
    Writer::<f64>::new(args.output(5)?)?.put(0, f64::from(scale))?;
    Writer::<i64>::new(args.output(6)?)?.put(0, i64::from(zero).clamp(least, greatest))
}

fn bind_tokens(args: &mut BindArgs<'_>) -> Result<()> {
    let mut shape = *args.args().tensor(0)?.shape();
    match shape.last_mut() {
        // A number is a token of one element.
        None => {}
        Some(0) => {
            return Err(Error::kernel("a token without elements has no range to quantise").argument("input"));
        }
        Some(last) => *last = 1,
    }
    args.resize(2, &shape)?;
    args.resize(3, &shape)
}

fn choose_for_tokens(args: &Args<'_>) -> Result<()> {
    let x = Reader::<f32>::new(args.tensor(0)?)?;
    let last = x.meta().rank().saturating_sub(1);
    let tokens = Reduction::new(x.meta(), 1 << last);
    let mut scales = Writer::<f64>::new(args.output(2)?)?;
    let mut zeros = Writer::<i64>::new(args.output(3)?)?;
    let (to_scale, to_zero) = (row_major(scales.meta()), row_major(zeros.meta()));
    tokens.for_each(|position, base| {
        let (low, high) = range(&x, tokens.inner(), base)?;
        let round = |v: f32| narrow(x.meta().dtype(), v);
        let scale = round(round(high - low) / 255.0);
        let scale = if scale < f32::EPSILON { f32::EPSILON } else { scale };
        let (low, high) = (round(low / scale), round(high / scale));
        let error = round(round(low - 128.0) + round(high + 127.0));
        let zero = if error > 0.0 { round(-128.0 - low) } else { round(127.0 - high) };
        scales.put(to_scale.offset(position) as usize, f64::from(scale))?;
        let zero = if zero < -128.0 { -128.0 } else { zero };
        let zero = if zero > 127.0 { 127.0 } else { zero };
        zeros.put(to_zero.offset(position) as usize, zero.nearest() as i64)
    })
}

fn check(ctx: &PrepareContext<'_>, scale: usize) -> Result<()> {
    let (x, scales, zeros) = (dtype_of(ctx, 0)?, dtype_of(ctx, scale)?, dtype_of(ctx, scale + 1)?);
    if !matches!(x, DType::Float32 | DType::Float16 | DType::BFloat16) {
        return Err(unsupported(x).argument("input").expected("float32, float16 or bfloat16"));
    }
    if scales != DType::Float64 || zeros != DType::Int64 {
        return Err(
            Error::kernel("scales are float64 and zero points int64").got(format!("{scales} and {zeros}"))
        );
    }
    if let Some(ArgSpec::Int(Some(code))) = ctx.args.get(scale - 1) {
        let dtype = i8::try_from(*code).ok().and_then(DType::from_code);
        limits(dtype.ok_or_else(|| Error::kernel("no such dtype").argument("dtype").got(code.to_string()))?)?;
    }
    Ok(())
}

/// choose_qparams, choose_qparams_per_token_asymmetric.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "quantized_decomposed::choose_qparams.Tensor_out(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype, *, Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))",
        |ctx| {
            check(ctx, 5)?;
            Routine::prepare(bind_tensor, |args, _| choose_for_tensor(args))
        },
    ),
    kernel(
        "quantized_decomposed::choose_qparams_per_token_asymmetric.out(Tensor input, ScalarType dtype, *, Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))",
        |ctx| -> Preparation {
            check(ctx, 2)?;
            Routine::prepare(bind_tokens, |args, _| choose_for_tokens(args))
        },
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    #[test]
    fn data_without_a_range_is_refused() {
        let choose = |x: Tensor, low: i64, high: i64| {
            call(
                "quantized_decomposed::choose_qparams.Tensor_out",
                &[
                    x.into(),
                    low.into(),
                    high.into(),
                    Arg::Double(1e-6),
                    Arg::Int(1),
                    Tensor::output(DType::Float64, &[1]).into(),
                    Tensor::output(DType::Int64, &[1]).into(),
                ],
            )
        };
        assert!(error_text(choose(Tensor::of::<f32>(&[0], &[]), -128, 127)).contains("without elements"));
        assert!(error_text(choose(Tensor::of(&[1], &[1f32]), 127, -128)).contains("empty"));
        assert!(error_text(choose(Tensor::of(&[1], &[1f32]), 3, 127)).contains("zero"));
        assert!(choose(Tensor::of(&[1], &[1f32]), -128, 127).is_ok());
    }
}
