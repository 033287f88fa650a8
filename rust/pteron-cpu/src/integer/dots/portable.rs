//! [`Dots`] in plain Rust.

use super::vectors::{Dots, Narrowing, TapDots, padded};

const LANES: usize = 8;

/// Any processor.
#[derive(Clone, Copy)]
pub(in crate::integer) struct Portable;

/// Applies `f` lane by lane.
#[inline(always)]
fn map<A: Copy, B: Copy, C: Copy + Default>(
    a: [A; LANES],
    b: [B; LANES],
    f: impl Fn(A, B) -> C,
) -> [C; LANES] {
    let mut out = [C::default(); LANES];
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
    out
}

impl Dots for Portable {
    const LANES: usize = LANES;
    const CHAINS: usize = 1;
    type Sums = [i32; LANES];
    type Weights = [[i8; 4]; LANES];
    type Inputs = [[u8; 4]; LANES];
    type I = [i32; LANES];
    type F = [f32; LANES];

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        [0; LANES]
    }
    #[inline(always)]
    unsafe fn weights<const PART: usize>(p: *const i8) -> Self::Weights {
        // SAFETY: the caller promises `4 * LANES` readable bytes; bytes have no alignment.
        unsafe { p.cast::<Self::Weights>().read() }
    }
    #[inline(always)]
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> Self::Inputs {
        // SAFETY: the caller promises four readable bytes; bytes have no alignment.
        [unsafe { p.cast::<[u8; 4]>().read() }; LANES]
    }
    #[inline(always)]
    unsafe fn dot(mut sums: Self::Sums, inputs: Self::Inputs, weights: Self::Weights) -> Self::Sums {
        for ((sum, x), w) in sums.iter_mut().zip(inputs).zip(weights) {
            for (x, w) in x.into_iter().zip(w) {
                *sum = sum.wrapping_add(i32::from(x) * i32::from(w));
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn add_sums(a: Self::Sums, b: Self::Sums) -> Self::Sums {
        map(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn lanes(sums: Self::Sums) -> Self::I {
        sums
    }
    #[inline(always)]
    unsafe fn splat_i(v: i32) -> Self::I {
        [v; LANES]
    }
    #[inline(always)]
    unsafe fn load_i(p: *const i32) -> Self::I {
        // SAFETY: the caller promises `LANES` readable elements.
        unsafe { p.cast::<Self::I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_i(p: *mut i32, v: Self::I) {
        // SAFETY: the caller promises `LANES` writable elements.
        unsafe { p.cast::<Self::I>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        map(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        map(a, b, i32::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn to_float(a: Self::I) -> Self::F {
        map(a, a, |a, _| a as f32)
    }
    #[inline(always)]
    unsafe fn nearest(a: Self::F) -> Self::I {
        map(a, a, |a, _| a.round_ties_even() as i32)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        map(a, a, |a, _| a.round_ties_even())
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::F {
        [v; LANES]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: the caller promises `LANES` readable elements.
        unsafe { p.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        map(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        map(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn clamp(x: Self::F, low: Self::F, high: Self::F) -> Self::F {
        let raised = map(x, low, |x, low| if low > x { low } else { x });
        map(raised, high, |x, high| if high < x { high } else { x })
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F, n: usize) {
        // SAFETY: the caller promises `n` writable elements, at most `LANES`.
        unsafe { p.copy_from_nonoverlapping(v.as_ptr(), n.min(LANES)) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, v: Self::I, n: usize) {
        let bytes = map(v, v, |v, _| v as u8);
        // SAFETY: the caller promises `n` writable bytes, at most `LANES`.
        unsafe { p.copy_from_nonoverlapping(bytes.as_ptr(), n.min(LANES)) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8, n: usize, flip: u8) -> Self::I {
        // SAFETY: the caller promises `n` readable bytes.
        unsafe { padded::<LANES>(p, n) }.map(|b| i32::from((b ^ flip) as i8))
    }
    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8, n: usize, flip: u8) {
        for i in 0..n {
            // SAFETY: the caller promises `n` bytes in both.
            unsafe { *to.add(i) = *from.add(i) ^ flip }
        }
    }
    #[inline(always)]
    unsafe fn copy_16(from: *const u8, to: *mut u8, flip: u8) {
        // SAFETY: the caller promises 16 bytes in both, which do not overlap.
        unsafe { to.cast::<[u8; 16]>().write(from.cast::<[u8; 16]>().read().map(|b| b ^ flip)) }
    }
    #[inline(always)]
    fn channel_of(vector: usize, lane: usize) -> usize {
        vector * LANES + lane
    }
    #[inline(always)]
    unsafe fn store_channels(p: *mut u8, v: [Self::I; 4], narrowing: Narrowing) {
        // SAFETY: the caller promises `4 * LANES` writable bytes.
        unsafe { Self::store_halves([p, p.add(2 * LANES)], v, narrowing) }
    }
    #[inline(always)]
    unsafe fn store_halves(to: [*mut u8; 2], v: [Self::I; 4], narrowing: Narrowing) {
        let Narrowing { zero, low, high, flip } = narrowing;
        for (i, v) in v.into_iter().enumerate() {
            let limited =
                |v: i32| v.saturating_add(i32::from(zero)).clamp(i32::from(low), i32::from(high)) as u8;
            let bytes = map(v, v, |v, _| limited(v) ^ flip);
            // SAFETY: the caller promises `2 * LANES` writable bytes at each pointer.
            unsafe { to[i / 2].add(i % 2 * LANES).copy_from_nonoverlapping(bytes.as_ptr(), LANES) }
        }
    }
}

impl TapDots for Portable {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [Self::Inputs; 4] {
        let mut out = [[[0; 4]; LANES]; 4];
        for (t, tap) in taps.into_iter().enumerate() {
            for (v, vector) in out.iter_mut().enumerate() {
                for (lane, quad) in vector.iter_mut().enumerate() {
                    // SAFETY: the caller promises `4 * LANES` readable bytes at each tap.
                    quad[t] = unsafe { *tap.add(v * LANES + lane) } ^ flip;
                }
            }
        }
        out
    }
}
