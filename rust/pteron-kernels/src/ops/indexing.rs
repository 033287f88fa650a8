//! Slices by positions that are tensor data: embedding, index_select.
//!
//! Dtype: data keeps its dtype, any one; positions are int32 or int64. Every position is checked when it is
//! used; a negative one, or one outside its dimension, is an error that names it.

use crate::elements::Reader;
use crate::operator::{Operator, kernel, operator};
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_index, check_index_at, wrap_dim};
use crate::strided::copy::{StridedRegion, copy_region};
use crate::strided::loops::{Walk, signed};
use crate::strided::mapped_copy::{self, Mapping};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result};

mod embedding;

pub(crate) fn check_positions(ctx: &PrepareContext<'_>, i: usize) -> Result<()> {
    match dtype_of(ctx, i)? {
        DType::Int64 | DType::Int32 => Ok(()),
        other => Err(Error::kernel("positions must be integers")
            .argument("index")
            .expected("int64 or int32")
            .got(other.name())),
    }
}

fn bind_embedding(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (weight, indices) = (view.tensor(0)?, view.tensor(1)?);
    if weight.rank() != 2 {
        return Err(Error::kernel("the table must be a matrix")
            .argument("weight")
            .got(weight.shape().to_string()));
    }
    let mut shape = *indices.shape();
    shape.push(weight.shape()[1])?;
    args.resize(5, &shape)
}

fn prepare_embedding(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 5)?;
    check_positions(ctx, 1)?;
    Routine::prepare(bind_embedding, |args, _| copy_rows(args))
}

/// The row of a table of `rows` rows that element `at` of the indices names.
fn table_row(index: i64, at: usize, rows: usize) -> Result<usize> {
    check_index_at(index, rows, || format!(" at element {at}")).map_err(|e| e.argument("indices"))
}

fn copy_rows(args: &Args<'_>) -> Result<()> {
    let weight = args.tensor(0)?;
    let indices = Reader::<i64>::new(args.tensor(1)?)?;
    let mut out = args.output(5)?;
    let (at, last) = (row_major(indices.meta()), out.rank() - 1);
    let row = Dims::new(&[weight.shape()[1]])?;
    let targets = Walk::new(0..last, out.shape(), &signed(out.strides()));
    let mut to = StridedRegion::of(&out.strides()[last..]);
    let mut from = StridedRegion::of(&weight.strides()[1..]);
    for position in 0..indices.meta().numel() {
        let index = indices.get(at.offset(position) as usize)?;
        let index = table_row(index, position, weight.shape()[0])?;
        from.offset = index as isize * weight.strides()[0] as isize;
        to.offset = targets.offset(position);
        copy_region(&row, &weight, from, &mut out, to)?;
    }
    Ok(())
}

fn map_index_select(args: &Args<'_>) -> Result<Mapping> {
    let (x, index) = (args.tensor(0)?, args.tensor(2)?);
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    if index.rank() > 1 || (x.rank() == 0 && index.numel() != 1) {
        return Err(Error::kernel("positions must be a vector")
            .argument("index")
            .got(index.shape().to_string()));
    }
    let mut shape = *x.shape();
    if let Some(extent) = shape.get_mut(dim) {
        *extent = index.numel();
    }
    Ok(Mapping::new(&x, shape, 1 << dim))
}

fn list_index_select(args: &Args<'_>, d: usize, first: usize, list: &mut [usize]) -> Result<()> {
    let index = Reader::<i64>::new(args.tensor(2)?)?;
    let extent = args.tensor(0)?.shape().get(d).copied().unwrap_or(1);
    for (i, slot) in list.iter_mut().enumerate() {
        *slot = check_index(index.get(first + i)?, extent).map_err(|e| e.argument("index"))?;
    }
    Ok(())
}

/// embedding, index_select.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::embedding.out(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("rows", embedding::prepare)
    .plain(prepare_embedding),
    kernel("aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        same_dtype(ctx, 0, 3)?;
        check_positions(ctx, 2)?;
        mapped_copy::prepare(ctx, 3, map_index_select, list_index_select)
    }),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use proptest::prelude::*;
    use pteron_core::DType;

    fn table() -> Tensor {
        Tensor::of(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
    }

    #[test]
    fn rows_of_a_table() {
        let look = |i: &[i32]| {
            let args = [
                table().into(),
                Tensor::of(&[i.len()], i).into(),
                (-1i64).into(),
                false.into(),
                false.into(),
            ];
            run_out("aten::embedding.out", &args, DType::Float32, &[i.len(), 2])
        };
        assert_eq!(look(&[2, 0]).unwrap().values::<f32>(), [5.0, 6.0, 1.0, 2.0]);
        assert!(error_text(look(&[3])).contains("got 3"));
        assert!(error_text(look(&[-1])).contains("got -1"));
    }

    #[test]
    fn an_empty_dimension_has_no_positions() {
        let empty = || Tensor::of::<f32>(&[0, 2], &[]);
        let select = |n: usize| {
            let args = [empty().into(), 0i64.into(), Tensor::of(&[n], &vec![0i64; n]).into()];
            run_out("aten::index_select.out", &args, DType::Float32, &[n, 2])
        };
        assert!(select(0).is_ok());
        let text = error_text(select(3));
        assert!(
            text.contains("without elements; expected no indices along dimension 0; got 3 indices"),
            "{text}"
        );
    }

    proptest! {
        // Hostile positions are refused or used, never followed outside.
        #[test]
        fn positions_outside_are_refused(i in prop_oneof![any::<i64>(), -4i64..5], j in -4i64..5) {
            let index = Tensor::of(&[2], &[i, j]);
            let inside = |v: i64| (0..3).contains(&v);
            let args = [table().into(), 0i64.into(), index.into()];
            let got = run_out("aten::index_select.out", &args, DType::Float32, &[2, 2]);
            prop_assert_eq!(got.is_ok(), inside(i) && inside(j));
        }
    }
}
