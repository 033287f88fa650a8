//! What is added to a result: floats to floats, or a quantised tensor to a quantised one, the sum quantised again. That is what a
//! residual connection is.

use super::dots::Narrowing;
use pteron_core::DType;

/// What is added to a result, a tensor that lies like it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Summand {
    /// f32, to a result in f32 that was limited before.
    Floats,
    /// Bytes, to a quantised result.
    Quantised(IntegerSum),
}

/// A quantised tensor of the result's dtype and shape that is added to a quantised result. Both are dequantised, added, the sum is
/// limited and quantised again; every step in f32, as the separate calls do it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntegerSum {
    /// What the integers of the result before the sum are dequantised with, by the zero point that they were quantised with.
    pub own_scale: f32,
    /// Of the summand's integers, which stand for `(q - zero_point) * scale`.
    pub scale: f32,
    /// In the range of the dtype.
    pub zero_point: i32,
    /// Limits of the sum in real numbers.
    pub clamp: Option<(f32, f32)>,
    /// One over the scale of the sum's integers.
    pub inverse: f32,
    /// The zero point of the sum's integers.
    pub sum_zero_point: i32,
    /// The least integer that is written.
    pub low: i32,
    /// The largest.
    pub high: i32,
}

/// What a sum is computed with.
#[derive(Debug, Clone, Copy)]
pub(super) struct SumNumbers {
    pub own_scale: f32,
    /// The bits that make signed bytes of the summand's, what is added to those, and their scale.
    pub flip: u8,
    pub shift: i32,
    pub scale: f32,
    pub inverse: f32,
    /// Limits of the sum's integers before their zero point is added.
    pub low: f32,
    pub high: f32,
    pub narrowing: Narrowing,
}

impl SumNumbers {
    /// The numbers for tensors of `dtype`, whose range is `ends`; `None` where they are no numbers, or a sum could leave i32.
    pub(super) fn of(sum: &IntegerSum, dtype: DType, ends: [i32; 2]) -> Option<SumNumbers> {
        let IntegerSum { own_scale, scale, zero_point, inverse, sum_zero_point, low, high, .. } = *sum;
        let clamp = sum.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        let is_inside = |v: &i32| (ends[0]..=ends[1]).contains(v);
        let are_numbers = [own_scale, scale, inverse].iter().all(|v| *v > 0.0 && v.is_finite());
        // A byte is at most 255 away from a zero point.
        let most = 256.0 * (f64::from(own_scale) + f64::from(scale)) * f64::from(inverse);
        let is_sound = [zero_point, sum_zero_point, low, high].iter().all(is_inside)
            && low <= high
            && clamp.0 <= clamp.1
            && are_numbers
            && (256.0 * own_scale).is_finite()
            && (256.0 * scale).is_finite()
            && (256.0 * own_scale + 256.0 * scale).is_finite()
            && most < f64::from(1 << 30);
        if !is_sound {
            return None;
        }
        // Rounding keeps the order of numbers, so the limits can be rounded instead.
        let range = [(low - sum_zero_point) as f32, (high - sum_zero_point) as f32];
        let limit = |v: f32| (v * inverse).round_ties_even().max(range[0]).min(range[1]);
        let limits = [limit(clamp.0), limit(clamp.1)];
        let is_unsigned = dtype == DType::UInt8;
        let (flip, middle) = if is_unsigned { (0x80, 128) } else { (0, 0) };
        Some(SumNumbers {
            own_scale,
            flip,
            shift: middle - zero_point,
            scale,
            inverse,
            low: limits[0],
            high: limits[1],
            narrowing: Narrowing::new(sum_zero_point, is_unsigned, limits),
        })
    }
}
