//! tril and triu: the elements of row-major matrices on one side of a diagonal, zeros on the other. Any dtype, moved as
//! bytes; the diagonal counts from the main one, upwards. Unsafe island.

use pteron_core::{
    Args, BindArgs, Bound, Error, Grid, PrepareContext, Prepared, Result, StaticKernel, WorkerScratch,
};

const OUT: usize = 2;
/// Bytes that a chunk writes at least.
const CHUNK_BYTES: usize = 64 << 10;

struct Triangle {
    is_lower: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rows {
    /// Of all matrices together.
    count: usize,
    /// Of one matrix.
    per_matrix: usize,
    columns: usize,
    diagonal: i64,
    element_size: usize,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>, is_lower: bool) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(from), Some(to)) = (ctx.tensor(0), ctx.tensor(OUT)) else { return Ok(None) };
    let is_plain = from.dtype == to.dtype && from.dim_order.is_contiguous() && to.dim_order.is_contiguous();
    Ok(is_plain.then(|| Box::new(Triangle { is_lower }) as Box<dyn Prepared>))
}

impl Rows {
    /// Elements of a row before the border.
    fn before_border(&self, row: usize, is_lower: bool) -> usize {
        let in_matrix = (row % self.per_matrix) as i64;
        let border = (in_matrix + i64::from(is_lower)).saturating_add(self.diagonal);
        border.clamp(0, self.columns as i64) as usize
    }
}

impl Prepared for Triangle {
    fn name(&self) -> &str {
        if self.is_lower { "tril.copy" } else { "triu.copy" }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Rows::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let view = args.args();
        let (input, diagonal) = (view.tensor(0)?, view.int(1)?);
        let shape = *input.shape();
        let &[.., per_matrix, columns] = &*shape else {
            return Err(Error::kernel("a triangle needs two dimensions")
                .argument("self")
                .got(shape.to_string()));
        };
        let (numel, element_size) = (input.numel(), input.dtype().size());
        args.resize(OUT, &shape)?;
        if numel == 0 {
            return Ok(Grid::EMPTY);
        }
        let (count, bytes) = (numel / columns, columns * element_size);
        let per_chunk = CHUNK_BYTES.div_ceil(bytes);
        *bound.get_mut::<Rows>()? = Rows { count, per_matrix, columns, diagonal, element_size, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * bytes / 16))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let rows = *bound.get::<Rows>()?;
        let (from, to) = (args.tensor(0)?.as_ptr(), args.output(OUT)?.as_ptr());
        let bytes = rows.columns * rows.element_size;
        let first = chunk as usize * rows.per_chunk;
        for row in first..(first + rows.per_chunk).min(rows.count) {
            let border = rows.before_border(row, self.is_lower) * rows.element_size;
            let (kept, cleared) =
                if self.is_lower { (0..border, border..bytes) } else { (border..bytes, 0..border) };
            // SAFETY: both tensors have `count` rows of `bytes`, and the parts lie inside a row.
            unsafe {
                let (from, to) = (from.add(row * bytes), to.add(row * bytes));
                std::ptr::copy_nonoverlapping(from.add(kept.start), to.add(kept.start), kept.len());
                to.add(cleared.start).write_bytes(0, cleared.len());
            }
        }
        Ok(())
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::tril.out(Tensor self, int diagonal=0, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "rows",
        prepare: |ctx| prepare(ctx, true),
    },
    StaticKernel {
        schema: "aten::triu.out(Tensor self, int diagonal=0, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "rows",
        prepare: |ctx| prepare(ctx, false),
    },
];

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
                let mut call = SingleCall::new(KERNELS[kernel].prepare, &cpu, args).unwrap().unwrap();
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
