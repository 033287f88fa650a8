//! The micro-kernel: sums of a tile of `MR` rows by `W` vectors of columns stay in registers while K runs; and what
//! makes numbers of the sums. Unsafe island.
//!
//! Loops over rows and vectors are written out by macros: left to the compiler, whether they are unrolled (and the sums
//! live in registers) depends on the optimisation settings of a build.
#![allow(unsafe_code, reason = "tiles read rows and panels and write results by address")]

use super::dots::{Dots, Narrowing};
use super::sum::SumNumbers;
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
            unrolled!(few G < BASES, { bases[G] = bases[G].wrapping_add(unroll * QUAD * D::WIDTH); });
        }
        for ahead in 0..t.quads % unroll {
            step::<D, MR, W>((&bases, stride), ahead, panel, &mut sums[0]);
            panel = panel.wrapping_add(NR * QUAD);
        }
        unrolled!(rows R < MR, {
            unrolled!(few V < W, {
                let mut sum = sums[0][R % MR][V % W];
                unrolled!(few S < sets(D::CHAINS, MR * W), {
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
        prefetch(panel.wrapping_add(AHEAD));
        if W * D::LANES * QUAD > 64 {
            prefetch(panel.wrapping_add(AHEAD + 64));
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
    /// Are all results numbers of i32 before they are limited?
    pub is_bounded: bool,
    pub ending: Ending,
    /// The first result; rows are `stride` bytes apart.
    pub out: *mut u8,
    pub stride: usize,
    /// What is added to results that are bytes, and from where: they lie alike.
    pub sum: Option<SumNumbers>,
    pub summand: *const u8,
}

/// What is written.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    /// Bytes, of the nearest integers.
    Bytes(Narrowing),
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
            Ending::Bytes(narrowing) => match &f.sum {
                Some(sum) if f.columns < NR => part_of_sums::<D>(f, sum),
                Some(sum) if f.is_bounded => bytes::<D, true, true>(f, narrowing, Some(Summing::of(f, sum))),
                Some(sum) => bytes::<D, false, true>(f, narrowing, Some(Summing::of(f, sum))),
                None if f.columns < NR => part_of_bytes::<D>(f, narrowing),
                None if f.is_bounded => bytes::<D, true, false>(f, narrowing, None),
                None => bytes::<D, false, false>(f, narrowing, None),
            },
            Ending::Floats => floats::<D>(f),
            Ending::Rows { zeros, scales } => row_floats::<D>(f, zeros, scales),
        }
    }
}

/// What is the same for all rows of a vector of columns.
#[derive(Clone, Copy)]
struct Columns<D: Dots> {
    start: D::I,
    factor: D::F,
    bias: D::F,
    low: D::F,
    high: D::F,
    /// Columns that exist.
    lanes: usize,
}

impl<D: Dots> Columns<D> {
    /// Those from `column` on.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn load(f: &Finish, column: usize) -> Self {
        // SAFETY: the caller promises parameters for whole panels.
        unsafe {
            Columns {
                start: D::load_i(f.start.wrapping_add(column)),
                factor: D::load(f.factor.wrapping_add(column)),
                bias: D::load(f.bias.wrapping_add(column)),
                low: D::splat(f.low),
                high: D::splat(f.high),
                lanes: D::LANES.min(f.columns - column),
            }
        }
    }

    /// The integers nearest to the results of the sums from `sums` on.
    ///
    /// # Safety
    /// The processor has the instruction set; there is a vector of sums.
    #[inline(always)]
    unsafe fn whole<const BOUNDED: bool>(self, sums: *const i32) -> D::I {
        // SAFETY: the caller promises the instruction set and the sums.
        unsafe {
            let sums = D::add_i(D::load_i(sums), self.start);
            if BOUNDED {
                return D::nearest(D::add(D::mul(D::to_float(sums), self.factor), self.bias));
            }
            D::nearest(self.real(sums, self.factor))
        }
    }

    /// The results of sums, whose start has been added.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn real(self, sums: D::I, factor: D::F) -> D::F {
        // SAFETY: the caller promises the instruction set.
        unsafe { D::clamp(D::add(D::mul(D::to_float(sums), factor), self.bias), self.low, self.high) }
    }
}

/// What a summand is added with, as vectors.
#[derive(Clone, Copy)]
struct Summing<D: Dots> {
    /// Limits of the results before the sum.
    low: D::F,
    high: D::F,
    own_scale: D::F,
    shift: D::F,
    scale: D::F,
    inverse: D::F,
    flip: u8,
}

impl<D: Dots> Summing<D> {
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn of(f: &Finish, sum: &SumNumbers) -> Self {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            Summing {
                low: D::splat(f.low),
                high: D::splat(f.high),
                own_scale: D::splat(sum.own_scale),
                shift: D::splat(sum.shift),
                scale: D::splat(sum.scale),
                inverse: D::splat(sum.inverse),
                flip: sum.flip,
            }
        }
    }

    /// The sums of results and the first `n` bytes from `summand` on, in units of the sum, not rounded.
    ///
    /// # Safety
    /// The processor has the instruction set; the bytes are readable.
    #[inline(always)]
    unsafe fn sums(&self, results: D::I, summand: *const u8, n: usize) -> D::F {
        // SAFETY: the caller promises the instruction set and the bytes.
        unsafe {
            let own = D::mul(D::clamp(D::to_float(results), self.low, self.high), self.own_scale);
            let bytes = D::to_float(D::load_bytes(summand, n, self.flip));
            let other = D::mul(D::add(bytes, self.shift), self.scale);
            D::mul(D::add(own, other), self.inverse)
        }
    }

    /// The integers nearest to the sums of whole vectors.
    ///
    /// # Safety
    /// As [`Summing::sums`], of a whole vector of bytes.
    #[inline(always)]
    unsafe fn whole(&self, results: D::I, summand: *const u8) -> D::I {
        // SAFETY: the caller's promises; sums are numbers of i32 (`SumNumbers::of`).
        unsafe { D::nearest(self.sums(results, summand, D::LANES)) }
    }
}

/// A vector of results, with a sum where there is one. A function, not a closure: it must be inlined into the function that
/// enables the instruction set.
///
/// # Safety
/// The processor has the instruction set; there is a vector of sums, and of the summand.
#[inline(always)]
unsafe fn vector<D: Dots, const BOUNDED: bool, const SUMMED: bool>(
    columns: Columns<D>,
    sums: *const i32,
    summing: Option<Summing<D>>,
    summand: *const u8,
) -> D::I {
    // SAFETY: the caller promises the instruction set and the vectors.
    unsafe {
        let results = columns.whole::<BOUNDED>(sums);
        match summing {
            Some(summing) if SUMMED => summing.whole(results, summand),
            _ => results,
        }
    }
}

/// Bytes of all rows and a whole panel. `BOUNDED`: as [`Finish::is_bounded`]; limits are then those of bytes alone. With a sum
/// where there is one.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn bytes<D: Dots, const BOUNDED: bool, const SUMMED: bool>(
    f: &Finish,
    narrowing: Narrowing,
    summing: Option<Summing<D>>,
) {
    const { assert!(NR == 4 * D::LANES || NR == 2 * D::LANES) };
    // SAFETY: the caller promises sums and parameters for whole panels, results for the rows, and a summand that lies like
    // them; the second of two rows is the first one again where there is no other.
    unsafe {
        if NR == 4 * D::LANES {
            let columns = [
                Columns::<D>::load(f, 0),
                Columns::<D>::load(f, D::LANES),
                Columns::<D>::load(f, 2 * D::LANES),
                Columns::<D>::load(f, 3 * D::LANES),
            ];
            for row in 0..f.rows {
                let (sums, at) = (f.sums.wrapping_add(row * NR), row * f.stride);
                let from = f.summand.wrapping_add(at);
                let whole = [
                    vector::<D, BOUNDED, SUMMED>(columns[0], sums, summing, from),
                    vector::<D, BOUNDED, SUMMED>(
                        columns[1],
                        sums.wrapping_add(D::LANES),
                        summing,
                        from.wrapping_add(D::LANES),
                    ),
                    vector::<D, BOUNDED, SUMMED>(
                        columns[2],
                        sums.wrapping_add(2 * D::LANES),
                        summing,
                        from.wrapping_add(2 * D::LANES),
                    ),
                    vector::<D, BOUNDED, SUMMED>(
                        columns[3],
                        sums.wrapping_add(3 * D::LANES),
                        summing,
                        from.wrapping_add(3 * D::LANES),
                    ),
                ];
                let to = f.out.wrapping_add(at);
                D::store_halves([to, to.wrapping_add(NR / 2)], whole, narrowing);
            }
            return;
        }
        let columns = [Columns::<D>::load(f, 0), Columns::<D>::load(f, D::LANES)];
        for row in (0..f.rows).step_by(2) {
            let rows = [row, (row + 1).min(f.rows - 1)];
            let (sums, at) = (rows.map(|row| f.sums.wrapping_add(row * NR)), rows.map(|row| row * f.stride));
            let from = at.map(|at| f.summand.wrapping_add(at));
            let whole = [
                vector::<D, BOUNDED, SUMMED>(columns[0], sums[0], summing, from[0]),
                vector::<D, BOUNDED, SUMMED>(
                    columns[1],
                    sums[0].wrapping_add(D::LANES),
                    summing,
                    from[0].wrapping_add(D::LANES),
                ),
                vector::<D, BOUNDED, SUMMED>(columns[0], sums[1], summing, from[1]),
                vector::<D, BOUNDED, SUMMED>(
                    columns[1],
                    sums[1].wrapping_add(D::LANES),
                    summing,
                    from[1].wrapping_add(D::LANES),
                ),
            ];
            D::store_halves(at.map(|at| f.out.wrapping_add(at)), whole, narrowing);
        }
    }
}

/// Bytes of sums of all rows and a part of a panel.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn part_of_sums<D: Dots>(f: &Finish, sum: &SumNumbers) {
    let zero = i32::from(sum.narrowing.zero) + i32::from(sum.narrowing.flip);
    for column in (0..f.columns).step_by(D::LANES) {
        // SAFETY: the caller promises sums for whole panels, and results and a summand for the rows and columns.
        unsafe {
            let (columns, zero) = (Columns::<D>::load(f, column), D::splat_i(zero));
            let (summing, low, high) = (Summing::<D>::of(f, sum), D::splat(sum.low), D::splat(sum.high));
            for row in 0..f.rows {
                let at = row * f.stride + column;
                let sums = D::load_i(f.sums.wrapping_add(row * NR + column));
                let results = D::nearest(columns.real(D::add_i(sums, columns.start), columns.factor));
                let added = summing.sums(results, f.summand.wrapping_add(at), columns.lanes);
                let whole = D::add_i(D::nearest(D::clamp(added, low, high)), zero);
                D::store_bytes(f.out.wrapping_add(at), whole, columns.lanes);
            }
        }
    }
}

/// Bytes of all rows and a part of a panel.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn part_of_bytes<D: Dots>(f: &Finish, narrowing: Narrowing) {
    // What is stored are the lowest bytes, and flipping the highest bit of one adds 128.
    let zero = i32::from(narrowing.zero) + i32::from(narrowing.flip);
    for column in (0..f.columns).step_by(D::LANES) {
        // SAFETY: the caller promises sums for whole panels, and results for the rows and columns.
        unsafe {
            let (columns, zero) = (Columns::<D>::load(f, column), D::splat_i(zero));
            let (mut sums, mut to) = (f.sums.wrapping_add(column), f.out.wrapping_add(column));
            for _ in 0..f.rows {
                let real = columns.real(D::add_i(D::load_i(sums), columns.start), columns.factor);
                D::store_bytes(to, D::add_i(D::nearest(real), zero), columns.lanes);
                (sums, to) = (sums.wrapping_add(NR), to.wrapping_add(f.stride));
            }
        }
    }
}

/// Floats of all rows.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn floats<D: Dots>(f: &Finish) {
    for column in (0..f.columns).step_by(D::LANES) {
        // SAFETY: the caller promises sums for whole panels, and results for the rows and columns.
        unsafe {
            let columns = Columns::<D>::load(f, column);
            for row in 0..f.rows {
                let sums = D::load_i(f.sums.wrapping_add(row * NR + column));
                let real = columns.real(D::add_i(sums, columns.start), columns.factor);
                let to = f.out.wrapping_add(row * f.stride).cast::<f32>().wrapping_add(column);
                D::store(to, real, columns.lanes);
            }
        }
    }
}

/// Floats of all rows, which have zero points and scales of their own.
///
/// # Safety
/// As [`finish`]; there is a zero point and a scale for each row.
#[inline(always)]
unsafe fn row_floats<D: Dots>(f: &Finish, zeros: *const i32, scales: *const f32) {
    for column in (0..f.columns).step_by(D::LANES) {
        // SAFETY: the caller promises sums for whole panels, results for the rows and columns, and a zero point and a scale
        // for each row.
        unsafe {
            let columns = Columns::<D>::load(f, column);
            for row in 0..f.rows {
                let moved = D::mul_i(columns.start, D::splat_i(*zeros.add(row) - D::SHIFT));
                let sums = D::add_i(D::load_i(f.sums.wrapping_add(row * NR + column)), moved);
                let real = columns.real(sums, D::mul(D::splat(*scales.add(row)), columns.factor));
                let to = f.out.wrapping_add(row * f.stride).cast::<f32>().wrapping_add(column);
                D::store(to, real, columns.lanes);
            }
        }
    }
}
