//! Up to four rows times a packed matrix of 16-bit floats: every packed number is read once, becomes f32 in registers and
//! is multiplied with its element of each row. Unsafe island.
//!
//! *Order.* A column's products are summed over k in several sums by the remainder of k, which are added at the end. The
//! number of sums depends on the number of rows and the instruction set.
#![allow(unsafe_code, reason = "panels and rows are addressed, and chunks share the result")]

use super::panels::{Form, Panels};
use crate::gemm::FewRows;
use crate::packed::f32_nr32_v1::NR;
use pteron_kernels::vector_math::{Simd, SimdTask};
use std::ops::Range;

pub(super) struct FewRowsTask<'a> {
    pub matrix: &'a Panels,
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
                        (16, 1) => self.of_form::<S, 1, 4, 2>(s, p, row),
                        (16, 2) => self.of_form::<S, 2, 4, 2>(s, p, row),
                        (16, 3) => self.of_form::<S, 3, 2, 2>(s, p, row),
                        (16, _) => self.of_form::<S, 4, 2, 2>(s, p, row),
                        (_, 1) => self.of_form::<S, 1, 2, 4>(s, p, row),
                        _ => self.of_form::<S, 2, 1, 4>(s, p, row),
                    }
                }
                row += rows;
            }
        }
    }
}

/// A panel and the first of the rows that it is multiplied with.
#[derive(Clone, Copy)]
struct Operands {
    panel: *const u16,
    a: *const f32,
    a_stride: usize,
}

impl FewRowsTask<'_> {
    /// `R` rows from `row` on times panel `p`, in `U` sums of `W` vectors each.
    ///
    /// # Safety
    /// Rows and panel exist; `W` vectors are 32 columns.
    #[inline(always)]
    unsafe fn of_form<S: Simd, const R: usize, const U: usize, const W: usize>(
        &self,
        s: S,
        p: usize,
        row: usize,
    ) {
        let operands = Operands {
            panel: self.matrix.panel(p),
            a: self.rows.a.wrapping_add(row * self.rows.a_stride),
            a_stride: self.rows.a_stride,
        };
        // SAFETY: the caller promises that the rows and the panel exist, with K elements each.
        let sums = unsafe {
            match self.matrix.form {
                Form::Brain => operands.pairs::<S, R, U, W>(s, self.matrix.k),
                Form::Binary => operands.single::<S, R, U, W>(s, self.matrix.k),
            }
        };
        let columns = self.matrix.n - p * NR;
        for (r, sums) in sums.iter().enumerate() {
            let c = self.rows.c.wrapping_add((row + r) * self.rows.c_stride + p * NR);
            for (w, sum) in sums.iter().enumerate() {
                let first = w * S::LANES;
                if first < columns {
                    // SAFETY: these columns of the row exist and are this chunk's.
                    unsafe { s.store_up_to(c.wrapping_add(first), *sum, columns - first) };
                }
            }
        }
    }
}

impl Operands {
    /// # Safety
    /// The panel has ⌈k / 2⌉ rows of pairs, and `R` rows of A have `k` elements.
    #[inline(always)]
    unsafe fn pairs<S: Simd, const R: usize, const U: usize, const W: usize>(
        self,
        s: S,
        k: usize,
    ) -> [[S::F; W]; R] {
        let mut sums = [[[s.zero(); W]; R]; U];
        let at_once = const { if U < 2 { 1 } else { U / 2 } };
        let mut pair = 0;
        // SAFETY: every pair that is read lies below ⌈k / 2⌉, every element of A below k.
        unsafe {
            while pair + at_once <= k / 2 {
                for i in 0..at_once {
                    self.pair::<S, R, U, W>(s, pair + i, [(2 * i) % U, (2 * i + 1) % U], &mut sums);
                }
                pair += at_once;
            }
            while pair < k / 2 {
                self.pair::<S, R, U, W>(s, pair, [0, 1 % U], &mut sums);
                pair += 1;
            }
            if k % 2 == 1 {
                for w in 0..W {
                    let both = s.load(self.panel.cast::<f32>().add(pair * NR + w * S::LANES));
                    self.add::<S, R, W>(s, k - 1, w, s.brain16_pair(both).0, &mut sums[0]);
                }
            }
        }
        total(s, &sums)
    }

    /// Rows `2 * pair` and the next; `into` says into which sums.
    ///
    /// # Safety
    /// As [`Operands::pairs`]; both rows exist.
    #[inline(always)]
    unsafe fn pair<S: Simd, const R: usize, const U: usize, const W: usize>(
        self,
        s: S,
        pair: usize,
        into: [usize; 2],
        sums: &mut [[[S::F; W]; R]; U],
    ) {
        for w in 0..W {
            // SAFETY: the caller promises the pair and its elements of A.
            unsafe {
                let both = s.load(self.panel.cast::<f32>().add(pair * NR + w * S::LANES));
                let (low, high) = s.brain16_pair(both);
                self.add::<S, R, W>(s, 2 * pair, w, low, &mut sums[into[0]]);
                self.add::<S, R, W>(s, 2 * pair + 1, w, high, &mut sums[into[1]]);
            }
        }
    }

    /// # Safety
    /// The panel has `k` rows, and `R` rows of A have as many elements.
    #[inline(always)]
    unsafe fn single<S: Simd, const R: usize, const U: usize, const W: usize>(
        self,
        s: S,
        k: usize,
    ) -> [[S::F; W]; R] {
        let mut sums = [[[s.zero(); W]; R]; U];
        let mut at = 0;
        // SAFETY: every row that is read lies below k.
        unsafe {
            while at + U <= k {
                for (u, sums) in sums.iter_mut().enumerate() {
                    self.row::<S, R, W>(s, at + u, sums);
                }
                at += U;
            }
            while at < k {
                self.row::<S, R, W>(s, at, &mut sums[0]);
                at += 1;
            }
        }
        total(s, &sums)
    }

    /// # Safety
    /// As [`Operands::single`]; row `k` exists.
    #[inline(always)]
    unsafe fn row<S: Simd, const R: usize, const W: usize>(self, s: S, k: usize, sums: &mut [[S::F; W]; R]) {
        for w in 0..W {
            // SAFETY: the caller promises row `k` of the panel and its elements of A.
            unsafe {
                let x = s.load_binary16(self.panel.add(k * NR + w * S::LANES));
                self.add::<S, R, W>(s, k, w, x, sums);
            }
        }
    }

    /// # Safety
    /// Element `k` of `R` rows exists.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const W: usize>(
        self,
        s: S,
        k: usize,
        w: usize,
        x: S::F,
        sums: &mut [[S::F; W]; R],
    ) {
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller promises element `k` of each of the `R` rows.
            let a = s.splat(unsafe { *self.a.add(r * self.a_stride + k) });
            sums[w] = s.fma(a, x, sums[w]);
        }
    }
}

/// The sums of all remainders of k.
#[inline(always)]
fn total<S: Simd, const R: usize, const U: usize, const W: usize>(
    s: S,
    sums: &[[[S::F; W]; R]; U],
) -> [[S::F; W]; R] {
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
