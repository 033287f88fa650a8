//! The sum of two quantised tensors, quantised again, in one pass: what a residual connection of an integer network is. As a
//! chain every step would be a pass over a block of floats, three times as long. Every number is computed as the chain does
//! it, so the bytes are the same. Unsafe island (raw pointers).

use super::blocks::{BlockBody, BlockChunk, Stored};
use super::chain::{Chain, Operand, Step};
use super::operand::{BLOCK, Sink, Source, load_up_to, store_up_to};
use crate::vector_math::twice::Twice;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{Args, Result};

/// A quantised operand: its zero point and scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scheme {
    pub zero: f32,
    pub scale: f32,
}

/// The numbers of a sum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuantisedSum {
    operands: [Scheme; 2],
    /// Limits of the sum before it is quantised.
    limits: [f32; 2],
    /// Of the result: one over its scale, its zero point and its range.
    result: [f32; 4],
    cost: usize,
}

/// The input and the scheme that a step dequantises.
pub(super) fn dequantised(step: &Step) -> Option<(u8, Scheme)> {
    let [zero, scale, ..] = step.function.parameters();
    match step.operands.as_slice() {
        [Operand::Input(i)] if step.function.name() == "dequantise" => Some((*i, Scheme { zero, scale })),
        _ => None,
    }
}

impl QuantisedSum {
    /// The sum that a chain is: two inputs dequantised, added, perhaps limited, quantised.
    pub(super) fn of(chain: &Chain) -> Option<Self> {
        let [first, second, sum, between @ .., last] = chain.steps() else { return None };
        let (first, second) = (dequantised(first)?, dequantised(second)?);
        let operands = match (first, second) {
            ((0, a), (1, b)) | ((1, b), (0, a)) if chain.inputs() == 2 => [a, b],
            _ => return None,
        };
        let adds = sum.function.name() == "add" && sum.function.parameters()[0] == 1.0;
        let are_both = matches!(
            sum.operands.as_slice(),
            [Operand::Step(0), Operand::Step(1)] | [Operand::Step(1), Operand::Step(0)]
        );
        let limits = match between {
            [] => [f32::NEG_INFINITY, f32::INFINITY],
            [limit] if limit.operands == [Operand::Step(2)] => match limit.function.name() {
                "relu" => [0.0, f32::INFINITY],
                "clamp" => [limit.function.parameters()[0], limit.function.parameters()[1]],
                _ => return None,
            },
            _ => return None,
        };
        let is_last = last.operands == [Operand::Step(2 + between.len() as u8)];
        let result = last.function.parameters();
        let is_sum = adds && are_both && is_last && last.function.name() == "quantise";
        let cost = chain.cost() / 3;
        is_sum.then_some(QuantisedSum { operands, limits, result, cost })
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

/// The numbers of a sum as vectors.
#[derive(Clone, Copy)]
struct Numbers<S: Simd> {
    s: S,
    zeros: [S::F; 2],
    scales: [S::F; 2],
    limits: [S::F; 2],
    rounding: Rounding<S>,
}

impl<S: Simd> Numbers<S> {
    #[inline(always)]
    fn of(s: S, sum: &QuantisedSum) -> Self {
        let [a, b] = sum.operands;
        let [low, high] = sum.limits;
        Numbers {
            s,
            zeros: [s.splat(a.zero), s.splat(b.zero)],
            scales: [s.splat(a.scale), s.splat(b.scale)],
            limits: [s.splat(low), s.splat(high)],
            rounding: Rounding::of(s, sum.result),
        }
    }

    #[inline(always)]
    fn sum(&self, x: S::F, y: S::F) -> S::F {
        let s = self.s;
        let x = s.mul(s.sub(x, self.zeros[0]), self.scales[0]);
        let y = s.mul(s.sub(y, self.zeros[1]), self.scales[1]);
        self.rounding.quantised(s.clamp(s.add(x, y), self.limits[0], self.limits[1]))
    }
}

/// The sum of `n` numbers behind each of two pointers.
struct SumTask<'a, A, B> {
    sum: &'a QuantisedSum,
    from: [*const A; 2],
    to: *mut B,
    n: usize,
}

impl<A: Source, B: Sink> SimdTask for SumTask<'_, A, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let SumTask { sum, from: [x, y], to, n } = self;
        let mut i = 0;
        // SAFETY: whoever makes the task promises `n` elements behind each pointer; i + LANES ≤ n, then n - i are touched.
        unsafe {
            if S::BLOCK > 1 {
                // Every number is a long chain of operations, each of which waits for the one before: of several vectors at once.
                let several = Twice(Twice(s));
                let numbers = Numbers::of(several, sum);
                while i + 4 * S::LANES <= n {
                    let (x, y) = (A::load(several, x.add(i)), A::load(several, y.add(i)));
                    B::store(several, to.add(i), numbers.sum(x, y));
                    i += 4 * S::LANES;
                }
            }
            let numbers = Numbers::of(s, sum);
            while i < n {
                let count = S::LANES.min(n - i);
                let (x, y) = (load_up_to(s, x.add(i), count), load_up_to(s, y.add(i), count));
                store_up_to(s, to.add(i), numbers.sum(x, y), count);
                i += count;
            }
        }
    }
}

impl BlockBody for QuantisedSum {
    type Call = ();

    fn cost(&self) -> usize {
        self.cost
    }

    fn call(&self, _: &Args<'_>) -> Result<()> {
        Ok(())
    }

    unsafe fn run(&self, _: &(), chunk: &mut BlockChunk<'_>) -> Result<()> {
        // SAFETY: as this function asks for; `prepare` gives operands and result one dtype of the two.
        unsafe {
            match chunk.stored_out {
                Stored::UInt8 => self.blocks::<u8>(chunk),
                _ => self.blocks::<i8>(chunk),
            }
        }
        Ok(())
    }
}

impl QuantisedSum {
    /// # Safety
    /// As [`BlockBody::run`]; operands and result have elements of `T`.
    unsafe fn blocks<T: Source + Sink>(&self, chunk: &mut BlockChunk<'_>) {
        let [first, last] = chunk.range;
        let out = chunk.out.cast::<T>();
        if let [x, y] = chunk.operands
            && x.plan.is_dense()
            && y.plan.is_dense()
        {
            let from = [x, y].map(|operand| operand.source.cast::<T>().wrapping_add(first));
            let (to, n) = (out.wrapping_add(first), last - first);
            return chunk.level.dispatch(SumTask { sum: self, from, to, n });
        }
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            // SAFETY: the block is inside the chunk, whose operands and output are as the caller promises.
            let from = unsafe { [chunk.elements(0, [at, n]), chunk.elements(1, [at, n])] };
            chunk.level.dispatch(SumTask { sum: self, from, to: out.wrapping_add(at), n });
        }
    }
}
