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
use pteron_kernels::vector_math::simd::MAX_LANES;
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
        let vectors = if self.depth.is_multiple_of(S::LANES) { self.depth / S::LANES } else { 0 };
        for i in 0..self.count {
            for line in (0..self.width).step_by(const { CACHE_LINE / size_of::<T>() }) {
                prefetch(self.values.wrapping_add(i * self.value_stride + line));
            }
            // SAFETY: key `i` is one of `count`, of `depth` elements: so many vectors.
            unsafe {
                match vectors {
                    2 => self.key::<S, 2>(s, i),
                    4 => self.key::<S, 4>(s, i),
                    8 => self.key::<S, 8>(s, i),
                    _ => self.any_key(s, i),
                }
            }
        }
    }
}

impl<T: Source> DirectScores<T> {
    /// Scores of a key of `N` vectors, which is read once for all queries: the same sums as in [`dot`].
    ///
    /// # Safety
    /// `i < count`; the depth is that of `N` vectors, an even number.
    #[inline(always)]
    unsafe fn key<S: Simd, const N: usize>(&self, s: S, i: usize) {
        let mut key = [s.zero(); N];
        // SAFETY: the key and all queries have `N` vectors, and there is a score for each query.
        unsafe {
            for (v, key) in key.iter_mut().enumerate() {
                *key = T::load(s, self.keys.add(i * self.key_stride + v * S::LANES));
            }
            for row in 0..self.rows {
                let query = self.queries.add(row * self.depth);
                let mut sums = [s.zero(); 2];
                for (v, key) in key.iter().enumerate() {
                    sums[v % 2] = s.fma(s.load(query.add(v * S::LANES)), *key, sums[v % 2]);
                }
                *self.scores.add(row * self.stride + i) = s.reduce_add(s.add(sums[0], sums[1]));
            }
        }
    }

    /// The same for any depth.
    ///
    /// # Safety
    /// `i < count`.
    #[inline(always)]
    unsafe fn any_key<S: Simd>(&self, s: S, i: usize) {
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

/// Rows that read a value together.
const TOGETHER: usize = 3;

impl<T: Source> SimdTask for DirectSums<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in (0..self.rows).step_by(TOGETHER) {
            // SAFETY: so many rows follow `row`.
            unsafe {
                match self.rows - row {
                    1 => self.rows::<S, 1>(s, row),
                    2 => self.rows::<S, 2>(s, row),
                    _ => self.rows::<S, TOGETHER>(s, row),
                }
            }
        }
    }
}

impl<T: Source> DirectSums<T> {
    /// All elements of `R` rows from `row` on. Sums of three rows take two registers for each vector of them: four vectors of 32
    /// registers, two of 16.
    ///
    /// # Safety
    /// `row + R ≤ rows`.
    #[inline(always)]
    unsafe fn rows<S: Simd, const R: usize>(&self, s: S, row: usize) {
        let vectors = if S::LANES == MAX_LANES { 4 } else { 2 };
        let wide = vectors * S::LANES;
        let mut e = 0;
        // SAFETY: that many elements are left of every value and of the output rows.
        unsafe {
            while e + wide <= self.width {
                match vectors {
                    4 => self.columns::<S, R, 4>(s, row, e, wide),
                    _ => self.columns::<S, R, 2>(s, row, e, wide),
                }
                e += wide;
            }
            while e < self.width {
                let n = S::LANES.min(self.width - e);
                self.columns::<S, R, 1>(s, row, e, n);
                e += n;
            }
        }
    }

    /// `n` elements from `e` on of `R` rows; whole vectors unless `N` is 1.
    ///
    /// # Safety
    /// `e + n ≤ width`, `row + R ≤ rows`.
    #[inline(always)]
    unsafe fn columns<S: Simd, const R: usize, const N: usize>(&self, s: S, row: usize, e: usize, n: usize) {
        let lanes = n.min(S::LANES);
        // SAFETY: the rows are below `rows` and `e + n` at most `width`, as the caller promises; every row has
        // `stride` weights.
        unsafe {
            let out = self.out.add(row * self.out_stride + e);
            let weights = self.weights.add(row * self.stride);
            // Of keys with even and with odd numbers.
            let mut sums = [[[s.zero(); N]; R]; 2];
            if !self.is_first {
                for (r, sums) in sums[0].iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = s.load_up_to(out.add(r * self.out_stride + v * S::LANES), lanes);
                    }
                }
            }
            let mut i = 0;
            while i + 1 < self.count {
                self.add::<S, R, N>(s, weights.add(i), i, e, lanes, &mut sums[0]);
                self.add::<S, R, N>(s, weights.add(i + 1), i + 1, e, lanes, &mut sums[1]);
                i += 2;
            }
            if i < self.count {
                self.add::<S, R, N>(s, weights.add(i), i, e, lanes, &mut sums[0]);
            }
            for (r, (even, odd)) in sums[0].iter().zip(&sums[1]).enumerate() {
                for (v, (a, b)) in even.iter().zip(odd).enumerate() {
                    s.store_up_to(out.add(r * self.out_stride + v * S::LANES), s.add(*a, *b), lanes);
                }
            }
        }
    }

    /// Adds value `i` times the weight that each row has for it.
    ///
    /// # Safety
    /// As [`DirectSums::columns`]; `weight` points to that of the first row.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const N: usize>(
        &self,
        s: S,
        weight: *const f32,
        i: usize,
        e: usize,
        lanes: usize,
        sums: &mut [[S::F; N]; R],
    ) {
        // SAFETY: value `i` has `width` elements; each row has a weight, `stride` from that of the row before.
        unsafe {
            let value = self.values.add(i * self.value_stride + e);
            let mut part = [s.zero(); N];
            for (v, part) in part.iter_mut().enumerate() {
                *part = load_up_to(s, value.add(v * S::LANES), lanes);
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let weight = s.splat(*weight.add(r * self.stride));
                for (sum, part) in sums.iter_mut().zip(&part) {
                    *sum = s.fma(weight, *part, *sum);
                }
            }
        }
    }
}
