//! Advanced indexing: index, index_put. Any dimensions may be indexed by position tensors, which
//! broadcast with each other.
//!
//! Shape: indexed dimensions that stand together are replaced in place by those of the positions,
//! others move to the front. Dtype: data keeps its dtype; positions are int32 or int64. Edge cases:
//! negative positions count from the end; one outside is an error that names it; repeated positions
//! keep the last value or, accumulating, add up.

use crate::compute::Compute;
use crate::elements::{Reader, UpdateView};
use crate::ops::indexing::is_int;
use crate::ops::layout::same_dtype;
use crate::region::{Region, copy_region, copy_whole};
use crate::routine::{Preparation, Routine, kernel};
use crate::shape::{broadcast, check_expandable, wrap_index};
use crate::walk::{Walk, broadcast_strides, signed};
use pteron_core::{
    ArgSpec, Args, BindArgs, DType, Dims, Error, MAX_RANK, PrepareContext, Result, StaticKernel, TensorListView,
};

/// Which dimensions are indexed and the shape of the result.
struct Advanced {
    /// Bit `d`: dimension `d` is indexed.
    set: u32,
    /// The broadcast shape of the index tensors.
    index_shape: Dims,
    /// Where the index dimensions stand in the result.
    at: usize,
    shape: Dims,
}

fn advanced(x: &Dims, indices: &TensorListView<'_>) -> Result<Advanced> {
    if indices.len() > x.len() {
        return Err(Error::kernel("there are more indices than dimensions")
            .argument("indices")
            .expected(format!("at most {}", x.len()))
            .got(indices.len().to_string()));
    }
    let (mut set, mut index_shape, mut is_first) = (0u32, Dims::EMPTY, true);
    for d in 0..indices.len() {
        if let Some(index) = indices.get_optional(d)? {
            set |= 1 << d;
            index_shape = if is_first { *index.shape() } else { broadcast(&index_shape, index.shape())? };
            is_first = false;
        }
    }
    if set == 0 {
        return Err(Error::kernel("there must be at least one index").argument("indices"));
    }
    // Indexed dimensions that stand together leave their place to the result, others move to the front.
    let first = set.trailing_zeros() as usize;
    let together = (set >> first).count_ones() == 32 - (set >> first).leading_zeros();
    let at = if together { first } else { 0 };
    let mut shape = Dims::EMPTY;
    for d in 0..x.len() {
        if shape.len() == at && at == d {
            index_shape.iter().try_for_each(|n| shape.push(*n))?;
        }
        if set & (1 << d) == 0 {
            shape.push(x[d])?;
        }
    }
    if at == 0 && shape.len() < index_shape.len() {
        shape = index_shape;
    }
    Ok(Advanced { set, index_shape, at, shape })
}

/// Where the dimensions that are not indexed lie on both sides, and the indexed ones in the result.
struct Walks {
    rest: Dims,
    self_strides: [isize; MAX_RANK],
    result_strides: [isize; MAX_RANK],
    result_index: Walk,
}

impl Advanced {
    fn walks(&self, x: &Dims, x_strides: &Dims, result_strides: &[isize; MAX_RANK]) -> Result<Walks> {
        let n = self.index_shape.len();
        let mut walks = Walks {
            rest: Dims::EMPTY,
            self_strides: [0; MAX_RANK],
            result_strides: [0; MAX_RANK],
            result_index: Walk::row_major(&self.index_shape, &result_strides[self.at..]),
        };
        let mut result = 0;
        for d in 0..x.len() {
            if result == self.at {
                result += n;
            }
            if self.set & (1 << d) == 0 {
                walks.self_strides[walks.rest.len()] = x_strides[d] as isize;
                walks.result_strides[walks.rest.len()] = result_strides[result];
                walks.rest.push(x[d])?;
                result += 1;
            }
        }
        Ok(walks)
    }

    /// Calls `visit(offset in the result, offset in self)` for every position of the index tensors.
    fn for_each(
        &self,
        x: &Dims,
        x_strides: &Dims,
        indices: &TensorListView<'_>,
        walks: &Walks,
        mut visit: impl FnMut(isize, isize) -> Result<()>,
    ) -> Result<()> {
        let mut readers: [Option<(Reader<'_, i64>, Walk)>; MAX_RANK] = [const { None }; MAX_RANK];
        for (d, slot) in readers.iter_mut().enumerate().take(indices.len()) {
            if let Some(index) = indices.get_optional(d)? {
                let strides = broadcast_strides(index.shape(), index.strides(), self.index_shape.len());
                *slot = Some((Reader::new(index)?, Walk::row_major(&self.index_shape, &strides)));
            }
        }
        for position in 0..self.index_shape.numel()? {
            let mut offset = 0isize;
            for (d, slot) in readers.iter().enumerate() {
                if let Some((reader, walk)) = slot {
                    let value = reader.get(walk.offset(position) as usize)?;
                    let value = wrap_index(value, x[d]).map_err(|e| e.argument("indices"))?;
                    offset += (value * x_strides[d]) as isize;
                }
            }
            visit(walks.result_index.offset(position), offset)?;
        }
        Ok(())
    }
}

fn check_index_list(ctx: &PrepareContext<'_>) -> Result<()> {
    let Some(ArgSpec::TensorList(list)) = ctx.args.get(1) else {
        return Err(Error::kernel("argument 1 has the wrong kind").expected("Tensor?[]"));
    };
    for spec in list.iter().flatten() {
        if !matches!(spec.dtype, DType::Int64 | DType::Int32) {
            return Err(Error::kernel("positions must be integers")
                .argument("indices")
                .expected("int64 or int32")
                .got(spec.dtype.name())
                .hint("replace a bool mask by nonzero or where before exporting"));
        }
    }
    Ok(())
}

fn bind_index(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = advanced(view.tensor(0)?.shape(), &view.tensor_list(1)?)?.shape;
    args.resize(2, &shape)
}

fn index(args: &Args<'_>) -> Result<()> {
    let (x, indices) = (args.tensor(0)?, args.tensor_list(1)?);
    let mut out = args.output(2)?;
    let plan = advanced(x.shape(), &indices)?;
    let walks = plan.walks(x.shape(), x.strides(), &signed(out.strides()))?;
    plan.for_each(x.shape(), x.strides(), &indices, &walks, |to, from| {
        let from = Region { offset: from, strides: walks.self_strides };
        let to = Region { offset: to, strides: walks.result_strides };
        copy_region(&walks.rest, &x, from, &mut out, to)
    })
}

/// Writes values to indexed places of output `out`, which holds the tensor already.
fn index_put<C: Compute>(args: &Args<'_>, out: usize) -> Result<()> {
    let (indices, values) = (args.tensor_list(1)?, args.tensor(2)?);
    let meta = args.tensor(out)?.meta();
    let plan = advanced(meta.shape(), &indices)?;
    check_expandable(values.shape(), &plan.shape).map_err(|e| e.argument("values"))?;
    let value_strides = broadcast_strides(values.shape(), values.strides(), plan.shape.len());
    let walks = plan.walks(meta.shape(), meta.strides(), &value_strides)?;
    if !args.bool(3)? {
        let mut target = args.output(out)?;
        return plan.for_each(meta.shape(), meta.strides(), &indices, &walks, |from, to| {
            let from = Region { offset: from, strides: walks.result_strides };
            let to = Region { offset: to, strides: walks.self_strides };
            copy_region(&walks.rest, &values, from, &mut target, to)
        });
    }
    let source = Reader::<C>::new(values)?;
    let mut target = UpdateView::<C>::new(args, out)?;
    let rest_from = Walk::row_major(&walks.rest, &walks.result_strides);
    let rest_to = Walk::row_major(&walks.rest, &walks.self_strides);
    plan.for_each(meta.shape(), meta.strides(), &indices, &walks, |from, to| {
        (0..rest_from.numel()).try_for_each(|i| {
            let value = source.get((from + rest_from.offset(i)) as usize)?;
            target.update((to + rest_to.offset(i)) as usize, |old| old.plus(value))
        })
    })
}

fn put(ctx: &PrepareContext<'_>, is_in_place: bool) -> Preparation {
    check_index_list(ctx)?;
    same_dtype(ctx, 0, 2)?;
    if is_in_place {
        return if is_int(ctx)? {
            Routine::prepare(|_| Ok(()), |args, _| index_put::<i64>(args, 0))
        } else {
            Routine::prepare(|_| Ok(()), |args, _| index_put::<f64>(args, 0))
        };
    }
    same_dtype(ctx, 0, 4)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(4, &shape)
    }
    if is_int(ctx)? {
        Routine::prepare(bind, |args, _| {
            copy_whole(&args.tensor(0)?, &mut args.output(4)?)?;
            index_put::<i64>(args, 4)
        })
    } else {
        Routine::prepare(bind, |args, _| {
            copy_whole(&args.tensor(0)?, &mut args.output(4)?)?;
            index_put::<f64>(args, 4)
        })
    }
}

/// index, index_put.
pub static KERNELS: &[StaticKernel] = &[
    kernel("aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        same_dtype(ctx, 0, 2)?;
        check_index_list(ctx)?;
        Routine::prepare(bind_index, |args, _| index(args))
    }),
    kernel(
        "aten::index_put.out(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| put(ctx, false),
    ),
    kernel(
        "aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)",
        |ctx| put(ctx, true),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, run_out};
    use proptest::prelude::*;
    use pteron_core::DType;

    fn table() -> Tensor {
        Tensor::of(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
    }

    #[test]
    fn advanced_indexing_in_the_middle_and_apart() {
        let x = Tensor::of(&[2, 3, 2], &(0..12).collect::<Vec<i32>>());
        let i = Tensor::of(&[2], &[-1i64, 0]);
        let list = Arg::TensorList(vec![None, Some(i.clone())]);
        let y = run_out("aten::index.Tensor_out", &[x.clone().into(), list], DType::Int32, &[2, 2, 2]).unwrap();
        assert_eq!(y.values::<i32>(), [4, 5, 0, 1, 10, 11, 6, 7]);
        let j = Tensor::of(&[2], &[0i64, 1]);
        let list = Arg::TensorList(vec![Some(j), None, Some(i)]);
        let y = run_out("aten::index.Tensor_out", &[x.into(), list], DType::Int32, &[2, 3]).unwrap();
        assert_eq!(y.values::<i32>(), [1, 3, 5, 6, 8, 10]);
    }

    #[test]
    fn index_put_replaces_and_adds() {
        let i = Tensor::of(&[3], &[0i64, 0, 2]);
        let put = |accumulate: bool| {
            let values = Tensor::of(&[1], &[1f32]);
            let args = [table().into(), Arg::TensorList(vec![Some(i.clone())]), values.into(), accumulate.into()];
            run_out("aten::index_put.out", &args, DType::Float32, &[3, 2]).unwrap().values::<f32>()
        };
        assert_eq!(put(false), [1.0, 1.0, 3.0, 4.0, 1.0, 1.0]);
        assert_eq!(put(true), [3.0, 4.0, 3.0, 4.0, 6.0, 7.0]);
    }

    proptest! {
        // Hostile positions are refused or used, never followed outside.
        #[test]
        fn positions_outside_are_refused(i in prop_oneof![any::<i64>(), -4i64..5], j in -4i64..5) {
            let index = Tensor::of(&[2], &[i, j]);
            let wraps = |v: i64| (-3..3).contains(&v);
            let list = Arg::TensorList(vec![Some(index)]);
            let got = run_out("aten::index.Tensor_out", &[table().into(), list.clone()], DType::Float32, &[2, 2]);
            prop_assert_eq!(got.is_ok(), wraps(i) && wraps(j));
            for accumulate in [false, true] {
                let value = Tensor::of(&[], &[0f32]);
                let args = [table().into(), list.clone(), value.into(), accumulate.into()];
                prop_assert_eq!(call("aten::index_put_", &args).is_ok(), wraps(i) && wraps(j));
            }
        }
    }
}
