//! What is known at load of an integer convolution: its window, and how its tensors lie.

use super::spec::{IntegerOperation, IntegerSpec};
use crate::conv::geometry::{Extents, Geometry};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, TensorSpec};

/// A call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub geometry: Geometry,
    /// Do input and output lie channels-last?
    pub is_interleaved: [bool; 2],
    /// Position of the summand, where there is one.
    pub summand: Option<usize>,
    /// Position of the output.
    pub out: usize,
}

/// Channels-last? `None` for memory orders that are neither that nor row-major.
fn is_interleaved(spec: &TensorSpec) -> Option<bool> {
    let order = &spec.dim_order;
    if order.is_channels_last() {
        return Some(true);
    }
    order.is_contiguous().then_some(false)
}

/// A list with an entry for each of the two spatial dimensions of the geometry; of fewer dimensions the first are `fill`.
fn pair(list: &[i64], rank: usize, fill: usize) -> Option<[usize; 3]> {
    let mut out = [1, fill, fill];
    if list.len() != rank && list.len() != 1 {
        return None;
    }
    for (d, slot) in out[3 - rank..].iter_mut().enumerate() {
        let v = if let [one] = list { *one } else { *list.get(d)? };
        *slot = usize::try_from(v).ok()?;
    }
    out[0] = fill;
    Some(out)
}

impl Call {
    /// The call of `spec`; `None` for one that is no convolution of one or two dimensions, whose window is wrong, or whose
    /// tensors lie in another order than planes or channels-last.
    pub(super) fn of(ctx: &PrepareContext<'_>, spec: &IntegerSpec) -> Option<Call> {
        let IntegerOperation::Convolution { stride, padding, dilation, groups } = &spec.operation else {
            return None;
        };
        let (summand, out) = (spec.summand(), spec.out());
        let (input, weight, output) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(out)?);
        let rank = weight.shape.len().checked_sub(2).filter(|r| (1..=2).contains(r))?;
        let groups = usize::try_from(*groups).ok().filter(|g| *g > 0)?;
        let are_alike = [input, output].iter().all(|t| t.shape.len() == rank + 2);
        if !are_alike || weight.dtype != DType::Int8 || !weight.shape[0].is_multiple_of(groups) {
            return None;
        }
        let (before, behind) = match padding.len() == 2 * rank {
            true if rank > 0 => padding.split_at(rank),
            _ => (padding.as_slice(), padding.as_slice()),
        };
        let mut kernel = [1; 3];
        kernel[3 - rank..].copy_from_slice(&weight.shape[2..]);
        let geometry = Geometry {
            spatial_rank: rank,
            kernel,
            stride: pair(stride, rank, 1)?,
            padding: pair(before, rank, 0)?,
            padding_behind: pair(behind, rank, 0)?,
            dilation: pair(dilation, rank, 1)?,
            output_padding: [0; 3],
            is_transposed: false,
            groups,
            in_channels: weight.shape[1],
            out_channels: weight.shape[0] / groups,
        };
        let geometry = geometry.sound()?;
        geometry.extents(&input.shape).ok()?;
        let is_interleaved = [is_interleaved(input)?, is_interleaved(output)?];
        // A summand is added where the output is written.
        (summand.is_none() || is_interleaved[1]).then_some(Call { geometry, is_interleaved, summand, out })
    }

    /// The extents of a call, whose output gets its shape.
    pub(super) fn bind(&self, args: &mut BindArgs<'_>) -> Result<Extents> {
        let extents = self.geometry.extents(args.args().tensor(0)?.shape())?;
        let shape = self.geometry.output_shape(&extents)?;
        args.resize(self.out, &shape)?;
        check_summand(&args.args(), self.summand, &shape)?;
        Ok(extents)
    }
}

/// An error when the summand does not have the output's shape.
pub(super) fn check_summand(args: &Args<'_>, summand: Option<usize>, out: &Dims) -> Result<()> {
    let Some(i) = summand else { return Ok(()) };
    let summand = args.tensor(i)?;
    if summand.shape() != out {
        return Err(Error::kernel(
            "what is added to an integer product does not have the shape of its result",
        )
        .expected(out.to_string())
        .got(summand.shape().to_string()));
    }
    Ok(())
}

/// The first byte of the summand; null where there is none.
pub(super) fn summand_of(args: &Args<'_>, summand: Option<usize>) -> Result<*const u8> {
    summand.map_or(Ok(std::ptr::null()), |i| Ok(args.tensor(i)?.as_ptr()))
}
