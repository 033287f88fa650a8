//! Matrices, vectors and numbers of a batch, moved between tensors and dense row-major memory.
//!
//! Linear algebra works on one matrix at a time, in scratch memory.

use crate::compute::Compute;
use crate::elements::{Reader, Writer};
use crate::grid_kernel::{GridKernel, Part, prepared, take_scratch};
use crate::routine::{BindItemsFn, Preparation, dtype_of};
use crate::shape::{broadcast, check_same};
use crate::strided::loops::{Walk, broadcast_strides};
use crate::vector_math::SimdLevel;
use pteron_core::{Args, BindArgs, DType, Dims, Error, Grid, PrepareContext, Result, Scratch, TensorMeta};

/// Where the items of a tensor lie whose last `dims` dimensions (0, 1 or 2) make up an item.
struct Items {
    batch: Walk,
    extents: [usize; 2],
    strides: [isize; 2],
}

impl Items {
    fn new(meta: &TensorMeta, dims: usize, batch: &[usize]) -> Result<Items> {
        let lead =
            meta.rank().checked_sub(dims).ok_or_else(|| Error::internal("an item has too few dimensions"))?;
        let (shape, from) = (Dims::new(&meta.shape()[..lead])?, Dims::new(&meta.strides()[..lead])?);
        let (mut extents, mut strides) = ([1; 2], [0; 2]);
        for d in 0..dims.min(2) {
            extents[d] = meta.shape()[lead + d];
            strides[d] = meta.strides()[lead + d] as isize;
        }
        let walk = Walk::row_major(batch, &broadcast_strides(&shape, &from, batch.len()));
        Ok(Items { batch: walk, extents, strides })
    }

    /// Calls `visit(offset, stride, row)` for every row of item `n`.
    fn rows(&self, n: usize, mut visit: impl FnMut(isize, isize, usize) -> Result<()>) -> Result<()> {
        let base = self.batch.offset(n);
        (0..self.extents[0])
            .try_for_each(|row| visit(base + row as isize * self.strides[0], self.strides[1], row))
    }
}

fn row<T>(room: &[T], row: usize, width: usize) -> Result<&[T]> {
    room.get(row * width..(row + 1) * width).ok_or_else(|| Error::internal("scratch is too small"))
}

/// Copies item `n` of argument `i`, broadcast to `batch`, to `out`.
pub(crate) fn load<C: Compute>(
    args: &Args<'_>,
    (i, dims): (usize, usize),
    batch: &[usize],
    n: usize,
    out: &mut [C],
) -> Result<()> {
    let reader = Reader::<C>::new(args.tensor(i)?)?;
    let items = Items::new(reader.meta(), dims, batch)?;
    let width = items.extents[1];
    items.rows(n, |offset, stride, row| {
        let part = out
            .get_mut(row * width..(row + 1) * width)
            .ok_or_else(|| Error::internal("scratch is too small"))?;
        reader.read(offset, stride, part)
    })
}

/// Copies `values` to item `n` of output `i`.
pub(crate) fn store<C: Compute>(
    args: &Args<'_>,
    (i, dims): (usize, usize),
    batch: &[usize],
    n: usize,
    values: &[C],
) -> Result<()> {
    let mut writer = Writer::<C>::new(args.output(i)?)?;
    let items = Items::new(writer.meta(), dims, batch)?;
    let width = items.extents[1];
    items.rows(n, |offset, stride, at| writer.write(offset, stride, row(values, at, width)?))
}

/// Parts of scratch memory, of `sizes` numbers each.
pub(crate) fn rooms<T: bytemuck::Pod, const N: usize>(
    mut memory: &mut [u8],
    sizes: [usize; N],
) -> Result<[&mut [T]; N]> {
    let mut all = [const { None }; N];
    for (part, size) in all.iter_mut().zip(sizes) {
        *part = Some(take_scratch(&mut memory, size)?);
    }
    Ok(all.map(Option::unwrap_or_default))
}

/// Bytes for numbers, so many of each extent: the sum of the products.
pub(crate) fn bytes_for(products: &[&[usize]]) -> Result<usize> {
    let product = |extents: &&[usize]| extents.iter().try_fold(1usize, |n, e| n.checked_mul(*e));
    let total = products.iter().try_fold(0usize, |sum, p| sum.checked_add(product(p)?));
    total
        .and_then(|n| n.checked_mul(size_of::<f64>()))
        .filter(|n| isize::try_from(*n).is_ok())
        .ok_or_else(|| Error::kernel("the matrices are too large"))
}

/// Batch and the two extents of a tensor of matrices.
pub(crate) fn split(shape: &Dims, name: &str) -> Result<(Dims, [usize; 2])> {
    match shape[..] {
        [ref batch @ .., rows, columns] => Ok((Dims::new(batch)?, [rows, columns])),
        _ => Err(Error::kernel("a matrix needs two dimensions").argument(name).got(shape.to_string())),
    }
}

/// Batch and extent of a tensor of square matrices.
pub(crate) fn split_square(shape: &Dims, name: &str) -> Result<(Dims, usize)> {
    let (batch, [rows, columns]) = split(shape, name)?;
    if rows != columns {
        return Err(Error::kernel("the matrices must be square").argument(name).got(shape.to_string()));
    }
    Ok((batch, rows))
}

/// A shape of `batch` and `item`.
pub(crate) fn joined(batch: &[usize], item: &[usize]) -> Result<Dims> {
    let mut shape = Dims::new(batch)?;
    item.iter().try_for_each(|n| shape.push(*n))?;
    Ok(shape)
}

/// The batch two tensors of matrices have together.
pub(crate) fn common_batch(a: &Dims, b: &Dims) -> Result<Dims> {
    broadcast(a, b).map_err(|e| e.hint("the dimensions before the last two must broadcast"))
}

/// The last two extents of tensor argument `i` at most; ones where it has fewer.
pub(crate) fn largest(ctx: &PrepareContext<'_>, i: usize) -> [usize; 2] {
    match ctx.tensor(i).map(|t| &t.shape[..]) {
        Some([.., rows, columns]) => [*rows, *columns],
        Some([n]) => [*n, 1],
        _ => [1, 1],
    }
}

/// An error unless the tensors among `arguments` are all float32 or all float64.
pub(crate) fn check_dtypes(ctx: &PrepareContext<'_>, arguments: &[usize]) -> Result<()> {
    let mut first = None;
    for i in arguments {
        let dtype = dtype_of(ctx, *i)?;
        let is_known = matches!(dtype, DType::Float32 | DType::Float64);
        if !is_known || first.is_some_and(|f| f != dtype) {
            return Err(Error::kernel("linear algebra needs tensors of one dtype, float32 or float64")
                .got(dtype.name()));
        }
        first = Some(dtype);
    }
    Ok(())
}

/// An error unless the tensors among `arguments` have `dtype`.
pub(crate) fn check_exactly(ctx: &PrepareContext<'_>, arguments: &[usize], dtype: DType) -> Result<()> {
    for i in arguments {
        if dtype_of(ctx, *i)? != dtype {
            return Err(Error::kernel("a tensor of numbers beside the matrices has a wrong dtype")
                .expected(dtype.name())
                .got(dtype_of(ctx, *i)?.name()));
        }
    }
    Ok(())
}

/// Number of items, and the nanoseconds of one that takes the product of `factors` operations.
pub(crate) fn items(batch: &[usize], factors: &[usize]) -> Result<(usize, usize)> {
    Ok((Dims::new(batch)?.numel()?, factors.iter().fold(1, |n, f| n.saturating_mul(*f))))
}

/// Computes item `n` of a batch by vectors, with scratch memory.
pub(crate) type RunAtLevel = fn(SimdLevel, &Args<'_>, usize, &mut [u8]) -> Result<()>;

/// A kernel whose chunks are the items of a batch, computed by vectors.
pub(crate) struct ItemKernel {
    level: SimdLevel,
    scratch: usize,
    bind: BindItemsFn,
    run: RunAtLevel,
}

impl ItemKernel {
    /// A kernel that needs `scratch` bytes for an item.
    pub(crate) fn prepare(
        name: &str,
        ctx: &PrepareContext<'_>,
        scratch: usize,
        bind: BindItemsFn,
        run: RunAtLevel,
    ) -> Preparation {
        let level = SimdLevel::at_most(ctx.cpu.isa);
        let name = format!("{name}.{}", level.isa().name());
        prepared(name, ItemKernel { level, scratch, bind, run })
    }
}

impl GridKernel for ItemKernel {
    type Problem = ();

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn new_problem(&self) {}

    fn bind(&self, args: &mut BindArgs<'_>, _problem: &mut ()) -> Result<Grid> {
        let (items, nanoseconds) = (self.bind)(args)?;
        if u32::try_from(items).is_err() {
            return Err(Error::kernel("the batch has too many items").got(items.to_string()));
        }
        Ok(Grid::chunks(items, nanoseconds))
    }

    fn run(&self, _problem: &(), part: Part<'_>) -> Result<()> {
        (self.run)(self.level, part.args, part.chunk, part.scratch.worker)
    }
}

/// The transposed of a row-major matrix of `rows`.
pub(crate) fn transpose<T: Copy>(from: &[T], [rows, columns]: [usize; 2], to: &mut [T]) {
    transpose_part(from, columns, [rows, columns], to, rows);
}

/// The transposed of a matrix with rows `stride` apart, in rows `step` apart. Square by square: columns alone would fetch
/// every line of the cache once for each of its numbers.
pub(crate) fn transpose_part<T: Copy>(
    from: &[T],
    stride: usize,
    [rows, columns]: [usize; 2],
    to: &mut [T],
    step: usize,
) {
    const SIDE: usize = 8;
    for top in (0..rows).step_by(SIDE) {
        for left in (0..columns).step_by(SIDE) {
            let height = (rows - top).min(SIDE);
            for j in left..columns.min(left + SIDE) {
                let to = &mut to[j * step + top..][..height];
                let column = from[top * stride + j..].iter().step_by(stride.max(1));
                to.iter_mut().zip(column).for_each(|(to, v)| *to = *v);
            }
        }
    }
}

/// An error unless tensor argument `i` has `batch` and then `item`.
pub(crate) fn check_items(
    args: &Args<'_>,
    i: usize,
    name: &str,
    batch: &[usize],
    item: &[usize],
) -> Result<()> {
    check_same(name, &joined(batch, item)?, args.tensor(i)?.shape())
}
