//! cat: tensors of one dtype joined along a dimension, all in the same memory order. For every index of
//! the dimensions outside the joined one, each input contributes one contiguous stretch.

use super::views::wrap_dim;
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, Dims, Error, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

const OUT: usize = 2;
/// Bytes that a chunk writes at least.
const CHUNK_BYTES: usize = 64 << 10;

struct Cat;

/// Outer rows and their bytes in the output.
#[derive(Debug, Clone, Copy, Default)]
struct Rows {
    count: usize,
    bytes: usize,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(ArgSpec::TensorList(inputs)), Some(out)) = (ctx.args.first(), ctx.tensor(OUT)) else {
        return Ok(None);
    };
    let is_alike = |t: &Option<pteron_core::TensorSpec>| {
        t.as_ref().is_some_and(|t| t.dtype == out.dtype && t.dim_order == out.dim_order)
    };
    Ok((!inputs.is_empty() && inputs.iter().all(is_alike)).then(|| Box::new(Cat) as Box<dyn Prepared>))
}

/// Product of the extents that lie inside `dim` in memory, `dim` included.
fn inner_volume(order: &[u8], shape: &Dims, dim: usize) -> usize {
    let at = order.iter().position(|d| *d as usize == dim).unwrap_or(0);
    order[at..].iter().map(|d| shape[*d as usize]).product()
}

impl Prepared for Cat {
    fn name(&self) -> &str {
        "cat.copy"
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Rows::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let a = args.args();
        let inputs = a.tensor_list(0)?;
        let first = inputs.get(0)?;
        let mut shape = *first.shape();
        let dim = wrap_dim(a.int(1)?, shape.len())?;
        for j in 1..inputs.len() {
            let other = *inputs.get(j)?.shape();
            let fits =
                other.len() == shape.len() && (0..shape.len()).all(|d| d == dim || other[d] == shape[d]);
            if !fits {
                return Err(Error::kernel("the tensors to join differ outside the joined dimension")
                    .expected(format!("{} except at dimension {dim}", first.shape()))
                    .got(format!("{other} at position {j}")));
            }
            shape[dim] += other[dim];
        }
        args.resize(OUT, &shape)?;
        let out = args.args().output(OUT)?;
        if out.numel() == 0 {
            return Ok(Grid::EMPTY);
        }
        let volume = inner_volume(out.meta().dim_order().as_slice(), &shape, dim);
        let bytes = volume * out.dtype().size();
        let count = out.numel() / volume;
        let per_chunk = CHUNK_BYTES.div_ceil(bytes);
        *bound.get_mut::<Rows>()? = Rows { count, bytes, per_chunk };
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
        let first = chunk as usize * rows.per_chunk;
        let last = (first + rows.per_chunk).min(rows.count);
        let inputs = args.tensor_list(0)?;
        let out = args.output(OUT)?.as_ptr();
        let mut at = 0;
        for j in 0..inputs.len() {
            let input = inputs.get(j)?;
            let bytes = input.nbytes() / rows.count;
            for row in first..last {
                // SAFETY: every input has rows.count stretches of `bytes`, which add up to rows.bytes.
                unsafe {
                    let from = input.as_ptr().add(row * bytes);
                    std::ptr::copy_nonoverlapping(from, out.add(row * rows.bytes + at), bytes);
                }
            }
            at += bytes;
        }
        Ok(())
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)",
    variant: "copy",
    prepare,
}];
