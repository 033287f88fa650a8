//! What [`super::depthwise_pixels`] computes, for AVX2 alone, which has no dot products of bytes: pairs of taps in 16 bits, two pairs
//! for a quad, so that sums of products are those of channels. A column of a window is brought together once and
//! added to all pixels that have it at once, so that columns need no registers. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride")]

use super::depthwise_pixels::{DepthwisePixels, Parameters, Pixels, QUAD, write};
use super::dots::Avx2;
use std::arch::x86_64::*;

/// Vectors of a block.
const VECTORS: usize = 4;
/// Numbers of a vector of weights.
const WIDE: usize = 16;

/// Sums of a block, in the order of [`super::dots::Dots::channel_of`].
type Sums = [__m256i; VECTORS];

impl DepthwisePixels for Avx2 {
    /// For each quad of taps and each vector a vector of the first two taps and one of the others.
    fn tap_place(t: usize, i: usize) -> usize {
        let (quad, in_quad) = (t / QUAD, t % QUAD);
        let (vector, lane) = (i / (WIDE / 2), i % (WIDE / 2));
        ((quad * VECTORS + vector) * 2 + in_quad / 2) * WIDE + lane * 2 + in_quad % 2
    }

    #[inline(always)]
    unsafe fn pixels(p: &Pixels<'_>) {
        for block in p.blocks {
            let block = &Parameters::of(block);
            let is_three = p.taps.len() == 3 * QUAD;
            // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
            unsafe {
                match (p.column_step, p.is_bounded) {
                    (1, true) if is_three => neighbours::<true>(p, block),
                    (1, false) if is_three => neighbours::<false>(p, block),
                    (2, true) if is_three => every_other::<true>(p, block),
                    (2, false) if is_three => every_other::<false>(p, block),
                    _ => one_by_one(p, block),
                }
            }
        }
    }
}

/// Pairs of taps of 32 channels, as bytes: the first two taps, and the others, of channels from the lower and from the upper
/// half of each lane of 128 bits.
#[derive(Clone, Copy)]
struct Quad {
    first: [__m256i; 2],
    second: [__m256i; 2],
}

/// Quad `q` of the taps of pixel `i`.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn quad(p: &Pixels<'_>, block: &Parameters, q: usize, i: usize) -> Quad {
    let taps = p.taps.as_ptr().wrapping_add(q * QUAD);
    // SAFETY: the caller promises AVX2 and the channels of the block at every tap of the quad.
    unsafe {
        let flip = _mm256_set1_epi8(p.flip as i8);
        let tap = |j: usize| {
            let channels = (*taps.wrapping_add(j)).channels(i, block.channel);
            _mm256_xor_si256(flip, _mm256_loadu_si256(channels.cast()))
        };
        let [a, b, c, d] = [tap(0), tap(1), tap(2), tap(3)];
        Quad {
            first: [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)],
            second: [_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d)],
        }
    }
}

impl Quad {
    /// The pairs of vector `v`, in 16 bits.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn vector(&self, v: usize) -> [__m256i; 2] {
        let (first, second) = (self.first[v / 2], self.second[v / 2]);
        // SAFETY: the caller promises AVX2.
        unsafe {
            let zero = _mm256_setzero_si256();
            match v % 2 {
                0 => [_mm256_unpacklo_epi8(first, zero), _mm256_unpacklo_epi8(second, zero)],
                _ => [_mm256_unpackhi_epi8(first, zero), _mm256_unpackhi_epi8(second, zero)],
            }
        }
    }
}

/// Products of vector `v` of a quad with the weights of quad `q`.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn products(block: &Parameters, q: usize, v: usize, [first, second]: [__m256i; 2]) -> __m256i {
    // SAFETY: the caller promises AVX2 and two vectors of weights for each quad and vector.
    unsafe {
        let weights = block.weights.cast::<__m256i>().add((q * VECTORS + v) * 2);
        let products = _mm256_madd_epi16(first, _mm256_load_si256(weights));
        _mm256_add_epi32(products, _mm256_madd_epi16(second, _mm256_load_si256(weights.add(1))))
    }
}

/// Evaluates an expression for each vector.
macro_rules! each_vector {
    ($v:ident => $body:expr) => {
        [
            {
                const $v: usize = 0;
                $body
            },
            {
                const $v: usize = 1;
                $body
            },
            {
                const $v: usize = 2;
                $body
            },
            {
                const $v: usize = 3;
                $body
            },
        ]
    };
}

/// `sums` and the products of the quad with the weights of quad `q`.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn add(sums: Sums, block: &Parameters, q: usize, taps: &Quad) -> Sums {
    // SAFETY: the caller promises AVX2, and weights for the quad.
    unsafe { each_vector!(V => _mm256_add_epi32(sums[V], products(block, q, V, taps.vector(V)))) }
}

/// The pixels one by one.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn one_by_one(p: &Pixels<'_>, block: &Parameters) {
    for i in 0..p.count {
        // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
        unsafe {
            let mut sums = [_mm256_setzero_si256(); VECTORS];
            for q in 0..p.taps.len() / QUAD {
                sums = add(sums, block, q, &quad(p, block, q, i));
            }
            write::<Avx2, false>(p, block, sums, i);
        }
    }
}

/// Pixels whose windows begin a column after each other: every column is the last of one, the middle of the next and the
/// first of the one behind it.
///
/// # Safety
/// As [`DepthwisePixels::pixels`]; the taps are three quads. `BOUNDED`: as [`Pixels::is_bounded`].
#[inline(always)]
unsafe fn neighbours<const BOUNDED: bool>(p: &Pixels<'_>, block: &Parameters) {
    // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
    unsafe {
        let (first, second) = (quad(p, block, 0, 0), quad(p, block, 1, 0));
        let mut next = each_vector!(V => products(block, 0, V, first.vector(V)));
        next = add(next, block, 1, &second);
        let mut behind = each_vector!(V => products(block, 0, V, second.vector(V)));
        for i in 0..p.count {
            let column = quad(p, block, 2, i);
            let sums = each_vector!(V => {
                let taps = column.vector(V);
                let sum = _mm256_add_epi32(next[V], products(block, 2, V, taps));
                next[V] = _mm256_add_epi32(behind[V], products(block, 1, V, taps));
                behind[V] = products(block, 0, V, taps);
                sum
            });
            write::<Avx2, BOUNDED>(p, block, sums, i);
        }
    }
}

/// Pixels whose windows begin two columns after each other: the last column of one is the first of the next.
///
/// # Safety
/// As [`DepthwisePixels::pixels`]; the taps are three quads. `BOUNDED`: as [`Pixels::is_bounded`].
#[inline(always)]
unsafe fn every_other<const BOUNDED: bool>(p: &Pixels<'_>, block: &Parameters) {
    // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
    unsafe {
        let first = quad(p, block, 0, 0);
        let mut next = each_vector!(V => products(block, 0, V, first.vector(V)));
        for i in 0..p.count {
            next = add(next, block, 1, &quad(p, block, 1, i));
            let column = quad(p, block, 2, i);
            let sums = each_vector!(V => {
                let taps = column.vector(V);
                let sum = _mm256_add_epi32(next[V], products(block, 2, V, taps));
                next[V] = products(block, 0, V, taps);
                sum
            });
            write::<Avx2, BOUNDED>(p, block, sums, i);
        }
    }
}
