//! The micro-kernel: sums of a tile of `MR` rows by `W` vectors of columns stay in registers while K runs. Unsafe island.
//!
//! Loops over rows and vectors are written out by macros: left to the compiler, whether they are unrolled (and the sums
//! live in registers) depends on the optimisation settings of a build.
#![allow(unsafe_code, reason = "tiles read rows and panels and write results by address")]

use super::dots::Dots;
use super::finish::{Columns, Ending, Finish, Summing, result};
use crate::gemm::tile::{forget, prefetch};
use crate::packed::s8_nr32k4_v1::{NR, QUAD};
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

/// Rows of the tallest tile whose sums are in vectors.
const MOST_ROWS: usize = 12;
/// Rows share base pointers in groups of this many: base, base + stride, base + 2 * stride are all addressing modes.
const ROWS_PER_BASE: usize = 3;
const BASES: usize = MOST_ROWS / ROWS_PER_BASE;

/// What tile registers are set to in a run, where a processor has them.
#[cfg(target_arch = "x86_64")]
pub(super) type Registers = Option<crate::amx::Setting>;
#[cfg(not(target_arch = "x86_64"))]
pub(super) type Registers = Option<()>;

/// Some rows of activations times some columns of a panel.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// The first row, of activations of [`Dots::WIDTH`] bytes; rows are `stride` bytes apart and have `quads` quads.
    pub rows: *const u8,
    pub stride: usize,
    pub quads: usize,
    /// The first of the tile's columns in the first quad of a panel.
    pub panel: *const i8,
    /// Sums, rows [`NR`] apart.
    pub sums: *mut i32,
    /// What tile registers are set to: nothing before the first tile of a run. Others leave it as it is.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "other processors have no tile registers")
    )]
    pub registers: *mut Registers,
}

/// A tile compiled for an instruction set and a number of rows.
pub(super) type TileFn = unsafe fn(&Tile);
/// The same, which writes results.
pub(super) type TileOfBytesFn = unsafe fn(&Tile, &Finish);

/// Writes `$body` out for each index below `$n`.
macro_rules! unrolled {
    (rows $i:ident < $n:expr, $body:block) => { unrolled!(@ $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11) };
    (few $i:ident < $n:expr, $body:block) => { unrolled!(@ $i, $n, $body, 0 1 2 3) };
    (@ $i:ident, $n:expr, $body:block, $($at:literal)*) => {
        $({
            const $i: usize = $at;
            if const { $i < $n } $body
        })*
    };
}
#[cfg(target_arch = "aarch64")]
pub(super) use unrolled;

/// How far ahead of its use a panel is brought into the first-level cache.
const AHEAD: usize = 4096;
/// Rows that mostly meet a panel once: it comes from memory.
const FEW: usize = 4;

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
    // SAFETY: the caller promises the rows, the panel and room for the sums.
    unsafe {
        let sums = added::<D, MR, W>(t);
        unrolled!(rows R < MR, {
            unrolled!(few V < W, {
                D::store_i(t.sums.wrapping_add(R * NR + V * D::LANES), of_all_sets::<D, MR, W, R, V>(&sums));
            });
        });
    }
}

/// Computes a tile of `MR` rows by a whole panel, of two vectors, and writes bytes of its sums, which are not stored. With a sum
/// of quantised tensors where there is one.
///
/// # Safety
/// As [`tile`] and [`finish`]; the instruction set has panels of two vectors, the ending is [`Ending::Bytes`] of
/// [bounded](Finish::is_bounded) results.
#[inline(always)]
pub(super) unsafe fn tile_of_bytes<D: Dots, const MR: usize, const SUMMED: bool>(t: &Tile, f: &Finish) {
    const { assert!(NR == 2 * D::LANES) };
    let Ending::Bytes(narrowing) = f.ending else { return };
    // SAFETY: the caller promises the rows and the panel, parameters for whole panels, results for the rows, and a summand that
    // lies like them; the second of two rows is the first one again where there is no other.
    unsafe {
        let summing = match &f.sum {
            Some(sum) if SUMMED => Some(Summing::of(f, sum)),
            _ => None,
        };
        let sums = added::<D, MR, 2>(t);
        let columns = [Columns::<D>::load(f, 0), Columns::<D>::load(f, D::LANES)];
        unrolled!(rows R < MR, {
            if R.is_multiple_of(2) {
                const fn second(row: usize, rows: usize) -> usize {
                    if row + 1 < rows { row + 1 } else { row }
                }
                let at = [R * f.stride, const { second(R, MR) } * f.stride];
                let from = at.map(|at| f.summand.wrapping_add(at));
                let whole = [
                    result::<D, true, SUMMED>(
                        columns[0], of_all_sets::<D, MR, 2, R, 0>(&sums), summing, from[0],
                    ),
                    result::<D, true, SUMMED>(
                        columns[1], of_all_sets::<D, MR, 2, R, 1>(&sums), summing, from[0].wrapping_add(D::LANES),
                    ),
                    result::<D, true, SUMMED>(
                        columns[0], of_all_sets::<D, MR, 2, { R + 1 }, 0>(&sums), summing, from[1],
                    ),
                    result::<D, true, SUMMED>(
                        columns[1], of_all_sets::<D, MR, 2, { R + 1 }, 1>(&sums), summing, from[1].wrapping_add(D::LANES),
                    ),
                ];
                D::store_halves(at.map(|at| f.out.wrapping_add(at)), whole, narrowing);
            }
        });
    }
}

/// The sums of row `R`, of the last one where there are fewer, and of vector `V`.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn of_all_sets<D: Dots, const MR: usize, const W: usize, const R: usize, const V: usize>(
    sums: &Sums<D, MR, W>,
) -> D::I {
    const fn at(row: usize, rows: usize) -> usize {
        if row < rows { row } else { rows - 1 }
    }
    // SAFETY: the caller promises the instruction set.
    unsafe {
        let mut sum = sums[0][const { at(R, MR) }][V % W];
        unrolled!(few S < sets(D::CHAINS, MR * W), {
            if S != 0 {
                sum = D::add_sums(sum, sums[S][const { at(R, MR) }][V % W]);
            }
        });
        D::lanes(sum)
    }
}

/// The sums of a tile.
///
/// # Safety
/// As [`tile`], without room for the sums.
#[inline(always)]
unsafe fn added<D: Dots, const MR: usize, const W: usize>(t: &Tile) -> Sums<D, MR, W> {
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
            unrolled!(few G < BASES, { bases[G] = bases[G].wrapping_add(unroll * QUAD * D::WIDTH); });
        }
        for ahead in 0..t.quads % unroll {
            step::<D, MR, W>((&bases, stride), ahead, panel, &mut sums[0]);
            panel = panel.wrapping_add(NR * QUAD);
        }
        sums
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
        if const { MR > FEW || D::FETCHES } {
            prefetch(panel.wrapping_add(AHEAD));
            if W * D::LANES * QUAD > 64 {
                prefetch(panel.wrapping_add(AHEAD + 64));
            }
        }
        part::<D, MR, W, 0>((bases, stride), ahead, panel, sums);
        if const { D::PARTS == 2 } {
            part::<D, MR, W, 1>((bases, stride), ahead, panel, sums);
        }
    }
}

/// A part of a quad.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn part<D: Dots, const MR: usize, const W: usize, const PART: usize>(
    (bases, stride): (&[*const u8; BASES], usize),
    ahead: usize,
    panel: *const i8,
    sums: &mut [[D::Sums; W]; MR],
) {
    // Keeps the loads of one part together: the compiler would read those of all unrolled steps first and spill them.
    // Costs no instruction.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: this part of the quad exists for every row and every column of the tile, as the caller promises.
    unsafe {
        let mut weights = [D::weights::<PART>(panel); W];
        unrolled!(few V < W, {
            if V != 0 {
                weights[V % W] = D::weights::<PART>(panel.wrapping_add(V * D::LANES * QUAD));
            }
        });
        unrolled!(rows R < MR, {
            let row = bases[R / ROWS_PER_BASE].wrapping_add((R % ROWS_PER_BASE) * stride);
            let inputs = D::broadcast::<PART>(row.wrapping_add(ahead * QUAD * D::WIDTH));
            unrolled!(few V < W, {
                sums[R % MR][V % W] = D::dot(sums[R % MR][V % W], inputs, weights[V % W]);
            });
        });
    }
}
