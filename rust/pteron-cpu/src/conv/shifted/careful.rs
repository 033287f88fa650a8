//! Tiles of a transposed convolution whose weights are not all finite: taps outside the input are left out, where a zero of the
//! margin would make NaN of them. Unsafe island.
#![allow(unsafe_code, reason = "planes are addressed by shift")]

use super::plan::STRIPE;
use super::stored::{Number, Stored};
use super::tile::{TileOf, Unit};
use pteron_kernels::vector_math::Simd;

impl<T: Stored> Unit<'_, T> {
    /// The sums of a tile, pixel by pixel.
    ///
    /// # Safety
    /// See [`TileOf`]: all that it says is there.
    #[inline(never)]
    pub(super) unsafe fn sum_carefully<S: Simd>(&self, s: S, tile: &TileOf<Number<T>>) {
        self.runs(|[z, y, x], first, n| {
            for i in 0..n {
                for r in 0..tile.height {
                    // SAFETY: the caller's promise; pixel `first + i` is one of the unit's.
                    unsafe {
                        let sum = self.pixel(s, tile, [z, y, x + i], first + i, r);
                        *self.sums.add(r * STRIPE + first + i) = sum;
                    }
                }
            }
        });
    }

    /// # Safety
    /// As for [`Unit::sum_carefully`].
    unsafe fn pixel<S: Simd>(
        &self,
        s: S,
        tile: &TileOf<Number<T>>,
        output: [usize; 3],
        number: usize,
        r: usize,
    ) -> Number<T> {
        let axes = &self.phase.axes;
        let is_inside = |d: usize, t: usize| {
            let a = &axes[d];
            let at = output[d] as isize * a.in_step + a.in_start + t as isize * a.tap_step;
            (0..a.size as isize).contains(&at)
        };
        let [_, height, width] = axes.map(|a| a.taps);
        let mut sum = tile.bias[r];
        for channel in 0..self.geometry.in_channels {
            for (t, shift) in self.table.iter().enumerate() {
                let [z, y, x] = [t / width / height, t / width % height, t % width];
                if is_inside(0, z) && is_inside(1, y) && is_inside(2, x) {
                    // SAFETY: the tap is an input of the channel, and the tile has a weight for it.
                    unsafe {
                        let at = (channel * self.table.len() + t) * tile.height + r;
                        let v = *tile.pixels.add(channel * self.plan.per_channel + shift + number);
                        sum = T::fma(s, *tile.weights.add(at), v, sum);
                    }
                }
            }
        }
        sum
    }
}
