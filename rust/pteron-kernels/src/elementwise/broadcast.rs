//! How elementwise kernels walk their operands: in the memory order of the output, with dimensions
//! collapsed as far as all operands allow.

pub use crate::chunk::CHUNK;
pub use crate::shape::broadcast_shape;
use crate::strided::loops::{self, Loops};
use pteron_core::TensorMeta;

/// Loops over an output and `N` operands, outermost first. The output is dense in this order.
#[derive(Debug, Clone)]
pub struct BroadcastPlan<const N: usize>(Loops<N>);

impl<const N: usize> Default for BroadcastPlan<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> BroadcastPlan<N> {
    /// A plan for nothing.
    pub const EMPTY: Self = BroadcastPlan(Loops::EMPTY);

    /// Plans for an output of the broadcast shape and operands that broadcast to it.
    pub fn new(out: &TensorMeta, operands: [&TensorMeta; N]) -> Self {
        BroadcastPlan(Loops::broadcast(out, operands))
    }

    /// Elements of the output.
    pub fn numel(&self) -> usize {
        self.0.numel()
    }

    /// Chunks of the output.
    pub fn chunk_count(&self) -> usize {
        self.numel().div_ceil(CHUNK)
    }

    /// Number of loops left after collapsing.
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Extent and operand strides of loop `d`, outermost first.
    pub fn loop_at(&self, d: usize) -> (usize, [usize; N]) {
        let (extent, strides) = self.0.loop_at(d);
        (extent, strides.map(|s| s as usize))
    }

    /// The number of elements after which a single operand begins again, its elements side by side until then.
    pub fn period(&self) -> Option<usize> {
        let begins_again = self.rank() == 2 && self.loop_at(0).1 == [0; N];
        (begins_again && self.inner_strides() == [1; N]).then(|| self.loop_at(1).0)
    }

    /// Do all operands lie exactly as the output?
    #[inline(always)]
    pub fn is_dense(&self) -> bool {
        self.rank() <= 1 && self.inner_strides() == [1; N]
    }

    /// Strides of the operands along the innermost loop; of a single element, those of a dense tensor.
    #[inline(always)]
    pub fn inner_strides(&self) -> [usize; N] {
        match self.rank() {
            0 => [1; N],
            _ => self.0.inner_strides().map(|s| s as usize),
        }
    }

    /// The stretches of `chunk` along the innermost loop, in memory order of the output.
    #[inline(always)]
    pub fn runs(&self, chunk: usize) -> Runs<'_, N> {
        let at = chunk * CHUNK;
        self.runs_between(at, at + CHUNK)
    }

    /// The stretches of the output's elements `at..end`.
    #[inline(always)]
    pub fn runs_between(&self, at: usize, end: usize) -> Runs<'_, N> {
        Runs(self.0.runs_between(at, end.min(self.numel())))
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
pub struct Runs<'a, const N: usize>(loops::Runs<'a, N>);

impl<const N: usize> Iterator for Runs<'_, N> {
    type Item = Run<N>;

    #[inline(always)]
    fn next(&mut self) -> Option<Run<N>> {
        // A broadcast operand has no negative strides, so that no offset is negative.
        self.0.next().map(|run| Run { at: run.at, offsets: run.offsets.map(|o| o as usize), n: run.n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{DType, DimOrder, Dims};

    fn meta(shape: &[usize]) -> TensorMeta {
        TensorMeta::contiguous(DType::Float32, shape).unwrap()
    }

    #[test]
    fn same_shapes_collapse_to_one_loop() {
        let m = meta(&[2, 3, 4]);
        let plan = BroadcastPlan::new(&m, [&m, &m]);
        assert_eq!((plan.rank(), plan.loop_at(0).0, plan.inner_strides()), (1, 24, [1, 1]));
    }

    #[test]
    fn rows_and_columns() {
        let plan = BroadcastPlan::new(&meta(&[2, 3, 4]), [&meta(&[2, 3, 4]), &meta(&[4])]);
        assert_eq!((plan.rank(), plan.loop_at(0).0, plan.loop_at(1).0), (2, 6, 4));
        assert_eq!(plan.inner_strides(), [1, 1]);
        let plan = BroadcastPlan::new(&meta(&[2, 3, 4]), [&meta(&[2, 3, 1]), &meta(&[])]);
        assert_eq!((plan.rank(), plan.inner_strides()), (2, [0, 0]));
    }

    #[test]
    fn other_memory_orders_are_followed() {
        let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
        let out = TensorMeta::new(DType::Float32, Dims::new(&[2, 3, 4, 5]).unwrap(), nhwc).unwrap();
        let plan = BroadcastPlan::new(&out, [&out, &meta(&[3, 1, 1])]);
        let extents = (plan.loop_at(0).0, plan.loop_at(1).0);
        assert_eq!((plan.rank(), extents, plan.inner_strides()), (2, (40, 3), [1, 1]));
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
