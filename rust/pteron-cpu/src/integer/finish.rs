//! What makes numbers of the sums of a tile: scales, biases, limits, what is added, bytes or floats. Unsafe island.
#![allow(unsafe_code, reason = "sums are read and results written by address")]

use super::dots::{Dots, Narrowing};
use super::sum::SumNumbers;
use crate::packed::s8_nr32k4_v1::NR;

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
    /// How bytes are added to results that are bytes.
    pub sum: Option<SumNumbers>,
    /// Are floats added to results that are floats?
    pub adds_floats: bool,
    /// Where what is added is: it lies like the results.
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
            Ending::Floats if f.adds_floats => floats::<D, true>(f),
            Ending::Floats => floats::<D, false>(f),
            Ending::Rows { zeros, scales } if f.adds_floats => row_floats::<D, true>(f, zeros, scales),
            Ending::Rows { zeros, scales } => row_floats::<D, false>(f, zeros, scales),
        }
    }
}

/// What is the same for all rows of a vector of columns.
#[derive(Clone, Copy)]
pub(super) struct Columns<D: Dots> {
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
    pub(super) unsafe fn load(f: &Finish, column: usize) -> Self {
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

    /// The integers nearest to the results of sums.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn whole<const BOUNDED: bool>(self, sums: D::I) -> D::I {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            let sums = D::add_i(sums, self.start);
            if BOUNDED {
                return D::nearest(D::add(D::mul(D::to_float(sums), self.factor), self.bias));
            }
            D::nearest(self.real(sums, self.factor))
        }
    }

    /// The results of sums as whole numbers, beyond the limits, too.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn rounded(self, sums: D::I) -> D::F {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            let sums = D::to_float(D::add_i(sums, self.start));
            D::round(D::add(D::mul(sums, self.factor), self.bias))
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
pub(super) struct Summing<D: Dots> {
    /// Limits of the results before the sum.
    low: D::F,
    high: D::F,
    own_scale: D::F,
    shift: D::I,
    scale: D::F,
    inverse: D::F,
    flip: u8,
}

impl<D: Dots> Summing<D> {
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    pub(super) unsafe fn of(f: &Finish, sum: &SumNumbers) -> Self {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            Summing {
                low: D::splat(f.low),
                high: D::splat(f.high),
                own_scale: D::splat(sum.own_scale),
                shift: D::splat_i(sum.shift),
                scale: D::splat(sum.scale),
                inverse: D::splat(sum.inverse),
                flip: sum.flip,
            }
        }
    }

    /// The sums of whole results and the first `n` bytes from `summand` on, in units of the sum, not rounded.
    ///
    /// # Safety
    /// The processor has the instruction set; the bytes are readable.
    #[inline(always)]
    unsafe fn sums(&self, results: D::F, summand: *const u8, n: usize) -> D::F {
        // SAFETY: the caller promises the instruction set and the bytes.
        unsafe {
            let own = D::mul(D::clamp(results, self.low, self.high), self.own_scale);
            let whole = D::add_i(D::load_bytes(summand, n, self.flip), self.shift);
            let other = D::mul(D::to_float(whole), self.scale);
            D::mul(D::add(own, other), self.inverse)
        }
    }

    /// The integers nearest to the sums of whole vectors.
    ///
    /// # Safety
    /// As [`Summing::sums`], of a whole vector of bytes.
    #[inline(always)]
    unsafe fn whole(&self, results: D::F, summand: *const u8) -> D::I {
        // SAFETY: the caller's promises; sums are numbers of i32 (`SumNumbers::of`).
        unsafe { D::nearest(self.sums(results, summand, D::LANES)) }
    }
}

/// As [`result`], of the sums from `sums` on.
///
/// # Safety
/// As [`result`]; there is a vector of sums.
#[inline(always)]
unsafe fn vector<D: Dots, const BOUNDED: bool, const SUMMED: bool>(
    columns: Columns<D>,
    sums: *const i32,
    summing: Option<Summing<D>>,
    summand: *const u8,
) -> D::I {
    // SAFETY: the caller promises the instruction set and the vectors.
    unsafe { result::<D, BOUNDED, SUMMED>(columns, D::load_i(sums), summing, summand) }
}

/// A vector of results, with a sum where there is one. A function, not a closure: it must be inlined into the function that
/// enables the instruction set.
///
/// # Safety
/// The processor has the instruction set; there is a vector of the summand.
#[inline(always)]
pub(super) unsafe fn result<D: Dots, const BOUNDED: bool, const SUMMED: bool>(
    columns: Columns<D>,
    sums: D::I,
    summing: Option<Summing<D>>,
    summand: *const u8,
) -> D::I {
    // SAFETY: the caller promises the instruction set and the vector.
    unsafe {
        match summing {
            Some(summing) if SUMMED => summing.whole(columns.rounded(sums), summand),
            _ => columns.whole::<BOUNDED>(sums),
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
                let results = D::round(columns.real(D::add_i(sums, columns.start), columns.factor));
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
unsafe fn floats<D: Dots, const SUMMED: bool>(f: &Finish) {
    for column in (0..f.columns).step_by(D::LANES) {
        // SAFETY: the caller promises sums for whole panels, results for the rows and columns, and what is added.
        unsafe {
            let columns = Columns::<D>::load(f, column);
            for row in 0..f.rows {
                let sums = D::load_i(f.sums.wrapping_add(row * NR + column));
                let real = columns.real(D::add_i(sums, columns.start), columns.factor);
                store_float::<D, SUMMED>(f, [row, column], real, columns.lanes);
            }
        }
    }
}

/// Floats of all rows, which have zero points and scales of their own.
///
/// # Safety
/// As [`finish`]; there is a zero point and a scale for each row.
#[inline(always)]
unsafe fn row_floats<D: Dots, const SUMMED: bool>(f: &Finish, zeros: *const i32, scales: *const f32) {
    for column in (0..f.columns).step_by(D::LANES) {
        // SAFETY: the caller promises sums for whole panels, results for the rows and columns, what is added, and a zero point
        // and a scale for each row.
        unsafe {
            let columns = Columns::<D>::load(f, column);
            for row in 0..f.rows {
                let moved = D::mul_i(columns.start, D::splat_i(*zeros.add(row) - D::SHIFT));
                let sums = D::add_i(D::load_i(f.sums.wrapping_add(row * NR + column)), moved);
                let real = columns.real(sums, D::mul(D::splat(*scales.add(row)), columns.factor));
                store_float::<D, SUMMED>(f, [row, column], real, columns.lanes);
            }
        }
    }
}

/// Writes `lanes` results of a row, with what is added to them.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn store_float<D: Dots, const SUMMED: bool>(
    f: &Finish,
    [row, column]: [usize; 2],
    real: D::F,
    lanes: usize,
) {
    let at = row * f.stride + column * size_of::<f32>();
    // SAFETY: the caller promises the results of the row, and as much of what is added.
    unsafe {
        let sum = match SUMMED {
            true => D::add(real, D::load_part(f.summand.wrapping_add(at).cast(), lanes)),
            false => real,
        };
        D::store(f.out.wrapping_add(at).cast(), sum, lanes);
    }
}
