//! Elements of a convolution's tensors, and the numbers that they are computed in. Unsafe island (runs of elements by
//! address).
#![allow(unsafe_code, reason = "elements are addressed by stride")]

use crate::linear::other_dtypes::product::{Double, Product, Single};
use half::{bf16, f16};
use pteron_core::Element;
use pteron_kernels::elementwise::operand::{Convert, Sink, Source};
use pteron_kernels::vector_math::{Simd, SimdTask};

/// What elements of type `T` are computed in.
pub(super) type Number<T> = <<T as Stored>::Of as Product>::Number;

/// A number that is computed with.
pub(super) trait Computed: bytemuck::Pod + Default + Send + Sync + 'static {
    fn is_finite(self) -> bool;
}

impl Computed for f32 {
    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Computed for f64 {
    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

/// An element of a tensor.
pub(super) trait Stored: Element {
    /// The arithmetic of its numbers.
    type Of: Product<Number: Computed>;
    fn number(self) -> Number<Self>;
    /// `a * b + c`, as a lane of a vector has it.
    fn fma<S: Simd>(s: S, a: Number<Self>, b: Number<Self>, c: Number<Self>) -> Number<Self>;
    /// Reads `n` elements, `step` apart.
    ///
    /// # Safety
    /// They are readable, and `n` numbers are writable at `to`.
    unsafe fn read<S: Simd>(s: S, from: *const Self, step: usize, n: usize, to: *mut Number<Self>);
    /// Rounds and writes `n` elements, `step` apart.
    ///
    /// # Safety
    /// They are writable, and `n` numbers are readable at `from`.
    unsafe fn write<S: Simd>(s: S, from: *const Number<Self>, n: usize, to: *mut Self, step: usize);
}

macro_rules! in_f32 {
    ($($t:ty),*) => { $(
        impl Stored for $t {
            type Of = Single;
            #[inline(always)]
            fn number(self) -> f32 {
                Source::number(self)
            }
            #[inline(always)]
            fn fma<S: Simd>(s: S, a: f32, b: f32, c: f32) -> f32 {
                let mut lane = [0f32; pteron_kernels::vector_math::simd::MAX_LANES];
                // SAFETY: the lane is the first of an array of all.
                unsafe { s.store(lane.as_mut_ptr(), s.fma(s.splat(a), s.splat(b), s.splat(c))) };
                lane[0]
            }
            #[inline(always)]
            unsafe fn read<S: Simd>(s: S, from: *const $t, step: usize, n: usize, to: *mut f32) {
                if step == 1 {
                    return Convert { from, to, n }.run(s);
                }
                for i in 0..n {
                    // SAFETY: the caller promises `n` elements, `step` apart, and room for as many numbers.
                    unsafe { *to.add(i) = Source::number(*from.add(i * step)) };
                }
            }
            #[inline(always)]
            unsafe fn write<S: Simd>(s: S, from: *const f32, n: usize, to: *mut $t, step: usize) {
                if step == 1 {
                    return Convert { from, to, n }.run(s);
                }
                for i in 0..n {
                    // SAFETY: the caller promises `n` numbers, and room for as many elements, `step` apart.
                    unsafe { *to.add(i * step) = <$t as Sink>::of_number(*from.add(i)) };
                }
            }
        }
    )* };
}
in_f32!(f32, f16, bf16);

impl Stored for f64 {
    type Of = Double;
    #[inline(always)]
    fn number(self) -> f64 {
        self
    }
    #[inline(always)]
    fn fma<S: Simd>(s: S, a: f64, b: f64, c: f64) -> f64 {
        s.fma_double(a, b, c)
    }
    #[inline(always)]
    unsafe fn read<S: Simd>(_s: S, from: *const f64, step: usize, n: usize, to: *mut f64) {
        for i in 0..n {
            // SAFETY: the caller promises `n` elements, `step` apart, and room for as many numbers.
            unsafe { *to.add(i) = *from.add(i * step) };
        }
    }
    #[inline(always)]
    unsafe fn write<S: Simd>(_s: S, from: *const f64, n: usize, to: *mut f64, step: usize) {
        for i in 0..n {
            // SAFETY: the caller promises `n` numbers, and room for as many elements, `step` apart.
            unsafe { *to.add(i * step) = *from.add(i) };
        }
    }
}
