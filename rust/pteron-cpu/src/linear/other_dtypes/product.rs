//! Elements of matrices of each dtype, and the vectors that they are multiplied in.

use pteron_core::Element;
use pteron_kernels::elementwise::operand::Half;
use pteron_kernels::vector_math::Simd;

/// Elements of a matrix, and what they are computed in.
pub(crate) trait Product: Copy + Send + Sync + 'static {
    /// In memory.
    type Memory: Element;
    /// Of the result.
    type Result: Element;
    /// While computing.
    type Number: Copy + Default;
    /// A vector of numbers.
    type Vector<S: Simd>: Copy;
    /// Are elements numbers as they lie in memory?
    const IS_NUMBER: bool;
    /// Lanes of a vector.
    fn lanes<S: Simd>() -> usize;
    fn widen(v: Self::Memory) -> Self::Number;
    fn narrow(v: Self::Number) -> Self::Result;
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

/// An integer of at most 32 bits.
pub(crate) trait Small: Element {
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

/// Kinds of elements:
///
/// ```text
/// Name: elements in memory -> of the result, as numbers in vectors, are elements numbers?, lanes; conversions of one number; and the
/// functions of vectors, where loads and stores take an address.
/// ```
macro_rules! products {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$g:ident: $bound:ident>)?: $memory:ty => $result:ty, $number:ty, $vector:ident, $is_number:expr, $lanes:expr;
        |$v:ident| widen $widen:expr, narrow $narrow:expr, |$factor:ident| scaled $scaled:expr, |$w:ident| sum $sum:expr;
        |$s:ident, $a:ident, $b:ident, $c:ident| splat $splat:expr, fma $fma:expr, load $load:expr, store $store:expr;
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name $(<$g>(std::marker::PhantomData<$g>))?;

        impl $(<$g: $bound>)? Product for $name $(<$g>)? {
            type Memory = $memory;
            type Result = $result;
            type Number = $number;
            type Vector<S: Simd> = S::$vector;
            const IS_NUMBER: bool = $is_number;
            #[inline(always)]
            fn lanes<S: Simd>() -> usize {
                S::LANES / $lanes
            }
            #[inline(always)]
            fn widen($v: $memory) -> $number {
                $widen
            }
            #[inline(always)]
            fn narrow($v: $number) -> $result {
                $narrow
            }
            #[inline(always)]
            fn scaled($v: $number, $factor: f64) -> $number {
                $scaled
            }
            #[inline(always)]
            fn sum($v: $number, $w: $number) -> $number {
                $sum
            }
            #[inline(always)]
            fn splat<S: Simd>($s: S, $a: $number) -> S::$vector {
                $splat
            }
            #[inline(always)]
            fn fma<S: Simd>($s: S, $a: S::$vector, $b: S::$vector, $c: S::$vector) -> S::$vector {
                $fma
            }
            #[inline(always)]
            unsafe fn load<S: Simd>($s: S, $a: *const $number) -> S::$vector {
                // SAFETY: the caller promises a whole vector at the address.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn store<S: Simd>($s: S, $a: *mut $number, $b: S::$vector) {
                // SAFETY: the caller promises a whole vector at the address.
                unsafe { $store }
            }
        }
    )* };
}
products! {
    /// float64.
    Double: f64 => f64, f64, D, true, 2;
        |v| widen v, narrow v, |factor| scaled v * factor, |w| sum v + w;
        |s, a, b, c| splat s.splat_d(a), fma s.fma_d(a, b, c), load s.load_d(a), store s.store_d(a, b);
    /// float32.
    Single: f32 => f32, f32, F, true, 1;
        |v| widen v, narrow v, |factor| scaled v * factor as f32, |w| sum v + w;
        |s, a, b, c| splat s.splat(a), fma s.fma(a, b, c), load s.load(a), store s.store(a, b);
    /// Floats of sixteen bits, in f32.
    Sixteen<T: Half>: T => T, f32, F, false, 1;
        |v| widen v.number(), narrow T::of_number(v), |factor| scaled v * factor as f32, |w| sum v + w;
        |s, a, b, c| splat s.splat(a), fma s.fma(a, b, c), load s.load(a), store s.store(a, b);
    /// Integers of at most 32 bits, multiplied and added up in 32: the low bits that are kept do not depend on more.
    Whole<T: Small>: T => T, i32, I, T::IS_I32, 1;
        |v| widen v.wide(), narrow T::low_bits(v), |factor| scaled v.wrapping_mul(factor as i64 as i32),
            |w| sum v.wrapping_add(w);
        |s, a, b, c| splat s.splat_i(a), fma s.add_i(s.mul_i(a, b), c), load s.to_bits(s.load(a.cast())),
            store s.store(a.cast(), s.of_bits(b));
    /// int8 whose products are int32.
    Byte: i8 => i32, i32, I, false, 1;
        |v| widen v.into(), narrow v, |factor| scaled v.wrapping_mul(factor as i64 as i32),
            |w| sum v.wrapping_add(w);
        |s, a, b, c| splat s.splat_i(a), fma s.add_i(s.mul_i(a, b), c), load s.to_bits(s.load(a.cast())),
            store s.store(a.cast(), s.of_bits(b));
    /// int64.
    Long: i64 => i64, i64, L, true, 2;
        |v| widen v, narrow v, |factor| scaled v.wrapping_mul(factor as i64), |w| sum v.wrapping_add(w);
        |s, a, b, c| splat s.splat_l(a), fma s.add_l(s.mul_l(a, b), c), load s.load_l(a), store s.store_l(a, b);
}
