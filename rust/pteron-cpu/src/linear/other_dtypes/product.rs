//! Elements of matrices of each dtype, and the vectors that they are multiplied in.

use pteron_core::Element;
use pteron_kernels::elementwise::operand::Half;
use pteron_kernels::vector_math::Simd;

/// Elements of a matrix, and what they are computed in.
pub(super) trait Product: Copy + Send + Sync + 'static {
    /// In memory.
    type Memory: Element;
    /// While computing.
    type Number: Copy + Default;
    /// A vector of numbers.
    type Vector<S: Simd>: Copy;
    /// Are elements numbers as they lie in memory?
    const IS_NUMBER: bool;
    /// Lanes of a vector.
    fn lanes<S: Simd>() -> usize;
    fn widen(v: Self::Memory) -> Self::Number;
    fn narrow(v: Self::Number) -> Self::Memory;
    fn scaled(v: Self::Number, factor: f64) -> Self::Number;
    fn sum(a: Self::Number, b: Self::Number) -> Self::Number;
    fn splat<S: Simd>(s: S, v: Self::Number) -> Self::Vector<S>;
    fn fma<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// # Safety
    /// A vector of numbers is readable.
    unsafe fn load<S: Simd>(s: S, p: *const Self::Number) -> Self::Vector<S>;
    /// # Safety
    /// A vector of numbers is writable.
    unsafe fn store<S: Simd>(s: S, p: *mut Self::Number, v: Self::Vector<S>);
}

#[derive(Clone, Copy)]
pub(super) struct Double;

impl Product for Double {
    type Memory = f64;
    type Number = f64;
    type Vector<S: Simd> = S::D;
    const IS_NUMBER: bool = true;
    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        S::LANES / 2
    }
    #[inline(always)]
    fn widen(v: f64) -> f64 {
        v
    }
    #[inline(always)]
    fn narrow(v: f64) -> f64 {
        v
    }
    #[inline(always)]
    fn scaled(v: f64, factor: f64) -> f64 {
        v * factor
    }
    #[inline(always)]
    fn sum(a: f64, b: f64) -> f64 {
        a + b
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, v: f64) -> S::D {
        s.splat_d(v)
    }
    #[inline(always)]
    fn fma<S: Simd>(s: S, a: S::D, b: S::D, c: S::D) -> S::D {
        s.fma_d(a, b, c)
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f64) -> S::D {
        // SAFETY: the caller promises a whole vector at `p`.
        unsafe { s.load_d(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f64, v: S::D) {
        // SAFETY: the caller promises a whole vector at `p`.
        unsafe { s.store_d(p, v) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Sixteen<T>(std::marker::PhantomData<T>);

impl<T: Half> Product for Sixteen<T> {
    type Memory = T;
    type Number = f32;
    type Vector<S: Simd> = S::F;
    const IS_NUMBER: bool = false;
    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        S::LANES
    }
    #[inline(always)]
    fn widen(v: T) -> f32 {
        v.number()
    }
    #[inline(always)]
    fn narrow(v: f32) -> T {
        T::of_number(v)
    }
    #[inline(always)]
    fn scaled(v: f32, factor: f64) -> f32 {
        v * factor as f32
    }
    #[inline(always)]
    fn sum(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, v: f32) -> S::F {
        s.splat(v)
    }
    #[inline(always)]
    fn fma<S: Simd>(s: S, a: S::F, b: S::F, c: S::F) -> S::F {
        s.fma(a, b, c)
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32) -> S::F {
        // SAFETY: the caller promises a whole vector at `p`.
        unsafe { s.load(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f32, v: S::F) {
        // SAFETY: the caller promises a whole vector at `p`.
        unsafe { s.store(p, v) }
    }
}

/// Integers of at most 32 bits, multiplied and added up in 32: the low bits that are kept do not depend on more.
#[derive(Clone, Copy)]
pub(super) struct Whole<T>(std::marker::PhantomData<T>);

/// An integer of at most 32 bits.
pub(super) trait Small: Element {
    const IS_I32: bool = false;
    fn wide(self) -> i32;
    fn low_bits(v: i32) -> Self;
}

macro_rules! small {
    ($($t:ty, $is_i32:literal;)*) => { $(
        impl Small for $t {
            const IS_I32: bool = $is_i32;
            #[inline(always)]
            fn wide(self) -> i32 { self as i32 }
            #[inline(always)]
            fn low_bits(v: i32) -> Self { v as $t }
        }
    )* };
}
small! { u8, false; i8, false; i16, false; i32, true; }

impl<T: Small> Product for Whole<T> {
    type Memory = T;
    type Number = i32;
    type Vector<S: Simd> = S::I;
    const IS_NUMBER: bool = T::IS_I32;
    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        S::LANES
    }
    #[inline(always)]
    fn widen(v: T) -> i32 {
        v.wide()
    }
    #[inline(always)]
    fn narrow(v: i32) -> T {
        T::low_bits(v)
    }
    #[inline(always)]
    fn scaled(v: i32, factor: f64) -> i32 {
        v.wrapping_mul(factor as i64 as i32)
    }
    #[inline(always)]
    fn sum(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, v: i32) -> S::I {
        s.splat_i(v)
    }
    #[inline(always)]
    fn fma<S: Simd>(s: S, a: S::I, b: S::I, c: S::I) -> S::I {
        s.add_i(s.mul_i(a, b), c)
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const i32) -> S::I {
        // SAFETY: the caller's promise; loaded as bits.
        s.to_bits(unsafe { s.load(p.cast()) })
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut i32, v: S::I) {
        // SAFETY: the caller's promise; stored as bits.
        unsafe { s.store(p.cast(), s.of_bits(v)) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Long;

impl Product for Long {
    type Memory = i64;
    type Number = i64;
    type Vector<S: Simd> = S::L;
    const IS_NUMBER: bool = true;
    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        S::LANES / 2
    }
    #[inline(always)]
    fn widen(v: i64) -> i64 {
        v
    }
    #[inline(always)]
    fn narrow(v: i64) -> i64 {
        v
    }
    #[inline(always)]
    fn scaled(v: i64, factor: f64) -> i64 {
        v.wrapping_mul(factor as i64)
    }
    #[inline(always)]
    fn sum(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, v: i64) -> S::L {
        s.splat_l(v)
    }
    #[inline(always)]
    fn fma<S: Simd>(s: S, a: S::L, b: S::L, c: S::L) -> S::L {
        s.add_l(s.mul_l(a, b), c)
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const i64) -> S::L {
        // SAFETY: the caller promises a whole vector at `p`.
        unsafe { s.load_l(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut i64, v: S::L) {
        // SAFETY: the caller promises a whole vector at `p`.
        unsafe { s.store_l(p, v) }
    }
}
