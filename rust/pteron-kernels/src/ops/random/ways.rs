//! How the numbers of a call are drawn: one index after the other, or in blocks by vectors. Both give the same bits.

use super::Distribution;
use crate::draws::blocks::{self, OfWords};
use crate::draws::{self, Draws};
use crate::vector_math::SimdLevel;
use pteron_core::{PrepareContext, RandomDraws};

/// How numbers are drawn.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// One by one, for the plain kernels.
    OneByOne,
    /// In blocks.
    Blocks(SimdLevel),
}

impl Way {
    /// In blocks, on the processor of a session.
    pub(super) fn blocks(ctx: &PrepareContext<'_>) -> Way {
        Way::Blocks(SimdLevel::at_most(ctx.cpu.isa))
    }

    /// Its kernel's name in listings.
    pub(super) fn name(self) -> String {
        match self {
            Way::OneByOne => "reference".into(),
            Way::Blocks(level) => format!("random.{}", level.isa().name()),
        }
    }

    /// Rough nanoseconds of a number.
    pub(super) fn cost(self) -> usize {
        match self {
            Way::OneByOne => 20,
            Way::Blocks(_) => 3,
        }
    }

    /// Fills a block with numbers of a distribution: those of the places from `at`, which is even.
    pub(super) fn fill(
        self,
        source: RandomDraws,
        distribution: Distribution,
        numbers: [f64; 2],
        bits: u32,
        at: usize,
        out: &mut [f64],
    ) {
        use Distribution as D;
        let level = match self {
            Way::Blocks(level) => level,
            Way::OneByOne => {
                let mut draws = Draws::new(source);
                for (i, slot) in out.iter_mut().enumerate() {
                    *slot = distribution.number(&mut draws, (at + i) as u64, numbers, bits);
                }
                return;
            }
        };
        let first = at as u64;
        match distribution {
            D::Standard => blocks::fill(level, source, first, Each(Standard { bits }), out),
            D::Uniform => blocks::fill(level, source, first, Each(Between { numbers, bits }), out),
            D::Normal | D::LogNormal => {
                blocks::fill(level, source, first, Normals(numbers), out);
                if distribution == D::LogNormal {
                    out.iter_mut().for_each(|v| *v = v.exp());
                }
            }
            D::Exponential => blocks::fill(level, source, first, Each(Exponential { rate: numbers[0] }), out),
            D::Geometric => {
                let log = Distribution::log_of_failure(numbers[0]);
                blocks::fill(level, source, first, Each(Tries { log }), out);
            }
            D::Cauchy => {
                blocks::fill(level, source, first, Each(Standard { bits: 53 }), out);
                out.iter_mut().for_each(|v| *v = Distribution::cauchy(numbers, *v));
            }
        }
    }

    /// Fills a block with integers from `low` on, uniform among `count` (0 stands for 2^64), as [`Way::fill`] does.
    pub(super) fn below(self, source: RandomDraws, low: i64, count: u64, at: usize, out: &mut [i64]) {
        let first = at as u64;
        match (self, u32::try_from(count)) {
            (Way::OneByOne, _) => {
                let mut draws = Draws::new(source);
                for (i, slot) in out.iter_mut().enumerate() {
                    *slot = low.wrapping_add(draws.below((at + i) as u64, count) as i64);
                }
            }
            (Way::Blocks(level), Ok(few)) if few > 0 => {
                blocks::fill(level, source, first, Each(BelowFew { low, count: few.into() }), out);
            }
            (Way::Blocks(level), _) => {
                blocks::fill(level, source, first, Each(Below { low, count }), out);
            }
        }
    }
}

/// What a number is of one word. Not a closure, which need not be inlined and would then know no vectors.
trait OfWord: Copy {
    type Number: Copy + Default;
    fn number(self, word: u64) -> Self::Number;
}

/// A number of each word.
#[derive(Clone, Copy)]
struct Each<F>(F);

impl<F: OfWord> OfWords for Each<F> {
    type Number = F::Number;
    #[inline(always)]
    fn pair(self, words: [u64; 2]) -> [F::Number; 2] {
        [self.0.number(words[0]), self.0.number(words[1])]
    }
}

/// Functions of one word: `/// what it is` `Name { fields } => number type, |word| number;`.
macro_rules! of_word {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),* } => $number:ty, |$word:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $name { $($field: $t),* }
        impl OfWord for $name {
            type Number = $number;
            #[inline(always)]
            fn number(self, $word: u64) -> $number {
                let $name { $($field),* } = self;
                $body
            }
        }
    )* };
}
of_word! {
    /// Uniform in `[0, 1)`.
    Standard { bits: u32 } => f64, |word| draws::uniform(word, bits);
    /// Uniform between two numbers.
    Between { numbers: [f64; 2], bits: u32 } => f64,
        |word| Distribution::between(numbers, draws::uniform(word, bits));
    /// The time until something happens at a rate.
    Exponential { rate: f64 } => f64, |word| -draws::log_of_uniform(word) / rate;
    /// Tries until the first success.
    Tries { log: f64 } => f64, |word| Distribution::tries(draws::log_of_uniform(word), log);
    /// One of `count` integers.
    Below { low: i64, count: u64 } => i64, |word| low.wrapping_add(draws::below(word, count) as i64);
    /// The same for a count of 32 bits.
    BelowFew { low: i64, count: u64 } => i64, |word| low.wrapping_add(below_few(word, count) as i64);
}

/// [`draws::below`] for a count of 32 bits, by products that vectors have.
#[inline(always)]
fn below_few(word: u64, count: u64) -> u64 {
    const LOWER: u64 = u32::MAX as u64;
    let (low, high) = ((word & LOWER) * (count & LOWER), (word >> 32) * (count & LOWER));
    // The sum is at most (2^32 - 1) 2^32.
    (high + (low >> 32)) >> 32
}

/// Normal numbers of a mean and a deviation.
#[derive(Clone, Copy)]
struct Normals([f64; 2]);

impl OfWords for Normals {
    type Number = f64;
    #[inline(always)]
    fn pair(self, words: [u64; 2]) -> [f64; 2] {
        let [mean, deviation] = self.0;
        let [first, second] = draws::normal_pair(words);
        [mean + deviation * first, mean + deviation * second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{Isa, RandomStream};

    #[test]
    fn blocks_draw_the_numbers_of_their_places() {
        use Distribution as D;
        let mut stream = RandomStream::new(77);
        stream.next_call();
        let source = stream.next_call();
        let of = [D::Standard, D::Uniform, D::Normal, D::LogNormal, D::Exponential, D::Cauchy, D::Geometric];
        for isa in Isa::ALL {
            let way = Way::Blocks(SimdLevel::at_most(isa));
            for (n, at) in [(0, 0), (1, 0), (2, 6), (7, 16_384), (255, 1 << 40), (256, 256)] {
                for distribution in of {
                    for (numbers, bits) in [([0.3, 0.7], 24), ([0.25, 3.0], 53), ([0.5, 0.5], 8)] {
                        let (mut found, mut want) = (vec![7.0; n], vec![0.0; n]);
                        way.fill(source, distribution, numbers, bits, at, &mut found);
                        Way::OneByOne.fill(source, distribution, numbers, bits, at, &mut want);
                        let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(&found), bits(&want), "{isa:?} {n} {at}");
                    }
                }
                for count in [0, 1, 3, 200, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX] {
                    let (mut found, mut want) = (vec![7; n], vec![0; n]);
                    way.below(source, -100, count, at, &mut found);
                    Way::OneByOne.below(source, -100, count, at, &mut want);
                    assert_eq!(found, want, "{isa:?} {n} {at} {count}");
                }
            }
        }
    }
}
