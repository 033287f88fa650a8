//! Rows of a quantised table: embedding_byte, embedding_4bit, embedding_2bit.
//!
//! Shape: that of the indices and a last dimension of the table's row, unpacked. Dtype: rows of int8 or
//! uint8, packed ones of uint8; scales and zero points of float32, float16 or bfloat16, one per row or per
//! group within it; each step is rounded to their dtype, then to the output's. Edge cases: indices outside
//! the table are errors. Source: `quantized_decomposed` with ExecuTorch's packing: four bits have the even
//! column in the high half and are moved by 8, two bits have the first column lowest and are moved by 2.

use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_index, check_rank, check_same};
use crate::strided::loops::Walk;
use half::{bf16, f16};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

/// Columns in a byte of the table.
fn bind(args: &mut BindArgs<'_>, packed: usize, out: usize) -> Result<()> {
    let view = args.args();
    let (weight, scales) = (view.tensor(0)?, view.tensor(1)?);
    check_rank("the table", 2, weight.shape()).map_err(|e| e.argument("weight"))?;
    let columns = weight.shape()[1].saturating_mul(packed);
    let groups = scales.shape().get(1).copied().unwrap_or(1);
    let is_fitting = matches!(scales.rank(), 1 | 2)
        && scales.shape()[0] == weight.shape()[0]
        && groups > 0
        && columns.is_multiple_of(groups)
        // A group of one column is no group, as for PyTorch.
        && columns / groups > 1;
    if !is_fitting {
        return Err(Error::kernel("the scales do not fit the table")
            .argument("weight_scales")
            .expected(format!("[{0}] or [{0}, groups], groups of equal size above 1", weight.shape()[0]))
            .got(format!(
                "{} for a table of {} rows and {columns} columns",
                scales.shape(),
                weight.shape()[0]
            )));
    }
    if let Some(zeros) = view.optional_tensor(2)? {
        check_same("the zero points", scales.shape(), zeros.shape())?;
    }
    if packed > 1 {
        let half = if packed == 2 { 8 } else { 2 };
        let (low, high) = (view.int(3)?, view.int(4)?);
        if (low, high) != (-half, half - 1) {
            return Err(Error::kernel("packed rows have a range of their own")
                .expected(format!("{} to {}", -half, half - 1))
                .got(format!("{low} to {high}")));
        }
    }
    let mut shape = *view.tensor(5)?.shape();
    shape.push(columns)?;
    args.resize(out, &shape)
}

/// The number in column `column` of a row, of which `byte` gives the bytes.
#[inline(always)]
fn unpack(packed: usize, column: usize, mut byte: impl FnMut(usize) -> Result<i64>) -> Result<f32> {
    let stored = byte(column / packed)?;
    Ok(match packed {
        1 => stored as f32,
        2 => ((stored >> (4 * (1 - column % 2))) & 15) as f32 - 8.0,
        _ => ((stored >> (2 * (column % 4))) & 3) as f32 - 2.0,
    })
}

fn narrow(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::Float16 => f16::from_f32(value).to_f32(),
        DType::BFloat16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

fn rows(args: &Args<'_>, packed: usize, out: usize) -> Result<()> {
    let (weight, scales) = (Reader::<i64>::new(args.tensor(0)?)?, Reader::<f32>::new(args.tensor(1)?)?);
    let zeros = args.optional_tensor(2)?.map(Reader::<f32>::new).transpose()?;
    let indices = Reader::<i64>::new(args.tensor(5)?)?;
    let mut out = Writer::<f32>::new(args.output(out)?)?;
    let (at_weight, at_scale) = (row_major(weight.meta()), row_major(scales.meta()));
    let at_zero = zeros.as_ref().map(|z| row_major(z.meta()));
    let (at_index, at_out): (Walk, Walk) = (row_major(indices.meta()), row_major(out.meta()));
    let [rows, bytes] = [weight.meta().shape()[0], weight.meta().shape()[1]];
    let columns = bytes * packed;
    let groups = scales.meta().shape().get(1).copied().unwrap_or(1);
    let (dtype, size) = (scales.meta().dtype(), columns / groups.max(1));
    for position in 0..indices.meta().numel() {
        let row = indices.get(at_index.offset(position) as usize)?;
        let row = check_index(row, rows).map_err(|e| e.argument("indices"))?;
        for group in 0..groups {
            let parameter = row * groups + group;
            let scale = scales.get(at_scale.offset(parameter) as usize)?;
            let zero = match (&zeros, &at_zero) {
                (Some(zeros), Some(at)) => zeros.get(at.offset(parameter) as usize)?,
                _ => 0.0,
            };
            let mut block = [0f32; BLOCK];
            for first in (0..size).step_by(BLOCK) {
                let n = (size - first).min(BLOCK);
                for (i, slot) in block[..n].iter_mut().enumerate() {
                    let column = group * size + first + i;
                    let number = unpack(packed, column, |byte| {
                        weight.get(at_weight.offset(row * bytes + byte) as usize)
                    })?;
                    *slot = narrow(dtype, narrow(dtype, number - zero) * scale);
                }
                out.scatter(&at_out, 0, position * columns + group * size + first, &block[..n])?;
            }
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>, packed: usize, out: usize) -> Preparation {
    let half_or_float = |d: DType| matches!(d, DType::Float32 | DType::Float16 | DType::BFloat16);
    let (weight, scales, to) = (dtype_of(ctx, 0)?, dtype_of(ctx, 1)?, dtype_of(ctx, out)?);
    let is_weight = weight == DType::UInt8 || (packed == 1 && weight == DType::Int8);
    if !is_weight || !half_or_float(scales) || !half_or_float(to) {
        return Err(Error::kernel("the operator does not support these dtypes")
            .expected(
                "a table of uint8 (or int8, unpacked), scales and output of float32, float16 or bfloat16",
            )
            .got(format!("{weight}, {scales} and {to}")));
    }
    if ctx.tensor(2).is_some_and(|zeros| zeros.dtype != scales) {
        return Err(Error::kernel("zero points have another dtype than the scales")
            .argument("weight_zero_points")
            .expected(scales.name()));
    }
    if out == 6 && to != scales {
        return Err(Error::kernel("rows have the dtype of the scales")
            .argument("out")
            .expected(scales.name())
            .got(to.name()));
    }
    if !matches!(dtype_of(ctx, 5)?, DType::Int32 | DType::Int64) {
        return Err(Error::kernel("positions must be integers")
            .argument("indices")
            .expected("int64 or int32")
            .got(dtype_of(ctx, 5)?.name()));
    }
    match (packed, out) {
        (1, 6) => Routine::prepare(|args| bind(args, 1, 6), |args, _| rows(args, 1, 6)),
        (1, _) => Routine::prepare(|args| bind(args, 1, 7), |args, _| rows(args, 1, 7)),
        (2, 6) => Routine::prepare(|args| bind(args, 2, 6), |args, _| rows(args, 2, 6)),
        (2, _) => Routine::prepare(|args| bind(args, 2, 7), |args, _| rows(args, 2, 7)),
        (_, 6) => Routine::prepare(|args| bind(args, 4, 6), |args, _| rows(args, 4, 6)),
        _ => Routine::prepare(|args| bind(args, 4, 7), |args, _| rows(args, 4, 7)),
    }
}

/// embedding_byte, embedding_4bit, embedding_2bit.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "quantized_decomposed::embedding_byte.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, 1, 6),
    ),
    kernel(
        "quantized_decomposed::embedding_byte.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, 1, 7),
    ),
    kernel(
        "quantized_decomposed::embedding_4bit.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, 2, 6),
    ),
    kernel(
        "quantized_decomposed::embedding_4bit.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, ScalarType? dtype=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, 2, 7),
    ),
    kernel(
        "quantized_decomposed::embedding_2bit.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, 4, 6),
    ),
    kernel(
        "quantized_decomposed::embedding_2bit.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, ScalarType? dtype=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, 4, 7),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    fn look(name: &str, bytes: &[u8], range: (i64, i64), row: i64) -> pteron_core::Result<Tensor> {
        let columns = bytes.len() / 2 * if name.contains('4') { 2 } else { 4 };
        let args = [
            Tensor::of(&[2, bytes.len() / 2], bytes).into(),
            Tensor::of(&[2], &[1f32, 10.0]).into(),
            Arg::None,
            range.0.into(),
            range.1.into(),
            Tensor::of(&[1], &[row]).into(),
        ];
        run_out(name, &args, DType::Float32, &[1, columns])
    }

    #[test]
    fn packed_columns_have_their_places() {
        let four = "quantized_decomposed::embedding_4bit.out";
        assert_eq!(look(four, &[0x9f, 0x08], (-8, 7), 0).unwrap().values::<f32>(), [1.0, 7.0]);
        let two = "quantized_decomposed::embedding_2bit.out";
        assert_eq!(
            look(two, &[0, 0b11_10_01_00], (-2, 1), 1).unwrap().values::<f32>(),
            [-20.0, -10.0, 0.0, 10.0]
        );
        assert!(error_text(look(two, &[0, 0], (-8, 7), 0)).contains("range"));
        assert!(error_text(look(four, &[0, 0], (-8, 7), 2)).contains("out of range"));
        assert!(error_text(look(four, &[0, 0], (-8, 7), -1)).contains("out of range"));
    }
}
