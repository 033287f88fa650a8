//! How elementwise kernels walk their operands: in the memory order of the output, with dimensions
//! collapsed as far as all operands allow.

use pteron_core::{Dims, Error, MAX_RANK, Result, TensorMeta};

/// Output elements of one chunk: fixed, so results do not depend on the number of threads.
pub const CHUNK: usize = 16 << 10;

/// Loops over an output and `N` operands, outermost first. The output is dense in this order.
#[derive(Debug, Clone)]
pub struct BroadcastPlan<const N: usize> {
    rank: usize,
    numel: usize,
    extents: [usize; MAX_RANK],
    strides: [[usize; N]; MAX_RANK],
}

/// The shape that `shapes` broadcast to; an error when two extents differ and neither is one.
pub fn broadcast_shape(shapes: &[&Dims]) -> Result<Dims> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = Dims::filled(rank, 1)?;
    for shape in shapes {
        let offset = rank - shape.len();
        for (d, &n) in shape.iter().enumerate() {
            let slot = &mut out[offset + d];
            if *slot == 1 {
                *slot = n;
            } else if n != 1 && n != *slot {
                let list: Vec<String> = shapes.iter().map(|s| s.to_string()).collect();
                return Err(Error::kernel("the shapes of the operands do not broadcast")
                    .expected("equal extents, or one of them 1, counted from the last dimension")
                    .got(list.join(" and ")));
            }
        }
    }
    Ok(out)
}

impl<const N: usize> Default for BroadcastPlan<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> BroadcastPlan<N> {
    /// A plan for nothing.
    pub const EMPTY: Self =
        BroadcastPlan { rank: 0, numel: 0, extents: [0; MAX_RANK], strides: [[0; N]; MAX_RANK] };

    /// Plans for an output of the broadcast shape and operands that broadcast to it.
    pub fn new(out: &TensorMeta, operands: [&TensorMeta; N]) -> Self {
        let rank = out.rank();
        Self::from_strides(out, |d, k| {
            let operand = operands[k];
            let missing = rank - operand.rank();
            if d >= missing && operand.shape()[d - missing] != 1 { operand.strides()[d - missing] } else { 0 }
        })
    }

    /// Plans for operands given by their stride along each output dimension: `stride(d, operand)`.
    pub fn from_strides(out: &TensorMeta, stride: impl Fn(usize, usize) -> usize) -> Self {
        let mut plan = Self::EMPTY;
        plan.numel = out.numel();
        for &d in out.dim_order().as_slice() {
            let d = d as usize;
            let n = out.shape()[d];
            if n != 1 {
                plan.push(n, std::array::from_fn(|k| stride(d, k)));
            }
        }
        if plan.rank == 0 {
            plan.push(1, [1; N]);
        }
        plan
    }

    /// Number of loops left after collapsing.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Extent and operand strides of loop `d`, outermost first.
    pub fn loop_at(&self, d: usize) -> (usize, [usize; N]) {
        (self.extents[d], self.strides[d])
    }

    fn push(&mut self, n: usize, strides: [usize; N]) {
        if let Some(last) = self.rank.checked_sub(1)
            && self.strides[last].iter().zip(strides).all(|(outer, inner)| *outer == inner * n)
        {
            self.extents[last] *= n;
            self.strides[last] = strides;
            return;
        }
        self.extents[self.rank] = n;
        self.strides[self.rank] = strides;
        self.rank += 1;
    }

    /// Elements of the output.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Chunks of the output.
    pub fn chunk_count(&self) -> usize {
        self.numel.div_ceil(CHUNK)
    }

    /// The number of elements after which a single operand begins again, its elements side by side until then.
    pub fn period(&self) -> Option<usize> {
        (self.rank == 2 && self.strides[0] == [0; N] && self.strides[1] == [1; N]).then_some(self.extents[1])
    }

    /// Do all operands lie exactly as the output?
    #[inline(always)]
    pub fn is_dense(&self) -> bool {
        self.rank == 1 && self.strides[0] == [1; N]
    }

    /// Strides of the operands along the innermost loop.
    #[inline(always)]
    pub fn inner_strides(&self) -> [usize; N] {
        self.strides[self.rank.saturating_sub(1)]
    }

    /// The stretches of `chunk` along the innermost loop, in memory order of the output.
    ///
    /// An iterator rather than a callback: a closure that the compiler chooses not to inline would be
    /// compiled without the target features of the kernel around it.
    #[inline(always)]
    pub fn runs(&self, chunk: usize) -> Runs<'_, N> {
        let at = chunk * CHUNK;
        self.runs_between(at, (at + CHUNK).min(self.numel))
    }

    /// The stretches of the output's elements `at..end`.
    #[inline(always)]
    pub fn runs_between(&self, at: usize, end: usize) -> Runs<'_, N> {
        let mut index = [0usize; MAX_RANK];
        let mut rest = at;
        for d in (0..self.rank).rev() {
            index[d] = rest % self.extents[d].max(1);
            rest /= self.extents[d].max(1);
        }
        Runs { plan: self, at, end: end.min(self.numel), index }
    }
}

/// One stretch of elements along the innermost loop.
#[derive(Debug, Clone, Copy)]
pub struct Run<const N: usize> {
    /// First element of the output.
    pub at: usize,
    /// First element of each operand.
    pub offsets: [usize; N],
    /// Number of elements.
    pub n: usize,
}

/// See [`BroadcastPlan::runs`].
pub struct Runs<'a, const N: usize> {
    plan: &'a BroadcastPlan<N>,
    at: usize,
    end: usize,
    index: [usize; MAX_RANK],
}

impl<const N: usize> Iterator for Runs<'_, N> {
    type Item = Run<N>;

    #[inline(always)]
    fn next(&mut self) -> Option<Run<N>> {
        if self.at >= self.end {
            return None;
        }
        let plan = self.plan;
        let inner = plan.rank - 1;
        let mut offsets = [0; N];
        for d in 0..plan.rank {
            for (offset, stride) in offsets.iter_mut().zip(&plan.strides[d]) {
                *offset += self.index[d] * stride;
            }
        }
        let run = Run {
            at: self.at,
            offsets,
            n: (plan.extents[inner] - self.index[inner]).min(self.end - self.at),
        };
        self.at += run.n;
        self.index[inner] = 0;
        for d in (0..inner).rev() {
            self.index[d] += 1;
            if self.index[d] < plan.extents[d] {
                break;
            }
            self.index[d] = 0;
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{DType, DimOrder};

    fn meta(shape: &[usize]) -> TensorMeta {
        TensorMeta::contiguous(DType::Float32, shape).unwrap()
    }

    #[test]
    fn same_shapes_collapse_to_one_loop() {
        let m = meta(&[2, 3, 4]);
        let plan = BroadcastPlan::new(&m, [&m, &m]);
        assert_eq!((plan.rank, plan.extents[0], plan.inner_strides()), (1, 24, [1, 1]));
    }

    #[test]
    fn rows_and_columns() {
        let plan = BroadcastPlan::new(&meta(&[2, 3, 4]), [&meta(&[2, 3, 4]), &meta(&[4])]);
        assert_eq!((plan.rank, plan.extents[0], plan.extents[1]), (2, 6, 4));
        assert_eq!(plan.inner_strides(), [1, 1]);
        let plan = BroadcastPlan::new(&meta(&[2, 3, 4]), [&meta(&[2, 3, 1]), &meta(&[])]);
        assert_eq!((plan.rank, plan.inner_strides()), (2, [0, 0]));
    }

    #[test]
    fn other_memory_orders_are_followed() {
        let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
        let out = TensorMeta::new(DType::Float32, Dims::new(&[2, 3, 4, 5]).unwrap(), nhwc).unwrap();
        let plan = BroadcastPlan::new(&out, [&out, &meta(&[3, 1, 1])]);
        assert_eq!((plan.rank, plan.extents[0], plan.extents[1], plan.inner_strides()), (2, 40, 3, [1, 1]));
    }

    #[test]
    fn runs_cover_every_element_once() {
        let out = meta(&[7, 5, 1000]);
        let plan = BroadcastPlan::new(&out, [&meta(&[5, 1000]), &meta(&[7, 1, 1])]);
        let mut next = 0;
        for chunk in 0..plan.chunk_count() {
            for Run { at, offsets: [a, b], n } in plan.runs(chunk) {
                assert_eq!((at, a, b), (next, next % 5000, next / 5000));
                next += n;
            }
        }
        assert_eq!(next, 35_000);
    }

    #[test]
    fn shapes_that_do_not_broadcast_are_refused() {
        let (a, b) = (Dims::new(&[2, 3]).unwrap(), Dims::new(&[3, 3]).unwrap());
        assert!(broadcast_shape(&[&a, &b]).unwrap_err().to_string().contains("[2, 3] and [3, 3]"));
        let c = Dims::new(&[2, 1, 1]).unwrap();
        assert_eq!(&*broadcast_shape(&[&a, &c]).unwrap(), &[2, 2, 3]);
        let empty = Dims::new(&[0, 3]).unwrap();
        let one = Dims::new(&[1, 3]).unwrap();
        assert_eq!(&*broadcast_shape(&[&empty, &one]).unwrap(), &[0, 3]);
    }
}
