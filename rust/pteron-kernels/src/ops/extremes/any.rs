//! any on bool tensors over neighbouring dimensions: true where some byte is not zero.

use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::reduction::shape::{DimsArg, ReducedDims, Volumes};
use crate::routine::Preparation;
use pteron_core::{ArgSpec, BindArgs, Bool8, DType, PrepareContext, Result};

/// Input bytes of a chunk, about.
const CHUNK: usize = 64 << 10;

/// Units are the stretches of `reduced × inner` elements.
struct Any {
    dims: ReducedDims,
    out: usize,
}

/// The kernel for bools, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, out: usize, form: DimsArg) -> Preparation {
    let is_bool = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == DType::Bool);
    // An empty list of dimensions reduces nothing here, unlike in sums.
    let has_no_dims = matches!(ctx.args.get(1), Some(ArgSpec::IntList(dims)) if dims.is_empty());
    if !is_bool(0) || !is_bool(out) || has_no_dims {
        return ctx.decline("takes bool and a list of dimensions that is not empty");
    }
    ReducedDims::neighbours(ctx, out, form).map_or_else(
        || ctx.decline("takes reduced dimensions that are neighbours in memory"),
        |dims| framed("any.bool", Any { dims, out }),
    )
}

/// Any byte that is not zero? Eight at a time.
fn has_true(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().any(|w| w.iter().fold(0, |a, b| a | b) != 0) || rest.iter().any(|b| *b != 0)
}

impl UnitKernel for Any {
    type Problem = Volumes;

    fn bind(&self, args: &mut BindArgs<'_>, volumes: &mut Volumes) -> Result<Split> {
        *volumes = self.dims.bind(args, self.out)?;
        let units = if volumes.inner == 0 { 0 } else { volumes.outer };
        Ok(Split::sized(units, volumes.reduced * volumes.inner, CHUNK, 1.0 / 32.0))
    }

    fn run(&self, &Volumes { reduced, inner, .. }: &Volumes, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let size = reduced * inner;
        let input: &[u8] = bytemuck::cast_slice(chunk.input_units::<Bool8>(0, size)?.as_slice()?);
        let out: &mut [u8] =
            bytemuck::cast_slice_mut(chunk.output_units::<Bool8>(self.out, inner)?.into_slice()?);
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
