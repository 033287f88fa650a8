//! Gradient of an embedding with respect to its table.
//!
//! Shape: `[num_weights, D]` from a gradient of the shape of the indices and `D`. Dtype: any real one; sums round
//! to the dtype after every addition, in the order of the indices, as PyTorch's do; integers are not scaled. Edge cases: rows that no
//! index names are 0, the padding row takes nothing; an index outside the table is an error. `rows` is the fast kernel.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, UpdateView};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_index, check_same};
use crate::strided::copy::zero;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

mod rows;

const OUT: usize = 5;

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (grad, mut lead) = (*view.tensor(0)?.shape(), *view.tensor(1)?.shape());
    let Some(width) = grad.last().copied() else {
        return Err(Error::kernel("the gradient needs a dimension for the rows").argument("grad_output"));
    };
    lead.push(width)?;
    check_same("grad_output", &lead, &grad)?;
    if view.bool(4)? && !view.tensor(0)?.dtype().is_float() {
        return Err(Error::kernel("only floats can be scaled").argument("scale_grad_by_freq"));
    }
    let rows = view.int(2)?;
    let rows = usize::try_from(rows)
        .map_err(|_| Error::kernel("negative extent").argument("num_weights").got(rows.to_string()))?;
    args.resize(OUT, &[rows, width])
}

/// How often each row is named, in memory that holds one number per row of the table.
fn count(indices: &Reader<'_, i64>, rows: usize, room: &mut [u8]) -> Result<()> {
    let room = room.get_mut(..rows * 8).ok_or_else(|| Error::internal("scratch is too small"))?;
    room.fill(0);
    let order = row_major(indices.meta());
    for i in 0..order.numel() {
        let row =
            check_index(indices.get(order.offset(i) as usize)?, rows).map_err(|e| e.argument("indices"))?;
        let slot = &mut room[row * 8..][..8];
        let old = slot.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        slot.copy_from_slice(&(old + 1).to_le_bytes());
    }
    Ok(())
}

fn add<C: Compute>(args: &Args<'_>, room: &mut [u8]) -> Result<()> {
    let (grad, indices) = (Reader::<C>::new(args.tensor(0)?)?, Reader::<i64>::new(args.tensor(1)?)?);
    let (padding, is_scaled) = (args.int(3)?, args.bool(4)?);
    zero(args.output(OUT)?);
    let mut table = UpdateView::<C>::new(args, OUT)?;
    let (rows, width) = (table.meta.shape()[0], table.meta.shape()[1]);
    let strides = [table.meta.strides()[0], table.meta.strides()[1]];
    if is_scaled {
        count(&indices, rows, room)?;
    }
    let (from, order) = (row_major(grad.meta()), row_major(indices.meta()));
    for i in 0..order.numel() {
        let index = indices.get(order.offset(i) as usize)?;
        if index == padding {
            continue;
        }
        let row = check_index(index, rows).map_err(|e| e.argument("indices"))?;
        let scale = match room.get(row * 8..row * 8 + 8) {
            Some(count) if is_scaled => {
                1.0 / count.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b)) as f64
            }
            _ => 1.0,
        };
        for d in 0..width {
            let value = grad.get(from.offset(i * width + d) as usize)?;
            let value = if is_scaled { value.times(C::from_f64(scale)) } else { value };
            table.update(row * strides[0] + d * strides[1], |v| v.plus(value))?;
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, OUT)?;
    if !matches!(dtype_of(ctx, 1)?, DType::Int64 | DType::Int32) {
        return Err(Error::kernel("positions are int32 or int64")
            .argument("indices")
            .got(dtype_of(ctx, 1)?.name()));
    }
    let rows = ctx.tensor(OUT).and_then(|t| t.shape.first().copied()).unwrap_or(0);
    let room = rows.checked_mul(8).ok_or_else(|| Error::kernel("the table has too many rows"))?;
    match Class::required(dtype_of(ctx, 0)?)? {
        Class::F64 => Routine::prepare_with_scratch(room, bind, |args, s| add::<f64>(args, s.worker)),
        Class::F32 => Routine::prepare_with_scratch(room, bind, |args, s| add::<f32>(args, s.worker)),
        Class::I64 => Routine::prepare_with_scratch(room, bind, |args, s| add::<i64>(args, s.worker)),
    }
}

/// embedding_dense_backward.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::embedding_dense_backward.out(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)
.fast("rows", rows::prepare)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn rows_add_up_and_may_be_scaled() {
        let run = |indices: [i64; 3], is_scaled: bool| {
            let args: [Arg; 5] = [
                Tensor::of(&[3, 1], &[1f32, 3.0, 5.0]).into(),
                Tensor::of(&[3], &indices).into(),
                3i64.into(),
                0i64.into(),
                is_scaled.into(),
            ];
            run_out("aten::embedding_dense_backward.out", &args, DType::Float32, &[3, 1])
        };
        assert_eq!(run([2, 2, 0], false).unwrap().values::<f32>(), [0.0, 0.0, 4.0]);
        assert_eq!(run([2, 2, 0], true).unwrap().values::<f32>(), [0.0, 0.0, 2.0]);
        assert!(error_text(run([3, 0, 0], false)).contains("index out of range"));
    }
}
