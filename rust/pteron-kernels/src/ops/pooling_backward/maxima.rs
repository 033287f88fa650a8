//! Gradients of maxima of row-major floats: every element of the gradient is added where its maximum was. Volumes are apart
//! from each other; within one the order is that of the plain kernel.

use super::{GRAD, X, bind_max, most_elements};
use crate::chunk::CHUNK;
use crate::compute::Compute;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::real::{Float, by_float};
use crate::ops::volume::extents;
use crate::routine::Preparation;
use crate::shape::check_index;
use pteron_core::{BindArgs, DType, Element, PrepareContext, Result, Scratch, sizes};
use std::marker::PhantomData;

const INDICES: usize = 7;
const OUT: usize = 8;

struct Maxima<T, const N: usize> {
    /// Bytes for the sums of a volume of elements that are not summed where they lie.
    scratch: usize,
    element: PhantomData<T>,
}

/// Elements of a volume and of its gradient. Units are volumes.
#[derive(Clone, Copy, Default)]
struct Volumes {
    size: usize,
    pooled: usize,
}

/// The kernel, if it takes the call.
pub(super) fn prepare<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(grad), Some(x), Some(indices), Some(out)) =
        (ctx.tensor(GRAD), ctx.tensor(X), ctx.tensor(INDICES), ctx.tensor(OUT))
    else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = [grad, indices, out].iter().all(|t| t.dim_order.is_contiguous());
    let is_alike = grad.dtype == out.dtype && x.dtype == out.dtype && indices.dtype == DType::Int64;
    if !is_plain || !is_alike {
        return ctx.decline("takes row-major tensors of one dtype, positions of int64");
    }
    by_float!(ctx, out.dtype, maxima[N](most_elements::<N>(ctx, OUT)?))
}

fn maxima<T: Float, const N: usize>(most: usize) -> Preparation {
    let is_half = T::as_sums(&mut []).is_none();
    let scratch = if is_half { sizes::checked_nbytes(&[most], T::Sum::DTYPE)? } else { 0 };
    let name = format!("max_pool{N}d_backward.{}", T::DTYPE.name());
    framed(name, Maxima::<T, N> { scratch, element: PhantomData })
}

impl<T: Float, const N: usize> UnitKernel for Maxima<T, N> {
    type Problem = Volumes;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, volumes: &mut Volumes) -> Result<Split> {
        bind_max::<N>(args)?;
        let view = args.args();
        let x = view.tensor(X)?;
        let size = extents::<N>(x.shape())?.iter().product::<i64>() as usize;
        let count = x.numel() / size;
        let pooled = view.tensor(GRAD)?.numel().checked_div(count).unwrap_or(0);
        *volumes = Volumes { size, pooled };
        Ok(Split::sized(count, size, CHUNK, 0.5 + 2.0 * pooled as f64 / size as f64))
    }

    fn run(&self, &Volumes { size, pooled }: &Volumes, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let grad = chunk.input_units::<T>(GRAD, pooled)?.as_slice()?;
        let indices = chunk.input_units::<i64>(INDICES, pooled)?.as_slice()?;
        let out = chunk.output_units::<T>(OUT, size)?.into_slice()?;
        let is_half = T::as_sums(&mut []).is_none();
        let room = chunk.take_scratch::<T::Sum>(if is_half { size } else { 0 })?;
        let sources = grad.chunks_exact(pooled.max(1)).zip(indices.chunks_exact(pooled.max(1)));
        for ((grad, indices), out) in sources.zip(out.chunks_exact_mut(size)) {
            if let Some(sums) = T::as_sums(out) {
                add(grad, indices, sums)?;
                continue;
            }
            add(grad, indices, room)?;
            out.iter_mut().zip(room.iter()).for_each(|(out, sum)| *out = T::rounded(*sum));
        }
        Ok(())
    }
}

fn add<T: Float>(grad: &[T], indices: &[i64], sums: &mut [T::Sum]) -> Result<()> {
    sums.fill(T::Sum::ZERO);
    for (grad, index) in grad.iter().zip(indices) {
        if *index == -1 {
            continue;
        }
        match usize::try_from(*index).ok().and_then(|at| sums.get_mut(at)) {
            Some(sum) => *sum += grad.wide(),
            None => {
                return check_index(*index, sums.len()).map(|_| ()).map_err(|e| e.argument("indices"));
            }
        }
    }
    Ok(())
}
