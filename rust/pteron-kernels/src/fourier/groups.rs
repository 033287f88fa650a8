//! Rows that are transformed together: they are brought from where they lie to numbers one behind the other, or to a vector of
//! all rows for each number, and back. Unsafe island (vector loads and stores).

use super::axis::{Axis, Kind};
use super::halves::{Single, Vectors, signal, spectrum};
use super::passes::{Place, Tables};
use super::scalar::{ABREAST, Four, Number, Transform};
use crate::vector_math::Simd;

/// The rows of a group: `count` lanes, from row `first` of `outer` (or, with an inner dimension, from column `column` of it).
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub first: usize,
    pub column: usize,
    pub count: usize,
}

/// How a row is transformed.
pub(super) enum Method<'s> {
    Passes(Tables<'s>),
    /// One at a time in float64, with memory for it.
    Alone(&'s mut [Number], Transform<'s>),
    /// Some lanes at a time in float64.
    Abreast(&'s mut [[Four; 2]], Transform<'s, Four>),
}

/// What groups of rows have in common.
pub(super) struct Work {
    pub axis: Axis,
    pub kind: Kind,
    pub is_forward: bool,
    pub factor: f32,
    pub source: *const f32,
    pub target: *mut f32,
    /// Is a row of real numbers a complex one of half the length?
    pub half: bool,
    pub is_abreast: bool,
}

impl Work {
    /// # Safety
    /// Source and target hold the rows of the axis; `a` and `b` have `n + 2` numbers, of a vector each where rows are abreast.
    #[inline(always)]
    pub(super) unsafe fn group<S: Simd>(
        &self,
        s: S,
        method: &mut Method<'_>,
        group: Group,
        a: Place,
        b: Place,
    ) {
        let n = self.axis.n;
        // SAFETY: as this function asks for; every step leaves its numbers in one of the two places.
        unsafe {
            let roots = match method {
                Method::Passes(tables) => tables.roots,
                Method::Alone(..) | Method::Abreast(..) => (&[][..], &[][..]),
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
                Method::Abreast(rows, transform) => {
                    // Lanes without a row hold zeros, or what is left of another.
                    for lane in (0..group.count).step_by(ABREAST) {
                        lanes(rows, transform, Place { re: at.re.add(lane), im: at.im.add(lane), ..at });
                    }
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

/// [`ABREAST`] lanes in float64, in place.
///
/// # Safety
/// `at` has a number in each of these lanes for each of `rows`.
#[inline(always)]
unsafe fn lanes(rows: &mut [[Four; 2]], transform: &mut Transform<'_, Four>, at: Place) {
    // SAFETY: as this function asks for.
    unsafe {
        for (k, slot) in rows.iter_mut().enumerate() {
            let (re, im) = (at.re.add(k * at.step), at.im.add(k * at.step));
            let [a, b] = slot;
            for (l, (a, b)) in a.iter_mut().zip(b).enumerate() {
                (*a, *b) = (f64::from(*re.add(l)), f64::from(*im.add(l)));
            }
        }
        transform.apply(rows);
        for (k, value) in rows.iter().enumerate() {
            let (re, im) = (at.re.add(k * at.step), at.im.add(k * at.step));
            let [a, b] = value;
            for (l, (a, b)) in a.iter().zip(b).enumerate() {
                (*re.add(l), *im.add(l)) = (*a as f32, *b as f32);
            }
        }
    }
}
