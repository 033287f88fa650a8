//! Where places of a grid read, and with which weights: for many places at a time, in loops that the compiler vectorises.
//! They are found once and used for all channels.
//!
//! The arithmetic is the plain kernel's. In float32, each of its steps is rounded; a sum, a difference and a product of
//! float32 numbers that is computed in float64 and then rounded is the one that is rounded at once, since float64 has
//! more than twice the digits (Figueroa, "When is double rounding innocuous?", 1995).

use super::rule::Rule;
use crate::compute::Compute;
use pteron_core::Element;
use std::ops::{Add, Mul, Sub};

/// Places whose weights are known at a time.
pub(super) const PLACES: usize = 64;

/// A number that places are computed in.
pub(super) trait Real:
    Compute + Element + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    const NAN: Self;
    /// Rounded down.
    fn floor(self) -> Self;
    /// Rounded, halves to even.
    fn nearest(self) -> Self;
    /// Not below `low`, then not above `high`; NaN is `low`.
    fn within(self, low: Self, high: Self) -> Self;
    /// A whole number between zero and 2^31 as such.
    fn whole(self) -> u32;
    fn is_finite(self) -> bool;
}

macro_rules! real {
    ($($t:ident),*) => { $(
        impl Real for $t {
            const NAN: $t = $t::NAN;
            #[inline(always)]
            fn floor(self) -> $t {
                $t::floor(self)
            }
            #[inline(always)]
            fn nearest(self) -> $t {
                self.round_ties_even()
            }
            #[inline(always)]
            fn within(self, low: $t, high: $t) -> $t {
                self.max(low).min(high)
            }
            #[inline(always)]
            fn whole(self) -> u32 {
                // Vectors convert to signed integers.
                self as i32 as u32
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
        }
    )* };
}
real!(f32, f64);

/// Coordinates of places along one dimension.
type Line<T> = [T; PLACES];

/// Coordinates in pixels, as the plain kernel's `Rule::pixels` computes them.
#[inline(always)]
fn to_pixels<T: Real>(rule: Rule, at: &mut Line<T>, extent: usize) {
    let (half, n) = (T::from_f64(0.5), T::from_f64(extent as f64));
    if rule.align {
        let last = n - T::ONE;
        at.iter_mut().for_each(|at| *at = (*at + T::ONE) * half * last);
    } else {
        at.iter_mut().for_each(|at| *at = ((*at + T::ONE) * n - T::ONE) * half);
    }
}

/// Coordinates in pixels, which `at` becomes, brought to the image and rounded, down or to the nearest whole number; and the
/// rest of each.
#[inline(always)]
fn whole_and_rest<const NEAREST: bool, T: Real>(
    rule: Rule,
    at: &mut Line<T>,
    extent: usize,
    count: usize,
) -> [Line<T>; 2] {
    to_pixels(rule, at, extent);
    let mut parts = [[T::ZERO; PLACES]; 2];
    let [whole, rest] = &mut parts;
    if rule.padding == 2 {
        // Reflected coordinates are not rounded to float32: as the plain kernel computes them.
        for ((at, whole), rest) in at.iter().zip(whole).zip(rest).take(count) {
            let at = rule.inside(at.to_f64(), extent);
            let rounded = if NEAREST { at.nearest() } else { Real::floor(at) };
            (*whole, *rest) = (T::from_f64(rounded), T::from_f64(at - rounded));
        }
        return parts;
    }
    let last = T::from_f64(extent as f64 - 1.0);
    let is_border = rule.padding == 1;
    for ((at, whole), rest) in at.iter().zip(whole).zip(rest).take(count) {
        let at = if is_border { at.within(T::ZERO, last) } else { *at };
        *whole = if NEAREST { at.nearest() } else { at.floor() };
        *rest = at - *whole;
    }
    parts
}

/// The pixel that is nearest to each place.
pub(super) struct Nearest<T> {
    /// From the first pixel of a channel on.
    pub offsets: [u32; PLACES],
    /// One; zero for a place outside of the image.
    pub weights: Line<T>,
}

impl<T: Real> Nearest<T> {
    pub(super) fn new() -> Self {
        Nearest { offsets: [0; PLACES], weights: [T::ZERO; PLACES] }
    }

    /// Finds the pixels of `count` places that are at `across` and `down` of an image.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        rule: Rule,
        [across, down]: &mut [Line<T>; 2],
        [h, w]: [usize; 2],
        count: usize,
    ) {
        let count = count.min(PLACES);
        let [columns, _] = whole_and_rest::<true, T>(rule, across, w, count);
        let [rows, _] = whole_and_rest::<true, T>(rule, down, h, count);
        let [high, wide] = [h, w].map(|n| T::from_f64(n as f64));
        let step = w as u32;
        for i in 0..count {
            let (row, column) = (rows[i], columns[i]);
            // A NaN position is nowhere.
            let is_in = row >= T::ZERO && row < high && column >= T::ZERO && column < wide;
            self.weights[i] = if is_in { T::ONE } else { T::ZERO };
            let (row, column) = (row.within(T::ZERO, high - T::ONE), column.within(T::ZERO, wide - T::ONE));
            self.offsets[i] = row.whole() * step + column.whole();
        }
    }
}

/// The two pairs of neighbouring pixels around each place.
pub(super) struct Pairs<T> {
    /// Of the upper and the lower pair, from the first pixel of a channel on.
    pub offsets: [[u32; PLACES]; 2],
    /// Of the upper pair, then of the lower one; zero for what lies outside.
    pub weights: [Line<T>; 4],
    /// What the sums begin with.
    pub starts: Line<T>,
}

impl<T: Real> Pairs<T> {
    pub(super) fn new() -> Self {
        Pairs { offsets: [[0; PLACES]; 2], weights: [[T::ZERO; PLACES]; 4], starts: [T::ZERO; PLACES] }
    }

    /// Finds the pixels of `count` places that are at `across` and `down` of an image at least two pixels wide.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        rule: Rule,
        [across, down]: &mut [Line<T>; 2],
        [h, w]: [usize; 2],
        count: usize,
    ) {
        let count = count.min(PLACES);
        let is_open = rule.padding == 0;
        for i in 0..count {
            // The weights of a sample at no place are no numbers.
            let is_nan = is_open && !(across[i].is_finite() && down[i].is_finite());
            self.starts[i] = if is_nan { T::NAN } else { T::ZERO };
        }
        let [columns, right_parts] = whole_and_rest::<false, T>(rule, across, w, count);
        let [rows, lower_parts] = whole_and_rest::<false, T>(rule, down, h, count);
        let [high, wide] = [h, w].map(|n| T::from_f64(n as f64));
        let step = w as u32;
        for i in 0..count {
            // A NaN position is nowhere.
            let is_in = |at: T, extent: T| at >= T::ZERO && at < extent;
            let (column, part) = (columns[i], right_parts[i]);
            let next = column + T::ONE;
            let left = if is_in(column, wide) { T::ONE - part } else { T::ZERO };
            let right = if is_in(next, wide) { part } else { T::ZERO };
            // A pair lies inside a row; beside an edge one of its pixels is not the place's.
            let base = column.within(T::ZERO, wide - T::ONE - T::ONE);
            let first = if column == base { left } else { T::ZERO };
            let first = if next == base { right } else { first };
            let second = if column == base { right } else { T::ZERO };
            let second = if column == base + T::ONE { left } else { second };
            let (row, part) = (rows[i], lower_parts[i]);
            let next = row + T::ONE;
            let upper = if is_in(row, high) { T::ONE - part } else { T::ZERO };
            let lower = if is_in(next, high) { part } else { T::ZERO };
            let [weights, more, below, most] = &mut self.weights;
            (weights[i], more[i]) = (upper * first, upper * second);
            (below[i], most[i]) = (lower * first, lower * second);
            let row_of = |at: T| at.within(T::ZERO, high - T::ONE).whole() * step + base.whole();
            self.offsets[0][i] = row_of(row);
            self.offsets[1][i] = row_of(next);
        }
    }
}
