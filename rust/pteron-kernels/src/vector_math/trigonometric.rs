//! Sine, cosine and tangent, for arguments of every size (`quarter_turns.rs`). Polynomials are fitted on [-π/4, π/4] to a
//! relative error below 2e-8 of f32's unit.

use super::exp::polynomial;
use super::quarter_turns::reduce;
use super::simd::Simd;

/// sin(r) / r³ - 1 / r², in r².
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_332, -1.984_008_4e-4, 2.724_962e-6];
/// (cos(r) - 1 + r²/2) / r⁴, in r².
const COS: [f32; 3] = [0.041_666_664, -0.001_388_830_1, 2.454_769e-5];
/// tan(r) / r³ - 1 / r², in r².
const TAN: [f32; 7] = [
    0.333_333_34,
    0.133_332_3,
    0.053_994_626,
    0.021_619_873,
    0.009_966_545,
    0.001_178_299_9,
    0.003_847_304_3,
];

/// Changes the sign of `v` where bit `BIT` of `quarter` is set.
#[inline(always)]
fn negate_if<S: Simd>(s: S, v: S::F, quarter: S::I, bit: i32) -> S::F {
    let is_set = s.eq(s.to_float(s.and_i(quarter, s.splat_i(bit))), s.zero());
    s.select(is_set, v, s.neg(v))
}

/// Does n leave the axes where they are?
#[inline(always)]
fn is_even<S: Simd>(s: S, quarter: S::I) -> S::M {
    s.eq(s.to_float(s.and_i(quarter, s.splat_i(1))), s.zero())
}

/// sin(r + quarter · π/2).
#[inline(always)]
fn sine<S: Simd>(s: S, quarter: S::I, r: S::F) -> S::F {
    let z = s.mul(r, r);
    let sin = s.fma(s.mul(r, z), polynomial(s, z, SIN), r);
    let cos = s.fma(s.mul(z, z), polynomial(s, z, COS), s.fnma(s.splat(0.5), z, s.splat(1.0)));
    negate_if(s, s.select(is_even(s, quarter), sin, cos), quarter, 2)
}

/// sin x. At most 1.6 ULP; NaN for infinities, -0 stays -0.
#[inline(always)]
pub fn sin<S: Simd>(s: S, x: S::F) -> S::F {
    let (quarter, r, _) = reduce(s, x);
    s.select(s.eq(x, s.zero()), x, sine(s, quarter, r))
}

/// cos x. At most 1.6 ULP; NaN for infinities.
#[inline(always)]
pub fn cos<S: Simd>(s: S, x: S::F) -> S::F {
    let (quarter, r, _) = reduce(s, x);
    sine(s, s.add_i(quarter, s.splat_i(1)), r)
}

/// tan x. At most 1.6 ULP; NaN for infinities, -0 stays -0.
#[inline(always)]
pub fn tan<S: Simd>(s: S, x: S::F) -> S::F {
    let (quarter, r, low) = reduce(s, x);
    let z = s.mul(r, r);
    let cubic = s.mul(s.mul(r, z), polynomial(s, z, TAN));
    // The derivative is 1 + tan²; to what r lacks, 1 + r² is near enough.
    let t = s.add(r, s.add(cubic, s.fma(low, z, low)));
    let is_even = is_even(s, quarter);
    let one = s.splat(1.0);
    let y = s.div(s.select(is_even, t, s.neg(one)), s.select(is_even, one, t));
    s.select(s.eq(x, s.zero()), x, y)
}
