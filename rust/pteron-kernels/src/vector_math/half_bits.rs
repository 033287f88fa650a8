//! float16 and bfloat16 to and from f32 in plain arithmetic without branches: what instruction sets without such
//! conversions do, and the tests of those that have them.

/// A float16 as f32; exact.
#[inline(always)]
pub fn binary16_to(bits: u16) -> f32 {
    /// Moves the exponent's bias from 15 to 127; makes subnormal numbers normal on the way.
    const TWO_TO_112: f32 = f32::from_bits(0x7780_0000);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * TWO_TO_112).to_bits();
    let wide = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(wide | u32::from(bits & 0x8000) << 16)
}

/// The float16 nearest to `value`, ties to even.
#[inline(always)]
pub fn binary16_from(value: f32) -> u16 {
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

/// A bfloat16, the upper half of an f32, as f32; exact.
#[inline(always)]
pub fn brain16_to(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bfloat16 nearest to `value`, ties to even.
#[inline(always)]
pub fn brain16_from(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binary16_survives_and_midpoints_go_to_even() {
        for bits in 0..=u16::MAX {
            let wide = binary16_to(bits);
            let back = binary16_from(wide);
            let is_nan = bits & 0x7fff > 0x7c00;
            assert_eq!(wide.is_nan(), is_nan, "{bits:#x}");
            assert!(back == bits || (is_nan && back & 0x7e00 == 0x7e00), "{bits:#x} {back:#x}");
            if bits & 0x7fff < 0x7bff {
                let above = binary16_to(bits + 1);
                let middle = ((f64::from(wide) + f64::from(above)) / 2.0) as f32;
                assert_eq!(binary16_from(middle), bits + (bits & 1), "{bits:#x}");
                let toward = |v: f32| f32::from_bits(v.to_bits() - 1);
                assert_eq!(binary16_from(toward(middle)), bits, "{bits:#x}");
            }
        }
        assert_eq!(binary16_to(0x3c00), 1.0);
        assert_eq!(binary16_to(1), 2f32.powi(-24));
        assert_eq!(binary16_from(65520.0), 0x7c00);
        assert_eq!(binary16_from(65519.0), 0x7bff);
        assert_eq!(binary16_from(f32::NEG_INFINITY), 0xfc00);
        assert_eq!(binary16_from(1e-30), 0);
    }

    #[test]
    fn brain16_rounds_to_even_and_keeps_nan() {
        for bits in 0..=u16::MAX {
            let back = brain16_from(brain16_to(bits));
            let is_nan = bits & 0x7fff > 0x7f80;
            assert!(back == bits || (is_nan && back == bits | 0x40), "{bits:#x}");
        }
        assert_eq!(brain16_from(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(brain16_from(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(brain16_from(f32::MAX), 0x7f80);
    }

    struct Through<'a>(&'a [f32], &'a mut [u16], &'a mut [f32], bool);

    impl crate::vector_math::SimdTask for Through<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: crate::vector_math::Simd>(self, s: S) {
            for i in (0..self.0.len()).step_by(S::LANES) {
                // SAFETY: the lengths are multiples of LANES.
                unsafe {
                    let v = s.load(self.0.as_ptr().add(i));
                    let (bits, back) = (self.1.as_mut_ptr().add(i), self.2.as_mut_ptr().add(i));
                    if self.3 {
                        s.store_binary16(bits, v);
                        s.store(back, s.load_binary16(bits));
                    } else {
                        s.store_brain16(bits, v);
                        s.store(back, s.load_brain16(bits));
                    }
                }
            }
        }
    }

    #[test]
    fn instructions_round_as_the_arithmetic_does() {
        let x: Vec<f32> = (0..1u32 << 16).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
        let (mut bits, mut back) = (vec![0; x.len()], vec![0.0; x.len()]);
        for isa in pteron_core::Isa::ALL {
            for is_binary in [true, false] {
                crate::vector_math::SimdLevel::at_most(isa)
                    .dispatch(Through(&x, &mut bits, &mut back, is_binary));
                for i in 0..x.len() {
                    let (rounded, wide) = match is_binary {
                        true => (binary16_from(x[i]), binary16_to(bits[i])),
                        false => (brain16_from(x[i]), brain16_to(bits[i])),
                    };
                    assert!(bits[i] == rounded || x[i].is_nan(), "{isa:?} {:e}", x[i]);
                    assert!(back[i].to_bits() == wide.to_bits() || back[i].is_nan() && x[i].is_nan());
                }
            }
        }
    }
}
