//! `C = alpha * C + beta * addend`, then residual, clamp and post chain, on a block that the tiles have
//! just written: for what the tiles do not do themselves. Unsafe island.
#![allow(unsafe_code, reason = "rows and columns are addressed by stride, and chunks share the result")]

use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::ops::Range;

#[derive(Clone, Copy)]
pub(super) struct Combine<'a> {
    pub c: *mut f32,
    /// Of rows of C and the residual.
    pub stride: usize,
    pub alpha: f32,
    pub beta: f32,
    /// Null for none.
    pub addend: *const f32,
    /// From row to row and from column to column (0 or 1).
    pub addend_strides: [usize; 2],
    /// Null for none.
    pub residual: *const f32,
    pub clamp: Option<(f32, f32)>,
    pub post: Option<&'a Chain>,
}

impl Combine<'_> {
    /// # Safety
    /// `rows` and `columns` lie inside C and the residual, and inside what is added as far as its strides
    /// are not 0.
    pub unsafe fn run(
        &self,
        level: SimdLevel,
        rows: Range<usize>,
        columns: Range<usize>,
        scratch: &mut [f32],
    ) {
        level.dispatch(Block { combine: self, rows: rows.clone(), columns: columns.clone() });
        if let Some(post) = self.post {
            let block = self.c.wrapping_add(rows.start * self.stride + columns.start);
            // SAFETY: rows and columns are those of a chunk of C, which the caller promises to be this
            // thread's to write.
            unsafe { post.apply(level, block, self.stride, [rows.len(), columns.len()], scratch) };
        }
    }
}

struct Block<'a> {
    combine: &'a Combine<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl SimdTask for Block<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Combine { c, stride, alpha, beta, addend, addend_strides, residual, clamp, .. } = *self.combine;
        let (alpha, beta) = (s.splat(alpha), s.splat(beta));
        for row in self.rows {
            for column in self.columns.clone().step_by(S::LANES) {
                let n = S::LANES.min(self.columns.end - column);
                // SAFETY: `n` columns from here on exist, by contract of `Combine::run`.
                unsafe {
                    let at = row * stride + column;
                    let mut x = s.mul(alpha, s.load_up_to(c.add(at), n));
                    if !addend.is_null() {
                        let from = addend.add(row * addend_strides[0] + column * addend_strides[1]);
                        let more =
                            if addend_strides[1] == 0 { s.splat(*from) } else { s.load_up_to(from, n) };
                        x = s.add(x, s.mul(beta, more));
                    }
                    if !residual.is_null() {
                        x = s.add(x, s.load_up_to(residual.add(at), n));
                    }
                    if let Some((low, high)) = clamp {
                        x = s.clamp(x, s.splat(low), s.splat(high));
                    }
                    s.store_up_to(c.add(at), x, n);
                }
            }
        }
    }
}
