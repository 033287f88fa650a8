//! Arithmetic on quantised tensors: add, mixed_mm, mixed_linear.
//!
//! Shape: add broadcasts; products are rows of the input by columns of the weight. Dtype: add takes two
//! tensors of one quantised dtype and gives another of it; the products take floats by int8 weights, whose
//! scales (one per row, or per group of a linear's columns) are multiplied in before the sum, in float32.
//! Edge cases: as quantize_per_tensor; weights with zero points are refused, as ExecuTorch refuses them.
//! Source: ExecuTorch's quantised kernels.

use crate::chunked;
use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::quantize::Rounded;
use crate::ops::quantized_layout::{limits, stated_limits};
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{broadcast, check_rank};
use crate::strided::loops::Walk;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result, TensorView};
use std::ops::Range;

const SUM: usize = 14;

/// Walks over both operands in the output's order of memory, and the range of the result.
struct Operands {
    walks: [Walk; 2],
    range: (i64, i64),
}

impl Default for Operands {
    fn default() -> Self {
        Operands { walks: [Walk::EMPTY; 2], range: (0, 0) }
    }
}

fn bind_sum(args: &mut BindArgs<'_>, state: &mut Operands) -> Result<usize> {
    let view = args.args();
    let shape = broadcast(view.tensor(0)?.shape(), view.tensor(5)?.shape())?;
    args.resize(SUM, &shape)?;
    let args = args.args();
    let out = args.tensor(SUM)?;
    let walk = |x: TensorView<'_>| Walk::broadcast(out.meta(), [x.meta()]);
    state.walks = [walk(args.tensor(0)?), walk(args.tensor(5)?)];
    for at in [3, 8] {
        stated_limits(&args, at, out.dtype())?;
    }
    state.range = stated_limits(&args, 12, out.dtype())?;
    Ok(out.numel())
}

fn sum(state: &Operands, args: &Args<'_>, positions: Range<usize>) -> Result<()> {
    let (a, b) = (Reader::<f32>::new(args.tensor(0)?)?, Reader::<f32>::new(args.tensor(5)?)?);
    let mut out = Writer::<f32>::in_range(args.output(SUM)?)?;
    let pair = |i: usize| -> Result<(f32, f32)> { Ok((args.double(i)? as f32, args.int(i + 1)? as f32)) };
    let ((a_scale, a_zero), (b_scale, b_zero)) = (pair(1)?, pair(6)?);
    let (inverse, zero) = ((1.0 / args.double(10)?) as f32, args.int(11)? as f32);
    let (low, high) = (state.range.0 as f32, state.range.1 as f32);
    let (mut x, mut y) = ([0f32; BLOCK], [0f32; BLOCK]);
    for at in positions.clone().step_by(BLOCK) {
        let n = (positions.end - at).min(BLOCK);
        a.gather(&state.walks[0], 0, at, &mut x[..n])?;
        b.gather(&state.walks[1], 0, at, &mut y[..n])?;
        for (x, y) in x[..n].iter_mut().zip(&y) {
            let total = (*x - a_zero) * a_scale + (*y - b_zero) * b_scale;
            let moved = (total * inverse).nearest() + zero;
            let raised = if moved < low { low } else { moved };
            *x = if raised > high { high } else { raised };
        }
        // The output is dense in its dim order, which is the order of positions.
        out.write(at as isize, 1, &x[..n])?;
    }
    Ok(())
}

fn prepare_sum(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = dtype_of(ctx, SUM)?;
    limits(dtype)?;
    for i in [0, 5] {
        if dtype_of(ctx, i)? != dtype {
            return Err(Error::kernel("quantised tensors of one dtype are added")
                .expected(dtype.name())
                .got(dtype_of(ctx, i)?.name()));
        }
    }
    chunked::prepare(bind_sum, sum)
}

/// Which side of a product the weight's first dimension lies on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Product {
    /// `[m, k] x [k, n]`, a scale for each of the k rows.
    Matrix,
    /// `[m, k] x [n, k]`, a scale for each of the n rows or group of their columns.
    Linear,
}

fn bind_product(args: &mut BindArgs<'_>, product: Product, out: usize) -> Result<()> {
    let view = args.args();
    let (x, w, scales) = (view.tensor(0)?, view.tensor(1)?, view.tensor(2)?);
    check_rank("the input", 2, x.shape())?;
    check_rank("the weight", 2, w.shape())?;
    let [depth, features] = match product {
        Product::Matrix => [w.shape()[0], w.shape()[1]],
        Product::Linear => [w.shape()[1], w.shape()[0]],
    };
    let groups = scales.shape().get(1).copied().unwrap_or(1);
    let most_rank = if product == Product::Linear { 2 } else { 1 };
    let is_fitting = x.shape()[1] == depth
        && (1..=most_rank).contains(&scales.rank())
        && scales.shape()[0] == w.shape()[0]
        && groups > 0
        && depth.is_multiple_of(groups);
    if !is_fitting {
        return Err(Error::kernel("input, weight and scales do not fit together").got(format!(
            "{}, {} and {}",
            x.shape(),
            w.shape(),
            scales.shape()
        )));
    }
    let shape = [x.shape()[0], features];
    args.resize(out, &shape)
}

/// Sums over the depth in its order, whatever the layouts.
fn product(args: &Args<'_>, product: Product, out: usize) -> Result<()> {
    let (x, w) = (Reader::<f32>::new(args.tensor(0)?)?, Reader::<f32>::new(args.tensor(1)?)?);
    let scales = Reader::<f32>::new(args.tensor(2)?)?;
    let mut out = Writer::<f32>::new(args.output(out)?)?;
    let (at_out, at_scale) = (row_major(out.meta()), row_major(scales.meta()));
    let [m, n] = [out.meta().shape()[0], out.meta().shape()[1]];
    let depth = x.meta().shape()[1];
    let groups = scales.meta().shape().get(1).copied().unwrap_or(1);
    let size = depth / groups;
    let strides = |t: &Reader<'_, f32>| [t.meta().strides()[0] as isize, t.meta().strides()[1] as isize];
    let ([x_row, x_column], [w_row, w_column]) = (strides(&x), strides(&w));
    let (mut left, mut right) = ([0f32; BLOCK], [0f32; BLOCK]);
    for j in 0..n {
        for i in 0..m {
            let mut total = 0f32;
            for first in (0..depth).step_by(BLOCK) {
                let count = (depth - first).min(BLOCK);
                let xs =
                    x.block(i as isize * x_row + first as isize * x_column, x_column, count, &mut left)?;
                let (at, step) = match product {
                    Product::Matrix => (first as isize * w_row + j as isize * w_column, w_row),
                    Product::Linear => (j as isize * w_row + first as isize * w_column, w_column),
                };
                let ws = w.block(at, step, count, &mut right)?;
                for (p, (x, w)) in xs.iter().zip(ws).enumerate() {
                    let parameter = match product {
                        Product::Matrix => first + p,
                        Product::Linear => j * groups + (first + p) / size.max(1),
                    };
                    total += x * (w * scales.get(at_scale.offset(parameter) as usize)?);
                }
            }
            out.put(at_out.offset(i * n + j) as usize, total)?;
        }
    }
    Ok(())
}

fn check_product(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    let [x, w, scales, to] = [dtype_of(ctx, 0)?, dtype_of(ctx, 1)?, dtype_of(ctx, 2)?, dtype_of(ctx, out)?];
    let is_float = |d: DType| matches!(d, DType::Float32 | DType::Float16 | DType::BFloat16);
    let is_fitting = is_float(x) && scales == x && w == DType::Int8 && is_float(to) && (out == 5 || to == x);
    if !is_fitting {
        return Err(Error::kernel("the operator does not support these dtypes")
            .expected("input and scales of one float dtype, a weight of int8")
            .got(format!("{x}, {scales} and {w}, to {to}")));
    }
    if ctx.tensor(3).is_some() {
        return Err(Error::kernel("weights with zero points are not multiplied")
            .argument("weight_zero_points")
            .expected("None")
            .hint("quantise the weight symmetrically"));
    }
    Ok(())
}

/// add, mixed_mm, mixed_linear.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "quantized_decomposed::add.out(Tensor a, float a_scale, int a_zero_point, int a_quant_min, int a_quant_max, Tensor b, float b_scale, int b_zero_point, int b_quant_min, int b_quant_max, float out_scale, int out_zero_point, int out_quant_min, int out_quant_max, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_sum,
    ),
    kernel(
        "quantized_decomposed::mixed_mm.out(Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check_product(ctx, 4)?;
            Routine::prepare(|a| bind_product(a, Product::Matrix, 4), |a, _| product(a, Product::Matrix, 4))
        },
    ),
    kernel(
        "quantized_decomposed::mixed_linear.out(Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, ScalarType? dtype=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check_product(ctx, 5)?;
            Routine::prepare(|a| bind_product(a, Product::Linear, 5), |a, _| product(a, Product::Linear, 5))
        },
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn scales_belong_to_rows_or_groups() {
        let x = Tensor::of(&[1, 2], &[1f32, 10.0]);
        let w = Tensor::of(&[2, 2], &[1i8, 2, 3, 4]);
        let run = |scales: Tensor, zeros: Arg| {
            let args = [x.clone().into(), w.clone().into(), scales.into(), zeros, Arg::None];
            run_out("quantized_decomposed::mixed_linear.out", &args, DType::Float32, &[1, 2])
        };
        let rows = Tensor::of(&[2], &[1f32, 0.5]);
        assert_eq!(run(rows.clone(), Arg::None).unwrap().values::<f32>(), [21.0, 21.5]);
        let groups = Tensor::of(&[2, 2], &[1f32, 0.0, 0.0, 1.0]);
        assert_eq!(run(groups, Arg::None).unwrap().values::<f32>(), [1.0, 40.0]);
        assert!(error_text(run(rows.clone(), rows.into())).contains("zero points"));
    }
}
