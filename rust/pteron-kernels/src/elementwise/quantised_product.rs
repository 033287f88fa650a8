//! A quantised tensor times floats, quantised again, in one pass: what the gates of squeeze-and-excite do to a map. Every number is
//! computed as the chain does it, so the bytes are the same. Unsafe island (raw pointers).

use super::blocks::{BlockBody, BlockChunk, Stored};
use super::chain::{Chain, Operand};
use super::operand::{BLOCK, Sink, Source, load_up_to, store_up_to};
use super::quantised_sum::{Rounding, Scheme, dequantised};
use crate::vector_math::twice::Twice;
use crate::vector_math::{Simd, SimdTask};
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

/// `n` bytes times `n` factors.
struct ProductTask<'a, T> {
    product: &'a QuantisedProduct,
    bytes: *const T,
    factors: *const f32,
    to: *mut T,
    n: usize,
}

/// The numbers of a product as vectors.
#[derive(Clone, Copy)]
struct Numbers<S: Simd> {
    s: S,
    zero: S::F,
    scale: S::F,
    rounding: Rounding<S>,
}

impl<S: Simd> Numbers<S> {
    #[inline(always)]
    fn of(s: S, product: &QuantisedProduct) -> Self {
        let Scheme { zero, scale } = product.scheme;
        Numbers { s, zero: s.splat(zero), scale: s.splat(scale), rounding: Rounding::of(s, product.result) }
    }

    #[inline(always)]
    fn product(&self, x: S::F, factor: S::F) -> S::F {
        let s = self.s;
        self.rounding.quantised(s.mul(s.mul(s.sub(x, self.zero), self.scale), factor))
    }
}

impl<T: Source + Sink> SimdTask for ProductTask<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ProductTask { product, bytes, factors, to, n } = self;
        let mut i = 0;
        // SAFETY: whoever makes the task promises `n` elements behind each pointer; i + LANES ≤ n, then n - i are touched.
        unsafe {
            if S::BLOCK > 1 {
                // Every number is a long chain of operations, each of which waits for the one before: of several vectors at once.
                let several = Twice(Twice(s));
                let numbers = Numbers::of(several, product);
                while i + 4 * S::LANES <= n {
                    let (x, factor) = (T::load(several, bytes.add(i)), f32::load(several, factors.add(i)));
                    T::store(several, to.add(i), numbers.product(x, factor));
                    i += 4 * S::LANES;
                }
            }
            let numbers = Numbers::of(s, product);
            while i < n {
                let count = S::LANES.min(n - i);
                let (x, factor) = (load_up_to(s, bytes.add(i), count), load_up_to(s, factors.add(i), count));
                store_up_to(s, to.add(i), numbers.product(x, factor), count);
                i += count;
            }
        }
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
                    chunk.level.dispatch(ProductTask { product: self, bytes, factors, to, n });
                }
                None => {
                    // SAFETY: the block is inside the chunk, whose operands are as the caller promises; numbers of bytes are whole.
                    let numbers =
                        unsafe { std::slice::from_raw_parts(chunk.elements(self.quantised, [at, n]), n) };
                    let mut bytes = [T::zeroed(); BLOCK];
                    bytes.iter_mut().zip(numbers).for_each(|(byte, v)| *byte = T::of_number(*v));
                    let bytes = bytes.as_ptr();
                    chunk.level.dispatch(ProductTask { product: self, bytes, factors, to, n });
                }
            }
        }
    }
}
