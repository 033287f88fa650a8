//! Stockham's self-sorting algorithm in mixed radix, in float32: the passes over one row, or over as many rows as a vector has
//! lanes (Cochran et al., "What is the fast Fourier transform?", 1967). Unsafe island (vector loads and stores).

use super::butterflies::{Complex, butterfly, times};
use super::tables::{Factors, MOST_RADIX};
use crate::vector_math::Simd;
use crate::vector_math::simd::MAX_LANES;
use pteron_core::{Error, Result};

/// One part of the scratch memory.
pub(super) fn take<'s, T>(rest: &mut &'s mut [T], n: usize) -> Result<&'s mut [T]> {
    let (part, tail) = std::mem::take(rest)
        .split_at_mut_checked(n)
        .ok_or_else(|| Error::internal("the memory of a transform is too small"))?;
    *rest = tail;
    Ok(part)
}

/// Real and imaginary parts, `step` elements from one number to the next.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub re: *mut f32,
    pub im: *mut f32,
    pub step: usize,
}

impl Place {
    pub(super) fn swapped(self) -> Place {
        Place { re: self.im, im: self.re, step: self.step }
    }

    /// # Safety
    /// `n` vectors' lanes of number `k` are readable.
    #[inline(always)]
    pub(super) unsafe fn load<S: Simd>(self, s: S, k: usize, n: usize) -> Complex<S> {
        // SAFETY: as this function asks for.
        unsafe { (s.load_up_to(self.re.add(k * self.step), n), s.load_up_to(self.im.add(k * self.step), n)) }
    }

    /// # Safety
    /// `n` lanes of number `k` are writable.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simd>(self, s: S, k: usize, v: Complex<S>, n: usize) {
        // SAFETY: as this function asks for.
        unsafe {
            s.store_up_to(self.re.add(k * self.step), v.0, n);
            s.store_up_to(self.im.add(k * self.step), v.1, n);
        }
    }
}

impl Place {
    /// # Safety
    /// Number `k` is readable.
    #[inline(always)]
    pub(super) unsafe fn get(self, k: usize) -> (f32, f32) {
        // SAFETY: as this function asks for.
        unsafe { (*self.re.add(k * self.step), *self.im.add(k * self.step)) }
    }

    /// # Safety
    /// Number `k` is writable.
    #[inline(always)]
    pub(super) unsafe fn put(self, k: usize, v: (f32, f32)) {
        // SAFETY: as this function asks for.
        unsafe { (*self.re.add(k * self.step), *self.im.add(k * self.step)) = v }
    }
}

/// Factors and twiddles of one length.
pub(super) struct Tables<'s> {
    n: usize,
    factors: Factors,
    /// For each pass `radix - 1` rows of cosines, then as many of sines.
    twiddles: &'s [f32],
    /// Roots of unity of a multiple of the length.
    pub roots: (&'s [f32], &'s [f32]),
    is_abreast: bool,
}

/// Does a pass over blocks of `stride` numbers have a twiddle for each number?
fn is_narrow<S: Simd>(is_abreast: bool, stride: usize) -> bool {
    !is_abreast && stride < S::LANES
}

impl<'s> Tables<'s> {
    /// `roots` are those of a multiple of `n`.
    pub(super) fn new<S: Simd>(
        (n, factors): (usize, Factors),
        roots: (&'s [f32], &'s [f32]),
        is_abreast: bool,
        rest: &mut &'s mut [f32],
    ) -> Result<Self> {
        let every = roots.0.len() / n.max(1);
        let (mut length, mut stride, mut total) = (n, 1, 0);
        for radix in factors.iter() {
            length /= radix;
            let width = if is_narrow::<S>(is_abreast, stride) { length * stride } else { length };
            total += 2 * (radix - 1) * width;
            stride *= radix;
        }
        let twiddles = take(rest, total)?;
        let mut at = &mut *twiddles;
        (length, stride) = (n, 1);
        for radix in factors.iter() {
            length /= radix;
            let repeats = if is_narrow::<S>(is_abreast, stride) { stride } else { 1 };
            let half = (radix - 1) * length * repeats;
            let (cos, sin) = take(&mut at, 2 * half)?.split_at_mut(half);
            let rows = cos.chunks_exact_mut(length * repeats).zip(sin.chunks_exact_mut(length * repeats));
            for (j, (cos, sin)) in rows.enumerate() {
                let blocks = cos.chunks_exact_mut(repeats).zip(sin.chunks_exact_mut(repeats));
                for (p, (cos, sin)) in blocks.enumerate() {
                    // Below n: p < length and j + 1 < radix.
                    let root = p * (j + 1) * stride * every;
                    cos.fill(roots.0[root]);
                    sin.fill(roots.1[root]);
                }
            }
            stride *= radix;
        }
        Ok(Tables { n, factors, twiddles, roots, is_abreast })
    }

    /// Transforms the numbers in `from`, with `to` as memory; where the result is.
    ///
    /// # Safety
    /// Both have `n` numbers, of `S::LANES` lanes each where rows are abreast, that nothing else touches.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(&self, s: S, mut from: Place, mut to: Place) -> Place {
        let (mut length, mut stride, mut at) = (self.n, 1, 0);
        for radix in self.factors.iter() {
            let m = length / radix;
            let width = if is_narrow::<S>(self.is_abreast, stride) { m * stride } else { m };
            let half = (radix - 1) * width;
            let (cos, sin) = self.twiddles[at..at + 2 * half].split_at(half);
            at += 2 * half;
            let pass = Pass { radix, m, stride, twiddles: (cos, sin), roots: self.small_roots(radix) };
            // SAFETY: radix · m · stride = n, as this function asks for, and the tables are those of this pass.
            unsafe {
                match radix {
                    2 => pass.run::<S, 2>(s, self.is_abreast, from, to),
                    3 => pass.run::<S, 3>(s, self.is_abreast, from, to),
                    4 => pass.run::<S, 4>(s, self.is_abreast, from, to),
                    5 => pass.run::<S, 5>(s, self.is_abreast, from, to),
                    _ => pass.run::<S, 0>(s, self.is_abreast, from, to),
                }
            }
            (from, to) = (to, from);
            (length, stride) = (m, stride * radix);
        }
        from
    }

    /// The roots of unity of a radix.
    fn small_roots(&self, radix: usize) -> ([f32; MOST_RADIX], [f32; MOST_RADIX]) {
        let (mut cos, mut sin) = ([0.0; MOST_RADIX], [0.0; MOST_RADIX]);
        if radix > 5 {
            let every = self.roots.0.len() / radix;
            for (k, (cos, sin)) in cos.iter_mut().zip(&mut sin).enumerate().take(radix) {
                (*cos, *sin) = (self.roots.0[k * every], self.roots.1[k * every]);
            }
        }
        (cos, sin)
    }
}

/// One pass: butterflies over `m` positions in blocks of `stride` numbers.
struct Pass<'s> {
    radix: usize,
    m: usize,
    stride: usize,
    twiddles: (&'s [f32], &'s [f32]),
    roots: ([f32; MOST_RADIX], [f32; MOST_RADIX]),
}

impl Pass<'_> {
    /// # Safety
    /// As for [`Tables::run`].
    #[inline(always)]
    unsafe fn run<S: Simd, const R: usize>(&self, s: S, is_abreast: bool, from: Place, to: Place) {
        // SAFETY: as this function asks for; `is_abreast` and the width of blocks decide as in `Tables::new`.
        unsafe {
            if is_abreast {
                self.blocks::<S, R, true>(s, from, to);
            } else if self.stride < S::LANES {
                self.narrow::<S, R>(s, from, to);
            } else {
                self.blocks::<S, R, false>(s, from, to);
            }
        }
    }

    #[inline(always)]
    fn radix<const R: usize>(&self) -> usize {
        if R == 0 { self.radix } else { R }
    }

    /// Vectors of one number of every row (`ABREAST`), or of consecutive numbers of a block.
    ///
    /// # Safety
    /// As for [`Tables::run`].
    #[inline(always)]
    unsafe fn blocks<S: Simd, const R: usize, const ABREAST: bool>(&self, s: S, from: Place, to: Place) {
        let (radix, m, stride) = (self.radix::<R>(), self.m, self.stride);
        let (cos, sin) = self.twiddles;
        let roots = (&self.roots.0[..], &self.roots.1[..]);
        assert!(cos.len() >= (radix - 1) * m && sin.len() >= (radix - 1) * m && radix <= MOST_RADIX);
        for p in 0..m {
            let mut twiddles = [(s.zero(), s.zero()); MOST_RADIX];
            for (j, w) in twiddles.iter_mut().enumerate().take(radix).skip(1) {
                *w = (s.splat(cos[(j - 1) * m + p]), s.splat(sin[(j - 1) * m + p]));
            }
            let mut q = 0;
            while q < stride {
                let lanes = if ABREAST { S::LANES } else { S::LANES.min(stride - q) };
                let mut x = [(s.zero(), s.zero()); MOST_RADIX];
                // SAFETY: q + lanes ≤ stride (or q < stride, with a vector for each number), p < m, and k, j < radix: all
                // indices are below radix · m · stride, the numbers of either place.
                unsafe {
                    for (k, x) in x.iter_mut().enumerate().take(radix) {
                        *x = from.load(s, q + stride * (p + k * m), lanes);
                    }
                    butterfly::<S, R>(s, radix, roots, &mut x);
                    for (j, (x, w)) in x.iter().zip(&twiddles).enumerate().take(radix) {
                        // The first twiddles are one: no product, so that infinity stays what it is.
                        let y = if j == 0 || p == 0 { *x } else { times(s, *x, *w) };
                        to.store(s, q + stride * (radix * p + j), y, lanes);
                    }
                }
                q += if ABREAST { 1 } else { S::LANES };
            }
        }
    }

    /// Blocks narrower than a vector: vectors go across blocks, and their results are put into place one by one.
    ///
    /// # Safety
    /// As for [`Tables::run`].
    #[inline(always)]
    unsafe fn narrow<S: Simd, const R: usize>(&self, s: S, from: Place, to: Place) {
        let (radix, stride) = (self.radix::<R>(), self.stride);
        let width = self.m * stride;
        let (cos, sin) = self.twiddles;
        let roots = (&self.roots.0[..], &self.roots.1[..]);
        assert!(cos.len() >= (radix - 1) * width && sin.len() >= (radix - 1) * width && radix <= MOST_RADIX);
        let mut u = 0;
        while u < width {
            let lanes = S::LANES.min(width - u);
            let mut x = [(s.zero(), s.zero()); MOST_RADIX];
            let mut block = ([0f32; MAX_LANES], [0f32; MAX_LANES]);
            // SAFETY: u + lanes ≤ width, k < radix: below radix · width, the numbers of a place; the tables have `width` numbers
            // for each j, by the assertion; a block holds every lane. The number of position u = q + stride · p goes to
            // q + stride · (radix · p + j) = u + stride · ((radix - 1) · p + j), which is below radix · width.
            unsafe {
                for (k, x) in x.iter_mut().enumerate().take(radix) {
                    *x = from.load(s, u + k * width, lanes);
                }
                butterfly::<S, R>(s, radix, roots, &mut x);
                for (j, x) in x.iter().enumerate().take(radix) {
                    let mut y = *x;
                    if j > 0 && u + lanes > stride {
                        let at = (j - 1) * width + u;
                        let w = (
                            s.load_up_to(cos.as_ptr().add(at), lanes),
                            s.load_up_to(sin.as_ptr().add(at), lanes),
                        );
                        y = times(s, *x, w);
                    }
                    s.store(block.0.as_mut_ptr(), y.0);
                    s.store(block.1.as_mut_ptr(), y.1);
                    let (mut p, mut q) = (u / stride, u % stride);
                    for (re, im) in block.0.iter().zip(&block.1).take(lanes) {
                        let target = q + stride * (radix * p + j);
                        *to.re.add(target) = *re;
                        *to.im.add(target) = *im;
                        q += 1;
                        if q == stride {
                            (p, q) = (p + 1, 0);
                        }
                    }
                }
            }
            u += S::LANES;
        }
    }
}
