//! Neighbouring elements in blocks of a few vectors, computed in f32 or, those of float64, in float64: what runs along other
//! dimensions than the innermost (reductions, softmax, pools) is written against, once for all floats. Float64 blocks are
//! plain loops that the compiler vectorises. Unsafe island (vector loads).

use super::operand::{Source, load_up_to, store_up_to};
use crate::vector_math::Simd;
use half::{bf16, f16};
use pteron_core::Element;

mod numbers;

/// Vectors of a block of f32 at most; [`Simd::BLOCK`] of them are used.
const VECTORS: usize = 4;
/// Numbers of a block of float64.
const DOUBLES: usize = 16;

/// A float that is loaded and stored in blocks.
pub trait Columns: Element {
    /// What it is computed in.
    type Number: Number;
    /// Is that its own type?
    const IS_NUMBER: bool;

    /// One element.
    fn wide(self) -> Self::Number;
    /// `n` elements, at most those of a block; lanes behind them are zero.
    ///
    /// # Safety
    /// They are readable at `p`.
    unsafe fn load_block<S: Simd>(s: S, p: *const Self, n: usize) -> BlockOf<Self, S>;
    /// Stores the first `n` lanes, at most those of a block, rounded to the nearest.
    ///
    /// # Safety
    /// `p` is writable for as many elements.
    unsafe fn store_block<S: Simd>(s: S, p: *mut Self, v: BlockOf<Self, S>, n: usize);
}

/// The block in which elements of type `T` are computed.
pub type BlockOf<T, S> = <<T as Columns>::Number as Number>::Block<S>;

/// f32 or float64.
pub trait Number: Columns<Number = Self> + PartialOrd {
    /// Neighbouring numbers.
    type Block<S: Simd>: Copy;
    /// A place for each of them.
    type Places<S: Simd>: Copy;
    /// A place: an integer of the number's size, so that both are chosen alike.
    type Place: bytemuck::Pod + Ord + Into<i64>;
    /// Below all places.
    const LEAST: Self;
    /// None.
    const ZERO: Self;
    /// Behind all places.
    const NOWHERE: Self::Place;

    /// Numbers of a block.
    fn width<S: Simd>() -> usize;
    /// What functions of blocks go through: vectors, or numbers.
    fn parts<S: Simd>() -> usize;
    /// The nearest number.
    fn of(v: f64) -> Self;
    /// A place that fits.
    fn place(v: usize) -> Self::Place;
    /// `a + b` of one place each.
    fn later(a: Self::Place, b: usize) -> Self::Place;
    /// Is it none?
    fn is_nan(self) -> bool;
    /// `a + b`.
    fn plus(self, b: Self) -> Self;
    /// `a / b`.
    fn over(self, b: Self) -> Self;

    /// `v` in all lanes.
    fn splat<S: Simd>(s: S, v: Self) -> Self::Block<S>;
    /// `a + b`.
    fn add<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// `a - b`.
    fn sub<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// `a · b`.
    fn mul<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// `a / b`.
    fn div<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// The larger; `b` where one is NaN.
    fn max<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// The larger; NaN where one is.
    fn max_nan<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// e^a.
    fn exp<S: Simd>(s: S, a: Self::Block<S>) -> Self::Block<S>;
    /// ln a.
    fn log<S: Simd>(s: S, a: Self::Block<S>) -> Self::Block<S>;
    /// ln a + b, rounded once from float64.
    fn log_plus<S: Simd>(s: S, a: Self::Block<S>, b: Self::Block<S>) -> Self::Block<S>;
    /// `a`, and zero for infinities.
    fn finite<S: Simd>(s: S, a: Self::Block<S>) -> Self::Block<S>;

    /// `place` in all lanes.
    fn places<S: Simd>(s: S, place: usize) -> Self::Places<S>;
    /// `v` and its places where it is larger than the best, or NaN.
    fn challenge<S: Simd>(
        s: S,
        best: (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>);
    /// The same where the places are in no order: of equal numbers the first place wins, of several NaN the last.
    fn contest<S: Simd>(
        s: S,
        best: (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>);
    /// `v` and its places where it is larger than the best (`LARGEST`) or else smaller, or the first NaN.
    fn overtake<S: Simd, const LARGEST: bool>(
        s: S,
        best: (Self::Block<S>, Self::Places<S>),
        v: Self::Block<S>,
        places: Self::Places<S>,
    ) -> (Self::Block<S>, Self::Places<S>);
    /// Loads `n` numbers, at most those of a block, that lie `step` apart.
    ///
    /// # Safety
    /// They are readable at `p`.
    unsafe fn load_strided<S: Simd>(s: S, p: *const Self, step: usize, n: usize) -> Self::Block<S>;
    /// The same of places.
    ///
    /// # Safety
    /// They are readable at `p`.
    unsafe fn load_places<S: Simd>(s: S, p: *const Self::Place, step: usize, n: usize) -> Self::Places<S>;
    /// Stores the first `n` places, at most those of a block.
    ///
    /// # Safety
    /// `p` is writable for as many.
    unsafe fn store_places<S: Simd>(s: S, p: *mut Self::Place, v: Self::Places<S>, n: usize);
}

macro_rules! columns_of_f32 {
    ($($t:ty),*) => { $(
        impl Columns for $t {
            type Number = f32;
            const IS_NUMBER: bool = <$t as Source>::IS_F32;
            #[inline(always)]
            fn wide(self) -> f32 {
                self.number()
            }
            #[inline(always)]
            unsafe fn load_block<S: Simd>(s: S, p: *const Self, n: usize) -> [S::F; VECTORS] {
                let mut v = [s.zero(); VECTORS];
                for (k, slot) in v.iter_mut().enumerate().take(S::BLOCK) {
                    let left = n.saturating_sub(k * S::LANES);
                    if left > 0 {
                        // SAFETY: as many elements as are left of the `n`.
                        *slot = unsafe { load_up_to(s, p.add(k * S::LANES), left.min(S::LANES)) };
                    }
                }
                v
            }
            #[inline(always)]
            unsafe fn store_block<S: Simd>(s: S, p: *mut Self, v: [S::F; VECTORS], n: usize) {
                for (k, v) in v.iter().enumerate().take(S::BLOCK) {
                    let left = n.saturating_sub(k * S::LANES).min(S::LANES);
                    if left == 0 {
                        break;
                    }
                    // SAFETY: as many elements as are left of the `n`.
                    unsafe {
                        store_up_to(s, p.add(k * S::LANES), *v, left);
                    }
                }
            }
        }
    )* };
}
columns_of_f32!(f32, f16, bf16);

impl Columns for f64 {
    type Number = f64;
    const IS_NUMBER: bool = true;
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    unsafe fn load_block<S: Simd>(_: S, p: *const f64, n: usize) -> [f64; DOUBLES] {
        // SAFETY: the caller promises `n` elements at `p`.
        unsafe {
            if n >= DOUBLES {
                return p.cast::<[f64; DOUBLES]>().read_unaligned();
            }
            let mut v = [0.0; DOUBLES];
            for (i, slot) in v.iter_mut().enumerate().take(n) {
                *slot = *p.add(i);
            }
            v
        }
    }
    #[inline(always)]
    unsafe fn store_block<S: Simd>(_: S, p: *mut f64, v: [f64; DOUBLES], n: usize) {
        // SAFETY: the caller promises room for `n` elements at `p`.
        unsafe {
            if n >= DOUBLES {
                return p.cast::<[f64; DOUBLES]>().write_unaligned(v);
            }
            for (i, v) in v.iter().enumerate().take(n) {
                *p.add(i) = *v;
            }
        }
    }
}
