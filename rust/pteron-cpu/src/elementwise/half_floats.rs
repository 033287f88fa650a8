//! float16 and bfloat16 as elements in memory: their conversion to and from f32, in which they are computed.
//! Unsafe island (raw pointers).
//!
//! The conversions are plain arithmetic without branches, so that the compiler vectorises them for
//! whatever instruction set the surrounding task runs with.

use super::broadcast::{BroadcastPlan, Run};
use crate::vector_math::{Simd, SimdTask};
use std::marker::PhantomData;

/// A sixteen-bit float format.
pub trait HalfFormat: Send + Sync + 'static {
    /// Exact.
    fn widen(bits: u16) -> f32;
    /// To the nearest, ties to even.
    fn narrow(value: f32) -> u16;
}

/// IEEE binary16.
pub struct Binary16;
impl HalfFormat for Binary16 {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        /// Moves the exponent's bias from 15 to 127; makes subnormal numbers normal on the way.
        const TWO_TO_112: f32 = f32::from_bits(0x7780_0000);
        let magnitude = u32::from(bits & 0x7fff) << 13;
        let finite = (f32::from_bits(magnitude) * TWO_TO_112).to_bits();
        let wide = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { finite };
        f32::from_bits(wide | u32::from(bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let sign = (value.to_bits() >> 16) & 0x8000;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        // Adding less than half a unit, or half a unit to an odd number, rounds ties to even.
        let odd = (magnitude >> 13) & 1;
        let normal = (magnitude.wrapping_add(0xfff + odd).wrapping_sub(0x3800_0000) >> 13).min(0x7c00);
        // One half has the unit of the subnormal numbers, 2^-24, so this addition rounds to it.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
        let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
        (sign | if magnitude > 0x7f80_0000 { 0x7e00 } else { finite }) as u16
    }
}

/// The upper half of an f32.
pub struct Brain16;
impl HalfFormat for Brain16 {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) as u16
    }
}

/// Converts the operand's elements for output elements `at..at + n`.
pub(super) struct Widen<'a, H> {
    pub plan: &'a BroadcastPlan<1>,
    pub source: *const u16,
    pub at: usize,
    pub n: usize,
    pub block: &'a mut [f32],
    pub format: PhantomData<H>,
}

impl<H: HalfFormat> SimdTask for Widen<'_, H> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [stride] = self.plan.inner_strides();
        let mut done = 0;
        for Run { offsets: [offset], n, .. } in self.plan.runs_between(self.at, self.at + self.n) {
            let part = &mut self.block[done..done + n];
            // SAFETY: the plan's runs lie inside the operand.
            unsafe {
                let from = self.source.add(offset);
                match stride {
                    0 => part.fill(H::widen(*from)),
                    1 => {
                        for (i, slot) in part.iter_mut().enumerate() {
                            *slot = H::widen(*from.add(i));
                        }
                    }
                    _ => {
                        for (i, slot) in part.iter_mut().enumerate() {
                            *slot = H::widen(*from.add(i * stride));
                        }
                    }
                }
            }
            done += n;
        }
    }
}

/// Rounds `n` elements.
pub(super) struct Narrow<H> {
    pub from: *const f32,
    pub to: *mut u16,
    pub n: usize,
    pub format: PhantomData<H>,
}

impl<H: HalfFormat> SimdTask for Narrow<H> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in 0..self.n {
            // SAFETY: whoever makes the task has `n` elements on both sides.
            unsafe { *self.to.add(i) = H::narrow(*self.from.add(i)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binary16_survives_and_midpoints_go_to_even() {
        for bits in 0..=u16::MAX {
            let wide = Binary16::widen(bits);
            let back = Binary16::narrow(wide);
            let is_nan = bits & 0x7fff > 0x7c00;
            assert_eq!(wide.is_nan(), is_nan, "{bits:#x}");
            assert!(back == bits || (is_nan && back & 0x7e00 == 0x7e00), "{bits:#x} {back:#x}");
            if bits & 0x7fff < 0x7bff {
                let above = Binary16::widen(bits + 1);
                let middle = ((f64::from(wide) + f64::from(above)) / 2.0) as f32;
                assert_eq!(Binary16::narrow(middle), bits + (bits & 1), "{bits:#x}");
                let toward = |v: f32| f32::from_bits(v.to_bits() - 1);
                assert_eq!(Binary16::narrow(toward(middle)), bits, "{bits:#x}");
            }
        }
        assert_eq!(Binary16::widen(0x3c00), 1.0);
        assert_eq!(Binary16::widen(1), 2f32.powi(-24));
        assert_eq!(Binary16::narrow(65520.0), 0x7c00);
        assert_eq!(Binary16::narrow(65519.0), 0x7bff);
        assert_eq!(Binary16::narrow(f32::NEG_INFINITY), 0xfc00);
        assert_eq!(Binary16::narrow(1e-30), 0);
    }

    #[test]
    fn brain16_rounds_to_even_and_keeps_nan() {
        for bits in 0..=u16::MAX {
            let back = Brain16::narrow(Brain16::widen(bits));
            let is_nan = bits & 0x7fff > 0x7f80;
            assert!(back == bits || (is_nan && back == bits | 0x40), "{bits:#x}");
        }
        assert_eq!(Brain16::narrow(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(Brain16::narrow(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(Brain16::narrow(f32::MAX), 0x7f80);
    }
}
