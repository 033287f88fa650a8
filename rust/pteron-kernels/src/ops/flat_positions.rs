//! put: elements by their row-major position in the whole tensor.
//!
//! Shape: that of `self`. Dtype: kept, the source has the same; positions are int64. Edge cases: negative
//! positions count from the end, one outside is an error; repeated positions keep the last value or,
//! accumulating, add up.

use crate::compute::{Compute, Kind, by_kind};
use crate::elements::{Reader, UpdateView};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::wrap_index;
use crate::strided::copy::copy_to_update;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

mod slices;

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    let (positions, values) = (view.tensor(1)?.numel(), view.tensor(2)?.numel());
    if positions != values {
        return Err(Error::kernel("every position needs one element of the source")
            .argument("source")
            .expected(format!("{positions} elements"))
            .got(format!("{values}")));
    }
    args.resize(4, &shape)
}

fn put<C: Compute>(args: &Args<'_>) -> Result<()> {
    copy_to_update(&args.tensor(0)?, &mut args.output(4)?)?;
    let accumulates = args.bool(3)?;
    let (positions, source) = (Reader::<i64>::new(args.tensor(1)?)?, Reader::<C>::new(args.tensor(2)?)?);
    let mut out = UpdateView::<C>::new(args, 4)?;
    let (extent, to) = (out.meta.numel(), row_major(out.meta));
    let (at, from) = (row_major(positions.meta()), row_major(source.meta()));
    for i in 0..source.meta().numel() {
        let position = wrap_index(positions.get(at.offset(i) as usize)?, extent)?;
        let value = source.get(from.offset(i) as usize)?;
        out.update(to.offset(position) as usize, |old| if accumulates { old.plus(value) } else { value })?;
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 4)?;
    same_dtype(ctx, 2, 4)?;
    if dtype_of(ctx, 1)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("index").got(dtype_of(ctx, 1)?.name()));
    }
    by_kind!(Kind::of(dtype_of(ctx, 0)?)?, C, Routine::prepare_update(0, bind, |args, _| put::<C>(args)))
}

/// put.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::put.out(Tensor self, Tensor index, Tensor source, bool accumulate=False, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)
.fast("slices", slices::prepare)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn positions_count_rows_and_repeat() {
        let x = Tensor::of(&[2, 2], &[1f32, 3.0, 2.0, 4.0]).in_order(&[1, 0]);
        let put = |at: [i64; 2], accumulate: bool| {
            let args: [Arg; 4] = [
                x.clone().into(),
                Tensor::of(&[2], &at).into(),
                Tensor::of(&[2], &[10f32, 20.0]).into(),
                accumulate.into(),
            ];
            run_out("aten::put.out", &args, DType::Float32, &[2, 2])
        };
        assert_eq!(put([1, -1], false).unwrap().values::<f32>(), [1.0, 10.0, 3.0, 20.0]);
        assert_eq!(put([1, 1], false).unwrap().values::<f32>(), [1.0, 20.0, 3.0, 4.0]);
        assert_eq!(put([1, 1], true).unwrap().values::<f32>(), [1.0, 32.0, 3.0, 4.0]);
        assert!(error_text(put([0, 4], false)).contains("index out of range"));
    }
}
