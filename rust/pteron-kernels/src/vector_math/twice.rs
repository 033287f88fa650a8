//! Two vectors side by side as one: [`Twice`] is a [`Simd`] of twice the lanes whose operations come in pairs.
//!
//! A long function (a polynomial, an exponential) is a chain of operations that wait for each other, longer than
//! what the processor looks ahead: with one vector after the other most of its time is waiting. The operations
//! of two or four vectors in turn fill it, and every lane still gets the very same operations.

use super::simd::{MOST_LANES, Simd};

/// Two vectors as one of twice the lanes.
#[derive(Clone, Copy)]
pub struct Twice<S>(pub S);

/// Operations without memory: `name(operands) -> result`, each a type of [`Simd`].
macro_rules! pairs {
    ($($name:ident($($a:ident: $t:ident),*) -> $r:ident;)*) => { $(
        #[inline(always)]
        fn $name(self, $($a: Self::$t),*) -> Self::$r {
            (self.0.$name($($a.0),*), self.0.$name($($a.1),*))
        }
    )* };
}

/// Both halves of one number: `name(number) -> vector;`.
macro_rules! splats {
    ($($name:ident($t:ty) -> $r:ident;)*) => { $(
        #[inline(always)]
        fn $name(self, v: $t) -> Self::$r {
            (self.0.$name(v), self.0.$name(v))
        }
    )* };
}

/// Loads and stores of all lanes.
macro_rules! whole {
    (load: $($load:ident($p:ty) -> $r:ident),*; store: $($store:ident($q:ty, $t:ident)),*; lanes $lanes:expr) => {
        $(
            #[inline(always)]
            /// # Safety
            /// As in [`Simd`], for all lanes.
            unsafe fn $load(self, p: *const $p) -> Self::$r {
                // SAFETY: the caller's promise covers both halves.
                unsafe { (self.0.$load(p), self.0.$load(p.add($lanes))) }
            }
        )*
        $(
            #[inline(always)]
            /// # Safety
            /// As in [`Simd`], for all lanes.
            unsafe fn $store(self, p: *mut $q, v: Self::$t) {
                // SAFETY: the caller's promise covers both halves.
                unsafe {
                    self.0.$store(p, v.0);
                    self.0.$store(p.add($lanes), v.1);
                }
            }
        )*
    };
}

impl<S: Simd> Twice<S> {
    /// Of `n` lanes, those in either half.
    #[inline(always)]
    fn halves(n: usize) -> (usize, usize) {
        const { assert!(2 * S::LANES <= MOST_LANES) };
        (n.min(S::LANES), n.saturating_sub(S::LANES))
    }
}

impl<S: Simd> Simd for Twice<S> {
    type F = (S::F, S::F);
    type I = (S::I, S::I);
    type M = (S::M, S::M);
    type D = (S::D, S::D);
    type L = (S::L, S::L);
    const LANES: usize = 2 * S::LANES;

    pairs! {
        add(a: F, b: F) -> F;
        sub(a: F, b: F) -> F;
        mul(a: F, b: F) -> F;
        div(a: F, b: F) -> F;
        fma(a: F, b: F, c: F) -> F;
        fnma(a: F, b: F, c: F) -> F;
        min(a: F, b: F) -> F;
        max(a: F, b: F) -> F;
        min_nan(a: F, b: F) -> F;
        max_nan(a: F, b: F) -> F;
        abs(a: F) -> F;
        neg(a: F) -> F;
        sqrt(a: F) -> F;
        round(a: F) -> F;
        scale2(a: F, n: F) -> F;
        scale2_normal(a: F, n: F) -> F;
        fma_d(a: D, b: D, c: D) -> D;
        lt(a: F, b: F) -> M;
        le(a: F, b: F) -> M;
        eq(a: F, b: F) -> M;
        not(m: M) -> M;
        or(a: M, b: M) -> M;
        select(m: M, a: F, b: F) -> F;
        to_bits(a: F) -> I;
        of_bits(a: I) -> F;
        add_i(a: I, b: I) -> I;
        sub_i(a: I, b: I) -> I;
        mul_i(a: I, b: I) -> I;
        add_l(a: L, b: L) -> L;
        mul_l(a: L, b: L) -> L;
        and_i(a: I, b: I) -> I;
        or_i(a: I, b: I) -> I;
        to_float(a: I) -> F;
    }
    splats! {
        splat(f32) -> F;
        splat_d(f64) -> D;
        splat_l(i64) -> L;
        splat_i(i32) -> I;
    }
    whole! {
        load: load(f32) -> F, load_binary16(u16) -> F, load_brain16(u16) -> F;
        store: store(f32, F), store_binary16(u16, F), store_brain16(u16, F);
        lanes S::LANES
    }
    whole! { load: load_d(f64) -> D, load_l(i64) -> L; store: store_d(f64, D), store_l(i64, L); lanes S::LANES / 2 }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::I {
        // SAFETY: the caller's promise, for either half.
        unsafe { (self.0.load_i8(p), self.0.load_i8(p.add(S::LANES))) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I) {
        // SAFETY: the caller's promise, for either half.
        unsafe {
            self.0.store_i8(p, v.0);
            self.0.store_i8(p.add(S::LANES), v.1);
        }
    }
    #[inline(always)]
    fn nibbles(self, a: Self::I) -> (Self::F, Self::F) {
        let ((low, high), (next_low, next_high)) = (self.0.nibbles(a.0), self.0.nibbles(a.1));
        ((low, next_low), (high, next_high))
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I {
        (self.0.shl_i::<N>(a.0), self.0.shl_i::<N>(a.1))
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: Self::I) -> Self::I {
        (self.0.shr_i::<N>(a.0), self.0.shr_i::<N>(a.1))
    }
    #[inline(always)]
    fn split_power(self, x: Self::F) -> (Self::F, Self::F) {
        let ((k, m), (l, n)) = (self.0.split_power(x.0), self.0.split_power(x.1));
        ((k, l), (m, n))
    }
    #[inline(always)]
    fn any(self, m: Self::M) -> bool {
        self.0.any(self.0.or(m.0, m.1))
    }
    const FUSES_DOUBLE: bool = S::FUSES_DOUBLE;
    #[inline(always)]
    fn fma_double(self, a: f64, b: f64, c: f64) -> f64 {
        self.0.fma_double(a, b, c)
    }
    #[inline(always)]
    fn reduce_add(self, a: Self::F) -> f32 {
        self.0.reduce_add(self.0.add(a.0, a.1))
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        self.0.reduce_max(self.0.max(a.0, a.1))
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> Self::F {
        let (low, high) = Self::halves(n);
        // SAFETY: the caller's promise; an empty half is not read.
        unsafe { (self.0.load_up_to(p, low), self.0.load_partial(p.wrapping_add(low), high)) }
    }
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32, n: usize) -> Self::F {
        let (low, high) = Self::halves(n);
        // SAFETY: the caller promises that the elements at `p` are readable.
        unsafe { (self.0.load_even(p, low), self.0.load_even(p.wrapping_add(2 * low), high)) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: Self::F, n: usize) {
        let (low, high) = Self::halves(n);
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe {
            self.0.store_up_to(p, v.0, low);
            self.0.store_partial(p.wrapping_add(low), v.1, high);
        }
    }
    #[inline(always)]
    unsafe fn load_bools(self, p: *const u8, n: usize) -> Self::M {
        let (low, high) = Self::halves(n);
        // SAFETY: the caller promises that the elements at `p` are readable.
        unsafe { (self.0.load_bools(p, low), self.0.load_bools(p.wrapping_add(low), high)) }
    }
    #[inline(always)]
    unsafe fn store_bools(self, p: *mut u8, m: Self::M, n: usize) {
        let (low, high) = Self::halves(n);
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe {
            self.0.store_bools(p, m.0, low);
            self.0.store_bools(p.wrapping_add(low), m.1, high);
        }
    }
    #[inline(always)]
    unsafe fn transpose_block(
        self,
        src: *const f32,
        src_stride: usize,
        rows: usize,
        cols: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        for row in (0..rows).step_by(S::LANES) {
            for col in (0..cols).step_by(S::LANES) {
                let (n, m) = (S::LANES.min(rows - row), S::LANES.min(cols - col));
                // SAFETY: a part of the caller's block.
                unsafe {
                    let (from, to) = (src.add(row * src_stride + col), dst.add(col * dst_stride + row));
                    self.0.transpose_block(from, src_stride, n, m, to, dst_stride);
                }
            }
        }
    }
}
