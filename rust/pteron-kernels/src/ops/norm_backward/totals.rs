//! Sums and slopes of what was normalised together: loops that the compiler vectorises, in the element's own precision,
//! 16-bit floats in float32. Blocks are summed in lanes, their sums in float64, in one order on every instruction set.

use crate::compute::Compute;
use crate::ops::real::Float;

/// Elements whose sums are added up before they are added to the rest: short sums are accurate.
const BLOCK: usize = 512;
/// Sums that are added up side by side.
const LANES: usize = 32;

/// What gradients are multiplied by.
#[derive(Clone, Copy)]
pub(super) enum Factor<'a, T: Float> {
    Each(&'a [T]),
    All(T::Sum),
}

/// Elements with one mean, and their gradients.
#[derive(Clone, Copy)]
pub(super) struct Members<'a, T: Float> {
    pub grad: &'a [T],
    pub x: &'a [T],
    /// Mean and reciprocal standard deviation.
    pub moments: [T::Sum; 2],
    pub factor: Factor<'a, T>,
}

/// The sums of numbers, and those of their products with x̂.
struct Lanes<T: Float> {
    moments: [T::Sum; 2],
    sums: [[T::Sum; LANES]; 2],
}

impl<T: Float> Lanes<T> {
    #[inline(always)]
    fn add(&mut self, lane: usize, h: T::Sum, x: T) {
        let [mean, rstd] = self.moments;
        self.sums[0][lane] += h;
        self.sums[1][lane] += h * ((x.wide() - mean) * rstd);
    }
}

impl<T: Float> Members<'_, T> {
    /// Sums of the gradients and of their products with x̂.
    #[inline(always)]
    pub(super) fn totals(&self) -> [f64; 2] {
        let mut totals = [0.0; 2];
        for (i, (grad, x)) in self.grad.chunks(BLOCK).zip(self.x.chunks(BLOCK)).enumerate() {
            let mut lanes = Lanes::<T> { moments: self.moments, sums: [[T::Sum::ZERO; LANES]; 2] };
            let ((grad, grad_rest), (x, x_rest)) = (grad.as_chunks::<LANES>(), x.as_chunks::<LANES>());
            match self.factor {
                Factor::Each(weight) => {
                    let (weight, weight_rest) = weight[i * BLOCK..].as_chunks::<LANES>();
                    for ((grad, x), weight) in grad.iter().zip(x).zip(weight) {
                        for lane in 0..LANES {
                            lanes.add(lane, grad[lane].wide() * weight[lane].wide(), x[lane]);
                        }
                    }
                    // Only the last block has a rest, and the weights then have the same.
                    for (lane, ((grad, x), weight)) in
                        grad_rest.iter().zip(x_rest).zip(weight_rest).enumerate()
                    {
                        lanes.add(lane, grad.wide() * weight.wide(), *x);
                    }
                }
                Factor::All(_) => {
                    for (grad, x) in grad.iter().zip(x) {
                        for lane in 0..LANES {
                            lanes.add(lane, grad[lane].wide(), x[lane]);
                        }
                    }
                    for (lane, (grad, x)) in grad_rest.iter().zip(x_rest).enumerate() {
                        lanes.add(lane, grad.wide(), *x);
                    }
                }
            }
            for (total, lanes) in totals.iter_mut().zip(&lanes.sums) {
                *total += lanes.iter().map(|v| v.to_f64()).sum::<f64>();
            }
        }
        match self.factor {
            Factor::Each(_) => totals,
            Factor::All(factor) => totals.map(|total| total * factor.to_f64()),
        }
    }

    /// The gradient of the input, with the means of the gradients and of their products with x̂.
    #[inline(always)]
    pub(super) fn slopes(&self, means: [f64; 2], out: &mut [T]) {
        let [mean, rstd] = self.moments;
        let [level, slope] = means.map(T::Sum::from_f64);
        let of = |h: T::Sum, x: T| T::rounded(rstd * (h - level - (x.wide() - mean) * rstd * slope));
        let members = out.iter_mut().zip(self.grad).zip(self.x);
        match self.factor {
            Factor::Each(weight) => {
                members
                    .zip(weight)
                    .for_each(|(((out, grad), x), weight)| *out = of(grad.wide() * weight.wide(), *x));
            }
            Factor::All(factor) => {
                members.for_each(|((out, grad), x)| *out = of(grad.wide() * factor, *x));
            }
        }
    }
}
