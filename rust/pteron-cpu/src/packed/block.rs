//! Packs up to 32 columns of a strided f32 matrix into one panel block. Unsafe island.
#![allow(unsafe_code, reason = "threads fill parts of one block of panels")]

use pteron_core::Isa;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};

/// Columns of a panel.
pub const NR: usize = 32;

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
        if stride_k == 1 {
            return SimdLevel::at_most(isa).dispatch(Transpose { src, stride_n, k, columns, dst });
        }
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

/// Columns whose elements lie side by side along `k`: blocks are transposed in registers.
struct Transpose {
    src: *const f32,
    stride_n: usize,
    k: usize,
    columns: usize,
    dst: *mut f32,
}

impl SimdTask for Transpose {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Transpose { src, stride_n, k, columns, dst } = self;
        for row in (0..k).step_by(S::LANES) {
            let rows = S::LANES.min(k - row);
            for column in (0..columns).step_by(S::LANES) {
                let width = S::LANES.min(columns - column);
                // SAFETY: the rows and columns of this block are inside both matrices, by contract of
                // `pack_block`.
                unsafe {
                    let (from, to) = (src.add(column * stride_n + row), dst.add(row * NR + column));
                    s.transpose_block(from, stride_n, width, rows, to, NR);
                }
            }
            if columns < NR {
                for row in row..row + rows {
                    // SAFETY: the columns of this row that are missing.
                    unsafe { dst.add(row * NR + columns).write_bytes(0, NR - columns) };
                }
            }
        }
    }
}
