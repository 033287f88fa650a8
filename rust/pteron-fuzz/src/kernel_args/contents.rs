//! Elements of generated tensors.

use crate::choices::random_bytes;
use half::{bf16, f16};
use pteron_core::DType;

/// What tensors of a call hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Whole numbers from -3 to 4: sums and products of them are exact.
    Small,
    /// Whole numbers from 0 to 3: mostly legal indices.
    Indices,
    /// Numbers with fractions.
    Fractions,
    /// Infinities, NaN, the largest, the smallest, negative zero.
    Edges,
    /// Any bits.
    Bits,
}

const EDGES: [f64; 12] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    -0.0,
    0.0,
    1.0,
    -1.0,
    f64::MAX,
    f64::MIN,
    1e-310,
    3.0e38,
    -65504.0,
];

/// `numel` elements of a seed.
pub fn elements(seed: u64, contents: Contents, dtype: DType, numel: usize) -> Vec<u8> {
    let noise = random_bytes(seed, numel.max(1) * dtype.size().max(8));
    if contents == Contents::Bits {
        let mut bytes = noise[..numel * dtype.size()].to_vec();
        if dtype == DType::Bool {
            bytes.iter_mut().for_each(|b| *b &= 1);
        }
        return bytes;
    }
    let mut out = Vec::with_capacity(numel * dtype.size());
    let parts = if dtype.is_complex() { 2 } else { 1 };
    for word in noise.chunks_exact(8).cycle().take(numel * parts) {
        let noise = u16::from_le_bytes([word[0], word[1]]);
        let number = match contents {
            Contents::Small => f64::from(noise % 8) - 3.0,
            Contents::Indices => f64::from(noise % 4),
            Contents::Fractions => f64::from(noise) / 8192.0 - 4.0,
            _ => EDGES[usize::from(noise) % EDGES.len()],
        };
        push(&mut out, dtype, number);
    }
    out
}

/// `numel` elements of one value.
pub fn filled(dtype: DType, value: f64, numel: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let parts = if dtype.is_complex() { 2 } else { 1 };
    (0..numel * parts).for_each(|_| push(&mut out, dtype, value));
    out
}

/// Appends one number (half of a complex one), saturated.
fn push(out: &mut Vec<u8>, dtype: DType, v: f64) {
    match dtype {
        DType::UInt8 => out.extend((v as u8).to_le_bytes()),
        DType::Int8 => out.extend((v as i8).to_le_bytes()),
        DType::Int16 => out.extend((v as i16).to_le_bytes()),
        DType::Int32 => out.extend((v as i32).to_le_bytes()),
        DType::Int64 => out.extend((v as i64).to_le_bytes()),
        DType::UInt16 | DType::Bits16 => out.extend((v as u16).to_le_bytes()),
        DType::UInt32 => out.extend((v as u32).to_le_bytes()),
        DType::UInt64 => out.extend((v as u64).to_le_bytes()),
        DType::Float16 | DType::Complex32 => out.extend(f16::from_f64(v).to_le_bytes()),
        DType::BFloat16 => out.extend(bf16::from_f64(v).to_le_bytes()),
        DType::Float32 | DType::Complex64 => out.extend((v as f32).to_le_bytes()),
        DType::Float64 | DType::Complex128 => out.extend(v.to_le_bytes()),
        DType::Bool => out.push(u8::from(v > 0.0)),
        // 1 or 0 in every 8-bit float whose exponent bias is 7 or 15: good enough as a sample.
        _ => out.push(if v > 0.0 { 0x38 } else { 0 }),
    }
}

/// An element as a number, for comparisons; `None` for types that are compared as bytes.
pub fn number(dtype: DType, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        DType::Float32 | DType::Complex64 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        DType::Float64 | DType::Complex128 => f64::from_le_bytes(bytes.try_into().ok()?),
        DType::Float16 | DType::Complex32 => f16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        DType::BFloat16 => bf16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        _ => return None,
    })
}

/// Bytes of what [`number`] takes.
pub fn part_size(dtype: DType) -> usize {
    if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() }
}
