//! The extremes of integers and their places, in loops that the compiler vectorises. Unsafe island (a unit's results do not always
//! lie side by side).

use super::scan::{COLUMNS, Scanned, Task};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::Element;
use std::ops::Range;

/// Extremes of a row that are found side by side: enough lanes for the widest vectors.
const LANES: usize = 32;

/// An integer, with places of a size that it is compared in.
trait Integer: Element + Ord {
    /// Holds any place.
    type Place: Copy + Ord + Into<i64>;
    /// A place, which the kernel has checked to be below 2^31.
    fn place(v: usize) -> Self::Place;
}

macro_rules! places {
    ($($t:ty: $place:ty),*) => { $(
        impl Integer for $t {
            type Place = $place;
            #[inline(always)]
            fn place(v: usize) -> $place {
                v as $place
            }
        }
    )* };
}
places!(u8: i32, i8: i32, i16: i32, i32: i32, i64: i64);

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Scanned for $t {
            fn scan(level: SimdLevel, task: Task<'_, Self>, is_largest: bool) {
                match is_largest {
                    true => level.dispatch_narrow(OfIntegers::<$t, true>(task)),
                    false => level.dispatch_narrow(OfIntegers::<$t, false>(task)),
                }
            }
        }
    )* };
}
integers!(u8, i8, i16, i32, i64);

struct OfIntegers<'a, T: Integer, const LARGEST: bool>(Task<'a, T>);

/// Does `v` replace the best?
#[inline(always)]
fn beats<T: Ord, const LARGEST: bool>(v: T, best: T) -> bool {
    if LARGEST { v > best } else { v < best }
}

/// Every lane of `x` meets the best so far, as place `place`.
#[inline(always)]
fn meet<T: Integer, const LARGEST: bool>(best: &mut [T], places: &mut [T::Place], x: &[T], place: T::Place) {
    for ((best, at), v) in best.iter_mut().zip(places).zip(x) {
        let wins = beats::<T, LARGEST>(*v, *best);
        *best = if wins { *v } else { *best };
        *at = if wins { place } else { *at };
    }
}

impl<T: Integer, const LARGEST: bool> SimdTask for OfIntegers<'_, T, LARGEST> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (reduced, inner) = (self.0.volumes.reduced, self.0.volumes.inner);
        for unit in self.0.units.clone() {
            // SAFETY: the unit is one of the volumes', whose elements and results the tensors have; no other chunk has it.
            unsafe {
                if inner == 1 {
                    let x = std::slice::from_raw_parts(self.0.input.as_ptr().add(unit * reduced), reduced);
                    let (best, place) = row::<T, LARGEST>(x);
                    self.put(unit, best, place as i64);
                } else {
                    let (stretch, columns) = self.0.columns_of(unit);
                    self.columns(stretch, columns);
                }
            }
        }
    }
}

/// The extreme of a row and its place; the row has elements.
#[inline(always)]
fn row<T: Integer, const LARGEST: bool>(x: &[T]) -> (T, usize) {
    let (mut best, mut place) = (x[0], 0);
    let groups = x.chunks_exact(LANES);
    let rest = x.len() - groups.remainder().len();
    if rest > 0 {
        let (mut values, mut places) = ([best; LANES], [T::place(0); LANES]);
        values.copy_from_slice(&x[..LANES]);
        for (i, group) in groups.enumerate().skip(1) {
            meet::<T, LARGEST>(&mut values, &mut places, group, T::place(i));
        }
        let place_of = |lane: usize| places[lane].into() as usize * LANES + lane;
        (best, place) = (values[0], place_of(0));
        for (lane, v) in values.into_iter().enumerate().skip(1) {
            let at = place_of(lane);
            if beats::<T, LARGEST>(v, best) || (v == best && at < place) {
                (best, place) = (v, at);
            }
        }
    }
    for (i, v) in x.iter().enumerate().skip(rest.max(1)) {
        if beats::<T, LARGEST>(*v, best) {
            (best, place) = (*v, i);
        }
    }
    (best, place)
}

impl<T: Integer, const LARGEST: bool> OfIntegers<'_, T, LARGEST> {
    /// # Safety
    /// Result `at` exists.
    #[inline(always)]
    unsafe fn put(&self, at: usize, best: T, place: i64) {
        // SAFETY: result `at` exists in both outputs, as the caller promises; no other chunk writes it.
        unsafe {
            *self.0.places.as_ptr().add(at) = place;
            if let Some(values) = &self.0.values {
                *values.as_ptr().add(at) = best;
            }
        }
    }

    /// Some neighbouring results of a stretch, at most [`COLUMNS`].
    ///
    /// # Safety
    /// They and their elements exist.
    #[inline(always)]
    unsafe fn columns(&self, stretch: usize, columns: Range<usize>) {
        let (reduced, inner) = (self.0.volumes.reduced, self.0.volumes.inner);
        let (n, first) = (columns.len(), stretch * reduced * inner + columns.start);
        // SAFETY: element `i` of the reduced dimension has these neighbours, as the caller promises.
        let line =
            |i: usize| unsafe { std::slice::from_raw_parts(self.0.input.as_ptr().add(first + i * inner), n) };
        let (mut best, mut places) = ([line(0)[0]; COLUMNS], [T::place(0); COLUMNS]);
        best[..n].copy_from_slice(line(0));
        for i in 1..reduced {
            meet::<T, LARGEST>(&mut best[..n], &mut places, line(i), T::place(i));
        }
        for (c, (best, place)) in best.iter().zip(places).enumerate().take(n) {
            // SAFETY: the results exist, as the caller promises.
            unsafe { self.put(stretch * inner + columns.start + c, *best, place.into()) };
        }
    }
}
