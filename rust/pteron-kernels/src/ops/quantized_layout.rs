//! Where the scale and zero point of every element lie: one for the whole tensor, one per channel, or one
//! per token.

use crate::elements::Reader;
use crate::shape::{check_expandable, wrap_dim};
use crate::strided::loops::{Walk, broadcast_strides, signed};
use pteron_core::{ArgSpec, Args, DType, Dims, Error, MAX_RANK, PrepareContext, Result, TensorView};

/// How quantisation parameters spread over a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Numbers, or tensors of one element, for everything.
    Whole,
    /// One per index of the dimension that this argument names.
    Channel { axis: usize },
    /// One for each row of the last dimension.
    Token,
}

/// Walks over the tensor and its parameters in the output's order of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walks {
    pub x: Walk,
    pub scale: Walk,
    pub zero: Walk,
    pub numel: usize,
}

impl Default for Walks {
    fn default() -> Self {
        Walks { x: Walk::EMPTY, scale: Walk::EMPTY, zero: Walk::EMPTY, numel: 0 }
    }
}

impl Walks {
    /// For `x` at 0, its parameters at 1 and 2, and an output of the same shape at `out`.
    pub(crate) fn bind(args: &Args<'_>, spread: Spread, out: usize) -> Result<Walks> {
        let (x, out) = (args.tensor(0)?, args.tensor(out)?);
        let strides = |i: usize| -> Result<[isize; MAX_RANK]> {
            match (spread, args.optional_tensor(i)) {
                (Spread::Whole, Ok(Some(t))) => check_single(i, t.shape()).map(|()| [0; MAX_RANK]),
                (Spread::Whole, _) | (_, Ok(None)) => Ok([0; MAX_RANK]),
                (Spread::Channel { axis }, Ok(Some(t))) => channel_strides(x, t, args.int(axis)?),
                (Spread::Token, Ok(Some(t))) => token_strides(x.shape(), t),
                (_, Err(e)) => Err(e),
            }
        };
        let order = out.meta().dim_order();
        let walk = |strides: &[isize; MAX_RANK]| {
            Walk::new(order.as_slice().iter().map(|d| *d as usize), x.shape(), strides)
        };
        Ok(Walks {
            x: walk(&signed(x.strides())),
            scale: walk(&strides(1)?),
            zero: walk(&strides(2)?),
            numel: x.numel(),
        })
    }
}

fn check_single(i: usize, shape: &Dims) -> Result<()> {
    if shape.numel()? == 1 {
        return Ok(());
    }
    Err(Error::kernel("the parameters of a whole tensor have one element")
        .argument(if i == 1 { "scale" } else { "zero_point" })
        .got(shape.to_string()))
}

fn channel_strides(x: TensorView<'_>, parameter: TensorView<'_>, axis: i64) -> Result<[isize; MAX_RANK]> {
    let axis = wrap_dim(axis, x.rank())?;
    let extent = x.shape().get(axis).copied().unwrap_or(1);
    let mut strides = [0; MAX_RANK];
    match (parameter.rank(), parameter.numel()) {
        (1, 1) => {}
        (1, n) if n == extent => strides[axis] = 1,
        _ => {
            return Err(Error::kernel("a quantised tensor has one scale and one zero point per channel")
                .expected(format!("[{extent}]"))
                .got(parameter.shape().to_string()));
        }
    }
    Ok(strides)
}

fn token_strides(shape: &Dims, parameter: TensorView<'_>) -> Result<[isize; MAX_RANK]> {
    let tokens: usize = shape.split_last().map_or(1, |(_, rest)| rest.iter().product());
    if parameter.numel() != tokens {
        return Err(Error::kernel("a quantised tensor has one scale and one zero point per token")
            .expected(format!("{tokens} elements"))
            .got(parameter.shape().to_string()));
    }
    check_expandable(parameter.shape(), shape)?;
    Ok(broadcast_strides(parameter.shape(), parameter.strides(), shape.len()))
}

/// The number, or element of a tensor of one, at `i`.
pub(crate) fn single(args: &Args<'_>, i: usize) -> Result<f64> {
    match args.scalar(i) {
        Ok(number) => Ok(number.to_f64()),
        Err(_) => Reader::<f64>::new(args.tensor(i)?)?.get(0),
    }
}

/// Least and greatest number of a dtype that tensors are quantised to.
pub(crate) fn limits(dtype: DType) -> Result<(i64, i64)> {
    Ok(match dtype {
        DType::UInt8 => (0, 255),
        DType::Int8 => (-128, 127),
        DType::UInt16 => (0, 65535),
        DType::Int16 => (-32768, 32767),
        DType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        other => {
            return Err(Error::kernel("tensors are not quantised to this dtype")
                .expected("uint8, int8, uint16, int16 or int32")
                .got(other.name()));
        }
    })
}

/// An error unless argument `i` states `dtype`.
pub(crate) fn check_stated(ctx: &PrepareContext<'_>, i: usize, dtype: DType) -> Result<()> {
    match ctx.args.get(i) {
        Some(ArgSpec::Int(Some(code))) if *code != i64::from(dtype.code()) => {
            Err(Error::kernel("the quantised tensor has another dtype than the call states")
                .argument("dtype")
                .expected(dtype.name())
                .got(code.to_string()))
        }
        _ => Ok(()),
    }
}

/// Least and greatest quantised number, from arguments `at` and `at + 1`; within the dtype's own.
pub(crate) fn stated_limits(args: &Args<'_>, at: usize, dtype: DType) -> Result<(i64, i64)> {
    let (low, high) = (args.int(at)?, args.int(at + 1)?);
    let (least, greatest) = limits(dtype)?;
    if low < least || high > greatest {
        return Err(Error::kernel("the quantised range does not fit its dtype")
            .expected(format!("within {least} and {greatest} for {dtype}"))
            .got(format!("{low} to {high}")));
    }
    Ok((low, high))
}

/// An error unless argument `i` is float32 or float64.
pub(crate) fn check_scales(ctx: &PrepareContext<'_>, i: usize) -> Result<DType> {
    match ctx.tensor(i).map(|t| t.dtype) {
        Some(d @ (DType::Float32 | DType::Float64)) => Ok(d),
        other => Err(Error::kernel("scales have the wrong dtype")
            .expected("float32 or float64")
            .got(other.map_or("no tensor", DType::name))),
    }
}
