//! Discrete Fourier transforms of rows of float32 along one dimension, in float32: Stockham's self-sorting algorithm in mixed
//! radix (Cochran et al., "What is the fast Fourier transform?", 1967). Unsafe island (vector loads and stores).
//!
//! Short rows are transformed as many at a time as a vector has lanes, one row in each lane; long ones, and one or two
//! alone, one after the other. Lengths with a factor above 31 go through [`Transform`] in float64. A row of an even number
//! of real numbers is a complex row of half the length. A backward transform is a forward one with real and imaginary
//! parts in each other's place. The numbers of a row do not depend on the rows beside it.

use super::butterflies::{Complex, butterfly, times};
use super::halves::{Single, Vectors, signal, spectrum};
use super::scalar::{Number, Transform, memory, most_memory};
use super::tables::{Factors, MOST_RADIX, fill_roots};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{Error, Result};

/// Longest rows that are transformed side by side: their numbers, for all lanes, stay in the second-level cache.
const MOST_ABREAST: usize = 4096;
/// Fewer rows than this are transformed one after the other.
const FEWEST_ABREAST: usize = 3;

/// What becomes what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Complex rows of `n` numbers.
    Complex,
    /// `n` real numbers to the first `kept` of the spectrum: `n / 2 + 1`, or all `n`.
    FromReal {
        /// That many.
        kept: usize,
    },
    /// The first `n / 2 + 1` of `given` numbers of a spectrum to `n` real numbers.
    ToReal {
        /// That many.
        given: usize,
    },
}

/// Rows along the middle one of three dimensions, `outer` by `n` by `inner`, row-major; `n` is the length of the signal.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Extents before the dimension, multiplied.
    pub outer: usize,
    /// That of the dimension.
    pub n: usize,
    /// Extents behind it, multiplied.
    pub inner: usize,
}

/// Transforms every row of an axis. Complex numbers are pairs of f32.
pub struct Rows<'a> {
    /// Where the rows lie.
    pub axis: Axis,
    /// What they are.
    pub kind: Kind,
    /// With `exp(-2 pi i j k / n)`, not its conjugate?
    pub is_forward: bool,
    /// What results are multiplied by.
    pub factor: f32,
    /// The rows; `None` for those in `target`.
    pub source: Option<&'a [f32]>,
    /// Where results go.
    pub target: &'a mut [f32],
    /// At least [`scratch_floats`].
    pub scratch: &'a mut [f32],
    /// At least [`scratch_numbers`].
    pub numbers: &'a mut [Number],
}

/// Numbers of f32 scratch for rows of up to `n` elements; `None` when that overflows.
pub fn scratch_floats(n: usize) -> Option<usize> {
    let abreast = n.min(MOST_ABREAST).checked_add(2)?.checked_mul(4 * MAX_LANES)?;
    let alone = n.checked_add(2)?.checked_mul(4)?;
    // Roots, and the tables of at most four passes of narrow blocks and all others.
    abreast.max(alone).checked_add(n.checked_mul(16)?)
}

/// Numbers of f64 scratch for rows of `n` elements, or of up to `n`; `None` when that overflows.
pub fn scratch_numbers(n: usize, is_bound: bool) -> Option<usize> {
    if is_bound {
        return most_memory(n)?.checked_add(n);
    }
    if Factors::of(n).is_some() { Some(0) } else { memory(n)?.checked_add(n) }
}

/// One part of the scratch memory.
fn take<'s, T>(rest: &mut &'s mut [T], n: usize) -> Result<&'s mut [T]> {
    let (part, tail) = std::mem::take(rest)
        .split_at_mut_checked(n)
        .ok_or_else(|| Error::internal("the memory of a transform is too small"))?;
    *rest = tail;
    Ok(part)
}

/// Real and imaginary parts, `step` elements from one number to the next.
#[derive(Clone, Copy)]
struct Place {
    re: *mut f32,
    im: *mut f32,
    step: usize,
}

impl Place {
    fn swapped(self) -> Place {
        Place { re: self.im, im: self.re, step: self.step }
    }

    /// # Safety
    /// `n` vectors' lanes of number `k` are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, k: usize, n: usize) -> Complex<S> {
        // SAFETY: as this function asks for.
        unsafe { (s.load_up_to(self.re.add(k * self.step), n), s.load_up_to(self.im.add(k * self.step), n)) }
    }

    /// # Safety
    /// `n` lanes of number `k` are writable.
    #[inline(always)]
    unsafe fn store<S: Simd>(self, s: S, k: usize, v: Complex<S>, n: usize) {
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
    unsafe fn get(self, k: usize) -> (f32, f32) {
        // SAFETY: as this function asks for.
        unsafe { (*self.re.add(k * self.step), *self.im.add(k * self.step)) }
    }

    /// # Safety
    /// Number `k` is writable.
    #[inline(always)]
    unsafe fn put(self, k: usize, v: (f32, f32)) {
        // SAFETY: as this function asks for.
        unsafe { (*self.re.add(k * self.step), *self.im.add(k * self.step)) = v }
    }
}

/// Factors and twiddles of one length.
struct Tables<'s> {
    n: usize,
    factors: Factors,
    /// For each pass `radix - 1` rows of cosines, then as many of sines.
    twiddles: &'s [f32],
    /// Roots of unity of a multiple of the length.
    roots: (&'s [f32], &'s [f32]),
    is_abreast: bool,
}

/// Does a pass over blocks of `stride` numbers have a twiddle for each number?
fn is_narrow<S: Simd>(is_abreast: bool, stride: usize) -> bool {
    !is_abreast && stride < S::LANES
}

impl<'s> Tables<'s> {
    /// `roots` are those of a multiple of `n`.
    fn new<S: Simd>(
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
    unsafe fn run<S: Simd>(&self, s: S, mut from: Place, mut to: Place) -> Place {
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

/// The rows of a group: `count` lanes, from row `first` of `outer` (or, with an inner dimension, from column `column` of it).
#[derive(Clone, Copy)]
struct Group {
    first: usize,
    column: usize,
    count: usize,
}

impl SimdTask for Rows<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let Axis { outer, n, inner } = self.axis;
        let (wide_in, wide_out) = self.widths();
        let size = |width: usize| outer.checked_mul(inner)?.checked_mul(width);
        let source_len = self.source.map_or(self.target.len(), <[f32]>::len);
        let fits = size(wide_in).is_some_and(|n| n <= source_len)
            && size(wide_out).is_some_and(|n| n <= self.target.len())
            && (self.source.is_some() || self.kind == Kind::Complex);
        if !fits || n == 0 || outer == 0 || inner == 0 {
            return Err(Error::internal("the rows of a transform do not fit its tensors"));
        }
        // A real row is half as long as a complex one, if that length has small factors.
        let half = n.is_multiple_of(2) && self.kind != Kind::Complex && Factors::of(n / 2).is_some();
        let length = if half { n / 2 } else { n };
        let abreast = if inner == 1 { outer } else { inner };
        let factors = Factors::of(length);
        let is_abreast = n <= MOST_ABREAST && abreast >= FEWEST_ABREAST && factors.is_some();
        let lanes = if is_abreast { S::LANES } else { 1 };

        let mut rest = self.scratch;
        let buffers = [take(&mut rest, 2 * lanes * (n + 2))?, take(&mut rest, 2 * lanes * (n + 2))?];
        let mut numbers = self.numbers;
        let method = match factors {
            Some(factors) => {
                let (re, im) = (take(&mut rest, n)?, take(&mut rest, n)?);
                fill_roots(re, im);
                Method::Passes(Tables::new::<S>((length, factors), (re, im), is_abreast, &mut rest)?)
            }
            None => {
                let row = take(&mut numbers, n)?;
                let small = || Error::internal("the memory of a transform is too small");
                Method::Alone(row, Transform::new(n, true, numbers).ok_or_else(small)?)
            }
        };
        let [a, b] = buffers.map(|buffer| match is_abreast {
            true => Place { re: buffer.as_mut_ptr(), im: buffer[lanes..].as_mut_ptr(), step: 2 * lanes },
            false => Place { re: buffer.as_mut_ptr(), im: buffer[n + 2..].as_mut_ptr(), step: 1 },
        });
        let target = self.target.as_mut_ptr();
        let work = Work {
            axis: self.axis,
            kind: self.kind,
            is_forward: self.is_forward,
            factor: self.factor,
            source: self.source.map_or(target.cast_const(), <[f32]>::as_ptr),
            target,
            half,
            is_abreast,
        };
        let mut method = method;
        for first in (0..outer).step_by(if inner == 1 { lanes } else { 1 }) {
            for column in (0..inner).step_by(lanes) {
                let left = if inner == 1 { outer - first } else { inner - column };
                let group = Group { first, column, count: lanes.min(left) };
                // SAFETY: source and target hold the rows of the axis, checked above; the buffers hold n + 2 numbers of `lanes`
                // lanes each, and nothing else touches them.
                unsafe { work.group(s, &mut method, group, a, b) };
            }
        }
        Ok(())
    }
}

impl Rows<'_> {
    /// Elements of f32 in a row of the source and of the target.
    fn widths(&self) -> (usize, usize) {
        let n = self.axis.n;
        match self.kind {
            Kind::Complex => (2 * n, 2 * n),
            Kind::FromReal { kept } => (n, 2 * kept),
            Kind::ToReal { given } => (2 * given, n),
        }
    }
}

/// How a row is transformed.
enum Method<'s> {
    Passes(Tables<'s>),
    /// One at a time in float64, with memory for it.
    Alone(&'s mut [Number], Transform<'s>),
}

/// What groups of rows have in common.
struct Work {
    axis: Axis,
    kind: Kind,
    is_forward: bool,
    factor: f32,
    source: *const f32,
    target: *mut f32,
    /// Is a row of real numbers a complex one of half the length?
    half: bool,
    is_abreast: bool,
}

impl Work {
    /// # Safety
    /// Source and target hold the rows of the axis; `a` and `b` have `n + 2` numbers, of a vector each where rows are abreast.
    #[inline(always)]
    unsafe fn group<S: Simd>(&self, s: S, method: &mut Method<'_>, group: Group, a: Place, b: Place) {
        let n = self.axis.n;
        // SAFETY: as this function asks for; every step leaves its numbers in one of the two places.
        unsafe {
            let roots = match method {
                Method::Passes(tables) => tables.roots,
                Method::Alone(..) => (&[][..], &[][..]),
            };
            let mut at = self.load(s, group, roots, a, b);
            if !self.is_forward {
                at = at.swapped();
            }
            let other = if std::ptr::eq(at.re.min(at.im), a.re) { b } else { a };
            let other = if self.is_forward { other } else { other.swapped() };
            let mut done = match method {
                Method::Passes(tables) => tables.run(s, at, other),
                Method::Alone(row, transform) => {
                    alone(row, transform, at);
                    at
                }
            };
            if !self.is_forward {
                done = done.swapped();
            }
            if self.half
                && let Kind::FromReal { kept } = self.kind
            {
                let other = if std::ptr::eq(done.re, a.re) { b } else { a };
                self.spectrum_of_halves(s, roots, done, other, kept);
                done = other;
            }
            let count = match self.kind {
                Kind::Complex => n,
                Kind::FromReal { kept } => kept,
                Kind::ToReal { .. } if self.half => n / 2,
                Kind::ToReal { .. } => n,
            };
            if self.factor != 1.0 {
                let factor = s.splat(self.factor);
                let width = if self.is_abreast { S::LANES } else { 1 };
                let numbers = if self.is_abreast { count } else { count.div_ceil(S::LANES) };
                for k in 0..numbers {
                    let (k, lanes) = if self.is_abreast {
                        (k, width)
                    } else {
                        (k * S::LANES, S::LANES.min(count - k * S::LANES))
                    };
                    let v = done.load(s, k, lanes);
                    done.store(s, k, (s.mul(v.0, factor), s.mul(v.1, factor)), lanes);
                }
            }
            self.store(s, group, done, count);
        }
    }
}

impl Work {
    /// Element `column` of row `k` of a matrix of `width` rows in row `first` of `outer`.
    #[inline(always)]
    fn position(&self, group: Group, width: usize, k: usize) -> usize {
        (group.first * width + k) * self.axis.inner + group.column
    }

    /// The numbers of a group, ready for a transform of their length: where they are.
    ///
    /// # Safety
    /// As for [`Work::group`].
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, s: S, group: Group, roots: (&[f32], &[f32]), a: Place, b: Place) -> Place {
        let n = self.axis.n;
        // SAFETY: as this function asks for; places have n + 2 numbers.
        unsafe {
            if self.is_abreast && group.count < S::LANES {
                // Lanes without a row are computed, too.
                for k in 0..n + 2 {
                    a.store(s, k, (s.zero(), s.zero()), S::LANES);
                    b.store(s, k, (s.zero(), s.zero()), S::LANES);
                }
            }
            match self.kind {
                Kind::Complex => self.load_pairs(s, group, 2 * n, n, a),
                Kind::FromReal { .. } if self.half => self.load_pairs(s, group, n, n / 2, a),
                Kind::FromReal { .. } => self.load_reals(s, group, a),
                Kind::ToReal { given } => {
                    let to = if self.half { b } else { a };
                    self.load_pairs(s, group, 2 * given, n / 2 + 1, to);
                    // The ends of the spectrum of real numbers are real.
                    for k in [Some(0), n.is_multiple_of(2).then_some(n / 2)].into_iter().flatten() {
                        self.clear(s, to.im.add(k * to.step));
                    }
                    if self.half {
                        self.signal_of_halves(s, roots, b, a);
                    } else {
                        self.mirror(s, a, n);
                    }
                }
            }
        }
        a
    }

    /// # Safety
    /// A vector, or a number where rows are alone, is writable.
    #[inline(always)]
    unsafe fn clear<S: Simd>(&self, s: S, p: *mut f32) {
        // SAFETY: as this function asks for.
        unsafe { if self.is_abreast { s.store(p, s.zero()) } else { *p = 0.0 } }
    }

    /// Pairs of consecutive elements of rows of `width`, `count` pairs of each.
    ///
    /// # Safety
    /// As for [`Work::group`]; a row has 2 · `count` elements at least.
    #[inline(always)]
    unsafe fn load_pairs<S: Simd>(&self, s: S, group: Group, width: usize, count: usize, to: Place) {
        let lanes = group.count;
        // Real numbers lie `inner` apart; a complex one is a pair at its place.
        let is_real = matches!(self.kind, Kind::FromReal { .. });
        // SAFETY: rows and columns of the group lie in the source, and `to` has `count` numbers.
        unsafe {
            if self.is_abreast && self.axis.inner == 1 {
                for c in (0..2 * count).step_by(S::LANES) {
                    let columns = S::LANES.min(2 * count - c);
                    let from = self.source.add(group.first * width + c);
                    s.transpose_block(from, width, lanes, columns, to.re.add(c * S::LANES), S::LANES);
                }
                return;
            }
            for k in 0..count {
                let (re, im) = if is_real {
                    let re = self.source.add(self.position(group, width, 2 * k));
                    (re, re.add(self.axis.inner))
                } else {
                    let re = self.source.add(2 * self.position(group, width / 2, k));
                    (re, re.add(1))
                };
                if !self.is_abreast {
                    *to.re.add(k * to.step) = *re;
                    *to.im.add(k * to.step) = *im;
                } else if is_real {
                    to.store(s, k, (s.load_up_to(re, lanes), s.load_up_to(im, lanes)), S::LANES);
                } else {
                    to.store(s, k, (s.load_even(re, lanes), s.load_even(im, lanes)), S::LANES);
                }
            }
        }
    }

    /// Real numbers as complex ones.
    ///
    /// # Safety
    /// As for [`Work::group`].
    #[inline(always)]
    unsafe fn load_reals<S: Simd>(&self, s: S, group: Group, to: Place) {
        let (n, lanes) = (self.axis.n, group.count);
        // SAFETY: rows and columns of the group lie in the source, and `to` has n numbers.
        unsafe {
            for k in 0..n {
                self.clear(s, to.im.add(k * to.step));
            }
            if self.is_abreast && self.axis.inner == 1 {
                for c in (0..n).step_by(S::LANES) {
                    let columns = S::LANES.min(n - c);
                    let from = self.source.add(group.first * n + c);
                    s.transpose_block(from, n, lanes, columns, to.re.add(c * to.step), to.step);
                }
                return;
            }
            for k in 0..n {
                let (from, to) = (self.source.add(self.position(group, n, k)), to.re.add(k * to.step));
                if self.is_abreast {
                    s.store(to, s.load_up_to(from, lanes));
                } else {
                    *to = *from;
                }
            }
        }
    }

    /// The second half of a spectrum of `n` numbers: the conjugate of the first.
    ///
    /// # Safety
    /// `at` has `n` numbers.
    #[inline(always)]
    unsafe fn mirror<S: Simd>(&self, s: S, at: Place, n: usize) {
        // SAFETY: k and n - k are below n.
        unsafe {
            for k in n / 2 + 1..n {
                let (from, to) = ((n - k) * at.step, k * at.step);
                if self.is_abreast {
                    s.store(at.re.add(to), s.load(at.re.add(from)));
                    s.store(at.im.add(to), s.neg(s.load(at.im.add(from))));
                } else {
                    *at.re.add(to) = *at.re.add(from);
                    *at.im.add(to) = -*at.im.add(from);
                }
            }
        }
    }

    /// The spectrum of `n` real numbers from that of `n / 2` complex ones.
    ///
    /// # Safety
    /// As for [`Work::group`]; `roots` are those of n, and `to` has n + 2 numbers.
    #[inline(always)]
    unsafe fn spectrum_of_halves<S: Simd>(
        &self,
        s: S,
        roots: (&[f32], &[f32]),
        from: Place,
        to: Place,
        kept: usize,
    ) {
        let h = self.axis.n / 2;
        // SAFETY: k ≤ h / 2, so that k, h - k and (h - k) % h are at most h.
        unsafe {
            for k in 0..=h / 2 {
                let (w, mirror) = ((roots.0[k], roots.1[k]), (h - k) % h);
                if self.is_abreast {
                    let (z, m) = (from.load(s, k, S::LANES), from.load(s, mirror, S::LANES));
                    let [x, y] = spectrum(Vectors(s), z, m, w);
                    to.store(s, k, x, S::LANES);
                    to.store(s, h - k, y, S::LANES);
                } else {
                    let [x, y] = spectrum(Single, from.get(k), from.get(mirror), w);
                    to.put(k, x);
                    to.put(h - k, y);
                }
            }
            if kept > h + 1 {
                self.mirror(s, to, kept);
            }
        }
    }

    /// `n / 2` complex numbers whose transform is that of the spectrum of `n` real ones.
    ///
    /// # Safety
    /// As for [`Work::group`]; `roots` are those of n, and `from` has n / 2 + 1 numbers.
    #[inline(always)]
    unsafe fn signal_of_halves<S: Simd>(&self, s: S, roots: (&[f32], &[f32]), from: Place, to: Place) {
        let h = self.axis.n / 2;
        // SAFETY: k < h, so that k and h - k are at most h.
        unsafe {
            for k in 0..h {
                let w = (roots.0[k], roots.1[k]);
                if self.is_abreast {
                    let (x, m) = (from.load(s, k, S::LANES), from.load(s, h - k, S::LANES));
                    to.store(s, k, signal(Vectors(s), x, m, w), S::LANES);
                } else {
                    to.put(k, signal(Single, from.get(k), from.get(h - k), w));
                }
            }
        }
    }

    /// Writes the rows of a group: `count` numbers of each, of which real ones take the real part or, where a row is half as
    /// long, both.
    ///
    /// # Safety
    /// As for [`Work::group`].
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, group: Group, from: Place, count: usize) {
        let (n, lanes, inner) = (self.axis.n, group.count, self.axis.inner);
        let is_real = matches!(self.kind, Kind::ToReal { .. });
        let pairs = !is_real || self.half;
        // SAFETY: rows and columns of the group lie in the target; `from` has `count` numbers; a block holds every lane.
        unsafe {
            if self.is_abreast && inner == 1 {
                let (width, step) = if pairs { (2 * count, S::LANES) } else { (count, from.step) };
                for c in (0..width).step_by(S::LANES) {
                    let columns = S::LANES.min(width - c);
                    let to = self.target.add(group.first * width + c);
                    s.transpose_block(from.re.add(c * step), step, columns, lanes, to, width);
                }
                return;
            }
            for k in 0..count {
                if is_real {
                    let (first, second) = if self.half { (2 * k, Some(2 * k + 1)) } else { (k, None) };
                    for (k_out, part) in [(Some(first), from.re), (second, from.im)] {
                        let Some(k_out) = k_out else { continue };
                        let to = self.target.add(self.position(group, n, k_out));
                        let part = part.add(k * from.step);
                        if self.is_abreast {
                            s.store_up_to(to, s.load(part), lanes);
                        } else {
                            *to = *part;
                        }
                    }
                    continue;
                }
                let to = self.target.add(2 * self.position(group, count, k));
                let (re, im) = (from.re.add(k * from.step), from.im.add(k * from.step));
                for lane in 0..lanes {
                    *to.add(2 * lane) = *re.add(lane);
                    *to.add(2 * lane + 1) = *im.add(lane);
                }
            }
        }
    }
}

/// One row in float64, in place.
///
/// # Safety
/// `at` has a number for each of `row`, one behind the other.
unsafe fn alone(row: &mut [Number], transform: &mut Transform<'_>, at: Place) {
    // SAFETY: as this function asks for.
    unsafe {
        for (k, slot) in row.iter_mut().enumerate() {
            let (re, im) = at.get(k);
            *slot = [f64::from(re), f64::from(im)];
        }
        transform.apply(row);
        for (k, value) in row.iter().enumerate() {
            at.put(k, (value[0] as f32, value[1] as f32));
        }
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
