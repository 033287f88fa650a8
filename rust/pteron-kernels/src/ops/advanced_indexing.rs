//! Advanced indexing: index, index_put. Any dimensions may be indexed by position tensors and masks,
//! which broadcast with each other.
//!
//! Shape: indexed dimensions that stand together are replaced in place by those of the positions,
//! others move to the front. Dtype: data keeps its dtype; positions are int32 or int64, masks bool. Edge cases:
//! negative positions count from the end; one outside is an error that names it; repeated positions
//! keep the last value or, accumulating, add up.

use crate::compute::Compute;
use crate::elements::{Reader, UpdateView};
use crate::ops::data_dependent::no_room;
use crate::ops::index_items::{IndexItems, MaskCount};
use crate::ops::indexing::is_int;
use crate::ops::layout::same_dtype;
use crate::region::{Region, copy_region, copy_to_update};
use crate::routine::{Preparation, Routine, RunFn, kernel};
use crate::shape::check_expandable;
use crate::walk::{Walk, broadcast_strides, signed};
use pteron_core::{
    ArgSpec, Args, BindArgs, DType, Dims, Error, MAX_RANK, PrepareContext, Result, StaticKernel, WorkerScratch,
};

/// Which dimensions are indexed and the shape of the result.
struct Advanced {
    /// Bit `d`: dimension `d` is indexed.
    set: u32,
    /// The common shape of the index tensors.
    index_shape: Dims,
    /// Where the index dimensions stand in the result.
    at: usize,
    shape: Dims,
}

fn advanced(x: &Dims, items: &IndexItems<'_>) -> Result<Advanced> {
    let (set, index_shape) = (items.set(), items.shape()?);
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
}

/// Checks the dtypes of the index list; bytes of scratch that its masks need.
fn check_index_list(ctx: &PrepareContext<'_>) -> Result<usize> {
    let Some(ArgSpec::TensorList(list)) = ctx.args.get(1) else {
        return Err(Error::kernel("argument 1 has the wrong kind").expected("Tensor?[]"));
    };
    let mut elements = 0;
    for spec in list.iter().flatten() {
        match spec.dtype {
            DType::Int64 | DType::Int32 => {}
            DType::Bool => elements += spec.shape.numel()?,
            other => {
                return Err(Error::kernel("positions must be integers, masks bool")
                    .argument("indices")
                    .expected("int64, int32 or bool")
                    .got(other.name()));
            }
        }
    }
    Ok(elements * size_of::<u64>())
}

fn has_mask(ctx: &PrepareContext<'_>) -> bool {
    matches!(ctx.args.get(1), Some(ArgSpec::TensorList(l)) if l.iter().flatten().any(|s| s.dtype == DType::Bool))
}

fn room<'a>(scratch: &'a mut WorkerScratch<'_>) -> Result<&'a mut [u64]> {
    bytemuck::try_cast_slice_mut(scratch.worker).map_err(|_| Error::internal("scratch is misaligned"))
}

fn result_shape(args: &BindArgs<'_>, count: MaskCount) -> Result<Dims> {
    let view = args.args();
    let x = *view.tensor(0)?.shape();
    Ok(advanced(&x, &IndexItems::new(&x, &view.tensor_list(1)?, count)?)?.shape)
}

fn bind_index(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = result_shape(args, MaskCount::Most)?;
    args.resize(2, &shape)
}

/// With masks: the largest shape that there is room for, until it is known how many are true.
fn bind_masked_index(args: &mut BindArgs<'_>) -> Result<()> {
    let (mut shape, bound) = (result_shape(args, MaskCount::Most)?, args.bound(2)?);
    for (n, most) in shape.iter_mut().zip(bound.iter()) {
        *n = (*n).min(*most);
    }
    args.resize(2, &shape)
}

fn finish_masked_index(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = result_shape(args, MaskCount::Exact)?;
    args.resize(2, &shape)
}

fn index(args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let mut out = args.output(2)?;
    let items = IndexItems::new(x.shape(), &args.tensor_list(1)?, MaskCount::Exact)?;
    let plan = advanced(x.shape(), &items)?;
    if plan.shape.numel()? > out.numel() {
        return Err(no_room(out.shape().get(plan.at).copied().unwrap_or(0)));
    }
    // The result lies in memory as its own shape says, which `finish` gives it.
    let strides = out.meta().dim_order().strides(&plan.shape);
    let walks = plan.walks(x.shape(), x.strides(), &signed(&strides))?;
    items.for_each(x.shape(), x.strides(), &plan.index_shape, room(scratch)?, |number, from| {
        let from = Region { offset: from, strides: walks.self_strides };
        let to = Region { offset: walks.result_index.offset(number), strides: walks.result_strides };
        copy_region(&walks.rest, &x, from, &mut out, to)
    })
}

/// Writes values to indexed places of output `out`, which holds the tensor already.
fn index_put<C: Compute>(args: &Args<'_>, scratch: &mut WorkerScratch<'_>, out: usize) -> Result<()> {
    let values = args.tensor(2)?;
    let meta = args.tensor(out)?.meta();
    let items = IndexItems::new(meta.shape(), &args.tensor_list(1)?, MaskCount::Exact)?;
    let plan = advanced(meta.shape(), &items)?;
    check_expandable(values.shape(), &plan.shape).map_err(|e| e.argument("values"))?;
    let value_strides = broadcast_strides(values.shape(), values.strides(), plan.shape.len());
    let walks = plan.walks(meta.shape(), meta.strides(), &value_strides)?;
    let (shape, strides, room) = (meta.shape(), meta.strides(), room(scratch)?);
    if !args.bool(3)? {
        let mut target = args.output(out)?;
        return items.for_each(shape, strides, &plan.index_shape, room, |number, to| {
            let from = Region { offset: walks.result_index.offset(number), strides: walks.result_strides };
            let to = Region { offset: to, strides: walks.self_strides };
            copy_region(&walks.rest, &values, from, &mut target, to)
        });
    }
    let source = Reader::<C>::new(values)?;
    let mut target = UpdateView::<C>::new(args, out)?;
    let rest_from = Walk::row_major(&walks.rest, &walks.result_strides);
    let rest_to = Walk::row_major(&walks.rest, &walks.self_strides);
    items.for_each(shape, strides, &plan.index_shape, room, |number, to| {
        let from = walks.result_index.offset(number);
        (0..rest_from.numel()).try_for_each(|i| {
            let value = source.get((from + rest_from.offset(i)) as usize)?;
            target.update((to + rest_to.offset(i)) as usize, |old| old.plus(value))
        })
    })
}

fn put(ctx: &PrepareContext<'_>, is_in_place: bool) -> Preparation {
    let scratch = check_index_list(ctx)?;
    same_dtype(ctx, 0, 2)?;
    if is_in_place {
        let run: RunFn = if is_int(ctx)? {
            |args, scratch| index_put::<i64>(args, scratch, 0)
        } else {
            |args, scratch| index_put::<f64>(args, scratch, 0)
        };
        return Routine::prepare_with_scratch(scratch, |_| Ok(()), run);
    }
    same_dtype(ctx, 0, 4)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(4, &shape)
    }
    let run: RunFn = if is_int(ctx)? {
        |args, scratch| {
            copy_to_update(&args.tensor(0)?, &mut args.output(4)?)?;
            index_put::<i64>(args, scratch, 4)
        }
    } else {
        |args, scratch| {
            copy_to_update(&args.tensor(0)?, &mut args.output(4)?)?;
            index_put::<f64>(args, scratch, 4)
        }
    };
    Routine::prepare_update(scratch, bind, run)
}

/// index, index_put.
pub static KERNELS: &[StaticKernel] = &[
    kernel("aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        same_dtype(ctx, 0, 2)?;
        let scratch = check_index_list(ctx)?;
        if has_mask(ctx) {
            return Routine::prepare_with_finish_and_scratch(scratch, bind_masked_index, index, finish_masked_index);
        }
        Routine::prepare(bind_index, index)
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
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use proptest::prelude::*;
    use pteron_core::{Bool8, DType};

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

    fn mask(shape: &[usize], values: &[u8]) -> Tensor {
        Tensor::of(shape, &values.iter().map(|v| Bool8(*v)).collect::<Vec<_>>())
    }

    #[test]
    fn masks_choose_rows_elements_and_inner_dimensions() {
        let x = Tensor::of(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        let take = |list: Vec<Option<Tensor>>, room: &[usize]| {
            let y = run_out(
                "aten::index.Tensor_out",
                &[x.clone().into(), Arg::TensorList(list)],
                DType::Int32,
                room,
            )?;
            Ok::<_, pteron_core::Error>((y.shape().to_vec(), y.values::<i32>()))
        };
        let rows = take(vec![Some(mask(&[2], &[0, 1]))], &[2, 3]).unwrap();
        assert_eq!(rows, (vec![1, 3], vec![4, 5, 6]));
        let elements = take(vec![Some(mask(&[2, 3], &[1, 0, 0, 0, 1, 1]))], &[6]).unwrap();
        assert_eq!(elements, (vec![3], vec![1, 5, 6]));
        let inner = take(vec![None, Some(mask(&[3], &[1, 0, 1]))], &[2, 3]).unwrap();
        assert_eq!(inner, (vec![2, 2], vec![1, 3, 4, 6]));
        let none = take(vec![Some(mask(&[2], &[0, 0]))], &[2, 3]).unwrap();
        assert_eq!(none, (vec![0, 3], vec![]));
        let both = take(vec![Some(mask(&[2], &[1, 1])), Some(Tensor::of(&[1], &[-1i64]))], &[2]).unwrap();
        assert_eq!(both, (vec![2], vec![3, 6]));
        // Room for fewer than the mask has elements is fine until they are chosen.
        assert_eq!(take(vec![Some(mask(&[2], &[0, 1]))], &[1, 3]).unwrap().1, [4, 5, 6]);
        let e = error_text(take(vec![Some(mask(&[2], &[1, 1]))], &[1, 3]));
        assert!(e.contains("more elements than the program has room for"), "{e}");
        let e = error_text(take(vec![Some(mask(&[3], &[1, 1, 1]))], &[2, 3]));
        assert!(e.contains("another shape"), "{e}");
    }

    #[test]
    fn masks_say_where_values_go() {
        let m = mask(&[3], &[1, 0, 1]);
        let put = |values: Tensor, accumulate: bool| {
            let args = [table().into(), Arg::TensorList(vec![Some(m.clone())]), values.into(), accumulate.into()];
            run_out("aten::index_put.out", &args, DType::Float32, &[3, 2]).unwrap().values::<f32>()
        };
        assert_eq!(put(Tensor::of(&[], &[9f32]), false), [9.0, 9.0, 3.0, 4.0, 9.0, 9.0]);
        let two = Tensor::of(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
        assert_eq!(put(two, true), [2.0, 4.0, 3.0, 4.0, 8.0, 10.0]);
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
