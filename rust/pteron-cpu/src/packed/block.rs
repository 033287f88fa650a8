//! Packs up to 32 columns of a strided f32 matrix into one panel block. Unsafe island.

use super::f32_nr32_v1::NR;
use pteron_core::Isa;

/// Packs `k` rows of `columns` ≤ 32 columns into `k * 32` elements at `dst`; missing columns become
/// zero. Element (row, column) of the source is at `src + row * stride_k + column * stride_n`.
///
/// # Safety
/// Every source element named above must be readable, `dst` writable for `k * 32` elements, the two
/// must not overlap, and the processor must have `isa`.
pub(crate) unsafe fn pack_block(
    isa: Isa,
    src: *const f32,
    (stride_k, stride_n): (usize, usize),
    k: usize,
    columns: usize,
    dst: *mut f32,
) {
    debug_assert!(columns <= NR);
    // SAFETY: the caller's contract, handed on to the variant for these strides.
    unsafe {
        if stride_n == 1 {
            return copy_rows(src, stride_k, k, columns, dst);
        }
        #[cfg(target_arch = "x86_64")]
        if stride_k == 1 && columns == NR && isa >= Isa::Avx2 {
            return transpose_avx2(src, stride_n, k, dst);
        }
        let _ = isa;
        gather(src, (stride_k, stride_n), k, columns, dst);
    }
}

/// # Safety
/// As [`pack_block`] with `stride_n` 1.
unsafe fn copy_rows(src: *const f32, stride_k: usize, k: usize, columns: usize, dst: *mut f32) {
    for row in 0..k {
        // SAFETY: row `row` of source and destination, by contract.
        unsafe {
            let (from, to) = (src.add(row * stride_k), dst.add(row * NR));
            if columns == NR {
                // A constant length becomes a few vector moves.
                from.copy_to_nonoverlapping(to, NR);
            } else {
                from.copy_to_nonoverlapping(to, columns);
                to.add(columns).write_bytes(0, NR - columns);
            }
        }
    }
}

/// # Safety
/// As [`pack_block`].
unsafe fn gather(
    src: *const f32,
    (stride_k, stride_n): (usize, usize),
    k: usize,
    columns: usize,
    dst: *mut f32,
) {
    // Blocks of 16 rows keep the written lines in the first-level cache while columns are walked.
    for first in (0..k).step_by(16) {
        for column in 0..NR {
            for row in first..k.min(first + 16) {
                // SAFETY: by contract; columns that are missing are not read.
                unsafe {
                    let x = if column < columns {
                        src.add(row * stride_k + column * stride_n).read()
                    } else {
                        0.0
                    };
                    dst.add(row * NR + column).write(x);
                }
            }
        }
    }
}

/// 32 columns whose elements lie side by side along `k`: 8x8 transposes in registers.
///
/// # Safety
/// As [`pack_block`] with `stride_k` 1, 32 columns and AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn transpose_avx2(src: *const f32, stride_n: usize, k: usize, dst: *mut f32) {
    use std::arch::x86_64::*;
    let whole = k - k % 8;
    // SAFETY: rows `row..row + 8` and columns `column..column + 8` are inside both matrices.
    unsafe {
        for row in (0..whole).step_by(8) {
            for column in (0..NR).step_by(8) {
                let from = src.add(column * stride_n + row);
                let to = dst.add(row * NR + column);
                let v: [__m256; 8] = std::array::from_fn(|i| _mm256_loadu_ps(from.add(i * stride_n)));
                let mut pairs = [_mm256_setzero_ps(); 8];
                for i in 0..4 {
                    pairs[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                    pairs[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
                }
                let mut quads = [_mm256_setzero_ps(); 8];
                for half in 0..2 {
                    let p = &pairs[4 * half..];
                    quads[4 * half] = _mm256_shuffle_ps::<0x44>(p[0], p[2]);
                    quads[4 * half + 1] = _mm256_shuffle_ps::<0xee>(p[0], p[2]);
                    quads[4 * half + 2] = _mm256_shuffle_ps::<0x44>(p[1], p[3]);
                    quads[4 * half + 3] = _mm256_shuffle_ps::<0xee>(p[1], p[3]);
                }
                for i in 0..4 {
                    _mm256_storeu_ps(to.add(i * NR), _mm256_permute2f128_ps::<0x20>(quads[i], quads[i + 4]));
                    _mm256_storeu_ps(
                        to.add((i + 4) * NR),
                        _mm256_permute2f128_ps::<0x31>(quads[i], quads[i + 4]),
                    );
                }
            }
        }
        gather(src.add(whole), (1, stride_n), k - whole, NR, dst.add(whole * NR));
    }
}
