//! Rows of a cache of keys or values, written in place: update_cache, update_cache_with_indices.
//!
//! Shape: `value` [B, S, H, D], `cache` [B, capacity, H, D]; the result, which nobody reads, is one zero. Dtype: any, the same
//! of both; rows move as bytes. Edge cases: rows that do not fit behind `start_pos` and positions outside of the cache are
//! errors before the first byte is written; of equal positions the last row counts. Source: ExecuTorch's
//! `extension/llm/custom_ops`, which leaves the cache as it is where rows do not fit, and ends the process at a position outside.

use crate::elements::Reader;
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_index, check_rank, check_same};
use crate::strided::copy::{RegionCopy, StridedRegion};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, TensorView, TensorViewMut};

const VALUE: usize = 0;
const CACHE: usize = 1;
const START: usize = 2;
const INDICES: usize = 3;
/// The result of each of the two operators.
const OUT: [usize; 2] = [3, 4];

/// `start`, if so many rows fit behind it into a cache.
///
/// Errors: a negative position, or one at which not all rows fit.
pub fn check_room(start: i64, rows: usize, capacity: usize) -> Result<usize> {
    let fits = |at: &usize| at.checked_add(rows).is_some_and(|end| end <= capacity);
    usize::try_from(start).ok().filter(fits).ok_or_else(|| {
        Error::kernel("the cache has no room for these rows")
            .argument("start_pos")
            .expected(format!("a position at which {rows} of {capacity} rows fit"))
            .got(start.to_string())
            .hint("start again with an empty cache, or export the model with a longer one")
    })
}

/// An error unless rows of `value` are rows of `cache`.
pub fn check_rows(value: &Dims, cache: &Dims) -> Result<()> {
    check_rank("value", 4, value)?;
    check_rank("the cache", 4, cache)?;
    check_same("value", &[cache[0], value[1], cache[2], cache[3]], value)
}

/// Copies all rows of `value` to those of `cache` from `start` on, which are there as [`check_room`] and [`check_rows`] say.
///
/// Errors: rows outside of the cache, another dtype.
pub fn put_rows(value: &TensorView<'_>, cache: &mut TensorViewMut<'_>, start: usize) -> Result<()> {
    let mut to = StridedRegion::of(cache.strides());
    to.offset = signed(start.checked_mul(cache.strides()[1]))?;
    let copy =
        RegionCopy::new(value.shape(), StridedRegion::of(value.strides()), value.numel(), to, cache.numel())?;
    copy.run(value, cache, 0..copy.numel())
}

fn signed(offset: Option<usize>) -> Result<isize> {
    let offset = offset.and_then(|offset| isize::try_from(offset).ok());
    offset.ok_or_else(|| Error::internal("a row of a cache has no address"))
}

/// Copies row `i` of batch `b` of `value` to row `indices[b, i]` of `cache`; all positions are checked before the first copy.
fn put_rows_at(args: &Args<'_>) -> Result<()> {
    let (value, indices) = (args.tensor(VALUE)?, Reader::<i64>::new(args.tensor(INDICES)?)?);
    let mut cache = args.output(CACHE)?;
    let [batch, rows] = [value.shape()[0], value.shape()[1]];
    let (capacity, places) = (cache.shape()[1], row_major(indices.meta()));
    let place = |i: usize| {
        let index = indices.get(places.offset(i) as usize)?;
        check_index(index, capacity).map_err(|e| e.argument("indices"))
    };
    for i in 0..batch.saturating_mul(rows) {
        place(i)?;
    }
    // One row of one sequence, and where it begins in either tensor.
    let row = Dims::new(&value.shape()[2..])?;
    let [from, to] = [value.strides(), cache.strides()];
    let regions = [from, to].map(|strides| StridedRegion::of(&strides[2..]));
    let copy = RegionCopy::new(&row, regions[0], value.numel(), regions[1], cache.numel())?;
    for i in 0..batch.saturating_mul(rows) {
        let (b, row) = (i / rows, i % rows);
        let begins = |strides: &Dims, row: usize| {
            signed(
                b.checked_mul(strides[0])
                    .zip(row.checked_mul(strides[1]))
                    .and_then(|(a, c)| a.checked_add(c)),
            )
        };
        copy.run_at(&value, begins(from, row)?, &mut cache, begins(to, place(i)?)?)?;
    }
    Ok(())
}

/// The first position of the new rows, which `bind` checked (`check_room`).
pub(crate) fn checked_start(args: &Args<'_>, at: usize) -> Result<usize> {
    usize::try_from(args.int(at)?).map_err(|_| Error::internal("a position was not checked"))
}

/// The result stands for the cache in PyTorch's graph; nobody reads it.
fn put_nothing(args: &Args<'_>, out: usize) -> Result<()> {
    args.output(out)?.into_bytes().fill(0);
    Ok(())
}

fn bind(args: &mut BindArgs<'_>, with_indices: bool) -> Result<()> {
    let view = args.args();
    let (value, cache) = (view.tensor(VALUE)?, view.tensor(CACHE)?);
    check_rows(value.shape(), cache.shape())?;
    if with_indices {
        check_same("indices", &value.shape()[..2], view.tensor(INDICES)?.shape())?;
    } else {
        check_room(view.int(START)?, value.shape()[1], cache.shape()[1])?;
    }
    args.resize(OUT[usize::from(with_indices)], &[1])
}

/// Dtypes and ranks, which a file that was written for this operator has.
fn check(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    same_dtype(ctx, VALUE, CACHE)?;
    same_dtype(ctx, VALUE, out)?;
    for (at, name) in [(VALUE, "value"), (CACHE, "the cache")] {
        if let Some(tensor) = ctx.tensor(at) {
            check_rank(name, 4, &tensor.shape)?;
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx, OUT[0])?;
    Routine::prepare(
        |args| bind(args, false),
        |args, _| {
            put_rows(&args.tensor(VALUE)?, &mut args.output(CACHE)?, checked_start(args, START)?)?;
            put_nothing(args, OUT[0])
        },
    )
}

fn prepare_with_indices(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx, OUT[1])?;
    if dtype_of(ctx, INDICES)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices"));
    }
    Routine::prepare(
        |args| bind(args, true),
        |args, _| {
            put_rows_at(args)?;
            put_nothing(args, OUT[1])
        },
    )
}

/// update_cache, update_cache_with_indices.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "llama::update_cache.out(Tensor value, Tensor(a!) cache, SymInt start_pos, *, Tensor(b!) out) -> Tensor(b!)",
        prepare,
    ),
    kernel(
        "llama::update_cache_with_indices.out(Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices, *, Tensor(b!) out) -> Tensor(b!)",
        prepare_with_indices,
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    const UPDATE: &str = "llama::update_cache.out";
    const AT: &str = "llama::update_cache_with_indices.out";

    /// Two sequences, `rows` rows of two heads of one element, from `first` on.
    fn rows(rows: usize, first: i8) -> Tensor {
        Tensor::of(&[2, rows, 2, 1], &(first..).take(4 * rows).collect::<Vec<i8>>())
    }

    fn cache_after(args: &[Arg]) -> pteron_core::Result<Vec<i8>> {
        let operator = if args.len() == 4 { UPDATE } else { AT };
        match &call(operator, args)?[1] {
            Arg::Tensor(cache) => Ok(cache.values()),
            _ => panic!("no tensor"),
        }
    }

    fn update(value: Tensor, start: i64) -> pteron_core::Result<Vec<i8>> {
        let out = Tensor::output(value.spec.dtype, &[1]);
        cache_after(&[value.into(), rows(3, 100).into(), start.into(), out.into()])
    }

    fn update_at(value: Tensor, indices: &[i64]) -> pteron_core::Result<Vec<i8>> {
        let out = Tensor::output(DType::Int8, &[1]);
        let indices = Tensor::of(&[2, indices.len() / 2], indices);
        cache_after(&[value.into(), rows(3, 100).into(), 0i64.into(), indices.into(), out.into()])
    }

    #[test]
    fn rows_go_behind_the_start() {
        let expected = [100, 101, 0, 1, 2, 3, 106, 107, 4, 5, 6, 7];
        assert_eq!(update(rows(2, 0), 1).unwrap(), expected);
        assert_eq!(update(rows(3, 0), 0).unwrap(), (0..12).collect::<Vec<i8>>());
        assert_eq!(update(rows(0, 0), 3).unwrap(), (100..112).collect::<Vec<i8>>());
    }

    #[test]
    fn rows_without_room_are_refused() {
        for start in [-1, 2, 3, i64::MAX, i64::MIN] {
            let text = error_text(update(rows(2, 0), start));
            assert!(text.contains("no room") && text.contains("start_pos"), "{text}");
        }
    }

    #[test]
    fn rows_go_to_their_positions_and_the_last_of_equal_ones_counts() {
        let expected = [2, 3, 102, 103, 0, 1, 106, 107, 6, 7, 110, 111];
        assert_eq!(update_at(rows(2, 0), &[2, 0, 1, 1]).unwrap(), expected);
    }

    #[test]
    fn positions_outside_are_refused() {
        for bad in [-1, 3, i64::MIN, i64::MAX] {
            let text = error_text(update_at(rows(2, 0), &[0, 1, 2, bad]));
            assert!(text.contains("out of range") && text.contains("indices"), "{text}");
        }
    }

    #[test]
    fn shapes_and_dtypes_belong_together() {
        let wrong = Tensor::of(&[2, 1, 1, 2], &[0i8; 4]);
        assert!(error_text(update(wrong, 0)).contains("wrong shape"));
        let text = error_text(update(Tensor::of(&[2, 1, 2, 1], &[0f32; 4]), 0));
        assert!(text.contains("dtype"), "{text}");
        assert!(error_text(update(Tensor::of(&[2, 2], &[0i8; 4]), 0)).contains("rank"));
    }
}
