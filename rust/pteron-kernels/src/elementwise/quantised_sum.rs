//! The sum of two quantised tensors, quantised again, in one pass: what a residual connection of an integer network is. As a
//! chain every step would be a pass over a block of floats, three times as long. Every number is computed as the chain does
//! it, so the bytes are the same. Unsafe island (raw pointers).

use super::blocks::{BlockBody, BlockChunk, Stored};
use super::chain::{Chain, Operand, Step};
use super::operand::{BLOCK, Sink, Source, load_up_to, store_up_to};
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{Args, Result};

/// A quantised operand: its zero point and scale.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scheme {
    zero: f32,
    scale: f32,
}

/// The numbers of a sum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuantisedSum {
    operands: [Scheme; 2],
    /// Limits of the sum before it is quantised.
    limits: [f32; 2],
    /// Of the result: one over its scale, its zero point and its range.
    inverse: f32,
    zero: f32,
    range: [f32; 2],
    cost: usize,
}

/// The input and the scheme that a step dequantises.
fn dequantised(step: &Step) -> Option<(u8, Scheme)> {
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
        let [inverse, zero, low, high] = last.function.parameters();
        let is_sum = adds && are_both && is_last && last.function.name() == "quantise";
        let cost = chain.cost() / 3;
        is_sum.then_some(QuantisedSum { operands, limits, inverse, zero, range: [low, high], cost })
    }

    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, [x, y]: [S::F; 2]) -> S::F {
        let [a, b] = self.operands;
        let real = |v: S::F, of: Scheme| s.mul(s.sub(v, s.splat(of.zero)), s.splat(of.scale));
        let sum = s.clamp(s.add(real(x, a), real(y, b)), s.splat(self.limits[0]), s.splat(self.limits[1]));
        let nearest = s.add(s.round(s.mul(sum, s.splat(self.inverse))), s.splat(self.zero));
        let held = s.clamp(nearest, s.splat(self.range[0]), s.splat(self.range[1]));
        s.select(s.eq(held, held), held, s.zero())
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
        let [x, y] = self.from;
        for i in (0..self.n).step_by(S::LANES) {
            let n = S::LANES.min(self.n - i);
            // SAFETY: whoever makes the task promises `n` elements behind each pointer; these are some of them.
            unsafe {
                let operands = [load_up_to(s, x.add(i), n), load_up_to(s, y.add(i), n)];
                store_up_to(s, self.to.add(i), self.sum.apply(s, operands), n);
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
