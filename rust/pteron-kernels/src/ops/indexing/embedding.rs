//! embedding of row-major tensors: rows of a table as bytes, every index checked.

use super::{bind_embedding, table_row};
use crate::chunk::CHUNK_BYTES;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use pteron_core::{BindArgs, DType, Element, PrepareContext, Result};

const WEIGHT: usize = 0;
const INDICES: usize = 1;
const OUT: usize = 5;

struct Embedding;

/// Rows of the table, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Table {
    rows: usize,
    bytes: usize,
}

pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(weight), Some(indices), Some(out)) = (ctx.tensor(WEIGHT), ctx.tensor(INDICES), ctx.tensor(OUT))
    else {
        return ctx.decline("an argument is no tensor");
    };
    let fits = weight.dtype == out.dtype
        && weight.shape.len() == 2
        && matches!(indices.dtype, DType::Int64 | DType::Int32)
        && [weight, indices, out].into_iter().all(|t| t.dim_order.is_contiguous());
    if fits {
        framed("embedding.rows", Embedding)
    } else {
        ctx.decline("takes a row-major matrix of the output's dtype and row-major int32 or int64 indices")
    }
}

impl UnitKernel for Embedding {
    type Problem = Table;

    fn bind(&self, args: &mut BindArgs<'_>, table: &mut Table) -> Result<Split> {
        bind_embedding(args)?;
        let view = args.args();
        let (weight, count) = (view.tensor(WEIGHT)?, view.tensor(INDICES)?.numel());
        let bytes = weight.shape()[1] * weight.dtype().size();
        *table = Table { rows: weight.shape()[0], bytes };
        let per_chunk = CHUNK_BYTES.div_ceil(bytes.max(1));
        Ok(Split::new(count, per_chunk, per_chunk.min(count) * (bytes / 16 + 8)))
    }

    fn run(&self, table: &Table, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        match chunk.args().tensor(INDICES)?.dtype() {
            DType::Int64 => take_rows::<i64>(table, chunk),
            _ => take_rows::<i32>(table, chunk),
        }
    }
}

fn take_rows<I: Element + Into<i64>>(table: &Table, chunk: &mut Chunk<'_, '_>) -> Result<()> {
    let (first, bytes) = (chunk.units.start, table.bytes);
    let indices = chunk.input_units::<I>(INDICES, 1)?.as_slice()?;
    let weight = chunk.input_bytes(WEIGHT)?.as_slice()?;
    let out = chunk.output_bytes(OUT, bytes)?.into_slice()?;
    let row = |i: usize, index: I| table_row(index.into(), first + i, table.rows);
    if bytes == 0 {
        return indices.iter().enumerate().try_for_each(|(i, index)| row(i, *index).map(drop));
    }
    for ((i, index), to) in indices.iter().enumerate().zip(out.chunks_exact_mut(bytes)) {
        let at = row(i, *index)? * bytes;
        to.copy_from_slice(&weight[at..at + bytes]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::Isa;

    #[test]
    fn embedding_checks_every_index() {
        let cpu = profile(Isa::Portable).unwrap();
        let run = |indices: &[i64]| {
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[3, 2], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap()),
                CallArg::Tensor(HostTensor::new(&[indices.len()], indices).unwrap()),
                CallArg::int(-1),
                CallArg::bool(false),
                CallArg::bool(false),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[indices.len(), 2]).unwrap()),
            ];
            let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
            call.call().map(|()| call.output::<f32>(5).unwrap())
        };
        assert_eq!(run(&[2, 0]).unwrap(), [4.0, 5.0, 0.0, 1.0]);
        assert_eq!(run(&[]).unwrap(), [0f32; 0]);
        for bad in [3, -1, i64::MIN] {
            let text = run(&[0, bad]).unwrap_err().to_string();
            assert!(text.contains(&format!("got {bad} at element 1")), "{text}");
        }
    }
}
