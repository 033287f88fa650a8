//! Arc sine, cosine and tangent. Polynomials are fitted to a relative error below a twentieth of f32's unit on the
//! interval that the arguments are brought to: [0, ½] for the sine, [-tan π/8, tan π/8] for the tangent.

use super::exp::polynomial;
use super::simd::Simd;
use super::tanh::with_sign_of;

/// asin(w) / w³ - 1 / w², in w².
const ASIN: [f32; 6] =
    [0.166_666_66, 0.075_000_94, 0.044_599_403, 0.031_100_662, 0.017_149_238, 0.033_690_847];
/// atan(q) / q³ - 1 / q², in q².
const ATAN: [f32; 5] = [-0.333_333_3, 0.199_995_38, -0.142_638_97, 0.107_430_995, -0.064_498_35];

const TAN_PI_8: f32 = 0.414_213_57;
const TAN_3PI_8: f32 = 2.414_213_7;
/// f32 numbers nearest to π, π/2, π/4, and what they lack.
const PI: [f32; 2] = [std::f32::consts::PI, -8.742_278e-8];
const PI_2: [f32; 2] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8];
const PI_4: [f32; 2] = [std::f32::consts::FRAC_PI_4, -2.185_569_4e-8];

/// `angle - v`.
#[inline(always)]
fn less<S: Simd>(s: S, angle: [f32; 2], v: S::F) -> S::F {
    s.sub(s.splat(angle[0]), s.sub(v, s.splat(angle[1])))
}

/// (|x| > ½, asin of |x| or, above ½, of √((1 - |x|) / 2)).
#[inline(always)]
fn arc<S: Simd>(s: S, x: S::F) -> (S::M, S::F) {
    let a = s.abs(x);
    let half = s.splat(0.5);
    let is_large = s.gt(a, half);
    // 1 - a is exact there.
    let z = s.select(is_large, s.mul(s.sub(s.splat(1.0), a), half), s.mul(a, a));
    let w = s.select(is_large, s.sqrt(z), a);
    (is_large, s.fma(s.mul(w, z), polynomial(s, z, ASIN), w))
}

/// arcsin x. At most 2.4 ULP; NaN outside [-1, 1], -0 stays -0.
#[inline(always)]
pub fn asin<S: Simd>(s: S, x: S::F) -> S::F {
    let (is_large, p) = arc(s, x);
    with_sign_of(s, s.select(is_large, less(s, PI_2, s.add(p, p)), p), x)
}

/// arccos x. At most 2 ULP; NaN outside [-1, 1].
#[inline(always)]
pub fn acos<S: Simd>(s: S, x: S::F) -> S::F {
    let (is_large, p) = arc(s, x);
    let twice = s.add(p, p);
    let large = s.select(s.lt(x, s.zero()), less(s, PI, twice), twice);
    s.select(is_large, large, less(s, PI_2, with_sign_of(s, p, x)))
}

/// arctan of `q` in [-tan π/8, tan π/8].
#[inline(always)]
fn small<S: Simd>(s: S, q: S::F) -> S::F {
    let z = s.mul(q, q);
    s.fma(s.mul(q, z), polynomial(s, z, ATAN), q)
}

/// The first value where the first condition holds, else the second where the second does, else the third.
#[inline(always)]
fn by_range<S: Simd>(s: S, [first, second]: [S::M; 2], [a, b, c]: [S::F; 3]) -> S::F {
    s.select(first, a, s.select(second, b, c))
}

/// arctan x. At most 2.1 ULP; ±π/2 at infinity, -0 stays -0.
#[inline(always)]
pub fn atan<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let one = s.splat(1.0);
    let (is_middle, is_large) = (s.gt(a, s.splat(TAN_PI_8)), s.gt(a, s.splat(TAN_3PI_8)));
    let range = [is_large, is_middle];
    let numerator = by_range(s, range, [s.neg(one), s.sub(a, one), a]);
    let q = s.div(numerator, by_range(s, range, [a, s.add(a, one), one]));
    let high = by_range(s, range, [s.splat(PI_2[0]), s.splat(PI_4[0]), s.zero()]);
    let low = by_range(s, range, [s.splat(PI_2[1]), s.splat(PI_4[1]), s.zero()]);
    with_sign_of(s, s.add(high, s.add(small(s, q), low)), x)
}

/// The angle of the point (x, y), in [-π, π]. At most 3 ULP; zeros count by their sign, as do infinities, and NaN
/// stays NaN.
#[inline(always)]
pub fn atan2<S: Simd>(s: S, y: S::F, x: S::F) -> S::F {
    let (one, zero, infinity) = (s.splat(1.0), s.zero(), s.splat(f32::INFINITY));
    let (ax, ay) = (s.abs(x), s.abs(y));
    let is_steep = s.gt(ay, ax);
    let (shorter, longer) = (s.select(is_steep, ax, ay), s.select(is_steep, ay, ax));
    // So that their sum is finite.
    let scale = s.select(s.gt(longer, s.splat(1e38)), s.splat(0.0625), one);
    let (shorter, longer) = (s.mul(shorter, scale), s.mul(longer, scale));
    let is_diagonal = s.gt(shorter, s.mul(longer, s.splat(TAN_PI_8)));
    let both_infinite = s.eq(shorter, infinity);
    let numerator = s.select(is_diagonal, s.sub(shorter, longer), shorter);
    let numerator = s.select(both_infinite, zero, numerator);
    let denominator = s.select(is_diagonal, s.add(shorter, longer), longer);
    let denominator = s.select(s.eq(denominator, zero), one, denominator);
    let p = small(s, s.div(numerator, denominator));
    let is_diagonal = s.or(is_diagonal, both_infinite);
    let angle = s.select(is_diagonal, s.add(s.splat(PI_4[0]), s.add(p, s.splat(PI_4[1]))), p);
    let angle = s.select(is_steep, less(s, PI_2, angle), angle);
    let is_left = s.lt(with_sign_of(s, one, x), zero);
    let angle = s.select(is_left, less(s, PI, angle), angle);
    // A NaN may have been lost in a comparison.
    let is_number = s.eq(x, x);
    with_sign_of(s, s.select(is_number, s.select(s.eq(y, y), angle, y), x), y)
}
