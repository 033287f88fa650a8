//! embedding: rows of a table by index, every index checked.

use pteron_core::{
    Args, BindArgs, Bound, DType, Error, Grid, PrepareContext, Prepared, Result, StaticKernel, WorkerScratch,
};

const WEIGHT: usize = 0;
const INDICES: usize = 1;
const OUT: usize = 5;
/// Bytes that a chunk writes at least.
const CHUNK_BYTES: usize = 64 << 10;

struct Embedding;

#[derive(Debug, Clone, Copy, Default)]
struct Rows {
    table: usize,
    bytes: usize,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(weight), Some(indices), Some(out)) = (ctx.tensor(WEIGHT), ctx.tensor(INDICES), ctx.tensor(OUT))
    else {
        return Ok(None);
    };
    let fits = weight.dtype == out.dtype
        && weight.shape.len() == 2
        && matches!(indices.dtype, DType::Int64 | DType::Int32)
        && [weight, indices, out].into_iter().all(|t| t.dim_order.is_contiguous());
    Ok(fits.then(|| Box::new(Embedding) as Box<dyn Prepared>))
}

impl Prepared for Embedding {
    fn name(&self) -> &str {
        "embedding.rows"
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Rows::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let a = args.args();
        let (weight, indices) = (a.tensor(WEIGHT)?, a.tensor(INDICES)?);
        let (table, width) = (weight.shape()[0], weight.shape()[1]);
        let (count, bytes) = (indices.numel(), width * weight.dtype().size());
        let mut shape = *indices.shape();
        shape.push(width)?;
        args.resize(OUT, &shape)?;
        if count == 0 {
            return Ok(Grid::EMPTY);
        }
        let per_chunk = CHUNK_BYTES.div_ceil(bytes.max(1));
        *bound.get_mut::<Rows>()? = Rows { table, bytes, per_chunk };
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * (bytes / 16 + 8)))
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
        let indices = args.tensor(INDICES)?;
        let first = chunk as usize * rows.per_chunk;
        let weight = args.tensor(WEIGHT)?.as_ptr();
        let out = args.output(OUT)?.as_ptr();
        for i in first..(first + rows.per_chunk).min(indices.numel()) {
            // SAFETY: i is an index of `indices`.
            let index = unsafe {
                match indices.dtype() {
                    DType::Int64 => *indices.ptr::<i64>()?.add(i),
                    _ => i64::from(*indices.ptr::<i32>()?.add(i)),
                }
            };
            let row = usize::try_from(index).ok().filter(|r| *r < rows.table).ok_or_else(|| {
                Error::kernel("embedding index out of range")
                    .argument("indices")
                    .expected(format!("0..{}", rows.table))
                    .got(format!("{index} at element {i}"))
            })?;
            // SAFETY: `row` is inside the table and `i` inside the output.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    weight.add(row * rows.bytes),
                    out.add(i * rows.bytes),
                    rows.bytes,
                );
            }
        }
        Ok(())
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::embedding.out(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, \
             bool sparse=False, *, Tensor(a!) out) -> Tensor(a!)",
    variant: "rows",
    prepare,
}];
