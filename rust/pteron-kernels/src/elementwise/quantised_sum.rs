//! The sum of two quantised tensors, quantised again, in one pass: what a residual connection of an integer network is. As a
//! chain every step would be a pass over a block of floats, three times as long. Every number is computed as the chain does
//! it, so the bytes are the same. Unsafe island (raw pointers).

use super::blocks::{BlockBody, BlockChunk, Stored};
use super::chain::{Chain, Operand};
use super::operand::{BLOCK, Sink, Source};
use super::quantised_pairs::{PairFunction, PairTask, Rounding, Scheme, dequantised};
use crate::vector_math::Simd;
use pteron_core::{Args, Result};

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

/// The numbers of a sum as vectors.
#[derive(Clone, Copy)]
pub(super) struct Numbers<S: Simd> {
    s: S,
    zeros: [S::F; 2],
    scales: [S::F; 2],
    limits: [S::F; 2],
    rounding: Rounding<S>,
}

impl PairFunction for QuantisedSum {
    type Numbers<S: Simd> = Numbers<S>;

    #[inline(always)]
    fn numbers<S: Simd>(&self, s: S) -> Numbers<S> {
        let [a, b] = self.operands;
        let [low, high] = self.limits;
        Numbers {
            s,
            zeros: [s.splat(a.zero), s.splat(b.zero)],
            scales: [s.splat(a.scale), s.splat(b.scale)],
            limits: [s.splat(low), s.splat(high)],
            rounding: Rounding::of(s, self.result),
        }
    }

    #[inline(always)]
    fn result<S: Simd>(numbers: &Numbers<S>, x: S::F, y: S::F) -> S::F {
        let Numbers { s, zeros, scales, limits, rounding } = numbers;
        let x = s.mul(s.sub(x, zeros[0]), scales[0]);
        let y = s.mul(s.sub(y, zeros[1]), scales[1]);
        rounding.quantised(s.clamp(s.add(x, y), limits[0], limits[1]))
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
            let [x, y] = from;
            return chunk.level.dispatch(PairTask { function: self, x, y, to, n });
        }
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            // SAFETY: the block is inside the chunk, whose operands and output are as the caller promises.
            let (x, y) = unsafe { (chunk.elements(0, [at, n]), chunk.elements(1, [at, n])) };
            chunk.level.dispatch(PairTask { function: self, x, y, to: out.wrapping_add(at), n });
        }
    }
}
