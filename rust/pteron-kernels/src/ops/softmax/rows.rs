//! softmax and log_softmax of rows: stretches along the dimension that is innermost in memory. Each row has one
//! summation order, fixed by its length and the instruction set. Unsafe island (vector loads).

use super::Kind;
use crate::vector_math::exp::exp;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdTask};

/// Rows of `length` elements.
pub struct RowsTask<'a> {
    pub kind: Kind,
    /// The rows; `out` holds them when absent.
    pub input: Option<&'a [f32]>,
    pub out: &'a mut [f32],
    pub length: usize,
}

impl SimdTask for RowsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.length;
        for (row, y) in self.out.chunks_exact_mut(n).enumerate() {
            let y = y.as_mut_ptr();
            let x = match self.input {
                Some(input) => input[row * n..(row + 1) * n].as_ptr(),
                None => y.cast_const(),
            };
            // SAFETY: `x` and `y` are the start of `n` elements, by the slices they were taken from; where they are the
            // same, every vector is read before it is written.
            unsafe {
                let max = row_max(s, x, n);
                match self.kind {
                    Kind::Softmax => {
                        let sum = exp_sum::<S, true>(s, x, y, n, max);
                        scale(s, y, n, 1.0 / sum);
                    }
                    Kind::LogSoftmax => {
                        let sum = exp_sum::<S, false>(s, x, y, n, max);
                        shift(s, x, y, n, max, sum.ln());
                    }
                }
            }
        }
    }
}

/// The elements from `i` on, fewer than `LANES`, followed by -inf: neutral for max and for sums of
/// exponentials.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn tail<S: Simd>(s: S, x: *const f32, n: usize) -> S::F {
    let mut block = [f32::NEG_INFINITY; MAX_LANES];
    // SAFETY: n < LANES ≤ MAX_LANES.
    unsafe {
        std::ptr::copy_nonoverlapping(x, block.as_mut_ptr(), n);
        s.load(block.as_ptr())
    }
}

/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
unsafe fn row_max<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    let mut max = s.splat(f32::NEG_INFINITY);
    let mut i = 0;
    // SAFETY: i + LANES ≤ n.
    unsafe {
        while i + S::LANES <= n {
            max = s.max(max, s.load(x.add(i)));
            i += S::LANES;
        }
        if i < n {
            max = s.max(max, tail(s, x.add(i), n - i));
        }
    }
    s.reduce_max(max)
}

/// Σ e^(x - max); the terms go to `y` when `STORE`.
///
/// # Safety
/// `n` elements behind `x` and `y`.
#[inline(always)]
unsafe fn exp_sum<S: Simd, const STORE: bool>(s: S, x: *const f32, y: *mut f32, n: usize, max: f32) -> f32 {
    let shift = s.splat(max);
    let (mut even, mut odd) = (s.zero(), s.zero());
    let mut i = 0;
    // SAFETY: i + LANES ≤ n in the loops, the tail touches n - i elements.
    unsafe {
        while i + 2 * S::LANES <= n {
            let a = exp(s, s.sub(s.load(x.add(i)), shift));
            let b = exp(s, s.sub(s.load(x.add(i + S::LANES)), shift));
            if STORE {
                s.store(y.add(i), a);
                s.store(y.add(i + S::LANES), b);
            }
            even = s.add(even, a);
            odd = s.add(odd, b);
            i += 2 * S::LANES;
        }
        while i < n {
            let m = S::LANES.min(n - i);
            let v = if m == S::LANES { s.load(x.add(i)) } else { tail(s, x.add(i), m) };
            let a = exp(s, s.sub(v, shift));
            if STORE {
                s.store_up_to(y.add(i), a, m);
            }
            even = s.add(even, a);
            i += m;
        }
    }
    s.reduce_add(s.add(even, odd))
}

/// # Safety
/// `n` elements behind `y`.
#[inline(always)]
unsafe fn scale<S: Simd>(s: S, y: *mut f32, n: usize, factor: f32) {
    let factor = s.splat(factor);
    let mut i = 0;
    while i < n {
        let m = S::LANES.min(n - i);
        // SAFETY: i + m ≤ n.
        unsafe { s.store_up_to(y.add(i), s.mul(s.load_up_to(y.add(i), m), factor), m) };
        i += m;
    }
}

/// y = (x - max) - log_sum.
///
/// # Safety
/// `n` elements behind `x` and `y`.
#[inline(always)]
unsafe fn shift<S: Simd>(s: S, x: *const f32, y: *mut f32, n: usize, max: f32, log_sum: f32) {
    let (max, log_sum) = (s.splat(max), s.splat(log_sum));
    let mut i = 0;
    while i < n {
        let m = S::LANES.min(n - i);
        // SAFETY: i + m ≤ n.
        unsafe { s.store_up_to(y.add(i), s.sub(s.sub(s.load_up_to(x.add(i), m), max), log_sum), m) };
        i += m;
    }
}
