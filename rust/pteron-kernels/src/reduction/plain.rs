//! The iteration of reductions: every output position, and for each the reduced positions of the input.

use crate::chunked::{CHUNK, in_ranges};
use crate::compute::{BLOCK, Compute};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::routine::{BindFn, Preparation};
use crate::shape::{all_dims, dim_set, reduced_shape};
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, Error, Result, TensorMeta};
use std::ops::Range;

/// Where a reduction reads.
pub struct Reduction {
    pub(crate) outer: Walk,
    inner: Walk,
    /// Output positions that are computed.
    range: Range<usize>,
}

impl Reduction {
    /// Reduces the dimensions in `set` (bit `d`) of `x`; the rest is kept in order.
    pub fn new(x: &TensorMeta, set: u32) -> Reduction {
        let strides = signed(x.strides());
        let kept = |keep: bool| (0..x.rank()).filter(move |d| (set & (1 << d) == 0) == keep);
        let outer = Walk::new(kept(true), x.shape(), &strides);
        Reduction { range: 0..outer.numel(), outer, inner: Walk::new(kept(false), x.shape(), &strides) }
    }

    /// The same reduction of a range of output positions.
    pub fn within(self, range: Range<usize>) -> Reduction {
        Reduction { range, ..self }
    }

    /// Number of elements that one result is made of.
    pub fn count(&self) -> usize {
        self.inner.numel()
    }

    /// The reduced positions, in row-major order.
    pub fn inner(&self) -> &Walk {
        &self.inner
    }

    /// Calls `visit(position, base)` for every output position in row-major order; the input
    /// elements of it are at `base` plus the offsets of [`Reduction::inner`].
    pub fn for_each(&self, visit: impl FnMut(usize, isize) -> Result<()>) -> Result<()> {
        self.for_each_in(self.range.clone(), visit)
    }

    /// [`Reduction::for_each`] for a range of output positions.
    pub fn for_each_in(
        &self,
        range: Range<usize>,
        mut visit: impl FnMut(usize, isize) -> Result<()>,
    ) -> Result<()> {
        self.outer.runs(range.start, range.len(), |position, offset, stride, len| {
            (0..len).try_for_each(|i| visit(range.start + position + i, offset + i as isize * stride))
        })
    }

    /// Folds the blocks of every output position and writes what `finish` makes of it.
    pub fn fold<C: Compute, O: Compute, A>(
        &self,
        x: &Reader<'_, C>,
        out: &mut Writer<'_, O>,
        start: impl Fn() -> A,
        mut step: impl FnMut(&mut A, usize, &[C]),
        finish: impl Fn(A) -> O,
    ) -> Result<()> {
        let positions = row_major(out.meta());
        let mut buffer = [C::ZERO; BLOCK];
        self.for_each(|position, base| {
            let mut state = start();
            x.blocks(&self.inner, base, &mut buffer, |at, block| {
                step(&mut state, at, block);
                Ok(())
            })?;
            out.write(positions.offset(position), 1, &[finish(state)])
        })
    }
}

/// Computes the results at a range of output positions.
pub type RunPart = fn(&Args<'_>, Range<usize>) -> Result<()>;

/// A kernel that reduces argument 0 to output `out` in chunks of results.
pub fn in_parts(out: usize, bind: BindFn, run: RunPart) -> Preparation {
    let bind = move |args: &mut BindArgs<'_>, _: &mut ()| {
        bind(args)?;
        let view = args.args();
        let count = view.output(out)?.numel();
        Ok(Split::within(count, view.tensor(0)?.numel().checked_div(count).unwrap_or(0).max(1), CHUNK, 1))
    };
    in_ranges(0, bind, move |_, args, range, _| run(args, range))
}

/// A walk over all elements of a tensor in row-major order.
pub fn row_major(meta: &TensorMeta) -> Walk {
    Walk::row_major(meta.shape(), &signed(meta.strides()))
}

/// A sum in eight lanes, so that it vectorises; always the same lanes for the same positions.
#[derive(Default)]
pub struct LaneSum([f64; 8]);

impl LaneSum {
    /// Adds `f` of every element.
    #[inline(always)]
    pub fn add<C: Compute>(&mut self, block: &[C], f: impl Fn(C) -> f64) {
        let mut parts = block.chunks_exact(8);
        for part in parts.by_ref() {
            for (lane, x) in self.0.iter_mut().zip(part) {
                *lane += f(*x);
            }
        }
        for (lane, x) in self.0.iter_mut().zip(parts.remainder()) {
            *lane += f(*x);
        }
    }

    /// The sum.
    pub fn total(&self) -> f64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

/// The dimensions listed in argument `i`; all of them if it is absent or empty.
pub fn listed_dims(args: &Args<'_>, i: usize) -> Result<u32> {
    let rank = args.tensor(0)?.rank();
    match args.optional_int_list(i)? {
        Some(dims) if !dims.is_empty() => dim_set(&dims, rank),
        _ => Ok(all_dims(rank)),
    }
}

/// Sizes output `out` for a reduction of argument 0 over `set`.
pub fn bind_reduced(args: &mut BindArgs<'_>, set: u32, keepdim: bool, out: usize) -> Result<()> {
    let shape = reduced_shape(args.args().tensor(0)?.shape(), set, keepdim)?;
    args.resize(out, &shape)
}

/// An error when results would have to be made of nothing: an extreme of no elements is not defined.
pub fn check_not_empty(args: &Args<'_>, set: u32) -> Result<()> {
    let x = args.tensor(0)?;
    let shape = reduced_shape(x.shape(), set, false)?;
    if x.numel() == 0 && shape.numel()? != 0 {
        return Err(Error::kernel("an empty dimension has no extreme")
            .argument("self")
            .expected("at least one element in every reduced dimension")
            .got(x.shape().to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::DType;

    #[test]
    fn outer_and_inner_cover_the_tensor_once() {
        let meta = TensorMeta::contiguous(DType::Float32, &[2, 3, 4]).unwrap();
        for set in 0..8u32 {
            let r = Reduction::new(&meta, set);
            let mut seen = [false; 24];
            let mut next = 0;
            r.for_each(|position, base| {
                assert_eq!(position, next);
                next += 1;
                for i in 0..r.count() {
                    let at = (base + r.inner().offset(i)) as usize;
                    assert!(!std::mem::replace(&mut seen[at], true));
                }
                Ok(())
            })
            .unwrap();
            assert!(seen.iter().all(|s| *s));
        }
    }
}
