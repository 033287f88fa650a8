//! cat of tensors of one dtype, all in the same memory order: for every index of the dimensions outside the joined one,
//! each input contributes one contiguous stretch.

use super::cat_shape;
use crate::chunk::CHUNK_BYTES;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use pteron_core::{ArgSpec, BindArgs, PrepareContext, Result, TensorSpec};

const OUT: usize = 2;

struct Cat;

/// Rows of the output, one for every index of the outer dimensions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OutputRows {
    count: usize,
    bytes: usize,
}

pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(ArgSpec::TensorList(inputs)), Some(out)) = (ctx.args.first(), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_alike = |t: &Option<TensorSpec>| {
        t.as_ref().is_some_and(|t| t.dtype == out.dtype && t.dim_order == out.dim_order)
    };
    if inputs.is_empty() || !inputs.iter().all(is_alike) {
        return ctx.decline("takes inputs of the output's dtype and memory order");
    }
    framed("cat.copy", Cat)
}

impl UnitKernel for Cat {
    type Problem = OutputRows;

    fn bind(&self, args: &mut BindArgs<'_>, rows: &mut OutputRows) -> Result<Split> {
        let (dim, shape) = cat_shape(&args.args().tensor_list(0)?, args.args().int(1)?)?;
        args.resize(OUT, &shape)?;
        let out = args.args().output(OUT)?;
        if out.numel() == 0 {
            return Ok(Split::NONE);
        }
        // What lies inside the joined dimension in memory, that dimension included.
        let order = out.meta().dim_order();
        let outside = order.as_slice().iter().take_while(|d| usize::from(**d) != dim);
        let count: usize = outside.map(|d| shape[usize::from(*d)]).product();
        *rows = OutputRows { count, bytes: out.nbytes() / count };
        let per_chunk = CHUNK_BYTES.div_ceil(rows.bytes);
        Ok(Split::new(count, per_chunk, per_chunk.min(count) * rows.bytes / 16))
    }

    fn run(&self, rows: &OutputRows, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let units = chunk.units.clone();
        let out = chunk.output_bytes(OUT, rows.bytes)?.into_slice()?;
        let mut at = 0;
        for j in 0..chunk.args().tensor_list(0)?.len() {
            let input = chunk.list_bytes(0, j)?.as_slice()?;
            let bytes = input.len() / rows.count;
            for (row, target) in units.clone().zip(out.chunks_exact_mut(rows.bytes)) {
                target[at..at + bytes].copy_from_slice(&input[row * bytes..][..bytes]);
            }
            at += bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::{DType, Isa};

    #[test]
    fn cat_joins_stretches() {
        let cpu = profile(Isa::Portable).unwrap();
        let t = |shape: &[usize], first: i32| {
            let n: usize = shape.iter().product();
            HostTensor::new(shape, &(first..first + n as i32).collect::<Vec<_>>()).unwrap()
        };
        let run = |tensors: Vec<HostTensor>, dim: i64, out: &[usize]| {
            let out = CallArg::Tensor(HostTensor::zeros(DType::Int32, out).unwrap());
            let args = vec![CallArg::Tensors(tensors), CallArg::int(dim), out];
            let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
            call.call().map(|()| call.output::<i32>(2).unwrap())
        };
        assert_eq!(run(vec![t(&[2, 1], 0), t(&[2, 2], 10)], -1, &[2, 3]).unwrap(), [0, 10, 11, 1, 12, 13]);
        assert_eq!(
            run(vec![t(&[1, 2], 0), t(&[0, 2], 5), t(&[2, 2], 10)], 0, &[3, 2]).unwrap(),
            [0, 1, 10, 11, 12, 13]
        );
        assert!(run(vec![t(&[2, 1], 0), t(&[3, 2], 10)], 1, &[2, 3]).is_err());
    }
}
