//! [`Dots`] with 512 bits: AVX-512 BW, which widens bytes to 16 bits so that no sum saturates, and AVX-512 VNNI.

use super::avx2::Avx2;
use super::vectors::{Dots, Narrowing, TapDots};
use std::arch::x86_64::*;

const LANES: usize = 16;

/// Products in 16 bits, pairs of them in 32.
#[derive(Clone, Copy)]
pub(in crate::integer) struct Avx512;

/// Dot products of bytes.
#[derive(Clone, Copy)]
pub(in crate::integer) struct Avx512Vnni;

/// The first `n` of 16 lanes.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    if n >= LANES { u16::MAX } else { (1u16 << n) - 1 }
}

/// The methods that both have.
macro_rules! common {
    () => {
        const LANES: usize = LANES;
        type I = __m512i;
        type F = __m512;

        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn splat_i(v: i32) -> __m512i {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_set1_epi32(v) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load_i(p: *const i32) -> __m512i {
            // SAFETY: the caller promises AVX-512 and `LANES` readable elements.
            unsafe { _mm512_loadu_si512(p.cast()) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_i(p: *mut i32, v: __m512i) {
            // SAFETY: the caller promises AVX-512 and `LANES` writable elements.
            unsafe { _mm512_storeu_si512(p.cast(), v) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add_i(a: __m512i, b: __m512i) -> __m512i {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_add_epi32(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn mul_i(a: __m512i, b: __m512i) -> __m512i {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_mullo_epi32(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn to_float(a: __m512i) -> __m512 {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_cvtepi32_ps(a) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn nearest(a: __m512) -> __m512i {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_cvt_roundps_epi32::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn round(a: __m512) -> __m512 {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn splat(v: f32) -> __m512 {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_set1_ps(v) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m512 {
            // SAFETY: the caller promises AVX-512 and `LANES` readable elements.
            unsafe { _mm512_loadu_ps(p) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_add_ps(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_mul_ps(a, b) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn clamp(x: __m512, low: __m512, high: __m512) -> __m512 {
            // The second operand is the answer where one is NaN.
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_min_ps(high, _mm512_max_ps(low, x)) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m512, n: usize) {
            // SAFETY: the caller promises AVX-512 and `n` writable elements; masked lanes are not written.
            unsafe {
                if n >= LANES {
                    return _mm512_storeu_ps(p, v);
                }
                _mm512_mask_storeu_ps(p, first(n), v);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_bytes(p: *mut u8, v: __m512i, n: usize) {
            // SAFETY: the caller promises AVX-512 and `n` writable bytes; masked bytes are not written.
            unsafe {
                let bytes = _mm512_cvtepi32_epi8(v);
                if n >= LANES {
                    return _mm_storeu_si128(p.cast(), bytes);
                }
                if n == LANES / 2 {
                    return _mm_storel_epi64(p.cast(), bytes);
                }
                _mm_mask_storeu_epi8(p.cast(), first(n), bytes);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load_bytes(p: *const u8, n: usize, flip: u8) -> __m512i {
            // SAFETY: the caller promises AVX-512 and `n` readable bytes; masked bytes are not read.
            unsafe {
                let bytes = match n >= LANES {
                    true => _mm_loadu_si128(p.cast()),
                    false => _mm_maskz_loadu_epi8(first(n), p.cast()),
                };
                _mm512_cvtepi8_epi32(_mm_xor_si128(bytes, _mm_set1_epi8(flip as i8)))
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn copy(from: *const u8, to: *mut u8, n: usize, flip: u8) {
            // Masked stores of bytes are slow on some processors.
            // SAFETY: the caller promises AVX-512 and `n` bytes in both; every access ends at `n`, and what is written twice
            // is written alike, from bytes that nothing here writes.
            unsafe {
                if n < 64 {
                    return Avx2::copy(from, to, n, flip);
                }
                let flip = _mm512_set1_epi8(flip as i8);
                let mut i = 0;
                while i + 64 <= n {
                    let v = _mm512_loadu_si512(from.add(i).cast());
                    _mm512_storeu_si512(to.add(i).cast(), _mm512_xor_si512(v, flip));
                    i += 64;
                }
                if i < n {
                    let v = _mm512_loadu_si512(from.add(n - 64).cast());
                    _mm512_storeu_si512(to.add(n - 64).cast(), _mm512_xor_si512(v, flip));
                }
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn copy_16(from: *const u8, to: *mut u8, flip: u8) {
            // SAFETY: the caller promises AVX-512 and 16 bytes in both.
            unsafe { Avx2::copy_16(from, to, flip) }
        }
        #[inline(always)]
        fn channel_of(vector: usize, lane: usize) -> usize {
            lane / 4 * 16 + vector * 4 + lane % 4
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_channels(p: *mut u8, v: [__m512i; 4], narrowing: Narrowing) {
            // Packing goes lane by lane of 128 bits, as the interleaving did.
            // SAFETY: the caller promises AVX-512 and `4 * LANES` writable bytes.
            unsafe { _mm512_storeu_si512(p.cast(), narrowed(v, narrowing)) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_halves(to: [*mut u8; 2], v: [__m512i; 4], narrowing: Narrowing) {
            // SAFETY: the caller promises AVX-512 and `2 * LANES` writable bytes at each pointer.
            unsafe {
                let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
                let bytes = _mm512_permutexvar_epi32(order, narrowed(v, narrowing));
                _mm256_storeu_si256(to[0].cast(), _mm512_castsi512_si256(bytes));
                _mm256_storeu_si256(to[1].cast(), _mm512_extracti64x4_epi64::<1>(bytes));
            }
        }
    };
}

/// Bytes of four vectors, lane by lane of 128 bits: four of each vector.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn narrowed(v: [__m512i; 4], narrowing: Narrowing) -> __m512i {
    let Narrowing { zero, low, high, flip } = narrowing;
    // Every step saturates, so numbers beyond the limits end at them.
    // SAFETY: the caller promises AVX-512.
    unsafe {
        let zero = _mm512_set1_epi16(zero);
        let words = [
            _mm512_adds_epi16(_mm512_packs_epi32(v[0], v[1]), zero),
            _mm512_adds_epi16(_mm512_packs_epi32(v[2], v[3]), zero),
        ];
        let bytes = _mm512_packs_epi16(words[0], words[1]);
        let limited = _mm512_min_epi8(_mm512_max_epi8(bytes, _mm512_set1_epi8(low)), _mm512_set1_epi8(high));
        _mm512_xor_si512(limited, _mm512_set1_epi8(flip as i8))
    }
}

/// Bytes in 16 bits: those of the lower half, those of the upper half.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn widened(v: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller promises AVX-512.
    unsafe {
        [
            _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)),
            _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(v)),
        ]
    }
}

/// Quads of 64 channels from four taps: lane by lane of 128 bits, four channels of each in a vector.
///
/// # Safety
/// The processor has AVX-512; each pointer is to 64 readable bytes.
#[inline(always)]
unsafe fn quads(taps: [*const u8; 4], flip: u8) -> [__m512i; 4] {
    // SAFETY: the caller promises AVX-512 and the bytes.
    unsafe {
        let flip = _mm512_set1_epi8(flip as i8);
        let a = _mm512_xor_si512(_mm512_loadu_si512(taps[0].cast()), flip);
        let b = _mm512_xor_si512(_mm512_loadu_si512(taps[1].cast()), flip);
        let c = _mm512_xor_si512(_mm512_loadu_si512(taps[2].cast()), flip);
        let d = _mm512_xor_si512(_mm512_loadu_si512(taps[3].cast()), flip);
        let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
        [
            _mm512_unpacklo_epi16(ab, cd),
            _mm512_unpackhi_epi16(ab, cd),
            _mm512_unpacklo_epi16(ab_high, cd_high),
            _mm512_unpackhi_epi16(ab_high, cd_high),
        ]
    }
}

impl Dots for Avx512 {
    const CHAINS: usize = 1;
    // Of the lower and of the upper eight columns, two sums each.
    type Sums = [__m512i; 2];
    type Weights = [__m512i; 2];
    type Inputs = [__m512i; 2];
    common!();

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        // SAFETY: the caller promises AVX-512.
        unsafe { [_mm512_setzero_si512(); 2] }
    }
    #[inline(always)]
    unsafe fn weights<const PART: usize>(p: *const i8) -> Self::Weights {
        // SAFETY: the caller promises AVX-512 and 64 readable bytes.
        unsafe {
            [
                _mm512_cvtepi8_epi16(_mm256_loadu_si256(p.cast())),
                _mm512_cvtepi8_epi16(_mm256_loadu_si256(p.add(32).cast())),
            ]
        }
    }
    #[inline(always)]
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> Self::Inputs {
        // SAFETY: the caller promises AVX-512 and four readable bytes.
        unsafe { [_mm512_cvtepu8_epi16(_mm256_set1_epi32(p.cast::<i32>().read_unaligned())); 2] }
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, inputs: Self::Inputs, weights: Self::Weights) -> Self::Sums {
        // SAFETY: the caller promises AVX-512.
        unsafe {
            [
                _mm512_add_epi32(sums[0], _mm512_madd_epi16(inputs[0], weights[0])),
                _mm512_add_epi32(sums[1], _mm512_madd_epi16(inputs[1], weights[1])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn add_sums(a: Self::Sums, b: Self::Sums) -> Self::Sums {
        // SAFETY: the caller promises AVX-512.
        unsafe { [_mm512_add_epi32(a[0], b[0]), _mm512_add_epi32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn lanes(sums: Self::Sums) -> __m512i {
        // SAFETY: the caller promises AVX-512.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_add_epi32(
                _mm512_permutex2var_epi32(sums[0], even, sums[1]),
                _mm512_permutex2var_epi32(sums[0], odd, sums[1]),
            )
        }
    }
}

impl TapDots for Avx512 {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [Self::Inputs; 4] {
        // SAFETY: the caller promises AVX-512 and the bytes.
        unsafe {
            let [a, b, c, d] = quads(taps, flip);
            [widened(a), widened(b), widened(c), widened(d)]
        }
    }
}

impl Dots for Avx512Vnni {
    const CHAINS: usize = 8;
    const FETCHES: bool = false;
    type Sums = __m512i;
    type Weights = __m512i;
    type Inputs = __m512i;
    common!();

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the caller promises AVX-512.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn weights<const PART: usize>(p: *const i8) -> __m512i {
        // SAFETY: the caller promises AVX-512 and 64 readable bytes.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> __m512i {
        // SAFETY: the caller promises AVX-512 and four readable bytes.
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m512i, inputs: __m512i, weights: __m512i) -> __m512i {
        // SAFETY: the caller promises AVX-512 VNNI.
        unsafe { _mm512_dpbusd_epi32(sums, inputs, weights) }
    }
    #[inline(always)]
    unsafe fn add_sums(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller promises AVX-512.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn lanes(sums: __m512i) -> __m512i {
        sums
    }
}

impl TapDots for Avx512Vnni {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [__m512i; 4] {
        // SAFETY: the caller promises AVX-512 and the bytes.
        unsafe { quads(taps, flip) }
    }
}
