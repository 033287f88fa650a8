//! Pseudo-random numbers of a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
//! 2014), small and good enough to pick shapes and bytes.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of numbers that depend on its seed alone.
pub struct PseudoRandom(u64);

impl PseudoRandom {
    /// Numbers of a seed.
    pub fn new(seed: u64) -> Self {
        PseudoRandom(seed)
    }

    /// Numbers of one of many that are counted: neighbours have nothing in common.
    pub fn of_number(number: u64) -> Self {
        let mut out = PseudoRandom(number.wrapping_mul(STEP));
        out.word();
        out
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// From -1 up to 1.
    pub fn float(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// One of `list`, which is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
