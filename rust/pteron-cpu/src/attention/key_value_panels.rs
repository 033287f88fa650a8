//! A block of keys and values of one head as panels of 32 columns, the way tiles read them. Unsafe island.
#![allow(
    unsafe_code,
    reason = "rows of queries, keys, values and scores are addressed by stride, and chunks share the output"
)]

use crate::gemm::tile::prefetch;
use crate::packed::f32_nr32_v1::NR;
use crate::packed::pack_block;
use pteron_kernels::elementwise::operand::{Source, load_up_to};
use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};

/// Packs `keys` rows of `depth` elements transposed: panel p holds keys 32p.., row d of it element d.
/// Columns of missing keys keep what was there.
///
/// # Safety
/// Key `i`, element `d` is readable at `from + i * row + d * element`; `to` has room for
/// `keys.next_multiple_of(32) * depth` elements and overlaps no key.
pub(super) unsafe fn pack_keys(
    level: SimdLevel,
    from: *const f32,
    (row, element): (usize, usize),
    keys: usize,
    depth: usize,
    to: *mut f32,
) {
    for first in (0..keys).step_by(NR) {
        let columns = NR.min(keys - first);
        if element == 1 {
            for next in first + NR..keys.min(first + 2 * NR) {
                prefetch_row(from.wrapping_add(next * row), depth);
            }
        }
        // SAFETY: the panel's keys are there by contract, and so is room for the panel.
        unsafe {
            let (from, to) = (from.add(first * row), to.add(first * depth));
            if element == 1 {
                level.dispatch(TransposePanel { from, row, columns, depth, to });
            } else {
                pack_block(level.isa(), from, (element, row), depth, columns, to);
            }
        }
    }
}

/// Packs `keys` rows of `width` elements: panel p holds elements 32p.., row i of it key i. Missing
/// elements of the last panel become zero.
///
/// # Safety
/// As [`pack_keys`]; `to` has room for `width.next_multiple_of(32) * keys` elements.
pub(super) unsafe fn pack_values(
    level: SimdLevel,
    from: *const f32,
    (row, element): (usize, usize),
    keys: usize,
    width: usize,
    to: *mut f32,
) {
    for first in (0..width).step_by(NR) {
        let columns = NR.min(width - first);
        // SAFETY: columns `first..first + columns` are below `width` and the panel has `keys` rows of NR, as
        // the caller promises.
        unsafe {
            let from = from.add(first * element);
            pack_block(level.isa(), from, (row, element), keys, columns, to.add(first * keys));
        }
    }
}

/// Asks for the lines of `n` elements. Rows of a head are far apart, the processor does not see them come.
pub(super) fn prefetch_row(row: *const f32, n: usize) {
    const LINE: usize = 16;
    for line in (0..n).step_by(LINE) {
        prefetch(row.wrapping_add(line));
    }
}

/// At most 32 rows of `depth` neighbours, transposed.
struct TransposePanel {
    from: *const f32,
    row: usize,
    columns: usize,
    depth: usize,
    to: *mut f32,
}

impl SimdTask for TransposePanel {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for column in (0..self.columns).step_by(S::LANES) {
            let columns = S::LANES.min(self.columns - column);
            for d in (0..self.depth).step_by(S::LANES) {
                let depth = S::LANES.min(self.depth - d);
                // SAFETY: the block is inside the rows and the panel.
                unsafe {
                    let from = self.from.add(column * self.row + d);
                    let to = self.to.add(d * NR + column);
                    s.transpose_block(from, self.row, columns, depth, to, NR);
                }
            }
        }
    }
}

/// Copies `rows` queries of `depth` elements, multiplied by `factor`, densely.
pub(super) struct ScaleQueries<T> {
    pub from: *const T,
    pub row: usize,
    pub element: usize,
    pub rows: usize,
    pub depth: usize,
    pub factor: f32,
    pub to: *mut f32,
}

impl<T: Source> SimdTask for ScaleQueries<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = s.splat(self.factor);
        for r in 0..self.rows {
            for d in (0..self.depth).step_by(S::LANES) {
                let n = S::LANES.min(self.depth - d);
                // SAFETY: `n` elements of a row that exists, and room for them.
                unsafe {
                    let x = strided(s, self.from.add(r * self.row + d * self.element), self.element, n);
                    s.store_up_to(self.to.add(r * self.depth + d), s.mul(x, factor), n);
                }
            }
        }
    }
}

/// Copies `rows` rows of `n` elements as f32, densely.
pub(super) struct WidenRows<T> {
    pub from: *const T,
    pub row: usize,
    pub element: usize,
    pub rows: usize,
    pub n: usize,
    pub to: *mut f32,
}

impl<T: Source> SimdTask for WidenRows<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for r in 0..self.rows {
            for d in (0..self.n).step_by(S::LANES) {
                let n = S::LANES.min(self.n - d);
                // SAFETY: `n` elements of a row that exists, and room for them.
                unsafe {
                    let x = strided(s, self.from.add(r * self.row + d * self.element), self.element, n);
                    s.store_up_to(self.to.add(r * self.n + d), x, n);
                }
            }
        }
    }
}

/// `n` elements, `stride` apart.
///
/// # Safety
/// They are readable.
#[inline(always)]
pub(super) unsafe fn strided<S: Simd, T: Source>(s: S, from: *const T, stride: usize, n: usize) -> S::F {
    // SAFETY: the caller promises the elements, and no others are touched; the block has every lane.
    unsafe {
        if stride == 1 || n <= 1 {
            return load_up_to(s, from, n);
        }
        if T::IS_F32 {
            return s.load_strided(from.cast(), stride, n);
        }
        let mut block = [0f32; MAX_LANES];
        for (i, slot) in block.iter_mut().enumerate().take(n) {
            *slot = (*from.add(i * stride)).number();
        }
        s.load(block.as_ptr())
    }
}
