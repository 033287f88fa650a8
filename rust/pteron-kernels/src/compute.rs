//! Compute types: every kernel works in f32, f64, i64 or complex numbers, and blocks of elements are converted from
//! and to the dtype in memory by one function per (dtype, compute type), not per pair of dtypes.
//! Unsafe island: the raw block loads and stores.

mod halves;

use crate::complex_number::{Number, number};
use half::{bf16, f16};
use halves::{HALVES, Half};
use pteron_core::{Bool8, Complex64, DType, Element, Scalar};

/// Elements converted at a time.
pub const BLOCK: usize = 256;

/// A type that kernels compute in.
pub trait Compute: Copy + Default + PartialEq + PartialOrd + Send + Sync + std::fmt::Debug + 'static {
    /// From an element of memory.
    fn read<T: Convert>(element: T) -> Self;
    /// To an element of memory. Floats become integers by truncation through i64, keeping the low
    /// bits; NaN becomes 0; anything but zero becomes `true`.
    fn write<T: Convert>(self) -> T;
    /// From a number argument.
    fn from_scalar(scalar: Scalar) -> Self;
    /// From a truth value.
    fn from_bool(value: bool) -> Self;
    /// From a float, truncated for integers.
    fn from_f64(value: f64) -> Self;
    /// From an integer.
    fn from_i64(value: i64) -> Self;
    /// As a float.
    fn to_f64(self) -> f64;
    /// As an integer, truncated.
    fn to_i64(self) -> i64;
    /// Anything but zero (NaN included)?
    fn is_true(self) -> bool;
    /// Not a number?
    fn is_nan(self) -> bool;
    /// Sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// Product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// Distance from zero.
    #[inline(always)]
    fn magnitude(self) -> f64 {
        self.to_f64().abs()
    }
    /// Does the type hold complex numbers? Others refuse them.
    const IS_COMPLEX: bool = false;
    /// Are the numbers integers?
    const IS_WHOLE: bool = false;
    /// Smallest value: the start of a maximum.
    const LOWEST: Self;
    /// Largest value: the start of a minimum.
    const HIGHEST: Self;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// `slice` itself when its elements are of this very type.
    fn same<T: Element>(slice: &[T]) -> Option<&[Self]>;
}

/// An element of memory that converts to and from the compute types.
pub trait Convert: Element {
    /// As f32, rounded.
    fn to_f32(self) -> f32;
    /// As f64, rounded.
    fn to_f64(self) -> f64;
    /// As i64: truncated.
    fn to_i64(self) -> i64;
    /// From f32.
    fn from_f32(value: f32) -> Self;
    /// From f64.
    fn from_f64(value: f64) -> Self;
    /// From i64: low bits for integers.
    fn from_i64(value: i64) -> Self;
    /// From i32: low bits for integers.
    #[inline(always)]
    fn from_i32(value: i32) -> Self {
        Self::from_i64(value.into())
    }
    /// As a complex number.
    #[inline(always)]
    fn to_complex(self) -> Number {
        number(self.to_f64(), 0.0)
    }
    /// From a complex number: its real part.
    #[inline(always)]
    fn from_complex(value: Number) -> Self {
        Self::from_f64(value.re)
    }
}

macro_rules! integer_convert {
    ($($t:ty),*) => { $(
        impl Convert for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { value as i64 as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { value as i64 as $t }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $t }
        }
    )* };
}
integer_convert!(u8, i8, i16, i32, i64, u16, u32, u64);

macro_rules! float_convert {
    ($($t:ty),*) => { $(
        impl Convert for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { value as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $t }
        }
    )* };
}
float_convert!(f32, f64);

macro_rules! half_convert {
    ($($t:ty),*) => { $(
        impl Convert for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { <$t>::to_f32(self) }
            #[inline(always)]
            fn to_f64(self) -> f64 { <$t>::to_f64(self) }
            #[inline(always)]
            fn to_i64(self) -> i64 { <$t>::to_f32(self) as i64 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { <$t>::from_f32(value) }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { <$t>::from_f32(value as f32) }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { <$t>::from_f32(value as f32) }
        }
    )* };
}
half_convert!(f16, bf16);

impl Convert for Bool8 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.get() as u8 as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self.get() as u8 as f64
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self.get() as i64
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Bool8::from(value != 0.0)
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        Bool8::from(value != 0.0)
    }
    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        Bool8::from(value != 0)
    }
    #[inline(always)]
    fn from_complex(value: Number) -> Self {
        Bool8::from(value.is_true())
    }
}

macro_rules! compute {
    ($t:ty, $to:ident, $from:ident, |$s:ident| $scalar:expr, $lowest:expr, $highest:expr, $is_nan:expr,
     |$a:ident, $b:ident| $plus:expr, $times:expr) => {
        impl Compute for $t {
            #[inline(always)]
            fn read<T: Convert>(element: T) -> Self {
                element.$to()
            }
            #[inline(always)]
            fn write<T: Convert>(self) -> T {
                T::$from(self)
            }
            fn from_scalar($s: Scalar) -> Self {
                $scalar
            }
            #[inline(always)]
            fn from_bool(value: bool) -> Self {
                value as u8 as $t
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self as i64
            }
            #[inline(always)]
            fn is_true(self) -> bool {
                self != (0 as $t)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $is_nan(self)
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $plus
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $times
            }
            const IS_WHOLE: bool = 0.5 as $t == 0 as $t;
            const LOWEST: Self = $lowest;
            const HIGHEST: Self = $highest;
            const ZERO: Self = 0 as $t;
            const ONE: Self = 1 as $t;
            #[inline(always)]
            fn same<T: Element>(slice: &[T]) -> Option<&[Self]> {
                if T::DTYPE == <$t as Element>::DTYPE { bytemuck::try_cast_slice(slice).ok() } else { None }
            }
        }
    };
}
compute!(
    f32,
    to_f32,
    from_f32,
    |s| s.to_f64() as f32,
    f32::NEG_INFINITY,
    f32::INFINITY,
    |x: f32| x.is_nan(),
    |a, b| a + b,
    a * b
);
compute!(
    f64,
    to_f64,
    from_f64,
    |s| s.to_f64(),
    f64::NEG_INFINITY,
    f64::INFINITY,
    |x: f64| x.is_nan(),
    |a, b| a + b,
    a * b
);
compute!(
    i64,
    to_i64,
    from_i64,
    |s| s.to_i64(),
    i64::MIN,
    i64::MAX,
    |_| false,
    |a, b| a.wrapping_add(b),
    a.wrapping_mul(b)
);

/// Reads `out.len()` elements that start at `src` and lie `stride` elements apart.
///
/// # Safety
/// All of them must be readable elements of the dtype the function was chosen for.
pub type LoadFn<C> = unsafe fn(src: *const u8, stride: isize, out: &mut [C]);

/// Writes `block` to elements that start at `dst` and lie `stride` elements apart.
///
/// # Safety
/// All of them must be writable elements of the dtype the function was chosen for.
pub type StoreFn<C> = unsafe fn(block: &[C], dst: *mut u8, stride: isize);

/// # Safety
/// As [`LoadFn`], for the dtype of `T`.
unsafe fn load<T: Convert, C: Compute>(src: *const u8, stride: isize, out: &mut [C]) {
    let src = src.cast::<T>();
    match stride {
        1 => {
            for (i, slot) in out.iter_mut().enumerate() {
                // SAFETY: element `i` is one of those that the caller promises to be readable.
                *slot = C::read(unsafe { src.add(i).read() });
            }
        }
        0 => {
            if !out.is_empty() {
                // SAFETY: element `i` is one of those that the caller promises to be readable.
                out.fill(C::read(unsafe { src.read() }));
            }
        }
        _ => {
            for (i, slot) in out.iter_mut().enumerate() {
                // SAFETY: element `i` is one of those that the caller promises to be readable.
                *slot = C::read(unsafe { src.offset(i as isize * stride).read() });
            }
        }
    }
}

/// # Safety
/// As [`StoreFn`], for the dtype of `T`.
unsafe fn store<T: Convert, C: Compute>(block: &[C], dst: *mut u8, stride: isize) {
    let dst = dst.cast::<T>();
    if stride == 1 {
        for (i, value) in block.iter().enumerate() {
            // SAFETY: element `i` is one of those that the caller promises to be writable.
            unsafe { dst.add(i).write(value.write()) };
        }
    } else {
        for (i, value) in block.iter().enumerate() {
            // SAFETY: element `i` is one of those that the caller promises to be writable.
            unsafe { dst.offset(i as isize * stride).write(value.write()) };
        }
    }
}

/// [`load`] of 16-bit floats.
///
/// # Safety
/// As [`LoadFn`], for the dtype of `T`.
unsafe fn load_half<T: Half + Convert, C: Compute>(src: *const u8, stride: isize, out: &mut [C]) {
    // Few elements, or none beside each other: one by one.
    if stride != 1 || out.len() < 8 {
        // SAFETY: as this function asks for.
        return unsafe { load::<T, C>(src, stride, out) };
    }
    let src = src.cast::<T>();
    let (mut halves, mut floats) = ([T::default(); HALVES], [0f32; HALVES]);
    for (i, part) in out.chunks_mut(HALVES).enumerate() {
        // SAFETY: the caller promises `out.len()` readable elements, of which these are the next; `halves` has room for them.
        unsafe { src.add(i * HALVES).copy_to_nonoverlapping(halves.as_mut_ptr(), part.len()) };
        T::widen(&halves, &mut floats);
        for (slot, v) in part.iter_mut().zip(&floats) {
            *slot = C::read(*v);
        }
    }
}

/// [`store`] of 16-bit floats.
///
/// # Safety
/// As [`StoreFn`], for the dtype of `T`.
unsafe fn store_half<T: Half + Convert, C: Compute>(block: &[C], dst: *mut u8, stride: isize) {
    if stride != 1 || block.len() < 8 {
        // SAFETY: as this function asks for.
        return unsafe { store::<T, C>(block, dst, stride) };
    }
    let dst = dst.cast::<T>();
    let (mut halves, mut floats) = ([T::default(); HALVES], [0f32; HALVES]);
    for (i, part) in block.chunks(HALVES).enumerate() {
        for (slot, v) in floats.iter_mut().zip(part) {
            *slot = v.write();
        }
        T::narrow(&floats, &mut halves);
        // SAFETY: the caller promises `block.len()` writable elements, of which these are the next; `halves` has them.
        unsafe { dst.add(i * HALVES).copy_from_nonoverlapping(halves.as_ptr(), part.len()) };
    }
}

/// Writes floats that lie in the range of an integer of at most sixteen bits, or are NaN. One conversion
/// through i32, which vectorises.
///
/// # Safety
/// As [`StoreFn`], for the dtype of `T`.
unsafe fn store_small<T: Convert>(block: &[f32], dst: *mut u8, stride: isize) {
    let dst = dst.cast::<T>();
    for (i, value) in block.iter().enumerate() {
        // SAFETY: element `i` is one of those that the caller promises to be writable.
        unsafe { dst.offset(i as isize * stride).write(T::from_i32(*value as i32)) };
    }
}

/// The store function of a dtype for floats within its range (NaN becomes 0): faster than [`store_fn`]
/// for integers of at most sixteen bits.
pub fn store_in_range_fn(dtype: DType) -> Option<StoreFn<f32>> {
    Some(match dtype {
        DType::UInt8 => store_small::<u8>,
        DType::Int8 => store_small::<i8>,
        DType::UInt16 => store_small::<u16>,
        DType::Int16 => store_small::<i16>,
        other => return store_fn(other),
    })
}

macro_rules! by_dtype {
    ($dtype:expr, $function:ident, $of_halves:ident, $c:ty) => {
        Some(match $dtype {
            DType::UInt8 => $function::<u8, $c>,
            DType::Int8 => $function::<i8, $c>,
            DType::Int16 => $function::<i16, $c>,
            DType::Int32 => $function::<i32, $c>,
            DType::Int64 => $function::<i64, $c>,
            DType::Float16 => $of_halves::<f16, $c>,
            DType::Float32 => $function::<f32, $c>,
            DType::Float64 => $function::<f64, $c>,
            DType::Bool => $function::<Bool8, $c>,
            DType::BFloat16 => $of_halves::<bf16, $c>,
            DType::UInt16 => $function::<u16, $c>,
            DType::UInt32 => $function::<u32, $c>,
            DType::UInt64 => $function::<u64, $c>,
            DType::Complex64 if <$c>::IS_COMPLEX => $function::<Complex64, $c>,
            _ => return None,
        })
    };
}

/// The load function of a dtype; `None` for eight-bit floats, and for complex64 but into [`Number`].
pub fn load_fn<C: Compute>(dtype: DType) -> Option<LoadFn<C>> {
    by_dtype!(dtype, load, load_half, C)
}

/// The store function of a dtype; `None` for eight-bit floats, and for complex64 but from [`Number`].
pub fn store_fn<C: Compute>(dtype: DType) -> Option<StoreFn<C>> {
    by_dtype!(dtype, store, store_half, C)
}

/// The compute type of operators that move and add numbers of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Integers and bool: i64.
    Integer,
    /// Floats: f64.
    Float,
    /// complex64: [`Number`].
    Complex,
}

impl Kind {
    /// The kind of a dtype; an error for those that nothing computes with.
    pub fn of(dtype: DType) -> pteron_core::Result<Kind> {
        match Class::of(dtype) {
            Some(Class::I64) => Ok(Kind::Integer),
            Some(_) => Ok(Kind::Float),
            None if dtype == DType::Complex64 => Ok(Kind::Complex),
            None => Err(unsupported(dtype)),
        }
    }
}

/// An expression for the compute type of a kind: `by_kind!(kind, C, expression in which C is that type)`.
macro_rules! by_kind {
    ($kind:expr, $c:ident, $body:expr) => {
        match $kind {
            $crate::compute::Kind::Integer => {
                type $c = i64;
                $body
            }
            $crate::compute::Kind::Float => {
                type $c = f64;
                $body
            }
            $crate::compute::Kind::Complex => {
                type $c = $crate::complex_number::Number;
                $body
            }
        }
    };
}
pub(crate) use by_kind;

/// Which compute type a dtype is worked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// float32, float16, bfloat16.
    F32,
    /// float64.
    F64,
    /// Integers and bool.
    I64,
}

impl Class {
    /// The class of a dtype; `None` for complex, eight-bit floats, `bits16` and uint64 (whose upper
    /// half has no place in i64).
    pub fn of(dtype: DType) -> Option<Class> {
        match dtype {
            DType::Float32 | DType::Float16 | DType::BFloat16 => Some(Class::F32),
            DType::Float64 => Some(Class::F64),
            DType::UInt64 => None,
            d if d.is_integer() || d == DType::Bool => Some(Class::I64),
            _ => None,
        }
    }

    /// The class of a dtype; an error for those without one.
    pub fn required(dtype: DType) -> pteron_core::Result<Class> {
        Class::of(dtype).ok_or_else(|| unsupported(dtype))
    }
}

/// The refusal of a dtype.
#[cold]
pub fn unsupported(dtype: DType) -> pteron_core::Error {
    pteron_core::Error::kernel("the operator does not support this dtype").got(dtype.name())
}

#[cfg(test)]
#[path = "compute/tests.rs"]
mod tests;
