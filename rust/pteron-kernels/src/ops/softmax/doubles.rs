//! softmax and log_softmax of float64 along the dimension that is innermost in memory: plain loops that the compiler
//! vectorises. Each row has one summation order, fixed by its length and the instruction set.

use super::Kind;
use crate::reduction::log_sum_exp::{GROUP, largest, padded};
use crate::vector_math::{Simd, SimdTask, double};

/// Rows of `length` elements.
pub struct DoubleRowsTask<'a> {
    pub kind: Kind,
    pub input: &'a [f64],
    pub out: &'a mut [f64],
    /// Elements of a row, at least one.
    pub length: usize,
}

impl SimdTask for DoubleRowsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.input.chunks_exact(self.length).zip(self.out.chunks_exact_mut(self.length));
        for (x, y) in rows {
            let max = largest(x);
            let sum = exponentials(s, x, y, max);
            match self.kind {
                Kind::Softmax => {
                    let factor = 1.0 / sum;
                    y.iter_mut().for_each(|y| *y *= factor);
                }
                Kind::LogSoftmax => {
                    let log = sum.ln();
                    y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - max) - log);
                }
            }
        }
    }
}

/// Σ e^(x - max); the terms go to `y`.
#[inline(always)]
fn exponentials<S: Simd>(s: S, x: &[f64], y: &mut [f64], max: f64) -> f64 {
    let mut sums = [0.0; GROUP];
    let (groups, mut places) = (x.chunks_exact(GROUP), y.chunks_exact_mut(GROUP));
    let rest = padded(groups.remainder());
    for (group, place) in groups.zip(&mut places) {
        for ((sum, x), y) in sums.iter_mut().zip(group).zip(place) {
            *y = double::exp(s, x - max);
            *sum += *y;
        }
    }
    let place = places.into_remainder();
    if !place.is_empty() {
        let terms = rest.map(|x| double::exp(s, x - max));
        sums.iter_mut().zip(&terms).for_each(|(sum, term)| *sum += term);
        place.iter_mut().zip(terms).for_each(|(y, term)| *y = term);
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::{DType, DimOrder, Isa};

    const OUT: usize = 3;

    fn run(
        variant: &str,
        kind: Kind,
        isa: Isa,
        shape: &[usize],
        (dim, order): (i64, &[u8]),
        x: &[f64],
    ) -> Option<Vec<f64>> {
        let operator = if kind == Kind::Softmax { "aten::_softmax.out" } else { "aten::_log_softmax.out" };
        let order = DimOrder::new(order).unwrap();
        let args = vec![
            CallArg::Tensor(HostTensor::in_order(shape, order, x).unwrap()),
            CallArg::int(dim),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::zeros_in_order(DType::Float64, shape, order).unwrap()),
        ];
        let mut call = SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        Some(call.output::<f64>(OUT).unwrap())
    }

    #[test]
    fn rows_are_near_those_of_the_plain_kernel() {
        for (rows, n) in [(1, 1), (3, 5), (2, 16), (700, 33), (4, 128), (2, 5001), (0, 4), (4, 0)] {
            // Small numbers, of which every one counts, and large ones.
            let scale = if n % 2 == 1 { 1.0 } else { 100.0 };
            let mut x: Vec<f64> = numbers(rows * n, 5).iter().map(|v| f64::from(*v) * scale).collect();
            if rows == 4 && n > 0 {
                // NaN; infinity; infinities of the other sign among numbers; nothing else.
                x[7] = f64::NAN;
                x[n + 9] = f64::INFINITY;
                x[2 * n..2 * n + 100].fill(f64::NEG_INFINITY);
                x[3 * n..4 * n].fill(f64::NEG_INFINITY);
            }
            for (kind, turned) in
                [Kind::Softmax, Kind::LogSoftmax].into_iter().flat_map(|k| [(k, false), (k, true)])
            {
                let (shape, along) = match turned {
                    false => ([rows, n], (-1, &[0, 1][..])),
                    true => ([n, rows], (0, &[1, 0][..])),
                };
                let want = run("reference", kind, Isa::Portable, &shape, along, &x).unwrap();
                for isa in Isa::ALL {
                    let Some(got) = run("float", kind, isa, &shape, along, &x) else { continue };
                    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                        // Powers are within some units each; so is the logarithm of their sum, of what is at least 1.
                        let size = if kind == Kind::Softmax { want.abs() } else { want.abs().max(1.0) };
                        let is_near = (got - want).abs() <= 8.0 * f64::EPSILON * size + 5e-324;
                        let is_same = got == want || (got.is_nan() && want.is_nan());
                        assert!(is_near || is_same, "{isa:?} {kind:?} {rows} {n} {i}: {got:e} {want:e}");
                    }
                }
            }
        }
    }
}
