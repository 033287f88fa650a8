//! im2col of row-major tensors: a row of columns holds one element of every patch, which a line of the image has side by side
//! or a step apart. Elements are copied whatever they mean, so that dtypes of one size share the code.

use super::{Patches, bind_im2col, of_images};
use crate::chunk::CHUNK;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use pteron_core::{BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

const OUT: usize = 5;

struct Columns {
    /// Bytes of an element.
    size: usize,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_known = matches!(
        input.dtype,
        DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 | DType::Bool | DType::Complex64
    );
    let is_alike =
        input.dtype == out.dtype && input.dim_order.is_contiguous() && out.dim_order.is_contiguous();
    if !is_known || !is_alike {
        return ctx.decline("takes row-major tensors of one dtype");
    }
    framed(format!("im2col.{}", input.dtype.name()), Columns { size: input.dtype.size() })
}

impl UnitKernel for Columns {
    type Problem = Patches;

    fn bind(&self, args: &mut BindArgs<'_>, patches: &mut Patches) -> Result<Split> {
        bind_im2col(args)?;
        *patches = of_images(&args.args())?;
        let rows = patches.channels.saturating_mul(patches.area()).saturating_mul(patches.batch);
        Ok(Split::sized(rows, patches.total(), CHUNK, 0.5))
    }

    fn run(&self, patches: &Patches, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let rows = chunk.units.clone();
        let input = chunk.input_bytes(0)?.as_slice()?;
        let out = chunk.output_bytes(OUT, patches.total().saturating_mul(self.size))?.into_slice()?;
        match self.size {
            1 => copy::<u8>(patches, rows, input, out),
            2 => copy::<u16>(patches, rows, input, out),
            4 => copy::<u32>(patches, rows, input, out),
            // No u64: complex numbers may lie at any multiple of four bytes.
            _ => copy::<[u32; 2]>(patches, rows, input, out),
        }
    }
}

#[cold]
fn outside() -> Error {
    Error::internal("patches would leave their image")
}

/// Fills rows of columns, which are `out`.
fn copy<W: bytemuck::Pod>(patches: &Patches, rows: Range<usize>, input: &[u8], out: &mut [u8]) -> Result<()> {
    let misaligned = |_| Error::internal("a tensor is misaligned");
    let input: &[W] = bytemuck::try_cast_slice(input).map_err(misaligned)?;
    let out: &mut [W] = bytemuck::try_cast_slice_mut(out).map_err(misaligned)?;
    let ([height, width], [down, across]) = (patches.size, patches.count);
    let (area, pixels) = (patches.area().max(1), (height * width) as usize);
    for (row, out) in rows.zip(out.chunks_exact_mut(patches.total().max(1))) {
        let tap = (row % area) as i64;
        let tap = [tap / patches.kernel[1], tap % patches.kernel[1]];
        let plane = input.get(row / area * pixels..(row / area + 1) * pixels).ok_or_else(outside)?;
        let [top, left] = [0, 1].map(|d| tap[d] * patches.dilation[d] - patches.padding[d]);
        let step = patches.stride[1];
        // The patches whose element lies beside no margin: left + i · step is in 0..width.
        let first_beyond = |x: i64| (x - left + step - 1).div_euclid(step).clamp(0, across);
        let inside = first_beyond(0) as usize..first_beyond(width) as usize;
        for (i, line) in (0..down).zip(out.chunks_exact_mut(across.max(1) as usize)) {
            let y = top + i * patches.stride[0];
            if !(0..height).contains(&y) || inside.is_empty() {
                line.fill(W::zeroed());
                continue;
            }
            let x = y * width + left + inside.start as i64 * step;
            let from = usize::try_from(x).ok().and_then(|x| plane.get(x..)).ok_or_else(outside)?;
            let (before, rest) = line.split_at_mut(inside.start);
            let (middle, behind) = rest.split_at_mut(inside.len());
            before.fill(W::zeroed());
            behind.fill(W::zeroed());
            if step == 1 {
                middle.copy_from_slice(from.get(..middle.len()).ok_or_else(outside)?);
            } else {
                middle.iter_mut().zip(from.iter().step_by(step as usize)).for_each(|(to, v)| *to = *v);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::prepare_of;
    use half::{bf16, f16};
    use pteron_core::{Bool8, Complex64, Element, Isa, TensorSpec};

    /// Batch, channels, height, width; kernel, dilation, padding, stride in both directions.
    type Case = ([usize; 4], [[i64; 2]; 4]);

    const CASES: [Case; 6] = [
        ([2, 3, 9, 13], [[3, 3], [1, 1], [1, 1], [1, 1]]),
        ([1, 2, 10, 17], [[3, 2], [2, 3], [2, 0], [2, 3]]),
        ([3, 1, 4, 5], [[4, 5], [1, 1], [0, 0], [1, 1]]),
        // Taps that see nothing but the margin.
        ([1, 2, 3, 2], [[2, 3], [4, 5], [5, 9], [1, 2]]),
        ([2, 2, 1, 40], [[1, 4], [1, 1], [0, 3], [1, 4]]),
        ([0, 3, 6, 6], [[2, 2], [1, 1], [0, 0], [2, 2]]),
    ];

    fn run<T: Element>(variant: &str, is_batched: bool, case: Case, x: &[T]) -> Vec<u8> {
        let (shape, lists) = case;
        let count = |d: usize| {
            let [kernel, dilation, padding, stride] = lists.map(|list| list[d]);
            (shape[2 + d] as i64 + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
        };
        let rows = shape[1] * (lists[0][0] * lists[0][1]) as usize;
        let out = [shape[0], rows, (count(0) * count(1)) as usize];
        let from = usize::from(!is_batched);
        let mut args = vec![CallArg::Tensor(HostTensor::new(&shape[from..], x).unwrap())];
        args.extend(lists.map(|list| CallArg::Ints(list.to_vec())));
        // What is in the output before counts for nothing.
        let spec = TensorSpec::contiguous(T::DTYPE, &out[from..]).unwrap();
        let ones = vec![1; spec.nbytes().unwrap()];
        args.push(CallArg::Tensor(HostTensor::of_bytes(&spec, &ones).unwrap()));
        let prepare = prepare_of("aten::im2col.out", variant);
        let mut call = SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        call.output_bytes(5).unwrap().to_vec()
    }

    fn check<T: Element>(of: impl Fn(usize) -> T) {
        for case in CASES {
            let x: Vec<T> = (0..case.0.iter().product()).map(&of).collect();
            for is_batched in [true, false] {
                if !is_batched && case.0[0] != 1 {
                    continue;
                }
                let want = run("reference", is_batched, case, &x);
                let got = run("rows", is_batched, case, &x);
                assert!(got == want, "{:?} {case:?}: {got:?} instead of {want:?}", T::DTYPE);
            }
        }
    }

    #[test]
    fn patches_of_every_dtype_as_the_plain_kernel_has_them() {
        check(|i| Bool8::from(i % 3 == 0));
        check(|i| f16::from_f32(1.0 + i as f32));
        check(|i| bf16::from_f32(-1.0 - i as f32));
        check(|i| [f32::NAN, -0.0, f32::INFINITY, i as f32][i % 4]);
        check(|i| 1.0 + i as f64);
        check(|i| Complex64 { re: i as f32, im: 1.0 });
    }
}
