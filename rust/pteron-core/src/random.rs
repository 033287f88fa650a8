//! Random numbers of a session: a counter-based generator, Philox 4x32 with ten rounds (Salmon, Moraes,
//! Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! The seed is the key; the counter is the number of the call within the session and of the draw within
//! the call. What an element draws thus depends on neither chunks nor threads, and no two calls of a
//! session draw the same numbers.

use std::hash::BuildHasher;

/// The random state of a session: a seed and how many calls have drawn since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomStream {
    seed: u64,
    calls: u64,
}

impl RandomStream {
    /// The stream of a seed, from its start.
    pub fn new(seed: u64) -> Self {
        RandomStream { seed, calls: 0 }
    }

    /// A stream that nobody can foresee: its seed comes from the operating system.
    pub fn from_system() -> Self {
        // The keys of a hash map's hasher are the standard library's only access to that source.
        RandomStream::new(std::collections::hash_map::RandomState::new().hash_one(0u64))
    }

    /// What the next call draws.
    pub fn next_call(&mut self) -> RandomDraws {
        let call = self.calls;
        self.calls = self.calls.wrapping_add(1);
        RandomDraws { seed: self.seed, call }
    }
}

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];

/// Lower and upper half.
#[inline(always)]
fn halves(v: u64) -> [u32; 2] {
    [v as u32, (v >> 32) as u32]
}

/// The key of the round after.
#[inline(always)]
fn next_key([a, b]: [u32; 2]) -> [u32; 2] {
    [a.wrapping_add(0x9e37_79b9), b.wrapping_add(0xbb67_ae85)]
}

/// What one call draws: numbers by index, in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RandomDraws {
    seed: u64,
    call: u64,
}

impl RandomDraws {
    /// 128 bits, those of `index`.
    #[inline]
    pub fn bits(&self, index: u64) -> [u32; 4] {
        let ([a, b], [c, d]) = (halves(index), halves(self.call));
        let (mut counter, mut key) = ([a, b, c, d], halves(self.seed));
        for _ in 0..ROUNDS {
            let [low, high] = [
                u64::from(MULTIPLIERS[0]).wrapping_mul(counter[0].into()),
                u64::from(MULTIPLIERS[1]).wrapping_mul(counter[2].into()),
            ]
            .map(halves);
            counter = [high[1] ^ counter[1] ^ key[0], high[0], low[1] ^ counter[3] ^ key[1], low[0]];
            key = next_key(key);
        }
        counter
    }

    /// The bits of the indices from `first` on as two numbers of 64 each, in a loop that the compiler vectorises: of index
    /// `first + i` the first two words make up `low[i]`, the others `high[i]`, in both the first of them upper.
    #[inline(always)]
    pub fn words(&self, first: u64, low: &mut [u64], high: &mut [u64]) {
        /// Numbers of 32 bits lie in lanes of 64, whose upper halves nothing looks at.
        const LOWER: u64 = u32::MAX as u64;
        let multipliers = MULTIPLIERS.map(u64::from);
        let (mut key, mut keys) = (halves(self.seed), [[0u64; 2]; ROUNDS]);
        for slot in &mut keys {
            *slot = key.map(u64::from);
            key = next_key(key);
        }
        let [c, d] = halves(self.call).map(u64::from);
        for (i, (low, high)) in low.iter_mut().zip(high).enumerate() {
            let index = first.wrapping_add(i as u64);
            let mut counter = [index, index >> 32, c, d];
            for key in &keys {
                let first = multipliers[0].wrapping_mul(counter[0] & LOWER);
                let second = multipliers[1].wrapping_mul(counter[2] & LOWER);
                counter = [
                    (second >> 32) ^ counter[1] ^ key[0],
                    second,
                    (first >> 32) ^ counter[3] ^ key[1],
                    first,
                ];
            }
            *low = counter[0] << 32 | counter[1] & LOWER;
            *high = counter[2] << 32 | counter[3] & LOWER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_philox() {
        // Known answers of the paper's reference implementation.
        let zeros = RandomDraws { seed: 0, call: 0 };
        assert_eq!(zeros.bits(0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = RandomDraws { seed: u64::MAX, call: u64::MAX };
        assert_eq!(ones.bits(u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn words_are_the_bits_of_their_indices() {
        for draws in
            [RandomDraws { seed: 1 << 40 | 7, call: 3 << 33 | 5 }, RandomDraws { seed: 0, call: u64::MAX }]
        {
            for first in [0, 5, u64::from(u32::MAX) - 3, u64::MAX - 2] {
                let (mut low, mut high) = ([0; 13], [0; 13]);
                draws.words(first, &mut low, &mut high);
                for i in 0..13 {
                    let [a, b, c, d] = draws.bits(first.wrapping_add(i as u64)).map(u64::from);
                    assert_eq!((low[i], high[i]), (a << 32 | b, c << 32 | d), "{first} {i}");
                }
            }
        }
    }

    #[test]
    fn calls_and_seeds_differ() {
        let mut stream = RandomStream::new(7);
        let (first, second) = (stream.next_call(), stream.next_call());
        assert_ne!(first.bits(0), second.bits(0));
        assert_eq!(RandomStream::new(7).next_call(), first);
        assert_ne!(RandomStream::new(8).next_call().bits(0), first.bits(0));
        assert_ne!(RandomStream::from_system(), RandomStream::from_system());
    }
}
