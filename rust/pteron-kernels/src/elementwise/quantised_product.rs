//! A quantised tensor times floats, quantised again, in one pass: what the gates of squeeze-and-excite do to a map. Every number is
//! computed as the chain does it, so the bytes are the same. Unsafe island (raw pointers).

use super::blocks::{BlockBody, BlockChunk, Stored};
use super::chain::{Chain, Operand};
use super::operand::{BLOCK, Sink, Source};
use super::quantised_pairs::{PairFunction, PairTask, Rounding, Scheme, dequantised};
use crate::vector_math::Simd;
use pteron_core::{Args, Result};

/// The numbers of a product.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuantisedProduct {
    /// Which operand is quantised; the other one is the factors.
    quantised: usize,
    scheme: Scheme,
    /// Of the result: one over its scale, its zero point and its range.
    result: [f32; 4],
    cost: usize,
}

impl QuantisedProduct {
    /// The product that a chain is: one input dequantised, multiplied with the other one, quantised.
    pub(super) fn of(chain: &Chain, operands: &[Stored], result: Stored) -> Option<Self> {
        let ([first, product, last], 2) = (chain.steps(), chain.inputs()) else { return None };
        let (input, scheme) = dequantised(first)?;
        let quantised = usize::from(input);
        let factors = Operand::Input(1u8.checked_sub(input)?);
        let is_product = product.function.name() == "mul"
            && [[Operand::Step(0), factors], [factors, Operand::Step(0)]]
                .contains(&product.operands[..].try_into().ok()?)
            && last.function.name() == "quantise"
            && last.operands == [Operand::Step(1)];
        let is_of_bytes = matches!(result, Stored::Int8 | Stored::UInt8)
            && operands.get(quantised) == Some(&result)
            && operands.get(1 - quantised) == Some(&Stored::Single);
        let cost = chain.cost() / 3;
        (is_product && is_of_bytes).then_some(QuantisedProduct {
            quantised,
            scheme,
            result: last.function.parameters(),
            cost,
        })
    }
}

/// The numbers of a product as vectors.
#[derive(Clone, Copy)]
pub(super) struct Numbers<S: Simd> {
    s: S,
    zero: S::F,
    scale: S::F,
    rounding: Rounding<S>,
}

impl PairFunction for QuantisedProduct {
    type Numbers<S: Simd> = Numbers<S>;

    #[inline(always)]
    fn numbers<S: Simd>(&self, s: S) -> Numbers<S> {
        let Scheme { zero, scale } = self.scheme;
        Numbers { s, zero: s.splat(zero), scale: s.splat(scale), rounding: Rounding::of(s, self.result) }
    }

    #[inline(always)]
    fn result<S: Simd>(numbers: &Numbers<S>, x: S::F, factor: S::F) -> S::F {
        let Numbers { s, zero, scale, rounding } = numbers;
        rounding.quantised(s.mul(s.mul(s.sub(x, *zero), *scale), factor))
    }
}

impl BlockBody for QuantisedProduct {
    type Call = ();

    fn cost(&self) -> usize {
        self.cost
    }

    fn call(&self, _: &Args<'_>) -> Result<()> {
        Ok(())
    }

    unsafe fn run(&self, _: &(), chunk: &mut BlockChunk<'_>) -> Result<()> {
        // SAFETY: as this function asks for; `of` gives the quantised operand and the result one dtype of the two, and f32 to the
        // factors.
        unsafe {
            match chunk.stored_out {
                Stored::UInt8 => self.blocks::<u8>(chunk),
                _ => self.blocks::<i8>(chunk),
            }
        }
        Ok(())
    }
}

impl QuantisedProduct {
    /// # Safety
    /// As [`BlockBody::run`]; the quantised operand and the result have elements of `T`, the other one f32.
    unsafe fn blocks<T: Source + Sink>(&self, chunk: &mut BlockChunk<'_>) {
        let [first, last] = chunk.range;
        let out = chunk.out.cast::<T>();
        let as_they_lie = chunk
            .operands
            .get(self.quantised)
            .filter(|operand| operand.plan.is_dense())
            .map(|operand| operand.source.cast::<T>());
        for at in (first..last).step_by(BLOCK) {
            let n = BLOCK.min(last - at);
            let to = out.wrapping_add(at);
            // SAFETY: the block is inside the chunk, whose operands and output are as the caller promises.
            let factors = unsafe { chunk.elements(1 - self.quantised, [at, n]) };
            match as_they_lie {
                Some(bytes) => {
                    let bytes = bytes.wrapping_add(at);
                    chunk.level.dispatch(PairTask { function: self, x: bytes, y: factors, to, n });
                }
                None => {
                    // SAFETY: the block is inside the chunk, whose operands are as the caller promises; numbers of bytes are whole.
                    let numbers =
                        unsafe { std::slice::from_raw_parts(chunk.elements(self.quantised, [at, n]), n) };
                    let mut bytes = [T::zeroed(); BLOCK];
                    bytes.iter_mut().zip(numbers).for_each(|(byte, v)| *byte = T::of_number(*v));
                    let bytes = bytes.as_ptr();
                    chunk.level.dispatch(PairTask { function: self, x: bytes, y: factors, to, n });
                }
            }
        }
    }
}
