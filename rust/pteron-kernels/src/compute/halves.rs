//! Blocks of 16-bit floats, converted by the processor's instructions for several at once, which the crate `half` finds out.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Elements of 16-bit floats that are converted at once: instructions for eight are found out once for all of them.
pub(super) const HALVES: usize = 64;

/// A 16-bit float.
pub(super) trait Half: Copy + Default {
    /// Converts all elements; exact.
    fn widen(from: &[Self; HALVES], to: &mut [f32; HALVES]);
    /// Rounds all elements to the nearest, ties to even.
    fn narrow(from: &[f32; HALVES], to: &mut [Self; HALVES]);
}

macro_rules! half {
    ($($t:ty),*) => { $(
        impl Half for $t {
            #[inline(always)]
            fn widen(from: &[Self; HALVES], to: &mut [f32; HALVES]) {
                from.convert_to_f32_slice(to);
            }
            #[inline(always)]
            fn narrow(from: &[f32; HALVES], to: &mut [Self; HALVES]) {
                to.convert_from_f32_slice(from);
            }
        }
    )* };
}
half!(f16, bf16);
