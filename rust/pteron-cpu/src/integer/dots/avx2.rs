//! [`Dots`] with 256 bits: plain AVX2, which widens bytes to 16 bits so that no sum saturates, and AVX-VNNI.

use super::vectors::{Dots, Narrowing, TapDots, padded};
use std::arch::asm;
use std::arch::x86_64::*;

const LANES: usize = 8;

/// Products in 16 bits, pairs of them in 32.
#[derive(Clone, Copy)]
pub(in crate::integer) struct Avx2;

/// Dot products of bytes.
#[derive(Clone, Copy)]
pub(in crate::integer) struct AvxVnni;

/// The methods that both have.
macro_rules! common {
    () => {
        const LANES: usize = LANES;
        type I = __m256i;
        type F = __m256;

        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn splat_i(v: i32) -> __m256i {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_set1_epi32(v) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load_i(p: *const i32) -> __m256i {
            // SAFETY: the caller promises AVX2 and `LANES` readable elements.
            unsafe { _mm256_loadu_si256(p.cast()) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_i(p: *mut i32, v: __m256i) {
            // SAFETY: the caller promises AVX2 and `LANES` writable elements.
            unsafe { _mm256_storeu_si256(p.cast(), v) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add_i(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_add_epi32(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn mul_i(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_mullo_epi32(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn to_float(a: __m256i) -> __m256 {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_cvtepi32_ps(a) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn nearest(a: __m256) -> __m256i {
            // SAFETY: the caller promises AVX2; the processor rounds to nearest, ties to even, unless told otherwise.
            unsafe { _mm256_cvtps_epi32(a) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn round(a: __m256) -> __m256 {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn splat(v: f32) -> __m256 {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_set1_ps(v) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m256 {
            // SAFETY: the caller promises AVX2 and `LANES` readable elements.
            unsafe { _mm256_loadu_ps(p) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_add_ps(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn mul(a: __m256, b: __m256) -> __m256 {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_mul_ps(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn clamp(x: __m256, low: __m256, high: __m256) -> __m256 {
            // The second operand is the answer where one is NaN.
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_min_ps(high, _mm256_max_ps(low, x)) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m256, n: usize) {
            // SAFETY: the caller promises AVX2 and `n` writable elements; a copy of the lanes has `LANES`.
            unsafe {
                if n >= LANES {
                    return _mm256_storeu_ps(p, v);
                }
                let mut lanes = [0f32; LANES];
                _mm256_storeu_ps(lanes.as_mut_ptr(), v);
                p.copy_from_nonoverlapping(lanes.as_ptr(), n);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_bytes(p: *mut u8, v: __m256i, n: usize) {
            // SAFETY: the caller promises AVX2 and `n` writable bytes; eight bytes are stored only where all are.
            unsafe {
                let low = _mm256_and_si256(v, _mm256_set1_epi32(0xff));
                let words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
                let bytes = _mm_packus_epi16(words, words);
                if n >= LANES {
                    return _mm_storel_epi64(p.cast(), bytes);
                }
                let bytes = _mm_cvtsi128_si64(bytes).to_le_bytes();
                p.copy_from_nonoverlapping(bytes.as_ptr(), n);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load_bytes(p: *const u8, n: usize, flip: u8) -> __m256i {
            // SAFETY: the caller promises AVX2 and `n` readable bytes; eight bytes are loaded only where all are.
            unsafe {
                let part;
                let from = match n >= LANES {
                    true => p,
                    false => {
                        part = padded::<LANES>(p, n);
                        part.as_ptr()
                    }
                };
                let bytes = _mm_loadl_epi64(from.cast());
                _mm256_cvtepi8_epi32(_mm_xor_si128(bytes, _mm_set1_epi8(flip as i8)))
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn copy(from: *const u8, to: *mut u8, n: usize, flip: u8) {
            // SAFETY: the caller promises AVX2 and `n` bytes in both; every access ends at `n`, and what is written twice
            // is written alike, from bytes that nothing here writes.
            unsafe {
                let mut i = 0;
                let all = _mm256_set1_epi8(flip as i8);
                while i + 32 <= n {
                    let v = _mm256_loadu_si256(from.add(i).cast());
                    _mm256_storeu_si256(to.add(i).cast(), _mm256_xor_si256(v, all));
                    i += 32;
                }
                if i == n {
                    return;
                }
                let half = _mm256_castsi256_si128(all);
                if n >= 32 {
                    let v = _mm256_loadu_si256(from.add(n - 32).cast());
                    _mm256_storeu_si256(to.add(n - 32).cast(), _mm256_xor_si256(v, all));
                } else if n >= 16 {
                    for at in [0, n - 16] {
                        let v = _mm_loadu_si128(from.add(at).cast());
                        _mm_storeu_si128(to.add(at).cast(), _mm_xor_si128(v, half));
                    }
                } else if n >= 8 {
                    for at in [0, n - 8] {
                        let v = _mm_loadl_epi64(from.add(at).cast());
                        _mm_storel_epi64(to.add(at).cast(), _mm_xor_si128(v, half));
                    }
                } else {
                    for at in 0..n {
                        *to.add(at) = *from.add(at) ^ flip;
                    }
                }
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn copy_16(from: *const u8, to: *mut u8, flip: u8) {
            // SAFETY: the caller promises AVX2 and 16 bytes in both.
            unsafe {
                let v = _mm_xor_si128(_mm_loadu_si128(from.cast()), _mm_set1_epi8(flip as i8));
                _mm_storeu_si128(to.cast(), v);
            }
        }
        #[inline(always)]
        fn channel_of(vector: usize, lane: usize) -> usize {
            lane / 4 * 16 + vector * 4 + lane % 4
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_channels(p: *mut u8, v: [__m256i; 4], narrowing: Narrowing) {
            // Packing goes lane by lane of 128 bits, as the interleaving did.
            // SAFETY: the caller promises AVX2 and `4 * LANES` writable bytes.
            unsafe { _mm256_storeu_si256(p.cast(), narrowed(v, narrowing)) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_halves(to: [*mut u8; 2], v: [__m256i; 4], narrowing: Narrowing) {
            // SAFETY: the caller promises AVX2 and `2 * LANES` writable bytes at each pointer.
            unsafe {
                let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                let bytes = _mm256_permutevar8x32_epi32(narrowed(v, narrowing), order);
                _mm_storeu_si128(to[0].cast(), _mm256_castsi256_si128(bytes));
                _mm_storeu_si128(to[1].cast(), _mm256_extracti128_si256::<1>(bytes));
            }
        }
    };
}

/// Bytes of four vectors, lane by lane of 128 bits: four of each vector.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn narrowed(v: [__m256i; 4], narrowing: Narrowing) -> __m256i {
    let Narrowing { zero, low, high, flip } = narrowing;
    // Every step saturates, so numbers beyond the limits end at them.
    // SAFETY: the caller promises AVX2.
    unsafe {
        let zero = _mm256_set1_epi16(zero);
        let words = [
            _mm256_adds_epi16(_mm256_packs_epi32(v[0], v[1]), zero),
            _mm256_adds_epi16(_mm256_packs_epi32(v[2], v[3]), zero),
        ];
        let bytes = _mm256_packs_epi16(words[0], words[1]);
        let limited = _mm256_min_epi8(_mm256_max_epi8(bytes, _mm256_set1_epi8(low)), _mm256_set1_epi8(high));
        _mm256_xor_si256(limited, _mm256_set1_epi8(flip as i8))
    }
}

/// Quads of 32 channels from four taps: lane by lane of 128 bits, four channels of each in a vector.
///
/// # Safety
/// The processor has AVX2; each pointer is to 32 readable bytes.
#[inline(always)]
unsafe fn quads(taps: [*const u8; 4], flip: u8) -> [__m256i; 4] {
    // SAFETY: the caller promises AVX2 and the bytes.
    unsafe {
        let flip = _mm256_set1_epi8(flip as i8);
        let a = _mm256_xor_si256(_mm256_loadu_si256(taps[0].cast()), flip);
        let b = _mm256_xor_si256(_mm256_loadu_si256(taps[1].cast()), flip);
        let c = _mm256_xor_si256(_mm256_loadu_si256(taps[2].cast()), flip);
        let d = _mm256_xor_si256(_mm256_loadu_si256(taps[3].cast()), flip);
        let (ab, cd) = (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d));
        [
            _mm256_unpacklo_epi16(ab, cd),
            _mm256_unpackhi_epi16(ab, cd),
            _mm256_unpacklo_epi16(ab_high, cd_high),
            _mm256_unpackhi_epi16(ab_high, cd_high),
        ]
    }
}

/// `sums` and products of pairs of 16 bits. Not by intrinsics: the compiler would add the products of several parts first, and
/// have no registers for them.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sum_of_pairs(mut sums: __m256i, inputs: __m256i, weights: __m256i) -> __m256i {
    // SAFETY: the caller promises AVX2; registers alone are touched.
    unsafe {
        asm!(
            "vpmaddwd {products}, {inputs}, {weights}",
            "vpaddd {sums}, {sums}, {products}",
            products = out(ymm_reg) _, sums = inout(ymm_reg) sums,
            inputs = in(ymm_reg) inputs, weights = in(ymm_reg) weights,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

impl Dots for Avx2 {
    const CHAINS: usize = 1;
    // The first and the third product of a quad, then the others: what are pairs of 16 bits in one are so in the other, and
    // sums need no adding up in the end.
    const PARTS: usize = 2;
    const WIDTH: usize = 2;
    type Sums = __m256i;
    type Weights = __m256i;
    type Inputs = __m256i;
    common!();

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller promises AVX2.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn weights<const PART: usize>(p: *const i8) -> __m256i {
        // SAFETY: the caller promises AVX2 and 32 readable bytes.
        unsafe {
            let bytes = _mm256_loadu_si256(p.cast());
            let high = if PART == 0 { _mm256_slli_epi16::<8>(bytes) } else { bytes };
            _mm256_srai_epi16::<8>(high)
        }
    }
    #[inline(always)]
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> __m256i {
        // SAFETY: the caller promises AVX2 and four readable numbers of two bytes, two for each part.
        unsafe { _mm256_set1_epi32(p.cast::<i32>().add(PART).read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn widen(from: *const u8, to: *mut u8) {
        // SAFETY: the caller promises AVX2, 16 readable bytes and 32 writable ones.
        unsafe {
            let order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
            let bytes = _mm_shuffle_epi8(_mm_loadu_si128(from.cast()), order);
            _mm256_storeu_si256(to.cast(), _mm256_cvtepu8_epi16(bytes));
        }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m256i, inputs: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: the caller promises AVX2.
        unsafe { sum_of_pairs(sums, inputs, weights) }
    }
    #[inline(always)]
    unsafe fn add_sums(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller promises AVX2.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn lanes(sums: __m256i) -> __m256i {
        sums
    }
}

impl Dots for AvxVnni {
    const CHAINS: usize = 8;
    type Sums = __m256i;
    type Weights = __m256i;
    type Inputs = __m256i;
    common!();

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller promises AVX2.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn weights<const PART: usize>(p: *const i8) -> __m256i {
        // SAFETY: the caller promises AVX2 and 32 readable bytes.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> __m256i {
        // SAFETY: the caller promises AVX2 and four readable bytes.
        unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m256i, inputs: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: the caller promises AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sums, inputs, weights) }
    }
    #[inline(always)]
    unsafe fn add_sums(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller promises AVX2.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn lanes(sums: __m256i) -> __m256i {
        sums
    }
}

impl TapDots for AvxVnni {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [__m256i; 4] {
        // SAFETY: the caller promises AVX2 and the bytes.
        unsafe { quads(taps, flip) }
    }
}
