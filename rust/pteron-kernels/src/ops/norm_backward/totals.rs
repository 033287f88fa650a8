//! Sums and slopes of what was normalised together: loops that the compiler vectorises. All is computed in float64, in one
//! order on every instruction set.

use crate::compute::Compute;
use crate::ops::real::Float;

/// Elements that are computed at a time.
const BLOCK: usize = 256;
/// Sums that are added up side by side.
const LANES: usize = 16;

/// What gradients are multiplied by.
#[derive(Clone, Copy)]
pub(super) enum Factor<'a, T> {
    Each(&'a [T]),
    All(f64),
}

/// Elements with one mean, and their gradients.
#[derive(Clone, Copy)]
pub(super) struct Members<'a, T> {
    pub grad: &'a [T],
    pub x: &'a [T],
    /// Mean and reciprocal standard deviation.
    pub moments: [f64; 2],
    pub factor: Factor<'a, T>,
}

/// As float64.
#[inline(always)]
pub(super) fn double<T: Float>(v: T) -> f64 {
    v.wide().to_f64()
}

/// Rounded.
#[inline(always)]
pub(super) fn rounded<T: Float>(v: f64) -> T {
    T::rounded(T::Sum::from_f64(v))
}

impl<T: Float> Members<'_, T> {
    /// Gradients times factors, and x̂, of a block from `at` on.
    #[inline(always)]
    fn block(&self, at: usize, h: &mut [f64], x: &mut [f64]) {
        let n = h.len();
        let grad = &self.grad[at..at + n];
        match self.factor {
            Factor::Each(weight) => {
                for ((h, grad), weight) in h.iter_mut().zip(grad).zip(&weight[at..at + n]) {
                    *h = double(*grad) * double(*weight);
                }
            }
            Factor::All(factor) => {
                h.iter_mut().zip(grad).for_each(|(h, grad)| *h = factor * double(*grad));
            }
        }
        let [mean, rstd] = self.moments;
        x.iter_mut().zip(&self.x[at..at + n]).for_each(|(to, x)| *to = (double(*x) - mean) * rstd);
    }

    /// Sums of the gradients and of their products with x̂.
    #[inline(always)]
    pub(super) fn totals(&self) -> [f64; 2] {
        let count = self.grad.len();
        let (mut h, mut x) = ([0.0; BLOCK], [0.0; BLOCK]);
        let mut sums = [[0.0; LANES]; 2];
        for at in (0..count).step_by(BLOCK) {
            let n = BLOCK.min(count - at);
            self.block(at, &mut h[..n], &mut x[..n]);
            // Zeros fill the last lanes.
            let whole = n.next_multiple_of(LANES);
            h[n..whole].fill(0.0);
            x[n..whole].fill(0.0);
            for (h, x) in h[..whole].as_chunks::<LANES>().0.iter().zip(x[..whole].as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    sums[0][lane] += h[lane];
                    sums[1][lane] += h[lane] * x[lane];
                }
            }
        }
        sums.map(|lanes| lanes.iter().sum())
    }

    /// The gradient of the input, with the means of the gradients and of their products with x̂.
    #[inline(always)]
    pub(super) fn slopes(&self, means: [f64; 2], out: &mut [T]) {
        let rstd = self.moments[1];
        let (mut h, mut x) = ([0.0; BLOCK], [0.0; BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let n = out.len();
            self.block(i * BLOCK, &mut h[..n], &mut x[..n]);
            for ((out, h), x) in out.iter_mut().zip(&h).zip(&x) {
                *out = rounded(rstd * (h - means[0] - x * means[1]));
            }
        }
    }
}
