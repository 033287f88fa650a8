//! Up to four rows times a quantised weight: every packed byte is read once, becomes f32 in registers and is multiplied
//! with its element of each row. Unsafe island.
//!
//! *Order.* A column's products are summed over the k of a group, at most [`SEGMENT`] of them, in several sums by the remainder
//! of k; these are added, multiplied with the scale and added to the sums before them. The number of sums depends on the
//! number of rows and the instruction set.
#![allow(unsafe_code, reason = "panels and rows are addressed, and chunks share the result")]

use super::panels::Width;
use super::weights::{PanelAt, Weights};
use crate::gemm::FewRows;
use crate::gemm::tile::prefetch;
use crate::packed::f32_nr32_v1::NR;
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

/// Bytes of a panel that are fetched ahead: it comes from memory.
const AHEAD: usize = 2048;
/// Longest run of k that is summed before it is scaled; even.
const SEGMENT: usize = 256;

pub(super) struct FewRowsTask<'a> {
    pub weights: &'a Weights,
    pub rows: &'a FewRows,
    pub panels: Range<usize>,
}

impl SimdTask for FewRowsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Sums of a step: enough for the latency of their instruction, no more than there are registers for.
        let at_once = if S::LANES < 16 { 2 } else { 4 };
        for p in self.panels.clone() {
            let mut row = 0;
            while row < self.rows.m {
                let rows = (self.rows.m - row).min(at_once);
                // SAFETY: the panel and the rows exist, which the caller of `PanelSource::multiply_few` promises.
                unsafe {
                    match (S::LANES, rows) {
                        (16, 1) => self.of_width::<S, 1, 4, 2>(s, p, row),
                        (16, 2) => self.of_width::<S, 2, 2, 2>(s, p, row),
                        (16, 3) => self.of_width::<S, 3, 2, 2>(s, p, row),
                        (16, _) => self.of_width::<S, 4, 2, 2>(s, p, row),
                        (_, 1) => self.of_width::<S, 1, 2, 4>(s, p, row),
                        _ => self.of_width::<S, 2, 1, 4>(s, p, row),
                    }
                }
                row += rows;
            }
        }
    }
}

impl FewRowsTask<'_> {
    /// `R` rows from `row` on times panel `p`, in `U` sums of `W` vectors each.
    ///
    /// # Safety
    /// Rows and panel exist; `W` vectors are 32 columns.
    #[inline(always)]
    unsafe fn of_width<S: Simd, const R: usize, const U: usize, const W: usize>(
        &self,
        s: S,
        p: usize,
        row: usize,
    ) {
        let has_zeros = self.weights.zeros.is_some();
        // SAFETY: the caller promises that the rows and the panel exist.
        unsafe {
            match (self.weights.width, has_zeros) {
                (Width::Byte, false) => self.panel::<S, R, U, W, false, false>(s, p, row),
                (Width::Byte, true) => self.panel::<S, R, U, W, false, true>(s, p, row),
                (Width::Nibble, false) => self.panel::<S, R, U, W, true, false>(s, p, row),
                (Width::Nibble, true) => self.panel::<S, R, U, W, true, true>(s, p, row),
            }
        }
    }

    /// As [`FewRowsTask::of_width`], for nibbles or bytes, with zero points or without.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn panel<
        S: Simd,
        const R: usize,
        const U: usize,
        const W: usize,
        const NIBBLES: bool,
        const ZEROS: bool,
    >(
        &self,
        s: S,
        p: usize,
        row: usize,
    ) {
        let Weights { k, n, group, .. } = *self.weights;
        let at = self.weights.panel(p);
        let a = self.rows.a.wrapping_add(row * self.rows.a_stride);
        let mut total = [[s.zero(); W]; R];
        for (g, first) in (0..k).step_by(group).enumerate() {
            let (mut scale, mut zero) = ([s.zero(); W], [s.zero(); W]);
            for w in 0..W {
                // SAFETY: 32 values for each group of the panel.
                unsafe {
                    scale[w] = s.load(at.scales.add(g * NR + w * S::LANES));
                    if ZEROS {
                        zero[w] = s.load(at.zeros.add(g * NR + w * S::LANES));
                    }
                }
            }
            let end = k.min(first + group);
            for start in (first..end).step_by(SEGMENT) {
                let sums = Segment { s, at, a, a_stride: self.rows.a_stride, zero };
                // SAFETY: these k exist, in the panel and in the rows.
                let sums = unsafe { sums.sum::<R, U, NIBBLES, ZEROS>(start..end.min(start + SEGMENT)) };
                for (total, sums) in total.iter_mut().zip(sums) {
                    for w in 0..W {
                        total[w] = s.fma(scale[w], sums[w], total[w]);
                    }
                }
            }
        }
        let columns = n - p * NR;
        for (r, total) in total.iter().enumerate() {
            let c = self.rows.c.wrapping_add((row + r) * self.rows.c_stride + p * NR);
            for (w, sum) in total.iter().enumerate() {
                let first = w * S::LANES;
                if first < columns {
                    // SAFETY: these columns of the row exist and are this chunk's.
                    unsafe { s.store_up_to(c.add(first), *sum, columns - first) };
                }
            }
        }
    }
}

/// Some k of a group.
struct Segment<S: Simd, const W: usize> {
    s: S,
    at: PanelAt,
    /// The first row, at k = 0.
    a: *const f32,
    a_stride: usize,
    zero: [S::F; W],
}

impl<S: Simd, const W: usize> Segment<S, W> {
    /// The sums over `k` of what each row has times what the panel has without its scale.
    ///
    /// # Safety
    /// Rows of A and of the panel have these k; `k` begins at an even number for nibbles.
    #[inline(always)]
    unsafe fn sum<const R: usize, const U: usize, const NIBBLES: bool, const ZEROS: bool>(
        &self,
        k: Range<usize>,
    ) -> [[S::F; W]; R] {
        let s = self.s;
        let mut sums = [[[s.zero(); W]; R]; U];
        let mut at = k.start;
        // SAFETY: every step is inside `k`, the caller's promise.
        unsafe {
            if NIBBLES {
                let pairs = const { if U < 2 { 1 } else { U / 2 } };
                while at + 2 * pairs <= k.end {
                    prefetch(self.at.quantised.wrapping_add(at / 2 * NR + AHEAD));
                    for i in 0..pairs {
                        self.pair::<R, U, ZEROS>(at + 2 * i, i, &mut sums);
                    }
                    at += 2 * pairs;
                }
                while at + 2 <= k.end {
                    self.pair::<R, U, ZEROS>(at, 0, &mut sums);
                    at += 2;
                }
                if at < k.end {
                    for w in 0..W {
                        let (low, _) = self.nibbles::<ZEROS>(at, w);
                        self.add::<R>(at, w, low, &mut sums[0]);
                    }
                }
            } else {
                while at + U <= k.end {
                    for line in (0..U * NR).step_by(64) {
                        prefetch(self.at.quantised.wrapping_add(at * NR + AHEAD + line));
                    }
                    for (u, sums) in sums.iter_mut().enumerate() {
                        self.byte_row::<R, ZEROS>(at + u, sums);
                    }
                    at += U;
                }
                while at < k.end {
                    self.byte_row::<R, ZEROS>(at, &mut sums[0]);
                    at += 1;
                }
            }
        }
        let mut all = sums[0];
        for more in &sums[1..] {
            for (all, more) in all.iter_mut().zip(more) {
                for w in 0..W {
                    all[w] = s.add(all[w], more[w]);
                }
            }
        }
        all
    }

    /// # Safety
    /// As [`Segment::sum`], of row `k`.
    #[inline(always)]
    unsafe fn byte_row<const R: usize, const ZEROS: bool>(&self, k: usize, sums: &mut [[S::F; W]; R]) {
        for w in 0..W {
            // SAFETY: row `k` of the panel, the caller's promise.
            unsafe {
                let bytes = self.s.load_i8(self.at.quantised.add(k * NR + w * S::LANES));
                let x = self.without_zero::<ZEROS>(w, self.s.to_float(bytes));
                self.add::<R>(k, w, x, sums);
            }
        }
    }

    /// Rows `k`, which is even, and `k + 1`; `i` says into which sums.
    ///
    /// # Safety
    /// As [`Segment::sum`], of these rows.
    #[inline(always)]
    unsafe fn pair<const R: usize, const U: usize, const ZEROS: bool>(
        &self,
        k: usize,
        i: usize,
        sums: &mut [[[S::F; W]; R]; U],
    ) {
        for w in 0..W {
            // SAFETY: the caller promises both rows of the panel and their elements of A.
            unsafe {
                let (low, high) = self.nibbles::<ZEROS>(k, w);
                self.add::<R>(k, w, low, &mut sums[(2 * i) % U]);
                self.add::<R>(k + 1, w, high, &mut sums[(2 * i + 1) % U]);
            }
        }
    }

    /// # Safety
    /// As [`Segment::sum`]: row `k`, which is even, exists.
    #[inline(always)]
    unsafe fn nibbles<const ZEROS: bool>(&self, k: usize, w: usize) -> (S::F, S::F) {
        // SAFETY: the caller's promise; row `k / 2` of bytes holds it.
        let bytes = unsafe { self.s.load_i8(self.at.quantised.add(k / 2 * NR + w * S::LANES)) };
        let (low, high) = self.s.nibbles(bytes);
        (self.without_zero::<ZEROS>(w, low), self.without_zero::<ZEROS>(w, high))
    }

    #[inline(always)]
    fn without_zero<const ZEROS: bool>(&self, w: usize, x: S::F) -> S::F {
        if ZEROS { self.s.sub(x, self.zero[w]) } else { x }
    }

    /// # Safety
    /// Element `k` of `R` rows exists.
    #[inline(always)]
    unsafe fn add<const R: usize>(&self, k: usize, w: usize, x: S::F, sums: &mut [[S::F; W]; R]) {
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller promises element `k` of each of the `R` rows.
            let a = self.s.splat(unsafe { *self.a.add(r * self.a_stride + k) });
            sums[w] = self.s.fma(a, x, sums[w]);
        }
    }
}
