//! The products of convolutions and of dense matrices: sums of a tile of registers. Unsafe island: vectors are read and written by address.
//!
//! Two vectors of pixels by four output channels at once: eight sums hide the latency of a multiplication, and with two
//! vectors and a weight beside them they fit into the registers of every instruction set.

use crate::ops::real::Real;
use crate::vector_math::Simd;
use crate::vector_math::simd::MAX_LANES;

/// Pixels of a tile.
pub(crate) const WIDTH: usize = 32;
/// Output channels of a tile.
pub(crate) const TALL: usize = 4;
/// Vectors whose sums are in registers at once.
const VECTORS: usize = 2;

/// Rows that rows are multiplied with at once.
pub(crate) const DOTS: usize = 2;

/// The sums of a tile: a row for each output channel.
pub(crate) type Sums<T> = [[T; WIDTH]; TALL];

/// A number with products of tiles.
pub(crate) trait TileProduct: Real {
    /// The sums of products over rows of columns: `rows` has the pixels of a tile in each row.
    fn product<'a, S: Simd>(
        s: S,
        weights: &[[Self; TALL]],
        rows: impl Iterator<Item = &'a [Self; WIDTH]> + Clone,
    ) -> Sums<Self>;

    /// As [`TileProduct::product`], of a tile `N` wide, a multiple of a vector; weights may come from anywhere.
    fn tile<'a, S: Simd, const N: usize>(
        s: S,
        weights: impl Iterator<Item = [Self; TALL]> + Clone,
        rows: impl Iterator<Item = &'a [Self; N]> + Clone,
    ) -> [[Self; N]; TALL];

    /// The sums of products of every row on the left with every one on the right; the shortest row ends them all.
    fn dots<S: Simd>(s: S, left: [&[Self]; TALL], right: [&[Self]; DOTS]) -> [[Self; DOTS]; TALL];
}

/// `$lanes`: numbers of a vector of `S`.
macro_rules! tile_product {
    ($number:ty, $lanes:expr, $splat:ident, $load:ident, $fma:ident, $store:ident) => {
        impl TileProduct for $number {
            #[inline(always)]
            fn product<'a, S: Simd>(
                s: S,
                weights: &[[Self; TALL]],
                rows: impl Iterator<Item = &'a [Self; WIDTH]> + Clone,
            ) -> Sums<Self> {
                Self::tile(s, weights.iter().copied(), rows)
            }

            #[inline(always)]
            fn tile<'a, S: Simd, const N: usize>(
                s: S,
                weights: impl Iterator<Item = [Self; TALL]> + Clone,
                rows: impl Iterator<Item = &'a [Self; N]> + Clone,
            ) -> [[Self; N]; TALL] {
                /// The sums of `V` vectors from number `first` of every row on.
                #[inline(always)]
                fn pass<'a, S: Simd, const N: usize, const V: usize>(
                    s: S,
                    first: usize,
                    weights: impl Iterator<Item = [$number; TALL]>,
                    rows: impl Iterator<Item = &'a [$number; N]>,
                    out: &mut [[$number; N]; TALL],
                ) {
                    let mut sums = [[s.$splat(0.0); V]; TALL];
                    for (weights, row) in weights.zip(rows) {
                        let row = &row[first..first + V * $lanes];
                        let mut pixels = [s.$splat(0.0); V];
                        for (v, pixels) in pixels.iter_mut().enumerate() {
                            // SAFETY: vector number v ends within the part of the row, which has V vectors.
                            *pixels = unsafe { s.$load(row.as_ptr().wrapping_add(v * $lanes)) };
                        }
                        for (sums, weight) in sums.iter_mut().zip(weights) {
                            let weight = s.$splat(weight);
                            for (sum, pixels) in sums.iter_mut().zip(pixels) {
                                *sum = s.$fma(weight, pixels, *sum);
                            }
                        }
                    }
                    for (out, sums) in out.iter_mut().zip(sums) {
                        let to = out[first..first + V * $lanes].as_mut_ptr();
                        for (v, sum) in sums.into_iter().enumerate() {
                            // SAFETY: as above, of a row of sums.
                            unsafe { s.$store(to.wrapping_add(v * $lanes), sum) };
                        }
                    }
                }
                const { assert!(N.is_multiple_of($lanes)) };
                let mut out = [[0.0; N]; TALL];
                if N.is_multiple_of(VECTORS * $lanes) {
                    for first in (0..N).step_by(VECTORS * $lanes) {
                        pass::<S, N, VECTORS>(s, first, weights.clone(), rows.clone(), &mut out);
                    }
                } else {
                    for first in (0..N).step_by($lanes) {
                        pass::<S, N, 1>(s, first, weights.clone(), rows.clone(), &mut out);
                    }
                }
                out
            }

            #[inline(always)]
            fn dots<S: Simd>(s: S, left: [&[Self]; TALL], right: [&[Self]; DOTS]) -> [[Self; DOTS]; TALL] {
                let n = left.iter().chain(&right).map(|row| row.len()).min().unwrap_or(0);
                let mut sums = [[s.$splat(0.0); DOTS]; TALL];
                let whole = n - n % $lanes;
                for at in (0..whole).step_by($lanes) {
                    let mut b = [s.$splat(0.0); DOTS];
                    for (b, row) in b.iter_mut().zip(&right) {
                        // SAFETY: a vector from `at` on ends within the row: every row has `whole` numbers, of which `at` is a
                        // whole number of vectors.
                        *b = unsafe { s.$load(row.as_ptr().wrapping_add(at)) };
                    }
                    for (sums, row) in sums.iter_mut().zip(&left) {
                        // SAFETY: the row has `whole` numbers, too, and `at` is a whole number of vectors below that.
                        let a = unsafe { s.$load(row.as_ptr().wrapping_add(at)) };
                        for (sum, b) in sums.iter_mut().zip(b) {
                            *sum = s.$fma(a, b, *sum);
                        }
                    }
                }
                let mut out = [[0.0; DOTS]; TALL];
                for ((out, sums), left) in out.iter_mut().zip(sums).zip(&left) {
                    for ((out, sum), right) in out.iter_mut().zip(sums).zip(&right) {
                        let mut lanes = [0.0; MAX_LANES];
                        // SAFETY: a vector has at most as many numbers as the array.
                        unsafe { s.$store(lanes.as_mut_ptr(), sum) };
                        *out = lanes[..$lanes].iter().sum();
                        for (a, b) in left[whole..n].iter().zip(&right[whole..n]) {
                            *out += a * b;
                        }
                    }
                }
                out
            }
        }
    };
}

tile_product!(f32, S::LANES, splat, load, fma, store);
tile_product!(f64, S::LANES / 2, splat_d, load_d, fma_d, store_d);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector_math::{SimdLevel, SimdTask};
    use pteron_core::Isa;

    struct Task<'a, T>(&'a [[T; TALL]], &'a [[T; WIDTH]]);

    impl<T: TileProduct> SimdTask for Task<'_, T> {
        type Output = Sums<T>;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Sums<T> {
            T::product(s, self.0, self.1.iter())
        }
    }

    fn check<T: TileProduct + std::fmt::Debug>() {
        let number = |i: usize| T::from_i64((i * 7 % 13) as i64 - 6);
        let weights: Vec<[T; TALL]> = (0..9).map(|r| std::array::from_fn(|o| number(r * TALL + o))).collect();
        let rows: Vec<[T; WIDTH]> = (0..9).map(|r| std::array::from_fn(|x| number(r * 5 + x))).collect();
        for isa in Isa::ALL {
            let level = SimdLevel::at_most(isa);
            let sums = level.dispatch(Task(&weights, &rows));
            for (o, sums) in sums.iter().enumerate() {
                for (x, sum) in sums.iter().enumerate() {
                    let mut expected = T::ZERO;
                    weights.iter().zip(&rows).for_each(|(w, row)| expected += w[o] * row[x]);
                    assert!(*sum == expected, "{level:?} {o} {x}: {sum:?}, {expected:?}");
                }
            }
        }
    }

    struct Dots<'a, T>([&'a [T]; TALL], [&'a [T]; DOTS]);

    impl<T: TileProduct> SimdTask for Dots<'_, T> {
        type Output = [[T; DOTS]; TALL];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [[T; DOTS]; TALL] {
            T::dots(s, self.0, self.1)
        }
    }

    fn check_dots<T: TileProduct + std::fmt::Debug>() {
        let number = |i: usize| T::from_i64((i * 7 % 13) as i64 - 6);
        let row = |r: usize| -> Vec<T> { (0..70).map(|i| number(i * (r + 1) + r)).collect() };
        let rows: Vec<Vec<T>> = (0..TALL + DOTS).map(row).collect();
        for n in [0, 1, 7, 16, 33, 70] {
            let left: [&[T]; TALL] = std::array::from_fn(|r| &rows[r][..n]);
            let right: [&[T]; DOTS] = std::array::from_fn(|r| &rows[TALL + r][..]);
            for isa in Isa::ALL {
                let level = SimdLevel::at_most(isa);
                let sums = level.dispatch(Dots(left, right));
                for (l, sums) in sums.iter().enumerate() {
                    for (r, sum) in sums.iter().enumerate() {
                        let mut expected = T::ZERO;
                        left[l].iter().zip(right[r]).for_each(|(a, b)| expected += *a * *b);
                        assert!(*sum == expected, "{level:?} {n} {l} {r}: {sum:?}, {expected:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_rows_are_exact_at_every_level() {
        check_dots::<f32>();
        check_dots::<f64>();
    }

    #[test]
    fn whole_numbers_are_exact_at_every_level() {
        check::<f32>();
        check::<f64>();
    }
}
