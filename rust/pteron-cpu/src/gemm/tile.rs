//! The micro-kernel: a tile of `MR` rows by `NP * VPP` vectors of columns stays in registers while K
//! runs. Unsafe island.

// Constant ranges and indices are what the compiler unrolls; iterators over these nested arrays are left
// as loops and the sums then live in memory.
#![allow(clippy::needless_range_loop)]

use super::simd::TileIsa;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

/// What one tile computes: `C = [C +] A * B`, and in the last K-block also bias, residual and clamp.
///
/// B is read as rows of columns: element (k, column) of panel p at
/// `b + p * b_panel_stride + k * b_stride + column`.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Length of this K-block.
    pub k: usize,
    /// First element of A, rows `a_stride` apart.
    pub a: *const f32,
    pub a_stride: usize,
    pub b: *const f32,
    pub b_stride: usize,
    pub b_panel_stride: usize,
    /// First element of C, rows `c_stride` apart.
    pub c: *mut f32,
    pub c_stride: usize,
    /// Columns of C that exist; the tile's others are neither read nor written.
    pub columns: usize,
    /// First K-block: C is overwritten, not added to.
    pub is_first: bool,
    /// Last K-block: what follows is applied.
    pub is_last: bool,
    /// One value per column, or null.
    pub bias: *const f32,
    /// A matrix that is added, or null; rows `residual_stride` apart.
    pub residual: *const f32,
    pub residual_stride: usize,
    /// `[low, high]`; NaN passes.
    pub clamp: Option<(f32, f32)>,
}

/// A tile compiled for an instruction set, a number of rows and a number of columns.
pub(crate) type TileFn = unsafe fn(&Tile);

/// Rows share base pointers in groups of this many: base, base + stride, base + 2 * stride are all
/// addressing modes, so 14 rows need 5 pointer registers and not 14.
const ROWS_PER_BASE: usize = 3;
/// ⌈14 / 3⌉ bases cover the tallest tile.
const BASES: usize = 5;
type Bases = [*const f32; BASES];

/// How far ahead B is fetched, in rows: 2 KiB of a panel. Measured: 5 to 15 % where B comes from the
/// second or third-level cache, nothing lost where it is in the first.
const PREFETCH_ROWS: usize = 16;

/// Steps of k between moves of the pointers: tall tiles hide the moves behind their arithmetic.
const fn unroll(rows: usize, panels: usize) -> usize {
    if rows * panels > 8 { 1 } else { 4 }
}

/// # Safety
/// The instruction set of `I` must be there and enabled in the caller; all pointers valid for the
/// elements that `tile` describes; C overlaps nothing else that is read.
#[inline(always)]
pub(crate) unsafe fn tile<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize>(t: &Tile) {
    const { assert!(MR <= BASES * ROWS_PER_BASE) };
    // SAFETY: the contract of this function.
    unsafe {
        let sums = multiply::<I, MR, NP, VPP>(t);
        if t.columns >= NP * VPP * I::LANES {
            finish::<I, MR, NP, VPP, false>(t, sums);
        } else {
            finish::<I, MR, NP, VPP, true>(t, sums);
        }
    }
}

/// The sums of a tile.
type Sums<V, const MR: usize, const NP: usize, const VPP: usize> = [[[V; VPP]; NP]; MR];

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn multiply<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize>(
    t: &Tile,
) -> Sums<I::V, MR, NP, VPP> {
    // SAFETY: rows 0..MR of A and rows 0..k of B's panels are readable; bases of groups that have no
    // row are never read and made with wrapping arithmetic.
    unsafe {
        let mut sums = [[[I::zero(); VPP]; NP]; MR];
        // Opaque, so that the compiler does not compute each row's address from the one before it again
        // in every step.
        let mut bases: Bases =
            std::array::from_fn(|g| black_box(t.a.wrapping_add(g * ROWS_PER_BASE * t.a_stride)));
        let mut b = t.b;
        for _ in 0..t.k / unroll(MR, NP) {
            for ahead in 0..unroll(MR, NP) {
                step::<I, MR, NP, VPP>(t, &bases, ahead, b, &mut sums);
                b = b.wrapping_add(t.b_stride);
            }
            for base in &mut bases {
                *base = base.wrapping_add(unroll(MR, NP));
            }
        }
        for ahead in 0..t.k % unroll(MR, NP) {
            step::<I, MR, NP, VPP>(t, &bases, ahead, b, &mut sums);
            b = b.wrapping_add(t.b_stride);
        }
        sums
    }
}

/// One k: a row of B times a column of A. A function, not a closure: it must be inlined into the
/// function that enables the instruction set, whatever its size.
///
/// # Safety
/// As [`tile`]; `bases` plus `ahead` are at some k, `b` at the same.
#[inline(always)]
unsafe fn step<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize>(
    t: &Tile,
    bases: &Bases,
    ahead: usize,
    b: *const f32,
    sums: &mut Sums<I::V, MR, NP, VPP>,
) {
    // SAFETY: this k exists, so every row of A and every panel of B has it.
    unsafe {
        // Keeps the loads of one k together: the compiler would read the A values of all unrolled steps
        // first and spill them. Costs no instruction.
        compiler_fence(Ordering::SeqCst);
        // The streams of a wide tile are fetched well by the processor itself.
        if NP == 1 {
            for line in (0..VPP * I::LANES).step_by(16) {
                I::prefetch(b.wrapping_add(PREFETCH_ROWS * t.b_stride + line));
            }
        }
        let mut columns = [[I::zero(); VPP]; NP];
        for p in 0..NP {
            for v in 0..VPP {
                columns[p][v] = I::load(b.wrapping_add(p * t.b_panel_stride + v * I::LANES));
            }
        }
        // Two short loops: the compiler would not unroll one over 13 or 14 rows.
        for (g, base) in bases.iter().enumerate() {
            for j in 0..ROWS_PER_BASE {
                let r = g * ROWS_PER_BASE + j;
                if r >= MR {
                    break;
                }
                let x = I::splat(*base.wrapping_add(j * t.a_stride + ahead));
                for p in 0..NP {
                    for v in 0..VPP {
                        sums[r][p][v] = I::fma(x, columns[p][v], sums[r][p][v]);
                    }
                }
            }
        }
    }
}

/// Runs `$body` for every vector of the tile. Short nested loops: the compiler unrolls each of them
/// and keeps all sums in registers, which it does not for one loop over 13 or 14 rows.
macro_rules! for_each_sum {
    ($mr:ident, $np:ident, $vpp:ident, |$r:ident, $p:ident, $v:ident| $body:block) => {
        for g in 0..BASES {
            for j in 0..ROWS_PER_BASE {
                let $r = g * ROWS_PER_BASE + j;
                if $r >= $mr {
                    break;
                }
                for $p in 0..$np {
                    for $v in 0..$vpp $body
                }
            }
        }
    };
}

/// Reads a vector of columns from `column` on; in an edge tile only those that exist.
///
/// # Safety
/// As [`tile`]; `p` points to the tile's first column.
#[inline(always)]
unsafe fn read<I: TileIsa, const EDGE: bool>(t: &Tile, p: *const f32, column: usize) -> I::V {
    let p = p.wrapping_add(column);
    // SAFETY: masked to the columns that exist, or all do.
    unsafe { if EDGE { I::load_masked(p, I::mask(t.columns.saturating_sub(column))) } else { I::load(p) } }
}

/// Adds what is to be added, clamps, and writes C.
///
/// # Safety
/// As [`tile`]; `EDGE` when the tile is wider than C.
#[inline(always)]
unsafe fn finish<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize, const EDGE: bool>(
    t: &Tile,
    mut sums: Sums<I::V, MR, NP, VPP>,
) {
    // SAFETY: masks keep every access inside `columns`; pointers past them are made with wrapping
    // arithmetic and not used.
    unsafe {
        if !t.is_first {
            for_each_sum!(MR, NP, VPP, |r, p, v| {
                let before = read::<I, EDGE>(t, t.c.wrapping_add(r * t.c_stride), (p * VPP + v) * I::LANES);
                sums[r][p][v] = I::add(before, sums[r][p][v]);
            });
        }
        if t.is_last {
            if !t.bias.is_null() {
                for_each_sum!(MR, NP, VPP, |r, p, v| {
                    let bias = read::<I, EDGE>(t, t.bias, (p * VPP + v) * I::LANES);
                    sums[r][p][v] = I::add(sums[r][p][v], bias);
                });
            }
            if !t.residual.is_null() {
                for_each_sum!(MR, NP, VPP, |r, p, v| {
                    let row = t.residual.wrapping_add(r * t.residual_stride);
                    let more = read::<I, EDGE>(t, row, (p * VPP + v) * I::LANES);
                    sums[r][p][v] = I::add(sums[r][p][v], more);
                });
            }
            if let Some((low, high)) = t.clamp {
                let (low, high) = (I::splat(low), I::splat(high));
                for_each_sum!(MR, NP, VPP, |r, p, v| {
                    sums[r][p][v] = I::clamp(sums[r][p][v], low, high);
                });
            }
        }
        for_each_sum!(MR, NP, VPP, |r, p, v| {
            let column = (p * VPP + v) * I::LANES;
            let c = t.c.wrapping_add(r * t.c_stride + column);
            if EDGE {
                I::store_masked(c, I::mask(t.columns.saturating_sub(column)), sums[r][p][v]);
            } else {
                I::store(c, sums[r][p][v]);
            }
        });
    }
}
