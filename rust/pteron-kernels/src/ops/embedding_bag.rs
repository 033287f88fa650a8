//! Sums, means and maxima of bags of a table's rows: _embedding_bag, _embedding_bag_forward_only.
//!
//! Shape: one row per bag; beside it what the gradient needs: the bag of every index (nothing where the
//! program has no room for it), the number of rows of every bag, and for maxima the row that each came from.
//! Dtype: floats keep theirs, accumulated in float32 or float64; int32 and int64 positions. Edge cases:
//! empty bags give zeros; indices equal to `padding_idx` (unless -1) do not count; offsets start at 0, do not
//! fall and stay within the indices; means and maxima take no weights.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::reduction::row_major;
use crate::routine::{Preparation, Routine, dtype_of, kernel};
use crate::shape::{check_index, check_rank, check_same};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result, StaticKernel};

const OUT: usize = 9;
const SUM: i64 = 0;
const MEAN: i64 = 1;
const MAX: i64 = 2;

/// Number of bags; an error when there is no offset that ends the last one.
fn bags(args: &Args<'_>) -> Result<usize> {
    let offsets = args.tensor(2)?.numel();
    if !args.bool(7)? {
        return Ok(offsets);
    }
    offsets.checked_sub(1).ok_or_else(|| {
        Error::kernel("the last offset is missing").argument("offsets").expected("at least one, with include_last_offset")
    })
}

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (weight, indices, offsets) = (view.tensor(0)?, view.tensor(1)?, view.tensor(2)?);
    check_rank("the table", 2, weight.shape()).map_err(|e| e.argument("weight"))?;
    check_rank("the list of indices", 1, indices.shape()).map_err(|e| e.argument("indices"))?;
    check_rank("the list of offsets", 1, offsets.shape()).map_err(|e| e.argument("offsets"))?;
    let mode = view.int(4)?;
    if !(SUM..=MAX).contains(&mode) {
        return Err(Error::kernel("no such mode").argument("mode").expected("0 (sum), 1 (mean) or 2 (max)").got(mode.to_string()));
    }
    if let Some(weights) = view.optional_tensor(6)? {
        check_same("the weight of every sample", indices.shape(), weights.shape())?;
        if mode != SUM {
            return Err(Error::kernel("only sums take a weight for every sample").argument("per_sample_weights").expected("None"));
        }
    }
    let (bags, columns, count, ends) = (bags(&view)?, weight.shape()[1], indices.numel(), offsets.numel());
    args.resize(OUT, &[bags, columns])?;
    let has_bags = args.bound(OUT + 1)?.numel()? > 0;
    args.resize(OUT + 1, &[if has_bags { count } else { 0 }])?;
    // PyTorch makes room for one more size than there are bags where only the result counts.
    let sizes = if *args.bound(OUT + 2)? == [ends] { ends } else { bags };
    args.resize(OUT + 2, &[sizes])?;
    if mode == MAX { args.resize(OUT + 3, &[bags, columns]) } else { args.resize(OUT + 3, &[bags]) }
}

/// First and one-past-last index of every bag, checked.
fn for_each_bag(args: &Args<'_>, mut visit: impl FnMut(usize, usize, usize) -> Result<()>) -> Result<()> {
    let offsets = Reader::<i64>::new(args.tensor(2)?)?;
    let (bags, count) = (bags(args)?, args.tensor(1)?.numel());
    let wrong = |i: usize, got: i64, expected: String| {
        Error::kernel("an offset is no start of a bag")
            .argument("offsets")
            .expected(expected)
            .got(format!("{got} at position {i}"))
    };
    let mut start = 0usize;
    for bag in 0..offsets.meta().numel() {
        let offset = offsets.get(bag)?;
        if bag == 0 && offset != 0 {
            return Err(wrong(0, offset, "0, the first".to_string()));
        }
        let offset = usize::try_from(offset)
            .ok()
            .filter(|o| *o >= start && *o <= count)
            .ok_or_else(|| wrong(bag, offset, format!("between {start} and {count}")))?;
        if bag > 0 {
            visit(bag - 1, start, offset)?;
        }
        start = offset;
    }
    if bags > 0 && bags == offsets.meta().numel() { visit(bags - 1, start, count) } else { Ok(()) }
}

/// Marks the bag of every index and counts bags, where the program wants to know.
struct Notes<'a> {
    of_index: Writer<'a, i64>,
    sizes: Writer<'a, i64>,
    rows: Writer<'a, i64>,
}

fn run<C: Compute>(args: &Args<'_>) -> Result<()> {
    let (weight, mode) = (Reader::<C>::new(args.tensor(0)?)?, args.int(4)?);
    let indices = Reader::<i64>::new(args.tensor(1)?)?;
    let factors = args.optional_tensor(6)?.map(Reader::<C>::new).transpose()?;
    let padding = args.int(8)?;
    let mut out = Writer::<C>::new(args.output(OUT)?)?;
    let writer = |i: usize| Writer::<i64>::new(args.output(i)?);
    let mut notes = Notes { of_index: writer(OUT + 1)?, sizes: writer(OUT + 2)?, rows: writer(OUT + 3)? };
    notes.sizes.fill(0)?;
    notes.rows.fill(0)?;
    let (from, to) = (row_major(weight.meta()), row_major(out.meta()));
    let at_row = row_major(notes.rows.meta());
    let [rows, columns] = [weight.meta().shape()[0], weight.meta().shape()[1]];
    let has_notes = notes.of_index.meta().numel() > 0;
    for_each_bag(args, |bag, start, end| {
        let mut size = 0i64;
        for position in start..end {
            let index = indices.get(position)?;
            check_index(index, rows).map_err(|e| e.argument("indices"))?;
            size += i64::from(index != padding);
            if has_notes {
                notes.of_index.put(position, bag as i64)?;
            }
        }
        if mode != SUM {
            notes.sizes.put(bag, size)?;
        }
        if mode == MEAN {
            notes.rows.put(bag, size)?;
        }
        for column in 0..columns {
            let (mut result, mut best) = (C::ZERO, None);
            for position in start..end {
                let index = indices.get(position)?;
                if index == padding {
                    continue;
                }
                let row = index as usize;
                let value = weight.get(from.offset(row * columns + column) as usize)?;
                if mode == MAX {
                    if best.is_none() || value > result {
                        (result, best) = (value, Some(index));
                    }
                    continue;
                }
                let factor = match &factors {
                    Some(factors) => factors.get(position)?,
                    None => C::ONE,
                };
                result = result.plus(value.times(factor));
            }
            if mode == MEAN && size > 0 {
                result = C::from_f64(result.to_f64() / size as f64);
            }
            if mode == MAX {
                notes.rows.put(at_row.offset(bag * columns + column) as usize, best.unwrap_or(0))?;
            }
            out.put(to.offset(bag * columns + column) as usize, result)?;
        }
        Ok(())
    })
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, OUT)?;
    let is_position = |i: usize| matches!(dtype_of(ctx, i), Ok(DType::Int32 | DType::Int64));
    if ![1, 2, OUT + 1, OUT + 2, OUT + 3].into_iter().all(is_position) {
        return Err(Error::kernel("positions must be integers").argument("indices").expected("int64 or int32"));
    }
    if ctx.tensor(6).is_some_and(|t| ctx.tensor(0).is_some_and(|w| w.dtype != t.dtype)) {
        return Err(Error::kernel("the weights of samples have another dtype than the table").argument("per_sample_weights"));
    }
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::F64) => Routine::prepare(bind, |args, _| run::<f64>(args)),
        Some(Class::F32) => Routine::prepare(bind, |args, _| run::<f32>(args)),
        _ => Err(Error::kernel("the operator does not support this dtype")
            .argument("weight")
            .expected("a floating-point dtype")
            .got(dtype_of(ctx, 0)?.name())),
    }
}

/// _embedding_bag, _embedding_bag_forward_only.
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::_embedding_bag.out(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))",
        prepare,
    ),
    kernel(
        "aten::_embedding_bag_forward_only.out(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))",
        prepare,
    ),
];
