//! Rows of bfloat16 times panels of pairs, where the processor multiplies them in tile registers (AMX). Unsafe island.
//!
//! *Order.* A sum adds even and odd products of 32 in two sums of f32, which are added, step by step; first those of the
//! rest of K that fills no step.
#![allow(unsafe_code, reason = "rows, panels and sums are addressed by stride")]

#[cfg(target_arch = "x86_64")]
use crate::packed::f32_nr32_v1::NR;

/// Rows in the form that tiles read, and where their sums go.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other processors have no tile registers"))]
pub(super) struct Block {
    /// Pairs of the first row, `stride` pairs from one row to the next.
    pub rows: *const f32,
    pub stride: usize,
    pub count: usize,
    pub pairs: usize,
    /// Sums of the first panel, `sums_stride` from one row to the next.
    pub sums: *mut f32,
    pub sums_stride: usize,
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use elsewhere::{is_available, multiply};
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{is_available, multiply};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Block, NR};
    use crate::amx::{MOST_ROWS, Tile, TileFn, floats, has_floats, leave};
    use crate::gemm::part;

    /// Can this process use them?
    pub(in super::super) fn is_available() -> bool {
        has_floats()
    }

    macro_rules! tiles {
        ($($rows:literal)*) => { [$(floats::<$rows>),*] };
    }
    /// By rows - 1.
    static TILES: [TileFn; MOST_ROWS] = tiles!(
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    );

    /// The sums of the rows and of panels that lie side by side.
    ///
    /// # Safety
    /// [`is_available`]; the rows and the panels have `pairs` pairs, and there is room for the sums.
    pub(in super::super) unsafe fn multiply(block: &Block, panels: impl Iterator<Item = *const u16>) {
        let tiles = block.count.div_ceil(MOST_ROWS);
        let mut registers = None;
        for (p, panel) in panels.enumerate() {
            for tile in 0..tiles {
                let rows = part(block.count, tiles, tile);
                let Some(run) = rows.len().checked_sub(1).and_then(|i| TILES.get(i)) else { continue };
                let t = Tile {
                    rows: block.rows.wrapping_add(rows.start * block.stride).cast(),
                    stride: block.stride * size_of::<f32>(),
                    cells: block.pairs,
                    panel: panel.cast(),
                    sums: block.sums.wrapping_add(rows.start * block.sums_stride + p * NR).cast(),
                    sums_stride: block.sums_stride * size_of::<f32>(),
                    registers: &raw mut registers,
                };
                // SAFETY: the caller promises tile registers, these rows, the panel and the sums; a pair is a cell.
                unsafe { run(&t) };
            }
        }
        // SAFETY: the setting is that of these tiles.
        unsafe { leave(registers) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use super::Block;

    /// No: other processors have none.
    pub(in super::super) fn is_available() -> bool {
        false
    }

    /// Never called, since nothing is available.
    ///
    /// # Safety
    /// None is asked for.
    pub(in super::super) unsafe fn multiply(_: &Block, _: impl Iterator<Item = *const u16>) {}
}
