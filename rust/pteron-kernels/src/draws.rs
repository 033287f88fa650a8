//! Random numbers of several distributions by index, from the bits that a call draws.
//!
//! What is a number of one word, or a pair of two, is a function of its own, for one index and for blocks of them
//! ([`blocks`]) alike. Their logarithms, sines and cosines round every product: a seed gives the same numbers on every
//! instruction set.

pub mod blocks;

use crate::vector_math::double::log;
use crate::vector_math::portable::Portable;
use crate::vector_math::sine_pair::sin_cos;
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

/// Uniform in `[0, 1)`: a multiple of `2^-bits`, of which a float has to hold no more.
#[inline(always)]
pub fn uniform(word: u64, bits: u32) -> f64 {
    (word >> (64 - bits)) as f64 / (1u64 << bits) as f64
}

/// Uniform in `(0, 1]`, for logarithms.
#[inline(always)]
pub fn above_zero(word: u64) -> f64 {
    ((word >> 11) + 1) as f64 * ULP
}

/// The logarithm of a uniform number.
#[inline(always)]
pub fn log_of_uniform(word: u64) -> f64 {
    log(Portable, above_zero(word))
}

/// Uniform among `0..count`, which must not be zero; 0 stands for 2^64.
#[inline(always)]
pub fn below(word: u64, count: u64) -> u64 {
    if count == 0 { word } else { ((u128::from(word) * u128::from(count)) >> 64) as u64 }
}

/// Two standard normal numbers (Box and Muller's transformation of two uniform ones).
#[inline(always)]
pub fn normal_pair(words: [u64; 2]) -> [f64; 2] {
    let radius = (-2.0 * log_of_uniform(words[0])).sqrt();
    let (sin, cos) = sin_cos(std::f64::consts::TAU * uniform(words[1], 53));
    [radius * cos, radius * sin]
}

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

    /// [`uniform`].
    #[inline]
    pub fn uniform(&mut self, index: u64, bits: u32) -> f64 {
        uniform(self.word(index), bits)
    }

    /// [`above_zero`].
    #[inline]
    pub fn above_zero(&mut self, index: u64) -> f64 {
        above_zero(self.word(index))
    }

    /// [`log_of_uniform`].
    #[inline]
    pub fn log_of_uniform(&mut self, index: u64) -> f64 {
        log_of_uniform(self.word(index))
    }

    /// [`below`].
    #[inline]
    pub fn below(&mut self, index: u64, count: u64) -> u64 {
        below(self.word(index), count)
    }

    /// Standard normal.
    #[inline]
    pub fn normal(&mut self, index: u64) -> f64 {
        self.load(index / 2);
        let words = self.words;
        let pair = self.normals.get_or_insert_with(|| normal_pair(words));
        pair[(index % 2) as usize]
    }
}
