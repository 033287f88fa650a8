//! Bytes read as decisions. When they are used up every further decision is the first one, so that any
//! prefix of an input is an input, and a mutated byte changes one decision.

use crate::pseudo_random::PseudoRandom;

/// A source of decisions.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions out of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices { bytes }
    }

    /// The next byte, 0 at the end.
    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `n`; 0 for `n` of 0.
    pub fn below(&mut self, n: usize) -> usize {
        let mut value = usize::from(self.byte());
        if n > 256 {
            value = value << 8 | usize::from(self.byte());
        }
        value % n.max(1)
    }

    /// True in about `percent` of 100 cases, and never at the end of the bytes.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) + percent >= 100
    }

    /// One of `list`, which is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Eight bytes.
    pub fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Pseudo-random bytes of a seed, for running a target without a fuzzer.
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = PseudoRandom::new(seed);
    let mut out = Vec::new();
    while out.len() < len {
        out.extend_from_slice(&random.word().to_le_bytes());
    }
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_the_first_choice() {
        let mut choices = Choices::new(&[7, 1, 2]);
        assert_eq!(choices.below(5), 2);
        assert_eq!(choices.below(1000), 258);
        assert_eq!(choices.pick(&["a", "b"]), "a");
        assert!(!choices.chance(99));
        assert_eq!(choices.word(), 0);
    }
}
