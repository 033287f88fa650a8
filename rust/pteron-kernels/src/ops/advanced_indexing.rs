//! Advanced indexing: index, index_put. Any dimensions may be indexed by position tensors and masks,
//! which broadcast with each other.
//!
//! Shape: indexed dimensions that stand together are replaced in place by those of the positions,
//! others move to the front. Dtype: data keeps its dtype; positions are int32 or int64, masks bool. Edge cases:
//! negative positions count from the end; one outside is an error that names it; repeated positions
//! keep the last value or, accumulating, add up.

use crate::chunked::{CHUNK, in_ranges};
use crate::compute::Kind;
use crate::elements::Reader;
use crate::frame::Split;
use crate::indexed::{self, Meet, Named, Row, Scatter};
use crate::operator::{Operator, kernel};
use crate::ops::data_dependent::no_room;
use crate::ops::index_items::{IndexItems, MaskCount, wrap_positions};
use crate::ops::layout::same_dtype;
use crate::routine::{Preparation, Routine, RunFn, dtype_of};
use crate::shape::check_expandable;
use crate::strided::copy::{RegionCopy, StridedRegion, copy_to_update};
use crate::strided::loops::Loops;
use crate::strided::loops::{Walk, broadcast_strides, signed};
use crate::strided::mapped_copy::{self, Mapping};
use pteron_core::{
    ArgSpec, Args, BindArgs, DType, Dims, Error, MAX_RANK, PrepareContext, Result, TensorView, TensorViewMut,
};
use std::ops::Range;

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

fn room(scratch: &mut [u8]) -> Result<&mut [u64]> {
    bytemuck::try_cast_slice_mut(scratch).map_err(|_| Error::internal("scratch is misaligned"))
}

fn result_shape(args: &BindArgs<'_>, count: MaskCount) -> Result<Dims> {
    let view = args.args();
    let x = *view.tensor(0)?.shape();
    Ok(advanced(&x, &IndexItems::new(&x, &view.tensor_list(1)?, count)?)?.shape)
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

/// Index blocks of a few places are not worth a pass over all other dimensions.
const FEW: usize = 8;

impl Walks {
    /// Rows of places are moved for every index of the other dimensions, rather than what is in those for
    /// every place?
    fn moves_places(&self) -> bool {
        let mut step = 0;
        let _ = self.result_index.runs(0, self.result_index.numel().min(1), |_, _, stride, _| {
            step = stride;
            Ok::<(), ()>(())
        });
        self.rest.iter().all(|n| *n == 1) || (step == 1 && self.result_index.numel() >= FEW)
    }

    fn rest_loops(&self, first: &[isize; MAX_RANK], second: &[isize; MAX_RANK]) -> Loops<2> {
        Loops::over(0..self.rest.len(), &self.rest, [first, second])
    }

    /// Visits the other dimensions one by one: where they lie in the tensor and in the result.
    fn each_rest(&self, mut visit: impl FnMut(isize, isize) -> Result<()>) -> Result<()> {
        let loops = self.rest_loops(&self.self_strides, &self.result_strides);
        let [own, result] = loops.inner_strides();
        loops.each_run(0, loops.numel(), |_, [at, to], len| {
            (0..len as isize).try_for_each(|i| visit(at + i * own, to + i * result))
        })
    }

    /// Visits the places numbered from `first` on: offset in the tensor, and in the result.
    fn each_place(
        &self,
        first: usize,
        offsets: &[i64],
        mut visit: impl FnMut(isize, isize) -> Result<()>,
    ) -> Result<()> {
        self.result_index.runs(first, offsets.len(), |done, at, stride, len| {
            offsets[done..done + len]
                .iter()
                .enumerate()
                .try_for_each(|(i, offset)| visit(*offset as isize, at + i as isize * stride))
        })
    }
}

/// A place of which `before` elements lie in the tensor before it.
fn places(before: isize, reach: usize) -> Named {
    Named { row: Row { start: before, step: 0 }, stride: 1, extent: reach }
}

/// One more than the largest offset that the indexed dimensions of a tensor reach.
fn reach(set: u32, shape: &Dims, strides: &Dims) -> usize {
    let far = |d: usize| if set & 1 << d == 0 { 0 } else { shape[d].saturating_sub(1) * strides[d] };
    1 + (0..shape.len()).map(far).sum::<usize>()
}

/// Moves the elements numbered `range` (all of them: `None`) of the index tensors.
fn index(args: &Args<'_>, range: Option<Range<usize>>, scratch: &mut [u8]) -> Result<()> {
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
    let (from, to) = (
        StridedRegion { offset: 0, strides: walks.self_strides },
        StridedRegion { offset: 0, strides: walks.result_strides },
    );
    // Of nothing only positions outside can be chosen, which `blocks` finds.
    let is_empty = x.numel() == 0 || out.numel() == 0;
    let rest = if is_empty {
        RegionCopy::EMPTY
    } else {
        RegionCopy::new(&walks.rest, from, x.numel(), to, out.numel())?
    };
    let (reach, moves_places) = (reach(plan.set, x.shape(), x.strides()), walks.moves_places());
    let range = range.unwrap_or(0..plan.index_shape.numel()?);
    items.blocks((x.shape(), x.strides()), &plan.index_shape, range, room(scratch)?, |number, offsets| {
        if !moves_places {
            return walks.each_place(number, offsets, |from, to| rest.run_at(&x, from, &mut out, to));
        }
        walks.each_rest(|from, to| {
            walks.result_index.runs(number, offsets.len(), |done, at, step, len| {
                let row = Row { start: to + at, step };
                indexed::gather(&x, places(from, reach), &offsets[done..done + len], &mut out, row)
            })
        })
    })
}

fn bind_positions(args: &mut BindArgs<'_>) -> Result<Split> {
    let view = args.args();
    let x = *view.tensor(0)?.shape();
    let plan = advanced(&x, &IndexItems::new(&x, &view.tensor_list(1)?, MaskCount::Most)?)?;
    args.resize(2, &plan.shape)?;
    let count = plan.index_shape.numel()?;
    Ok(Split::within(count, plan.shape.numel()?.checked_div(count).unwrap_or(0).max(1), CHUNK, 1))
}

/// The one index tensor, if it is a vector of positions, and its dimension.
fn single_vector(ctx: &PrepareContext<'_>) -> bool {
    let Some(ArgSpec::TensorList(list)) = ctx.args.get(1) else { return false };
    let mut present = list.iter().flatten();
    present.next().is_some_and(|s| s.dtype != DType::Bool && s.shape.len() == 1) && present.next().is_none()
}

/// The vector of positions and its dimension.
fn vector<'a>(args: &Args<'a>) -> Result<(usize, TensorView<'a>)> {
    let list = args.tensor_list(1)?;
    for d in 0..list.len() {
        if let Some(index) = list.get_optional(d)? {
            return Ok((d, index));
        }
    }
    Err(Error::internal("there is no index"))
}

fn map_vector(args: &Args<'_>) -> Result<Mapping> {
    let x = args.tensor(0)?;
    // For its checks.
    IndexItems::new(x.shape(), &args.tensor_list(1)?, MaskCount::Most)?;
    let ((d, index), mut shape) = (vector(args)?, *x.shape());
    *shape.get_mut(d).ok_or_else(|| Error::internal("no such dimension"))? = index.numel();
    Ok(Mapping::new(&x, shape, 1 << d))
}

fn list_vector(args: &Args<'_>, d: usize, first: usize, list: &mut [usize]) -> Result<()> {
    let (index, extent) =
        (Reader::<i64>::new(vector(args)?.1)?, args.tensor(0)?.shape().get(d).copied().unwrap_or(1));
    let mut block = [0; crate::compute::BLOCK];
    for (i, part) in list.chunks_mut(block.len()).enumerate() {
        let positions = &mut block[..part.len()];
        index.read((first + i * crate::compute::BLOCK) as isize, 1, positions)?;
        wrap_positions(positions, extent)?;
        part.iter_mut().zip(positions).for_each(|(slot, p)| *slot = *p as usize);
    }
    Ok(())
}

/// Writes values to indexed places of output `out`, which holds the tensor already.
fn index_put(args: &Args<'_>, scratch: &mut [u8], out: usize) -> Result<()> {
    let values = args.tensor(2)?;
    let meta = args.tensor(out)?.meta();
    let items = IndexItems::new(meta.shape(), &args.tensor_list(1)?, MaskCount::Exact)?;
    let plan = advanced(meta.shape(), &items)?;
    check_expandable(values.shape(), &plan.shape).map_err(|e| e.argument("values"))?;
    let value_strides = broadcast_strides(values.shape(), values.strides(), plan.shape.len());
    let walks = plan.walks(meta.shape(), meta.strides(), &value_strides)?;
    let (x, range) = ((meta.shape(), meta.strides()), 0..plan.index_shape.numel()?);
    let meet = if args.bool(3)? { Meet::Add } else { Meet::Replace };
    if walks.moves_places() {
        let mut scatter = Scatter::new(args.output(out)?, meet)?;
        let reach = reach(plan.set, meta.shape(), meta.strides());
        return items.blocks(x, &plan.index_shape, range, room(scratch)?, |number, offsets| {
            walks.each_rest(|to, from| {
                walks.result_index.runs(number, offsets.len(), |done, at, step, len| {
                    let row = Row { start: from + at, step };
                    scatter.row(&values, row, places(to, reach), &offsets[done..done + len])
                })
            })
        });
    }
    put_rest(&walks, (&values, args.output(out)?, meet), |visit| {
        items.blocks(x, &plan.index_shape, range, room(scratch)?, |number, offsets| {
            walks.each_place(number, offsets, &mut *visit)
        })
    })
}

/// Puts what lies in the other dimensions, place by place; `places` visits those: offset in the target, and in
/// the values.
fn put_rest(
    walks: &Walks,
    (values, mut target, meet): (&TensorView<'_>, TensorViewMut<'_>, Meet),
    places: impl FnOnce(&mut dyn FnMut(isize, isize) -> Result<()>) -> Result<()>,
) -> Result<()> {
    if meet == Meet::Replace {
        let region = |strides| StridedRegion { offset: 0, strides };
        let (from, to) = (region(walks.result_strides), region(walks.self_strides));
        let is_empty = values.numel() == 0 || target.numel() == 0;
        let rest = if is_empty {
            RegionCopy::EMPTY
        } else {
            RegionCopy::new(&walks.rest, from, values.numel(), to, target.numel())?
        };
        return places(&mut |to, from| rest.run_at(values, from, &mut target, to));
    }
    let loops = walks.rest_loops(&walks.result_strides, &walks.self_strides);
    let ([from_step, to_step], zeros) = (loops.inner_strides(), [0i64; crate::compute::BLOCK]);
    let mut scatter = Scatter::new(target, meet)?;
    places(&mut |to, from| {
        loops.each_run(0, loops.numel(), |_, [beside, at], len| {
            for i in (0..len).step_by(zeros.len()) {
                let (n, i) = ((len - i).min(zeros.len()), i as isize);
                let row = Row { start: from + beside + i * from_step, step: from_step };
                let place = Row { start: to + at + i * to_step, step: to_step };
                scatter.row(values, row, Named { row: place, stride: 0, extent: 1 }, &zeros[..n])?;
            }
            Ok(())
        })
    })
}

fn put(ctx: &PrepareContext<'_>, is_in_place: bool) -> Preparation {
    let scratch = check_index_list(ctx)?;
    same_dtype(ctx, 0, 2)?;
    Kind::of(dtype_of(ctx, 0)?)?;
    if is_in_place {
        let run: RunFn = |args, scratch| index_put(args, scratch.worker, 0);
        return Routine::prepare_with_scratch(scratch, |_| Ok(()), run);
    }
    same_dtype(ctx, 0, 4)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(4, &shape)
    }
    Routine::prepare_update(scratch, bind, |args, scratch| {
        copy_to_update(&args.tensor(0)?, &mut args.output(4)?)?;
        index_put(args, scratch.worker, 4)
    })
}

/// index, index_put.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 2)?;
            let scratch = check_index_list(ctx)?;
            if has_mask(ctx) {
                let run: RunFn = |args, scratch| index(args, None, scratch.worker);
                return Routine::prepare_with_finish_and_scratch(
                    scratch,
                    bind_masked_index,
                    run,
                    finish_masked_index,
                );
            }
            if single_vector(ctx) {
                return mapped_copy::prepare(ctx, 2, map_vector, list_vector);
            }
            in_ranges(
                0,
                |args, _: &mut ()| bind_positions(args),
                |_, args, range, scratch| index(args, Some(range), scratch),
            )
        },
    ),
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
        let y =
            run_out("aten::index.Tensor_out", &[x.clone().into(), list], DType::Int32, &[2, 2, 2]).unwrap();
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
            let args =
                [table().into(), Arg::TensorList(vec![Some(i.clone())]), values.into(), accumulate.into()];
            run_out("aten::index_put.out", &args, DType::Float32, &[3, 2]).unwrap().values::<f32>()
        };
        assert_eq!(put(false), [1.0, 1.0, 3.0, 4.0, 1.0, 1.0]);
        assert_eq!(put(true), [3.0, 4.0, 3.0, 4.0, 6.0, 7.0]);
    }

    #[test]
    fn rows_without_elements_are_chosen_and_put() {
        let x = Tensor::of::<f32>(&[3, 0], &[]);
        let i = Tensor::of(&[2, 2], &[2i64, 0, 1, -1]);
        let list = Arg::TensorList(vec![Some(i)]);
        let y =
            run_out("aten::index.Tensor_out", &[x.clone().into(), list.clone()], DType::Float32, &[2, 2, 0]);
        assert_eq!(y.unwrap().shape(), [2, 2, 0]);
        for accumulate in [false, true] {
            let args =
                [x.clone().into(), list.clone(), Tensor::of::<f32>(&[0], &[]).into(), accumulate.into()];
            assert_eq!(
                run_out("aten::index_put.out", &args, DType::Float32, &[3, 0]).unwrap().shape(),
                [3, 0]
            );
        }
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
            let args =
                [table().into(), Arg::TensorList(vec![Some(m.clone())]), values.into(), accumulate.into()];
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
