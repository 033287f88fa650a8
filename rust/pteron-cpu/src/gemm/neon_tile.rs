//! The micro-kernel for NEON: multiplications by one lane of a register that holds several numbers of A, so that A needs a
//! load for four steps of k, where [`super::tile`] would spread each number over a register of its own. Unsafe island.
//!
//! The order of additions is that of [`super::tile`], and so are the bytes. Loops are written out for the same reason.
#![allow(unsafe_code, reason = "tiles read panels and write rows by address, and chunks share the result")]

use super::tile::{Sums, Tile, finish, unrolled};
use pteron_kernels::vector_math::neon::{NeonPair, vectors};
use std::arch::aarch64::*;
use std::arch::asm;

/// Columns of two registers, which are a vector of [`NeonPair`].
const PAIR: usize = 8;
/// Lanes of a register.
const LANES: usize = 4;
/// Rows of the tallest tile.
const MOST_ROWS: usize = 8;

/// A vector of [`NeonPair`].
type Pair = (float32x4_t, float32x4_t);

/// A tile of `MR` rows by `W` pairs of registers, `VPP` of them in each panel of B.
///
/// # Safety
/// As [`super::tile::tile`]; the processor has NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn neon_tile<const MR: usize, const W: usize, const VPP: usize, const PACKED: bool>(
    t: &Tile,
) {
    const { assert!(MR <= MOST_ROWS && W <= 8 && W.is_multiple_of(VPP)) };
    const { assert!(!PACKED || MR >= LANES) };
    // SAFETY: the caller promises NEON and the pointers that `t` has.
    unsafe {
        let sums = multiply::<MR, W, VPP, PACKED>(t);
        if t.columns >= W * PAIR {
            finish::<NeonPair, MR, W, false>(vectors(), t, sums);
        } else {
            finish::<NeonPair, MR, W, true>(vectors(), t, sums);
        }
    }
}

/// `sum + a[lane] * b`, for a lane that is known when this is compiled.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn by_lane(sum: Pair, a: float32x4_t, b: Pair, lane: usize) -> Pair {
    // SAFETY: the caller promises NEON; no memory is touched.
    unsafe {
        match lane {
            0 => (vfmaq_laneq_f32::<0>(sum.0, b.0, a), vfmaq_laneq_f32::<0>(sum.1, b.1, a)),
            1 => (vfmaq_laneq_f32::<1>(sum.0, b.0, a), vfmaq_laneq_f32::<1>(sum.1, b.1, a)),
            2 => (vfmaq_laneq_f32::<2>(sum.0, b.0, a), vfmaq_laneq_f32::<2>(sum.1, b.1, a)),
            _ => (vfmaq_laneq_f32::<3>(sum.0, b.0, a), vfmaq_laneq_f32::<3>(sum.1, b.1, a)),
        }
    }
}

/// # Safety
/// As [`neon_tile`].
#[inline(always)]
unsafe fn multiply<const MR: usize, const W: usize, const VPP: usize, const PACKED: bool>(
    t: &Tile,
) -> Sums<Pair, MR, W> {
    // SAFETY: rows 0..MR of A and rows 0..k of B's panels are readable.
    unsafe {
        let zero = vdupq_n_f32(0.0);
        let mut sums = [[(zero, zero); W]; MR];
        let mut b = t.b;
        if PACKED {
            let mut a = t.a;
            for _ in 0..t.k {
                // Two registers hold the column of A; of fewer than eight rows they have some in common.
                let column = [vld1q_f32(a), vld1q_f32(a.add(MR - LANES))];
                step::<MR, W, VPP>(t, b, &mut sums, |row| match row < LANES {
                    true => (column[0], row),
                    false => (column[1], row - (MR - LANES)),
                });
                a = a.wrapping_add(MR);
                b = b.wrapping_add(t.b_stride);
            }
            return sums;
        }
        let mut rows = [t.a; MR];
        unrolled!(rows R < MR { rows[R] = t.a.wrapping_add(R * t.a_stride); });
        for _ in 0..t.k / LANES {
            let mut a = [zero; MR];
            unrolled!(rows R < MR {
                a[R] = vld1q_f32(rows[R]);
                rows[R] = rows[R].wrapping_add(LANES);
            });
            unrolled!(lanes K < LANES {
                step::<MR, W, VPP>(t, b.wrapping_add(K * t.b_stride), &mut sums, |row| (a[row], K));
            });
            b = b.wrapping_add(LANES * t.b_stride);
        }
        for ahead in 0..t.k % LANES {
            let mut a = [zero; MR];
            unrolled!(rows R < MR { a[R] = vld1q_dup_f32(rows[R].wrapping_add(ahead)); });
            step::<MR, W, VPP>(t, b, &mut sums, |row| (a[row], 0));
            b = b.wrapping_add(t.b_stride);
        }
        sums
    }
}

/// A hint that the line `ahead` elements behind `p` will be read; any address is allowed. The address is added up in the
/// instruction itself.
#[inline(always)]
fn prefetch(p: *const f32, ahead: usize) {
    // SAFETY: a hint reads nothing and cannot fault; the instruction is in the baseline.
    unsafe {
        asm!("prfm pldl1keep, [{0}, {1}, lsl #3]", in(reg) p, in(reg) ahead / 2,
            options(readonly, nostack, preserves_flags));
    }
}

/// One k: a row of B times a column of A, of which `of` names the register and the lane of each row.
///
/// # Safety
/// As [`neon_tile`]; `b` is at some k of the first panel.
#[inline(always)]
unsafe fn step<const MR: usize, const W: usize, const VPP: usize>(
    t: &Tile,
    b: *const f32,
    sums: &mut Sums<Pair, MR, W>,
    of: impl Fn(usize) -> (float32x4_t, usize),
) {
    // SAFETY: this k exists, so every panel of B has it.
    unsafe {
        if W == VPP {
            prefetch(b, t.fetch.b_ahead);
        }
        unrolled!(vectors V < W {
            let p = b.wrapping_add((V / VPP) * t.b_panel_stride + (V % VPP) * PAIR);
            let columns = (vld1q_f32(p), vld1q_f32(p.wrapping_add(LANES)));
            unrolled!(rows R < MR {
                let (a, lane) = of(R);
                sums[R][V] = by_lane(sums[R][V], a, columns, lane);
            });
        });
    }
}
