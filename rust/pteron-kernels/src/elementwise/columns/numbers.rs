//! The arithmetic of blocks: of f32 in vectors, of float64 in loops over arrays. Unsafe island (vector loads).

use super::{Columns, DOUBLES, Number, VECTORS};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, double, exp, log};

/// Functions of one or two blocks by that of their parts: vectors of f32, or single numbers.
macro_rules! by_part {
    ($($name:ident: |$s:ident, $a:ident $(, $b:ident)?| $body:expr;)*) => { $(
        #[inline(always)]
        fn $name<S: Simd>($s: S, mut a: Self::Block<S> $(, $b: Self::Block<S>)?) -> Self::Block<S> {
            let _ = $s;
            by_part!(@each a, $a $(, $b)?, S, $body);
            a
        }
    )* };
    (@each $all:ident, $a:ident, $s:ty, $body:expr) => {
        for a in $all.iter_mut().take(Self::parts::<$s>()) {
            let $a = *a;
            *a = $body;
        }
    };
    (@each $all:ident, $a:ident, $b:ident, $s:ty, $body:expr) => {
        for (a, $b) in $all.iter_mut().zip($b).take(Self::parts::<$s>()) {
            let $a = *a;
            *a = $body;
        }
    };
}

impl Number for f32 {
    type Block<S: Simd> = [S::F; VECTORS];
    /// Bits of integers.
    type Places<S: Simd> = [S::F; VECTORS];
    type Place = i32;
    const LEAST: f32 = f32::NEG_INFINITY;
    const ZERO: f32 = 0.0;
    const NOWHERE: i32 = i32::MAX;

    #[inline(always)]
    fn width<S: Simd>() -> usize {
        S::BLOCK * S::LANES
    }
    #[inline(always)]
    fn parts<S: Simd>() -> usize {
        S::BLOCK
    }
    #[inline(always)]
    fn of(v: f64) -> f32 {
        v as f32
    }
    #[inline(always)]
    fn place(v: usize) -> i32 {
        v as i32
    }
    #[inline(always)]
    fn later(a: i32, b: usize) -> i32 {
        a.wrapping_add(b as i32)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
    #[inline(always)]
    fn plus(self, b: f32) -> f32 {
        self + b
    }
    #[inline(always)]
    fn over(self, b: f32) -> f32 {
        self / b
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, v: f32) -> Self::Block<S> {
        [s.splat(v); VECTORS]
    }
    by_part! {
        add: |s, a, b| s.add(a, b);
        sub: |s, a, b| s.sub(a, b);
        mul: |s, a, b| s.mul(a, b);
        div: |s, a, b| s.div(a, b);
        max: |s, a, b| s.max(a, b);
        max_nan: |s, a, b| s.max_nan(a, b);
        exp: |s, a| exp::exp(s, a);
        log: |s, a| log::log(s, a);
        finite: |s, a| s.select(s.eq(s.abs(a), s.splat(f32::INFINITY)), s.zero(), a);
        log_plus: |s, a, b| {
            let (mut sums, mut more) = ([0f32; MAX_LANES], [0f32; MAX_LANES]);
            // SAFETY: both have room for all lanes.
            unsafe {
                s.store(sums.as_mut_ptr(), a);
                s.store(more.as_mut_ptr(), b);
            }
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum = (double::log(s, f64::from(*sum)) + f64::from(more)) as f32;
            }
            // SAFETY: all lanes are there.
            unsafe { s.load(sums.as_ptr()) }
        };
    }
    #[inline(always)]
    fn places<S: Simd>(s: S, place: usize) -> Self::Places<S> {
        [s.of_bits(s.splat_i(place as i32)); VECTORS]
    }
    #[inline(always)]
    fn challenge<S: Simd>(
        s: S,
        (mut best, mut best_places): (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>) {
        for k in 0..S::BLOCK {
            let wins = s.or(s.gt(v[k], best[k]), s.not(s.eq(v[k], v[k])));
            best[k] = s.select(wins, v[k], best[k]);
            best_places[k] = s.select(wins, places[k], best_places[k]);
        }
        (best, best_places)
    }
    #[inline(always)]
    fn contest<S: Simd>(
        s: S,
        (mut best, mut best_places): (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>) {
        let (zero, one) = (s.zero(), s.splat(1.0));
        for k in 0..S::BLOCK {
            // Below zero where the new place comes first: places are not negative, so that nothing wraps.
            let (place, so_far) = (s.to_bits(places[k]), s.to_bits(best_places[k]));
            let behind = s.to_float(s.sub_i(place, so_far));
            let tie = s.lt(s.select(s.eq(v[k], best[k]), behind, one), zero);
            let above = s.select(s.eq(best[k], best[k]), one, behind);
            let nan = s.gt(s.select(s.eq(v[k], v[k]), zero, above), zero);
            let wins = s.or(s.gt(v[k], best[k]), s.or(tie, nan));
            best[k] = s.select(wins, v[k], best[k]);
            best_places[k] = s.select(wins, places[k], best_places[k]);
        }
        (best, best_places)
    }
    #[inline(always)]
    fn overtake<S: Simd, const LARGEST: bool>(
        s: S,
        (mut best, mut best_places): (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>) {
        for k in 0..S::BLOCK {
            let better = if LARGEST { s.gt(v[k], best[k]) } else { s.lt(v[k], best[k]) };
            let is_no_first_nan = s.or(s.eq(v[k], v[k]), s.not(s.eq(best[k], best[k])));
            let wins = s.or(better, s.not(is_no_first_nan));
            best[k] = s.select(wins, v[k], best[k]);
            best_places[k] = s.select(wins, places[k], best_places[k]);
        }
        (best, best_places)
    }
    #[inline(always)]
    unsafe fn load_strided<S: Simd>(s: S, p: *const f32, step: usize, n: usize) -> Self::Block<S> {
        let mut v = [s.zero(); VECTORS];
        for (k, slot) in v.iter_mut().enumerate().take(S::BLOCK) {
            let left = n.saturating_sub(k * S::LANES);
            if left > 0 {
                // SAFETY: as many elements as are left of the `n`.
                *slot = unsafe { s.load_strided(p.add(k * S::LANES * step), step, left.min(S::LANES)) };
            }
        }
        v
    }
    #[inline(always)]
    unsafe fn load_places<S: Simd>(s: S, p: *const i32, step: usize, n: usize) -> Self::Places<S> {
        // SAFETY: places are as large as floats; the bits are moved as they are.
        unsafe { Self::load_strided(s, p.cast::<f32>(), step, n) }
    }
    #[inline(always)]
    unsafe fn store_places<S: Simd>(s: S, p: *mut i32, v: Self::Places<S>, n: usize) {
        // SAFETY: room for `n` places is room for as many floats; the bits are moved as they are.
        unsafe { f32::store_block(s, p.cast::<f32>(), v, n) };
    }
}

impl Number for f64 {
    type Block<S: Simd> = [f64; DOUBLES];
    /// Bits of integers: chosen by the vector instructions that choose the numbers.
    type Places<S: Simd> = [f64; DOUBLES];
    type Place = i64;
    const LEAST: f64 = f64::NEG_INFINITY;
    const ZERO: f64 = 0.0;
    const NOWHERE: i64 = i64::MAX;

    #[inline(always)]
    fn width<S: Simd>() -> usize {
        DOUBLES
    }
    #[inline(always)]
    fn parts<S: Simd>() -> usize {
        DOUBLES
    }
    #[inline(always)]
    fn of(v: f64) -> f64 {
        v
    }
    #[inline(always)]
    fn place(v: usize) -> i64 {
        v as i64
    }
    #[inline(always)]
    fn later(a: i64, b: usize) -> i64 {
        a.wrapping_add(b as i64)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    #[inline(always)]
    fn plus(self, b: f64) -> f64 {
        self + b
    }
    #[inline(always)]
    fn over(self, b: f64) -> f64 {
        self / b
    }
    #[inline(always)]
    fn splat<S: Simd>(_: S, v: f64) -> Self::Block<S> {
        [v; DOUBLES]
    }
    by_part! {
        add: |s, a, b| a + b;
        sub: |s, a, b| a - b;
        mul: |s, a, b| a * b;
        div: |s, a, b| a / b;
        max: |s, a, b| if a > b { a } else { b };
        max_nan: |s, a, b| {
            let larger = if a > b { a } else { b };
            if a.is_nan() { a } else { larger }
        };
        exp: |s, a| double::exp(s, a);
        log: |s, a| double::log(s, a);
        finite: |s, a| if a.abs() == f64::INFINITY { 0.0 } else { a };
        log_plus: |s, a, b| double::log(s, a) + b;
    }
    #[inline(always)]
    fn places<S: Simd>(_: S, place: usize) -> Self::Places<S> {
        [f64::from_bits(place as u64); DOUBLES]
    }
    #[inline(always)]
    fn challenge<S: Simd>(
        _: S,
        (mut best, mut best_places): (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>) {
        for k in 0..DOUBLES {
            let wins = (v[k] > best[k]) | v[k].is_nan();
            best[k] = if wins { v[k] } else { best[k] };
            best_places[k] = if wins { places[k] } else { best_places[k] };
        }
        (best, best_places)
    }
    #[inline(always)]
    fn contest<S: Simd>(
        _: S,
        (mut best, mut best_places): (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>) {
        for k in 0..DOUBLES {
            let is_first = (places[k].to_bits() as i64) < best_places[k].to_bits() as i64;
            let tie = (v[k] == best[k]) & is_first;
            let nan = v[k].is_nan() & !(best[k].is_nan() & is_first);
            let wins = (v[k] > best[k]) | tie | nan;
            best[k] = if wins { v[k] } else { best[k] };
            best_places[k] = if wins { places[k] } else { best_places[k] };
        }
        (best, best_places)
    }
    #[inline(always)]
    fn overtake<S: Simd, const LARGEST: bool>(
        _: S,
        (mut best, mut best_places): (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>) {
        for k in 0..DOUBLES {
            let better = if LARGEST { v[k] > best[k] } else { v[k] < best[k] };
            let wins = better | (v[k].is_nan() & !best[k].is_nan());
            best[k] = if wins { v[k] } else { best[k] };
            best_places[k] = if wins { places[k] } else { best_places[k] };
        }
        (best, best_places)
    }
    #[inline(always)]
    unsafe fn load_strided<S: Simd>(s: S, p: *const f64, step: usize, n: usize) -> Self::Block<S> {
        if step == 1 {
            // SAFETY: `n` elements behind `p`, as this function asks for.
            return unsafe { Self::load_block(s, p, n) };
        }
        let mut v = [0.0; DOUBLES];
        for (i, slot) in v.iter_mut().enumerate().take(n) {
            // SAFETY: i < n, and elements are `step` apart.
            *slot = unsafe { *p.add(i * step) };
        }
        v
    }
    #[inline(always)]
    unsafe fn load_places<S: Simd>(s: S, p: *const i64, step: usize, n: usize) -> Self::Places<S> {
        // SAFETY: places are as large as floats; the bits are moved as they are.
        unsafe { Self::load_strided(s, p.cast::<f64>(), step, n) }
    }
    #[inline(always)]
    unsafe fn store_places<S: Simd>(s: S, p: *mut i64, v: Self::Places<S>, n: usize) {
        // SAFETY: room for `n` places is room for as many floats; the bits are moved as they are.
        unsafe { f64::store_block(s, p.cast::<f64>(), v, n) };
    }
}
