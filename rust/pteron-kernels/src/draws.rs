//! Random numbers of several distributions by index, from the bits that a call draws.

use pteron_core::RandomDraws;

/// 53 random bits for two indices at a time, the last two kept: neighbours share a block of bits.
pub struct Draws {
    source: RandomDraws,
    block: Option<u64>,
    words: [u64; 2],
    normals: Option<[f64; 2]>,
}

/// 2^-53.
const ULP: f64 = 1.0 / (1u64 << 53) as f64;

impl Draws {
    /// Numbers of one call.
    pub fn new(source: RandomDraws) -> Self {
        Draws { source, block: None, words: [0; 2], normals: None }
    }

    fn load(&mut self, block: u64) {
        if self.block != Some(block) {
            let [a, b, c, d] = self.source.bits(block);
            self.words = [u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(d)];
            self.block = Some(block);
            self.normals = None;
        }
    }

    /// 64 random bits.
    #[inline]
    pub fn word(&mut self, index: u64) -> u64 {
        self.load(index / 2);
        self.words[(index % 2) as usize]
    }

    /// Uniform in `[0, 1)`: a multiple of `2^-bits`, of which a float has to hold no more.
    #[inline]
    pub fn uniform(&mut self, index: u64, bits: u32) -> f64 {
        (self.word(index) >> (64 - bits)) as f64 / (1u64 << bits) as f64
    }

    /// Uniform in `(0, 1]`, for logarithms.
    #[inline]
    pub fn above_zero(&mut self, index: u64) -> f64 {
        ((self.word(index) >> 11) + 1) as f64 * ULP
    }

    /// Uniform among `0..count`, which must not be zero; 0 stands for 2^64.
    #[inline]
    pub fn below(&mut self, index: u64, count: u64) -> u64 {
        let word = self.word(index);
        if count == 0 { word } else { ((u128::from(word) * u128::from(count)) >> 64) as u64 }
    }

    /// Standard normal (Box and Muller's transformation of two uniform numbers into two normal ones).
    #[inline]
    pub fn normal(&mut self, index: u64) -> f64 {
        self.load(index / 2);
        let words = self.words;
        let pair = self.normals.get_or_insert_with(|| {
            let radius = (-2.0 * (((words[0] >> 11) + 1) as f64 * ULP).ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * ((words[1] >> 11) as f64 * ULP)).sin_cos();
            [radius * cos, radius * sin]
        });
        pair[(index % 2) as usize]
    }
}
