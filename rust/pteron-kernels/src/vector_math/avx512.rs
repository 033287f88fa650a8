//! [`Simd`] with AVX-512 F, BW, VL and DQ. Unsafe island: every block relies on [`Avx512`] being made
//! only inside [`enter`], whose callers have detected the features.

use super::intrinsics::{memory, pure};
use super::look_up::{has_permutation, look_up, look_up_permuted};
use super::simd::{Simd, SimdTask};
use std::arch::x86_64::*;

/// Proof that AVX-512 F, BW, VL, DQ and FMA are there.
#[derive(Clone, Copy)]
pub struct Avx512(());

/// Does the processor have what [`enter`] needs?
pub fn is_available() -> bool {
    super::avx2::is_available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
}

/// Runs `task` with AVX-512 code.
///
/// # Safety
/// [`is_available`] is true.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
pub unsafe fn enter<T: SimdTask>(task: T) -> T::Output {
    task.run(Avx512(()))
}

/// Does the processor have what [`enter_brain16`] needs?
pub fn has_brain16() -> bool {
    is_available() && is_x86_feature_detected!("avx512bf16")
}

/// As [`enter`] for tasks that call [`Simd::dot_brain16`].
///
/// # Safety
/// [`has_brain16`] is true.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub unsafe fn enter_brain16<T: SimdTask>(task: T) -> T::Output {
    task.run(Avx512(()))
}

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { u16::MAX } else { (1u16 << n) - 1 }
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;
    type D = __m512d;
    type L = __m512i;
    const LANES: usize = 16;
    const AT_ONCE: usize = 4;

    pure!(splat(v: f32) -> __m512, _mm512_set1_ps(v));
    memory!(load(p: *const f32) -> __m512, _mm512_loadu_ps(p));
    memory!(load_partial(p: *const f32, n: usize) -> __m512, _mm512_maskz_loadu_ps(first(n), p));
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32, n: usize) -> __m512 {
        if n == 0 {
            return self.splat(0.0);
        }
        let total = 2 * n - 1;
        // SAFETY: 2 n - 1 elements may be read; masked lanes are not.
        unsafe {
            let low = self.load_partial(p, total);
            // Pointer arithmetic only when elements 16.. exist.
            let high = if total > 16 { self.load_partial(p.add(16), total - 16) } else { self.splat(0.0) };
            let index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_ps(low, index, high)
        }
    }
    memory!(store(p: *mut f32, v: __m512), _mm512_storeu_ps(p, v));
    memory!(store_partial(p: *mut f32, v: __m512, n: usize), _mm512_mask_storeu_ps(p, first(n), v));
    pure!(add(a: __m512, b: __m512) -> __m512, _mm512_add_ps(a, b));
    pure!(sub(a: __m512, b: __m512) -> __m512, _mm512_sub_ps(a, b));
    pure!(mul(a: __m512, b: __m512) -> __m512, _mm512_mul_ps(a, b));
    pure!(div(a: __m512, b: __m512) -> __m512, _mm512_div_ps(a, b));
    pure!(fma(a: __m512, b: __m512, c: __m512) -> __m512, _mm512_fmadd_ps(a, b, c));
    pure!(fnma(a: __m512, b: __m512, c: __m512) -> __m512, _mm512_fnmadd_ps(a, b, c));
    pure!(min(a: __m512, b: __m512) -> __m512, _mm512_min_ps(a, b));
    pure!(max(a: __m512, b: __m512) -> __m512, _mm512_max_ps(a, b));
    pure!(abs(a: __m512) -> __m512, _mm512_andnot_ps(_mm512_set1_ps(-0.0), a));
    pure!(neg(a: __m512) -> __m512, _mm512_xor_ps(_mm512_set1_ps(-0.0), a));
    pure!(sqrt(a: __m512) -> __m512, _mm512_sqrt_ps(a));
    pure!(round(a: __m512) -> __m512, _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a));
    pure!(split_power(x: __m512) -> (__m512, __m512), {
        // The processor's split is into [1, 2).
        let m = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_ZERO>(x);
        let k = _mm512_getexp_ps(x);
        let is_large = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(m, _mm512_set1_ps(std::f32::consts::SQRT_2));
        let half = _mm512_mask_mul_ps(m, is_large, m, _mm512_set1_ps(0.5));
        (_mm512_mask_add_ps(k, is_large, k, _mm512_set1_ps(1.0)), half)
    });
    pure!(scale2(a: __m512, n: __m512) -> __m512, _mm512_scalef_ps(a, n));
    pure!(splat_d(v: f64) -> __m512d, _mm512_set1_pd(v));
    memory!(load_d(p: *const f64) -> __m512d, _mm512_loadu_pd(p));
    memory!(store_d(p: *mut f64, v: __m512d), _mm512_storeu_pd(p, v));
    pure!(fma_d(a: __m512d, b: __m512d, c: __m512d) -> __m512d, _mm512_fmadd_pd(a, b, c));
    pure!(splat_l(v: i64) -> __m512i, _mm512_set1_epi64(v));
    memory!(load_l(p: *const i64) -> __m512i, _mm512_loadu_si512(p.cast()));
    memory!(store_l(p: *mut i64, v: __m512i), _mm512_storeu_si512(p.cast(), v));
    pure!(add_l(a: __m512i, b: __m512i) -> __m512i, _mm512_add_epi64(a, b));
    pure!(mul_l(a: __m512i, b: __m512i) -> __m512i, _mm512_mullo_epi64(a, b));
    pure!(lt(a: __m512, b: __m512) -> __mmask16, _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b));
    pure!(le(a: __m512, b: __m512) -> __mmask16, _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b));
    pure!(eq(a: __m512, b: __m512) -> __mmask16, _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b));
    #[inline(always)]
    fn not(self, m: __mmask16) -> __mmask16 {
        !m
    }
    #[inline(always)]
    fn or(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn any(self, m: __mmask16) -> bool {
        m != 0
    }
    pure!(select(m: __mmask16, a: __m512, b: __m512) -> __m512, _mm512_mask_blend_ps(m, b, a));
    memory!(load_bools(p: *const u8, n: usize) -> __mmask16, {
        let bytes = _mm_maskz_loadu_epi8(first(n), p.cast());
        _mm_test_epi8_mask(bytes, bytes)
    });
    memory!(store_bools(p: *mut u8, m: __mmask16, n: usize), _mm_mask_storeu_epi8(p.cast(), first(n), _mm_maskz_set1_epi8(m, 1)));
    pure!(to_bits(a: __m512) -> __m512i, _mm512_castps_si512(a));
    pure!(of_bits(a: __m512i) -> __m512, _mm512_castsi512_ps(a));
    pure!(splat_i(v: i32) -> __m512i, _mm512_set1_epi32(v));
    pure!(add_i(a: __m512i, b: __m512i) -> __m512i, _mm512_add_epi32(a, b));
    pure!(mul_i(a: __m512i, b: __m512i) -> __m512i, _mm512_mullo_epi32(a, b));
    pure!(sub_i(a: __m512i, b: __m512i) -> __m512i, _mm512_sub_epi32(a, b));
    pure!(and_i(a: __m512i, b: __m512i) -> __m512i, _mm512_and_si512(a, b));
    pure!(or_i(a: __m512i, b: __m512i) -> __m512i, _mm512_or_si512(a, b));
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srai_epi32::<N>(a) }
    }
    memory!(load_i8(p: *const i8) -> __m512i, _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())));
    memory!(store_i8(p: *mut i8, v: __m512i), _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(v)));
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: `self` proves the features of the one, the other's have just been asked for; the caller promises the bytes.
        unsafe {
            match has_permutation() {
                true => look_up_permuted(table, from, to, n),
                false => look_up(table, from, to, n),
            }
        }
    }
    #[inline(always)]
    fn nibbles(self, a: __m512i) -> (__m512, __m512) {
        // A permutation looks at the low four bits of its indices alone.
        // SAFETY: `self` proves the features.
        unsafe {
            let values = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0,
            );
            let high = _mm512_srli_epi32::<4>(a);
            (_mm512_permutexvar_ps(a, values), _mm512_permutexvar_ps(high, values))
        }
    }
    memory!(load_binary16(p: *const u16) -> __m512, _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())));
    memory!(store_binary16(p: *mut u16, v: __m512), _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)));
    memory!(load_brain16(p: *const u16) -> __m512, {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    });
    #[inline(always)]
    unsafe fn dot_brain16(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the caller promises AVX-512 BF16; vectors of one size are reinterpreted.
        unsafe {
            let [a, b] = [a, b].map(|v| std::mem::transmute::<__m512, __m512bh>(v));
            _mm512_dpbf16_ps(c, a, b)
        }
    }
    memory!(store_brain16(p: *mut u16, v: __m512), {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        // Rounding could carry a NaN into an infinity.
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let upper = _mm512_srli_epi32::<16>(rounded);
        let result = _mm512_mask_mov_epi32(upper, nan, _mm512_set1_epi32(0x7fc0));
        _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(result))
    });
    pure!(to_float(a: __m512i) -> __m512, _mm512_cvtepi32_ps(a));
    const FUSES_DOUBLE: bool = true;
    #[inline(always)]
    fn fma_double(self, a: f64, b: f64, c: f64) -> f64 {
        // One instruction where the caller has the features, and `self` proves that it has.
        a.mul_add(b, c)
    }
    pure!(reduce_add(a: __m512) -> f32, {
        let o = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
        let q = _mm_add_ps(_mm256_castps256_ps128(o), _mm256_extractf128_ps::<1>(o));
        let d = _mm_add_ps(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)))
    });
    pure!(reduce_max(a: __m512) -> f32, {
        let o = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
        let q = _mm_max_ps(_mm256_castps256_ps128(o), _mm256_extractf128_ps::<1>(o));
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
        let (row_mask, col_mask) = (first(rows), first(cols));
        let mut v = [self.splat(0.0); 16];
        // SAFETY: only rows < `rows` and columns < `cols` are touched; the rest is shuffles.
        unsafe {
            for (r, v) in v.iter_mut().enumerate() {
                if r < rows {
                    *v = _mm512_maskz_loadu_ps(col_mask, src.add(r * src_stride));
                }
            }
            let t = transpose16(v);
            for (c, t) in t.iter().enumerate() {
                if c < cols {
                    _mm512_mask_storeu_ps(dst.add(c * dst_stride), row_mask, *t);
                }
            }
        }
    }
}

/// Transposes a 16x16 block in registers: pairs, quads, then 128-bit lanes.
///
/// # Safety
/// AVX-512 F is there.
#[inline(always)]
unsafe fn transpose16(v: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: the caller promises AVX-512 F; no memory is touched.
    unsafe {
        let mut a = v;
        for i in 0..8 {
            a[2 * i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
            a[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
        }
        // b[4 g + k]: column k of each 128-bit lane, rows 4 g .. 4 g + 4.
        let mut b = a;
        for g in 0..4 {
            let (x, y) = (4 * g, 4 * g + 2);
            b[4 * g] = _mm512_shuffle_ps::<0x44>(a[x], a[y]);
            b[4 * g + 1] = _mm512_shuffle_ps::<0xee>(a[x], a[y]);
            b[4 * g + 2] = _mm512_shuffle_ps::<0x44>(a[x + 1], a[y + 1]);
            b[4 * g + 3] = _mm512_shuffle_ps::<0xee>(a[x + 1], a[y + 1]);
        }
        let mut out = b;
        for k in 0..4 {
            let even_low = _mm512_shuffle_f32x4::<0x88>(b[k], b[4 + k]);
            let odd_low = _mm512_shuffle_f32x4::<0xdd>(b[k], b[4 + k]);
            let even_high = _mm512_shuffle_f32x4::<0x88>(b[8 + k], b[12 + k]);
            let odd_high = _mm512_shuffle_f32x4::<0xdd>(b[8 + k], b[12 + k]);
            out[k] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
            out[4 + k] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
            out[8 + k] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
            out[12 + k] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
        }
        out
    }
}
