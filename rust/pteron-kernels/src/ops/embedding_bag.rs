//! Sums, means and maxima of bags of a table's rows: _embedding_bag, _embedding_bag_forward_only.
//!
//! Shape: one row per bag; beside it what the gradient needs: the bag of every index (nothing where the
//! program has no room for it), the number of rows of every bag, and for maxima the row that each came from.
//! Dtype: floats keep theirs, accumulated in float32 or float64; int32 and int64 positions. Edge cases:
//! empty bags give zeros; indices equal to `padding_idx` (unless -1) do not count; offsets start at 0, do not
//! fall and stay within the indices, and end them with `include_last_offset`; means and maxima take no weights.
//! `rows` is the fast kernel of sums.

use crate::chunk::CHUNK;
use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::grid_kernel::{GridKernel, Part, prepared};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::routine::{Preparation, dtype_of};
use crate::shape::{check_index, check_rank, check_same};
use pteron_core::{Args, BindArgs, DType, Dims, Error, Grid, PrepareContext, Result};
use std::ops::Range;

mod rows;

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
        Error::kernel("the last offset is missing")
            .argument("offsets")
            .expected("at least one, with include_last_offset")
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
        return Err(Error::kernel("no such mode")
            .argument("mode")
            .expected("0 (sum), 1 (mean) or 2 (max)")
            .got(mode.to_string()));
    }
    if let Some(weights) = view.optional_tensor(6)? {
        check_same("the weight of every sample", indices.shape(), weights.shape())?;
        if mode != SUM {
            return Err(Error::kernel("only sums take a weight for every sample")
                .argument("per_sample_weights")
                .expected("None"));
        }
    }
    let (bags, columns, count, ends) = (bags(&view)?, weight.shape()[1], indices.numel(), offsets.numel());
    args.resize(OUT, &[bags, columns])?;
    let has_bags = args.bound(OUT + 1)?.numel()? > 0;
    args.resize(OUT + 1, &[if has_bags { count } else { 0 }])?;
    // PyTorch makes room for one more size than there are bags where only the result counts, in either list.
    let room = |bound: Dims| if *bound == [ends] { ends } else { bags };
    let (sizes, places) = (room(args.bound(OUT + 2)?), room(args.bound(OUT + 3)?));
    args.resize(OUT + 2, &[sizes])?;
    if mode == MAX { args.resize(OUT + 3, &[bags, columns]) } else { args.resize(OUT + 3, &[places]) }
}

/// An error unless the offsets start at 0, do not fall and stay within the indices, and the last of them ends the
/// indices where it starts no bag. (PyTorch's own results for a smaller last offset differ with mode and padding:
/// some of its loops end there, others at the end of the indices.)
fn check_offsets(args: &Args<'_>) -> Result<()> {
    let offsets = Reader::<i64>::new(args.tensor(2)?)?;
    let count = args.tensor(1)?.numel() as i64;
    let mut start = 0;
    for bag in 0..offsets.meta().numel() {
        let offset = offsets.get(bag)?;
        let expected = match bag {
            0 if offset != 0 => "0, the first".to_string(),
            _ if offset < start || offset > count => format!("between {start} and {count}"),
            _ => {
                start = offset;
                continue;
            }
        };
        return Err(Error::kernel("an offset is no start of a bag")
            .argument("offsets")
            .expected(expected)
            .got(format!("{offset} at position {bag}")));
    }
    if args.bool(7)? && offsets.meta().numel() > 1 && start != count {
        return Err(Error::kernel("the last offset does not end the indices")
            .argument("offsets")
            .expected(format!("{count}, the number of indices, with include_last_offset"))
            .got(start.to_string())
            .hint("cut the indices at the last offset: indices[:offsets[-1]]"));
    }
    Ok(())
}

/// Zeros where the gradient finds what bags it has.
fn clear(args: &Args<'_>) -> Result<()> {
    [OUT + 2, OUT + 3].into_iter().try_for_each(|i| Writer::<i64>::new(args.output(i)?)?.fill(0))
}

/// Checks the offsets, then makes bags, a few in a chunk.
struct Bags {
    is_double: bool,
}

impl GridKernel for Bags {
    /// How the bags split.
    type Problem = Split;

    fn new_problem(&self) -> Split {
        Split::NONE
    }

    fn bind(&self, args: &mut BindArgs<'_>, split: &mut Split) -> Result<Grid> {
        bind(args)?;
        let view = args.args();
        let count = bags(&view)?;
        let work = view.tensor(1)?.numel().saturating_mul(view.tensor(0)?.shape()[1]) / count.max(1) + 1;
        let per_chunk = (CHUNK / work).max(1);
        *split = Split::new(count, per_chunk, work.saturating_mul(per_chunk));
        Ok(Grid::phases(&[1, count.div_ceil(per_chunk)], work.saturating_mul(per_chunk)))
    }

    fn run(&self, split: &Split, Part { args, phase, chunk, .. }: Part<'_>) -> Result<()> {
        if phase == 0 {
            clear(args)?;
            return check_offsets(args);
        }
        let range = split.units_of(chunk);
        if self.is_double { run::<f64>(args, range) } else { run::<f32>(args, range) }
    }
}

/// Marks the bag of every index and counts bags, where the program wants to know.
struct Notes<'a> {
    of_index: Writer<'a, i64>,
    sizes: Writer<'a, i64>,
    rows: Writer<'a, i64>,
}

/// What the bags are made of.
struct Table<'a, C: Compute> {
    weight: Reader<'a, C>,
    indices: Reader<'a, i64>,
    factors: Option<Reader<'a, C>>,
    padding: i64,
}

impl<C: Compute> Table<'_, C> {
    /// Calls `visit` with the place in the bag, the index and the elements of the table's row from `first` on.
    fn rows(
        &self,
        bag: Range<usize>,
        (first, count): (usize, usize),
        mut visit: impl FnMut(usize, i64, &[C]) -> Result<()>,
    ) -> Result<()> {
        let strides = self.weight.meta().strides();
        let mut buffer = [C::ZERO; BLOCK];
        for position in bag {
            let index = self.indices.get(position)?;
            if index != self.padding {
                let at = index as usize * strides[0] + first * strides[1];
                visit(
                    position,
                    index,
                    self.weight.block(at as isize, strides[1] as isize, count, &mut buffer)?,
                )?;
            }
        }
        Ok(())
    }
}

fn run<C: Compute>(args: &Args<'_>, bags: Range<usize>) -> Result<()> {
    let mode = args.int(4)?;
    let table = Table {
        weight: Reader::<C>::new(args.tensor(0)?)?,
        indices: Reader::<i64>::new(args.tensor(1)?)?,
        factors: args.optional_tensor(6)?.map(Reader::<C>::new).transpose()?,
        padding: args.int(8)?,
    };
    let offsets = Reader::<i64>::new(args.tensor(2)?)?;
    let mut out = Writer::<C>::new(args.output(OUT)?)?;
    let writer = |i: usize| Writer::<i64>::new(args.output(i)?);
    let mut notes = Notes { of_index: writer(OUT + 1)?, sizes: writer(OUT + 2)?, rows: writer(OUT + 3)? };
    let [rows, columns] = [table.weight.meta().shape()[0], table.weight.meta().shape()[1]];
    for bag in bags {
        let end = if bag + 1 < offsets.meta().numel() {
            offsets.get(bag + 1)? as usize
        } else {
            table.indices.meta().numel()
        };
        let places = offsets.get(bag)? as usize..end;
        let size = notes.count(&table, bag, places.clone(), rows)?;
        if mode != SUM {
            notes.sizes.put(bag, size)?;
        }
        if mode == MEAN {
            notes.rows.put(bag, size)?;
        }
        let strides = *out.meta().strides();
        let at = |strides: &Dims, first: usize| (bag * strides[0] + first * strides[1]) as isize;
        for first in (0..columns).step_by(BLOCK) {
            let count = (columns - first).min(BLOCK);
            let mut results = [C::ZERO; BLOCK];
            if mode == MAX {
                let mut best = [0i64; BLOCK];
                largest(&table, places.clone(), (first, count), &mut results, &mut best)?;
                let strides = *notes.rows.meta().strides();
                notes.rows.write(at(&strides, first), strides[1] as isize, &best[..count])?;
            } else {
                sum(&table, places.clone(), (first, count), &mut results)?;
            }
            if mode == MEAN && size > 0 {
                results.iter_mut().for_each(|result| *result = C::from_f64(result.to_f64() / size as f64));
            }
            out.write(at(&strides, first), strides[1] as isize, &results[..count])?;
        }
    }
    Ok(())
}

impl Notes<'_> {
    /// Checks the indices of a bag and notes whose they are; how many count.
    fn count<C: Compute>(
        &mut self,
        table: &Table<'_, C>,
        bag: usize,
        places: Range<usize>,
        rows: usize,
    ) -> Result<i64> {
        let has_notes = self.of_index.meta().numel() > 0;
        let mut size = 0;
        for position in places {
            let index = table.indices.get(position)?;
            check_index(index, rows).map_err(|e| e.argument("indices"))?;
            size += i64::from(index != table.padding);
            if has_notes {
                self.of_index.put(position, bag as i64)?;
            }
        }
        Ok(size)
    }
}

/// Sums of some columns of a bag's rows, each times its factor.
fn sum<C: Compute>(
    table: &Table<'_, C>,
    bag: Range<usize>,
    columns: (usize, usize),
    sums: &mut [C; BLOCK],
) -> Result<()> {
    table.rows(bag, columns, |position, _, row| {
        let factor = table.factors.map_or(Ok(C::ONE), |factors| factors.get(position))?;
        sums.iter_mut().zip(row).for_each(|(sum, v)| *sum = sum.plus(v.times(factor)));
        Ok(())
    })
}

/// The largest of some columns of a bag's rows, and the rows that they come from.
fn largest<C: Compute>(
    table: &Table<'_, C>,
    bag: Range<usize>,
    columns: (usize, usize),
    largest: &mut [C; BLOCK],
    rows: &mut [i64; BLOCK],
) -> Result<()> {
    let mut is_first = true;
    table.rows(bag, columns, |_, index, row| {
        for ((best, place), v) in largest.iter_mut().zip(rows.iter_mut()).zip(row) {
            if is_first || *v > *best {
                (*best, *place) = (*v, index);
            }
        }
        is_first = false;
        Ok(())
    })
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, OUT)?;
    let is_position = |i: usize| matches!(dtype_of(ctx, i), Ok(DType::Int32 | DType::Int64));
    if ![1, 2, OUT + 1, OUT + 2, OUT + 3].into_iter().all(is_position) {
        return Err(Error::kernel("positions must be integers")
            .argument("indices")
            .expected("int64 or int32"));
    }
    if ctx.tensor(6).is_some_and(|t| ctx.tensor(0).is_some_and(|w| w.dtype != t.dtype)) {
        return Err(Error::kernel("the weights of samples have another dtype than the table")
            .argument("per_sample_weights"));
    }
    match Class::of(dtype_of(ctx, 0)?) {
        Some(class @ (Class::F64 | Class::F32)) => {
            prepared("reference", Bags { is_double: class == Class::F64 })
        }
        _ => Err(unsupported(dtype_of(ctx, 0)?).argument("weight").expected("a floating-point dtype")),
    }
}

/// _embedding_bag, _embedding_bag_forward_only.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::_embedding_bag.out(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))",
        prepare,
    )
    .fast("rows", rows::prepare),
    kernel(
        "aten::_embedding_bag_forward_only.out(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))",
        prepare,
    )
    .fast("rows", rows::prepare),
];
