//! The extremes of floats and their places, in vectors: the first NaN wins. Unsafe island (vector loads).

use super::scan::{Scanned, Task};
use crate::elementwise::columns::{Columns, Number};
use crate::reduction::shape::Volumes;
use crate::vector_math::simd::MOST_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};

macro_rules! floats {
    ($($t:ty),*) => { $(
        impl Scanned for $t {
            fn scan(level: SimdLevel, task: Task<'_, Self>, is_largest: bool) {
                match is_largest {
                    true => level.dispatch(Of::<$t, true>(task)),
                    false => level.dispatch(Of::<$t, false>(task)),
                }
            }
        }
    )* };
}
floats!(f32, f64, f16, bf16);

/// Does `v`, which comes later, replace the best?
#[inline(always)]
fn beats<N: Number, const LARGEST: bool>(v: N, best: N) -> bool {
    !best.is_nan() && (v.is_nan() || if LARGEST { v > best } else { v < best })
}

struct Of<'a, T: Columns, const LARGEST: bool>(Task<'a, T>);

impl<T: Columns, const LARGEST: bool> SimdTask for Of<'_, T, LARGEST> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Volumes { reduced, inner, .. } = self.0.volumes;
        let width = T::Number::width::<S>();
        for unit in self.0.units.clone() {
            // SAFETY: the unit is one of the volumes', whose elements and results the tensors have; no other chunk has it.
            unsafe {
                if inner == 1 {
                    self.row(s, unit, reduced);
                    continue;
                }
                let (stretch, columns) = self.0.columns_of(unit);
                let end = columns.end;
                for c in columns.step_by(width) {
                    match end - c >= width {
                        // A constant number: no partial loads.
                        true => self.columns(s, stretch, c, width),
                        false => self.columns(s, stretch, c, end - c),
                    }
                }
            }
        }
    }
}

impl<T: Columns, const LARGEST: bool> Of<'_, T, LARGEST> {
    /// Result `row`, of `n` neighbours.
    ///
    /// # Safety
    /// The row and its result exist; `n` is positive.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, row: usize, n: usize) {
        let width = T::Number::width::<S>();
        // SAFETY: the row exists, and so do its elements below `n`.
        unsafe {
            let x = self.0.input.as_ptr().add(row * n);
            let (mut best, mut place, mut at) = ((*x).wide(), 0, 1);
            if n >= width {
                (best, place) = self.lanes(s, x, n);
                at = n - n % width;
            }
            for i in at..n {
                let v = (*x.add(i)).wide();
                if beats::<_, LARGEST>(v, best) {
                    (best, place) = (v, i);
                }
            }
            *self.0.places.as_ptr().add(row) = place as i64;
            if let Some(values) = &self.0.values {
                *values.as_ptr().add(row) = *x.add(place);
            }
        }
    }

    /// The extreme of as many of `n` neighbours as whole blocks have, and its place.
    ///
    /// # Safety
    /// They are readable, and a block at least.
    #[inline(always)]
    unsafe fn lanes<S: Simd>(&self, s: S, x: *const T, n: usize) -> (T::Number, usize) {
        let width = T::Number::width::<S>();
        assert!(width <= MOST_LANES);
        let mut best = [T::Number::ZERO; MOST_LANES];
        let mut places = [T::Number::NOWHERE; MOST_LANES];
        // SAFETY: blocks lie among the elements; there is room for the lanes of one.
        unsafe {
            let mut state = (T::load_block(s, x, width), T::Number::places(s, 0));
            for at in (width..n - n % width).step_by(width) {
                let v = T::load_block(s, x.add(at), width);
                state = T::Number::overtake::<S, LARGEST>(s, state, v, T::Number::places(s, at));
            }
            T::Number::store_block(s, best.as_mut_ptr(), state.0, width);
            T::Number::store_places(s, places.as_mut_ptr(), state.1, width);
        }
        // Of all lanes the best, of those that are alike the one whose place is the first.
        let place = |lane: usize| places[lane].into() as usize + lane;
        let mut first = 0;
        for lane in 1..width {
            let (v, so_far) = (best[lane], best[first]);
            let is_alike = v == so_far || (v.is_nan() && so_far.is_nan());
            if beats::<_, LARGEST>(v, so_far) || (is_alike && place(lane) < place(first)) {
                first = lane;
            }
        }
        (best[first], place(first))
    }

    /// Results `c..c + n` of a stretch, at most those of a block.
    ///
    /// # Safety
    /// They and their elements exist.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, stretch: usize, c: usize, n: usize) {
        let Volumes { reduced, inner, .. } = self.0.volumes;
        let mut places = [T::Number::NOWHERE; MOST_LANES];
        // SAFETY: the elements and the results exist; there is room for the places of a block.
        unsafe {
            let x = self.0.input.as_ptr().add(stretch * reduced * inner + c);
            let mut state = (T::load_block(s, x, n), T::Number::places(s, 0));
            for i in 1..reduced {
                let v = T::load_block(s, x.add(i * inner), n);
                state = T::Number::overtake::<S, LARGEST>(s, state, v, T::Number::places(s, i));
            }
            let result = stretch * inner + c;
            T::Number::store_places(s, places.as_mut_ptr(), state.1, n);
            for (i, place) in places.iter().enumerate().take(n) {
                *self.0.places.as_ptr().add(result + i) = (*place).into();
            }
            if let Some(values) = &self.0.values {
                T::store_block(s, values.as_ptr().add(result), state.0, n);
            }
        }
    }
}
