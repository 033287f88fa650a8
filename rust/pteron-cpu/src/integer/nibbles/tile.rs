//! The micro-kernel of products of 4-bit weights: rows of signed bytes times columns of a panel. Unsafe island.
#![allow(unsafe_code, reason = "tiles read rows and panels and write results by address")]

use super::dots::NibbleDots;
use crate::gemm::tile::prefetch;
use crate::packed::u4_nr32k8_v1::{BLOCK, BLOCK_BYTES, LINE, NR, ROWS};

/// Bytes of a panel that are fetched ahead of few rows, which meet it once: it comes from memory.
const AHEAD: usize = 2048;
/// Those rows.
const FEW: usize = 2;

/// Rows times a panel.
pub(super) struct Tile {
    /// Blocks of a row, and those that share scales.
    pub blocks: usize,
    pub in_group: usize,
    /// The first row: bytes, and the words that blocks' sums begin with.
    pub row: *const i8,
    /// Bytes between rows.
    pub stride: usize,
    pub starts: *const u32,
    /// Zero points and scales of rows.
    pub zeros: *const f32,
    pub row_scales: *const f32,
    pub panel: *const u8,
    /// [groups, 32]: f32, or bfloat16 where the function is for that.
    pub scales: *const u8,
    /// 32 sums of the weights of a column, and biases, or null.
    pub weight_sums: *const f32,
    pub bias: *const f32,
    /// Columns that are written, at most 32.
    pub columns: usize,
    /// Results are not below and not above these; NaN stays.
    pub low: f32,
    pub high: f32,
    pub out: *mut f32,
    /// Elements between rows.
    pub out_stride: usize,
}

/// Computes as many rows as the function is for.
pub(super) type TileFn = unsafe fn(&Tile);

/// Computes `R` rows, `C` vectors of columns at a time.
///
/// # Safety
/// The processor has the instruction set of `D`; all pointers are valid for what `t` describes.
#[inline(always)]
pub(super) unsafe fn tile<D: NibbleDots, const R: usize, const C: usize, const BRAIN: bool>(t: &Tile) {
    for first in (0..t.columns).step_by(C * D::LANES) {
        // SAFETY: these columns are in the panel, whose parameters are there for all 32; the caller's promise.
        unsafe { part::<D, R, C, BRAIN>(t, first) }
    }
}

/// Columns from `first` on.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn part<D: NibbleDots, const R: usize, const C: usize, const BRAIN: bool>(t: &Tile, first: usize) {
    let size = const { if BRAIN { size_of::<u16>() } else { size_of::<f32>() } };
    // SAFETY: the caller promises all that is read and written here.
    unsafe {
        let mut totals = [[D::splat(0.0); C]; R];
        let (mut panel, mut scales) = (t.panel.add(first * 4), t.scales.add(first * size));
        let mut left_in_group = t.in_group;
        for block in 0..t.blocks {
            let row = t.row.add(block * BLOCK);
            if const { R <= FEW && D::FETCHES } {
                for at in (0..C * D::LANES * size).step_by(64) {
                    prefetch(scales.wrapping_add(AHEAD / BLOCK_BYTES * NR * size + at));
                }
            }
            let mut sums = [[D::start(0); C]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = [D::start(*t.starts.add(r * t.blocks + block)); C];
            }
            for line in 0..BLOCK / ROWS {
                if const { R > FEW || D::FETCHES } {
                    for at in (0..C * 4 * D::LANES).step_by(64) {
                        prefetch(panel.wrapping_add(line * LINE + AHEAD + at));
                    }
                }
                let mut weights = [D::nibbles(panel.add(line * LINE)); C];
                for (c, weights) in weights.iter_mut().enumerate().skip(1) {
                    *weights = D::nibbles(panel.add(line * LINE + c * 4 * D::LANES));
                }
                for half in 0..2 {
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let quad = D::quad(row.add(r * t.stride + line * ROWS + half * 4));
                        for (sum, weights) in sums.iter_mut().zip(&weights) {
                            *sum = D::add_products(*sum, weights[half], quad);
                        }
                    }
                }
            }
            for (totals, sums) in totals.iter_mut().zip(sums) {
                for (c, (total, sum)) in totals.iter_mut().zip(sums).enumerate() {
                    let scale = if BRAIN {
                        D::load_brain(scales.cast::<u16>().add(c * D::LANES))
                    } else {
                        D::load(scales.cast::<f32>().add(c * D::LANES))
                    };
                    let scaled = D::mul(D::to_float(D::columns(sum)), scale);
                    *total = D::add(*total, scaled);
                }
            }
            panel = panel.add(BLOCK_BYTES);
            left_in_group -= 1;
            if left_in_group == 0 {
                scales = scales.wrapping_add(NR * size);
                left_in_group = t.in_group;
            }
        }
        finish::<D, R, C>(t, first, &totals);
    }
}

/// Writes columns from `first` on.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn finish<D: NibbleDots, const R: usize, const C: usize>(
    t: &Tile,
    first: usize,
    totals: &[[D::F; C]; R],
) {
    // SAFETY: the caller promises all that is read and written here.
    unsafe {
        for (r, totals) in totals.iter().enumerate() {
            let (zero, scale) = (D::splat(-*t.zeros.add(r)), D::splat(*t.row_scales.add(r)));
            for (c, total) in totals.iter().enumerate() {
                let column = first + c * D::LANES;
                if column >= t.columns {
                    break;
                }
                let moved = D::add(*total, D::mul(zero, D::load(t.weight_sums.add(column))));
                let mut y = D::mul(moved, scale);
                if !t.bias.is_null() {
                    y = D::add(y, D::load(t.bias.add(column)));
                }
                let y = D::clamp(y, D::splat(t.low), D::splat(t.high));
                D::store(t.out.add(r * t.out_stride + column), y, t.columns - column);
            }
        }
    }
}
