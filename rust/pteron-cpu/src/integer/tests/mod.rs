//! Every kit against plain sums in i64.

mod convolutions;
mod products;
mod rows;

use super::*;
use pteron_core::{CpuProfile, DType, DimOrder};
use pteron_kernels::single_call::{HostTensor, SingleCall, profile};

/// Names of the kits of this processor, and a profile that allows each.
fn kits() -> Vec<(&'static str, CpuProfile)> {
    Kit::available().filter_map(|(isa, kit)| Some((kit.name, profile(isa)?))).collect()
}

/// Bytes that hold every number, the ends often.
fn bytes(n: usize, seed: u32) -> Vec<i8> {
    let mix = |i: usize| (i as u32 ^ seed.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b9) >> 16;
    let byte = |v: u32| match v % 7 {
        0 => -128,
        1 => 127,
        _ => (v >> 4) as i8,
    };
    (0..n).map(|i| byte(mix(i))).collect()
}

/// The numbers of a case.
#[derive(Debug, Clone)]
struct Scheme {
    is_unsigned: [bool; 2],
    scale: f32,
    zero: i32,
    weight_scales: Vec<f32>,
    bias: Option<Vec<f32>>,
    clamp: Option<(f32, f32)>,
    output: IntegerOutput,
    sum: Option<Summand>,
}

/// What a sum becomes: floats as they are, bytes as their numbers.
fn finish(scheme: &Scheme, c: usize, sum: i64) -> f32 {
    let unit = scheme.scale * scheme.weight_scales[c % scheme.weight_scales.len()];
    let biases = scheme.bias.clone().unwrap_or_default();
    let bias = biases.get(c).copied().unwrap_or(0.0);
    let (low, high) = scheme.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    match scheme.output {
        IntegerOutput::Float => (sum as f32 * unit + bias).max(low).min(high),
        IntegerOutput::Quantised { scale, zero_point, low: least, high: most } => {
            let multiple = |(c, b): (usize, &f32)| {
                let unit = scheme.scale * scheme.weight_scales[c % scheme.weight_scales.len()];
                let times = (b / unit).round_ties_even();
                (times * unit == *b).then_some(times as i64)
            };
            let multiples: Option<Vec<i64>> = biases.iter().enumerate().map(multiple).collect();
            let real = match multiples {
                Some(m) => (sum + m.get(c).copied().unwrap_or(0)) as f32 * (unit / scale),
                None => sum as f32 * (unit / scale) + bias / scale,
            };
            let whole =
                real.max(low / scale).min(high / scale).round_ties_even() as f64 + f64::from(zero_point);
            whole.clamp(f64::from(least), f64::from(most)) as f32
        }
    }
}

/// What a result becomes with a byte of the summand.
fn add(scheme: &Scheme, result: f32, summand: i8) -> f32 {
    let sum = match scheme.sum {
        None => return result,
        Some(Summand::Floats) => return result + f32::from(summand) * 0.37,
        Some(Summand::Quantised(sum)) => sum,
    };
    let IntegerOutput::Quantised { zero_point, .. } = scheme.output else { return result };
    let own = (result - zero_point as f32) * sum.own_scale;
    let other = (value(summand, scheme.is_unsigned[1]) - i64::from(sum.zero_point)) as f32 * sum.scale;
    let (low, high) = sum.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    let whole =
        ((own + other).max(low).min(high) * sum.inverse).round_ties_even() + sum.sum_zero_point as f32;
    whole.max(sum.low as f32).min(sum.high as f32)
}

/// A summand that lies like the output.
fn summand_tensor(scheme: &Scheme, shape: &[usize], order: DimOrder, bytes: &[i8]) -> HostTensor {
    if scheme.sum != Some(Summand::Floats) {
        return byte_tensor(shape, order, bytes, scheme.is_unsigned[1]);
    }
    let floats: Vec<f32> = bytes.iter().map(|b| f32::from(*b) * 0.37).collect();
    HostTensor::in_order(shape, order, &floats).unwrap()
}

/// A tensor of bytes that stand for int8 or uint8.
fn byte_tensor(shape: &[usize], order: DimOrder, bytes: &[i8], is_unsigned: bool) -> HostTensor {
    match is_unsigned {
        true => HostTensor::in_order(shape, order, bytemuck::cast_slice::<i8, u8>(bytes)).unwrap(),
        false => HostTensor::in_order(shape, order, bytes).unwrap(),
    }
}

fn out_type(scheme: &Scheme) -> DType {
    match (scheme.output, scheme.is_unsigned[1]) {
        (IntegerOutput::Float, _) => DType::Float32,
        (_, true) => DType::UInt8,
        _ => DType::Int8,
    }
}

/// The numbers of the output at `position`.
fn results(call: &SingleCall, position: usize, scheme: &Scheme) -> Vec<f32> {
    match out_type(scheme) {
        DType::Float32 => call.output::<f32>(position).unwrap().to_vec(),
        DType::UInt8 => call.output::<u8>(position).unwrap().iter().map(|v| f32::from(*v)).collect(),
        _ => call.output::<i8>(position).unwrap().iter().map(|v| f32::from(*v)).collect(),
    }
}

fn value(byte: i8, is_unsigned: bool) -> i64 {
    if is_unsigned { i64::from(byte as u8) } else { i64::from(byte) }
}

fn spec(operation: IntegerOperation, scheme: &Scheme) -> IntegerSpec {
    IntegerSpec {
        operation,
        input: IntegerInput::PerTensor { scale: scheme.scale, zero_point: scheme.zero },
        has_bias: scheme.bias.is_some(),
        clamp: scheme.clamp,
        output: scheme.output,
        sum: scheme.sum,
    }
}

/// Schemes that use what there is, for `channels` output channels of `depth` products.
fn schemes(channels: usize, depth: usize) -> Vec<Scheme> {
    let per_channel: Vec<f32> = (0..channels).map(|c| 0.003 + 0.0001 * (c % 13) as f32).collect();
    let spread = 0.02 * (depth as f32).sqrt();
    let bias: Vec<f32> = (0..channels).map(|c| (c as f32 * 0.7).sin() * spread * 20.0).collect();
    let whole: Vec<f32> = per_channel.iter().map(|s| 0.02 * s * 37.0).collect();
    let scaled = |scale, zero_point, low, high| IntegerOutput::Quantised { scale, zero_point, low, high };
    let quantised = |zero_point, low, high| scaled(spread, zero_point, low, high);
    let plain = Scheme {
        is_unsigned: [false; 2],
        scale: 0.02,
        zero: 3,
        weight_scales: per_channel,
        bias: Some(bias.clone()),
        clamp: None,
        output: quantised(-5, -128, 127),
        sum: None,
    };
    let sum = IntegerSum {
        own_scale: spread,
        scale: spread * 0.7,
        zero_point: 9,
        clamp: None,
        inverse: 0.6 / spread,
        sum_zero_point: -11,
        low: -128,
        high: 127,
    };
    vec![
        Scheme { is_unsigned: [true, false], zero: 131, ..plain.clone() },
        Scheme { is_unsigned: [false, true], zero: -128, output: quantised(77, 0, 255), ..plain.clone() },
        Scheme { bias: Some(whole), clamp: Some((0.0, f32::INFINITY)), zero: 127, ..plain.clone() },
        Scheme { bias: None, weight_scales: vec![0.004], output: IntegerOutput::Float, ..plain.clone() },
        Scheme { clamp: Some((-spread, 6.0)), output: IntegerOutput::Float, ..plain.clone() },
        // Results beyond 16 bits, and beyond 32.
        Scheme { output: scaled(spread / 300.0, 99, -100, 127), ..plain.clone() },
        Scheme { is_unsigned: [false, true], output: scaled(spread * 1e-9, 40, 0, 250), ..plain.clone() },
        Scheme { sum: Some(Summand::Quantised(sum)), ..plain.clone() },
        Scheme {
            clamp: Some((-spread, 6.0)),
            output: IntegerOutput::Float,
            sum: Some(Summand::Floats),
            ..plain.clone()
        },
        Scheme {
            is_unsigned: [false, true],
            output: scaled(spread * 1e-9, 40, 0, 250),
            sum: Some(Summand::Quantised(IntegerSum {
                zero_point: 200,
                clamp: Some((0.0, spread * 90.0)),
                sum_zero_point: 3,
                low: 1,
                high: 255,
                ..sum
            })),
            ..plain.clone()
        },
        Scheme {
            output: scaled(spread / 300.0, 99, -100, 127),
            sum: Some(Summand::Quantised(IntegerSum { inverse: 900.0 / spread, low: -120, ..sum })),
            ..plain.clone()
        },
        Scheme { output: quantised(0, -127, 100), ..plain },
    ]
}
