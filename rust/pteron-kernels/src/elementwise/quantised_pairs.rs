//! What functions of two operands whose result is quantised share: schemes, rounding, the loop. Unsafe island (raw pointers).

use super::chain::{Operand, Step};
use super::operand::{Sink, Source, load_up_to, store_up_to};
use crate::vector_math::twice::Twice;
use crate::vector_math::{Simd, SimdTask};

/// A quantised operand: its zero point and scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scheme {
    pub zero: f32,
    pub scale: f32,
}

/// The input and the scheme that a step dequantises.
pub(super) fn dequantised(step: &Step) -> Option<(u8, Scheme)> {
    let [zero, scale, ..] = step.function.parameters();
    match step.operands.as_slice() {
        [Operand::Input(i)] if step.function.name() == "dequantise" => Some((*i, Scheme { zero, scale })),
        _ => None,
    }
}

/// How numbers are quantised, as vectors.
#[derive(Clone, Copy)]
pub(super) struct Rounding<S: Simd> {
    s: S,
    inverse: S::F,
    zero: S::F,
    range: [S::F; 2],
}

impl<S: Simd> Rounding<S> {
    /// One over the scale, the zero point, the least and the greatest number of the result.
    #[inline(always)]
    pub(super) fn of(s: S, [inverse, zero, low, high]: [f32; 4]) -> Self {
        let range = [s.splat(low), s.splat(high)];
        Rounding { s, inverse: s.splat(inverse), zero: s.splat(zero), range }
    }

    /// The integers of `v`; of NaN, zero.
    #[inline(always)]
    pub(super) fn quantised(&self, v: S::F) -> S::F {
        let s = self.s;
        let nearest = s.add(s.round(s.mul(v, self.inverse)), self.zero);
        let held = s.clamp(nearest, self.range[0], self.range[1]);
        s.select(s.eq(held, held), held, s.zero())
    }
}

/// A function of two numbers.
pub(super) trait PairFunction {
    /// What it is computed with, as vectors.
    type Numbers<S: Simd>: Copy;

    /// The numbers for an instruction set.
    fn numbers<S: Simd>(&self, s: S) -> Self::Numbers<S>;

    /// The integers that are stored.
    fn result<S: Simd>(numbers: &Self::Numbers<S>, x: S::F, y: S::F) -> S::F;
}

/// The function of `n` elements behind each of two pointers.
pub(super) struct PairTask<'a, P, A, B, C> {
    pub function: &'a P,
    pub x: *const A,
    pub y: *const B,
    pub to: *mut C,
    pub n: usize,
}

impl<P: PairFunction, A: Source, B: Source, C: Sink> SimdTask for PairTask<'_, P, A, B, C> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let PairTask { function, x, y, to, n } = self;
        let mut i = 0;
        // SAFETY: whoever makes the task promises `n` elements behind each pointer; i + LANES ≤ n, then n - i are touched.
        unsafe {
            if S::BLOCK > 1 {
                // Every number is a long chain of operations, each of which waits for the one before: of several vectors at once.
                let several = Twice(Twice(s));
                let numbers = function.numbers(several);
                while i + 4 * S::LANES <= n {
                    let (x, y) = (A::load(several, x.add(i)), B::load(several, y.add(i)));
                    C::store(several, to.add(i), P::result::<Twice<Twice<S>>>(&numbers, x, y));
                    i += 4 * S::LANES;
                }
            }
            let numbers = function.numbers(s);
            while i < n {
                let count = S::LANES.min(n - i);
                let (x, y) = (load_up_to(s, x.add(i), count), load_up_to(s, y.add(i), count));
                store_up_to(s, to.add(i), P::result::<S>(&numbers, x, y), count);
                i += count;
            }
        }
    }
}
