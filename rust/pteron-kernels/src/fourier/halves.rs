//! The spectrum of real numbers from that of half as many complex ones, and back.
//!
//! With `z[j] = x[2 j] + i x[2 j + 1]`, of `h` numbers, `Z` its spectrum and `w = exp(-2 pi i / (2 h))`:
//! `X[k] = E + w^k O` and `X[h - k] = conj(E - w^k O)`, where `E = (Z[k] + conj Z[h - k]) / 2` is the spectrum of even
//! numbers, `O = (Z[k] - conj Z[h - k]) / 2 i` that of odd ones. Backward, without a factor: `Z[k] = E + i O` with
//! `E = X[k] + conj X[h - k]` and `O = (X[k] - conj X[h - k]) conj w^k`.

use crate::vector_math::Simd;

/// Numbers of one row or of a vector of rows; rounded after each operation, so that both give the same numbers.
pub trait Lane: Copy {
    /// A number of every row.
    type Value: Copy;
    /// `a + b`.
    fn add(self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// `a - b`.
    fn sub(self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// `a b`.
    fn mul(self, a: Self::Value, b: f32) -> Self::Value;
}

/// Vectors.
#[derive(Clone, Copy)]
pub struct Vectors<S>(pub S);

impl<S: Simd> Lane for Vectors<S> {
    type Value = S::F;
    #[inline(always)]
    fn add(self, a: S::F, b: S::F) -> S::F {
        self.0.add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: S::F, b: S::F) -> S::F {
        self.0.sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: S::F, b: f32) -> S::F {
        self.0.mul(a, self.0.splat(b))
    }
}

/// Single numbers.
#[derive(Clone, Copy)]
pub struct Single;

impl Lane for Single {
    type Value = f32;
    #[inline(always)]
    fn add(self, a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn sub(self, a: f32, b: f32) -> f32 {
        a - b
    }
    #[inline(always)]
    fn mul(self, a: f32, b: f32) -> f32 {
        a * b
    }
}

/// `X[k]` and `X[h - k]` from `Z[k]`, `Z[h - k]` and `w^k`.
#[inline(always)]
pub fn spectrum<L: Lane>(
    l: L,
    z: (L::Value, L::Value),
    mirror: (L::Value, L::Value),
    (cos, sin): (f32, f32),
) -> [(L::Value, L::Value); 2] {
    let half = |v| l.mul(v, 0.5);
    let even = (half(l.add(z.0, mirror.0)), half(l.sub(z.1, mirror.1)));
    let odd = (half(l.add(z.1, mirror.1)), half(l.sub(mirror.0, z.0)));
    let turned = (l.sub(l.mul(odd.0, cos), l.mul(odd.1, sin)), l.add(l.mul(odd.0, sin), l.mul(odd.1, cos)));
    [(l.add(even.0, turned.0), l.add(even.1, turned.1)), (l.sub(even.0, turned.0), l.sub(turned.1, even.1))]
}

/// `Z[k]` from `X[k]`, `X[h - k]` and `w^k`.
#[inline(always)]
pub fn signal<L: Lane>(
    l: L,
    x: (L::Value, L::Value),
    mirror: (L::Value, L::Value),
    (cos, sin): (f32, f32),
) -> (L::Value, L::Value) {
    let even = (l.add(x.0, mirror.0), l.sub(x.1, mirror.1));
    let less = (l.sub(x.0, mirror.0), l.add(x.1, mirror.1));
    let odd = (l.add(l.mul(less.0, cos), l.mul(less.1, sin)), l.sub(l.mul(less.1, cos), l.mul(less.0, sin)));
    (l.sub(even.0, odd.1), l.add(even.1, odd.0))
}
