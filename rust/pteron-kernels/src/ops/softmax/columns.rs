//! softmax and log_softmax along a dimension that other dimensions follow in memory: neighbouring columns are computed
//! together, a few vectors wide, so that every row is read in whole cache lines. Unsafe island (vector loads).

use super::Kind;
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::vector_math::exp::exp;
use crate::vector_math::log::log;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::Element;

/// Vectors of columns that are computed together.
const VECTORS: usize = 4;
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

impl<A: Element + Source + Sink> SimdTask for ColumnsTask<'_, A> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = VECTORS * S::LANES;
        let needed = (self.length - 1) * self.step + self.columns;
        assert!(self.input.len() >= needed && self.out.len() >= needed, "columns outside their tensor");
        for c in (0..self.columns).step_by(width) {
            let n = width.min(self.columns - c);
            // SAFETY: the assertion: element `row * step + column` is inside both for every row and column.
            unsafe { self.block(s, self.input.as_ptr().add(c), self.out.as_ptr().add(c), n) };
        }
    }
}

/// Lanes of vector `k` of `n` columns.
#[inline(always)]
fn lanes_of<S: Simd>(k: usize, n: usize) -> usize {
    n.saturating_sub(k * S::LANES).min(S::LANES)
}

/// # Safety
/// `n` elements behind `p`.
#[inline(always)]
unsafe fn load<S: Simd, A: Source>(s: S, p: *const A, n: usize) -> [S::F; VECTORS] {
    let mut v = [s.zero(); VECTORS];
    for (k, slot) in v.iter_mut().enumerate() {
        // SAFETY: as many elements as are left of the `n`.
        *slot = unsafe { load_up_to(s, p.wrapping_add(k * S::LANES), lanes_of::<S>(k, n)) };
    }
    v
}

/// # Safety
/// `n` elements behind `p`.
#[inline(always)]
unsafe fn store<S: Simd, A: Source + Sink>(s: S, p: *mut A, v: [S::F; VECTORS], n: usize) {
    for (k, v) in v.iter().enumerate() {
        let (p, n) = (p.wrapping_add(k * S::LANES), lanes_of::<S>(k, n));
        // SAFETY: as many elements as are left of the `n`.
        unsafe { if A::IS_F32 { s.store_up_to(p.cast(), *v, n) } else { store_up_to(s, p, *v, n) } };
    }
}

impl<A: Element + Source + Sink> ColumnsTask<'_, A> {
    /// # Safety
    /// `n ≤ VECTORS · LANES` columns behind both pointers.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, s: S, x: *const A, y: *mut A, n: usize) {
        // Sixteen bits are rounded once: their exponentials are computed again.
        let keeps_exponentials = self.kind == Kind::Softmax && A::IS_F32;
        let mut max = [s.splat(f32::NEG_INFINITY); VECTORS];
        let mut sum = [s.zero(); VECTORS];
        // SAFETY: rows are `step` apart.
        unsafe {
            for row in 0..self.length {
                let v = load(s, x.add(row * self.step), n);
                for k in 0..VECTORS {
                    max[k] = s.max(max[k], v[k]);
                }
            }
            for row in 0..self.length {
                let mut v = load(s, x.add(row * self.step), n);
                for k in 0..VECTORS {
                    v[k] = exp(s, s.sub(v[k], max[k]));
                    sum[k] = s.add(sum[k], v[k]);
                }
                if keeps_exponentials {
                    store(s, y.add(row * self.step), v, n);
                }
            }
            for each in &mut sum {
                *each = match self.kind {
                    Kind::Softmax => s.div(s.splat(1.0), *each),
                    Kind::LogSoftmax => log(s, *each),
                };
            }
            for row in 0..self.length {
                let at = row * self.step;
                let mut v = load(s, if keeps_exponentials { y.add(at).cast_const() } else { x.add(at) }, n);
                for k in 0..VECTORS {
                    v[k] = match self.kind {
                        Kind::Softmax if keeps_exponentials => s.mul(v[k], sum[k]),
                        Kind::Softmax => s.mul(exp(s, s.sub(v[k], max[k])), sum[k]),
                        Kind::LogSoftmax => s.sub(s.sub(v[k], max[k]), sum[k]),
                    };
                }
                store(s, y.add(at), v, n);
            }
        }
    }
}
