//! From scores to weights: one block of keys of an online softmax. Unsafe island.
//!
//! Per row the largest score so far and the sum of e^(score - largest) are kept; when a block raises the
//! largest, what was accumulated is scaled down. With one block this is the plain softmax.
//!
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
//! "FlashAttention" (2022).
#![allow(
    unsafe_code,
    reason = "rows of queries, keys, values and scores are addressed by stride, and chunks share the output"
)]

use pteron_kernels::elementwise::operand::{Source, load_up_to};
use pteron_kernels::vector_math::exp::{exp, exp_normal};
use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdTask};

/// What is added to the scores of a block; pointers to the entry of its first row and key.
#[derive(Clone, Copy)]
pub(super) enum BlockMask {
    None,
    /// f32; strides from row to row, and from key to key (0 or 1).
    Added(*const f32, usize, usize),
    /// Likewise, in 16 bits.
    AddedBrain(*const half::bf16, usize, usize),
    AddedBinary(*const half::f16, usize, usize),
    /// bool, false: -inf is added; strides likewise.
    Kept(*const u8, usize, usize),
}

impl BlockMask {
    /// Those of every `step`-th row.
    pub(super) fn with_rows_apart(self, step: usize) -> BlockMask {
        match self {
            BlockMask::None => BlockMask::None,
            BlockMask::Added(mask, by_row, by_key) => BlockMask::Added(mask, by_row * step, by_key),
            BlockMask::AddedBrain(mask, by_row, by_key) => BlockMask::AddedBrain(mask, by_row * step, by_key),
            BlockMask::AddedBinary(mask, by_row, by_key) => {
                BlockMask::AddedBinary(mask, by_row * step, by_key)
            }
            BlockMask::Kept(mask, by_row, by_key) => BlockMask::Kept(mask, by_row * step, by_key),
        }
    }
}

/// A block of scores, turned in place into weights. Rows of `scores` have room up to the next multiple of
/// 16 keys.
pub(super) struct ScoreBlock {
    pub scores: *mut f32,
    pub stride: usize,
    pub rows: usize,
    pub keys: usize,
    pub mask: BlockMask,
    /// Keys of this block that row 0 sees; each following row sees one more. `None`: all.
    pub limit: Option<usize>,
    /// Nothing was accumulated yet.
    pub is_first: bool,
    /// Per row; read unless `is_first`.
    pub largest: *mut f32,
    pub sum: *mut f32,
    /// How far apart those of two rows are.
    pub slot_step: usize,
    /// Accumulated rows of `width` elements, scaled when the largest score rises.
    pub out: *mut f32,
    pub out_stride: usize,
    pub width: usize,
}

impl SimdTask for ScoreBlock {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.rows {
            // SAFETY: the rows named by the fields are there.
            unsafe { self.row(s, row) }
        }
    }
}

impl ScoreBlock {
    /// # Safety
    /// `row < self.rows`; every pointer is valid for what its field says.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, row: usize) {
        let visible = self.limit.map_or(self.keys, |limit| self.keys.min(limit + row));
        let padded = visible.next_multiple_of(S::LANES);
        // SAFETY: rows have room up to a multiple of 16, which is one of LANES.
        unsafe {
            let x = self.scores.add(row * self.stride);
            if visible < padded {
                hide_tail(s, x.add(padded - S::LANES), visible + S::LANES - padded);
            }
            let largest_here = masked_max(s, self.mask, row, x, visible);
            let slot = row * self.slot_step;
            let before = if self.is_first { f32::NEG_INFINITY } else { *self.largest.add(slot) };
            let largest = before.max(largest_here);
            // All -inf so far: any finite shift gives weights of zero instead of NaN.
            let shift = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
            let mut sum = exponentials(s, x, padded, shift);
            for i in padded..self.keys {
                *x.add(i) = 0.0;
            }
            if !self.is_first {
                let mut factor = 1.0;
                if before != largest {
                    factor = s.reduce_max(exp(s, s.splat(before - shift)));
                    scale(s, self.out.add(row * self.out_stride), self.width, factor);
                }
                sum += factor * *self.sum.add(slot);
            }
            *self.largest.add(slot) = largest;
            *self.sum.add(slot) = sum;
        }
    }
}

/// Adds a mask to scores.
pub(super) struct AddMask {
    /// Rows with room for whole vectors.
    pub scores: *mut f32,
    pub stride: usize,
    pub rows: usize,
    pub keys: usize,
    pub mask: BlockMask,
}

impl SimdTask for AddMask {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.rows {
            // SAFETY: each row has scores and mask entries of `keys` keys, and room for whole vectors of scores.
            unsafe { masked_max(s, self.mask, row, self.scores.add(row * self.stride), self.keys) };
        }
    }
}

/// Adds the mask to the first `n` scores and returns the largest.
///
/// # Safety
/// There are mask entries of the row and the first `n` keys, and whole vectors of scores behind `x`.
#[inline(always)]
unsafe fn masked_max<S: Simd>(s: S, mask: BlockMask, row: usize, x: *mut f32, n: usize) -> f32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut max = lowest;
    // SAFETY: the caller promises entries and vectors.
    unsafe {
        match mask {
            BlockMask::None => {
                for i in (0..n).step_by(S::LANES) {
                    max = s.max(max, s.load(x.add(i)));
                }
            }
            BlockMask::Added(mask, by_row, by_key) => {
                max = add_mask(s, (mask.add(row * by_row), by_key), x, n);
            }
            BlockMask::AddedBrain(mask, by_row, by_key) => {
                max = add_mask(s, (mask.add(row * by_row), by_key), x, n);
            }
            BlockMask::AddedBinary(mask, by_row, by_key) => {
                max = add_mask(s, (mask.add(row * by_row), by_key), x, n);
            }
            BlockMask::Kept(mask, by_row, by_key) => {
                let mask = mask.add(row * by_row);
                let all = n > 0 && by_key == 0 && *mask != 0;
                for i in (0..n).step_by(S::LANES) {
                    let lanes = S::LANES.min(n - i);
                    let more = match by_key {
                        0 if all => s.zero(),
                        0 => lowest,
                        _ => s.select(s.load_bools(mask.add(i), lanes), s.zero(), lowest),
                    };
                    let v = s.add(s.load(x.add(i)), more);
                    s.store(x.add(i), v);
                    max = s.max(max, v);
                }
            }
        }
    }
    s.reduce_max(max)
}

/// Adds one row of a mask, `by_key` from key to key (0 or 1), to `n` scores; the largest, by lanes.
///
/// # Safety
/// The row has `n` keys, or one where `by_key` is 0; `x` has whole vectors.
#[inline(always)]
unsafe fn add_mask<S: Simd, M: Source>(
    s: S,
    (mask, by_key): (*const M, usize),
    x: *mut f32,
    n: usize,
) -> S::F {
    let mut max = s.splat(f32::NEG_INFINITY);
    // SAFETY: the caller promises the keys of the mask and the scores.
    unsafe {
        if by_key == 0 {
            let more = s.splat(if n > 0 { (*mask).number() } else { 0.0 });
            for i in (0..n).step_by(S::LANES) {
                let v = s.add(s.load(x.add(i)), more);
                s.store_up_to(x.add(i), v, n - i);
                max = s.max(max, s.load(x.add(i)));
            }
            return max;
        }
        for i in (0..n).step_by(S::LANES) {
            // Lanes beyond `n` stay -inf: zero is added to them.
            let v = s.add(s.load(x.add(i)), load_up_to(s, mask.add(i), n - i));
            s.store(x.add(i), v);
            max = s.max(max, v);
        }
    }
    max
}

/// Numbers of the lanes.
static LANE: [f32; MAX_LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Makes the elements of a vector from `n` on -inf: neutral for the maximum and for sums of exponentials.
///
/// # Safety
/// LANES elements behind `x`.
#[inline(always)]
unsafe fn hide_tail<S: Simd>(s: S, x: *mut f32, n: usize) {
    // SAFETY: LANES ≤ MAX_LANES.
    unsafe {
        let is_there = s.lt(s.load(LANE.as_ptr()), s.splat(n as f32));
        s.store(x, s.select(is_there, s.load(x), s.splat(f32::NEG_INFINITY)));
    }
}

/// Weights below e^-87 are zero: what they would add is lost in rounding beside the largest, which is 1, and
/// numbers below 2^-126 slow every operation on them down a hundred times.
const SMALLEST: f32 = -87.0;

/// e^x for x ≤ 0; NaN stays NaN.
#[inline(always)]
fn weight<S: Simd>(s: S, x: S::F) -> S::F {
    let smallest = s.splat(SMALLEST);
    s.select(s.lt(x, smallest), s.zero(), exp_normal(s, s.max(smallest, x)))
}

/// x becomes e^(x - shift); returns the sum.
///
/// # Safety
/// `n` elements behind `x`, a multiple of LANES.
#[inline(always)]
unsafe fn exponentials<S: Simd>(s: S, x: *mut f32, n: usize, shift: f32) -> f32 {
    let shift = s.splat(shift);
    let (mut even, mut odd) = (s.zero(), s.zero());
    let mut i = 0;
    // SAFETY: i + LANES ≤ n.
    unsafe {
        while i + 2 * S::LANES <= n {
            let a = weight(s, s.sub(s.load(x.add(i)), shift));
            let b = weight(s, s.sub(s.load(x.add(i + S::LANES)), shift));
            s.store(x.add(i), a);
            s.store(x.add(i + S::LANES), b);
            even = s.add(even, a);
            odd = s.add(odd, b);
            i += 2 * S::LANES;
        }
        if i < n {
            let a = weight(s, s.sub(s.load(x.add(i)), shift));
            s.store(x.add(i), a);
            even = s.add(even, a);
        }
    }
    s.reduce_add(s.add(even, odd))
}

/// `n` elements times `factor`.
///
/// # Safety
/// `n` elements behind `x`.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(s: S, x: *mut f32, n: usize, factor: f32) {
    let factor = s.splat(factor);
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: the first n - i elements, at most LANES of them.
        unsafe { s.store_up_to(x.add(i), s.mul(s.load_up_to(x.add(i), n - i), factor), n - i) };
    }
}

/// Divides accumulated rows by their sums.
pub(super) struct Normalise {
    pub out: *mut f32,
    pub out_stride: usize,
    pub width: usize,
    pub rows: usize,
    pub sum: *const f32,
    /// Rows that saw nothing stay zero instead of becoming NaN.
    pub keep_zero: bool,
}

impl SimdTask for Normalise {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.rows {
            // SAFETY: `rows` rows of `width` elements and as many sums.
            unsafe {
                let sum = *self.sum.add(row);
                // The sum is at least 1 where any score is above -inf.
                let factor = if sum == 0.0 && self.keep_zero { 1.0 } else { 1.0 / sum };
                scale(s, self.out.add(row * self.out_stride), self.width, factor);
            }
        }
    }
}
