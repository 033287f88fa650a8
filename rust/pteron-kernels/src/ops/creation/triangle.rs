//! tril and triu: the elements of row-major matrices on one side of a diagonal, zeros on the other. Any dtype, moved as
//! bytes; the diagonal counts from the main one, upwards.

use super::bind_triangle;
use crate::chunk::CHUNK_BYTES;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use pteron_core::{BindArgs, PrepareContext, Result};

const OUT: usize = 2;

struct Triangle<const IS_LOWER: bool>;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MatrixRows {
    /// Of one matrix.
    per_matrix: usize,
    columns: usize,
    diagonal: i64,
    element_size: usize,
}

pub(super) fn prepare<const IS_LOWER: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(from), Some(to)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_row_major = from.dim_order.is_contiguous() && to.dim_order.is_contiguous();
    let name = if IS_LOWER { "tril.copy" } else { "triu.copy" };
    if from.dtype == to.dtype && is_row_major {
        framed(name, Triangle::<IS_LOWER>)
    } else {
        ctx.decline("takes one dtype in row-major order")
    }
}

impl MatrixRows {
    /// Elements of a row before the border.
    fn before_border(&self, row: usize, is_lower: bool) -> usize {
        let in_matrix = (row % self.per_matrix) as i64;
        let border = (in_matrix + i64::from(is_lower)).saturating_add(self.diagonal);
        border.clamp(0, self.columns as i64) as usize
    }
}

impl<const IS_LOWER: bool> UnitKernel for Triangle<IS_LOWER> {
    type Problem = MatrixRows;

    fn bind(&self, args: &mut BindArgs<'_>, rows: &mut MatrixRows) -> Result<Split> {
        bind_triangle(args)?;
        let view = args.args();
        let (input, diagonal) = (view.tensor(0)?, view.int(1)?);
        let &[.., per_matrix, columns] = &**input.shape() else { return Ok(Split::NONE) };
        let (numel, element_size) = (input.numel(), input.dtype().size());
        if numel == 0 {
            return Ok(Split::NONE);
        }
        *rows = MatrixRows { per_matrix, columns, diagonal, element_size };
        let (count, bytes) = (numel / columns, columns * element_size);
        let per_chunk = CHUNK_BYTES.div_ceil(bytes);
        Ok(Split::new(count, per_chunk, per_chunk.min(count) * bytes / 16))
    }

    fn run(&self, rows: &MatrixRows, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let bytes = rows.columns * rows.element_size;
        let units = chunk.units.clone();
        let from = chunk.input_bytes(0)?.part(units.start * bytes..units.end * bytes)?.as_slice()?;
        let out = chunk.output_bytes(OUT, bytes)?.into_slice()?;
        for ((row, from), to) in units.zip(from.chunks_exact(bytes)).zip(out.chunks_exact_mut(bytes)) {
            let border = rows.before_border(row, IS_LOWER) * rows.element_size;
            let (kept, cleared) =
                if IS_LOWER { (0..border, border..bytes) } else { (border..bytes, 0..border) };
            to[kept.clone()].copy_from_slice(&from[kept]);
            to[cleared].fill(0);
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
    fn every_diagonal_of_every_matrix() {
        let cpu = profile(Isa::Portable).unwrap();
        for shape in [[2usize, 3, 5], [1, 7, 2], [3, 200, 300], [2, 0, 4]] {
            let n: usize = shape.iter().product();
            let x: Vec<i16> = (0..n).map(|i| (i % 1000) as i16 + 1).collect();
            for (diagonal, kernel) in
                [0, 1, -2, 4, i64::MAX, i64::MIN].into_iter().flat_map(|d| [(d, 0), (d, 1)])
            {
                let args = vec![
                    CallArg::Tensor(HostTensor::new(&shape, &x).unwrap()),
                    CallArg::int(diagonal),
                    CallArg::Tensor(HostTensor::zeros(DType::Int16, &shape).unwrap()),
                ];
                let mut call = SingleCall::new([prepare::<true>, prepare::<false>][kernel], &cpu, args)
                    .unwrap()
                    .unwrap();
                call.call().unwrap();
                for (i, y) in call.output::<i16>(OUT).unwrap().iter().enumerate() {
                    let distance = (i % shape[2]) as i64 - (i / shape[2] % shape[1]) as i64;
                    let is_kept = if kernel == 0 { distance <= diagonal } else { distance >= diagonal };
                    assert_eq!(*y, if is_kept { x[i] } else { 0 }, "{shape:?} {diagonal} {kernel} {i}");
                }
            }
        }
    }
}
