//! The floats that operators on images compute in: float32, which 16-bit floats are widened to, and float64.

use crate::elementwise::operand::{Convert, Sink, Source};
use crate::ordering::Key;
use crate::vector_math::{Simd, SimdTask};
use bytemuck::Pod;
use half::{bf16, f16};
use pteron_core::Element;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A float with its arithmetic.
pub(crate) trait Real:
    Key + Pod + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + AddAssign
{
    /// The largest number that is not above `limit`, NaN for NaN: a number is above one if it is above the other.
    fn at_most(limit: f64) -> Self;
}

impl Real for f32 {
    fn at_most(limit: f64) -> f32 {
        let nearest = limit as f32;
        if f64::from(nearest) > limit { nearest.next_down() } else { nearest }
    }
}

impl Real for f64 {
    fn at_most(limit: f64) -> f64 {
        limit
    }
}

/// A float that tensors are of.
pub(crate) trait Float: Element + Default {
    /// What sums are computed in.
    type Sum: Real + Element;
    fn wide(self) -> Self::Sum;
    fn rounded(sum: Self::Sum) -> Self;
    /// Widens elements, as many as both have.
    fn widen<S: Simd>(s: S, from: &[Self], to: &mut [Self::Sum]);
    /// Rounds sums to elements, as many as both have.
    fn narrow<S: Simd>(s: S, from: &[Self::Sum], to: &mut [Self]);
    /// The elements themselves as sums, where they are of that type.
    fn as_sums(elements: &mut [Self]) -> Option<&mut [Self::Sum]>;
}

macro_rules! whole {
    ($($t:ty),*) => { $(
        impl Float for $t {
            type Sum = $t;
            #[inline(always)]
            fn wide(self) -> $t {
                self
            }
            #[inline(always)]
            fn rounded(sum: $t) -> $t {
                sum
            }
            #[inline(always)]
            fn widen<S: Simd>(_: S, from: &[$t], to: &mut [$t]) {
                to.iter_mut().zip(from).for_each(|(to, v)| *to = *v);
            }
            #[inline(always)]
            fn narrow<S: Simd>(_: S, from: &[$t], to: &mut [$t]) {
                to.iter_mut().zip(from).for_each(|(to, v)| *to = *v);
            }
            #[inline(always)]
            fn as_sums(elements: &mut [$t]) -> Option<&mut [$t]> {
                Some(elements)
            }
        }
    )* };
}
whole!(f32, f64);

macro_rules! half {
    ($($t:ty),*) => { $(
        impl Float for $t {
            type Sum = f32;
            #[inline(always)]
            fn wide(self) -> f32 {
                Source::number(self)
            }
            #[inline(always)]
            fn rounded(sum: f32) -> $t {
                Sink::of_number(sum)
            }
            #[inline(always)]
            fn widen<S: Simd>(s: S, from: &[$t], to: &mut [f32]) {
                let n = from.len().min(to.len());
                Convert { from: from.as_ptr(), to: to.as_mut_ptr(), n }.run(s);
            }
            #[inline(always)]
            fn narrow<S: Simd>(s: S, from: &[f32], to: &mut [$t]) {
                let n = from.len().min(to.len());
                Convert { from: from.as_ptr(), to: to.as_mut_ptr(), n }.run(s);
            }
            #[inline(always)]
            fn as_sums(_: &mut [$t]) -> Option<&mut [f32]> {
                None
            }
        }
    )* };
}
half!(f16, bf16);

/// Prepares the kernel for a dtype of floats by a function that is generic over them, and over numbers
/// that are given in brackets; other dtypes are declined.
macro_rules! by_float {
    ($ctx:expr, $dtype:expr, $prepare:ident $([$n:ident])? ( $($argument:expr),* )) => {
        match $dtype {
            pteron_core::DType::Float16 => $prepare::<half::f16 $(, $n)?>($($argument),*),
            pteron_core::DType::BFloat16 => $prepare::<half::bf16 $(, $n)?>($($argument),*),
            pteron_core::DType::Float32 => $prepare::<f32 $(, $n)?>($($argument),*),
            pteron_core::DType::Float64 => $prepare::<f64 $(, $n)?>($($argument),*),
            _ => $ctx.decline("takes floats"),
        }
    };
}
pub(crate) use by_float;

#[cfg(test)]
mod tests {
    use super::Real;

    #[test]
    fn limits_are_rounded_down() {
        for limit in [0.7, 0.1, 0.5, -0.3, 1e300, -1e300, f64::INFINITY, 0.0] {
            let below = f32::at_most(limit);
            assert!(
                f64::from(below) <= limit && f64::from(below.next_up()) > limit || limit == f64::INFINITY
            );
        }
        assert!(f32::at_most(f64::NAN).is_nan());
    }
}
