//! Sums of a stretch of floats, its mean and its reciprocal standard deviation. Unsafe island (vector loads).

use crate::elementwise::operand::{Source, load_up_to};
use crate::vector_math::Simd;

/// Elements that are summed in f32 before they are added to an f64 total.
const BLOCK: usize = 4096;

/// Σ f(x) in an order fixed by `n` and the instruction set.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
pub(crate) unsafe fn sum_of<S: Simd, A: Source>(
    s: S,
    x: *const A,
    n: usize,
    f: impl Fn(S::F) -> S::F,
) -> f64 {
    let mut total = 0f64;
    let mut start = 0;
    while start < n {
        let end = n.min(start + BLOCK);
        let mut acc = [s.zero(); 4];
        let mut i = start;
        // SAFETY: whole vectors are read where as many elements are left before `end ≤ n`.
        unsafe {
            while i + 4 * S::LANES <= end {
                for (k, a) in acc.iter_mut().enumerate() {
                    *a = s.add(*a, f(A::load(s, x.add(i + k * S::LANES))));
                }
                i += 4 * S::LANES;
            }
            while i + S::LANES <= end {
                acc[0] = s.add(acc[0], f(A::load(s, x.add(i))));
                i += S::LANES;
            }
        }
        let vector = s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3]));
        total += f64::from(s.reduce_add(vector));
        if i < end {
            // Lanes beyond the end hold f(0), which need not be zero: only the first ones count.
            let mut lanes = [0f32; crate::vector_math::simd::MAX_LANES];
            // SAFETY: end - i < LANES elements are read, LANES written.
            unsafe { s.store(lanes.as_mut_ptr(), f(load_up_to(s, x.add(i), end - i))) };
            total += f64::from(lanes[..end - i].iter().sum::<f32>());
        }
        start = end;
    }
    total
}

/// (mean, 1 / sqrt(variance + eps)) with the variance over `n` (not n - 1), in two passes.
///
/// # Safety
/// `n ≥ 1` elements behind `x`.
#[inline(always)]
pub(crate) unsafe fn moments<S: Simd, A: Source>(s: S, x: *const A, n: usize, eps: f64) -> (f32, f32) {
    // SAFETY: `n` elements behind `x`, as this function asks for.
    unsafe {
        let mean = (sum_of(s, x, n, |v| v) / n as f64) as f32;
        let center = s.splat(mean);
        let squares = sum_of(s, x, n, |v| {
            let d = s.sub(v, center);
            s.mul(d, d)
        });
        (mean, (1.0 / (squares / n as f64 + eps).sqrt()) as f32)
    }
}
