//! The lines of a tensor along one dimension, for operands of one shape.

use crate::chunked::CHUNK;
use crate::compute::BLOCK;
use crate::frame::Split;
use crate::shape::wrap_dim;
use crate::strided::loops::{Loops, memory_order, signed};
use pteron_core::{Args, Dims, Result};

/// Lines along a dimension of `N` operands.
pub(super) struct Lines<const N: usize> {
    /// The first elements of lines.
    pub starts: Loops<N>,
    /// Elements of a line.
    pub length: usize,
    /// From one element of a line to the next.
    pub strides: [isize; N],
}

impl<const N: usize> Default for Lines<N> {
    fn default() -> Self {
        Lines { starts: Loops::EMPTY, length: 0, strides: [0; N] }
    }
}

impl<const N: usize> Lines<N> {
    /// Along the dimension that argument 1 says, of operands with the shape of argument 0; the order of lines is that of
    /// the first operand in memory.
    pub(super) fn of(args: &Args<'_>, strides: [&Dims; N]) -> Result<Self> {
        let mut lines = *args.tensor(0)?.shape();
        let dim = wrap_dim(args.int(1)?, lines.len())?;
        let strides = strides.map(|s| signed(s));
        let length = lines.get_mut(dim).map_or(1, |n| std::mem::replace(n, 1));
        let order = memory_order(lines.len(), &strides[0]);
        let operands = std::array::from_fn(|k| &strides[k][..]);
        let starts = Loops::over(order[..lines.len()].iter().copied(), &lines, operands);
        Ok(Lines { starts, length, strides: strides.map(|s| s[dim]) })
    }

    /// Whole lines in each chunk; an element takes about `ns`.
    pub(super) fn split(&self, ns: usize) -> Split {
        let (lines, per_chunk) = (self.starts.numel(), (CHUNK / self.length.max(1)).max(BLOCK));
        Split::new(lines, per_chunk, per_chunk.min(lines).saturating_mul(self.length).saturating_mul(ns))
    }

    /// From one line to the next.
    pub(super) fn beside(&self) -> [isize; N] {
        self.starts.inner_strides()
    }

    /// Do the elements of a line lie closer together than lines do?
    pub(super) fn is_along(&self) -> bool {
        let beside = self.beside()[0];
        self.strides[0].unsigned_abs() <= beside.unsigned_abs() || beside == 0
    }
}
