//! Weights: views of stored bytes, or of numbers computed from them.
//!
//! Quantised constants become f32 numbers here, `(element - zero_point) * scale`, but for symmetric int8 weights, which stay
//! bytes with scales ([`scales`]), and for filters of four bits, which stay pairs of numbers with scales ([`pairs`]).

use crate::datatype::Datatype;
use crate::expansion::{ConstantBytes, ExpandedConstant};
use crate::payload::{Quantisation, Scales, StoredBytes, Value};
use half::{bf16, f16};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{AlignedBuffer, DType, DimOrder, Dims, Error, NamedData, Result};
use std::sync::Arc;

/// The elements of a constant as they are stored.
pub(super) fn as_stored(value: &Value, stored: &StoredBytes) -> Result<ExpandedConstant> {
    if value.datatype.is_nibbles() {
        return Err(Error::missing_operator("weights of four bits are used as something else than weights")
            .expected("the filter of a FullyConnected node"));
    }
    Ok(ExpandedConstant {
        dtype: value.datatype.stored(),
        shape: value.dims,
        strides: DimOrder::contiguous(value.dims.len()).strides(&value.dims),
        bytes: stored.bytes.clone(),
    })
}

/// The numbers that a constant means, in `dtype`.
pub(super) fn real(
    value: &Value,
    stored: &StoredBytes,
    dtype: DType,
    payload: &[u8],
    named: &dyn NamedData,
) -> Result<ExpandedConstant> {
    if !value.datatype.is_quantised() && value.datatype.real() == dtype {
        return as_stored(value, stored);
    }
    let source = Bytes { payload, named };
    let numbers = source.numbers(value, stored)?;
    Ok(ExpandedConstant {
        dtype,
        shape: value.dims,
        strides: DimOrder::contiguous(value.dims.len()).strides(&value.dims),
        bytes: ConstantBytes::Computed(Arc::new(encoded(&numbers, dtype)?)),
    })
}

/// The scales of a quantised constant in f32: one, or one for each channel.
pub(super) fn scales(value: &Value, payload: &[u8], named: &dyn NamedData) -> Result<ExpandedConstant> {
    let numbers = match &value.quantisation {
        Quantisation::Tensor { scale, .. } => vec![*scale],
        Quantisation::Channel { scales, .. } => Bytes { payload, named }.scales(scales)?,
        _ => return Err(Error::internal("a value without a scale for each channel was asked for them")),
    };
    let shape = Dims::new(&[numbers.len()])?;
    Ok(ExpandedConstant {
        dtype: DType::Float32,
        shape,
        strides: DimOrder::contiguous(1).strides(&shape),
        bytes: ConstantBytes::Computed(Arc::new(encoded(&numbers, DType::Float32)?)),
    })
}

/// The inputs of an output that share a scale, of a matrix of four-bit numbers whose rows and groups are whole bytes; `None` for any other
/// value.
pub(super) fn group_of_pairs(value: &Value) -> Option<usize> {
    let &[rows, columns] = &*value.dims else { return None };
    let group = match value.quantisation {
        Quantisation::Channel { axis: 0, .. } => columns,
        Quantisation::Group { group_size, .. } => group_size,
        _ => return None,
    };
    let is_whole = rows > 0 && group > 0 && group.is_multiple_of(2) && columns.is_multiple_of(group);
    (value.datatype.is_nibbles() && is_whole && columns > 0).then_some(group)
}

/// A matrix of four-bit numbers as one row of a table of `embedding_4bit`: the first number of a pair in the high half, where the
/// payload has it in the low one.
pub(super) fn pairs(
    value: &Value,
    stored: &StoredBytes,
    payload: &[u8],
    named: &dyn NamedData,
) -> Result<ExpandedConstant> {
    let bytes = Bytes { payload, named }.of(stored)?;
    let count = value.dims.numel()? / 2;
    let bytes = bytes.get(..count).ok_or_else(|| Error::internal("an XNNPACK constant lost elements"))?;
    let mut turned = AlignedBuffer::zeroed(count)?;
    turned.as_mut_slice().iter_mut().zip(bytes).for_each(|(to, from)| *to = from.rotate_left(4));
    let shape = Dims::new(&[1, count])?;
    Ok(ExpandedConstant {
        dtype: DType::UInt8,
        shape,
        strides: DimOrder::contiguous(2).strides(&shape),
        bytes: ConstantBytes::Computed(Arc::new(turned)),
    })
}

/// The scales of that row, one for each `group` numbers.
pub(super) fn group_scales(
    value: &Value,
    group: usize,
    payload: &[u8],
    named: &dyn NamedData,
) -> Result<ExpandedConstant> {
    let (Quantisation::Channel { scales, .. } | Quantisation::Group { scales, .. }) = &value.quantisation
    else {
        return Err(Error::internal("a value without scales was asked for them"));
    };
    let numbers = Bytes { payload, named }.scales(scales)?;
    let expected = value.dims.numel()?.checked_div(group).unwrap_or_default();
    if numbers.len() != expected {
        return Err(Error::internal("a weight of four bits lost scales"));
    }
    let shape = Dims::new(&[1, expected])?;
    Ok(ExpandedConstant {
        dtype: DType::Float32,
        shape,
        strides: DimOrder::contiguous(2).strides(&shape),
        bytes: ConstantBytes::Computed(Arc::new(encoded(&numbers, DType::Float32)?)),
    })
}

/// The index of the only row of such a table.
pub(super) fn first_row() -> Result<ExpandedConstant> {
    let shape = Dims::new(&[1])?;
    Ok(ExpandedConstant {
        dtype: DType::Int64,
        shape,
        strides: DimOrder::contiguous(1).strides(&shape),
        bytes: ConstantBytes::Computed(Arc::new(AlignedBuffer::zeroed(size_of::<i64>())?)),
    })
}

/// Where stored bytes are read.
struct Bytes<'a> {
    payload: &'a [u8],
    named: &'a dyn NamedData,
}

impl<'a> Bytes<'a> {
    fn of(&self, stored: &StoredBytes) -> Result<&'a [u8]> {
        let found = match &stored.bytes {
            ConstantBytes::Named(key) => self.named.get(key).and_then(|bytes| bytes.get(..stored.len)),
            ConstantBytes::Payload(range) => self.payload.get(range.clone()),
            ConstantBytes::Computed(_) => None,
        };
        found.ok_or_else(|| Error::internal("stored bytes of an XNNPACK payload have gone"))
    }

    /// All elements as f32 numbers, row by row.
    fn numbers(&self, value: &Value, stored: &StoredBytes) -> Result<Vec<f32>> {
        let bytes = self.of(stored)?;
        let count = value.dims.numel()?;
        let mut numbers = match value.datatype {
            Datatype::Fp32 => decoded(bytes, count, f32::from_le_bytes)?,
            Datatype::Fp16 => decoded(bytes, count, |b| f16::from_le_bytes(b).to_f32())?,
            Datatype::Bf16 => decoded(bytes, count, |b| bf16::from_le_bytes(b).to_f32())?,
            #[allow(
                clippy::cast_precision_loss,
                reason = "biases are rounded to the nearest f32, as XNNPACK's sums are"
            )]
            Datatype::Int32 | Datatype::Qint32 | Datatype::Qcint32 => {
                decoded(bytes, count, |b| i32::from_le_bytes(b) as f32)?
            }
            Datatype::Quint8 => decoded(bytes, count, |[b]: [u8; 1]| f32::from(b))?,
            Datatype::Qcint4 | Datatype::Qbint4 => unpacked(bytes, &value.dims)?,
            Datatype::Qint8 | Datatype::Qcint8 | Datatype::Qdint8 => {
                decoded(bytes, count, |b| f32::from(i8::from_le_bytes(b)))?
            }
        };
        self.scale(value, &mut numbers)?;
        Ok(numbers)
    }

    fn scale(&self, value: &Value, numbers: &mut [f32]) -> Result<()> {
        match &value.quantisation {
            Quantisation::None | Quantisation::Dynamic { .. } => {}
            Quantisation::Tensor { scale, zero_point } => {
                // Zero points of bytes and of biases are small: exact.
                #[allow(clippy::cast_precision_loss, reason = "at most 255")]
                let zero = *zero_point as f32;
                numbers.iter_mut().for_each(|n| *n = (*n - zero) * scale);
            }
            Quantisation::Channel { scales, axis } => {
                let scales = self.scales(scales)?;
                let inner: usize = value.dims.iter().skip(axis.saturating_add(1)).product();
                scale_blocks(numbers, inner, &scales);
            }
            Quantisation::Group { scales, group_size } => {
                let scales = self.scales(scales)?;
                scale_blocks(numbers, *group_size, &scales);
            }
        }
        Ok(())
    }

    fn scales(&self, scales: &Scales) -> Result<Vec<f32>> {
        let found = match scales {
            Scales::Listed(list) => return Ok(list.clone()),
            Scales::Float32(stored) => {
                decoded(self.of(stored)?, elements::<f32>(stored), f32::from_le_bytes)?
            }
            Scales::BFloat16(stored) => {
                decoded(self.of(stored)?, elements::<bf16>(stored), |b| bf16::from_le_bytes(b).to_f32())?
            }
        };
        // A group of zeros may have the scale 0.
        match found.iter().find(|scale| !scale.is_finite() || **scale < 0.0) {
            Some(scale) => {
                Err(Error::program("a stored scale is negative or not finite").got(scale.to_string()))
            }
            None => Ok(found),
        }
    }
}

/// How many elements lie in `stored`.
fn elements<T>(stored: &StoredBytes) -> usize {
    stored.len.checked_div(size_of::<T>()).unwrap_or_default()
}

/// Multiplies every block of `block` neighbours with the next scale, over and over.
fn scale_blocks(numbers: &mut [f32], block: usize, scales: &[f32]) {
    for (part, scale) in numbers.chunks_mut(block.max(1)).zip(scales.iter().cycle()) {
        part.iter_mut().for_each(|n| *n *= scale);
    }
}

/// The first `count` elements of `N` bytes.
fn decoded<const N: usize>(bytes: &[u8], count: usize, element: impl Fn([u8; N]) -> f32) -> Result<Vec<f32>> {
    let mut out = try_with_capacity(count)?;
    out.extend(
        bytes.chunks_exact(N).take(count).filter_map(|chunk| chunk.first_chunk::<N>()).map(|b| element(*b)),
    );
    complete(out, count)
}

/// Numbers of four bits, each row in whole bytes, the first in the low half, 8 more than they mean.
fn unpacked(bytes: &[u8], dims: &[usize]) -> Result<Vec<f32>> {
    let &[rows, columns] = dims else { return Err(Error::internal("weights of four bits are no matrix")) };
    let count = pteron_core::sizes::checked_numel(dims)?;
    let mut out = try_with_capacity(count)?;
    for row in bytes.chunks_exact(columns.div_ceil(2).max(1)).take(rows) {
        let halves = row.iter().flat_map(|byte| [byte & 0xf, byte >> 4]);
        out.extend(halves.take(columns).map(|half| f32::from(half) - 8.0));
    }
    complete(out, count)
}

fn complete(numbers: Vec<f32>, count: usize) -> Result<Vec<f32>> {
    if numbers.len() == count {
        Ok(numbers)
    } else {
        Err(Error::internal("an XNNPACK constant lost elements"))
    }
}

/// Numbers as stored elements of `dtype`, rounded to nearest.
fn encoded(numbers: &[f32], dtype: DType) -> Result<AlignedBuffer> {
    let bytes = numbers.len().checked_mul(dtype.size());
    let bytes = bytes.ok_or_else(|| Error::limit("weights of an XNNPACK payload are too large to expand"))?;
    let mut buffer = AlignedBuffer::zeroed(bytes)?;
    let out = buffer.as_mut_slice();
    match dtype {
        DType::Float32 => fill(out, numbers, f32::to_le_bytes),
        DType::Float16 => fill(out, numbers, |n| f16::from_f32(n).to_le_bytes()),
        DType::BFloat16 => fill(out, numbers, |n| bf16::from_f32(n).to_le_bytes()),
        _ => {
            return Err(Error::missing_operator("weights of this type have no translation")
                .expected("float32, float16 or bfloat16")
                .got(dtype.name()));
        }
    }
    Ok(buffer)
}

fn fill<const N: usize>(out: &mut [u8], numbers: &[f32], bytes: impl Fn(f32) -> [u8; N]) {
    for (chunk, number) in out.chunks_exact_mut(N).zip(numbers) {
        chunk.copy_from_slice(&bytes(*number));
    }
}
