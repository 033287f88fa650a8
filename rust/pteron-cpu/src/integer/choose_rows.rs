//! Rows of floats that are quantised at run time: each with a scale and a zero point of its own, as
//! `quantized_decomposed::choose_qparams_per_token_asymmetric` and `quantize_per_token`, or torchao's `choose_qparams_affine` and
//! `quantize_affine` (asymmetric or symmetric), do it; or all with the same, as `choose_qparams.tensor` and `quantize_per_tensor.tensor` do it; bit for bit.

use super::spec::RowScheme;
use pteron_kernels::vector_math::{Simd, SimdTask};

/// Numbers that are looked at together.
const WIDTH: usize = 16;
/// A number added to it leaves the nearest integer, ties to even, in the lowest bits.
const WHOLE: f64 = 6_755_399_441_055_744.0;
/// The same for f32.
const WHOLE_F32: f32 = 12_582_912.0;
/// Quantised numbers beyond it, on either side, are cut off whatever the zero point is.
const FAR: f32 = 512.0;

/// Quantises rows of `length` numbers to unsigned bytes: int8 with the highest bit flipped.
pub(super) struct ChooseRows<'a> {
    pub rows: &'a [f32],
    pub length: usize,
    pub scheme: RowScheme,
    /// Rows `stride` bytes apart.
    pub bytes: &'a mut [u8],
    pub stride: usize,
    /// Zero points of the unsigned bytes, and scales.
    pub zeros: &'a mut [i32],
    pub scales: &'a mut [f32],
}

impl SimdTask for ChooseRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.rows.chunks_exact(self.length.max(1));
        let parameters = self.zeros.iter_mut().zip(self.scales);
        for ((row, bytes), (zero, scale)) in
            rows.zip(self.bytes.chunks_mut(self.stride.max(1))).zip(parameters)
        {
            let (chosen, zero_point) = quantised_row(self.scheme, row, bytes);
            (*scale, *zero) = (chosen, zero_point + 128);
        }
    }
}

/// Finds least and greatest of zero and the numbers; NaN where one of them is.
pub(super) struct FindRange<'a>(pub &'a [f32]);

impl SimdTask for FindRange<'_> {
    type Output = [f32; 2];
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> [f32; 2] {
        let (low, high) = range(self.0);
        [low, high]
    }
}

/// The range of all of some ranges, each of which holds zero.
pub(super) fn joined(ranges: &[[f32; 2]]) -> [f32; 2] {
    ranges.iter().fold([0.0; 2], |[low, high], [l, h]| {
        [if *l < low || l.is_nan() { *l } else { low }, if *h > high || h.is_nan() { *h } else { high }]
    })
}

/// Scale, at least `least`, and zero point of int8 numbers in this range.
pub(super) fn choose_for_all([low, high]: [f32; 2], least: f32) -> (f32, i32) {
    let spread = (high - low) / 255.0;
    let scale = if spread < least { least } else { spread };
    // An infinite range makes NaN here, which PyTorch's conversion makes the least int32.
    let steps = (low / scale).round_ties_even();
    let steps = if steps.is_nan() { i32::MIN } else { steps as i32 };
    (scale, (-128i32).wrapping_sub(steps).clamp(-128, 127))
}

/// Quantises rows of `length` numbers to unsigned bytes by one scale and zero point (of int8).
pub(super) struct QuantiseRows<'a> {
    pub rows: &'a [f32],
    pub length: usize,
    /// Rows `stride` bytes apart.
    pub bytes: &'a mut [u8],
    pub stride: usize,
    pub scale: f32,
    pub zero: i32,
}

impl SimdTask for QuantiseRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.rows.chunks_exact(self.length.max(1));
        for (row, bytes) in rows.zip(self.bytes.chunks_mut(self.stride.max(1))) {
            quantise_rounded(row, self.scale, self.zero, bytes);
        }
    }
}

/// Quantises one row to unsigned bytes; its scale, and its zero point as of int8.
#[inline(always)]
pub(super) fn quantised_row(scheme: RowScheme, row: &[f32], bytes: &mut [u8]) -> (f32, i32) {
    let ends = range(row);
    match scheme {
        RowScheme::PerToken => {
            let (scale, zero) = choose(ends);
            quantise(row, scale, zero, bytes);
            (scale, zero)
        }
        RowScheme::Symmetric { least_scale } => {
            let scale = choose_symmetric(ends, least_scale);
            quantise_rounded(row, scale, 0, bytes);
            (scale, 0)
        }
        RowScheme::PerRow { least_scale } | RowScheme::PerTensor { least_scale } => {
            let (scale, zero) = choose_rounded(ends, least_scale);
            quantise_rounded(row, scale, zero, bytes);
            (scale, zero)
        }
    }
}

/// Scale, at least `least`, and zero point of an int8 row with these ends: the zero point is a whole number from the beginning.
#[inline(always)]
fn choose_rounded((low, high): (f32, f32), least: f32) -> (f32, i32) {
    let spread = (high - low) / 255.0;
    let scale = if spread < least { least } else { spread };
    // NaN becomes zero.
    (scale, (-128.0 - (low / scale).round_ties_even()).clamp(-128.0, 127.0) as i32)
}

/// Scale, at least `least`, of an int8 row with these ends and a zero point of zero.
#[inline(always)]
fn choose_symmetric((low, high): (f32, f32), least: f32) -> f32 {
    // Both ends are NaN, or none is.
    let most = if -low > high { -low } else { high };
    let scale = most / 127.5;
    if scale < least { least } else { scale }
}

/// Numbers are rounded before the zero point is added.
#[inline(always)]
fn quantise_rounded(row: &[f32], scale: f32, zero: i32, bytes: &mut [u8]) {
    let (inverse, zero) = ((1.0 / f64::from(scale)) as f32, zero as f32);
    for (byte, x) in bytes.iter_mut().zip(row) {
        let scaled = x * inverse;
        let raised = if scaled < -FAR { -FAR } else { scaled };
        let near = if raised > FAR { FAR } else { raised };
        let moved = ((near + WHOLE_F32) - WHOLE_F32) + zero;
        let raised = if moved < -128.0 { -128.0 } else { moved };
        let limited = if raised > 127.0 { 127.0 } else { raised };
        // NaN has zeros in its lowest bits, and zero is what it becomes.
        *byte = (limited + WHOLE_F32).to_bits() as u8 ^ 0x80;
    }
}

/// Least and greatest of zero and the numbers; NaN where one of them is.
#[inline(always)]
fn range(row: &[f32]) -> (f32, f32) {
    // As wide as the numbers, so that all are vectors of the same lanes.
    let (mut low, mut high, mut odd) = ([0f32; WIDTH], [0f32; WIDTH], [0u32; WIDTH]);
    let (whole, rest) = row.as_chunks::<WIDTH>();
    for chunk in whole {
        for (((x, low), high), odd) in chunk.iter().zip(&mut low).zip(&mut high).zip(&mut odd) {
            *low = if *x < *low { *x } else { *low };
            *high = if *x > *high { *x } else { *high };
            *odd |= u32::from(x.is_nan());
        }
    }
    let is_odd = odd.iter().any(|odd| *odd != 0) || rest.iter().any(|x| x.is_nan());
    let low = low.iter().chain(rest).fold(0f32, |a, x| if *x < a { *x } else { a });
    let high = high.iter().chain(rest).fold(0f32, |a, x| if *x > a { *x } else { a });
    if is_odd { (f32::NAN, f32::NAN) } else { (low, high) }
}

/// Scale and zero point of an int8 row with these ends.
#[inline(always)]
fn choose((low, high): (f32, f32)) -> (f32, i32) {
    let scale = (high - low) / 255.0;
    let scale = if scale < f32::EPSILON { f32::EPSILON } else { scale };
    let (low, high) = (low / scale, high / scale);
    let zero = if (low - 128.0) + (high + 127.0) > 0.0 { -128.0 - low } else { 127.0 - high };
    // NaN becomes zero.
    (scale, zero.clamp(-128.0, 127.0).round_ties_even() as i32)
}

#[inline(always)]
fn quantise(row: &[f32], scale: f32, zero: i32, bytes: &mut [u8]) {
    let (inverse, zero) = (1.0 / f64::from(scale), f64::from(zero));
    for (byte, x) in bytes.iter_mut().zip(row) {
        let moved = f64::from(*x) * inverse + zero;
        let raised = if moved < -128.0 { -128.0 } else { moved };
        let limited = if raised > 127.0 { 127.0 } else { raised };
        // NaN has zeros in its lowest bits, and zero is what it becomes.
        *byte = (limited + WHOLE).to_bits() as u8 ^ 0x80;
    }
}
