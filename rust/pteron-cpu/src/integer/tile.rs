//! The micro-kernel: sums of a tile of `MR` rows by `W` vectors of columns stay in registers while K runs; and what
//! makes numbers of the sums. Unsafe island.
//!
//! Loops over rows and vectors are written out by macros: left to the compiler, whether they are unrolled (and the sums
//! live in registers) depends on the optimisation settings of a build.
#![allow(unsafe_code, reason = "tiles read rows and panels and write results by address")]

use super::dots::Dots;
use crate::packed::s8_nr32k4_v1::{NR, QUAD};
use std::hint::black_box;

/// Rows of the tallest tile of any instruction set.
pub(super) const MOST_ROWS: usize = 12;
/// Rows share base pointers in groups of this many: base, base + stride, base + 2 * stride are all addressing modes.
const ROWS_PER_BASE: usize = 3;
const BASES: usize = MOST_ROWS / ROWS_PER_BASE;

/// Some rows of activations times some columns of a panel.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// The first row; rows are `stride` bytes apart and have `quads` quads.
    pub rows: *const u8,
    pub stride: usize,
    pub quads: usize,
    /// The first of the tile's columns in the first quad of a panel.
    pub panel: *const i8,
    /// Sums, rows [`NR`] apart.
    pub sums: *mut i32,
}

/// A tile compiled for an instruction set and a number of rows.
pub(super) type TileFn = unsafe fn(&Tile);

/// Writes `$body` out for each index below `$n`.
macro_rules! unrolled {
    (rows $i:ident < $n:expr, $body:block) => { unrolled!(@ $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11) };
    (few $i:ident < $n:expr, $body:block) => { unrolled!(@ $i, $n, $body, 0 1 2 3) };
    (@ $i:ident, $n:expr, $body:block, $($at:literal)*) => {
        $({
            const $i: usize = $at;
            if $i < $n $body
        })*
    };
}

/// The same pointer and number, of which the compiler knows nothing: it would else keep a pointer for each row, on the
/// stack, and load it for every product. Costs no instruction.
#[allow(
    clippy::pointers_in_nomem_asm_block,
    reason = "the pointer is passed through, no memory is read or written"
)]
#[inline(always)]
fn forget(p: *const u8, n: usize) -> (*const u8, usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let (mut p, mut n) = (p, n);
        // SAFETY: an empty instruction sequence changes nothing.
        unsafe {
            std::arch::asm!("/* {0} {1} */", inout(reg) p, inout(reg) n,
                options(nomem, nostack, preserves_flags));
        }
        (p, n)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        (p, n)
    }
}

/// A hint that the line of `p` will be read; any pointer is allowed.
#[inline(always)]
fn prefetch(p: *const i8) {
    // SAFETY: a hint reads nothing; the instruction is in the baseline of the target.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p);
    }
    let _ = p;
}

/// How far ahead of its use a panel is brought into the first-level cache.
const AHEAD: usize = 1024;

/// Sets of sums, for tiles so small that one set would leave the multipliers waiting for their own results.
const fn sets(chains: usize, sums: usize) -> usize {
    let sets = chains / sums;
    if sets >= 4 {
        4
    } else if sets >= 2 {
        2
    } else {
        1
    }
}

/// Sums of `SETS` sets, whose quads alternate.
type Sums<D, const MR: usize, const W: usize> = [[[<D as Dots>::Sums; W]; MR]; 4];

/// Computes a tile of `MR` rows by `W` vectors.
///
/// # Safety
/// The caller is compiled for the instruction set of `D`, which the processor has; all pointers are valid for what `t`
/// describes.
#[inline(always)]
pub(super) unsafe fn tile<D: Dots, const MR: usize, const W: usize>(t: &Tile) {
    const { assert!(MR <= MOST_ROWS && W <= 4 && W * D::LANES <= NR) };
    let count = const { sets(D::CHAINS, MR * W) };
    // SAFETY: the caller promises `quads` quads of `MR` rows and of the columns; bases of groups that have no row are
    // never read and made with wrapping arithmetic.
    unsafe {
        let mut sums: Sums<D, MR, W> = [[[D::zero(); W]; MR]; 4];
        let mut bases = [t.rows; BASES];
        for (g, base) in bases.iter_mut().enumerate() {
            // Opaque, so that the compiler does not compute each row's address from the one before it.
            *base = black_box(t.rows.wrapping_add(g * ROWS_PER_BASE * t.stride));
        }
        let (mut stride, mut panel) = (t.stride, t.panel);
        let unroll = const { if sets(D::CHAINS, MR * W) > 2 { 4 } else { 2 } };
        for _ in 0..t.quads / unroll {
            unrolled!(few G < BASES, {
                if G * ROWS_PER_BASE < MR {
                    (bases[G], stride) = forget(bases[G], stride);
                }
            });
            step::<D, MR, W>((&bases, stride), 0, panel, &mut sums[0]);
            step::<D, MR, W>((&bases, stride), 1, panel.wrapping_add(NR * QUAD), &mut sums[1 % count]);
            if unroll == 4 {
                step::<D, MR, W>(
                    (&bases, stride),
                    2,
                    panel.wrapping_add(2 * NR * QUAD),
                    &mut sums[2 % count],
                );
                step::<D, MR, W>(
                    (&bases, stride),
                    3,
                    panel.wrapping_add(3 * NR * QUAD),
                    &mut sums[3 % count],
                );
            }
            panel = panel.wrapping_add(unroll * NR * QUAD);
            unrolled!(few G < BASES, { bases[G] = bases[G].wrapping_add(unroll * QUAD); });
        }
        for ahead in 0..t.quads % unroll {
            step::<D, MR, W>((&bases, stride), ahead, panel, &mut sums[0]);
            panel = panel.wrapping_add(NR * QUAD);
        }
        unrolled!(rows R < MR, {
            unrolled!(few V < W, {
                let mut sum = sums[0][R % MR][V % W];
                unrolled!(few S < count, {
                    if S != 0 {
                        sum = D::add_sums(sum, sums[S][R % MR][V % W]);
                    }
                });
                D::store_i(t.sums.wrapping_add(R * NR + V * D::LANES), D::lanes(sum));
            });
        });
    }
}

/// One quad of every row and column. A function, not a closure: it must be inlined into the function that enables the
/// instruction set, whatever its size.
///
/// # Safety
/// As [`tile`]; `bases` (rows `stride` apart) plus `ahead` quads are at some quad, `panel` at the same.
#[inline(always)]
unsafe fn step<D: Dots, const MR: usize, const W: usize>(
    (bases, stride): (&[*const u8; BASES], usize),
    ahead: usize,
    panel: *const i8,
    sums: &mut [[D::Sums; W]; MR],
) {
    // SAFETY: this quad exists, so every row and every column of the tile has it.
    unsafe {
        // Keeps the loads of one quad together: the compiler would read those of all unrolled steps first and spill
        // them. Costs no instruction.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        prefetch(panel.wrapping_add(AHEAD));
        if W * D::LANES * QUAD > 64 {
            prefetch(panel.wrapping_add(AHEAD + 64));
        }
        let mut weights = [D::weights(panel); W];
        unrolled!(few V < W, {
            if V != 0 {
                weights[V % W] = D::weights(panel.wrapping_add(V * D::LANES * QUAD));
            }
        });
        unrolled!(rows R < MR, {
            let row = bases[R / ROWS_PER_BASE].wrapping_add((R % ROWS_PER_BASE) * stride);
            let inputs = D::broadcast(row.wrapping_add(ahead * QUAD));
            unrolled!(few V < W, {
                sums[R % MR][V % W] = D::dot(sums[R % MR][V % W], inputs, weights[V % W]);
            });
        });
    }
}

/// What makes numbers of the sums of some rows and the columns of a panel.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// Sums, rows [`NR`] apart.
    pub sums: *const i32,
    pub rows: usize,
    /// Columns that exist, of [`NR`].
    pub columns: usize,
    /// [`NR`] elements each: what is added to the sums, what they are multiplied with, what is added then.
    pub start: *const i32,
    pub factor: *const f32,
    pub bias: *const f32,
    /// Limits of the result, before the zero point is added.
    pub low: f32,
    pub high: f32,
    pub ending: Ending,
    /// The first result; rows are `stride` bytes apart.
    pub out: *mut u8,
    pub stride: usize,
}

/// What is written.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    /// Bytes: the nearest integers, with this added.
    Bytes(i32),
    /// Floats.
    Floats,
    /// Floats of rows that have a scale and a zero point each; `start` is then multiplied with the zero point, the
    /// factor with the scale.
    Rows { zeros: *const i32, scales: *const f32 },
}

/// [`finish`] compiled for an instruction set.
pub(super) type FinishFn = unsafe fn(&Finish);

/// Writes the results.
///
/// # Safety
/// The caller is compiled for the instruction set of `D`, which the processor has; all pointers are valid for what `f`
/// describes.
#[inline(always)]
pub(super) unsafe fn finish<D: Dots>(f: &Finish) {
    // SAFETY: the caller promises sums, parameters and results for the rows and columns; lanes beyond the columns are not
    // written.
    unsafe {
        match f.ending {
            Ending::Bytes(zero) => bytes::<D>(f, zero),
            Ending::Floats => floats::<D>(f),
            Ending::Rows { zeros, scales } => row_floats::<D>(f, zeros, scales),
        }
    }
}

/// Bytes of all rows.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn bytes<D: Dots>(f: &Finish, zero: i32) {
    let mut column = 0;
    while column < f.columns {
        let lanes = D::LANES.min(f.columns - column);
        // SAFETY: the caller promises sums, parameters and results for the rows and columns; parameters and sums are there
        // for whole panels.
        unsafe {
            let (low, high, zero) = (D::splat(f.low), D::splat(f.high), D::splat_i(zero));
            let start = D::load_i(f.start.add(column));
            let factor = D::load(f.factor.add(column));
            let bias = D::load(f.bias.add(column));
            let (mut sums, mut to) = (f.sums.add(column), f.out.wrapping_add(column));
            for _ in 0..f.rows {
                let sum = D::add_i(D::load_i(sums), start);
                let real = D::add(D::mul(D::to_float(sum), factor), bias);
                D::store_bytes(to, D::add_i(D::nearest(D::clamp(real, low, high)), zero), lanes);
                (sums, to) = (sums.wrapping_add(NR), to.wrapping_add(f.stride));
            }
        }
        column += D::LANES;
    }
}

/// Floats of all rows.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn floats<D: Dots>(f: &Finish) {
    let mut column = 0;
    while column < f.columns {
        let lanes = D::LANES.min(f.columns - column);
        // SAFETY: the caller promises sums, parameters and results for the rows and columns; parameters and sums are there
        // for whole panels.
        unsafe {
            let (low, high) = (D::splat(f.low), D::splat(f.high));
            let start = D::load_i(f.start.add(column));
            let factor = D::load(f.factor.add(column));
            let bias = D::load(f.bias.add(column));
            for row in 0..f.rows {
                let sum = D::add_i(D::load_i(f.sums.add(row * NR + column)), start);
                let real = D::add(D::mul(D::to_float(sum), factor), bias);
                let to = f.out.wrapping_add(row * f.stride).cast::<f32>().wrapping_add(column);
                D::store(to, D::clamp(real, low, high), lanes);
            }
        }
        column += D::LANES;
    }
}

/// Floats of all rows, which have zero points and scales of their own.
///
/// # Safety
/// As [`finish`]; there is a zero point and a scale for each row.
#[inline(always)]
unsafe fn row_floats<D: Dots>(f: &Finish, zeros: *const i32, scales: *const f32) {
    let mut column = 0;
    while column < f.columns {
        let lanes = D::LANES.min(f.columns - column);
        // SAFETY: the caller promises sums, parameters and results for the rows and columns; parameters and sums are there
        // for whole panels.
        unsafe {
            let (low, high) = (D::splat(f.low), D::splat(f.high));
            let start = D::load_i(f.start.add(column));
            let factor = D::load(f.factor.add(column));
            let bias = D::load(f.bias.add(column));
            for row in 0..f.rows {
                let moved = D::mul_i(start, D::splat_i(*zeros.add(row)));
                let sum = D::add_i(D::load_i(f.sums.add(row * NR + column)), moved);
                let factor = D::mul(D::splat(*scales.add(row)), factor);
                let real = D::add(D::mul(D::to_float(sum), factor), bias);
                let to = f.out.wrapping_add(row * f.stride).cast::<f32>().wrapping_add(column);
                D::store(to, D::clamp(real, low, high), lanes);
            }
        }
        column += D::LANES;
    }
}
