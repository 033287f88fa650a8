//! The micro-kernel: a tile of `MR` rows by `NP * VPP` vectors of columns stays in registers while K
//! runs. Unsafe island.

use super::simd::TileIsa;

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

/// # Safety
/// The instruction set of `I` must be there and enabled in the caller; all pointers valid for the
/// elements that `tile` describes; C overlaps nothing else that is read.
#[inline(always)]
pub(crate) unsafe fn tile<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize>(t: &Tile) {
    const { assert!(MR <= BASES * ROWS_PER_BASE) };
    // SAFETY: the contract of this function.
    unsafe {
        let acc = multiply::<I, MR, NP, VPP>(t);
        if t.columns >= NP * VPP * I::LANES {
            finish::<I, MR, NP, VPP, false>(t, acc);
        } else {
            finish::<I, MR, NP, VPP, true>(t, acc);
        }
    }
}

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn multiply<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize>(
    t: &Tile,
) -> [[[I::V; VPP]; NP]; MR] {
    // SAFETY: rows 0..MR of A and rows 0..k of B's panels are readable; bases of groups that have no
    // row are never read and made with wrapping arithmetic.
    unsafe {
        let mut acc = [[[I::zero(); VPP]; NP]; MR];
        let stride = t.a_stride;
        let mut bases: [*const f32; BASES] =
            std::array::from_fn(|g| t.a.wrapping_add(g * ROWS_PER_BASE * stride));
        let mut b = t.b;
        let mut step = |bases: &[*const f32; BASES], b: *const f32, ahead: usize| {
            let mut columns = [[I::zero(); VPP]; NP];
            for (p, panel) in columns.iter_mut().enumerate() {
                for (v, x) in panel.iter_mut().enumerate() {
                    *x = I::load(b.add(p * t.b_panel_stride + v * I::LANES));
                }
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let x = I::splat(bases[r / ROWS_PER_BASE].add(r % ROWS_PER_BASE * stride + ahead).read());
                for (sums, panel) in row.iter_mut().zip(&columns) {
                    for (sum, y) in sums.iter_mut().zip(panel) {
                        *sum = I::fma(x, *y, *sum);
                    }
                }
            }
        };
        for _ in 0..t.k / 4 {
            for ahead in 0..4 {
                step(&bases, b, ahead);
                b = b.wrapping_add(t.b_stride);
            }
            for base in &mut bases {
                *base = base.wrapping_add(4);
            }
        }
        for ahead in 0..t.k % 4 {
            step(&bases, b, ahead);
            b = b.wrapping_add(t.b_stride);
        }
        acc
    }
}

/// # Safety
/// As [`tile`]; `EDGE` when the tile is wider than C.
#[inline(always)]
unsafe fn finish<I: TileIsa, const MR: usize, const NP: usize, const VPP: usize, const EDGE: bool>(
    t: &Tile,
    acc: [[[I::V; VPP]; NP]; MR],
) {
    // SAFETY: masks keep every access inside `columns`; pointers past them are made with wrapping
    // arithmetic and not used.
    unsafe {
        for v in 0..NP * VPP {
            let column = v * I::LANES;
            let mask = I::mask(t.columns.saturating_sub(column));
            let read = |p: *const f32| if EDGE { I::load_masked(p, mask) } else { I::load(p) };
            let has_bias = t.is_last && !t.bias.is_null();
            let bias = if has_bias { read(t.bias.wrapping_add(column)) } else { I::zero() };
            for (r, row) in acc.iter().enumerate() {
                let c = t.c.wrapping_add(r * t.c_stride + column);
                let mut x = row[v / VPP][v % VPP];
                if !t.is_first {
                    x = I::add(read(c), x);
                }
                if t.is_last {
                    if has_bias {
                        x = I::add(x, bias);
                    }
                    if !t.residual.is_null() {
                        x = I::add(x, read(t.residual.wrapping_add(r * t.residual_stride + column)));
                    }
                    if let Some((low, high)) = t.clamp {
                        x = I::clamp(x, I::splat(low), I::splat(high));
                    }
                }
                if EDGE {
                    I::store_masked(c, mask, x);
                } else {
                    I::store(c, x);
                }
            }
        }
    }
}
