//! Operators whose result has as many elements as the data says: nonzero, masked_select; and
//! masked_scatter, which consumes as many.
//!
//! Shape: known after the run; the output must be large enough for the case that everything is chosen.
//! Dtype: kept; positions are int64. Edge cases: NaN is chosen by nonzero; too few source elements are
//! an error.

use crate::complex_number::Number;
use crate::compute::{BLOCK, Class, Compute, Kind, by_kind};
use crate::elements::{Reader, Writer};
use crate::indexed::{Named, Row, gather};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Routine, dtype_of};
use crate::shape::{broadcast, check_expandable};
use crate::strided::loops::{Walk, broadcast_strides};
use pteron_core::{Args, BindArgs, DType, Dims, Error, MAX_RANK, PrepareContext, Result, TensorView};

/// Visits the row-major positions of the elements of `x`, broadcast to `shape`, that are true: in order, in
/// blocks of at most [`BLOCK`].
pub(crate) fn true_blocks(
    x: TensorView<'_>,
    shape: &Dims,
    mut visit: impl FnMut(&[i64]) -> Result<()>,
) -> Result<()> {
    for_each_block(x, shape, |at, truths| {
        let (mut found, mut count) = ([0i64; BLOCK], 0);
        // Written always, counted where it is true: no jump for the processor to guess.
        for (i, is_true) in truths.iter().enumerate() {
            found[count & (BLOCK - 1)] = (at + i) as i64;
            count += usize::from(*is_true);
        }
        visit(&found[..count])
    })
}

/// Visits the truth of the elements in blocks: row-major position of the first, and the block.
fn for_each_block(
    x: TensorView<'_>,
    shape: &Dims,
    mut visit: impl FnMut(usize, &[bool]) -> Result<()>,
) -> Result<()> {
    fn scan<C: Compute>(
        x: TensorView<'_>,
        shape: &Dims,
        visit: &mut impl FnMut(usize, &[bool]) -> Result<()>,
    ) -> Result<()> {
        let strides = broadcast_strides(x.shape(), x.strides(), shape.len());
        let walk = Walk::row_major(shape, &strides);
        let (mut buffer, mut truths) = ([C::ZERO; BLOCK], [false; BLOCK]);
        Reader::<C>::new(x)?.blocks(&walk, 0, &mut buffer, |at, block| {
            truths.iter_mut().zip(block).for_each(|(slot, v)| *slot = v.is_true());
            visit(at, &truths[..block.len()])
        })
    }
    match Class::of(x.dtype()) {
        Some(Class::I64) => scan::<i64>(x, shape, &mut visit),
        Some(Class::F32) => scan::<f32>(x, shape, &mut visit),
        None if x.dtype() == DType::Complex64 => scan::<Number>(x, shape, &mut visit),
        _ => scan::<f64>(x, shape, &mut visit),
    }
}

/// Visits the row-major positions of the elements of `x` that are true.
pub(crate) fn for_each_true(
    x: TensorView<'_>,
    shape: &Dims,
    mut visit: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    true_blocks(x, shape, |found| found.iter().try_for_each(|position| visit(*position as usize)))
}

/// Number of true elements of `x`, broadcast to `shape`.
pub(crate) fn count_true(x: TensorView<'_>, shape: &Dims) -> Result<usize> {
    let mut count = 0;
    for_each_block(x, shape, |_, truths| {
        count += truths.iter().map(|t| usize::from(*t)).sum::<usize>();
        Ok(())
    })?;
    Ok(count)
}

/// The data chooses more elements than the program was exported for.
#[cold]
pub(crate) fn no_room(most: usize) -> Error {
    Error::kernel("the data chooses more elements than the program has room for")
        .argument("out")
        .expected(format!("at most {most}"))
        .hint("a torch._check in the model bounds this number; export with a larger bound")
}

fn bind_nonzero(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let x = view.tensor(0)?;
    if !view.tensor(1)?.is_contiguous() {
        return Err(Error::kernel("the output must be row-major").argument("out"));
    }
    let most = [x.numel().min(args.bound(1)?.first().copied().unwrap_or(0)), x.rank()];
    args.resize(1, &most)
}

fn nonzero(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let shape = *x.shape();
    let out = args.output(1)?;
    let rows = out.shape().first().copied().unwrap_or(0);
    let mut out = out.into_slice::<i64>()?;
    let mut found_rows = 0;
    let (rank, length) = (shape.len(), shape.last().copied().unwrap_or(1));
    // The indices before the last one are the same for a whole line.
    let (mut line, mut outer) = (0..0, [0i64; MAX_RANK]);
    true_blocks(x, &shape, |found| {
        found_rows += found.len();
        if found_rows > rows {
            return Err(no_room(rows));
        }
        let (mut block, rest) = std::mem::take(&mut out)
            .split_at_mut_checked(found.len() * rank)
            .ok_or_else(|| Error::internal("the output is too small"))?;
        out = rest;
        if rank == 1 {
            block.copy_from_slice(found);
            return Ok(());
        }
        for position in found {
            let position = *position as usize;
            if !line.contains(&position) {
                let mut rest = position / length.max(1);
                line = rest * length..(rest + 1) * length;
                for d in (0..rank.saturating_sub(1)).rev() {
                    outer[d] = (rest % shape[d]) as i64;
                    rest /= shape[d];
                }
            }
            let Some((row, rest)) = block.split_at_mut_checked(rank) else { break };
            if let Some((last, first)) = row.split_last_mut() {
                first.copy_from_slice(&outer[..rank - 1]);
                *last = (position - line.start) as i64;
            }
            block = rest;
        }
        Ok(())
    })
}

fn finish_nonzero(args: &mut BindArgs<'_>) -> Result<()> {
    let x = args.args().tensor(0)?;
    let found = [count_true(x, x.shape())?, x.rank()];
    args.resize(1, &found)
}

/// Positions of the first elements that are not zero, as many as asked for; rows that are left get a number.
fn nonzero_static(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let shape = *x.shape();
    let mut out = Writer::<i64>::new(args.output(3)?)?;
    out.fill(args.int(2)?)?;
    let at = row_major(out.meta());
    let (mut row, rows) = (0, out.meta().shape().first().copied().unwrap_or(0));
    for_each_true(x, &shape, |position| {
        if row < rows {
            let mut rest = position;
            for d in (0..shape.len()).rev() {
                out.put(at.offset(row * shape.len() + d) as usize, (rest % shape[d]) as i64)?;
                rest /= shape[d];
            }
            row += 1;
        }
        Ok(())
    })
}

fn bind_nonzero_static(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (size, rank) = (view.int(1)?, view.tensor(0)?.rank());
    let rows = usize::try_from(size)
        .map_err(|_| Error::kernel("a number of rows is 0 or more").argument("size").got(size.to_string()))?;
    args.resize(3, &[rows, rank])
}

fn common_shape(args: &Args<'_>) -> Result<Dims> {
    broadcast(args.tensor(0)?.shape(), args.tensor(1)?.shape())
}

fn bind_masked_select(args: &mut BindArgs<'_>) -> Result<()> {
    let most = common_shape(&args.args())?.numel()?.min(args.bound(2)?.first().copied().unwrap_or(0));
    args.resize(2, &[most])
}

fn masked_select(args: &Args<'_>) -> Result<()> {
    let shape = common_shape(args)?;
    let x = args.tensor(0)?;
    let from = Walk::row_major(&shape, &broadcast_strides(x.shape(), x.strides(), shape.len()));
    let mut out = args.output(2)?;
    let (mut count, most, numel) = (0, out.numel(), x.numel());
    let mut offsets = [0i64; BLOCK];
    true_blocks(args.tensor(1)?, &shape, |found| {
        if count + found.len() > most {
            return Err(no_room(most));
        }
        let offsets = &mut offsets[..found.len()];
        offsets.iter_mut().zip(found).for_each(|(offset, p)| *offset = from.offset(*p as usize) as i64);
        let named = Named { row: Row { start: 0, step: 0 }, stride: 1, extent: numel };
        gather(&x, named, offsets, &mut out, Row { start: count as isize, step: 1 })?;
        count += found.len();
        Ok(())
    })
}

fn finish_masked_select(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let found = count_true(view.tensor(1)?, &common_shape(&view)?)?;
    args.resize(2, &[found])
}

fn bind_masked_scatter(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = common_shape(&args.args())?;
    args.resize(3, &shape)
}

fn masked_scatter<C: Compute>(args: &Args<'_>) -> Result<()> {
    let shape = common_shape(args)?;
    let (x, source) = (args.tensor(0)?, Reader::<C>::new(args.tensor(2)?)?);
    check_expandable(x.shape(), &shape)?;
    {
        use crate::strided::copy::{StridedRegion, copy_region};
        let mut out = args.output(3)?;
        let from =
            StridedRegion { offset: 0, strides: broadcast_strides(x.shape(), x.strides(), shape.len()) };
        let to = StridedRegion::of(out.strides());
        copy_region(&shape, &x, from, &mut out, to)?;
    }
    let mut out = Writer::<C>::new(args.output(3)?)?;
    let (from, to) = (row_major(source.meta()), row_major(out.meta()));
    let mut used = 0;
    for_each_true(args.tensor(1)?, &shape, |position| {
        if used >= source.meta().numel() {
            return Err(Error::kernel("the mask chooses more elements than the source has")
                .argument("source")
                .got(format!("{} elements", source.meta().numel())));
        }
        out.put(to.offset(position) as usize, source.get(from.offset(used) as usize)?)?;
        used += 1;
        Ok(())
    })
}

fn check(ctx: &PrepareContext<'_>, out: usize) -> Result<Kind> {
    same_dtype(ctx, 0, out)?;
    if dtype_of(ctx, 1)? != DType::Bool {
        return Err(Error::kernel("the mask must be bool").argument("mask").got(dtype_of(ctx, 1)?.name()));
    }
    Kind::of(dtype_of(ctx, 0)?)
}

/// Data-dependent shapes.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::nonzero.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        if dtype_of(ctx, 1)? != DType::Int64 || Kind::of(dtype_of(ctx, 0)?).is_err() {
            return Err(Error::kernel("positions are int64 and the input a number").argument("out"));
        }
        Routine::prepare_with_finish(bind_nonzero, |args, _| nonzero(args), finish_nonzero)
    }),
    kernel(
        "aten::nonzero_static.out(Tensor self, *, SymInt size, int fill_value=-1, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            if dtype_of(ctx, 3)? != DType::Int64 || Kind::of(dtype_of(ctx, 0)?).is_err() {
                return Err(Error::kernel("positions are int64 and the input a number").argument("out"));
            }
            Routine::prepare(bind_nonzero_static, |args, _| nonzero_static(args))
        },
    ),
    kernel("aten::masked_select.out(Tensor self, Tensor mask, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check(ctx, 2)?;
        Routine::prepare_with_finish(bind_masked_select, |args, _| masked_select(args), finish_masked_select)
    }),
    kernel(
        "aten::masked_scatter.out(Tensor self, Tensor mask, Tensor source, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            let kind = check(ctx, 3)?;
            same_dtype(ctx, 2, 3)?;
            by_kind!(kind, C, Routine::prepare(bind_masked_scatter, |args, _| masked_scatter::<C>(args)))
        },
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn positions_of_what_is_not_zero() {
        let x = Tensor::of(&[2, 2], &[0f32, f32::NAN, -1.0, -0.0]);
        let y = run_out("aten::nonzero.out", &[x.into()], DType::Int64, &[4, 2]).unwrap();
        assert_eq!((y.shape(), y.values::<i64>()), (&[2usize, 2][..], vec![0, 1, 1, 0]));
    }

    #[test]
    fn masks_choose_and_consume() {
        let x = Tensor::of(&[3], &[1i16, 2, 3]);
        let mask = Tensor::of(&[3], &[Bool8(1), Bool8(0), Bool8(1)]);
        let y =
            run_out("aten::masked_select.out", &[x.clone().into(), mask.clone().into()], DType::Int16, &[3]);
        assert_eq!(y.unwrap().values::<i16>(), [1, 3]);
        let one = Tensor::of(&[1], &[9i16]);
        let e = run_out("aten::masked_scatter.out", &[x.into(), mask.into(), one.into()], DType::Int16, &[3]);
        assert!(error_text(e).contains("more elements"));
    }
}
