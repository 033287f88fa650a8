//! any on bool tensors over neighbouring dimensions: true where some byte is not zero.

use super::shape::{DimsArg, ReducedDims, Volumes};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bool8, Bound, DType, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

/// Input bytes of a chunk, about.
const CHUNK: usize = 64 << 10;

struct Any {
    dims: ReducedDims,
    out: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Outer {
    volumes: Volumes,
    per_chunk: usize,
}

fn prepare(ctx: &PrepareContext<'_>, out: usize, form: DimsArg) -> Result<Option<Box<dyn Prepared>>> {
    let is_bool = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Bool);
    // An empty list of dimensions reduces nothing here, unlike in sums.
    let has_no_dims = matches!(ctx.args.get(1), Some(ArgSpec::IntList(dims)) if dims.is_empty());
    if !is_bool(0) || !is_bool(out) || has_no_dims {
        return Ok(None);
    }
    Ok(ReducedDims::neighbours(ctx, out, form).map(|dims| Box::new(Any { dims, out }) as Box<dyn Prepared>))
}

/// Any byte that is not zero? Eight at a time.
fn has_true(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().any(|w| w.iter().fold(0, |a, b| a | b) != 0) || rest.iter().any(|b| *b != 0)
}

impl Prepared for Any {
    fn name(&self) -> &str {
        "any.bool"
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Outer::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let volumes = self.dims.bind(args, self.out)?;
        if volumes.outer * volumes.inner == 0 {
            return Ok(Grid::EMPTY);
        }
        let size = volumes.reduced * volumes.inner;
        let per_chunk = CHUNK.div_ceil(size.max(1));
        *bound.get_mut::<Outer>()? = Outer { volumes, per_chunk };
        Ok(Grid::chunks(volumes.outer.div_ceil(per_chunk), per_chunk.min(volumes.outer) * size / 32))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let Outer { volumes: Volumes { outer, reduced, inner }, per_chunk } = *bound.get::<Outer>()?;
        let first = chunk as usize * per_chunk;
        let count = per_chunk.min(outer - first);
        let size = reduced * inner;
        // SAFETY: outer · reduced · inner bytes of input, outer · inner of output; chunks are disjoint.
        let (input, out) = unsafe {
            let input: *const u8 = args.tensor(0)?.ptr::<Bool8>()?.cast();
            let out: *mut u8 = args.output(self.out)?.ptr::<Bool8>()?.cast();
            (
                std::slice::from_raw_parts(input.add(first * size), count * size),
                std::slice::from_raw_parts_mut(out.add(first * inner), count * inner),
            )
        };
        for (i, out) in out.chunks_exact_mut(inner).enumerate() {
            let rows = &input[i * size..(i + 1) * size];
            if inner == 1 {
                out[0] = u8::from(has_true(rows));
                continue;
            }
            out.fill(0);
            for row in rows.chunks_exact(inner) {
                out.iter_mut().zip(row).for_each(|(o, v)| *o |= u8::from(*v != 0));
            }
        }
        Ok(())
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::any.dims_out(Tensor self, int[]? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "bool",
        prepare: |ctx| prepare(ctx, 3, DimsArg::List),
    },
    StaticKernel {
        schema: "aten::any.out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "bool",
        prepare: |ctx| prepare(ctx, 3, DimsArg::One),
    },
    StaticKernel {
        schema: "aten::any.all_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "bool",
        prepare: |ctx| prepare(ctx, 1, DimsArg::All),
    },
];
