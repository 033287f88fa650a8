//! Dequantise: per tensor, per channel, per token.
//!
//! Shape: that of the input. Dtype: from int8, uint8, int16, uint16 and int32 to floats. Per tensor the
//! zero point is taken away in the output's dtype; otherwise in the common dtype of the quantised numbers
//! and the zero points, then multiplied in the dtype of the scales. Source: `quantized_decomposed` of
//! `torch.ao.quantization`, with ExecuTorch's out variants.

use crate::chunked;
use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::elements::{Reader, Writer};
use crate::elementwise::chain_kernel::prepare_unary;
use crate::operator::{Operator, kernel};
use crate::ops::quantized_functions::recognise_dequantise;
use crate::ops::quantized_layout::{
    Spread, Walks, check_scales, check_stated, limits, single, stated_limits,
};
use crate::promotion::promote;
use crate::routine::{Preparation, dtype_of};
use half::{bf16, f16};
use pteron_core::{Args, BindArgs, DType, PrepareContext, Result};
use std::ops::Range;

/// How a zero point is taken away.
#[derive(Debug, Clone, Copy)]
enum Difference {
    /// There is none.
    None,
    /// In integers, cut to the dtype.
    Integer(DType),
    /// In floats, rounded to the dtype.
    Float(DType),
}

fn bind(
    args: &mut BindArgs<'_>,
    walks: &mut Walks,
    spread: Spread,
    out: usize,
    dtype: DType,
) -> Result<usize> {
    let shape = *args.args().tensor(0)?.shape();
    args.resize(out, &shape)?;
    *walks = Walks::bind(&args.args(), spread, out)?;
    // Behind the parameters and the axis; per tensor and per token the range says nothing.
    if matches!(spread, Spread::Channel { .. }) {
        stated_limits(&args.args(), 4, dtype)?;
    }
    Ok(walks.numel)
}

fn round_to<C: Compute>(dtype: DType, block: &mut [C]) {
    match dtype {
        DType::Float16 => block.iter_mut().for_each(|v| *v = C::from_f64(f16::from_f64(v.to_f64()).to_f64())),
        DType::BFloat16 => {
            block.iter_mut().for_each(|v| *v = C::from_f64(bf16::from_f64(v.to_f64()).to_f64()))
        }
        _ => {}
    }
}

/// Differences of integers, cut to the low bits of `common`.
fn cut<C: Compute>(common: DType, x: &[i64], zero: &[i64], out: &mut [C]) {
    let unused = 64 - 8 * common.size() as u32;
    let is_unsigned = matches!(common, DType::UInt8 | DType::UInt16);
    for ((out, x), zero) in out.iter_mut().zip(x).zip(zero) {
        let high = x.wrapping_sub(*zero) << unused;
        *out = C::from_i64(if is_unsigned { (high as u64 >> unused) as i64 } else { high >> unused });
    }
}

/// Subtracts the zero points of a block in floats, all of them equal where there is no reader.
fn subtract<C: Compute>(dtype: DType, x: &mut [C], zero: &[C]) {
    round_to(dtype, x);
    for (x, zero) in x.iter_mut().zip(zero) {
        *x = x.plus(C::from_i64(-1).times(*zero));
    }
    round_to(dtype, x);
}

fn run<C: Compute>(
    walks: &Walks,
    args: &Args<'_>,
    (spread, difference, out): (Spread, Difference, usize),
    positions: Range<usize>,
) -> Result<()> {
    let (mut x, mut scale, mut zero) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK], [C::ZERO; BLOCK]);
    let (mut whole_x, mut whole_zero) = ([0i64; BLOCK], [0i64; BLOCK]);
    let mut out = Writer::<C>::new(args.output(out)?)?;
    let input = args.tensor(0)?;
    let (floats, integers) = (Reader::<C>::new(input)?, Reader::<i64>::new(input)?);
    let is_whole = spread == Spread::Whole;
    if is_whole {
        scale.fill(C::from_f64(single(args, 1)?));
        zero.fill(C::from_f64(single(args, 2)?));
    }
    for at in positions.clone().step_by(BLOCK) {
        let n = (positions.end - at).min(BLOCK);
        let (x, scale, zero) = (&mut x[..n], &mut scale[..n], &mut zero[..n]);
        match difference {
            Difference::None => floats.gather(&walks.x, 0, at, x)?,
            Difference::Integer(common) => {
                let zeros = Reader::<i64>::new(args.tensor(2)?)?;
                integers.gather(&walks.x, 0, at, &mut whole_x[..n])?;
                zeros.gather(&walks.zero, 0, at, &mut whole_zero[..n])?;
                cut(common, &whole_x[..n], &whole_zero[..n], x);
            }
            Difference::Float(dtype) => {
                floats.gather(&walks.x, 0, at, x)?;
                if !is_whole {
                    Reader::<C>::new(args.tensor(2)?)?.gather(&walks.zero, 0, at, zero)?;
                }
                subtract(dtype, x, zero);
            }
        }
        if !is_whole {
            Reader::<C>::new(args.tensor(1)?)?.gather(&walks.scale, 0, at, scale)?;
        }
        for (x, scale) in x.iter_mut().zip(scale.iter()) {
            *x = x.times(*scale);
        }
        // The output is dense in its dim order, which is the order of positions.
        out.write(at as isize, 1, x)?;
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>, spread: Spread, out: usize, stated: usize) -> Preparation {
    let (x, to) = (dtype_of(ctx, 0)?, dtype_of(ctx, out)?);
    limits(x)?;
    check_stated(ctx, stated, x)?;
    if !to.is_float() || Class::of(to).is_none() {
        return Err(unsupported(to));
    }
    let (scales, zeros) = match spread {
        Spread::Whole => (to, None),
        _ => (check_scales(ctx, 1)?, ctx.tensor(2).map(|t| t.dtype)),
    };
    let difference = match zeros {
        None if spread == Spread::Whole => Difference::Float(to),
        None => Difference::None,
        Some(zeros) if zeros.is_float() => Difference::Float(zeros),
        Some(zeros) => Difference::Integer(promote(x, zeros)?),
    };
    let details = (spread, difference, out);
    chunked::prepare(
        move |args, walks| bind(args, walks, spread, out, x),
        move |walks, args, positions| match scales {
            DType::Float64 => run::<f64>(walks, args, details, positions),
            _ => run::<f32>(walks, args, details, positions),
        },
    )
}

/// dequantize_per_tensor, dequantize_per_channel, dequantize_per_token.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "quantized_decomposed::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Whole, 7, 5),
    )
    .unary("dequantise", recognise_dequantise, |ctx| prepare_unary(ctx, recognise_dequantise)),
    kernel(
        "quantized_decomposed::dequantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Whole, 7, 5),
    ),
    kernel(
        "quantized_decomposed::dequantize_per_channel.out(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Channel { axis: 3 }, 8, 6),
    ),
    kernel(
        "quantized_decomposed::dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, ScalarType output_dtype, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, Spread::Token, 7, 5),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn zero_points_may_be_left_out_per_channel() {
        let x = Tensor::of(&[2, 2], &[1i8, -2, 3, -4]);
        let run = |scales: Tensor, axis: i64| {
            let head = [x.clone().into(), scales.into(), Arg::None, axis.into()];
            let tail = [Arg::Int(-128), Arg::Int(127), Arg::Int(1), Arg::None];
            run_out(
                "quantized_decomposed::dequantize_per_channel.out",
                &[&head[..], &tail[..]].concat(),
                DType::Float32,
                &[2, 2],
            )
        };
        let scales = Tensor::of(&[2], &[0.5f32, 2.0]);
        assert_eq!(run(scales.clone(), 0).unwrap().values::<f32>(), [0.5, -1.0, 6.0, -8.0]);
        assert_eq!(run(scales.clone(), -1).unwrap().values::<f32>(), [0.5, -4.0, 1.5, -8.0]);
        assert!(error_text(run(scales, 2)).contains("out of range"));
        assert!(error_text(run(Tensor::of(&[3], &[1f32; 3]), 0)).contains("per channel"));
    }
}
