//! Tables of 256 bytes. AVX2: sixteen shuffles, one for each value of an index's high four bits, of which a tree of blends chooses.
//! AVX-512 VBMI: two permutations of 128 bytes, of which the highest bit chooses. Unsafe island: callers prove the features.

use std::arch::x86_64::*;

/// Indices of a vector.
const WIDTH: usize = 32;

/// `to[i] = table[from[i]]`.
///
/// # Safety
/// The processor has AVX2; `from` is valid for reads and `to` for writes of `n` bytes, which do not overlap.
#[inline(always)]
pub(super) unsafe fn look_up(table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller promises `n` bytes behind each pointer, and the features; i + WIDTH ≤ n, then i < n.
    unsafe {
        let mut i = 0;
        while i + WIDTH <= n {
            let x = _mm256_loadu_si256(from.add(i).cast());
            _mm256_storeu_si256(to.add(i).cast(), looked_up(table, x));
            i += WIDTH;
        }
        while i < n {
            *to.add(i) = table[usize::from(*from.add(i))];
            i += 1;
        }
    }
}

/// Does the processor have what [`look_up_permuted`] needs?
pub(super) fn has_permutation() -> bool {
    is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
}

/// As [`look_up`], 64 bytes at a time.
///
/// # Safety
/// [`has_permutation`]; `from` is valid for reads and `to` for writes of `n` bytes, which do not overlap.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn look_up_permuted(table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) {
    const WIDTH: usize = 64;
    // SAFETY: a table has four times 64 bytes; the caller promises `n` bytes behind each pointer: i + WIDTH ≤ n, then masks
    // of the `n - i` bytes that are left.
    unsafe {
        let part = |i: usize| _mm512_loadu_si512(table.as_ptr().add(i * WIDTH).cast());
        let parts = [part(0), part(1), part(2), part(3)];
        let mut i = 0;
        while i + WIDTH <= n {
            let x = _mm512_loadu_si512(from.add(i).cast());
            _mm512_storeu_si512(to.add(i).cast(), permuted(parts, x));
            i += WIDTH;
        }
        if i < n {
            let left = (1u64 << (n - i)) - 1;
            let x = _mm512_maskz_loadu_epi8(left, from.add(i).cast());
            _mm512_mask_storeu_epi8(to.add(i).cast(), left, permuted(parts, x));
        }
    }
}

/// The bytes of a table of four parts.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn permuted(parts: [__m512i; 4], x: __m512i) -> __m512i {
    // A permutation looks at the low seven bits of its indices.
    let low = _mm512_permutex2var_epi8(parts[0], x, parts[1]);
    let high = _mm512_permutex2var_epi8(parts[2], x, parts[3]);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high)
}

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn looked_up(table: &[u8; 256], x: __m256i) -> __m256i {
    // SAFETY: the caller promises AVX2; no memory but the table's is read.
    unsafe {
        let low = _mm256_and_si256(x, _mm256_set1_epi8(0x0f));
        // A blend looks at the highest bit of a byte; that of bit 7 is there.
        let bits = [_mm256_slli_epi16::<3>(x), _mm256_slli_epi16::<2>(x), _mm256_slli_epi16::<1>(x)];
        let halves = [eight(table, 0, low, bits), eight(table, 8, low, bits)];
        _mm256_blendv_epi8(halves[0], halves[1], x)
    }
}

/// Rows `row` to `row + 7`, of which bits 4 to 6 choose.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn eight(table: &[u8; 256], row: usize, low: __m256i, bits: [__m256i; 3]) -> __m256i {
    // SAFETY: the caller promises AVX2; no memory but the table's is read.
    unsafe {
        let first = four(table, row, low, [bits[0], bits[1]]);
        _mm256_blendv_epi8(first, four(table, row + 4, low, [bits[0], bits[1]]), bits[2])
    }
}

/// Rows `row` to `row + 3`, of which bits 4 and 5 choose.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn four(table: &[u8; 256], row: usize, low: __m256i, bits: [__m256i; 2]) -> __m256i {
    // SAFETY: the caller promises AVX2; no memory but the table's is read.
    unsafe {
        let first = _mm256_blendv_epi8(one(table, row, low), one(table, row + 1, low), bits[0]);
        let second = _mm256_blendv_epi8(one(table, row + 2, low), one(table, row + 3, low), bits[0]);
        _mm256_blendv_epi8(first, second, bits[1])
    }
}

/// Row `row`.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn one(table: &[u8; 256], row: usize, low: __m256i) -> __m256i {
    // SAFETY: rows have sixteen bytes, and there are as many; the caller promises the features.
    unsafe {
        let row = _mm_loadu_si128(table.as_chunks::<16>().0[row].as_ptr().cast());
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(row), low)
    }
}
