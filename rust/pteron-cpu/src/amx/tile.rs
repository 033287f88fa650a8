//! The micro-kernel of tile registers: up to 32 rows by the 32 columns of a panel, 16 cells of each at a time. A *cell* is
//! four bytes: four bytes to multiply, or two bfloat16. Unsafe island.
//!
//! A panel has a line of 32 cells for each cell of a row, as [`crate::packed::s8_nr32k4_v1`] and the format of bfloat16
//! have it.
#![allow(unsafe_code, reason = "tiles read rows and panels and write sums by address")]

use super::{Setting, Shapes, TILE_BYTES, TILE_ROWS};
use std::arch::asm;

/// Rows of the tallest tile: of two registers.
pub(crate) const MOST_ROWS: usize = 2 * TILE_ROWS;
/// Columns of a panel: of two registers.
const NR: usize = 2 * TILE_ROWS;
/// Bytes of a cell, and of a sum.
const CELL: usize = 4;
/// Cells of a step at most.
const STEP: usize = TILE_BYTES / CELL;
/// Steps that take as long as setting the registers for shorter ones and back.
const SETTING: usize = 4;
/// Bytes from a line of a panel to the next.
const LINE: usize = NR * CELL;

/// Some rows times a panel.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The first row; rows are `stride` bytes apart and have `cells` cells.
    pub rows: *const u8,
    pub stride: usize,
    pub cells: usize,
    /// The first line of the panel.
    pub panel: *const u8,
    /// Sums, i32 or f32 ones, rows `sums_stride` bytes apart.
    pub sums: *mut u8,
    pub sums_stride: usize,
    /// What the registers are set to: nothing before the first tile of a run, whose tiles all have as many cells.
    pub registers: *mut Option<Setting>,
}

/// [`bytes`] or [`floats`] for some number of rows.
pub(crate) type TileFn = unsafe fn(&Tile);

/// Shapes for steps of 1 to 16 cells.
const fn all_shapes(rows: usize) -> [Shapes; STEP] {
    let mut all = [Shapes::NONE; STEP];
    let mut i = 0;
    while i < STEP {
        all[i] = shapes(rows, i + 1);
        i += 1;
    }
    all
}

/// Registers: 0 and 1 have the sums of the upper rows, 2 and 3 those of the lower ones, 4 and 5 the rows, 6 and 7 the
/// columns.
const fn shapes(rows: usize, cells: usize) -> Shapes {
    let upper = if rows < TILE_ROWS { rows } else { TILE_ROWS };
    let shapes = Shapes::NONE
        .with(0, upper, TILE_BYTES)
        .with(1, upper, TILE_BYTES)
        .with(4, upper, cells * CELL)
        .with(6, cells, TILE_BYTES)
        .with(7, cells, TILE_BYTES);
    if rows <= TILE_ROWS {
        return shapes;
    }
    let lower = rows - TILE_ROWS;
    shapes.with(2, lower, TILE_BYTES).with(3, lower, TILE_BYTES).with(5, lower, cells * CELL)
}

/// Gives the registers back, if something was loaded into them: threads change faster without.
///
/// # Safety
/// As [`tile`], if there is a setting.
pub(crate) unsafe fn leave(registers: Option<Setting>) {
    if registers.is_some() {
        // SAFETY: a setting was loaded, so the processor has tile registers; nothing is left in them that is needed.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// Cells of the steps of a run: all alike if that takes but few more of them.
fn step_of(cells: usize) -> usize {
    let most = cells.div_ceil(STEP) + SETTING;
    (1..=STEP).rev().find(|step| cells.is_multiple_of(*step) && cells / step <= most).unwrap_or(STEP)
}

/// Sets the registers for `MR` rows and `cells` cells, if they are not.
///
/// # Safety
/// As [`tile`]; 1 to 16 cells.
#[inline(always)]
unsafe fn set<const MR: usize>(t: &Tile, cells: usize, step: usize) {
    // SAFETY: the caller promises the place of the setting, tile registers, and cells that there are shapes for.
    unsafe {
        if (*t.registers).is_some_and(|s| (s.rows, s.cells) == (MR, cells)) {
            return;
        }
        *t.registers = Some(Setting { rows: MR, cells, step });
        let shapes = const { &all_shapes(MR) }.as_ptr().wrapping_add(cells - 1);
        asm!("ldtilecfg [{shapes}]", shapes = in(reg) shapes, options(readonly, nostack, preserves_flags));
    }
}

/// Sums of products of unsigned bytes (rows) and signed ones (panel), exact, wrapping.
///
/// # Safety
/// [`super::has_bytes`]; all pointers are valid for what `t` describes.
pub(crate) unsafe fn bytes<const MR: usize>(t: &Tile) {
    // SAFETY: the caller promises the same.
    unsafe { tile::<MR, false>(t) }
}

/// Sums of products of bfloat16 in f32; subnormal numbers count as zero.
///
/// # Safety
/// [`super::has_floats`]; all pointers are valid for what `t` describes.
pub(crate) unsafe fn floats<const MR: usize>(t: &Tile) {
    // SAFETY: the caller promises the same.
    unsafe { tile::<MR, true>(t) }
}

/// Computes a tile of `MR` rows: first the cells that fill no step, then whole steps on top of their sums.
///
/// # Safety
/// As [`bytes`], or [`floats`] with `FLOATS`.
#[inline(always)]
unsafe fn tile<const MR: usize, const FLOATS: bool>(t: &Tile) {
    const { assert!(0 < MR && MR <= MOST_ROWS) };
    let mut at = *t;
    // SAFETY: the caller promises `cells` cells of the rows and lines of the panel, room for the sums, and the place of the
    // setting: the rest and the whole steps are as many cells.
    unsafe {
        let step = (*t.registers).map_or_else(|| step_of(t.cells), |s| s.step);
        let (steps, rest) = (t.cells / step, t.cells % step);
        if t.cells == 0 {
            for row in 0..MR {
                t.sums.wrapping_add(row * t.sums_stride).write_bytes(0, NR * CELL);
            }
        }
        if rest > 0 {
            set::<MR>(t, rest, step);
            run::<MR, FLOATS>(&at, (1, rest), false);
            at.rows = at.rows.wrapping_add(rest * CELL);
            at.panel = at.panel.wrapping_add(rest * LINE);
        }
        if steps > 0 {
            set::<MR>(t, step, step);
            run::<MR, FLOATS>(&at, (steps, step), rest > 0);
        }
    }
}

/// The code of [`run`], with the instruction that adds products.
macro_rules! steps {
    (upper $dot:literal, $t:ident, $steps:ident, $cells:ident, $goes_on:ident) => {
            asm!(
                "test {goes_on:l}, {goes_on:l}",
                "jnz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{sums} + {sums_stride}]",
                "tileloadd tmm1, [{sums} + {sums_stride} + 64]",
                "3:",
                "tileloadd tmm6, [{panel} + {line}]",
                "tileloadd tmm4, [{rows} + {stride}]",
                "tileloadd tmm7, [{panel} + {line} + 64]",
                concat!($dot, " tmm0, tmm4, tmm6"),
                concat!($dot, " tmm1, tmm4, tmm7"),
                "add {rows}, {row_step}",
                "add {panel}, {panel_step}",
                "dec {steps}",
                "jnz 3b",
                "tilestored [{sums} + {sums_stride}], tmm0",
                "tilestored [{sums} + {sums_stride} + 64], tmm1",
                goes_on = in(reg) usize::from($goes_on),
                sums = in(reg) $t.sums,
                sums_stride = in(reg) $t.sums_stride,
                line = in(reg) LINE,
                rows = inout(reg) $t.rows => _,
                stride = in(reg) $t.stride,
                panel = inout(reg) $t.panel => _,
                steps = inout(reg) $steps => _,
                row_step = in(reg) $cells * CELL,
                panel_step = in(reg) $cells * LINE,
                options(nostack),
            )
    };
    (both $dot:literal, $t:ident, $steps:ident, $cells:ident, $goes_on:ident) => {
            asm!(
                "test {goes_on:l}, {goes_on:l}",
                "jnz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{sums} + {sums_stride}]",
                "tileloadd tmm1, [{sums} + {sums_stride} + 64]",
                "tileloadd tmm2, [{lower_sums} + {sums_stride}]",
                "tileloadd tmm3, [{lower_sums} + {sums_stride} + 64]",
                "3:",
                "tileloadd tmm6, [{panel} + {line}]",
                "tileloadd tmm4, [{rows} + {stride}]",
                "tileloadd tmm7, [{panel} + {line} + 64]",
                concat!($dot, " tmm0, tmm4, tmm6"),
                "tileloadd tmm5, [{lower} + {stride}]",
                concat!($dot, " tmm1, tmm4, tmm7"),
                concat!($dot, " tmm2, tmm5, tmm6"),
                concat!($dot, " tmm3, tmm5, tmm7"),
                "add {rows}, {row_step}",
                "add {lower}, {row_step}",
                "add {panel}, {panel_step}",
                "dec {steps}",
                "jnz 3b",
                "tilestored [{sums} + {sums_stride}], tmm0",
                "tilestored [{sums} + {sums_stride} + 64], tmm1",
                "tilestored [{lower_sums} + {sums_stride}], tmm2",
                "tilestored [{lower_sums} + {sums_stride} + 64], tmm3",
                goes_on = in(reg) usize::from($goes_on),
                sums = in(reg) $t.sums,
                lower_sums = in(reg) $t.sums.wrapping_add(TILE_ROWS * $t.sums_stride),
                sums_stride = in(reg) $t.sums_stride,
                line = in(reg) LINE,
                rows = inout(reg) $t.rows => _,
                lower = inout(reg) $t.rows.wrapping_add(TILE_ROWS * $t.stride) => _,
                stride = in(reg) $t.stride,
                panel = inout(reg) $t.panel => _,
                steps = inout(reg) $steps => _,
                row_step = in(reg) $cells * CELL,
                panel_step = in(reg) $cells * LINE,
                options(nostack),
            )
    };
}

/// Computes some steps of so many cells, at least one; on top of the sums that are there, if `goes_on`.
///
/// # Safety
/// As [`tile`]; rows and panel have what the steps read, for which the registers are set.
#[inline(always)]
unsafe fn run<const MR: usize, const FLOATS: bool>(t: &Tile, (steps, cells): (usize, usize), goes_on: bool) {
    // SAFETY: the caller promises tile registers, and that the rows, the panel and the sums have what the steps read and
    // write. Tile registers are in no compiled code, so nothing there is lost, and nothing here between two calls.
    unsafe {
        match (MR <= TILE_ROWS, FLOATS) {
            (true, false) => steps!(upper "tdpbusd", t, steps, cells, goes_on),
            (true, true) => steps!(upper "tdpbf16ps", t, steps, cells, goes_on),
            (false, false) => steps!(both "tdpbusd", t, steps, cells, goes_on),
            (false, true) => steps!(both "tdpbf16ps", t, steps, cells, goes_on),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_alike_where_that_costs_little() {
        let of = |cells: &[usize]| cells.iter().map(|q| step_of(*q)).collect::<Vec<_>>();
        assert_eq!(of(&[1, 9, 16, 24, 32, 36, 40]), [1, 9, 16, 12, 16, 12, 10]);
        // 37 and 250 have no divisor of use.
        assert_eq!(of(&[37, 250, 0]), [16, 16, 16]);
    }
}
