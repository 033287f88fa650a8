//! [`Simd`] in plain Rust: arrays of eight that the compiler vectorises for the target's baseline.

use super::half_bits::{binary16_from, binary16_to, brain16_from, brain16_to};
use super::simd::Simd;

/// Plain Rust, any processor.
#[derive(Clone, Copy)]
pub struct Portable;

const N: usize = 8;
/// 2^23, whose unit is one: adding it and taking it away rounds to nearest even without a library call; larger magnitudes
/// are integers already.
const MAGIC: f32 = 8_388_608.0;

#[inline(always)]
fn map<T: Copy, R: Copy + Default>(a: [T; N], f: impl Fn(T) -> R) -> [R; N] {
    let mut out = [R::default(); N];
    for i in 0..N {
        out[i] = f(a[i]);
    }
    out
}

/// 2^n for integral n in -126..=127.
#[inline(always)]
fn power_of_two(n: f32) -> f32 {
    f32::from_bits(((n as i32 + 127) as u32) << 23)
}

/// Methods of vectors, lane by lane: `name(operands) -> result: one lane;`, each a type of [`Simd`].
macro_rules! lanes {
    ($($name:ident($($a:ident: $t:ident),*) -> $r:ident: $lane:expr;)*) => { $(
        #[inline(always)]
        fn $name(self, $($a: Self::$t),*) -> Self::$r {
            let mut out = [Default::default(); _];
            for (i, slot) in out.iter_mut().enumerate() {
                $(let $a = $a[i];)*
                *slot = $lane;
            }
            out
        }
    )* };
}

/// Vectors of one number: `name(number) -> vector;`.
macro_rules! splats {
    ($($name:ident($t:ty) -> $r:ident;)*) => { $(
        #[inline(always)]
        fn $name(self, v: $t) -> Self::$r {
            [v; _]
        }
    )* };
}

/// Loads and stores of whole vectors, with what becomes of them on the way.
macro_rules! memory {
    (load: $($load:ident($p:ty) -> $r:ident: $of:expr),*; store: $($store:ident($q:ty, $t:ident): $to:expr),*) => {
        $(
            /// # Safety
            /// As in [`Simd`]: a whole vector is readable at `p`.
            #[inline(always)]
            unsafe fn $load(self, p: *const $p) -> Self::$r {
                // SAFETY: the caller promises that the elements at `p` are readable; unaligned arrays are allowed.
                $of(unsafe { std::ptr::read_unaligned(p.cast()) })
            }
        )*
        $(
            /// # Safety
            /// As in [`Simd`]: a whole vector is writable at `p`.
            #[inline(always)]
            unsafe fn $store(self, p: *mut $q, v: Self::$t) {
                // SAFETY: the caller promises that the elements at `p` are writable; unaligned arrays are allowed.
                unsafe { std::ptr::write_unaligned(p.cast(), $to(v)) }
            }
        )*
    };
}

impl Simd for Portable {
    type F = [f32; N];
    type I = [i32; N];
    type M = [bool; N];
    type D = [f64; N / 2];
    type L = [i64; N / 2];
    const LANES: usize = N;
    const BLOCK: usize = 1;

    splats! {
        splat(f32) -> F;
        splat_d(f64) -> D;
        splat_i(i32) -> I;
        splat_l(i64) -> L;
    }
    lanes! {
        add(a: F, b: F) -> F: a + b;
        sub(a: F, b: F) -> F: a - b;
        mul(a: F, b: F) -> F: a * b;
        div(a: F, b: F) -> F: a / b;
        min(a: F, b: F) -> F: if a < b { a } else { b };
        max(a: F, b: F) -> F: if a > b { a } else { b };
        abs(a: F) -> F: a.abs();
        neg(a: F) -> F: -a;
        sqrt(a: F) -> F: a.sqrt();
        round(a: F) -> F: if a.abs() < MAGIC { ((a.abs() + MAGIC) - MAGIC).copysign(a) } else { a };
        fma_d(a: D, b: D, c: D) -> D: c + a * b;
        lt(a: F, b: F) -> M: a < b;
        le(a: F, b: F) -> M: a <= b;
        eq(a: F, b: F) -> M: a == b;
        not(m: M) -> M: !m;
        or(a: M, b: M) -> M: a | b;
        select(m: M, a: F, b: F) -> F: if m { a } else { b };
        to_bits(a: F) -> I: a.to_bits() as i32;
        of_bits(a: I) -> F: f32::from_bits(a as u32);
        add_i(a: I, b: I) -> I: a.wrapping_add(b);
        sub_i(a: I, b: I) -> I: a.wrapping_sub(b);
        mul_i(a: I, b: I) -> I: a.wrapping_mul(b);
        and_i(a: I, b: I) -> I: a & b;
        or_i(a: I, b: I) -> I: a | b;
        add_l(a: L, b: L) -> L: a.wrapping_add(b);
        mul_l(a: L, b: L) -> L: a.wrapping_mul(b);
        to_float(a: I) -> F: a as f32;
    }
    #[inline(always)]
    fn nibbles(self, a: [i32; N]) -> ([f32; N], [f32; N]) {
        (map(a, |a| (a << 28 >> 28) as f32), map(a, |a| (a << 24 >> 28) as f32))
    }
    memory! {
        load:
            load(f32) -> F: |v| v,
            load_d(f64) -> D: |v| v,
            load_l(i64) -> L: |v| v,
            load_i8(i8) -> I: |v: [i8; N]| map(v, i32::from),
            load_binary16(u16) -> F: |v| map(v, binary16_to),
            load_brain16(u16) -> F: |v| map(v, brain16_to);
        store:
            store(f32, F): |v| v,
            store_d(f64, D): |v| v,
            store_l(i64, L): |v| v,
            store_i8(i8, I): |v| map(v, |a: i32| a as i8),
            store_binary16(u16, F): |v| map(v, binary16_from),
            store_brain16(u16, F): |v| map(v, brain16_from)
    }
    #[inline(always)]
    fn shl_i<const S: u32>(self, a: [i32; N]) -> [i32; N] {
        map(a, |a| a << S)
    }
    #[inline(always)]
    fn shr_i<const S: u32>(self, a: [i32; N]) -> [i32; N] {
        map(a, |a| a >> S)
    }

    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> [f32; N] {
        let mut out = [0.0; N];
        for (i, slot) in out.iter_mut().enumerate().take(n) {
            // SAFETY: i < n, the caller's promise.
            *slot = unsafe { *p.add(i) };
        }
        out
    }
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32, n: usize) -> [f32; N] {
        let mut out = [0.0; N];
        for (i, slot) in out.iter_mut().enumerate().take(n) {
            // SAFETY: 2 i ≤ 2 n - 2, the caller's promise.
            *slot = unsafe { *p.add(2 * i) };
        }
        out
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: [f32; N], n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: i < n, the caller's promise.
            unsafe { *p.add(i) = *x };
        }
    }
    #[inline(always)]
    fn fma(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        // Two roundings: without the instruction a fused multiply-add is a slow library call.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn scale2(self, a: [f32; N], n: [f32; N]) -> [f32; N] {
        // Three factors of at most 2^±100 reach every n; all but the last keep the product in the
        // normal range when `a` is near one.
        let third = self.round(map(n, |n| n * (1.0 / 3.0)));
        let last = self.sub(n, self.add(third, third));
        let (p, q) = (map(third, power_of_two), map(last, power_of_two));
        self.mul(self.mul(self.mul(a, p), p), q)
    }
    #[inline(always)]
    fn any(self, m: [bool; N]) -> bool {
        m.iter().fold(false, |any, m| any | m)
    }
    #[inline(always)]
    unsafe fn load_bools(self, p: *const u8, n: usize) -> [bool; N] {
        let mut out = [false; N];
        for (i, slot) in out.iter_mut().enumerate().take(n) {
            // SAFETY: i < n, the caller's promise.
            *slot = unsafe { *p.add(i) } != 0;
        }
        out
    }
    #[inline(always)]
    unsafe fn store_bools(self, p: *mut u8, m: [bool; N], n: usize) {
        for (i, m) in m.iter().enumerate().take(n) {
            // SAFETY: i < n, the caller's promise.
            unsafe { *p.add(i) = *m as u8 };
        }
    }
    #[inline(always)]
    fn reduce_add(self, a: [f32; N]) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn reduce_max(self, a: [f32; N]) -> f32 {
        a.iter().fold(f32::NEG_INFINITY, |m, x| if m > *x { m } else { *x })
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
        for c in 0..cols {
            for r in 0..rows {
                // SAFETY: the caller promises both blocks, which do not overlap.
                unsafe { *dst.add(c * dst_stride + r) = *src.add(r * src_stride + c) };
            }
        }
    }
}
