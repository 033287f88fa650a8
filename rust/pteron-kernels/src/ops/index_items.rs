//! The index list of an advanced indexing call: position tensors and masks, each with the dimensions
//! that it stands for.
//!
//! A mask of rank r stands for r dimensions, whose extents are the mask's, and indexes like the
//! positions of its true elements in row-major order would (PyTorch's rule). How many those are is
//! known when the call runs.

use crate::compute::BLOCK;
use crate::elements::Reader;
use crate::ops::data_dependent::{count_true, for_each_true};
use crate::shape::{broadcast, wrap_index};
use crate::strided::loops::{Walk, broadcast_strides};
use pteron_core::{DType, Dims, Error, MAX_RANK, Result, TensorListView, TensorView};
use std::ops::Range;

/// How many true elements masks count as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaskCount {
    /// As many as they have elements: shapes only are read.
    Most,
    /// As many as they have: their contents are read.
    Exact,
}

/// One index tensor.
struct Item<'a> {
    /// The first dimension that it indexes, and how many.
    dim: usize,
    dims: usize,
    tensor: TensorView<'a>,
    /// Number of true elements of a mask; `None` for positions.
    count: Option<usize>,
}

/// The index tensors of a call, in the order of the dimensions that they index.
pub(crate) struct IndexItems<'a> {
    items: [Option<Item<'a>>; MAX_RANK],
    len: usize,
    count: MaskCount,
}

impl<'a> IndexItems<'a> {
    /// The index tensors in `indices`, for a tensor of shape `x`.
    pub(crate) fn new(x: &Dims, indices: &TensorListView<'a>, count: MaskCount) -> Result<Self> {
        let mut found = IndexItems { items: [const { None }; MAX_RANK], len: 0, count };
        let mut dim = 0;
        for j in 0..indices.len() {
            let Some(tensor) = indices.get_optional(j)? else {
                dim += 1;
                continue;
            };
            let is_mask = tensor.dtype() == DType::Bool;
            let dims = if is_mask { tensor.rank() } else { 1 };
            if dim + dims > x.len() {
                return Err(Error::kernel("there are more indices than dimensions")
                    .argument("indices")
                    .expected(format!("at most {}", x.len()))
                    .got((dim + dims).to_string()));
            }
            let count = match (is_mask, count) {
                (false, _) => None,
                (true, _) if dims == 0 => {
                    return Err(Error::kernel("a mask must have at least one dimension").argument("indices"));
                }
                (true, _) if x[dim..dim + dims] != tensor.shape()[..] => {
                    return Err(Error::kernel(
                        "a mask has another shape than the dimensions it chooses from",
                    )
                    .argument("indices")
                    .expected(format!("{:?}", &x[dim..dim + dims]))
                    .got(tensor.shape().to_string()));
                }
                (true, MaskCount::Most) => Some(tensor.numel()),
                (true, MaskCount::Exact) => Some(count_true(tensor, tensor.shape())?),
            };
            if let Some(slot) = found.items.get_mut(found.len) {
                *slot = Some(Item { dim, dims, tensor, count });
                found.len += 1;
            }
            dim += dims;
        }
        if dim > x.len() || found.len == 0 {
            return Err(Error::kernel("there must be at least one index, and at most one per dimension")
                .argument("indices")
                .got(indices.len().to_string()));
        }
        Ok(found)
    }

    fn iter(&self) -> impl Iterator<Item = &Item<'a>> {
        self.items.iter().flatten()
    }

    /// Bit `d`: dimension `d` is indexed.
    pub(crate) fn set(&self) -> u32 {
        self.iter().fold(0, |set, item| set | (((1u32 << item.dims) - 1) << item.dim))
    }

    /// The common shape of the index tensors; with [`MaskCount::Most`] the largest that it can be.
    pub(crate) fn shape(&self) -> Result<Dims> {
        let mut shape: Option<Dims> = None;
        let mut most = None;
        for item in self.iter() {
            let own = match item.count {
                None => *item.tensor.shape(),
                Some(n) if self.count == MaskCount::Most => {
                    most = most.max(Some(n));
                    continue;
                }
                Some(n) => Dims::new(&[n])?,
            };
            shape = Some(match shape {
                None => own,
                Some(known) => broadcast(&known, &own).map_err(|e| e.argument("indices"))?,
            });
        }
        let shape = shape.unwrap_or(Dims::EMPTY);
        match (most, shape.last()) {
            (None, _) => Ok(shape),
            (Some(n), None | Some(1)) => {
                let mut larger = Dims::EMPTY;
                shape.iter().take(shape.len().saturating_sub(1)).try_for_each(|n| larger.push(*n))?;
                larger.push(n)?;
                Ok(larger)
            }
            // Positions that do not broadcast fix the number of true elements.
            (Some(_), Some(_)) => Ok(shape),
        }
    }

    /// Calls `visit(number, offsets)` for blocks of the places in a tensor of shape `x` that the list chooses:
    /// those numbered `range` in row-major order of `index_shape`. `room`: one entry per element of every mask.
    pub(crate) fn blocks(
        &self,
        (x, x_strides): (&Dims, &Dims),
        index_shape: &Dims,
        range: Range<usize>,
        room: &mut [u64],
        mut visit: impl FnMut(usize, &[i64]) -> Result<()>,
    ) -> Result<()> {
        let sources = self.sources((x, x_strides), index_shape, room)?;
        let (mut offsets, mut buffer) = ([0i64; BLOCK], [0i64; BLOCK]);
        for start in range.clone().step_by(BLOCK) {
            let n = (range.end - start).min(BLOCK);
            let (offsets, buffer) = (&mut offsets[..n], &mut buffer[..n]);
            offsets.fill(0);
            for source in sources.iter().flatten() {
                match source {
                    Source::Positions { dim, reader, walk } => {
                        reader.gather(walk, 0, start, buffer)?;
                        wrap_positions(buffer, x[*dim])?;
                        let stride = x_strides[*dim] as i64;
                        offsets.iter_mut().zip(&*buffer).for_each(|(offset, p)| *offset += p * stride);
                    }
                    Source::Offsets { found, walk } => walk.runs(start, n, |done, at, stride, len| {
                        for (i, offset) in offsets[done..done + len].iter_mut().enumerate() {
                            let found = found.get((at + i as isize * stride) as usize);
                            *offset += *found.ok_or_else(|| {
                                Error::internal("a mask has fewer true elements than counted")
                            })? as i64;
                        }
                        Ok(())
                    })?,
                }
            }
            visit(start, offsets)?;
        }
        Ok(())
    }

    /// Where the index tensors say what is chosen; lists the true elements of masks in `room`.
    fn sources<'b>(
        &self,
        (x, x_strides): (&Dims, &Dims),
        index_shape: &Dims,
        mut room: &'b mut [u64],
    ) -> Result<[Option<Source<'b>>; MAX_RANK]>
    where
        'a: 'b,
    {
        let mut sources: [Option<Source<'b>>; MAX_RANK] = [const { None }; MAX_RANK];
        for (item, source) in self.iter().zip(&mut sources) {
            *source = Some(match item.count {
                None => {
                    let strides =
                        broadcast_strides(item.tensor.shape(), item.tensor.strides(), index_shape.len());
                    let walk = Walk::row_major(index_shape, &strides);
                    Source::Positions { dim: item.dim, reader: Reader::new(item.tensor)?, walk }
                }
                Some(count) => {
                    let (found, rest) = std::mem::take(&mut room)
                        .split_at_mut_checked(count)
                        .ok_or_else(|| Error::internal("scratch is too small"))?;
                    room = rest;
                    let mut next = found.iter_mut();
                    for_each_true(item.tensor, item.tensor.shape(), |position| {
                        if let Some(slot) = next.next() {
                            *slot = offset_of(position, &x[item.dim..][..item.dims], &x_strides[item.dim..]);
                        }
                        Ok(())
                    })?;
                    let shape = Dims::new(&[count])?;
                    let strides = broadcast_strides(&shape, &Dims::new(&[1])?, index_shape.len());
                    Source::Offsets { found, walk: Walk::row_major(index_shape, &strides) }
                }
            });
        }
        Ok(sources)
    }
}

/// Counts negative positions from the end; an error that names the first one outside.
pub(crate) fn wrap_positions(positions: &mut [i64], extent: usize) -> Result<()> {
    let (n, mut signs) = (extent as i64, 0);
    for p in positions.iter_mut() {
        let wrapped = p.wrapping_add((*p >> 63) & n);
        signs |= wrapped | (n - 1).wrapping_sub(wrapped);
        // What stays wrong keeps its value for the message.
        if wrapped >= 0 {
            *p = wrapped;
        }
    }
    if signs < 0 {
        return positions
            .iter()
            .try_for_each(|p| wrap_index(*p, extent).map(|_| ()))
            .map_err(|e| e.argument("indices"));
    }
    Ok(())
}

/// Where the chosen places of one index tensor come from.
enum Source<'a> {
    Positions {
        dim: usize,
        reader: Reader<'a, i64>,
        walk: Walk,
    },
    /// Offsets of the true elements of a mask.
    Offsets {
        found: &'a [u64],
        walk: Walk,
    },
}

/// Offset of row-major `position` of a tensor of `shape` with `strides`.
fn offset_of(position: usize, shape: &[usize], strides: &[usize]) -> u64 {
    let (mut rest, mut offset) = (position, 0);
    for (extent, stride) in shape.iter().zip(strides).rev() {
        offset += rest % extent * stride;
        rest /= extent;
    }
    offset as u64
}
