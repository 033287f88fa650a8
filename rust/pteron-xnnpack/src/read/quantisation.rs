//! Quantisation parameters of a value, checked against its type and extents.

use super::constants::Constants;
use super::fields::index;
use crate::datatype::Datatype;
use crate::generated::wire;
use crate::payload::{Quantisation, Scales, StoredBytes};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Result};

/// The parameters of a value of type `datatype` and extents `dims`.
pub(super) fn read(
    value: &wire::QuantizedTensorValue<'_>,
    datatype: Datatype,
    dims: &[usize],
    constants: &Constants<'_>,
) -> Result<Quantisation> {
    let expected = |what: &str| {
        Error::program("the quantisation parameters do not fit the type of the value")
            .expected(format!("{what} for {}", datatype.name()))
            .got(value.quant_params_type().variant_name().unwrap_or("an unknown kind"))
    };
    match datatype {
        Datatype::Qint8 | Datatype::Quint8 | Datatype::Qint32 => {
            let params =
                value.quant_params_as_per_tensor_quant().ok_or_else(|| expected("PerTensorQuant"))?;
            per_tensor(&params, datatype)
        }
        Datatype::Qcint8 | Datatype::Qcint32 | Datatype::Qcint4 => {
            let params =
                value.quant_params_as_per_channel_quant().ok_or_else(|| expected("PerChannelQuant"))?;
            per_channel(&params, dims, constants)
        }
        Datatype::Qbint4 => {
            let params = value
                .quant_params_as_per_channel_group_quant()
                .ok_or_else(|| expected("PerChannelGroupQuant"))?;
            per_group(&params, dims, constants)
        }
        Datatype::Qdint8 => {
            let params = value
                .quant_params_as_per_token_dynamic_quant()
                .ok_or_else(|| expected("PerTokenDynamicQuant"))?;
            per_token(&params, dims)
        }
        Datatype::Fp32 | Datatype::Fp16 | Datatype::Bf16 | Datatype::Int32 => Err(expected("no parameters")),
    }
}

fn per_tensor(params: &wire::PerTensorQuant<'_>, datatype: Datatype) -> Result<Quantisation> {
    let (scale, zero_point) = (params.scale(), params.zero_point());
    check_scale(scale)?;
    let legal = match datatype {
        Datatype::Qint8 => -128..=127,
        Datatype::Quint8 => 0..=255,
        _ => 0..=0,
    };
    if !legal.contains(&zero_point) {
        return Err(Error::program("a zero point is outside of the type's range")
            .expected(format!("{} to {}", legal.start(), legal.end()))
            .got(zero_point.to_string()));
    }
    Ok(Quantisation::Tensor { scale, zero_point })
}

fn per_channel(
    params: &wire::PerChannelQuant<'_>,
    dims: &[usize],
    constants: &Constants<'_>,
) -> Result<Quantisation> {
    let axis = axis(params.channel_dim(), dims)?;
    let channels = dims.get(axis).copied().unwrap_or_default();
    let scales = match params.scale().filter(|list| !list.is_empty()) {
        Some(list) => listed(list, channels)?,
        None => {
            check_count(index(params.num_scales()), channels)?;
            let stored = constants.stored(params.scale_buffer_idx(), size_of::<f32>())?;
            Scales::Float32(first(stored, channels, size_of::<f32>())?)
        }
    };
    Ok(Quantisation::Channel { scales, axis })
}

fn per_group(
    params: &wire::PerChannelGroupQuant<'_>,
    dims: &[usize],
    constants: &Constants<'_>,
) -> Result<Quantisation> {
    let &[rows, columns] = dims else {
        return Err(Error::program("scales of groups belong to a matrix").got(format!("extents {dims:?}")));
    };
    if axis(params.channel_dim(), dims)? != 0 {
        return Err(Error::program("scales of groups belong to the rows of a matrix")
            .expected("channel_dim 0")
            .got(params.channel_dim().to_string()));
    }
    let group_size =
        usize::try_from(params.group_size()).ok().filter(|g| *g > 0 && columns.is_multiple_of(*g));
    let Some(group_size) = group_size else {
        return Err(Error::program("a row does not divide into groups")
            .expected(format!("a positive divisor of {columns}"))
            .got(params.group_size().to_string()));
    };
    let groups = columns.checked_div(group_size).and_then(|n| n.checked_mul(rows));
    let groups = groups.ok_or_else(|| Error::program("there are too many groups of weights"))?;
    let scales = match params.scale().filter(|list| !list.is_empty()) {
        Some(list) => listed(list, groups)?,
        None => {
            check_count(index(params.num_scales()), groups)?;
            let stored = constants.stored(params.scale_buffer_idx(), size_of::<u16>())?;
            Scales::BFloat16(first(stored, groups, size_of::<u16>())?)
        }
    };
    Ok(Quantisation::Group { scales, group_size })
}

fn per_token(params: &wire::PerTokenDynamicQuant<'_>, dims: &[usize]) -> Result<Quantisation> {
    let row_dims = usize::try_from(params.num_nonbatch_dims()).ok().filter(|n| (1..=dims.len()).contains(n));
    row_dims.map(|row_dims| Quantisation::Dynamic { row_dims }).ok_or_else(|| {
        Error::program("rows that are quantised together have more dimensions than the value")
            .expected(format!("num_nonbatch_dims from 1 to {}", dims.len()))
            .got(params.num_nonbatch_dims().to_string())
    })
}

fn axis(channel_dim: i32, dims: &[usize]) -> Result<usize> {
    usize::try_from(channel_dim).ok().filter(|axis| *axis < dims.len()).ok_or_else(|| {
        Error::program("the dimension of channels is outside of the value")
            .expected(format!("channel_dim below {}", dims.len()))
            .got(channel_dim.to_string())
    })
}

fn listed(list: flatbuffers::Vector<'_, f32>, count: usize) -> Result<Scales> {
    check_count(list.len(), count)?;
    let mut scales = try_with_capacity(count)?;
    for scale in list {
        check_scale(scale)?;
        scales.push(scale);
    }
    Ok(Scales::Listed(scales))
}

fn check_count(found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::program("the number of scales is wrong").expected(expected.to_string()).got(found.to_string()))
}

/// The first `count` numbers of `size` bytes.
fn first(stored: StoredBytes, count: usize, size: usize) -> Result<StoredBytes> {
    match count.checked_mul(size) {
        Some(len) if len <= stored.len => Ok(StoredBytes { len, ..stored }),
        _ => Err(Error::program("the bytes of scales are too few")
            .expected(format!("{count} numbers of {size} bytes"))
            .got(format!("{} bytes", stored.len))),
    }
}

/// A scale is a positive number.
fn check_scale(scale: f32) -> Result<()> {
    if scale.is_finite() && scale > 0.0 {
        return Ok(());
    }
    Err(Error::program("a scale is not a positive number").got(scale.to_string()))
}
