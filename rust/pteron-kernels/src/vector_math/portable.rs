//! [`Simd`] in plain Rust: arrays of eight that the compiler vectorises for the target's baseline.

use super::half_bits::{binary16_from, binary16_to, brain16_from, brain16_to};
use super::simd::Simd;

/// Plain Rust, any processor.
#[derive(Clone, Copy)]
pub struct Portable;

const N: usize = 8;

#[inline(always)]
fn map<T: Copy, R: Copy + Default>(a: [T; N], f: impl Fn(T) -> R) -> [R; N] {
    let mut out = [R::default(); N];
    for i in 0..N {
        out[i] = f(a[i]);
    }
    out
}

#[inline(always)]
fn zip<T: Copy, R: Copy + Default>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> R) -> [R; N] {
    let mut out = [R::default(); N];
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

/// 2^n for integral n in -126..=127.
#[inline(always)]
fn power_of_two(n: f32) -> f32 {
    f32::from_bits(((n as i32 + 127) as u32) << 23)
}

impl Simd for Portable {
    type F = [f32; N];
    type I = [i32; N];
    type M = [bool; N];
    type D = [f64; N / 2];
    type L = [i64; N / 2];
    const LANES: usize = N;

    #[inline(always)]
    fn splat(self, v: f32) -> [f32; N] {
        [v; N]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> [f32; N] {
        // SAFETY: the caller's promise; unaligned arrays are allowed by read_unaligned.
        unsafe { p.cast::<[f32; N]>().read_unaligned() }
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
    unsafe fn store(self, p: *mut f32, v: [f32; N]) {
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe { p.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: [f32; N], n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: i < n, the caller's promise.
            unsafe { *p.add(i) = *x };
        }
    }
    #[inline(always)]
    fn add(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        // Two roundings: without the instruction a fused multiply-add is a slow library call.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn min(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, a: [f32; N]) -> [f32; N] {
        map(a, f32::abs)
    }
    #[inline(always)]
    fn neg(self, a: [f32; N]) -> [f32; N] {
        map(a, |a| -a)
    }
    #[inline(always)]
    fn sqrt(self, a: [f32; N]) -> [f32; N] {
        map(a, f32::sqrt)
    }
    #[inline(always)]
    fn round(self, a: [f32; N]) -> [f32; N] {
        // Adding 2^23, whose unit is one, and taking it away rounds to nearest even without a library call;
        // larger magnitudes are integers already.
        const MAGIC: f32 = 8_388_608.0;
        map(a, |x| if x.abs() < MAGIC { ((x.abs() + MAGIC) - MAGIC).copysign(x) } else { x })
    }
    #[inline(always)]
    fn scale2(self, a: [f32; N], n: [f32; N]) -> [f32; N] {
        // Three factors of at most 2^±100 reach every n; all but the last keep the product in the
        // normal range when `a` is near one.
        let third = self.round(map(n, |n| n * (1.0 / 3.0)));
        let last = zip(n, third, |n, t| n - (t + t));
        let (p, q) = (map(third, power_of_two), map(last, power_of_two));
        self.mul(self.mul(self.mul(a, p), p), q)
    }
    #[inline(always)]
    fn splat_d(self, v: f64) -> [f64; N / 2] {
        [v; N / 2]
    }
    #[inline(always)]
    unsafe fn load_d(self, p: *const f64) -> [f64; N / 2] {
        // SAFETY: the caller promises that the elements at `p` are readable.
        unsafe { p.cast::<[f64; N / 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_d(self, p: *mut f64, v: [f64; N / 2]) {
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe { p.cast::<[f64; N / 2]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn fma_d(self, a: [f64; N / 2], b: [f64; N / 2], c: [f64; N / 2]) -> [f64; N / 2] {
        let mut out = c;
        for i in 0..N / 2 {
            out[i] += a[i] * b[i];
        }
        out
    }
    #[inline(always)]
    fn lt(self, a: [f32; N], b: [f32; N]) -> [bool; N] {
        zip(a, b, |a, b| a < b)
    }
    #[inline(always)]
    fn le(self, a: [f32; N], b: [f32; N]) -> [bool; N] {
        zip(a, b, |a, b| a <= b)
    }
    #[inline(always)]
    fn eq(self, a: [f32; N], b: [f32; N]) -> [bool; N] {
        zip(a, b, |a, b| a == b)
    }
    #[inline(always)]
    fn not(self, m: [bool; N]) -> [bool; N] {
        map(m, |m| !m)
    }
    #[inline(always)]
    fn or(self, a: [bool; N], b: [bool; N]) -> [bool; N] {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn any(self, m: [bool; N]) -> bool {
        m.iter().fold(false, |any, m| any | m)
    }
    #[inline(always)]
    fn select(self, m: [bool; N], a: [f32; N], b: [f32; N]) -> [f32; N] {
        let mut out = b;
        for i in 0..N {
            out[i] = if m[i] { a[i] } else { b[i] };
        }
        out
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
    fn to_bits(self, a: [f32; N]) -> [i32; N] {
        map(a, |a| a.to_bits() as i32)
    }
    #[inline(always)]
    fn of_bits(self, a: [i32; N]) -> [f32; N] {
        map(a, |a| f32::from_bits(a as u32))
    }
    #[inline(always)]
    fn splat_i(self, v: i32) -> [i32; N] {
        [v; N]
    }
    #[inline(always)]
    fn add_i(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn mul_i(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        zip(a, b, i32::wrapping_mul)
    }
    #[inline(always)]
    fn splat_l(self, v: i64) -> [i64; N / 2] {
        [v; N / 2]
    }
    #[inline(always)]
    unsafe fn load_l(self, p: *const i64) -> [i64; N / 2] {
        // SAFETY: the caller promises that the elements at `p` are readable.
        unsafe { p.cast::<[i64; N / 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_l(self, p: *mut i64, v: [i64; N / 2]) {
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe { p.cast::<[i64; N / 2]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn add_l(self, a: [i64; N / 2], b: [i64; N / 2]) -> [i64; N / 2] {
        let mut out = a;
        for i in 0..N / 2 {
            out[i] = a[i].wrapping_add(b[i]);
        }
        out
    }
    #[inline(always)]
    fn mul_l(self, a: [i64; N / 2], b: [i64; N / 2]) -> [i64; N / 2] {
        let mut out = a;
        for i in 0..N / 2 {
            out[i] = a[i].wrapping_mul(b[i]);
        }
        out
    }
    #[inline(always)]
    fn sub_i(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn and_i(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or_i(self, a: [i32; N], b: [i32; N]) -> [i32; N] {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn shr_i<const S: u32>(self, a: [i32; N]) -> [i32; N] {
        map(a, |a| a >> S)
    }
    #[inline(always)]
    unsafe fn load_binary16(self, p: *const u16) -> [f32; N] {
        // SAFETY: the caller promises that the elements at `p` are readable.
        map(unsafe { p.cast::<[u16; N]>().read_unaligned() }, binary16_to)
    }
    #[inline(always)]
    unsafe fn store_binary16(self, p: *mut u16, v: [f32; N]) {
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe { p.cast::<[u16; N]>().write_unaligned(map(v, binary16_from)) }
    }
    #[inline(always)]
    unsafe fn load_brain16(self, p: *const u16) -> [f32; N] {
        // SAFETY: the caller promises that the elements at `p` are readable.
        map(unsafe { p.cast::<[u16; N]>().read_unaligned() }, brain16_to)
    }
    #[inline(always)]
    unsafe fn store_brain16(self, p: *mut u16, v: [f32; N]) {
        // SAFETY: the caller promises that the elements at `p` are writable.
        unsafe { p.cast::<[u16; N]>().write_unaligned(map(v, brain16_from)) }
    }
    #[inline(always)]
    fn to_float(self, a: [i32; N]) -> [f32; N] {
        map(a, |a| a as f32)
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
