//! The words of a block of indices at once: the generator's rounds in loops that the compiler vectorises.

use crate::compute::BLOCK;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::RandomDraws;

/// Pairs of words in a block.
const PAIRS: usize = BLOCK / 2;

/// The words of [`BLOCK`] indices, those of even indices and of odd ones.
struct Words([u64; PAIRS], [u64; PAIRS]);

impl Words {
    /// The words of at least `count` indices from `first`, which is even.
    #[inline(always)]
    fn of(source: RandomDraws, first: u64, count: usize) -> Self {
        let mut words = Words([0; PAIRS], [0; PAIRS]);
        let pairs = count.div_ceil(2).min(PAIRS);
        source.words(first / 2, &mut words.0[..pairs], &mut words.1[..pairs]);
        words
    }
}

/// What a number, or two, is of words: a function of blocks.
pub trait OfWords: Copy {
    /// The numbers.
    type Number: Copy + Default;
    /// Those of an even index and of the one behind it.
    fn pair(self, words: [u64; 2]) -> [Self::Number; 2];
}

/// Fills `out`, at most [`BLOCK`] numbers, with those of the indices from `first`, which is even.
pub fn fill<F: OfWords>(level: SimdLevel, source: RandomDraws, first: u64, f: F, out: &mut [F::Number]) {
    // Words that wait for nothing: what AVX-512 has for them is not worth code of its own.
    level.dispatch_narrow(Fill { source, first, f, out });
}

struct Fill<'a, F: OfWords> {
    source: RandomDraws,
    first: u64,
    f: F,
    out: &'a mut [F::Number],
}

impl<F: OfWords> SimdTask for Fill<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Words(even, odd) = Words::of(self.source, self.first, self.out.len());
        let mut numbers = [[F::Number::default(); PAIRS]; 2];
        let pairs = self.out.len().div_ceil(2).min(PAIRS);
        let [low, high] = &mut numbers;
        for (((low, high), even), odd) in low[..pairs].iter_mut().zip(high).zip(&even).zip(&odd) {
            [*low, *high] = self.f.pair([*even, *odd]);
        }
        let mut pairs = self.out.chunks_exact_mut(2);
        let mut at = 0;
        for ((pair, low), high) in pairs.by_ref().zip(&numbers[0]).zip(&numbers[1]) {
            (pair[0], pair[1]) = (*low, *high);
            at += 1;
        }
        if let ([last], Some(low)) = (pairs.into_remainder(), numbers[0].get(at)) {
            *last = *low;
        }
    }
}

/// The words themselves.
#[derive(Clone, Copy)]
pub struct Bits;

impl OfWords for Bits {
    type Number = u64;
    #[inline(always)]
    fn pair(self, words: [u64; 2]) -> [u64; 2] {
        words
    }
}
