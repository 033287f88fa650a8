//! The discrete Fourier transform of one row of complex numbers, or of four beside each other, of any length, in memory of the
//! caller's.
//!
//! Lengths of small prime factors go through Stockham's self-sorting algorithm in mixed radix; others
//! through Bluestein's, a convolution of a power of two. Computed in float64.

/// A complex number: real and imaginary part.
pub type Number = [f64; 2];

/// Rows of [`Four`].
pub const ABREAST: usize = 4;

/// Numbers of rows beside each other.
pub type Four = [f64; ABREAST];

/// What the parts of complex numbers are: a number, or one of each row.
pub trait Real: bytemuck::Pod {
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product with a number.
    fn times(self, factor: f64) -> Self;
}

impl Real for f64 {
    #[inline(always)]
    fn plus(self, other: f64) -> f64 {
        self + other
    }
    #[inline(always)]
    fn minus(self, other: f64) -> f64 {
        self - other
    }
    #[inline(always)]
    fn times(self, factor: f64) -> f64 {
        self * factor
    }
}

impl Real for Four {
    #[inline(always)]
    fn plus(mut self, other: Four) -> Four {
        for l in 0..ABREAST {
            self[l] += other[l];
        }
        self
    }
    #[inline(always)]
    fn minus(mut self, other: Four) -> Four {
        for l in 0..ABREAST {
            self[l] -= other[l];
        }
        self
    }
    #[inline(always)]
    fn times(mut self, factor: f64) -> Four {
        for v in &mut self {
            *v *= factor;
        }
        self
    }
}

/// Largest factor that is summed directly.
const MOST_RADIX: usize = 31;

#[inline(always)]
fn times<R: Real>(a: [R; 2], b: Number) -> [R; 2] {
    [a[0].times(b[0]).minus(a[1].times(b[1])), a[0].times(b[1]).plus(a[1].times(b[0]))]
}

#[inline(always)]
fn plus<R: Real>(a: [R; 2], b: [R; 2]) -> [R; 2] {
    [a[0].plus(b[0]), a[1].plus(b[1])]
}

#[inline(always)]
fn minus<R: Real>(a: [R; 2], b: [R; 2]) -> [R; 2] {
    [a[0].minus(b[0]), a[1].minus(b[1])]
}

/// The smallest factor above one, of even lengths 4 if there is one.
fn factor(n: usize) -> usize {
    if n.is_multiple_of(4) {
        return 4;
    }
    (2..).take_while(|r| r * r <= n).find(|r| n.is_multiple_of(*r)).unwrap_or(n)
}

fn is_smooth(mut n: usize) -> bool {
    while n > 1 {
        let r = factor(n);
        if r > MOST_RADIX {
            return false;
        }
        n /= r;
    }
    true
}

/// Length of the convolution for a length that is not smooth.
fn padded(n: usize) -> usize {
    (2 * n).next_power_of_two()
}

/// Numbers of memory that transforms of length `n` need; `None` when that overflows.
pub fn memory(n: usize) -> Option<usize> {
    if is_smooth(n) { n.checked_mul(2) } else { most_memory(n) }
}

/// Numbers of memory that transforms of any length up to `n` need; `None` when that overflows.
pub fn most_memory(n: usize) -> Option<usize> {
    // The convolution has at most 4 n numbers, three times; then its roots and the chirp.
    n.max(1).checked_mul(17)
}

/// The same for rows beside each other.
pub fn memory_abreast(n: usize) -> Option<usize> {
    // Two tables of the padded length, and two such rows, beside the chirp.
    padded(n).checked_mul(2 + 2 * ABREAST)?.checked_add(n)
}

/// A transform of one length, with its tables in the caller's memory.
pub struct Transform<'m, R = f64> {
    n: usize,
    roots: &'m mut [Number],
    work: &'m mut [[R; 2]],
    chirp: Option<Chirp<'m, R>>,
}

/// What Bluestein's algorithm needs beside the transform of the padded length.
struct Chirp<'m, R> {
    factors: &'m mut [Number],
    filter: &'m mut [Number],
    signal: &'m mut [[R; 2]],
}

/// The first `n` numbers of `memory`, each of `R`, and the rest.
fn split<R: Real>(memory: &mut [Number], n: usize) -> Option<(&mut [[R; 2]], &mut [Number])> {
    let count = n.checked_mul(size_of::<R>() / size_of::<f64>())?;
    let (part, rest) = memory.split_at_mut_checked(count)?;
    Some((bytemuck::try_cast_slice_mut(part).ok()?, rest))
}

/// Roots of unity `exp(sign * 2 pi i k / n)`.
fn fill_roots(roots: &mut [Number], sign: f64) {
    let n = roots.len() as f64;
    for (k, root) in roots.iter_mut().enumerate() {
        let (sin, cos) = (std::f64::consts::TAU * k as f64 / n).sin_cos();
        *root = [cos, sign * sin];
    }
}

impl<'m, R: Real> Transform<'m, R> {
    /// Forward (`exp(-2 pi i k / n)`) or backward, without a factor; `None` if the memory is too small.
    pub fn new(n: usize, is_forward: bool, memory: &'m mut [Number]) -> Option<Self> {
        let sign = if is_forward { -1.0 } else { 1.0 };
        if is_smooth(n) {
            let (roots, rest) = memory.split_at_mut_checked(n)?;
            let (work, _) = split(rest, n)?;
            fill_roots(roots, sign);
            return Some(Transform { n, roots, work, chirp: None });
        }
        let m = padded(n);
        let (roots, rest) = memory.split_at_mut_checked(m)?;
        let (work, rest) = split::<R>(rest, m)?;
        let (filter, rest) = rest.split_at_mut_checked(m)?;
        let (signal, rest) = split::<R>(rest, m)?;
        let (factors, _) = rest.split_at_mut_checked(n)?;
        fill_roots(roots, -1.0);
        for (k, factor) in factors.iter_mut().enumerate() {
            // The square modulo 2 n, so that large angles lose no precision.
            let square = (k as u128 * k as u128 % (2 * n as u128)) as f64;
            let (sin, cos) = (std::f64::consts::PI * square / n as f64).sin_cos();
            *factor = [cos, sign * sin];
        }
        filter.fill([0.0; 2]);
        for (k, factor) in factors.iter().enumerate() {
            let conjugate = [factor[0], -factor[1]];
            filter[k] = conjugate;
            if k > 0 {
                filter[m - k] = conjugate;
            }
        }
        // A row needs no more memory than several beside each other.
        let single: &mut [Number] = bytemuck::try_cast_slice_mut(&mut *work).ok()?;
        alone(filter, single.get_mut(..m)?, roots);
        Some(Transform { n, roots, work, chirp: Some(Chirp { factors, filter, signal }) })
    }

    /// Transforms a row of this length in place.
    #[inline(always)]
    pub fn apply(&mut self, row: &mut [[R; 2]]) {
        debug_assert_eq!(row.len(), self.n);
        let Some(Chirp { factors, filter, signal }) = &mut self.chirp else {
            return stockham(row, self.work, self.roots);
        };
        signal.fill([R::zeroed(); 2]);
        for ((slot, x), factor) in signal.iter_mut().zip(row.iter()).zip(factors.iter()) {
            *slot = times(*x, *factor);
        }
        // Backward through the forward transform of the conjugate.
        for is_back in [false, true] {
            stockham(signal, self.work, self.roots);
            if !is_back {
                for (x, f) in signal.iter_mut().zip(filter.iter()) {
                    let product = times(*x, *f);
                    *x = [product[0], product[1].times(-1.0)];
                }
            }
        }
        let scale = 1.0 / signal.len() as f64;
        for ((slot, x), factor) in row.iter_mut().zip(signal.iter()).zip(factors.iter()) {
            *slot = times([x[0].times(scale), x[1].times(-scale)], *factor);
        }
    }
}

/// [`stockham`] of a single row.
#[inline(never)]
fn alone(row: &mut [Number], work: &mut [Number], roots: &[Number]) {
    stockham(row, work, roots);
}

/// Transforms `row` in place; `work` and `roots` are as long.
#[inline(always)]
fn stockham<R: Real>(row: &mut [[R; 2]], work: &mut [[R; 2]], roots: &[Number]) {
    let n = row.len();
    let (mut from, mut to) = (row, work);
    let (mut length, mut stride, mut is_swapped) = (n, 1, false);
    while length > 1 {
        let radix = factor(length);
        let m = length / radix;
        for p in 0..m {
            let pass = Pass { n, m, stride, p };
            match radix {
                2 => pass.two(from, to, roots),
                4 => pass.four(from, to, roots),
                _ => pass.any(radix, from, to, roots),
            }
        }
        (from, to, is_swapped) = (to, from, !is_swapped);
        (length, stride) = (m, stride * radix);
    }
    if is_swapped {
        to.copy_from_slice(from);
    }
}

/// One group of butterflies: of `n` numbers, those at position `p` of `m` in blocks of `stride`.
struct Pass {
    n: usize,
    m: usize,
    stride: usize,
    p: usize,
}

impl Pass {
    #[inline(always)]
    fn twiddle(&self, j: usize, roots: &[Number]) -> Number {
        // With p < m and j below the radix this is below n.
        roots[self.p * j * self.stride]
    }

    #[inline(always)]
    fn two<R: Real>(&self, from: &[[R; 2]], to: &mut [[R; 2]], roots: &[Number]) {
        let (s, w) = (self.stride, self.twiddle(1, roots));
        for q in 0..s {
            let (a, b) = (from[q + s * self.p], from[q + s * (self.p + self.m)]);
            to[q + s * 2 * self.p] = plus(a, b);
            to[q + s * (2 * self.p + 1)] = times(minus(a, b), w);
        }
    }

    #[inline(always)]
    fn four<R: Real>(&self, from: &[[R; 2]], to: &mut [[R; 2]], roots: &[Number]) {
        let s = self.stride;
        let (w1, w2, w3) = (self.twiddle(1, roots), self.twiddle(2, roots), self.twiddle(3, roots));
        // A quarter turn in the direction of the transform.
        let turn = roots[self.n / 4][1];
        for q in 0..s {
            let at = q + s * self.p;
            let step = s * self.m;
            let (a, b, c, d) = (from[at], from[at + step], from[at + 2 * step], from[at + 3 * step]);
            let (ac, bd) = (plus(a, c), plus(b, d));
            let (ac_less, bd_less) = (minus(a, c), minus(b, d));
            let turned = [bd_less[1].times(-turn), bd_less[0].times(turn)];
            let at = q + s * 4 * self.p;
            to[at] = plus(ac, bd);
            to[at + s] = times(plus(ac_less, turned), w1);
            to[at + 2 * s] = times(minus(ac, bd), w2);
            to[at + 3 * s] = times(minus(ac_less, turned), w3);
        }
    }

    #[inline(always)]
    fn any<R: Real>(&self, radix: usize, from: &[[R; 2]], to: &mut [[R; 2]], roots: &[Number]) {
        let (s, unit) = (self.stride, self.n / radix);
        for q in 0..s {
            for j in 0..radix {
                let mut sum = [R::zeroed(); 2];
                for k in 0..radix {
                    sum = plus(sum, times(from[q + s * (self.p + k * self.m)], roots[j * k % radix * unit]));
                }
                to[q + s * (radix * self.p + j)] = times(sum, self.twiddle(j, roots));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_agrees_with_the_definition() {
        for n in (1..=130).chain([256, 360, 509, 1000, 1021]) {
            let x: Vec<Number> =
                (0..n).map(|i| [(i * 7 % 11) as f64 - 5.0, (i * 5 % 13) as f64 / 3.0]).collect();
            for is_forward in [true, false] {
                let mut table = vec![[0.0; 2]; n];
                fill_roots(&mut table, if is_forward { -1.0 } else { 1.0 });
                let mut memory = vec![[f64::NAN; 2]; super::memory(n).unwrap()];
                let mut row = x.clone();
                Transform::<f64>::new(n, is_forward, &mut memory).unwrap().apply(&mut row);
                for (k, got) in row.iter().enumerate() {
                    let want = (0..n).fold([0.0; 2], |sum, i| plus(sum, times(x[i], table[i * k % n])));
                    let error = (want[0] - got[0]).hypot(want[1] - got[1]);
                    assert!(error < 1e-11 * n as f64, "{n} {k}: {want:?} {got:?}");
                }
                assert!(super::memory(n) <= most_memory(n));
            }
        }
    }
}
