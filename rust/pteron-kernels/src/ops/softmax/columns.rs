//! softmax and log_softmax along a dimension that other dimensions follow in memory: neighbouring columns are computed
//! together, a few vectors wide, so that every row is read in whole cache lines. Unsafe island (vector loads).

use super::Kind;
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::columns::{Columns, Number};
use crate::vector_math::{Simd, SimdTask};

/// Columns of one unit of work, on every instruction set.
pub const COLUMNS: usize = 64;

/// Up to [`COLUMNS`] neighbouring columns of one stretch.
pub struct ColumnsTask<'a, A> {
    pub kind: Kind,
    /// From the first element of the first column to the last of the last.
    pub input: ChunkOf<'a, A>,
    /// The same of the result.
    pub out: ChunkOfMut<'a, A>,
    /// Elements of a column, at least one.
    pub length: usize,
    /// From one element of a column to the next.
    pub step: usize,
    /// Number of columns.
    pub columns: usize,
}

impl<A: Columns> SimdTask for ColumnsTask<'_, A> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = A::Number::width::<S>();
        let needed = (self.length - 1) * self.step + self.columns;
        assert!(self.input.len() >= needed && self.out.len() >= needed, "columns outside their tensor");
        for c in (0..self.columns).step_by(width) {
            // SAFETY: the assertion: element `row * step + column` is inside both for every row and column.
            unsafe {
                let (x, y) = (self.input.as_ptr().add(c), self.out.as_ptr().add(c));
                match self.columns - c >= width {
                    // A constant number: no partial loads.
                    true => self.block(s, x, y, width),
                    false => self.block(s, x, y, self.columns - c),
                }
            }
        }
    }
}

impl<A: Columns> ColumnsTask<'_, A> {
    /// # Safety
    /// `n` columns, at most those of a block, behind both pointers.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, s: S, x: *const A, y: *mut A, n: usize) {
        // Sixteen bits are rounded once: their exponentials are computed again.
        let keeps_exponentials = self.kind == Kind::Softmax && A::IS_NUMBER;
        let mut max = A::Number::splat(s, A::Number::LEAST);
        let mut sum = A::Number::splat(s, A::Number::ZERO);
        // SAFETY: rows are `step` apart.
        unsafe {
            for row in 0..self.length {
                max = A::Number::max(s, max, A::load_block(s, x.add(row * self.step), n));
            }
            for row in 0..self.length {
                let v = A::load_block(s, x.add(row * self.step), n);
                let v = A::Number::exp(s, A::Number::sub(s, v, max));
                sum = A::Number::add(s, sum, v);
                if keeps_exponentials {
                    A::store_block(s, y.add(row * self.step), v, n);
                }
            }
            let sum = match self.kind {
                Kind::Softmax => A::Number::div(s, A::Number::splat(s, A::Number::of(1.0)), sum),
                Kind::LogSoftmax => A::Number::log(s, sum),
            };
            for row in 0..self.length {
                let at = row * self.step;
                let from = if keeps_exponentials { y.add(at).cast_const() } else { x.add(at) };
                let v = A::load_block(s, from, n);
                let v = match self.kind {
                    Kind::Softmax if keeps_exponentials => A::Number::mul(s, v, sum),
                    Kind::Softmax => A::Number::mul(s, A::Number::exp(s, A::Number::sub(s, v, max)), sum),
                    Kind::LogSoftmax => A::Number::sub(s, A::Number::sub(s, v, max), sum),
                };
                A::store_block(s, y.add(at), v, n);
            }
        }
    }
}
