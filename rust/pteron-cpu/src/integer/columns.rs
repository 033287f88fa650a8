//! What makes real numbers, or integers of the output's scheme, of the sums of a column.
//!
//! With input scale sx, weight scales sw and output scale so, all in f32 and each step rounded:
//! - f32 output: `sum * (sx * sw[c]) + bias[c]`, limited by the clamp;
//! - quantised output: `sum * ((sx * sw[c]) / so) + bias[c] / so`, limited, rounded to the nearest integer (ties to even),
//!   zero point added. If each bias is a whole multiple of sx · sw\[c\], to the bit, the multiples are added to the sums
//!   instead, as XNNPACK does with its int32 biases;
//! - rows with scales of their own, s\[r\]: `sum * (s[r] * sw[c]) + bias[c]`, limited.

use super::dots::Narrowing;
use super::finish::Ending;
use super::spec::{IntegerInput, IntegerOutput, IntegerSpec};
use super::sum::{SumNumbers, Summand};
use crate::packed::s8_nr32k4_v1::NR;
use pteron_core::{AlignedBuffer, ArgSpec, DType, PrepareContext, Result};
use std::ops::Range;

/// Products of an output element at most, so that no sum of them leaves i32.
const MOST_PRODUCTS: usize = 1 << 16;
/// The largest product of an unsigned and a signed byte.
const LARGEST_PRODUCT: i64 = 255 * 128;

/// The least and the greatest number of an 8-bit type.
fn range(dtype: DType) -> Option<[i32; 2]> {
    match dtype {
        DType::Int8 => Some([-128, 127]),
        DType::UInt8 => Some([0, 255]),
        _ => None,
    }
}

/// What is known of the numbers of a call.
pub(super) struct Numbers {
    /// The bits that make unsigned bytes of the input's, and the zero point of those.
    pub flip: u8,
    pub zero: i32,
    input_scale: f32,
    output_scale: Option<f32>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    /// The biases in units of the sums, where that is what they are.
    multiples: Option<Vec<i32>>,
    /// Are scale and zero point of rows found at run time?
    pub has_rows: bool,
    /// Limits of results in units of the output, without its zero point.
    pub low: f32,
    pub high: f32,
    /// Are all results numbers of i32 before they are limited?
    pub is_bounded: bool,
    /// How results become bytes, of a quantised output.
    pub narrowing: Option<Narrowing>,
    /// How bytes are added to the results then.
    pub sum: Option<SumNumbers>,
    /// Are floats added to results in f32?
    pub adds_floats: bool,
}

/// What each of some columns is computed with, each kind from a cache line on; zeros for columns that do not exist.
pub(super) struct Columns {
    /// Numbers to add to the sums, factors, numbers to add then: `count` of each.
    memory: AlignedBuffer,
    count: usize,
}

impl Columns {
    /// Room for `count` columns, a multiple of 16.
    pub(super) fn new(count: usize) -> Result<Columns> {
        Ok(Columns { memory: AlignedBuffer::zeroed(count.saturating_mul(3 * size_of::<i32>()))?, count })
    }

    /// Sets column `i`, below the count.
    pub(super) fn set(&mut self, i: usize, (start, factor, bias): (i32, f32, f32)) {
        let words = self.memory.as_mut_elements::<u32>();
        let places = [i, self.count + i, 2 * self.count + i];
        for (place, bits) in places.into_iter().zip([start as u32, factor.to_bits(), bias.to_bits()]) {
            words[place] = bits;
        }
    }

    /// What is added to the sums of the columns from `column` on.
    pub(super) fn start(&self, column: usize) -> *const i32 {
        self.memory.as_ptr().cast::<i32>().wrapping_add(column).cast_const()
    }

    /// What they are multiplied with.
    pub(super) fn factor(&self, column: usize) -> *const f32 {
        self.start(self.count + column).cast()
    }

    /// What is added then.
    pub(super) fn bias(&self, column: usize) -> *const f32 {
        self.start(2 * self.count + column).cast()
    }
}

/// The f32 constant at `position`.
fn constant(ctx: &PrepareContext<'_>, position: usize) -> Result<Option<Vec<f32>>> {
    match ctx.args.get(position).and_then(ArgSpec::constant) {
        Some(view) if view.dtype == DType::Float32 => view.to_vec().map(Some),
        _ => Ok(None),
    }
}

fn is_scale(v: f32) -> bool {
    v > 0.0 && v.is_finite()
}

impl Numbers {
    /// The numbers of `spec` for `channels` output channels of `k` products each; `None` where no kernel takes them.
    pub(super) fn of(
        ctx: &PrepareContext<'_>,
        spec: &IntegerSpec,
        channels: usize,
        k: usize,
    ) -> Result<Option<Numbers>> {
        let (Some(input), Some(output)) = (ctx.tensor(0), ctx.tensor(spec.out())) else {
            return Ok(None);
        };
        let Some(mut scales) = constant(ctx, 2)? else {
            return Ok(None);
        };
        let biases = match spec.has_bias {
            true => constant(ctx, 3)?,
            false => Some(vec![0.0; channels]),
        };
        let Some(biases) = biases.filter(|b| b.len() == channels) else {
            return Ok(None);
        };
        if let [one] = *scales.as_slice() {
            scales = vec![one; channels];
        }
        let are_numbers = scales.iter().chain(&biases).all(|v| v.is_finite());
        if scales.len() != channels || k > MOST_PRODUCTS || !are_numbers {
            return Ok(None);
        }
        let Some((flip, zero, input_scale)) = input_numbers(&spec.input, input.dtype) else {
            return Ok(None);
        };
        let Some((output_scale, out_zero, [low, high])) = output_numbers(spec, output.dtype) else {
            return Ok(None);
        };
        let is_unsigned = output.dtype == DType::UInt8;
        let narrowing = out_zero.map(|zero| Narrowing::new(zero, is_unsigned, [low, high]));
        let Ok(sum) = sum_numbers(ctx, spec, narrowing.is_some()) else {
            return Ok(None);
        };
        let has_rows = matches!(spec.input, IntegerInput::Rows { .. });
        if has_rows && output_scale.is_some() {
            return Ok(None);
        }
        let mut numbers = Numbers {
            flip,
            zero,
            input_scale,
            output_scale,
            scales,
            biases,
            multiples: None,
            has_rows,
            low,
            high,
            is_bounded: false,
            narrowing,
            sum,
            adds_floats: spec.sum == Some(Summand::Floats),
        };
        if output_scale.is_some() {
            let most = i64::from(i32::MAX) - LARGEST_PRODUCT * k as i64;
            numbers.multiples = (0..channels).map(|c| numbers.multiple(c, most)).collect();
        }
        let is_sound = (0..channels).all(|c| {
            let (_, factor, bias) = numbers.column(c, 0, 0);
            factor.is_finite() && bias.is_finite()
        });
        numbers.is_bounded = (0..channels).all(|c| numbers.is_in_i32(c, k));
        Ok(is_sound.then_some(numbers))
    }

    /// Are all results of a column of `k` products numbers of i32, with room to spare for rounding?
    fn is_in_i32(&self, c: usize, k: usize) -> bool {
        let (_, factor, bias) = self.column(c, 0, 0);
        let multiple = self.multiples.as_ref().map_or(0, |m| i64::from(m[c].unsigned_abs()));
        // The zero point takes at most what the products give.
        let most = (2 * LARGEST_PRODUCT * k as i64 + multiple) as f64;
        most * f64::from(factor) + f64::from(bias.abs()) < f64::from(1 << 30)
    }

    /// The bias of a column as a whole multiple of its factor, at most `most` of them.
    fn multiple(&self, c: usize, most: i64) -> Option<i32> {
        let (unit, bias) = (self.input_scale * self.scales[c], self.biases[c]);
        if bias == 0.0 {
            return Some(0);
        }
        let times = (bias / unit).round_ties_even();
        let is_exact = times.abs() < most as f32 && times * unit == bias;
        is_exact.then_some(times as i32)
    }

    /// What is added to the sum of a column whose weights have the sum `sum`, what that is multiplied with, what is added
    /// then. With rows of their own, the first is for a zero point of one. `shift`: what is taken from activations before they
    /// are multiplied ([`super::kit::Kit::shift`]).
    pub(super) fn column(&self, c: usize, sum: i32, shift: i32) -> (i32, f32, f32) {
        let (scale, bias) = (self.scales[c], self.biases[c]);
        if self.has_rows {
            return (sum.wrapping_neg(), scale, bias);
        }
        let start = (self.zero - shift).wrapping_mul(sum).wrapping_neg();
        let factor = self.input_scale * scale;
        match (self.output_scale, &self.multiples) {
            (Some(out), Some(multiples)) => (start.wrapping_add(multiples[c]), factor / out, 0.0),
            (Some(out), None) => (start, factor / out, bias / out),
            (None, _) => (start, factor, bias),
        }
    }

    /// The columns of whole panels that hold `channels`; `sum` knows the sum of a column's weights.
    pub(super) fn columns(
        &self,
        channels: Range<usize>,
        shift: i32,
        sum: impl Fn(usize) -> i32,
    ) -> Result<Columns> {
        let mut columns = Columns::new(channels.len().next_multiple_of(NR))?;
        for (i, c) in channels.enumerate() {
            columns.set(i, self.column(c, sum(i), shift));
        }
        Ok(columns)
    }

    /// What is written, where rows have no scales of their own.
    pub(super) fn ending(&self) -> Ending {
        let narrowing = self.sum.map(|sum| sum.narrowing).or(self.narrowing);
        narrowing.map_or(Ending::Floats, Ending::Bytes)
    }

    /// Bytes of an output element.
    pub(super) fn out_bytes(&self) -> usize {
        if self.narrowing.is_some() { 1 } else { size_of::<f32>() }
    }
}

impl Narrowing {
    /// With the zero point and the limits before it is added, which lie in the range of the output's type.
    pub(super) fn new(zero: i32, is_unsigned: bool, [low, high]: [f32; 2]) -> Narrowing {
        let zero = if is_unsigned { zero - 128 } else { zero };
        let byte = |limit: f32| (limit as i32 + zero) as i8;
        let flip = if is_unsigned { 0x80 } else { 0 };
        Narrowing { zero: zero as i16, low: byte(low), high: byte(high), flip }
    }
}

/// What a sum of bytes is computed with, where there is one. An error where no kernel takes it: the summand lies otherwise than the output
/// or has another dtype, or the numbers are not sound.
fn sum_numbers(
    ctx: &PrepareContext<'_>,
    spec: &IntegerSpec,
    is_quantised: bool,
) -> std::result::Result<Option<SumNumbers>, ()> {
    let (Some(sum), Some(summand)) = (&spec.sum, spec.summand()) else { return Ok(None) };
    let (Some(summand), Some(output)) = (ctx.tensor(summand), ctx.tensor(spec.out())) else { return Err(()) };
    let is_alike = summand.dtype == output.dtype
        && summand.shape.len() == output.shape.len()
        && summand.dim_order == output.dim_order;
    let numbers = match sum {
        Summand::Floats => (!is_quantised).then_some(None),
        Summand::Quantised(sum) => {
            let ends = range(output.dtype).filter(|_| is_quantised);
            ends.and_then(|ends| SumNumbers::of(sum, output.dtype, ends)).map(Some)
        }
    };
    numbers.filter(|_| is_alike).ok_or(())
}

/// Bits to flip, zero point of unsigned bytes, scale.
fn input_numbers(input: &IntegerInput, dtype: DType) -> Option<(u8, i32, f32)> {
    match *input {
        IntegerInput::PerTensor { scale, zero_point } => {
            let [least, greatest] = range(dtype)?;
            let fits = is_scale(scale) && (least..=greatest).contains(&zero_point);
            let flip = if dtype == DType::Int8 { 0x80 } else { 0 };
            fits.then_some((flip, zero_point - least, scale))
        }
        IntegerInput::Rows { .. } => (dtype == DType::Float32).then_some((0, 0, 1.0)),
    }
}

/// Scale and zero point of a quantised output, limits.
fn output_numbers(spec: &IntegerSpec, dtype: DType) -> Option<(Option<f32>, Option<i32>, [f32; 2])> {
    let clamp = spec.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    if clamp.0.is_nan() || clamp.1.is_nan() || clamp.0 > clamp.1 {
        return None;
    }
    match spec.output {
        IntegerOutput::Float => (dtype == DType::Float32).then_some((None, None, [clamp.0, clamp.1])),
        IntegerOutput::Quantised { scale, zero_point, low, high } => {
            let [least, greatest] = range(dtype)?;
            let is_inside = |v: &i32| (least..=greatest).contains(v);
            if !(is_scale(scale) && [low, high, zero_point].iter().all(is_inside) && low <= high) {
                return None;
            }
            let ends = [(low - zero_point) as f32, (high - zero_point) as f32];
            let limit = |v: f32| (v / scale).round_ties_even().max(ends[0]).min(ends[1]);
            Some((Some(scale), Some(zero_point), [limit(clamp.0), limit(clamp.1)]))
        }
    }
}
