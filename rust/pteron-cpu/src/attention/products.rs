//! The two products of attention on a block: by register tiles over packed panels, or for a few queries
//! vector by vector on keys and values as they lie. Unsafe island.
#![allow(
    unsafe_code,
    reason = "rows of queries, keys, values and scores are addressed by stride, and chunks share the output"
)]

use super::key_value_panels::strided;
use crate::gemm::tile::prefetch;
use crate::gemm::{Fetch, Tile, TileSet, part};
use crate::packed::f32_nr32_v1::NR;
use pteron_kernels::elementwise::operand::{Source, load_up_to};
use pteron_kernels::vector_math::{Simd, SimdTask};

const CACHE_LINE: usize = 64;

/// C = A·B or C += A·B over packed panels of B.
pub(super) struct TiledProduct {
    pub a: *const f32,
    pub a_stride: usize,
    pub rows: usize,
    /// Length of the sums.
    pub k: usize,
    /// Panels of 32 columns, `panel_stride` apart.
    pub b: *const f32,
    pub panel_stride: usize,
    pub c: *mut f32,
    pub c_stride: usize,
    pub columns: usize,
    /// C is overwritten.
    pub is_first: bool,
}

impl TiledProduct {
    /// # Safety
    /// All pointers are valid for what they stand for, panels have all their 32 columns, C overlaps
    /// neither A nor B, and `tiles` are for this processor.
    pub(super) unsafe fn run(&self, tiles: &TileSet) {
        let parts = self.rows.div_ceil(tiles.max_rows());
        for first in (0..self.columns).step_by(NR) {
            let b = self.b.wrapping_add(first / NR * self.panel_stride);
            let columns = NR.min(self.columns - first);
            for i in 0..parts {
                let rows = part(self.rows, parts, i);
                let Some(variant) = tiles.within_panel(rows.len(), columns, false) else { continue };
                for column in (0..columns).step_by(variant.columns) {
                    let tile = Tile {
                        k: self.k,
                        a: self.a.wrapping_add(rows.start * self.a_stride),
                        a_stride: self.a_stride,
                        b: b.wrapping_add(column),
                        b_stride: NR,
                        b_panel_stride: 0,
                        fetch: Fetch::NEAR,
                        c: self.c.wrapping_add(rows.start * self.c_stride + first + column),
                        c_stride: self.c_stride,
                        columns: columns - column,
                        is_first: self.is_first,
                        is_last: false,
                        bias: std::ptr::null(),
                        residual: std::ptr::null(),
                        residual_stride: 0,
                        clamp: None,
                    };
                    // SAFETY: rows and columns of the tile are inside the matrices, the caller's promise.
                    unsafe { (variant.run)(&tile) };
                }
            }
        }
    }
}

/// Scores of a few queries against keys that lie as rows.
pub(super) struct DirectScores<T> {
    /// Dense rows of `depth` elements.
    pub queries: *const f32,
    pub rows: usize,
    pub keys: *const T,
    pub key_stride: usize,
    pub count: usize,
    pub depth: usize,
    pub scores: *mut f32,
    pub stride: usize,
    /// The values of the keys, which are read next: they are asked for meanwhile.
    pub values: *const T,
    pub value_stride: usize,
    pub width: usize,
}

impl<T: Source> SimdTask for DirectScores<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in 0..self.count {
            for line in (0..self.width).step_by(const { CACHE_LINE / size_of::<T>() }) {
                prefetch(self.values.wrapping_add(i * self.value_stride + line));
            }
            for row in 0..self.rows {
                // SAFETY: query `row` and key `i` have `depth` elements each.
                unsafe {
                    let query = self.queries.add(row * self.depth);
                    let score = dot(s, query, self.keys.add(i * self.key_stride), self.depth);
                    *self.scores.add(row * self.stride + i) = score;
                }
            }
        }
    }
}

/// # Safety
/// `n` elements behind both.
#[inline(always)]
unsafe fn dot<S: Simd, T: Source>(s: S, a: *const f32, b: *const T, n: usize) -> f32 {
    let (mut even, mut odd) = (s.zero(), s.zero());
    let mut i = 0;
    // SAFETY: i + m ≤ n.
    unsafe {
        while i + 2 * S::LANES <= n {
            even = s.fma(s.load(a.add(i)), T::load(s, b.add(i)), even);
            odd = s.fma(s.load(a.add(i + S::LANES)), T::load(s, b.add(i + S::LANES)), odd);
            i += 2 * S::LANES;
        }
        while i < n {
            let m = S::LANES.min(n - i);
            even = s.fma(s.load_up_to(a.add(i), m), load_up_to(s, b.add(i), m), even);
            i += m;
        }
    }
    s.reduce_add(s.add(even, odd))
}

/// Multiplies rows of scores or weights by a factor for each key.
pub(super) struct MultiplyColumns {
    pub scores: *mut f32,
    pub stride: usize,
    pub rows: usize,
    pub keys: usize,
    pub factors: *const f32,
    pub factor_stride: usize,
}

impl SimdTask for MultiplyColumns {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.keys).step_by(S::LANES) {
            let n = S::LANES.min(self.keys - i);
            // SAFETY: each row has `keys` numbers, and there are as many factors.
            unsafe {
                let factors = strided(s, self.factors.add(i * self.factor_stride), self.factor_stride, n);
                for row in 0..self.rows {
                    let to = self.scores.add(row * self.stride + i);
                    s.store_up_to(to, s.mul(s.load_up_to(to, n), factors), n);
                }
            }
        }
    }
}

/// Sums of weighted values for a few queries, values lying as rows.
pub(super) struct DirectSums<T> {
    pub weights: *const f32,
    pub stride: usize,
    pub rows: usize,
    pub values: *const T,
    pub value_stride: usize,
    pub count: usize,
    pub width: usize,
    pub out: *mut f32,
    pub out_stride: usize,
    /// The output is overwritten.
    pub is_first: bool,
}

/// Vectors of a value that are summed side by side.
const SIDE_BY_SIDE: usize = 4;

impl<T: Source> SimdTask for DirectSums<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let wide = SIDE_BY_SIDE * S::LANES;
        for row in 0..self.rows {
            let mut e = 0;
            while e + wide <= self.width {
                // SAFETY: that many elements are left of every value and of the output row.
                unsafe { self.columns::<S, SIDE_BY_SIDE>(s, row, e, wide) };
                e += wide;
            }
            while e < self.width {
                let n = S::LANES.min(self.width - e);
                // SAFETY: `e + n` is at most `width`, and one vector of `n` columns is computed.
                unsafe { self.columns::<S, 1>(s, row, e, n) };
                e += n;
            }
        }
    }
}

impl<T: Source> DirectSums<T> {
    /// `n` elements from `e` on; whole vectors unless `N` is 1.
    ///
    /// # Safety
    /// `e + n ≤ width`, `row < rows`.
    #[inline(always)]
    unsafe fn columns<S: Simd, const N: usize>(&self, s: S, row: usize, e: usize, n: usize) {
        let lanes = n.min(S::LANES);
        // SAFETY: `row` is below `rows` and `e + n` at most `width`, as the caller promises; every row has
        // `stride` weights.
        unsafe {
            let out = self.out.add(row * self.out_stride + e);
            let weights = self.weights.add(row * self.stride);
            let mut even = [s.zero(); N];
            let mut odd = [s.zero(); N];
            if !self.is_first {
                for (v, sum) in even.iter_mut().enumerate() {
                    *sum = s.load_up_to(out.add(v * S::LANES), lanes);
                }
            }
            let mut i = 0;
            while i < self.count {
                let weight = s.splat(*weights.add(i));
                let value = self.values.add(i * self.value_stride + e);
                for (v, sum) in even.iter_mut().enumerate() {
                    *sum = s.fma(weight, load_up_to(s, value.add(v * S::LANES), lanes), *sum);
                }
                if i + 1 < self.count {
                    let weight = s.splat(*weights.add(i + 1));
                    let value = value.add(self.value_stride);
                    for (v, sum) in odd.iter_mut().enumerate() {
                        *sum = s.fma(weight, load_up_to(s, value.add(v * S::LANES), lanes), *sum);
                    }
                }
                i += 2;
            }
            for (v, (a, b)) in even.into_iter().zip(odd).enumerate() {
                s.store_up_to(out.add(v * S::LANES), s.add(a, b), lanes);
            }
        }
    }
}
