//! [`Simd`] with AVX2, FMA and F16C. Unsafe island: every block relies on [`Avx2`] being made only inside
//! [`enter`], whose callers have detected the features.

use super::intrinsics::{memory, pure};
use super::look_up::look_up;
use super::simd::{Simd, SimdTask};
use std::arch::x86_64::*;

/// Proof that AVX2, FMA and F16C are there.
#[derive(Clone, Copy)]
pub struct Avx2(());

/// Does the processor have what [`enter`] needs?
pub fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Runs `task` with AVX2 code.
///
/// # Safety
/// [`is_available`] is true.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn enter<T: SimdTask>(task: T) -> T::Output {
    task.run(Avx2(()))
}

#[inline(always)]
fn first(n: usize) -> __m256i {
    // SAFETY: an Avx2 value exists wherever this is called.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    type M = __m256;
    type D = __m256d;
    type L = __m256i;
    const LANES: usize = 8;
    const AT_ONCE: usize = 4;

    pure!(splat(v: f32) -> __m256, _mm256_set1_ps(v));
    memory!(load(p: *const f32) -> __m256, _mm256_loadu_ps(p));
    memory!(load_partial(p: *const f32, n: usize) -> __m256, _mm256_maskload_ps(p, first(n)));
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32, n: usize) -> __m256 {
        if n == 0 {
            return self.splat(0.0);
        }
        let total = 2 * n - 1;
        // SAFETY: 2 n - 1 elements may be read; masked lanes are not.
        unsafe {
            let low = self.load_partial(p, total.min(8));
            // Pointer arithmetic only when elements 8.. exist.
            let high = if total > 8 { self.load_partial(p.add(8), total - 8) } else { self.splat(0.0) };
            let even = _mm256_shuffle_ps::<0b10_00_10_00>(low, high);
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(even)))
        }
    }
    memory!(store(p: *mut f32, v: __m256), _mm256_storeu_ps(p, v));
    memory!(store_partial(p: *mut f32, v: __m256, n: usize), _mm256_maskstore_ps(p, first(n), v));
    pure!(add(a: __m256, b: __m256) -> __m256, _mm256_add_ps(a, b));
    pure!(sub(a: __m256, b: __m256) -> __m256, _mm256_sub_ps(a, b));
    pure!(mul(a: __m256, b: __m256) -> __m256, _mm256_mul_ps(a, b));
    pure!(div(a: __m256, b: __m256) -> __m256, _mm256_div_ps(a, b));
    pure!(fma(a: __m256, b: __m256, c: __m256) -> __m256, _mm256_fmadd_ps(a, b, c));
    pure!(fnma(a: __m256, b: __m256, c: __m256) -> __m256, _mm256_fnmadd_ps(a, b, c));
    pure!(min(a: __m256, b: __m256) -> __m256, _mm256_min_ps(a, b));
    pure!(max(a: __m256, b: __m256) -> __m256, _mm256_max_ps(a, b));
    pure!(abs(a: __m256) -> __m256, _mm256_andnot_ps(_mm256_set1_ps(-0.0), a));
    pure!(neg(a: __m256) -> __m256, _mm256_xor_ps(_mm256_set1_ps(-0.0), a));
    pure!(sqrt(a: __m256) -> __m256, _mm256_sqrt_ps(a));
    pure!(round(a: __m256) -> __m256, _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a));
    #[inline(always)]
    fn scale2(self, a: __m256, n: __m256) -> __m256 {
        // Half of n goes to the exponent of `a`, which stays a normal number; the other half is a factor, and the only
        // rounding. A NaN's n is the smallest integer, of which nothing reaches the exponent.
        // SAFETY: `self` proves the features.
        unsafe {
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let rest = _mm256_add_epi32(_mm256_sub_epi32(n, half), _mm256_set1_epi32(127));
            let scaled = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32::<23>(half));
            _mm256_mul_ps(_mm256_castsi256_ps(scaled), _mm256_castsi256_ps(_mm256_slli_epi32::<23>(rest)))
        }
    }
    pure!(scale2_normal(a: __m256, n: __m256) -> __m256, {
        let n = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n))
    });
    pure!(splat_d(v: f64) -> __m256d, _mm256_set1_pd(v));
    memory!(load_d(p: *const f64) -> __m256d, _mm256_loadu_pd(p));
    memory!(store_d(p: *mut f64, v: __m256d), _mm256_storeu_pd(p, v));
    pure!(fma_d(a: __m256d, b: __m256d, c: __m256d) -> __m256d, _mm256_fmadd_pd(a, b, c));
    pure!(splat_l(v: i64) -> __m256i, _mm256_set1_epi64x(v));
    memory!(load_l(p: *const i64) -> __m256i, _mm256_loadu_si256(p.cast()));
    memory!(store_l(p: *mut i64, v: __m256i), _mm256_storeu_si256(p.cast(), v));
    pure!(add_l(a: __m256i, b: __m256i) -> __m256i, _mm256_add_epi64(a, b));
    pure!(mul_l(a: __m256i, b: __m256i) -> __m256i, {
        // The products of the halves that reach the lower 64 bits.
        let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), b);
        let other = _mm256_mul_epu32(a, _mm256_srli_epi64::<32>(b));
        let crossed = _mm256_slli_epi64::<32>(_mm256_add_epi64(high, other));
        _mm256_add_epi64(_mm256_mul_epu32(a, b), crossed)
    });
    pure!(lt(a: __m256, b: __m256) -> __m256, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
    pure!(le(a: __m256, b: __m256) -> __m256, _mm256_cmp_ps::<_CMP_LE_OQ>(a, b));
    pure!(eq(a: __m256, b: __m256) -> __m256, _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b));
    pure!(not(m: __m256) -> __m256, _mm256_xor_ps(m, _mm256_castsi256_ps(_mm256_set1_epi32(-1))));
    pure!(or(a: __m256, b: __m256) -> __m256, _mm256_or_ps(a, b));
    pure!(any(m: __m256) -> bool, _mm256_movemask_ps(m) != 0);
    pure!(select(m: __m256, a: __m256, b: __m256) -> __m256, _mm256_blendv_ps(b, a, m));
    #[inline(always)]
    unsafe fn load_bools(self, p: *const u8, n: usize) -> __m256 {
        let mut bytes = [0u8; 8];
        // SAFETY: n bytes may be read and fit the array.
        unsafe {
            if n >= 8 {
                bytes = p.cast::<[u8; 8]>().read_unaligned();
            } else {
                for (i, b) in bytes.iter_mut().enumerate().take(n) {
                    *b = *p.add(i);
                }
            }
            let wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)));
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()))
        }
    }
    #[inline(always)]
    unsafe fn store_bools(self, p: *mut u8, m: __m256, n: usize) {
        // Multiplying spreads the eight bits over eight bytes; bit i of byte i is what is wanted.
        // SAFETY: `self` proves the features.
        let bits = unsafe { _mm256_movemask_ps(m) } as u64;
        let spread = bits.wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let ones = ((spread.wrapping_add(0x7f7f_7f7f_7f7f_7f7f) | spread) >> 7) & 0x0101_0101_0101_0101;
        let bytes = ones.to_le_bytes();
        // SAFETY: n bytes may be written.
        unsafe {
            if n >= 8 {
                p.cast::<[u8; 8]>().write_unaligned(bytes);
            } else {
                for (i, b) in bytes.iter().enumerate().take(n) {
                    *p.add(i) = *b;
                }
            }
        }
    }
    pure!(to_bits(a: __m256) -> __m256i, _mm256_castps_si256(a));
    pure!(of_bits(a: __m256i) -> __m256, _mm256_castsi256_ps(a));
    pure!(splat_i(v: i32) -> __m256i, _mm256_set1_epi32(v));
    pure!(add_i(a: __m256i, b: __m256i) -> __m256i, _mm256_add_epi32(a, b));
    pure!(mul_i(a: __m256i, b: __m256i) -> __m256i, _mm256_mullo_epi32(a, b));
    pure!(sub_i(a: __m256i, b: __m256i) -> __m256i, _mm256_sub_epi32(a, b));
    pure!(and_i(a: __m256i, b: __m256i) -> __m256i, _mm256_and_si256(a, b));
    pure!(or_i(a: __m256i, b: __m256i) -> __m256i, _mm256_or_si256(a, b));
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_sra_epi32(a, _mm_cvtsi32_si128(N as i32)) }
    }
    memory!(load_i8(p: *const i8) -> __m256i, _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
    memory!(store_i8(p: *mut i8, v: __m256i), {
        let bytes = _mm256_and_si256(v, _mm256_set1_epi32(0xff));
        let words = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        _mm_storel_epi64(p.cast(), _mm_packus_epi16(words, words))
    });
    #[inline(always)]
    fn nibbles(self, a: __m256i) -> (__m256, __m256) {
        // SAFETY: `self` proves the features.
        unsafe {
            let low = _mm256_srai_epi32::<28>(_mm256_slli_epi32::<28>(a));
            let high = _mm256_srai_epi32::<28>(_mm256_slli_epi32::<24>(a));
            (_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: `self` proves the features, and the caller promises the bytes.
        unsafe { look_up(table, from, to, n) }
    }
    memory!(load_binary16(p: *const u16) -> __m256, _mm256_cvtph_ps(_mm_loadu_si128(p.cast())));
    memory!(store_binary16(p: *mut u16, v: __m256), _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)));
    memory!(load_brain16(p: *const u16) -> __m256, {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    });
    memory!(store_brain16(p: *mut u16, v: __m256), {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        // Rounding could carry a NaN into an infinity.
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
        let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
        let packed = _mm256_packus_epi32(upper, upper);
        let joined = _mm256_permute4x64_epi64::<0b1000>(packed);
        _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(joined))
    });
    pure!(to_float(a: __m256i) -> __m256, _mm256_cvtepi32_ps(a));
    const FUSES_DOUBLE: bool = true;
    #[inline(always)]
    fn fma_double(self, a: f64, b: f64, c: f64) -> f64 {
        // One instruction where the caller has the features, and `self` proves that it has.
        a.mul_add(b, c)
    }
    pure!(reduce_add(a: __m256) -> f32, {
        let q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let d = _mm_add_ps(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)))
    });
    pure!(reduce_max(a: __m256) -> f32, {
        let q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let d = _mm_max_ps(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)))
    });
    #[inline(always)]
    unsafe fn transpose_block(
        self,
        src: *const f32,
        src_stride: usize,
        rows: usize,
        cols: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        let mut v = [self.splat(0.0); 8];
        // SAFETY: only rows < `rows` and columns < `cols` are touched; the rest is shuffles.
        unsafe {
            for (r, v) in v.iter_mut().enumerate().take(rows) {
                *v = self.load_up_to(src.add(r * src_stride), cols);
            }
            let t = transpose8(v);
            for (c, t) in t.iter().enumerate().take(cols) {
                self.store_up_to(dst.add(c * dst_stride), *t, rows);
            }
        }
    }
}

/// Transposes an 8x8 block in registers.
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
unsafe fn transpose8(v: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the caller promises AVX2; no memory is touched.
    unsafe {
        let pair = |a: __m256, b: __m256| (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (a0, a1) = pair(v[0], v[1]);
        let (a2, a3) = pair(v[2], v[3]);
        let (a4, a5) = pair(v[4], v[5]);
        let (a6, a7) = pair(v[6], v[7]);
        let b0 = _mm256_shuffle_ps::<0x44>(a0, a2);
        let b1 = _mm256_shuffle_ps::<0xee>(a0, a2);
        let b2 = _mm256_shuffle_ps::<0x44>(a1, a3);
        let b3 = _mm256_shuffle_ps::<0xee>(a1, a3);
        let b4 = _mm256_shuffle_ps::<0x44>(a4, a6);
        let b5 = _mm256_shuffle_ps::<0xee>(a4, a6);
        let b6 = _mm256_shuffle_ps::<0x44>(a5, a7);
        let b7 = _mm256_shuffle_ps::<0xee>(a5, a7);
        [
            _mm256_permute2f128_ps::<0x20>(b0, b4),
            _mm256_permute2f128_ps::<0x20>(b1, b5),
            _mm256_permute2f128_ps::<0x20>(b2, b6),
            _mm256_permute2f128_ps::<0x20>(b3, b7),
            _mm256_permute2f128_ps::<0x31>(b0, b4),
            _mm256_permute2f128_ps::<0x31>(b1, b5),
            _mm256_permute2f128_ps::<0x31>(b2, b6),
            _mm256_permute2f128_ps::<0x31>(b3, b7),
        ]
    }
}
